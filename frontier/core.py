"""The Frontier: which URL may be fetched next, and when.

A synchronous core that waits for no store and no time: it reads one injected clock, keeps decisions in memory and says
every change to its store as one batch per call. What the store answers is drained at the start of each call; for what became
durable that marks the filter, which writes to its buffers and mapped files (and splits a full leaf) there and then. All
other I/O is in the methods whose docstring says that they block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from frontier.audit import check_counters, check_lanes
from frontier.books import Books
from frontier.endings import end_row, end_slot
from frontier.gates import Gate
from frontier.intake import Intake
from frontier.leases import Leases
from frontier.models import (
    BUSY,
    Candidate,
    GateKey,
    Lease,
    Outcome,
    UrlRecord,
    Verdict,
    WaitsFor,
    Wake,
)
from frontier.schedule import Schedule
from frontier.seen import SeenFilter
from frontier.statistics import FrontierCounts, FrontierStatistics, count, examine
from frontier.stores.base import FrontierStore


class Frontier:
    """Work queues behind gates, over a store and a filter. Not thread-safe; many may live in one process.

    schedule, lease, wake, finish, release, block, unblock, set_delay and the counts never wait for the store. Errors: after
    the store failed, every call but `close` raises what it failed with (`StoreUnavailable`).
    """

    def __init__(
        self,
        *,
        store: FrontierStore,
        seen: SeenFilter,
        intake: Intake,
        schedule: Schedule,
        books: Books,
        clock: Callable[[], float],
    ) -> None:
        self._store = store
        self._seen = seen
        self._intake = intake
        self._schedule = schedule
        self._books = books
        self._clock = clock
        self._leases = Leases()
        self._is_closed = False

    def __enter__(self) -> Frontier:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Frontier {self.pending} pending, {self.in_flight} in flight>"

    # URLs in

    def schedule(self, candidates: Sequence[Candidate]) -> list[Verdict]:
        """Enqueue what is new; one verdict per candidate, in order. BUSY for all while the store is behind."""
        self._books.drain()
        if self._books.backlog.is_full:
            return [BUSY] * len(candidates)
        batch = self._books.begin()
        verdicts = self._books.accept(candidates, 0, batch)
        self._books.say(batch)
        return verdicts

    # URLs out

    def lease(self) -> Lease | None:
        """The next URL that may be fetched now, or None; `wake()` says when to ask again."""
        self._books.drain()
        if self._books.backlog.is_full:
            return None
        while True:
            now_s = self._clock()
            served = self._schedule.lease(now_s)
            asked = self._books.ask_heads()
            if served is not None:
                lane, head = served
                gate = self._schedule.gate(lane.gate)
                assert gate is not None, "a lane stands at a gate that exists"
                return self._leases.hand_out(lane, gate, head, now_s)
            if not asked or not self._books.drain():
                return None

    def wake(self) -> Wake:
        """When `lease()` may have an answer, and what it waits for."""
        self._books.drain()
        if self._books.backlog.is_full:
            return Wake(None, WaitsFor.STORE)
        at_s = self._schedule.next_time(self._clock())
        waits_for = WaitsFor.TIME if at_s is not None else WaitsFor.NOTHING
        if self._schedule.asked:
            waits_for |= WaitsFor.STORE
        if self._leases:
            waits_for |= WaitsFor.FINISH
        if not self.pending:
            waits_for |= WaitsFor.URLS
        return Wake(at_s, waits_for)

    def finish(self, lease: Lease, outcome: Outcome, discovered: Sequence[Candidate] = ()) -> list[Verdict]:
        """Give a lease back with its outcome and the page's outlinks, as one transaction.

        Never refused for being busy. Raises: LeaseLost.
        """
        held = self._leases.take_back(lease)
        self._books.drain()
        batch = self._books.begin()
        now_s = self._clock()
        end_slot(held, outcome, now_s, batch)
        end_row(held, outcome, now_s, batch, self._schedule)
        verdicts = self._books.accept(discovered, lease.ordinal, batch) if discovered else []
        self._books.say(batch, finishes=1)
        return verdicts

    def release(self, lease: Lease) -> None:
        """Give a lease back unprocessed: the URL is first again and the slot does not rest. Raises: LeaseLost."""
        held = self._leases.take_back(lease)
        held.gate.give_back(self._clock())
        self._schedule.come_back(held.lane, held.head, keep=True)
        self._books.drain()

    # Gates

    def set_delay(self, gate: GateKey, delay_s: float) -> None:
        """Start fetches of this gate at least so far apart (a robots Crawl-delay); 0 takes it back."""
        self._change_gate(gate, lambda changed: setattr(changed, "spacing_s", max(delay_s, 0.0)))

    def block(self, gate: GateKey, until_s: float) -> None:
        """Let nothing through this gate before `until_s`."""
        self._change_gate(gate, lambda changed: changed.block(until_s))

    def unblock(self, gate: GateKey) -> None:
        """Take a block back; slots that rest go on resting."""
        self._change_gate(gate, lambda changed: setattr(changed, "blocked_until_s", 0.0))

    # Counts

    def now_s(self) -> float:
        """The injected clock's time; all times of this Frontier are its."""
        return self._clock()

    @property
    def pending(self) -> int:
        """URLs queued and not leased."""
        return self._books.queued - len(self._leases)

    @property
    def in_flight(self) -> int:
        """Leases out."""
        return len(self._leases)

    @property
    def is_done(self) -> bool:
        """Nothing is queued and nothing is leased."""
        return self._books.queued == 0

    @property
    def said(self) -> int:
        """The number of the last call that changed anything; it is acknowledged when `durable` has reached it."""
        return self._books.backlog.said

    @property
    def durable(self) -> int:
        """The number of the last call whose changes are committed and synced."""
        return self._books.backlog.durable

    def take_answers(self) -> None:
        """Take what the store has answered, as every other call does first. Raises: StoreUnavailable."""
        self._books.drain()

    def counts(self) -> FrontierCounts:
        """How much of what there is, O(1): for displays that are renewed often."""
        self._books.drain()
        return count(self._books, self._schedule, self.in_flight)

    def statistics(self) -> FrontierStatistics:
        """The counts and more. Costs a look at every gate and at every leaf of the filter."""
        return examine(self.counts(), self._books, self._schedule, self._clock())._replace(seen=self._seen.facts())

    # Blocking

    def get(self, key: bytes) -> UrlRecord | None:
        """What is known of the URL with this dedup key (blocks, for a queued one as long as a scan takes; any thread)."""
        return self._store.look_up(key)

    def ended(self, keys: Sequence[bytes]) -> dict[bytes, UrlRecord]:
        """What is known of those of these URLs that have ended, by dedup key (blocks; may be called from any thread)."""
        return self._store.ended(keys)

    def wait_until_durable(self) -> None:
        """Return when the store has all that was said (blocks; may be called from any thread)."""
        self._store.flush()

    def flush(self) -> None:
        """Return when all that was said is durable (blocks). Raises: StoreUnavailable."""
        self._books.flush()

    def check(self) -> None:
        """Compare what is in memory with the store, row by row (blocks). Raises: InvariantBroken."""
        self.flush()
        check_lanes(self._schedule, self._leases.ordinals())
        check_counters(self._store.counters(), self._books.counters())

    def close(self) -> None:
        """Write all, sync the filter, mark the state clean, let go (blocks). A second call is harmless."""
        if not self._is_closed:
            self._is_closed = True
            self._books.close(self._seen)

    def _change_gate(self, key: GateKey, change: Callable[[Gate], None]) -> None:
        self._books.drain()
        batch = self._books.begin()
        gate = self._intake.gate(key, batch)
        change(gate)
        batch.gates[:] = [gate.row()]
        self._schedule.gate_changed(gate)
        self._books.say(batch)
