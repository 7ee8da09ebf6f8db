"""A Frontier over a memory store and a clock that only the test moves; stores and filters that misbehave on command."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anabranch.frontier import composition
from anabranch.frontier.admission import Admission
from anabranch.frontier.checkpoints import Checkpoints, catch_up
from anabranch.frontier.errors import StoreUnavailable
from anabranch.frontier.frontier import Frontier
from anabranch.frontier.order import FrontierOrder
from anabranch.frontier.parts import Parts
from anabranch.frontier.policies.assignment import PolitenessScope
from anabranch.frontier.policies.groups import parse_group
from anabranch.frontier.records import (
    Candidate,
    GateKey,
    Head,
    HostTrouble,
    Lease,
    Outcome,
    OutcomeKind,
    QueueKey,
    Row,
    Turn,
    Verdict,
    WaitsFor,
)
from anabranch.frontier.scheduling.gates import Politeness
from anabranch.frontier.scheduling.readylist import ReadyList
from anabranch.frontier.scheduling.schedule import Schedule
from anabranch.frontier.seen import ExactFilter, SeenFilter
from anabranch.frontier.stores.contract import Answer, Batch, LaneId, Opening, StoreFailed, Synced
from anabranch.frontier.stores.memory.store import MemoryStore
from tests.frontier.ledger import PolitenessLedger

START_S = 1_000_000.0
#: Looks at `lease` after which a test gives up.
PATIENCE = 10_000


class FakeClock:
    """Time that stands still until it is moved."""

    def __init__(self, now_s: float = START_S) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s

    def advance(self, seconds: float) -> None:
        self.now_s += seconds

    def advance_to(self, at_s: float) -> None:
        self.now_s = max(self.now_s, at_s)


class CountingStore(MemoryStore):
    """A memory store that remembers what it was told and asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[LaneId, int]] = []  #: questions for heads
        self.questions: list[str] = []  #: all questions, by name
        self.batches: list[Batch] = []
        self.closed: list[bool] = []
        self.hurried = 0  #: times that it was told to begin

    def write(self, batch: Batch) -> None:
        self.batches.append(batch)
        super().write(batch)

    def ask_heads(self, lane: LaneId, limit: int, *, with_queue: bool) -> None:
        self.asked.append((lane, limit))
        self.questions.append("heads")
        super().ask_heads(lane, limit, with_queue=with_queue)

    def ask_lanes(self, gate: int, after: Turn | None, limit: int) -> None:
        self.questions.append("lanes")
        super().ask_lanes(gate, after, limit)

    def ask_gate(self, gate: int, key: GateKey, lanes: int) -> None:
        self.questions.append("gate")
        super().ask_gate(gate, key, lanes)

    def ask_gates(self, now_s: float, limit: int, lanes: int) -> None:
        self.questions.append("gates")
        super().ask_gates(now_s, limit, lanes)

    def ask_retries(self, after: tuple[float, int] | None, limit: int) -> None:
        self.questions.append("retries")
        super().ask_retries(after, limit)

    def hurry(self) -> None:
        self.hurried += 1

    def close(self, *, clean: bool) -> None:
        self.closed.append(clean)
        super().close(clean=clean)


class DelayingStore(CountingStore):
    """Does what it was told only when the test says so, oldest first; reads are told before the commit that they saw."""

    def __init__(self) -> None:
        super().__init__()
        self._todo: deque[Callable[[], None]] = deque()
        self._told: list[Answer] = []
        self._uncommitted: Synced | None = None
        self._written: list[Batch] = []
        self.committed_keys: set[bytes] = set()
        self._on_change: Callable[[], None] = lambda: None

    def open(self, identity: Mapping[str, str], now_s: float, on_change: Callable[[], None]) -> Opening:
        self._on_change = on_change
        return super().open(identity, now_s, on_change)

    @property
    def behind(self) -> bool:
        return bool(self._todo) or self._uncommitted is not None or bool(self._told)

    def write(self, batch: Batch) -> None:
        self._todo.append(lambda: self._write(batch))

    def ask_heads(self, lane: LaneId, limit: int, *, with_queue: bool) -> None:
        self._todo.append(lambda: CountingStore.ask_heads(self, lane, limit, with_queue=with_queue))

    def ask_lanes(self, gate: int, after: Turn | None, limit: int) -> None:
        self._todo.append(lambda: CountingStore.ask_lanes(self, gate, after, limit))

    def ask_gate(self, gate: int, key: GateKey, lanes: int) -> None:
        self._todo.append(lambda: CountingStore.ask_gate(self, gate, key, lanes))

    def ask_gates(self, now_s: float, limit: int, lanes: int) -> None:
        self._todo.append(lambda: CountingStore.ask_gates(self, now_s, limit, lanes))

    def ask_retries(self, after: tuple[float, int] | None, limit: int) -> None:
        self._todo.append(lambda: CountingStore.ask_retries(self, after, limit))

    def work(self, steps: int = 1) -> None:
        """Do the oldest `steps` things; what was written is not durable yet."""
        told = len(self._told)
        for _ in range(min(steps, len(self._todo))):
            self._todo.popleft()()
            for answer in super().take_answers():
                self._take_note(answer)
        if len(self._told) > told:
            self._on_change()

    def work_all(self) -> None:
        """Do all that waits; what was written is not durable yet."""
        self.work(len(self._todo))

    def commit(self) -> None:
        """Make durable what was written."""
        if self._uncommitted is None:
            return
        self._told.append(self._uncommitted)
        self._uncommitted = None
        for batch in self._written:
            self.committed_keys.update(row.dedup_key() for row in batch.new)
        self._written.clear()
        self._on_change()

    def fail(self, error: StoreUnavailable) -> None:
        """Give up for good."""
        self._told.append(StoreFailed(error))
        self._on_change()

    def take_answers(self) -> list[Answer]:
        told, self._told = self._told, []
        return told

    def flush(self) -> None:
        self.work_all()
        self.commit()

    def _write(self, batch: Batch) -> None:
        self._written.append(batch)
        super().write(batch)

    def _take_note(self, answer: Answer) -> None:
        if not isinstance(answer, Synced):
            self._told.append(answer)
            return
        before = [] if self._uncommitted is None else self._uncommitted.duplicates
        self._uncommitted = answer._replace(duplicates=before + answer.duplicates)


class ForgetfulFilter(ExactFilter):
    """Has seen nothing, whatever it is told."""

    def unseen(self, keys: Sequence[bytes]) -> list[bool]:
        return [True] * len(keys)


class FullFilter(ExactFilter):
    """Fails as a full disk does, in the methods that are named; notes what is called."""

    def __init__(self, *failing: str) -> None:
        super().__init__()
        self._failing = failing
        self.calls: list[str] = []

    def mark(self, keys: Sequence[bytes]) -> None:
        self._call("mark")
        super().mark(keys)

    def sync(self) -> None:
        self._call("sync")

    def close(self) -> None:
        self._call("close")

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if name in self._failing:
            raise OSError(28, "No space left on device")


@dataclass(slots=True, kw_only=True)
class Rig:
    """A Frontier, what it stands on, and a ledger of what it hands out."""

    core: Frontier
    parts: Parts
    order: FrontierOrder
    clock: FakeClock
    store: MemoryStore
    seen: SeenFilter
    ledger: PolitenessLedger

    @property
    def admission(self) -> Admission:
        return self.parts.admission

    @property
    def schedule(self) -> Schedule:
        return self.parts.schedule

    def line(self, gate: str) -> ReadyList:
        """The line of a gate that is in memory."""
        (line,) = (line for line in self.schedule.window if line.gate.key == gate)
        return line

    def states(self) -> dict[str, int]:
        """How many queues are in each state, those left out that none is in."""
        return {state: count for state, count in self.core.operations.statistics().queues.items() if count}

    def state_of(self, queue: str) -> str:
        """The state of one queue."""
        return self.core.operations.explain(QueueKey(queue)).state

    def add(self, *urls: str, front: bool = False, force: bool = False) -> list[Verdict]:
        """Schedule these URLs as one batch."""
        return self.core.schedule(candidates(*urls, front=front, force=force))

    def lease(self) -> Lease | None:
        """A lease if there is one now."""
        lease = self.core.lease()
        if lease is not None:
            self.ledger.start(lease)
        return lease

    def lease_now(self) -> Lease:
        """A lease that must be there now."""
        lease = self.lease()
        assert lease is not None, f"{self.core!r} has no lease: {self.core.wake()}"
        return lease

    def settled(self) -> Lease:
        """A lease that must be there, now or when the store has answered and time has passed."""
        for _ in range(PATIENCE):
            lease = self.lease()
            if lease is not None:
                return lease
            at_s, waits_for = self.core.wake()
            if waits_for & WaitsFor.STORE:
                self.store.flush()
            else:
                assert at_s is not None, f"{self.core!r} has no lease, and waits for {waits_for}"
                self.clock.advance_to(at_s)
        raise AssertionError("lease() says no, for ever")

    def lease_all(self) -> list[Lease]:
        """Every lease that can be had at this moment."""
        leases: list[Lease] = []
        for _ in range(PATIENCE):
            lease = self.lease()
            if lease is not None:
                leases.append(lease)
                continue
            at_s = self.core.wake().at_s
            if at_s is None or at_s > self.clock.now_s:
                return leases
        raise AssertionError("wake() says now, and lease() says no, for ever")

    def lease_next(self) -> Lease | None:
        """The next lease, whenever that is; None if time alone brings none."""
        for _ in range(PATIENCE):
            lease = self.lease()
            if lease is not None:
                return lease
            at_s, waits_for = self.core.wake()
            if at_s is None:
                assert WaitsFor.TIME not in waits_for
                return None
            self.clock.advance_to(at_s)
        raise AssertionError("wake() names times at which nothing happens, for ever")

    def finish(
        self,
        lease: Lease,
        kind: OutcomeKind = OutcomeKind.DONE,
        *,
        fetched: bool = True,
        after_s: float = 0.0,
        trouble: HostTrouble = HostTrouble.NONE,
        retry_after_s: float = 0.0,
        links: Sequence[str] = (),
    ) -> list[Verdict]:
        """End a lease now; its fetch ran from the moment of the lease to this one."""
        outcome = Outcome(
            kind=kind,
            status=200 if kind is OutcomeKind.DONE else 0,
            start_s=lease.since_s if fetched else None,
            end_s=self.clock.now_s if fetched else None,
            after_s=after_s,
            trouble=trouble,
            retry_after_s=retry_after_s,
        )
        verdicts = self.core.finish(lease, outcome, candidates(*links))
        self.ledger.end(lease, outcome, self.clock.now_s)
        return verdicts

    def release(self, lease: Lease) -> None:
        """Give a lease back unprocessed."""
        self.core.release(lease)
        self.ledger.end(lease, None, self.clock.now_s)

    def fetch(self, lease: Lease, fetch_s: float = 1.0, **outcome: object) -> list[Verdict]:
        """Let a fetch take so long, then finish."""
        self.clock.advance(fetch_s)
        return self.finish(lease, **outcome)  # type: ignore[arg-type]

    def block(self, gate: str, until_s: float) -> None:
        self.core.block(GateKey(gate), until_s)
        self.ledger.block(GateKey(gate), until_s)

    def unblock(self, gate: str) -> None:
        self.core.unblock(GateKey(gate))
        self.ledger.unblock(GateKey(gate))

    def set_delay(self, gate: str, delay_s: float) -> None:
        self.core.set_delay(GateKey(gate), delay_s)
        self.ledger.set_delay(GateKey(gate), delay_s)

    def set_slots(self, gate: str, slots: int | None) -> None:
        self.core.set_slots(GateKey(gate), slots)
        self.ledger.set_slots(GateKey(gate), slots)

    def set_politeness(self, gate: str, politeness: Politeness) -> None:
        """Set the politeness of all gates; the ledger checks the slots of this one."""
        self.core.operations.set_politeness(politeness, Politeness())
        self.ledger.set_slots(GateKey(gate), politeness.slots)

    def drain(self, fetch_s: float = 1.0) -> list[str]:
        """Fetch one after the other until nothing comes; answers the URLs in order."""
        fetched: list[str] = []
        while (lease := self.lease_next()) is not None:
            fetched.append(lease.url)
            self.fetch(lease, fetch_s)
        return fetched


class ManualCheckpoints(Checkpoints):
    """Made when the test says so: their thread ends at once."""

    def _run(self) -> None:
        pass


def build(
    *,
    store: MemoryStore | None = None,
    seen: SeenFilter | None = None,
    clock: FakeClock | None = None,
    on_change: Callable[[], None] = lambda: None,
    **order: Any,
) -> Rig:
    """A new Frontier over a store in memory; `order` are fields of the `FrontierOrder`.

    The policy is `host`; rests are 3 s to 30 s, five times the fetch, unless `politeness` says otherwise.
    """
    asked = FrontierOrder(**{"policy": "host", **order})
    store, seen, clock = store or MemoryStore(), seen or ExactFilter(), clock or FakeClock()
    composition.check_order(asked)
    opening = store.open(composition._identity(asked), clock(), on_change)
    catch_up(store, seen, opening)
    checkpoints = ManualCheckpoints(store, seen, marked=opening.counters.last_ordinal)
    parts = composition._parts(asked, store, seen, opening, checkpoints, clock)
    core = Frontier(store=store, seen=seen, parts=parts, checkpoints=checkpoints, clock=clock)
    composition._wake_by_budget(core, asked, store, opening)
    return Rig(core=core, parts=parts, order=asked, clock=clock, store=store, seen=seen, ledger=ledger_for(asked))


def ledger_for(order: FrontierOrder) -> PolitenessLedger:
    """A ledger that knows what the order asks for; overrides are not among it."""
    group_of = parse_group(order.group, ip_of=order.ip_of)
    return PolitenessLedger(
        order.politeness if order.scope is not PolitenessScope.OFF else OFF,
        backoff=order.backoff,
        group_of=group_of or (lambda host: None),
        group_politeness=order.group_politeness,
    )


def candidates(*urls: str, front: bool = False, force: bool = False) -> list[Candidate]:
    """One candidate per URL."""
    return [Candidate(url=url, front=front, force=force) for url in urls]


def pages(host: str, count: int, prefix: str = "page") -> list[str]:
    """So many URLs of one host."""
    return [f"http://{host}/{prefix}{number}" for number in range(count)]


def row(ordinal: int, *, precedence: int = 769, due_s: float | None = None, queue: int = 1, gate: int = 2) -> Row:
    """A row of lane (1, 2), at normal precedence."""
    return Row(queue, gate, precedence, ordinal, f"http://a.test/{ordinal}", None, "", 0, 0, due_s, None)


def head(ordinal: int, *, precedence: int = 769, due_s: float | None = None) -> Head:
    """The head of such a row."""
    return Head(row(ordinal, precedence=precedence, due_s=due_s), None)


#: Rests of nothing at all.
HASTE = Politeness(delay_factor=0.0, min_delay_s=0.0, max_delay_s=0.0)
#: What the scope `off` asks of a gate.
OFF = Politeness(delay_factor=0.0, min_delay_s=0.0, max_delay_s=0.0, slots=1_000_000)

__all__ = [
    "HASTE",
    "OFF",
    "PATIENCE",
    "START_S",
    "CountingStore",
    "DelayingStore",
    "FakeClock",
    "ForgetfulFilter",
    "FullFilter",
    "ManualCheckpoints",
    "Rig",
    "build",
    "candidates",
    "head",
    "ledger_for",
    "pages",
    "row",
]
