"""Loads URLs of another Frontier: queued URLs are scheduled, ended URLs are never fetched again.

A source (a dump or a Heritrix recovery journal) is an iterator of entries. `load` passes them on in batches and repeats
those that the target was too busy to take. `Loading` turns entries into rows, through the same filter and the same transaction
as any new URL. Loading may be interrupted and repeated at any time: known URLs are not changed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import compress
from typing import NamedTuple, Protocol, TypeVar

from anabranch.frontier.parts import Parts, flushed, run
from anabranch.frontier.records import (
    BUSY,
    ENDING,
    NORMAL,
    Candidate,
    OutcomeKind,
    Row,
    Verdict,
    VerdictKind,
)
from anabranch.frontier.stores.contract import FrontierStore

#: The most entries of one batch, and about how many bytes (a payload may be large).
BATCH = 1_000
BATCH_BYTES = 8 << 20
#: Refused entries that the report names; the others are counted.
NAMED = 20


class Queued(NamedTuple):
    """A URL that was queued there and is queued here."""

    place: str  #: its place in the source, as in `backup.jsonl:17`
    candidate: Candidate
    via: str | None = None  #: the page it was found on
    attempts: int = 0  #: tries that counted so far
    due_s: float | None = None  #: earliest time of the next try, epoch seconds


class Known(NamedTuple):
    """A URL that ended there and is not fetched here."""

    place: str  #: its place in the source
    url: str
    key: bytes | None = None  #: the dedup key; the URL in UTF-8 if None
    status: int = 0  #: 0 = unknown
    outcome: OutcomeKind = OutcomeKind.DONE
    attempts: int = 0
    failed_s: float | None = None  #: of a failure: when, epoch seconds; None: that and what follows is not known
    hops: str = ""
    via: str | None = None  #: the page it was found on
    precedence: int | None = None  #: of its row
    payload: bytes | None = None


Entry = Queued | Known
_E = TypeVar("_E", Queued, Known)


class LoadTarget(Protocol):
    """Takes the entries. A batch is one transaction; one verdict per entry, in order; BUSY = send it again later."""

    def schedule_loaded(self, queued: Sequence[Queued]) -> Sequence[Verdict]:
        """Enqueue new URLs, with their attempts and their time."""
        ...

    def note_ended(self, ended: Sequence[Known]) -> Sequence[Verdict]:
        """Keep new URLs as ended: NEW if it is kept, SEEN if the URL was known, queued or ended."""
        ...

    def wait_until_durable(self) -> None:
        """Return when the store has everything (blocks). Raises: StoreUnavailable."""
        ...


class Refusal(NamedTuple):
    """An entry that could not be taken."""

    place: str
    url: str
    reason: str


@dataclass(slots=True, kw_only=True)
class LoadReport:
    """The results of loading."""

    queued: int = 0  #: new URLs that are queued now
    known: int = 0  #: new URLs that had ended and will not be fetched
    seen: int = 0  #: were known here before
    later: int = 0  #: the filter will decide
    refused: int = 0  #: cannot be taken
    refusals: list[Refusal] = field(default_factory=list)  #: the first `NAMED` of these
    skipped: int = 0  #: URLs of the source that are not to be fetched
    unknown: int = 0  #: lines of the source that are not understood
    cuts: list[str] = field(default_factory=list)  #: where the source ends too early, in words

    def add(self, target: LoadTarget, known: Sequence[Known], queued: Sequence[Queued]) -> None:
        """Pass on one batch, and count what was new."""
        self.known += self._pass_on(target, target.note_ended, known)
        self.queued += self._pass_on(target, target.schedule_loaded, queued)

    def _pass_on(
        self, target: LoadTarget, take: Callable[[Sequence[_E]], Sequence[Verdict]], entries: Sequence[_E]
    ) -> int:
        """Pass on all of them, the busy ones again when the store has caught up; returns how many were new."""
        new = 0
        while entries:
            busy = []
            for entry, verdict in zip(entries, take(entries), strict=True):
                if verdict.kind is VerdictKind.NEW:
                    new += 1
                elif verdict.kind is VerdictKind.BUSY:
                    busy.append(entry)
                else:
                    self.not_taken(entry, verdict)
            entries = busy
            if entries:
                target.wait_until_durable()
        return new

    def not_taken(self, entry: Entry, verdict: Verdict) -> None:
        """Count an entry that was seen, will be decided later, or was refused."""
        if verdict.kind is VerdictKind.SEEN:
            self.seen += 1
        elif verdict.kind is VerdictKind.LATER:
            self.later += 1
        else:
            url = entry.url if isinstance(entry, Known) else entry.candidate.url
            self.refused += 1
            if len(self.refusals) < NAMED:
                self.refusals.append(Refusal(entry.place, url, verdict.reason))

    def left_out(self, *, skipped: int, unknown: int, cuts: Iterable[str]) -> None:
        """Count lines of the source that are no entries, and its cuts."""
        self.skipped += skipped
        self.unknown += unknown
        self.cuts.extend(cuts)


def load(entries: Iterable[Entry], target: LoadTarget, *, batch: int = BATCH) -> LoadReport:
    """Pass on all entries, `batch` at a time (blocks). What ended goes first, within a batch too.

    Memory: one batch. Errors: those of the source, which name the place, and of the target; what was passed on before
    is kept, and loading again continues after it.
    """
    report = LoadReport()
    known: list[Known] = []
    queued: list[Queued] = []
    size_bytes = 0

    def hand_over() -> None:
        report.add(target, known, queued)
        known.clear()
        queued.clear()

    for entry in entries:
        if isinstance(entry, Known):
            known.append(entry)
            size_bytes += len(entry.url) + len(entry.key or b"")
        else:
            queued.append(entry)
            url, key, _, payload, *_ = entry.candidate
            size_bytes += len(url) + len(key or b"") + len(payload or b"")
        if len(known) + len(queued) >= batch or size_bytes >= BATCH_BYTES:
            hand_over()
            size_bytes = 0
    hand_over()
    target.wait_until_durable()
    return report


#: The whole numbers of a store are below this.
_MOST = 1 << 63
_IS_NEW = frozenset({VerdictKind.NEW, VerdictKind.LATER})


class Loading:
    """A `LoadTarget` over the parts of one Frontier. It blocks on the store; call it from the core's thread."""

    def __init__(self, store: FrontierStore, parts: Parts, clock: Callable[[], float]) -> None:
        self._store = store
        self._parts = parts
        self._clock = clock

    def schedule_loaded(self, queued: Sequence[Queued]) -> list[Verdict]:
        """Enqueue new URLs, with their attempts and their time, and with their page if that has ended.

        One question to the store for those pages. Raises: PolicyError and TypeError, before any change; StoreUnavailable.
        """
        for entry in queued:
            due_s = entry.due_s
            _check(entry, "candidate", isinstance(entry.candidate, Candidate))
            _check(entry, "attempts", _is_count(entry.attempts))
            _check(entry, "due_s", due_s is None or (isinstance(due_s, float | int) and math.isfinite(due_s)))
            _check(entry, "via", isinstance(entry.via, str | None))
        if self._is_busy():
            return [BUSY] * len(queued)
        verdicts = self._parts.admission.judge([entry.candidate for entry in queued])
        fresh = list(compress(queued, [verdict.kind in _IS_NEW for verdict in verdicts]))
        if fresh:
            self._enqueue(fresh)
        return verdicts

    def note_ended(self, ended: Sequence[Known]) -> list[Verdict]:
        """Keep new URLs as ended: NEW if it is kept, SEEN if the URL was known. Raises: TypeError first; StoreUnavailable."""
        for entry in ended:
            _check(entry, "attempts", _is_count(entry.attempts))
            _check(entry, "status", isinstance(entry.status, int) and abs(entry.status) < _MOST)
            _check(entry, "outcome", isinstance(entry.outcome, OutcomeKind) and entry.outcome in ENDING)
            _check(entry, "failed_s", entry.failed_s is None or math.isfinite(entry.failed_s))
        if self._is_busy():
            return [BUSY] * len(ended)
        verdicts = self._parts.admission.judge([Candidate(entry.url, entry.key) for entry in ended])
        fresh = list(compress(ended, [verdict.kind in _IS_NEW for verdict in verdicts]))
        if fresh:
            self._settle(fresh)
        return verdicts

    def wait_until_durable(self) -> None:
        """Return when the store has everything, and take its answers (blocks). Raises: StoreUnavailable."""
        run(flushed(self._parts, self._store))

    def _is_busy(self) -> bool:
        self._parts.store_link.drain()
        return self._parts.store_link.unacknowledged.is_full

    def _settle(self, fresh: Sequence[Known]) -> None:
        """Add them as one batch of rows that have ended and have no queue."""
        outbox, store_link = self._parts.outbox, self._parts.store_link
        batch = outbox.batch
        first = len(batch.new)
        pages = self._ordinals([entry.via for entry in fresh if entry.via is not None])
        for entry in fresh:
            pages[entry.url] = ordinal = outbox.number()
            batch.new.append(
                Row(
                    queue=0,
                    gate=0,
                    precedence=NORMAL if entry.precedence is None else entry.precedence,
                    ordinal=ordinal,
                    url=entry.url,
                    key=entry.key,
                    hops=entry.hops,
                    via=pages.get(entry.via, 0),
                    attempts=entry.attempts,
                    due_s=entry.failed_s,
                    payload=entry.payload,
                )
            )
            batch.settled[ordinal] = entry.status, entry.outcome
        self._parts.admission.remember(first)
        store_link.await_loaded(())
        store_link.send()

    def _enqueue(self, fresh: Sequence[Queued]) -> None:
        """One batch. Rows with a time to come wait, and are known to wait when they are durable."""
        admission, store_link, batch = self._parts.admission, self._parts.store_link, self._parts.outbox.batch
        queues = admission.assignment.queues_of([entry.candidate.url for entry in fresh])
        precedences = [self._parts.rules.in_row(entry.candidate, entry.via) for entry in fresh]
        pages = self._ordinals([entry.via for entry in fresh if entry.via is not None])
        now_s, first = self._clock(), len(batch.new)
        for entry, queue, precedence in zip(fresh, queues, precedences, strict=True):
            due_s = entry.due_s if entry.due_s is not None and entry.due_s > now_s else None
            admission.enqueue(entry.candidate, queue, precedence, pages.get(entry.via, 0), entry.attempts, due_s)
        admission.remember(first)
        waiting = [row for row in batch.new[first:] if row.due_s is not None]
        if waiting:
            store_link.await_loaded(waiting)
        store_link.send()
        if waiting:  # none of them may come due before it is known that it lives
            run(flushed(self._parts, self._store))

    def _ordinals(self, urls: Sequence[str]) -> dict[str | None, int]:
        """The numbers of those of these pages that have ended; a page with its own dedup key is not found."""
        keys: dict[bytes, str] = {}
        for url in urls:
            with suppress(UnicodeEncodeError):
                keys[url.encode()] = url
        return {keys[key]: record.ordinal for key, record in self._store.ended(list(keys)).items()} if keys else {}


def _check(entry: Entry, name: str, is_good: bool) -> None:
    if not is_good:
        raise TypeError(
            f"{entry.place}: {name} {getattr(entry, name)!r}: see {type(entry).__name__} for what it may be"
        )


def _is_count(number: int) -> bool:
    return isinstance(number, int) and 0 <= number < _MOST
