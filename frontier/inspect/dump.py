"""The dump: everything a Frontier holds as text, one JSON object per line; written by `dump_lines`, read by `Dump`.

    {"anabranch": "frontier", "version": 1, "policy": "bkdr:997", …}                              the header
    {"url": …, "status": 200, "outcome": "done", "attempts": 0}                                    a URL that has ended
    {"url": …, "status": -2, "outcome": "failed", …, "failed_s": …, "hops": "L", "via": …, "precedence": 257}   a failure
    {"url": …, "hops": "LLE", "via": …, "attempts": 1, "due_s": …, "precedence": 769, "queue": …}  a queued URL
    {"end": true, "ended": 2, "queued": 1}                                                         the dump is complete

Ended URLs come first, so a reader that goes line by line knows them before anything is queued. A URL that ended and was
queued again appears only as queued, and so does a leased one. Queued lines omit fields that are empty, 0 or None. "key" (the
dedup key, if it is not the URL) and "payload" are base64; "due_s" and "failed_s" are in epoch seconds; a failure without
"failed_s" was kept in a format that did not know more of it; "precedence" is
directive << 8 | URI precedence, as in Heritrix; "queue" is for people: a loading Frontier asks its own policy. The text is
ASCII: other characters use JSON escapes. A line written by hand may also have "force": true, which queues a known URL.

"front" marks a URL without a "precedence" that is served first.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping

from anabranch.frontier.errors import DumpDamaged, FormatMismatch
from anabranch.frontier.inspect.load import BATCH, Entry, Known, LoadReport, LoadTarget, Queued, load
from anabranch.frontier.records import ENDING, FRONT, WAITING, Candidate, OutcomeKind, QueueKey
from anabranch.frontier.stores.contract import FailedRecord, FrontierStore

#: The header's first key and its value, which mark a dump.
MAGIC = ("anabranch", "frontier")
VERSION = 1

#: The part of a row's precedence that is not the directive.
URI_PRECEDENCE = 0xFF

#: Rows or queues that are read at a time.
PAGE = 500

_encoded: Callable[[object], str] = json.JSONEncoder(separators=(",", ":")).encode


def dump_lines(
    store: FrontierStore,
    facts: Mapping[str, str | float] | None = None,
    *,
    with_ended: bool = True,
    page: int = PAGE,
) -> Iterator[str]:
    """The lines of a dump, each with its newline; `facts` go into the header. Blocks at each page.

    Memory: one page of rows and one of queues. Cost: two seeks more per ended URL. The store must not change until the last
    line, else rows that move may be missing or come twice. Errors: those of the store (StoreUnavailable).
    """
    yield _line({MAGIC[0]: MAGIC[1], "version": VERSION, **(facts or {})})
    ended = (yield from _ended_lines(store, page)) if with_ended else 0
    queued = yield from _queued_lines(store, page)
    yield _line({"end": True, "ended": ended, "queued": queued})


def _ended_lines(store: FrontierStore, page: int) -> Generator[str, None, int]:
    """Ended rows, except those with a URL that was queued again afterwards; the result is their number."""
    ended = last = 0
    while records := store.ended_after(last, page):
        failures: dict[int, FailedRecord] = {}
        if any(record.outcome is OutcomeKind.FAILED for record in records):
            failures = {failure.ordinal: failure for failure in store.retry_reads.failed_after(last, page)}
        last = records[-1].ordinal
        keys = [record.url.encode() if record.key is None else record.key for record in records]
        known = store.ended(keys)
        for key, record in zip(keys, records, strict=True):
            if key in known and known[key].ordinal == record.ordinal:
                ended += 1
                how = {"status": record.status, "outcome": record.outcome.value, "attempts": record.attempts}
                known_more = _failure_fields(store, failures.get(record.ordinal))
                yield _line({"url": record.url, "key": _base64(record.key), **how, **known_more})
    return ended


def _failure_fields(store: FrontierStore, failure: FailedRecord | None) -> Mapping[str, object | None]:
    """Return the fields by which a failure can be queued again. Costs a seek for its page."""
    if failure is None or failure.ended_s is None:
        return {}
    pages = store.ended_after(failure.via - 1, 1) if failure.via else []
    return {
        "failed_s": failure.ended_s,
        "hops": failure.hops or None,
        "via": pages[0].url if pages and pages[0].ordinal == failure.via else None,
        "precedence": failure.precedence,
        "payload": _base64(failure.payload),
    }


def _queued_lines(store: FrontierStore, page: int) -> Generator[str, None, int]:
    """Queued rows by queue, with one pass over the queues for their keys; the result is their number."""
    queued, after = 0, None
    names: Mapping[int, QueueKey] = {}
    last_queue: int | None = None  # the last one that was read
    is_over = False
    while heads := store.queued(after, page):
        after = heads[-1].row[:4]
        for row, via in heads:
            while row.queue not in names and not is_over and (last_queue is None or last_queue < row.queue):
                queues = store.queues(None, last_queue, page)
                names = {each.row.id: each.row.key for each in queues}
                is_over = not queues
                last_queue = queues[-1].row.id if queues else last_queue
            queued += 1
            yield _line(
                {
                    "url": row.url,
                    "key": _base64(row.key),
                    "hops": row.hops or None,
                    "via": via,
                    "attempts": row.attempts or None,
                    "due_s": row.due_s,
                    "precedence": row.precedence % WAITING,
                    "payload": _base64(row.payload),
                    "queue": names.get(row.queue),
                }
            )
    return queued


def _line(fields: Mapping[str, object | None]) -> str:
    """The fields that are not None."""
    return _encoded({name: value for name, value in fields.items() if value is not None}) + "\n"


def _base64(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode("ascii")


_OUTCOMES = {kind.value: kind for kind in ENDING}
#: Greater numbers are no counts, and no store holds them.
_MOST = 1 << 31
#: Later times are errors (it is the year 9999).
_LATEST_S = 253_402_300_799


class Dump:
    """The entries of a dump, once, in their order; then `cut` is set if its end is missing.

    A last line that cannot be read, or none with "end", means that the writer was interrupted: all lines before are good,
    and `cut` is set. Raises: FormatMismatch for another file or version, DumpDamaged with the line.
    """

    def __init__(self, lines: Iterable[str | bytes], name: str = "dump") -> None:
        self.facts: Mapping[str, object] = {}  #: the header, once a line was read
        self.cut = ""  #: where the dump ends too early, in words; empty if it is complete
        self._lines = lines
        self._name = name

    def __iter__(self) -> Iterator[Entry]:
        """Read it. Cost: O(1) a line, one line in memory."""
        read, is_whole = 0, False
        for number, fields in self._objects():
            if is_whole:
                raise self._damaged(number, "it comes after the end")
            read = number
            if number == 1:
                if fields.get(MAGIC[0]) != MAGIC[1]:
                    raise self._no_dump()
                version = fields.get("version")
                if version != VERSION:
                    raise FormatMismatch(
                        f"{self._name}:1: a dump of version {version!r}, and this program reads version {VERSION}; "
                        "load it with the release that wrote it"
                    )
                self.facts = fields
            elif fields.get("end") is True:
                is_whole = True
            else:
                place = f"{self._name}:{number}"
                try:
                    entry = _ended_entry(place, fields) if "outcome" in fields else _queued_entry(place, fields)
                except ValueError as error:
                    raise self._damaged(number, error) from error
                yield entry
        if not read:
            raise self._no_dump()
        if not is_whole:
            self.cut = f"{self._name}: cut after line {read}; what came after it is missing"

    def _objects(self) -> Iterator[tuple[int, Mapping[str, object]]]:
        """Each line's object; an unreadable line is an error as soon as another follows."""
        torn = None
        for number, line in enumerate(self._lines, start=1):
            if torn is not None:
                raise torn
            try:
                fields = json.loads(line)
            except (ValueError, RecursionError):
                fields = None
            if isinstance(fields, dict):
                yield number, fields
            elif number == 1:
                raise self._no_dump()
            else:
                torn = self._damaged(number, "it is no JSON object")

    def _damaged(self, number: int, words: object) -> DumpDamaged:
        return DumpDamaged(f"{self._name}:{number}: {words}; mend or remove the line and load the dump again")

    def _no_dump(self) -> FormatMismatch:
        return FormatMismatch(
            f"{self._name}:1: no dump of a Frontier; its first line would hold {json.dumps(MAGIC[0])}"
        )


def load_dump(
    lines: Iterable[str | bytes], target: LoadTarget, *, name: str = "dump", batch: int = BATCH
) -> LoadReport:
    """Load a dump (blocks). Raises: as `Dump` and `load`."""
    dump = Dump(lines, name)
    report = load(dump, target, batch=batch)
    if dump.cut:
        report.cuts.append(dump.cut)
    return report


def _ended_entry(place: str, fields: Mapping[str, object]) -> Known:
    outcome = fields["outcome"]
    if not isinstance(outcome, str) or outcome not in _OUTCOMES:
        raise ValueError(f'"outcome" must be one of {", ".join(sorted(_OUTCOMES))}')
    return Known(
        place=place,
        url=_url(fields),
        key=_bytes(fields, "key"),
        status=_whole(fields, "status", -_MOST, _MOST) or 0,
        outcome=_OUTCOMES[outcome],
        attempts=_whole(fields, "attempts", 0, _MOST) or 0,
        failed_s=_time(fields, "failed_s"),
        hops=_text(fields, "hops") or "",
        via=_text(fields, "via"),
        precedence=_whole(fields, "precedence", 0, WAITING),
        payload=_bytes(fields, "payload"),
    )


def _queued_entry(place: str, fields: Mapping[str, object]) -> Queued:
    precedence = _whole(fields, "precedence", 0, WAITING)
    candidate = Candidate(
        url=_url(fields),
        key=_bytes(fields, "key"),
        hops=_text(fields, "hops") or "",
        payload=_bytes(fields, "payload"),
        front=_switch(fields, "front") or (precedence is not None and precedence <= FRONT | URI_PRECEDENCE),
        force=_switch(fields, "force"),
        precedence=None if precedence is None else precedence & URI_PRECEDENCE,
    )
    return Queued(
        place=place,
        candidate=candidate,
        via=_text(fields, "via"),
        attempts=_whole(fields, "attempts", 0, _MOST) or 0,
        due_s=_time(fields, "due_s"),
    )


def _url(fields: Mapping[str, object]) -> str:
    url = _text(fields, "url")
    if not url:
        raise ValueError('"url" is missing')
    return url


def _text(fields: Mapping[str, object], name: str) -> str | None:
    value = fields.get(name)
    if value is None or isinstance(value, str):
        return value
    raise ValueError(f'"{name}" must be text')


def _bytes(fields: Mapping[str, object], name: str) -> bytes | None:
    text = _text(fields, name)
    if text is None:
        return None
    try:
        return b64decode(text, validate=True)
    except ValueError:
        raise ValueError(f'"{name}" must be base64') from None


def _whole(fields: Mapping[str, object], name: str, least: int, most: int) -> int | None:
    value = fields.get(name)
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and least <= value < most):
        return value
    raise ValueError(f'"{name}" must be a whole number from {least} to {most - 1}')


def _time(fields: Mapping[str, object], name: str) -> float | None:
    value = fields.get(name)
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _LATEST_S:
        return float(value)
    raise ValueError(f'"{name}" must be a time in epoch seconds')


def _switch(fields: Mapping[str, object], name: str) -> bool:
    value = fields.get(name, False)
    if isinstance(value, bool):
        return value
    raise ValueError(f'"{name}" must be true or false')
