"""The Frontier: which URL may be fetched next, and when.

A synchronous core that never waits: it reads one injected clock, keeps decisions in memory and says every change to its
store as one batch per call. What the store answers is drained at the start of each call. Nothing here does I/O, except in the
methods whose docstring says that they block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType

from frontier.audit import check_lanes
from frontier.backlog import Backlog
from frontier.errors import FrontierError, InvariantBroken, StoreFull
from frontier.gates import Gate
from frontier.intake import Intake
from frontier.leases import Held, Leases
from frontier.lifecycle import QueueState
from frontier.models import (
    BUSY,
    ENDING,
    WAITING,
    Candidate,
    GateKey,
    Head,
    Lease,
    Outcome,
    OutcomeKind,
    UrlRecord,
    Verdict,
    WaitsFor,
    Wake,
)
from frontier.seen import SeenFilter
from frontier.statistics import FrontierStatistics
from frontier.stores.base import (
    Batch,
    Counters,
    Ended,
    FrontierStore,
    HeadsRead,
    Moved,
    StoreFailed,
    Synced,
)
from frontier.workqueues import Lane


class Frontier:
    """Work queues behind gates, over a store and a filter. Not thread-safe; many may live in one process.

    schedule, lease, wake, finish, release, block, unblock, set_delay and the counts never wait. Errors: after the store
    failed, every call but `close` raises what it failed with (`StoreUnavailable`).
    """

    def __init__(
        self,
        *,
        store: FrontierStore,
        seen: SeenFilter,
        intake: Intake,
        clock: Callable[[], float],
        max_unacknowledged: int,
        counters: Counters,
    ) -> None:
        self._store = store
        self._seen = seen
        self._intake = intake
        self._index = intake.index
        self._schedule = intake.schedule
        self._clock = clock
        self._backlog = Backlog(max_unacknowledged)
        self._leases = Leases()
        self._queued = counters.queued
        self._totals = {
            OutcomeKind.DONE: counters.done,
            OutcomeKind.FAILED: counters.failed,
            OutcomeKind.DISREGARDED: counters.disregarded,
        }
        self._failure: FrontierError | None = None
        self._is_closed = False

    def __enter__(self) -> Frontier:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Frontier {self.pending} pending, {self.in_flight} in flight>"

    # URLs in

    def schedule(self, candidates: Sequence[Candidate]) -> list[Verdict]:
        """Enqueue what is new; one verdict per candidate, in order. BUSY for all while the store is behind."""
        self._drain()
        if self._backlog.is_full:
            return [BUSY] * len(candidates)
        batch = self._new_batch()
        verdicts = self._accept(candidates, 0, batch)
        self._say(batch)
        return verdicts

    # URLs out

    def lease(self) -> Lease | None:
        """The next URL that may be fetched now, or None; `wake()` says when to ask again."""
        self._drain()
        if self._backlog.is_full:
            return None
        while True:
            now_s = self._clock()
            served = self._schedule.lease(now_s)
            asked = self._ask_store()
            if served is not None:
                lane, head = served
                return self._leases.hand_out(lane, self._gate_of(lane), head, now_s)
            if not asked or not self._drain():
                return None

    def wake(self) -> Wake:
        """When `lease()` may have an answer, and what it waits for."""
        self._drain()
        if self._backlog.is_full:
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
        self._drain()
        batch = self._new_batch()
        now_s = self._clock()
        gate = held.gate
        if outcome.start_s is not None and outcome.end_s is not None:
            gate.rest(outcome.start_s, outcome.end_s, now_s)
        else:
            gate.give_back(now_s)
        if outcome.host_rest_s > 0:
            gate.block(now_s + outcome.host_rest_s)
        batch.gates.append(gate.row())
        self._end(held, outcome, now_s, batch)
        verdicts = self._accept(discovered, lease.ordinal, batch) if discovered else []
        self._say(batch, finishes=1)
        return verdicts

    def release(self, lease: Lease) -> None:
        """Give a lease back unprocessed: the URL is first again and the slot does not rest. Raises: LeaseLost."""
        held = self._leases.take_back(lease)
        held.gate.give_back(self._clock())
        self._schedule.come_back(held.lane, held.head, keep=True)
        self._drain()

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
        return self._queued - len(self._leases)

    @property
    def in_flight(self) -> int:
        """Leases out."""
        return len(self._leases)

    @property
    def is_done(self) -> bool:
        """Nothing is queued and nothing is leased."""
        return self._queued == 0

    @property
    def said(self) -> int:
        """The number of the last call that changed anything; it is acknowledged when `durable` has reached it."""
        return self._backlog.said

    @property
    def durable(self) -> int:
        """The number of the last call whose changes are committed and synced."""
        return self._backlog.durable

    def statistics(self) -> FrontierStatistics:
        """A snapshot. Costs a look at every gate."""
        self._drain()
        now_s = self._clock()
        gates = list(self._schedule.gates())
        return FrontierStatistics(
            pending=self.pending,
            waiting=self._schedule.waiting,
            in_flight=self.in_flight,
            done=self._totals[OutcomeKind.DONE],
            failed=self._totals[OutcomeKind.FAILED],
            disregarded=self._totals[OutcomeKind.DISREGARDED],
            queues={state.value: self._index.states[state] for state in QueueState},
            gates=len(gates),
            gates_open=sum(gate.opens_s() <= now_s for gate in gates),
            unsynced_rows=self._backlog.rows,
            seen=self._seen.facts(),
        )

    # Blocking

    def get(self, key: bytes) -> UrlRecord | None:
        """What is known of the URL with this dedup key (blocks; may be called from any thread)."""
        return self._store.look_up(key)

    def wait_until_durable(self) -> None:
        """Return when the store has all that was said (blocks; may be called from any thread)."""
        self._store.flush()

    def flush(self) -> None:
        """Return when all that was said is durable (blocks). Raises: StoreUnavailable."""
        self.wait_until_durable()
        self._drain()

    def check(self) -> None:
        """Compare what is in memory with the store, row by row (blocks). Raises: InvariantBroken."""
        self.flush()
        check_lanes(self._index, self._schedule, self._leases.ordinals())
        kept, here = self._store.counters(), self._counters()
        # A duplicate that died took its ordinal with it.
        if kept._replace(last_ordinal=0) != here._replace(last_ordinal=0):
            raise InvariantBroken(f"the store counts {kept}, the Frontier {here}")

    def close(self) -> None:
        """Write all, sync the filter, mark the state clean, let go (blocks). A second call is harmless."""
        if self._is_closed:
            return
        self._is_closed = True
        clean = False
        try:
            try:
                if self._failure is None:
                    self.flush()
                    self._seen.sync()
            finally:
                self._seen.close()
            clean = self._failure is None
        except OSError as error:
            raise StoreFull(f"the filter cannot be written: {error}") from error
        finally:
            self._store.close(clean=clean)

    # Inside

    def _drain(self) -> bool:
        """Take the store's answers; True if there were any. Raises what the store or the filter failed with."""
        if self._failure is not None:
            raise self._failure
        answers = self._store.take_answers()
        for answer in answers:
            match answer:
                case HeadsRead():
                    self._heads_read(answer)
                case Synced():
                    self._synced(answer)
                case StoreFailed():
                    self._failure = answer.error
                    raise answer.error
        return bool(answers)

    def _heads_read(self, answer: HeadsRead) -> None:
        lane = self._index.get(answer.lane)
        if not self._schedule.heads_read(lane, answer.heads) and self._backlog.is_empty:
            raise InvariantBroken(f"{lane} should have {lane.stored} rows in the store, and none was found")

    def _synced(self, answer: Synced) -> None:
        self._backlog.synced(answer.number)
        for row in answer.duplicates:
            self._queued -= 1
            self._schedule.rows_lost(self._index.get((row.queue, row.gate)))
        try:
            self._intake.mark_synced(answer.number)
        except OSError as error:
            self._failure = StoreFull(f"the filter cannot be written: {error}")
            raise self._failure from error

    def _new_batch(self) -> Batch:
        return Batch(number=self._backlog.said + 1)

    def _accept(self, candidates: Sequence[Candidate], via: int, batch: Batch) -> list[Verdict]:
        verdicts = self._intake.accept(candidates, via, batch)
        self._queued += len(batch.new)
        return verdicts

    def _say(self, batch: Batch, finishes: int = 0) -> None:
        if batch.is_empty:
            return
        self._backlog.add(batch, finishes)
        self._store.write(batch)

    def _ask_store(self) -> bool:
        wanted = self._schedule.take_wanted()
        for lane, limit in wanted:
            self._store.ask_heads(lane.id, limit)
        return bool(wanted)

    def _end(self, held: Held, outcome: Outcome, now_s: float, batch: Batch) -> None:
        """Put the row where its outcome sends it."""
        lane, head, row = held.lane, held.head, held.head.row
        if outcome.kind in ENDING:
            batch.ended.append(Ended(row, outcome.status, outcome.kind))
            self._totals[outcome.kind] += 1
            self._queued -= 1
            self._schedule.row_ended(lane)
        elif outcome.kind is OutcomeKind.RETRY:
            waits = row._replace(
                precedence=row.precedence % WAITING + WAITING,
                attempts=row.attempts + 1,
                due_s=now_s + outcome.after_s,
            )
            batch.moved.append(Moved(row, waits))
            self._schedule.row_waits(lane, Head(waits, head.via))
        self._schedule.come_back(lane, head, keep=outcome.kind is OutcomeKind.DEFERRED)

    def _gate_of(self, lane: Lane) -> Gate:
        gate = self._schedule.gate(lane.gate)
        assert gate is not None, "a lane stands at a gate that exists"
        return gate

    def _change_gate(self, key: GateKey, change: Callable[[Gate], None]) -> None:
        self._drain()
        batch = self._new_batch()
        gate = self._intake.gate(key, batch)
        change(gate)
        batch.gates[:] = [gate.row()]
        self._schedule.gate_changed(gate)
        self._say(batch)

    def _counters(self) -> Counters:
        return Counters(
            last_ordinal=self._intake.last_ordinal,
            queued=self._queued,
            done=self._totals[OutcomeKind.DONE],
            failed=self._totals[OutcomeKind.FAILED],
            disregarded=self._totals[OutcomeKind.DISREGARDED],
        )
