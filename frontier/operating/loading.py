"""The core's side of loading: entries of a dump or a journal become rows, with what they were elsewhere.

A queued URL keeps its attempts, its time and the page it was found on; one that ended becomes a row of `done` and is never
fetched. Both go through the same filter and the same transaction as any other new URL, so loading may be broken off at any
moment and done again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import compress

from anabranch.frontier.models import (
    BUSY,
    ENDING,
    NORMAL,
    WAITING,
    Candidate,
    GateKey,
    OutcomeKind,
    QueueKey,
    Row,
    Verdict,
    VerdictKind,
)
from anabranch.frontier.operating.load import FOREIGN, SENT, Entry, Known, Queued
from anabranch.frontier.parts import Parts
from anabranch.frontier.stores.base import FrontierStore

_HOPS = Verdict(VerdictKind.REFUSED, "its path from the seed is not plain ASCII text")
#: What a store's whole numbers stay below.
_MOST = 1 << 63
_IS_NEW = frozenset({VerdictKind.NEW, VerdictKind.LATER})


class Loading:
    """A `LoadTarget` over the parts of one Frontier. All of it blocks on the store; call it as the core, from one thread."""

    def __init__(self, store: FrontierStore, parts: Parts, clock: Callable[[], float]) -> None:
        self._store = store
        self._parts = parts
        self._clock = clock

    def schedule_loaded(self, queued: Sequence[Queued]) -> list[Verdict]:
        """Enqueue what is new, with its attempts and its time; the page it was found on is kept if that page has ended.

        One question to the store for those pages. Raises: PolicyError and TypeError, before any change; StoreUnavailable.
        """
        for entry in queued:
            _check_queued(entry)
        if self._is_busy():
            return [BUSY] * len(queued)
        verdicts = self._judge([entry.candidate for entry in queued])
        fresh = list(compress(queued, [verdict.kind in _IS_NEW for verdict in verdicts]))
        if fresh:
            self._enqueue(fresh)
        return self._sent(queued, verdicts)

    def note_ended(self, ended: Sequence[Known]) -> list[Verdict]:
        """Keep what is new as ended: NEW if it is kept, SEEN if the URL was known.

        Raises: TypeError, before any change; StoreUnavailable.
        """
        for entry in ended:
            _check_known(entry)
        if self._is_busy():
            return [BUSY] * len(ended)
        verdicts = self._judge([Candidate(entry.url, entry.key) for entry in ended])
        fresh = list(compress(ended, [verdict.kind in _IS_NEW for verdict in verdicts]))
        if fresh:
            self._settle(fresh)
        return verdicts

    def wait_until_durable(self) -> None:
        """Return when the store has all that was said, and take its answers (blocks). Raises: StoreUnavailable."""
        self._parts.flush(self._store)

    # Inside

    def _is_busy(self) -> bool:
        self._parts.books.drain()
        return self._parts.books.backlog.is_full

    def _judge(self, candidates: Sequence[Candidate]) -> list[Verdict]:
        """One verdict per candidate, in order; texts that no store can hold are refused whoever wrote them."""
        verdicts, _ = self._parts.intake.judge(candidates)
        return [
            self._refusal(candidate) or verdict if verdict.kind in _IS_NEW else verdict
            for candidate, verdict in zip(candidates, verdicts, strict=True)
        ]

    def _refusal(self, candidate: Candidate) -> Verdict | None:
        """Why what is new cannot be loaded here, if it cannot. A host of another share would have two gates."""
        elsewhere = self._parts.intake.elsewhere
        if elsewhere is not None and not elsewhere.is_owner_of(candidate.url):
            return FOREIGN
        return None if _is_plain(candidate.hops) else _HOPS

    def _enqueue(self, fresh: Sequence[Queued]) -> None:
        """One batch. Rows whose time is still to come wait, and are known to wait when they are durable."""
        intake, books, batch = self._parts.intake, self._parts.books, self._parts.outbox.batch
        queues = intake.queues_of([entry.candidate.url for entry in fresh])
        precedences = [self._parts.rules.in_row(entry.candidate, entry.via) for entry in fresh]
        pages = self._ordinals([entry.via for entry in fresh if entry.via is not None])
        now_s, first = self._clock(), len(batch.new)
        for entry, queue, precedence in zip(fresh, queues, precedences, strict=True):
            row, gate = intake.row(entry.candidate, queue, precedence, pages.get(entry.via, 0))
            self._add(row._replace(attempts=entry.attempts), entry, (queue, gate), now_s)
        intake.remember(first)
        waiting = [row for row in batch.new[first:] if row.due_s is not None]
        books.queued += len(fresh) - len(waiting)
        if waiting:
            books.await_loaded(waiting)
        books.say()
        if waiting:  # none of them may come due before it is known that it lives
            self._parts.flush(self._store)

    def _add(self, row: Row, entry: Queued, place: tuple[QueueKey, GateKey], now_s: float) -> None:
        """One row of the batch."""
        if entry.candidate.force:
            self._parts.outbox.batch.forced.add(row.ordinal)
        if entry.due_s is not None and entry.due_s > now_s:
            waits = row._replace(due_s=entry.due_s, precedence=row.precedence + WAITING)
            self._parts.intake.enqueue_waiting(waits, *place)
        else:
            self._parts.intake.enqueue(row, *place)

    def _sent(self, queued: Sequence[Queued], verdicts: Sequence[Verdict]) -> list[Verdict]:
        """What was under way to other shares is so again, by the pages that it was found on; the verdicts say so then."""
        judged = zip(queued, verdicts, strict=True)
        is_owed = [verdict is FOREIGN and entry.share is not None for entry, verdict in judged]
        found: dict[str | None, list[Candidate]] = {}
        for entry in compress(queued, is_owed):
            found.setdefault(entry.via, []).append(entry.candidate)
        for page, candidates in found.items():
            self._parts.books.accept(candidates, 0, page)
        self._parts.books.say()
        return [SENT if owed else verdict for owed, verdict in zip(is_owed, verdicts, strict=True)]

    def _settle(self, fresh: Sequence[Known]) -> None:
        """One batch of rows that stand in no queue."""
        outbox, books = self._parts.outbox, self._parts.books
        batch = outbox.batch
        first = len(batch.new)
        for url, key, status, outcome, attempts in (entry[1:] for entry in fresh):
            ordinal = outbox.number()
            batch.new.append(Row(0, 0, NORMAL, ordinal, url, key, "", 0, attempts, None, None))
            batch.settled[ordinal] = status, outcome
        self._parts.intake.remember(first)
        books.await_loaded(())
        books.say()

    def _ordinals(self, urls: Sequence[str]) -> dict[str | None, int]:
        """The numbers of those of these pages that have ended; a page that has a dedup key of its own is not found."""
        keys = {key: url for url in urls if (key := _key(url)) is not None}
        if not keys:
            return {}
        return {keys[key]: record.ordinal for key, record in self._store.ended(list(keys)).items()}


def _check_queued(entry: Queued) -> None:
    """What the entry says is kept as it is, so it must make sense. Raises: TypeError, which names its place."""
    _check(entry, "candidate", isinstance(entry.candidate, Candidate))
    _check(entry, "attempts", _is_count(entry.attempts))
    _check(entry, "due_s", entry.due_s is None or (isinstance(entry.due_s, float | int) and math.isfinite(entry.due_s)))
    _check(entry, "via", isinstance(entry.via, str | None))
    _check(entry, "share", entry.share is None or _is_count(entry.share))


def _check_known(entry: Known) -> None:
    """The same for one that ended."""
    _check(entry, "attempts", _is_count(entry.attempts))
    _check(entry, "status", isinstance(entry.status, int) and abs(entry.status) < _MOST)
    _check(entry, "outcome", isinstance(entry.outcome, OutcomeKind) and entry.outcome in ENDING)


def _check(entry: Entry, name: str, is_good: bool) -> None:
    if not is_good:
        raise TypeError(
            f"{entry.place}: {name} {getattr(entry, name)!r}: see {type(entry).__name__} for what it may be"
        )


def _is_count(number: int) -> bool:
    return isinstance(number, int) and 0 <= number < _MOST


def _is_plain(text: str) -> bool:
    return isinstance(text, str) and text.isascii() and "\0" not in text


def _key(url: str) -> bytes | None:
    try:
        return url.encode()
    except UnicodeEncodeError:
        return None
