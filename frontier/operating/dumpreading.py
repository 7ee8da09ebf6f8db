"""Reading a dump back, line by line; `dump` says what the lines are."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping

from anabranch.frontier.errors import FormatMismatch, FrontierError
from anabranch.frontier.models import ENDING, FRONT, WAITING, Candidate
from anabranch.frontier.operating.dump import MAGIC, URI_PRECEDENCE, VERSION
from anabranch.frontier.operating.load import BATCH, Entry, Known, LoadReport, LoadTarget, Queued, load

_OUTCOMES = {kind.value: kind for kind in ENDING}
#: Greater numbers are no counts, and no store holds them.
_MOST = 1 << 31
#: Later times are slips of the pen (it is the year 9999).
_LATEST_S = 253_402_300_799


class DumpDamaged(FrontierError):
    """A line of a dump, not its last, cannot be read; what stands before it has been loaded."""


class Dump:
    """The entries of a dump, once, in their order; then `cut` says whether its end is missing.

    A last line that cannot be read, or none that says "end", means that the writer was interrupted: all before it is good,
    and `cut` tells it. Raises on the way: FormatMismatch for what is no dump or one of another version, DumpDamaged naming
    the line.
    """

    def __init__(self, lines: Iterable[str | bytes], name: str = "dump") -> None:
        self.facts: Mapping[str, object] = {}  #: the header, once a line was read
        self.cut = ""  #: in words where the dump ends too early; empty while it has not, or does not
        self._lines = lines
        self._name = name

    def __iter__(self) -> Iterator[Entry]:
        """Read it. Cost: O(1) a line, one line in memory."""
        read, is_whole = 0, False
        for number, fields in self._objects():
            if is_whole:
                raise self._damaged(number, "it stands behind the end")
            read = number
            if number == 1:
                self.facts = self._header(fields)
            elif fields.get("end") is True:
                is_whole = True
            else:
                yield self._entry(number, fields)
        if not read:
            raise self._no_dump()
        if not is_whole:
            self.cut = f"{self._name}: cut after line {read}; what stood behind it is missing"

    def _objects(self) -> Iterator[tuple[int, Mapping[str, object]]]:
        """Each line's object; one that cannot be read is an error as soon as another follows."""
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

    def _header(self, fields: Mapping[str, object]) -> Mapping[str, object]:
        if fields.get(MAGIC[0]) != MAGIC[1]:
            raise self._no_dump()
        version = fields.get("version")
        if version != VERSION:
            raise FormatMismatch(
                f"{self._name}:1: a dump of version {version!r}, and this program reads version {VERSION}; "
                "load it with the release that wrote it"
            )
        return fields

    def _entry(self, number: int, fields: Mapping[str, object]) -> Entry:
        place = f"{self._name}:{number}"
        try:
            return _known(place, fields) if "outcome" in fields else _queued(place, fields)
        except ValueError as error:
            raise self._damaged(number, error) from error


def load_dump(
    lines: Iterable[str | bytes], target: LoadTarget, *, name: str = "dump", batch: int = BATCH
) -> LoadReport:
    """Load a dump (blocks). Raises: as `Dump` and `load`."""
    dump = Dump(lines, name)
    report = load(dump, target, batch=batch)
    if dump.cut:
        report.cuts.append(dump.cut)
    return report


def _known(place: str, fields: Mapping[str, object]) -> Known:
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
    )


def _queued(place: str, fields: Mapping[str, object]) -> Queued:
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
        share=_whole(fields, "share", 0, _MOST),
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
