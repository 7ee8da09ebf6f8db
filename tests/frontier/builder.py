"""A Frontier over a memory store and a clock that only the test moves; stores and filters that misbehave on command."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from frontier.assignment import PolitenessScope, parse_policy
from frontier.books import Books
from frontier.core import Frontier
from frontier.errors import StoreUnavailable
from frontier.gates import Politeness
from frontier.intake import Intake
from frontier.models import (
    Candidate,
    GateKey,
    Head,
    Lease,
    Outcome,
    OutcomeKind,
    Row,
    Verdict,
    WaitsFor,
)
from frontier.schedule import Schedule
from frontier.seen import ExactFilter, SeenFilter
from frontier.stores.base import Answer, Batch, LaneId, Opening, StoreFailed, Synced
from frontier.stores.memory import MemoryStore
from frontier.workqueues import QueueIndex

START_S = 1_000_000.0


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
    """A memory store that remembers what it was told."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[LaneId, int]] = []
        self.batches: list[Batch] = []
        self.closed: list[bool] = []

    def write(self, batch: Batch) -> None:
        self.batches.append(batch)
        super().write(batch)

    def ask_heads(self, lane: LaneId, limit: int) -> None:
        self.asked.append((lane, limit))
        super().ask_heads(lane, limit)

    def close(self, *, clean: bool) -> None:
        self.closed.append(clean)


class DelayingStore(CountingStore):
    """Does what it was told only when the test says so, oldest first; heads are told before the commit that they saw."""

    def __init__(self) -> None:
        super().__init__()
        self._todo: deque[Callable[[], None]] = deque()
        self._told: list[Answer] = []
        self._uncommitted: Synced | None = None
        self._written: list[Batch] = []
        self.committed_keys: set[bytes] = set()
        self._on_change: Callable[[], None] = lambda: None

    def open(self, identity: dict[str, str], on_change: Callable[[], None]) -> Opening:
        self._on_change = on_change
        return super().open(identity, on_change)

    @property
    def behind(self) -> bool:
        return bool(self._todo) or self._uncommitted is not None or bool(self._told)

    def write(self, batch: Batch) -> None:
        self._todo.append(lambda: self._write(batch))

    def ask_heads(self, lane: LaneId, limit: int) -> None:
        self._todo.append(lambda: CountingStore.ask_heads(self, lane, limit))

    def work(self, steps: int = 1) -> None:
        """Do the oldest `steps` things; what was written is not durable yet."""
        told = len(self._told)
        for _ in range(min(steps, len(self._todo))):
            self._todo.popleft()()
            for answer in super().take_answers():
                self._take_note(answer)
        if len(self._told) > told:
            self._on_change()

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
        self.work(len(self._todo))
        self.commit()

    def _write(self, batch: Batch) -> None:
        self._written.append(batch)
        super().write(batch)

    def _take_note(self, answer: Answer) -> None:
        if not isinstance(answer, Synced):
            self._told.append(answer)
            return
        before = [] if self._uncommitted is None else self._uncommitted.duplicates
        self._uncommitted = Synced(answer.number, before + answer.duplicates)


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


class PolitenessLedger:
    """Proves the invariant I6 from starts and ends alone: it knows the rules, not the gates."""

    def __init__(self, politeness: Politeness) -> None:
        self._politeness = politeness
        self._out: Counter[GateKey] = Counter()
        self._rests: defaultdict[GateKey, list[float]] = defaultdict(list)
        self._spacing: dict[GateKey, float] = {}
        self._blocked: dict[GateKey, float] = {}
        self._last_start: dict[GateKey, float] = {}
        self.starts = 0

    def set_delay(self, gate: GateKey, delay_s: float) -> None:
        self._spacing[gate] = delay_s
        self._last_start.pop(gate, None)

    def block(self, gate: GateKey, until_s: float) -> None:
        self._blocked[gate] = max(self._blocked.get(gate, 0.0), until_s)

    def unblock(self, gate: GateKey) -> None:
        self._blocked.pop(gate, None)

    def start(self, lease: Lease) -> None:
        gate, now_s = lease.gate, lease.since_s
        spacing_s = self._spacing.get(gate, 0.0)
        slots = 1 if spacing_s else self._politeness.slots
        resting = sum(until_s > now_s for until_s in self._rests[gate])
        assert self._out[gate] + resting < slots, f"{gate}: {self._out[gate]} out, {resting} resting, {slots} slots"
        assert now_s >= self._blocked.get(gate, 0.0), f"{gate} is blocked"
        if spacing_s and gate in self._last_start:
            assert now_s >= self._last_start[gate] + spacing_s, f"{gate}: closer than its Crawl-delay"
        self._out[gate] += 1
        self.starts += 1

    def end(self, lease: Lease, outcome: Outcome | None, now_s: float) -> None:
        """A lease ended; None = it was released."""
        gate = lease.gate
        self._out[gate] -= 1
        if outcome is None:
            return
        if outcome.host_rest_s:
            self.block(gate, now_s + outcome.host_rest_s)
        if outcome.start_s is None or outcome.end_s is None:
            return
        rule = self._politeness
        rest_s = min(max(rule.delay_factor * (outcome.end_s - outcome.start_s), rule.min_delay_s), rule.max_delay_s)
        self._rests[gate].append(outcome.end_s + max(rest_s, self._spacing.get(gate, 0.0)))
        self._last_start[gate] = max(self._last_start.get(gate, 0.0), lease.since_s)


@dataclass(slots=True, kw_only=True)
class Rig:
    """A Frontier, what it stands on, and a ledger of what it hands out."""

    core: Frontier
    clock: FakeClock
    store: MemoryStore
    seen: SeenFilter
    intake: Intake
    schedule: Schedule
    ledger: PolitenessLedger

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

    def lease_all(self) -> list[Lease]:
        """Every lease that can be had at this moment."""
        leases: list[Lease] = []
        while True:
            lease = self.lease()
            if lease is not None:
                leases.append(lease)
                continue
            at_s = self.core.wake().at_s
            if at_s is None or at_s > self.clock.now_s:
                return leases

    def lease_next(self) -> Lease | None:
        """The next lease, whenever that is; None if time alone brings none."""
        for _ in range(10_000):
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
        host_rest_s: float = 0.0,
        links: Sequence[str] = (),
    ) -> list[Verdict]:
        """End a lease now; its fetch ran from the moment of the lease to this one."""
        outcome = Outcome(
            kind=kind,
            status=200 if kind is OutcomeKind.DONE else 0,
            start_s=lease.since_s if fetched else None,
            end_s=self.clock.now_s if fetched else None,
            after_s=after_s,
            host_rest_s=host_rest_s,
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

    def drain(self, fetch_s: float = 1.0) -> list[str]:
        """Fetch one after the other until nothing comes; answers the URLs in order."""
        fetched: list[str] = []
        while (lease := self.lease_next()) is not None:
            fetched.append(lease.url)
            self.fetch(lease, fetch_s)
        return fetched


def build(
    *,
    policy: str = "host",
    scope: PolitenessScope = PolitenessScope.HOST,
    politeness: Politeness | None = None,
    store: MemoryStore | None = None,
    seen: SeenFilter | None = None,
    clock: FakeClock | None = None,
    max_unacknowledged: int = 1000,
    on_change: Callable[[], None] = lambda: None,
) -> Rig:
    """A new Frontier in memory. Rests are 3 s to 30 s, five times the fetch, unless `politeness` says otherwise."""
    politeness = politeness or Politeness()
    store, seen, clock = store or MemoryStore(), seen or ExactFilter(), clock or FakeClock()
    index = QueueIndex()
    schedule = Schedule(index)
    intake = Intake(parse_policy(policy), scope, politeness, seen, index, schedule)
    books = Books(store, intake, schedule, store.open({}, on_change).counters, max_unacknowledged)
    core = Frontier(store=store, seen=seen, intake=intake, schedule=schedule, books=books, clock=clock)
    ledger = PolitenessLedger(politeness)
    return Rig(core=core, clock=clock, store=store, seen=seen, intake=intake, schedule=schedule, ledger=ledger)


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

__all__ = [
    "HASTE",
    "START_S",
    "CountingStore",
    "DelayingStore",
    "FakeClock",
    "ForgetfulFilter",
    "FullFilter",
    "PolitenessLedger",
    "Rig",
    "build",
    "candidates",
    "head",
    "pages",
    "row",
]
