"""The dump: everything a Frontier holds as text, one JSON object a line.

    {"anabranch": "frontier", "version": 1, "policy": "bkdr:997", …}                              the header
    {"url": …, "status": 200, "outcome": "done", "attempts": 0}                                    a URL that has ended
    {"url": …, "hops": "LLE", "via": …, "attempts": 1, "due_s": …, "precedence": 769, "queue": …}  a queued one
    {"url": …, "hops": "L", "via": …, "share": 1}                                                  one under way
    {"end": true, "ended": 2, "queued": 1}                                                         nothing is missing

Ended URLs come first, so that whoever reads the lines in order knows them before anything is queued; one that is queued again
is a queued one only. What is empty, 0 or None is left out of a queued line. "key" (what dedup knows the URL by, if that is not
the URL) and "payload" are base64; "due_s" is in epoch seconds; "precedence" is directive << 8 | URI precedence, as Heritrix
has it; "queue" is for the reader: a loading Frontier asks its own policy. A leased URL is a queued one. All text is ASCII:
other characters are escaped as JSON escapes them. A line written by hand may also say "force": true, which queues a URL
though it is known.

A share of a crawl has URLs under way to other shares, too: to the one that the line names. Loaded into a share that does not
own it such a URL is under way again: shares whose dumps are loaded into shares like them know what they knew, and are owed
what they were owed. Wherever else it is loaded it is a queued URL. "front" says that it is served first, where no "precedence"
does.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping

from anabranch.frontier.division.parcels import Consigned
from anabranch.frontier.models import FRONT, NORMAL, WAITING, Candidate, Head, QueueKey
from anabranch.frontier.stores.base import EndedRecord, FrontierStore

#: The header's first key and its value: says that a file is a dump.
MAGIC = ("anabranch", "frontier")
VERSION = 1

#: The part of a row's precedence that is not the directive.
URI_PRECEDENCE = 0xFF

#: Rows that are read at a time, and queues.
PAGE = 500

_encoded: Callable[[object], str] = json.JSONEncoder(separators=(",", ":")).encode


def dump_lines(
    store: FrontierStore,
    facts: Mapping[str, str | float] | None = None,
    *,
    with_ended: bool = True,
    under_way: Iterable[tuple[int, Consigned]] = (),
    page: int = PAGE,
) -> Iterator[str]:
    """The lines of a dump, each with its newline; `facts` go into the header. Blocks at each page.

    `under_way` is what the store keeps for other shares of the crawl, and for which.

    Streams: holds one page of rows and one of queues. Cost: two seeks more per ended URL. The store must stand still until the
    last line: rows that move meanwhile may be missing or come twice. Errors: what the store raises (StoreUnavailable).
    """
    yield _line({MAGIC[0]: MAGIC[1], "version": VERSION, **(facts or {})})
    ended = queued = sent = 0
    if with_ended:
        for record in _ended(store, page):
            ended += 1
            yield _line(_ended_fields(record))
    names = _QueueNames(store, page)
    for head in _queued(store, page):
        queued += 1
        yield _line(_queued_fields(head, names.key(head.row.queue)))
    for share, consigned in under_way:
        for candidate in consigned.candidates:
            sent += 1
            yield _line(_sent_fields(share, consigned.page, candidate))
    yield _line({"end": True, "ended": ended, "queued": queued, **({"under_way": sent} if sent else {})})


class _QueueNames:
    """The keys of the queues whose rows go by: both come by id, so one pass over the queues goes along."""

    def __init__(self, store: FrontierStore, page: int) -> None:
        self._store = store
        self._page = page
        self._names: dict[int, QueueKey] = {}
        self._last: int | None = None
        self._is_over = False

    def key(self, queue: int) -> QueueKey | None:
        """The key of this queue; None if the store does not list it."""
        while queue not in self._names and not self._is_over and (self._last is None or self._last < queue):
            facts = self._store.queues(None, self._last, self._page)
            self._names = {each.row.id: each.row.key for each in facts}
            self._is_over = not facts
            self._last = facts[-1].row.id if facts else self._last
        return self._names.get(queue)


def _ended(store: FrontierStore, page: int) -> Iterator[EndedRecord]:
    """Ended rows, but for those whose URL was queued again after they ended."""
    after = 0
    while records := store.ended_after(after, page):
        last = store.ended([_key(record) for record in records])
        for record in records:
            known = last.get(_key(record))
            if known is not None and known.ordinal == record.ordinal:
                yield record
        after = records[-1].ordinal


def _queued(store: FrontierStore, page: int) -> Iterator[Head]:
    after = None
    while heads := store.queued(after, page):
        yield from heads
        last = heads[-1].row
        after = (last.queue, last.gate, last.precedence, last.ordinal)


def _key(record: EndedRecord) -> bytes:
    return record.url.encode() if record.key is None else record.key


def _ended_fields(record: EndedRecord) -> dict[str, object]:
    fields: dict[str, object] = {"url": record.url}
    if record.key is not None:
        fields["key"] = _base64(record.key)
    return {**fields, "status": record.status, "outcome": record.outcome.value, "attempts": record.attempts}


def _queued_fields(head: Head, queue: QueueKey | None) -> dict[str, object]:
    row = head.row
    fields: dict[str, object | None] = {
        "url": row.url,
        "key": _base64(row.key),
        "hops": row.hops or None,
        "via": head.via,
        "attempts": row.attempts or None,
        "due_s": row.due_s,
        "precedence": row.precedence % WAITING,
        "payload": _base64(row.payload),
        "queue": queue,
    }
    return _said(fields)


def _sent_fields(share: int, page: str | None, candidate: Candidate) -> dict[str, object]:
    url, key, hops, payload, front, force, precedence = candidate
    directive = (FRONT if front else NORMAL) & ~URI_PRECEDENCE
    fields: dict[str, object | None] = {
        "url": url,
        "key": _base64(key),
        "hops": hops or None,
        "via": page,
        "precedence": None if precedence is None else directive | precedence,
        "payload": _base64(payload),
        "front": (front and precedence is None) or None,
        "force": force or None,
        "share": share,
    }
    return _said(fields)


def _said(fields: Mapping[str, object | None]) -> dict[str, object]:
    return {name: value for name, value in fields.items() if value is not None}


def _base64(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode("ascii")


def _line(fields: Mapping[str, object]) -> str:
    return _encoded(fields) + "\n"
