"""What a Frontier is made of, and what several of its parts decide together."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

from frontier.books import Books
from frontier.checkpoints import Checkpoints
from frontier.endings import Endings
from frontier.errors import unwritable
from frontier.intake import Intake
from frontier.leases import Leases
from frontier.models import WaitsFor, Wake
from frontier.operating.steps import flushed, run
from frontier.outbox import Outbox
from frontier.policies.queuerules import QueueRules
from frontier.scheduling.retries import Retries
from frontier.scheduling.schedule import Schedule
from frontier.seen import SeenFilter
from frontier.stores.base import FrontierStore


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
        books, schedule = self.books, self.schedule
        return books.queued - books.retired - len(self.leases) + schedule.halting.out

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
        at_s = self._next_time(now_s)
        if at_s is None and self.may_read_on and not self.is_reading:
            at_s = now_s  # the next lease asks for them
        waits_for = WaitsFor.TIME if at_s is not None else WaitsFor.NOTHING
        if self.is_reading:
            waits_for |= WaitsFor.STORE
        if self.leases:
            waits_for |= WaitsFor.FINISH
        if self.pending <= 0:
            waits_for |= WaitsFor.URLS
        elif self.pending <= self.books.paused:
            waits_for |= WaitsFor.OPERATOR
        return Wake(at_s, waits_for)

    def trouble(self, now_s: float) -> str:
        """What the store waits for, in words, as it fails and is tried again; empty if nothing."""
        return "" if self.books.waiting is None else self.books.waiting.words(now_s)

    @property
    def is_reading(self) -> bool:
        """Rows were asked of the store that may be leased."""
        return bool(self.schedule.asked or self.books.is_awaiting)

    @property
    def may_read_on(self) -> bool:
        """Gates that could serve may stand in the store, and there is room for them."""
        window = self.schedule.window
        return window.stored.more and not window.is_full

    def can_lease(self, now_s: float) -> bool:
        """A gate that has something to serve is open."""
        at_s = self.schedule.window.heap.next_time()
        return at_s is not None and at_s <= now_s

    def _next_time(self, now_s: float) -> float | None:
        times = (self.schedule.next_time(now_s), self.retries.next_time(), self.leases.next_expiry())
        return min((time_s for time_s in times if time_s is not None), default=None)

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
                    checkpoints.marked(self.intake.marked_ordinal)
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
