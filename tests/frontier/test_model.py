"""Any sequence of calls keeps the invariants (`docs/invariants.md`): a plain model says what must be true after each step."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from frontier import schedule, workqueues
from frontier.assignment import PolitenessScope
from frontier.audit import check_lanes
from frontier.gates import Politeness
from frontier.models import NEW, Lease, OutcomeKind, VerdictKind, WaitsFor
from frontier.workqueues import PER_QUEUE, Lane
from tests.frontier.builder import DelayingStore, ForgetfulFilter, Rig, build

HOSTS = ["a.test", "b.test", "c.test", "b.test:81"]
URLS = [f"http://{host}/{number}" for host in HOSTS for number in range(12)]
GATES = ["a.test", "b.test", "c.test"]
ENDINGS = [OutcomeKind.DONE, OutcomeKind.FAILED, OutcomeKind.DISREGARDED]
#: Window, low mark, lanes on their way, vain looks: small ones bring the seldom cases.
KNOBS = [(workqueues, "WINDOW"), (workqueues, "LOW_WINDOW"), (schedule, "ASKED_AT_LEAST"), (schedule, "LOOKS")]
SECONDS = st.sampled_from([0.0, 0.1, 1.0, 3.0, 7.5, 40.0])
BATCHES = st.lists(st.sampled_from(URLS), max_size=12)


class Machine(RuleBasedStateMachine):
    """The rules over a store that answers inside the call."""

    def make(self, policy: str, scope: PolitenessScope, slots: int) -> Rig:
        return build(policy=policy, scope=scope, politeness=Politeness(slots=slots))

    @initialize(
        policy=st.sampled_from(["host", "bkdr:1", "bkdr:3", "bkdr:97"]),
        scope=st.sampled_from([PolitenessScope.HOST, PolitenessScope.HOST, PolitenessScope.QUEUE]),
        slots=st.integers(1, 3),
        knobs=st.sampled_from([(16, 4, 64, 64), (3, 1, 2, 3), (2, 0, 1, 2)]),
    )
    def begin(self, policy: str, scope: PolitenessScope, slots: int, knobs: tuple[int, int, int, int]) -> None:
        self.patch = pytest.MonkeyPatch()
        for (module, name), value in zip(KNOBS, knobs, strict=True):
            self.patch.setattr(module, name, value)
        self.rig = self.make(policy, scope, slots)
        self.accepted: set[str] = set()
        self.enqueued: Counter[str] = Counter()  # forced ones count again
        self.leased: list[Lease] = []
        self.attempts: Counter[int] = Counter()
        self.ended: Counter[str] = Counter()
        self.kinds: Counter[OutcomeKind] = Counter()

    # Calls

    @rule(urls=BATCHES, front=st.booleans())
    def schedule(self, urls: list[str], front: bool) -> None:
        self.take_in(urls, self.rig.add(*urls, front=front))

    @rule(url=st.sampled_from(URLS))
    def force(self, url: str) -> None:
        assert self.rig.add(url, force=True) == [NEW]
        self.accepted.add(url)
        self.enqueued[url] += 1

    @rule()
    def lease(self) -> None:
        lease = self.rig.lease()  # the ledger asserts I6
        if lease is None:
            self.wake_comes_in_time()
            return
        assert lease.ordinal not in {other.ordinal for other in self.leased}, "I1: one state"
        assert sum(other.queue == lease.queue for other in self.leased) < PER_QUEUE, "I2"
        assert lease.attempts == self.attempts[lease.ordinal]
        self.leased.append(lease)

    @rule(count=st.integers(1, 6))
    def lease_some(self, count: int) -> None:
        for _ in range(count):
            self.lease()

    @rule(fetch_s=st.sampled_from([0.0, 0.2, 2.0]), links=BATCHES)
    def crawl_one(self, fetch_s: float, links: list[str]) -> None:
        """The next lease whenever it comes, done with at once."""
        lease = self.next_lease()
        if lease is not None:
            verdicts = self.rig.fetch(lease, fetch_s, links=links)
            self.ended[lease.url] += 1
            self.kinds[OutcomeKind.DONE] += 1
            self.take_in(links, verdicts)

    @precondition(lambda self: self.leased)
    @rule(
        data=st.data(),
        kind=st.sampled_from(ENDINGS),
        links=BATCHES,
        fetched=st.booleans(),
        host_rest_s=st.just(0.0) | SECONDS,
    )
    def finish(
        self, data: st.DataObject, kind: OutcomeKind, links: list[str], fetched: bool, host_rest_s: float
    ) -> None:
        lease = self.one_of_the_leases(data)
        verdicts = self.rig.finish(lease, kind, fetched=fetched, links=links, host_rest_s=host_rest_s)
        self.ended[lease.url] += 1
        self.kinds[kind] += 1
        self.take_in(links, verdicts)

    @precondition(lambda self: self.leased)
    @rule(data=st.data(), after_s=SECONDS)
    def retry(self, data: st.DataObject, after_s: float) -> None:
        lease = self.one_of_the_leases(data)
        self.rig.finish(lease, OutcomeKind.RETRY, after_s=after_s)
        self.attempts[lease.ordinal] += 1

    @precondition(lambda self: self.leased)
    @rule(data=st.data(), fetched=st.booleans())
    def defer(self, data: st.DataObject, fetched: bool) -> None:
        self.rig.finish(self.one_of_the_leases(data), OutcomeKind.DEFERRED, fetched=fetched)

    @precondition(lambda self: self.leased)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        self.rig.release(self.one_of_the_leases(data))

    @rule(gate=st.sampled_from(GATES), seconds=SECONDS)
    def block(self, gate: str, seconds: float) -> None:
        self.rig.block(gate, self.rig.clock.now_s + seconds)

    @rule(gate=st.sampled_from(GATES))
    def unblock(self, gate: str) -> None:
        self.rig.unblock(gate)

    @rule(gate=st.sampled_from(GATES), seconds=SECONDS)
    def set_delay(self, gate: str, seconds: float) -> None:
        self.rig.set_delay(gate, seconds)

    @rule(seconds=SECONDS)
    def advance(self, seconds: float) -> None:
        self.rig.clock.advance(seconds)

    @rule()
    def advance_to_the_next_moment(self) -> None:
        at_s = self.rig.core.wake().at_s
        if at_s is not None:
            self.rig.clock.advance_to(at_s)

    # What must be true

    @invariant()
    def is_sound(self) -> None:
        self.check()
        core = self.rig.core
        assert core.in_flight == len(self.leased)
        assert core.pending == self.queued() - len(self.leased)
        assert core.is_done == (self.queued() == 0)

    def check(self) -> None:
        self.rig.core.check()
        totals = self.rig.store.counters()
        assert (totals.done, totals.failed, totals.disregarded) == tuple(self.kinds[kind] for kind in ENDINGS)

    def teardown(self) -> None:
        """I4, I7: whatever happened, the rest can be drained, and all that was accepted is fetched."""
        if hasattr(self, "rig"):
            try:
                self.drain()
            finally:
                self.patch.undo()

    def drain(self) -> None:
        for lease in self.leased:
            self.rig.release(lease)
        for gate in GATES:
            self.rig.unblock(gate)
        while (lease := self.next_lease()) is not None:
            self.ended[lease.url] += 1
            self.rig.fetch(lease, 0.1)
        assert self.ended == self.enqueued, "I5: as often as it was enqueued"
        assert set(self.ended) == self.accepted
        self.rig.core.check()
        assert self.rig.core.is_done
        assert self.rig.core.wake() == (None, WaitsFor.URLS)

    # Help

    def queued(self) -> int:
        return self.enqueued.total() - self.ended.total()

    def take_in(self, urls: list[str], verdicts: list) -> None:
        for url, verdict in zip(urls, verdicts, strict=True):
            is_new = url not in self.accepted
            assert verdict.kind is (VerdictKind.NEW if is_new else VerdictKind.SEEN), "I5"
            self.accepted.add(url)
            self.enqueued[url] += is_new

    def one_of_the_leases(self, data: st.DataObject) -> Lease:
        return self.leased.pop(data.draw(st.integers(0, len(self.leased) - 1)))

    def next_lease(self) -> Lease | None:
        return self.rig.lease_next()

    def wake_comes_in_time(self) -> None:
        """No wake-up is lost: a lane that could be served has its moment named, worked out here from lanes and gates."""
        at_s, waits_for = self.rig.core.wake()
        named_s = math.inf if at_s is None else at_s
        for lane in self.rig.schedule.index:
            if not lane.queue.is_busy and (lane.window or lane.stored):
                assert named_s <= max(self.opens_s(lane), self.rig.clock.now_s) or self.waits_for_the_store(
                    lane, waits_for
                ), f"{lane} is forgotten"
        for retry in self.rig.schedule._retries:
            assert named_s <= retry.due_s

    def opens_s(self, lane: Lane) -> float:
        gate = self.rig.schedule.gate(lane.gate)
        assert gate is not None
        return gate.opens_s()

    def waits_for_the_store(self, lane: Lane, waits_for: WaitsFor) -> bool:
        return False


class SlowStoreMachine(Machine):
    """The same over a store that does its work when the rules say so, with a filter that may know nothing."""

    def make(self, policy: str, scope: PolitenessScope, slots: int) -> Rig:
        self.slow = DelayingStore()
        return build(
            policy=policy, scope=scope, politeness=Politeness(slots=slots), store=self.slow, seen=self.filter()
        )

    def filter(self) -> None:
        return None

    @rule(steps=st.integers(1, 3))
    def work(self, steps: int) -> None:
        self.slow.work(steps)

    @rule()
    def commit(self) -> None:
        self.slow.commit()

    @rule()
    def catch_up(self) -> None:
        """Also what `check` does."""
        self.slow.flush()
        super().check()

    def check(self) -> None:
        check_lanes(self.rig.schedule, self.rig.core._leases.ordinals())
        assert self.rig.core.durable <= self.rig.core.said

    def next_lease(self) -> Lease | None:
        for _ in range(1000):
            self.slow.flush()
            lease = self.rig.lease_next()
            if lease is not None or not self.slow.behind:
                return lease
        raise AssertionError("the store is asked for ever")

    def waits_for_the_store(self, lane: Lane, waits_for: WaitsFor) -> bool:
        """Heads of this gate, or as many as may be, are on their way: the answer wakes who waits."""
        asked = any(other.is_asked for other in self.rig.schedule.index if other.gate == lane.gate)
        return (asked or self.rig.schedule._store_is_busy) and WaitsFor.STORE in waits_for


class ForgetfulMachine(SlowStoreMachine):
    """The filter has seen nothing: every duplicate dies in the store, and the counts are corrected later."""

    def filter(self) -> ForgetfulFilter:  # type: ignore[override]
        return ForgetfulFilter()

    def take_in(self, urls: list[str], verdicts: list) -> None:
        for url in urls:
            self.enqueued[url] += url not in self.accepted
            self.accepted.add(url)

    @invariant()
    def is_sound(self) -> None:
        self.check()
        assert self.rig.core.in_flight == len(self.leased)
        assert self.rig.core.pending >= self.queued() - len(self.leased)


_SETTINGS = settings(
    max_examples=100,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)

TestMemory = Machine.TestCase
TestMemory.settings = _SETTINGS
TestSlowStore = SlowStoreMachine.TestCase
TestSlowStore.settings = _SETTINGS
TestForgetfulFilter = ForgetfulMachine.TestCase
TestForgetfulFilter.settings = _SETTINGS
