"""A closed gate costs nothing until it opens, and when a slot is free the next lane has it at once."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from anabranch.frontier.composition import FrontierOrder, open_frontier
from anabranch.frontier.frontier import Frontier
from anabranch.frontier.records import Candidate, GateKey, Lease, Outcome, OutcomeKind, QueueKey, WaitsFor
from anabranch.frontier.scheduling.gates import Politeness
from anabranch.frontier.stores.memory.store import MemoryStore
from tests.frontier.builder import FakeClock

QUEUES = 10_000
HOUR_S = 3600.0
HOST = GateKey("a.test")
HASTE = Politeness(delay_factor=0.0, min_delay_s=0.0, max_delay_s=0.0)
HOURLY = Politeness(delay_factor=0.0, min_delay_s=HOUR_S, max_delay_s=HOUR_S)


class CountingStore(MemoryStore):
    """Counts what it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: Counter[str] = Counter()

    def ask_heads(self, *question: Any, **more: Any) -> None:
        self.asked["heads"] += 1
        super().ask_heads(*question, **more)

    def ask_lanes(self, *question: Any) -> None:
        self.asked["lanes"] += 1
        super().ask_lanes(*question)

    def ask_gate(self, *question: Any) -> None:
        self.asked["gate"] += 1
        super().ask_gate(*question)

    def ask_gates(self, *question: Any) -> None:
        self.asked["gates"] += 1
        super().ask_gates(*question)

    def ask_retries(self, *question: Any) -> None:
        self.asked["retries"] += 1
        super().ask_retries(*question)


def a_queue_per_host(number: int) -> str:
    return f"http://h{number}.big.test/"


def a_queue_per_folder(number: int) -> str:
    return f"http://www.big.test/q{number}/"


@pytest.mark.parametrize(
    ("policy", "url_of"),
    [("host", a_queue_per_host), ("tests.stress.virtual_crawl:by_first_folder", a_queue_per_folder)],
    ids=["a host each", "one host"],
)
def test_ten_thousand_queues_behind_a_closed_group_cost_no_read_until_it_opens(policy: str, url_of: Any) -> None:
    """Whatever the calls in between; when it opens one lease comes, and closes it again."""
    clock, store = FakeClock(), CountingStore()
    order = FrontierOrder(policy=policy, politeness=HASTE, group="domain", group_politeness=HOURLY)
    core = open_frontier(None, order, store=store, clock=clock)
    core.schedule([Candidate(url_of(number)) for number in range(QUEUES)])
    for _ in range(3):
        lease = take(core)
        finish(core, clock, lease)
        opens_s = clock() + HOUR_S
        assert core.lease() is None  # what it needs for the opening is read by now
        store.asked.clear()
        for _ in range(60):
            assert core.lease() is None
            at_s, waits_for = core.wake()
            assert (at_s, waits_for) == (opens_s, WaitsFor.TIME)
            core.schedule([Candidate(f"{url_of(QUEUES - 1)}{clock()}")])
            clock.advance(HOUR_S / 60 - 0.01)
        assert not store.asked
        clock.advance_to(opens_s)
    take(core)
    assert core.lease() is None
    core.close()


class Two:
    """Two queues at one gate; the first one's URL is out and holds the only slot."""

    def __init__(self, politeness: Politeness = HASTE) -> None:
        self.clock = FakeClock()
        order = FrontierOrder(policy="tests.stress.virtual_crawl:by_first_folder", politeness=politeness)
        self.core = open_frontier(None, order, clock=self.clock)
        self.core.schedule([Candidate(f"http://{HOST}/{queue}/{page}") for page in range(3) for queue in "pq"])
        self.first = take(self.core)
        assert self.core.lease() is None

    def next_is_the_other_queue(self) -> None:
        assert take(self.core).queue == "q"
        self.core.operations.check()
        self.core.close()


def test_a_slot_freed_by_a_release_is_used_at_once() -> None:
    """The lane that was served gives way: the URL that came back is first of its own lane only."""
    two = Two()
    two.core.release(two.first)
    assert take(two.core) is not None
    two.core.operations.check()
    two.core.close()


def test_a_slot_freed_by_the_release_of_a_paused_queue_is_used_by_the_other_queue_at_once() -> None:
    """A paused queue gives up its slot, and what it holds no longer stands in the line."""
    two = Two()
    two.core.operations.pause(two.first.queue)
    assert two.core.lease() is None
    two.core.release(two.first)
    two.next_is_the_other_queue()


def test_a_queue_that_is_paused_while_it_is_next_lets_the_other_one_go_at_once() -> None:
    """Nobody waits for the one that stands first in the line and may not go."""
    two = Two()
    two.core.operations.pause(QueueKey("q"))
    finish(two.core, two.clock, two.first)
    assert take(two.core).queue == "p"
    two.core.close()


def test_a_slot_added_by_a_raised_k_is_used_at_once() -> None:
    """Without the end of a fetch and without any time."""
    two = Two()
    two.core.set_slots(HOST, 2)
    two.next_is_the_other_queue()


def test_a_slot_freed_by_taking_a_crawl_delay_back_is_used_at_once() -> None:
    """While there is a Crawl-delay there is one slot; without it there are two again."""
    two = Two(Politeness(delay_factor=0.0, min_delay_s=0.0, max_delay_s=0.0, slots=1))
    two.core.set_slots(HOST, 2)
    two.core.set_delay(HOST, HOUR_S)
    assert two.core.lease() is None
    two.core.set_delay(HOST, 0.0)
    two.next_is_the_other_queue()


def test_a_slot_freed_by_unblock_is_used_at_once() -> None:
    """An operator closed the gate for an hour and opens it again."""
    two = Two()
    two.core.block(HOST, two.clock() + HOUR_S)
    finish(two.core, two.clock, two.first)
    assert two.core.lease() is None
    assert two.core.wake().at_s == two.clock() + HOUR_S
    two.core.unblock(HOST)
    two.next_is_the_other_queue()


def test_a_group_that_is_blocked_lets_nothing_through_until_it_is_unblocked() -> None:
    """The gate of a group is a gate: operators may name it."""
    clock = FakeClock()
    order = FrontierOrder(policy="host", politeness=HASTE, group="domain", group_politeness=HASTE)
    core = open_frontier(None, order, clock=clock)
    core.schedule([Candidate(a_queue_per_host(number)) for number in range(3)])
    finish(core, clock, take(core))
    group = GateKey("domain:big.test")
    core.block(group, clock() + HOUR_S)
    assert core.lease() is None
    assert core.wake().at_s == clock() + HOUR_S
    core.unblock(group)
    take(core)
    core.operations.check()
    core.close()


def take(core: Frontier) -> Lease:
    lease = core.lease()
    assert lease is not None, f"no lease: {core.wake()}"
    return lease


def finish(core: Frontier, clock: FakeClock, lease: Lease) -> None:
    core.finish(lease, Outcome(OutcomeKind.DONE, 200, lease.since_s, clock()))
