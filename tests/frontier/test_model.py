"""Any sequence of calls, deaths and openings keeps the invariants (`docs/reference/invariants.md`) over every store.

A plain model (`truth`) says what must be true after each step; a ledger of starts and ends proves I6. Whatever happened, in the
end the rest can be drained, and what was accepted is what has ended.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from anabranch.dedup.uniq import UniqParameters
from anabranch.frontier import storelink
from anabranch.frontier.composition import FrontierOrder, open_frontier
from anabranch.frontier.errors import LeaseLost
from anabranch.frontier.inspect.audit import check_memory
from anabranch.frontier.policies.assignment import parse_policy
from anabranch.frontier.policies.budgets import Budgets
from anabranch.frontier.records import (
    Candidate,
    GateKey,
    HostTrouble,
    Lease,
    Outcome,
    OutcomeKind,
    QueueKey,
    Verdict,
    VerdictKind,
    name_id,
)
from anabranch.frontier.scheduling import heaps, readylist, schedule, window
from anabranch.frontier.scheduling.fairness import FairHeap
from anabranch.frontier.scheduling.gates import Backoff, Politeness
from anabranch.frontier.scheduling.readylist import ReadyList
from anabranch.frontier.stores.contract import FailedRecord, FrontierStore
from anabranch.frontier.stores.memory.store import MemoryStore
from anabranch.frontier.stores.sql.store import SqlStore
from scripts.postgres_server import administer
from tests import postgres_server
from tests.frontier.builder import FakeClock
from tests.frontier.late_store import LateStore
from tests.frontier.ledger import PolitenessLedger
from tests.frontier.truth import Truth

HOSTS = [GateKey(f"{name}.site{number}.test") for number in range(2) for name in "abc"]
GROUPS = [GateKey(f"domain:site{number}.test") for number in range(2)]
URLS = [f"http://{host}/{number}" for host in HOSTS for number in range(8)]
#: What is small here brings the seldom cases.
KNOBS = {
    "lanes": [(readylist, "LANES")],
    "brought": [(readylist, "LANES_AT_ONCE"), (window, "LANES_AT_ONCE"), (storelink, "LANES_AT_ONCE")],
    "next": [(storelink, "LANES_NEXT")],
    "gates": [(window, "GATES_AT_ONCE")],
    "retries": [(heaps, "RETRIES")],
    "retries_read": [(heaps, "RETRIES_AT_ONCE"), (storelink, "RETRIES_AT_ONCE")],
    "window": [(readylist, "WINDOW")],
    "low": [(readylist, "LOW_WINDOW")],
    "asked": [(schedule, "ASKED_AT_LEAST")],
    "looks": [(schedule, "LOOKS")],
}
SMALL = {
    "lanes": 1, "brought": 1, "next": 1, "gates": 1, "retries": 1, "retries_read": 1, "window": 2, "low": 0, "asked": 1,
    "looks": 2,
}  # fmt: skip
MIDDLING = SMALL | {
    "lanes": 3,
    "brought": 2,
    "next": 3,
    "gates": 2,
    "retries": 4,
    "retries_read": 3,
    "low": 1,
    "looks": 64,
}
USUAL: dict[str, int] = {}
SECONDS = st.sampled_from([0.0, 0.1, 1.0, 3.0, 7.5, 40.0])
BATCHES = st.lists(st.sampled_from(URLS), max_size=12)
ENDINGS = [OutcomeKind.DONE, OutcomeKind.DONE, OutcomeKind.FAILED, OutcomeKind.DISREGARDED]
FETCH_LIMIT_S = 20.0
FEW = 100  #: gates in memory that are enough for all


def domain(host: GateKey) -> GateKey:
    return GateKey(f"domain:{host.partition('.')[2]}")


class Machine(RuleBasedStateMachine):
    """The rules over the store in memory, which answers inside the call."""

    late = False

    def place(self, stack: ExitStack) -> Path | None:
        """Prepare a fresh place for the rows; answers the folder of the filter, if there is one."""
        self.memory = MemoryStore()
        return None

    def store(self) -> FrontierStore:
        """The store of the next owner."""
        return self.memory

    @initialize(
        policy=st.sampled_from(["host", "bkdr:1", "bkdr:3", "bkdr:97", "parallel:2"]),
        slots=st.integers(1, 3),
        group=st.sampled_from([None, None, "domain"]),
        knobs=st.sampled_from([SMALL, SMALL, MIDDLING, MIDDLING, USUAL]),
        gates=st.sampled_from([1, 2, 4, FEW, FEW]),
        per_queue=st.sampled_from([1, 1, 2]),
        session=st.sampled_from([1, 2, 3000]),
        total=st.sampled_from([-1, -1, -1, 4]),
        lease_s=st.sampled_from([None, None, 2 * FETCH_LIMIT_S]),
        workers=st.sampled_from([None, 1, 2, 4, 8]),
    )
    def begin(self, policy, slots, group, knobs, gates, per_queue, session, total, lease_s, workers) -> None:
        self.stack = ExitStack()
        patch = self.stack.enter_context(pytest.MonkeyPatch.context())
        for name, value in knobs.items():
            for module, constant in KNOBS[name]:
                patch.setattr(module, constant, value)
        self.order = FrontierOrder(
            policy=policy,
            politeness=Politeness(slots=slots),
            backoff=Backoff(base_s=10.0, cap_s=80.0, forgive_s=200.0),
            group=group,
            group_politeness=Politeness(min_delay_s=2.0, max_delay_s=9.0, slots=2),
            budgets=Budgets(balance_replenish=session, total_budget=total, error_penalty=1),
            per_queue=per_queue,
            gates_in_memory=gates,
            workers=workers,
            lease_s=lease_s,
            fetch_limit_s=FETCH_LIMIT_S,
            checkpoint_s=1e6,
            max_unacknowledged=5 if self.late else 1000,
            uniq=UniqParameters(mode="exact", expected=1000),
        )
        self.clock = FakeClock()
        self.assign = parse_policy(policy)
        self.ledger = PolitenessLedger(
            self.order.politeness,
            backoff=self.order.backoff,
            group_of=domain if group else lambda host: None,
            group_politeness=self.order.group_politeness,
        )
        self.truth = Truth(total_budget=total, error_penalty=1)
        self.state = self.place(self.stack)
        self.forgot = False
        self.open()

    def open(self) -> None:
        self.late_store = LateStore(self.store(), late=self.late)
        self.core = open_frontier(self.state, self.order, store=self.late_store, clock=self.clock)
        self.leased: list[Lease] = []
        self.snapshots = {0: self.truth.copy()}

    # URLs in

    @rule(urls=BATCHES, front=st.booleans())
    def schedule(self, urls: list[str], front: bool) -> None:
        self.take_in(urls, self.core.schedule([Candidate(url, front=front) for url in urls]))

    @rule(url=st.sampled_from(URLS), precedence=st.none() | st.integers(0, 4))
    def force(self, url: str, precedence: int | None) -> None:
        self.core.take_answers()
        ordinal = self.core._parts.outbox.last_number + 1
        (verdict,) = self.core.schedule([Candidate(url, force=True, precedence=precedence)])
        if verdict.kind is VerdictKind.NEW:
            self.truth.queue_again(url, ordinal)

    @rule(hosts=st.sets(st.sampled_from(HOSTS), min_size=1), late_s=st.sampled_from([0.0, 0.0, 5.0]))
    def queue_failures_again(self, hosts: set[GateKey], late_s: float) -> None:
        """Those of some hosts, that failed in the last seconds or at any time; each once, with its way there."""
        found: list[str] = []
        since_s = self.clock() - late_s if late_s else 0.0

        def matches(failure: FailedRecord) -> bool:
            assert (failure.hops, failure.precedence is None, failure.ended_s is None) == ("", False, False)
            is_wanted = failure.url.split("/")[2] in hosts and (failure.ended_s or 0.0) >= since_s
            found.extend([failure.url] if is_wanted else [])
            return is_wanted

        self.core.flush()
        first = self.core._parts.outbox.last_number + 1
        report = self.core.operations.retry(matches)
        queued = [url for url in found if url in self.truth.failures]
        assert (report.queued, report.unknown_hops, report.more) == (len(queued), 0, None)
        if not late_s:
            assert set(queued) == {url for url in self.truth.failures if url.split("/")[2] in hosts}
        for url in queued:
            self.truth.queue_again(url, first)

    @rule(urls=BATCHES)
    def bring_forward(self, urls: list[str]) -> None:
        """Those that are queued; no URL comes or goes by it."""
        advancing = self.core.advancing
        advancing.advance(advancing.rows([Candidate(url) for url in urls])())

    # Leases

    @rule(count=st.integers(1, 4))
    def lease(self, count: int) -> None:
        for _ in range(count):
            self.take_lease()

    @precondition(lambda self: self.leased)
    @rule(
        data=st.data(),
        kind=st.sampled_from(ENDINGS),
        links=BATCHES,
        fetched=st.booleans(),
        trouble=st.sampled_from([HostTrouble.NONE] * 3 + list(HostTrouble)),
        retry_after_s=st.sampled_from([0.0, 0.0, 5.0, 25.0]),
    )
    def finish(self, data, kind, links, fetched, trouble, retry_after_s) -> None:
        lease = self.one_of_the_leases(data)
        self.end(lease, self.outcome(lease, kind, fetched, trouble=trouble, retry_after_s=retry_after_s), links)

    @precondition(lambda self: self.leased)
    @rule(data=st.data(), after_s=SECONDS, fetched=st.booleans())
    def retry(self, data: st.DataObject, after_s: float, fetched: bool) -> None:
        lease = self.one_of_the_leases(data)
        self.end(lease, self.outcome(lease, OutcomeKind.RETRY, fetched, after_s=after_s))

    @precondition(lambda self: self.leased)
    @rule(data=st.data(), fetched=st.booleans(), retire=st.sampled_from([False, False, True]))
    def defer(self, data: st.DataObject, fetched: bool, retire: bool) -> None:
        lease = self.one_of_the_leases(data)
        self.end(lease, self.outcome(lease, OutcomeKind.RETIRE if retire else OutcomeKind.DEFERRED, fetched))

    @precondition(lambda self: self.leased)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        self.give_back(self.one_of_the_leases(data))

    @precondition(lambda self: self.leased)
    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        lease = self.one_of_the_leases(data)
        self.leased[self.leased.index(lease)] = self.core.renew(lease)

    @rule(fetch_s=st.sampled_from([0.0, 0.2, 2.0]), links=BATCHES)
    def crawl_one(self, fetch_s: float, links: list[str]) -> None:
        """The next lease whenever it comes, done with at once."""
        lease = self.next_lease()
        if lease is not None:
            self.clock.advance(fetch_s)
            self.end(lease, self.outcome(lease, OutcomeKind.DONE, fetched=True), links)

    # Gates and queues

    @rule(gate=st.sampled_from(HOSTS + GROUPS), seconds=SECONDS)
    def block(self, gate: GateKey, seconds: float) -> None:
        self.core.block(gate, self.clock() + seconds)
        self.ledger.block(gate, self.clock() + seconds)

    @rule(gate=st.sampled_from(HOSTS + GROUPS))
    def unblock(self, gate: GateKey) -> None:
        self.core.unblock(gate)
        self.ledger.unblock(gate)

    @rule(host=st.sampled_from(HOSTS), seconds=st.sampled_from([0.0, 0.0, 5.0]))
    def set_delay(self, host: GateKey, seconds: float) -> None:
        self.core.set_delay(host, seconds)
        self.ledger.set_delay(host, seconds)

    @rule(host=st.sampled_from(HOSTS), slots=st.sampled_from([None, 1, 4]))
    def set_slots(self, host: GateKey, slots: int | None) -> None:
        self.core.set_slots(host, slots)
        self.ledger.set_slots(host, slots)

    @rule(data=st.data(), order=st.sampled_from(["pause", "resume", "resume", "retire", "spend", "raise"]))
    def operate(self, data: st.DataObject, order: str) -> None:
        queues = self.core.operations.queues()
        if not queues:
            return
        queue = queues[data.draw(st.integers(0, len(queues) - 1))].key
        match order:
            case "pause":
                self.core.operations.pause(queue)
                self.truth.pause(queue)
            case "resume":
                self.core.operations.resume(queue)
                self.truth.resume(queue)
            case "retire":
                self.core.operations.retire(queue)
                self.truth.retire(queue)
            case _:
                units = data.draw(st.sampled_from([0, 1, 5] if order == "spend" else [None, -1, 50]))
                self.core.operations.set_budget(queue, units)
                self.truth.set_budget(queue, units)

    @rule(last=st.sampled_from("37"), host=st.sampled_from(HOSTS))
    def remove(self, last: str, host: GateKey) -> None:
        def matches(url: str) -> bool:
            return url.startswith(f"http://{host}/") and url.endswith(last)

        free = self.truth.queued - Counter(lease.url for lease in self.leased)
        doomed = Counter({url: count for url, count in free.items() if matches(url)})
        assert self.core.operations.remove(matches) == doomed.total()
        self.truth.ended += doomed
        self.truth.kinds[OutcomeKind.DISREGARDED] += doomed.total()
        self.truth.waiting = {number: wait for number, wait in self.truth.waiting.items() if not matches(wait[0])}

    # Time, ends and openings

    @rule(seconds=SECONDS)
    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def advance_to_the_next_moment(self) -> None:
        at_s = self.core.wake().at_s
        if at_s is not None:
            self.clock.advance_to(at_s)

    @rule(total=st.sampled_from([-1, 4, 9]))
    def reopen(self, total: int) -> None:
        """An end in order, and another owner; the total budget may have been changed meanwhile."""
        for lease in self.leased:
            self.give_back(lease)
        self.core.close()
        self.order = replace(self.order, budgets=replace(self.order.budgets, total_budget=total))
        self.truth.reopen(total)
        self.forgot = self.state is None
        self.open()

    @rule(seconds=st.sampled_from([0.0, 1.0, 100.0]), settle=st.booleans())
    def crash(self, seconds: float, settle: bool) -> None:
        """The owner dies: leases and what was not committed are lost, what was is there."""
        if settle:
            self.core.flush()
        store = self.late_store
        store.lose()
        self.truth = self.snapshots[max(number for number in self.snapshots if number <= store.kept)].copy()
        self.forget_what_was_not_written(store)
        store.die()
        self.core._checkpoints.close(final=False)
        self.core._seen.close()
        self.clock.advance(seconds)
        self.forgot = self.state is None
        self.open()
        self.ledger.died(self.clock(), durable=settle)
        if not settle:
            self.tell_ledger_what_was_kept()

    def forget_what_was_not_written(self, store: LateStore) -> None:
        """The rows of queues without a total budget are written seldom, so a crash loses what their last leases cost."""
        for key, queue in self.truth.queues.items():
            if (self.truth.total_budget if queue.budget is None else queue.budget) < 0:
                kept = store.queue(name_id(key))
                queue.spent = 0 if kept is None else kept.row.spent

    def tell_ledger_what_was_kept(self) -> None:
        for host in HOSTS:
            row = self.late_store.gate(name_id(host))
            if row is not None:
                self.ledger.set_slots(host, row.slots)
                self.ledger.set_delay(host, row.spacing_s)

    # What must be true

    @invariant()
    def is_sound(self) -> None:
        self.snapshots[self.core.unacknowledged.last] = self.truth.copy()
        check_memory(self.core._parts)
        assert self.core.in_flight == len(self.leased)
        self.check()

    def check(self) -> None:
        """All of it: I1, I2, and that the store has what the model has."""
        self.core.operations.check()
        statistics = self.core.operations.statistics()
        truth = self.truth
        assert statistics.accepted == truth.accepted.total()
        assert statistics.done == truth.kinds[OutcomeKind.DONE]
        assert statistics.failed == truth.kinds[OutcomeKind.FAILED]
        assert statistics.disregarded == truth.kinds[OutcomeKind.DISREGARDED]
        assert statistics.waiting >= len(
            truth.waiting
        )  # those that are due but were not read since the opening wait on
        if not truth.queued:
            assert self.core.is_done
        elif self.core.is_done:
            assert not any(self.may_run(url) for url in truth.queued), "I7: it says that it is done"

    def teardown(self) -> None:
        if not hasattr(self, "core"):
            return
        try:
            if sys.exc_info()[0] is None:
                self.drain()
        finally:
            self.core.close()
            self.stack.close()

    def drain(self) -> None:
        """I4, I7: whatever happened, what was accepted can be fetched."""
        for lease in list(self.leased):
            self.give_back(lease)
        for view in self.core.operations.queues():
            self.core.operations.set_budget(view.key, -1)
            self.truth.set_budget(view.key, -1)
            self.core.operations.resume(view.key)
            self.truth.resume(view.key)
            self.core.operations.set_budget(view.key, -1)
            self.truth.set_budget(view.key, -1)
        for gate in HOSTS + GROUPS:
            self.unblock(gate)
        for host in HOSTS:
            self.set_delay(host, 0.0)
        while (lease := self.next_lease()) is not None:
            self.clock.advance(0.1)
            self.end(lease, self.outcome(lease, OutcomeKind.DONE, fetched=True))
            if self.truth.queue(lease.queue).standing:  # a queue that was unknown as long as nothing of it was queued
                self.operate_open(lease.queue)
        self.check()
        assert self.truth.ended == self.truth.accepted, "I5, I7: each as often as it was accepted"
        assert self.core.is_done
        assert self.core.wake().at_s is None

    def operate_open(self, queue: str) -> None:
        self.core.operations.set_budget(QueueKey(queue), -1)
        self.truth.set_budget(queue, -1)

    # Help

    def take_in(self, urls: list[str], verdicts: list[Verdict]) -> None:
        for url, verdict in zip(urls, verdicts, strict=True):
            if verdict.kind is VerdictKind.BUSY:
                continue
            is_new = url not in self.truth.accepted
            if not self.forgot:
                assert verdict.kind is (VerdictKind.NEW if is_new else VerdictKind.SEEN), "I5, I8"
            elif is_new:
                assert verdict.kind is VerdictKind.NEW
            self.truth.accepted[url] += is_new

    def take_lease(self) -> Lease | None:
        self.core.take_answers()
        if not self.core._store_link.unacknowledged.is_full:
            self.truth.come_due(self.clock())
            self.expire()
        lease = self.core.lease()
        if lease is None:
            self.nothing_is_forgotten()
            return None
        self.ledger.start(lease)  # I6
        assert lease.ordinal not in {other.ordinal for other in self.leased}, "I1: one state"
        assert sum(other.queue == lease.queue for other in self.leased) < self.order.per_queue, "I2"
        assert self.truth.queued[lease.url] > sum(other.url == lease.url for other in self.leased), "I5"
        assert lease.ordinal not in self.truth.waiting, "it waits for its retry"
        assert lease.attempts == self.truth.attempts[lease.ordinal]
        assert self.truth.may_run(lease.queue), "its queue may not run"
        self.leased.append(lease)
        return lease

    def expire(self) -> None:
        """Leases that were kept for too long are lost; their fetches may have gone on until now."""
        for lease in [lease for lease in self.leased if lease.until_s <= self.clock()]:
            self.leased.remove(lease)
            self.ledger.end(lease, Outcome(OutcomeKind.DEFERRED, 0, lease.since_s, self.clock()), self.clock())
            self.lost = lease

    @precondition(
        lambda self: hasattr(self, "lost") and self.lost.ordinal not in {other.ordinal for other in self.leased}
    )
    @rule()
    def finish_too_late(self) -> None:
        with pytest.raises(LeaseLost):
            self.core.finish(self.lost, Outcome(OutcomeKind.DONE, 200), [Candidate(URLS[0])])

    def outcome(self, lease: Lease, kind: OutcomeKind, fetched: bool, **more: object) -> Outcome:
        """It ends now; its fetch ran from the moment of the lease to this one."""
        start_s, end_s = (lease.since_s, self.clock()) if fetched else (None, None)
        return Outcome(kind, 200, start_s, end_s, **more)  # type: ignore[arg-type]

    def end(self, lease: Lease, outcome: Outcome, links: list[str] = []) -> None:  # noqa: B006
        self.leased.remove(lease)
        verdicts = self.core.finish(lease, outcome, [Candidate(url) for url in links])
        self.ledger.end(lease, outcome, self.clock())
        self.take_in(links, verdicts)
        due_s = self.clock() + outcome.after_s
        self.truth.finish(lease.ordinal, lease.url, lease.queue, outcome.kind, due_s)
        self.snapshots[self.core.unacknowledged.last] = self.truth.copy()

    def give_back(self, lease: Lease) -> None:
        self.leased = [other for other in self.leased if other is not lease]
        self.core.release(lease)
        self.ledger.end(lease, None, self.clock())

    def one_of_the_leases(self, data: st.DataObject) -> Lease:
        return self.leased[data.draw(st.integers(0, len(self.leased) - 1))]

    def next_lease(self) -> Lease | None:
        """The next lease, whenever it comes; None if nothing but another call would bring one."""
        for _ in range(1000):
            lease = self.take_lease()
            if lease is not None:
                return lease
            at_s = self.core.wake().at_s
            if self.late_store.is_behind:
                self.late_store.work(1000)
            elif at_s is None:
                return None
            else:
                self.clock.advance_to(at_s)
        raise AssertionError(f"wake() names times at which nothing happens, for ever: {self.core.wake()}")

    def nothing_is_forgotten(self) -> None:
        """No wake-up is lost: if no time will help, nothing is there that could be served."""
        if self.late_store.is_behind or self.core.wake().at_s is not None:
            return
        if self.leased and self.order.gates_in_memory != FEW:
            return  # gates with leases may fill the memory
        if self.order.workers is not None and len(self.leased) >= self.order.workers:
            return  # nobody would ask: a worker has one lease at a time
        free = self.truth.queued - Counter(lease.url for lease in self.leased)
        free -= Counter(url for url, _ in self.truth.waiting.values())
        for url in free:
            assert not (self.may_run(url) and self.has_free_slots(url)), f"{url} is forgotten"

    def may_run(self, url: str) -> bool:
        (queue,) = self.assign([url])
        out = sum(lease.queue == queue for lease in self.leased)
        return self.truth.may_run(queue) and out < self.order.per_queue

    def has_free_slots(self, url: str) -> bool:
        line = self.core._schedule.window.get(name_id(url.split("/")[2]))
        gates = [] if line is None else [line.gate, *([line.group.gate] if line.group else [])]
        return all(gate.out < gate.slots for gate in gates) and not self.is_above_limit(line)

    def is_above_limit(self, line: ReadyList | None) -> bool:
        """Its domain, or all new and slow hosts, have so many leases out that it may wait until one of them ends."""
        fair = self.core._schedule.window.heap
        if not isinstance(fair, FairHeap) or line is None or not self.leased:
            return False
        is_slow = not (line.group or line).is_fast and fair.slow_out >= fair._most_slow
        domain = fair.domains.by_gate.get(line.gate.id)
        return is_slow or (domain is not None and not fair._is_below(domain))


class LateMachine(Machine):
    """A `Machine` over a store that works when the rules tell it to: answers come late, and deaths lose batches."""

    late = True

    @rule(steps=st.integers(1, 4))
    def work(self, steps: int) -> None:
        self.late_store.work(steps)

    @rule()
    def catch_up(self) -> None:
        super().check()

    def check(self) -> None:
        assert self.core.unacknowledged.durable <= self.core.unacknowledged.last


class SqliteMachine(Machine):
    """A `Machine` over a file, with the filter of a crawl."""

    def place(self, stack: ExitStack) -> Path | None:
        self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        return self.folder / "state"

    def store(self) -> FrontierStore:
        return SqlStore(self.folder / "frontier.db")


class LateSqliteMachine(SqliteMachine, LateMachine):
    """Both."""


def machine_settings(examples: int, steps: int = 50) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


def test_the_model_holds_over_the_store_in_memory() -> None:
    """I1-I7 after each step, with answers inside the call."""
    run_state_machine_as_test(Machine, settings=machine_settings(40))


def test_the_model_holds_when_answers_come_late_and_deaths_lose_batches() -> None:
    """I1-I7 hold with a store that lags behind."""
    run_state_machine_as_test(LateMachine, settings=machine_settings(50))


@pytest.mark.slow
@pytest.mark.parametrize("machine", [Machine, LateMachine])
def test_the_model_holds_for_longer(machine: type[Machine]) -> None:
    """Both of the above, with many more examples."""
    run_state_machine_as_test(machine, settings=machine_settings(150))


@pytest.mark.slow
def test_the_model_holds_over_sqlite() -> None:
    """The invariants hold with a file and the filter of a crawl (I8)."""
    run_state_machine_as_test(SqliteMachine, settings=machine_settings(20, 40))


@pytest.mark.slow
def test_the_model_holds_over_sqlite_when_deaths_lose_batches() -> None:
    """The invariants hold with a file that lags behind."""
    run_state_machine_as_test(LateSqliteMachine, settings=machine_settings(20, 40))


@pytest.fixture
def database() -> Iterator[str]:
    with postgres_server.server() as url:
        yield url


@pytest.mark.slow
def test_the_model_holds_over_postgres(database: str) -> None:
    """The invariants hold with a server; the filter forgets all at each end, so the store finds the duplicates."""

    class PostgresMachine(LateMachine):
        def place(self, stack: ExitStack) -> Path | None:
            administer(database, "DROP SCHEMA public CASCADE; CREATE SCHEMA public")
            return None

        def store(self) -> FrontierStore:
            return SqlStore(database)

    run_state_machine_as_test(PostgresMachine, settings=machine_settings(15, 40))


def test_a_url_that_a_death_lost_is_unknown_to_the_filter(tmp_path: Path) -> None:
    """I8: what a store that lags behind had not committed was not marked either, so it can come again."""
    order = FrontierOrder(uniq=UniqParameters(mode="exact", expected=1000), checkpoint_s=1e6)
    store = LateStore(SqlStore(tmp_path / "frontier.db"), late=True)
    core = open_frontier(tmp_path / "state", order, store=store, clock=FakeClock())
    kept, lost = Candidate("http://a.test/kept"), Candidate("http://a.test/lost")
    core.schedule([kept])
    core.schedule([lost])
    store.work(1)
    core.take_answers()
    store.die()
    core._checkpoints.close(final=False)
    core._seen.close()
    with open_frontier(tmp_path / "state", order, store=SqlStore(tmp_path / "frontier.db"), clock=FakeClock()) as core:
        verdicts = core.schedule([kept, lost])
        assert [verdict.kind for verdict in verdicts] == [VerdictKind.SEEN, VerdictKind.NEW]


@pytest.mark.parametrize("asked_before", [False, True], ids=["asked for the URL", "asked for before"])
@pytest.mark.parametrize("steps", range(1, 5))
def test_a_url_whose_gate_was_asked_for_too_late_is_found_by_the_next_owner(steps: int, asked_before: bool) -> None:
    """The death falls between the batch with the row and the question for its gate."""
    memory = MemoryStore()
    clock = FakeClock()
    late = LateStore(memory, late=True)
    core = open_frontier(None, FrontierOrder(gates_in_memory=1), store=late, clock=clock)
    if asked_before:
        core.set_delay(HOSTS[1], 0.0)
    core.schedule([Candidate(URLS[8])])
    core.lease()
    late.work(steps)
    late.die()
    with open_frontier(None, FrontierOrder(gates_in_memory=1), store=memory, clock=clock) as later:
        clock.advance(10.0)
        lost = later.operations.statistics().pending == 0
        assert lost or later.lease() is not None
        assert not lost or steps == 1
