"""What a Frontier is made of, and what several of its parts decide together."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from anabranch.frontier.books import Books
from anabranch.frontier.checkpoints import Checkpoints
from anabranch.frontier.endings import Endings
from anabranch.frontier.errors import unwritable
from anabranch.frontier.intake import Intake
from anabranch.frontier.leases import Leases
from anabranch.frontier.models import WaitsFor, Wake
from anabranch.frontier.operating.steps import flushed, run
from anabranch.frontier.outbox import Outbox
from anabranch.frontier.policies.queuerules import QueueRules
from anabranch.frontier.scheduling.retries import Retries
from anabranch.frontier.scheduling.schedule import Schedule
from anabranch.frontier.seen import SeenFilter
from anabranch.frontier.stores.base import FrontierStore

_new: Final = tuple.__new__
#: The flags as bits, and every combination of them.
_TIME: Final = WaitsFor.TIME.value
_STORE: Final = WaitsFor.STORE.value
_URLS: Final = WaitsFor.URLS.value
_FINISH: Final = WaitsFor.FINISH.value
_OPERATOR: Final = WaitsFor.OPERATOR.value
_WAITS: Final = tuple(WaitsFor(bits) for bits in range(2 * _OPERATOR))


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts of one Frontier. Every method costs O(1) but `close`."""

    outbox: Outbox
    rules: QueueRules
    schedule: Schedule
    retries: Retries
    leases: Leases
    intake: Intake
    endings: Endings
    books: Books

    @property
    def pending(self) -> int:
        """URLs queued and not leased, those of retired queues left out."""
        books = self.books
        return books.queued - books.retired - len(self.leases) + self.schedule.halting.out

    @property
    def is_done(self) -> bool:
        """Nothing is leased, and nothing is queued that may be leased."""
        if self.leases or self.pending > 0:
            return False
        # How many rows of retired queues there are is known when the store has all.
        return self.books.queued == 0 or self.books.backlog.is_empty

    def wake_up(self, now_s: float) -> None:
        """What time alone changes: retries come due, leases expire, the next retries are read."""
        retries = self.retries
        if self.endings.waiting:
            due_s = retries.next_time()
            if due_s is not None and due_s <= now_s:
                self.endings.wake_retries(now_s)
            if retries.wants_more:
                self.outbox.retries = retries.ask()
        if self.leases.may_expire:
            for held in self.leases.take_expired(now_s):
                self.endings.expire(held, now_s)

    def wake(self, now_s: float) -> Wake:
        """When a lease may be had, and what that waits for."""
        if self.books.backlog.is_full:
            return Wake(None, WaitsFor.STORE)
        at_s = self.schedule.next_time(now_s)
        if self.endings.waiting:
            at_s = _earlier(at_s, self.retries.next_time())
        if self.leases.may_expire:
            at_s = _earlier(at_s, self.leases.next_expiry())
        bits = _STORE if self.is_reading else 0
        if at_s is None and not bits and self.may_read_on:
            at_s = now_s  # the next lease asks for them
        if at_s is not None:
            bits |= _TIME
        out = len(self.leases)
        if out:
            bits |= _FINISH
        pending = self.books.queued - self.books.retired - out + self.schedule.halting.out
        if pending <= 0:
            bits |= _URLS
        elif pending <= self.books.paused:
            bits |= _OPERATOR
        # A tenth of the price of Wake(…) and of combining flags: it is asked at every event of a host.
        return _new(Wake, (at_s, _WAITS[bits]))

    def trouble(self, now_s: float) -> str:
        """What the store waits for, in words, as it fails and is tried again; empty if nothing."""
        return "" if self.books.waiting is None else self.books.waiting.words(now_s)

    def hurry(self, store: FrontierStore) -> None:
        """Nothing can be leased: what was asked is wanted now, and so is what a crawl without leases may end with."""
        wanted = self.schedule.placement.loading or self.books.asked
        if wanted or not (self.leases or self.books.backlog.is_empty):
            store.hurry()

    @property
    def is_reading(self) -> bool:
        """Rows were asked of the store that may be leased."""
        return self.schedule.placement.asked > 0 or self.books.asked > 0

    @property
    def may_read_on(self) -> bool:
        """Gates that could serve may stand in the store, and there is room for them."""
        window = self.schedule.window
        return window.stored.more and not window.is_full

    def can_lease(self, now_s: float) -> bool:
        """A gate that has something to serve is open."""
        self.schedule.parking.end()
        at_s = self.schedule.window.heap.next_time()
        return at_s is not None and at_s <= now_s

    def flush(self, store: FrontierStore) -> None:
        """Return when all that was said is durable, and take the answers (blocks)."""
        run(flushed(self, store))

    def close(self, store: FrontierStore, seen: SeenFilter, checkpoints: Checkpoints, now_s: float) -> None:
        """Write all, sync the filter, mark the state clean if nothing failed, let go (blocks)."""
        clean = False
        try:
            with ExitStack() as open_ones:
                open_ones.callback(seen.close)
                open_ones.callback(lambda: checkpoints.close(final=self.books.failure is None))
                if self.books.failure is None:
                    self._write_all(store, now_s)
                    checkpoints.marked(self.intake.marking.ordinal)
            clean = self.books.failure is None
        except OSError as error:
            raise unwritable("the filter", error) from error
        finally:
            store.close(clean=clean)

    def _write_all(self, store: FrontierStore, now_s: float) -> None:
        """Leases that are still out end as if lost, gates become rows, and everything is durable."""
        for held in list(self.leases):
            self.leases.drop(held)
            self.endings.expire(held, now_s)
        self.flush(store)
        self.schedule.window.leave_all(now_s)
        self.flush(store)


def _earlier(one_s: float | None, other_s: float | None) -> float | None:
    if one_s is None or other_s is None:
        return one_s if other_s is None else other_s
    return min(one_s, other_s)
