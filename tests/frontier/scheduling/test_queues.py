"""Queues in memory, and the rules by which they are served."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.frontier.errors import LifecycleError
from anabranch.frontier.policies.budgets import UNLIMITED, Budgets
from anabranch.frontier.policies.precedence import QueueHistory, parse_queue_precedence, parse_uri_precedence
from anabranch.frontier.policies.sheets import Override, Settings, Sheets
from anabranch.frontier.records import Candidate, GateKey, OutcomeKind, QueueKey, Turn, name_id
from anabranch.frontier.scheduling.gates import Gate, Politeness
from anabranch.frontier.scheduling.heaps import GateHeap
from anabranch.frontier.scheduling.lifecycle import QueueState
from anabranch.frontier.scheduling.queues import QueueIndex, QueueRules, is_over_total
from anabranch.frontier.scheduling.readylist import Lane, ReadyList, WorkQueue
from anabranch.frontier.stores.contract import Standing
from tests.frontier.builder import HASTE, Rig, build, head, pages
from tests.rows import each_row


def new_index(per_queue: int = 1, saved: list[WorkQueue] | None = None) -> QueueIndex:
    """An index, and the queues whose rows it had written."""
    return QueueIndex(per_queue, ([] if saved is None else saved).append)


def counted(index: QueueIndex) -> dict[QueueState, int]:
    """The states that any queue is in, with their counts."""
    return {state: count for state, count in index.states.items() if count}


def lane_of(queue: WorkQueue) -> Lane:
    """Its only lane in memory, which may have rows."""
    lane = Lane(queue, ReadyList(Gate(2, GateKey("a.test"), Politeness()), GateHeap()), Turn(1), 3000)
    queue.lanes.add(lane)
    return lane


def new_lane(index: QueueIndex) -> Lane:
    """The lane of a queue of the index."""
    return lane_of(index.take_up(1))


# The index


def test_a_queue_is_in_memory_as_long_as_it_has_a_lane_or_a_lease() -> None:
    """An idle queue costs no object."""
    index = new_index()
    lane = new_lane(index)
    queue = lane.queue
    assert index.take_up(1) is queue is index.get(1)
    assert list(index) == [queue]
    lane.more, lane.queue.out = False, 1
    queue.state = QueueState.IN_FLIGHT
    queue.lanes.clear()
    index.settle(queue)
    assert index.get(1) is queue
    queue.out = 0
    index.settle(queue)
    assert (index.get(1), len(index)) == (None, 0)


def test_what_a_queue_spent_is_written_before_it_leaves_memory() -> None:
    """Once, and only if it spent anything since it was written last; all that are in memory are written at the end."""
    saved: list[WorkQueue] = []
    index = new_index(saved=saved)
    queue = new_lane(index).queue
    index.save_all()
    assert saved == []
    queue.unsaved = 1
    index.save_all()
    index.save_all()
    assert saved == [queue]
    queue.unsaved = 1
    queue.lanes.clear()
    index.settle(queue)
    assert saved == [queue, queue]


def test_states_are_counted_as_queues_move() -> None:
    """Each queue in memory is in one state; the counts add up, and none is left when it has gone."""
    index = new_index()
    lane = new_lane(index)
    lane.ask()
    for _ in range(2):
        index.settle(lane.queue)
        assert counted(index) == {QueueState.LOADING: 1}
    lane.answer([])
    lane.queue.lanes.clear()
    index.settle(lane.queue)
    assert not counted(index)


def test_a_step_that_is_not_in_the_table_is_a_defect() -> None:
    """It shows at once."""
    index = new_index()
    queue = new_lane(index).queue
    queue.heads, queue.state = 1, QueueState.EMPTY
    with pytest.raises(LifecycleError, match="empty may not come to hold heads in memory"):
        index.settle(queue)


class Index(QueueIndex):
    """Remembers whose rows were to be written."""

    def __init__(self, per_queue: int = 1) -> None:
        self.saved: list[int] = []
        super().__init__(per_queue, lambda queue: self.saved.append(queue.id))

    def counted(self) -> dict[str, int]:
        """The states that have queues."""
        return {state.value: count for state, count in self.states.items() if count}


def test_a_queue_is_made_once_as_the_order_says() -> None:
    """By its id; nobody else is there."""
    index = Index(per_queue=3)
    queue = index.take_up(7)
    assert index.take_up(7) is index.get(7) is queue
    assert (queue.id, queue.per_queue, index.get(8), len(index), list(index)) == (7, 3, None, 1, [queue])
    assert index.counted() == {"inactive": 1}


def test_a_queue_is_counted_in_the_state_of_what_it_holds() -> None:
    """In that one alone, however often it moves."""
    index = Index()
    queue, other = index.take_up(7), index.take_up(8)
    lane, _ = lane_of(queue), lane_of(other)
    for step, state in (
        (lane.ask, "loading"),
        (lambda: lane.answer([head(1), head(2)]), "ready"),
        (lane.take, "in-flight"),
    ):
        step()
        index.settle(queue)
        assert index.counted() == {"inactive": 1, state: 1}
    index.settle(queue)
    assert index.counted() == {"inactive": 1, "in-flight": 1}, "to settle twice is to settle once"


def test_a_step_that_the_table_does_not_know_is_a_defect() -> None:
    """It shows, and the counts stay."""
    index = Index()
    queue = index.take_up(7)
    queue.state = QueueState.SNOOZED
    lane_of(queue).ask()
    with pytest.raises(LifecycleError, match="snoozed"):
        index.settle(queue)
    assert index.counted() == {"inactive": 1}


def test_a_queue_goes_with_its_last_lane() -> None:
    """Its row is written if it spent anything; it is counted nowhere any more."""
    index = Index()
    for queue_id, unsaved in ((7, 2), (8, 0)):
        queue = index.take_up(queue_id)
        queue.unsaved = unsaved
        lane = lane_of(queue)
        index.settle(queue)
        assert index.get(queue_id) is queue
        queue.lanes.discard(lane)
        index.settle(queue)
        assert index.get(queue_id) is None
    assert (index.saved, index.counted(), len(index)) == ([7], {}, 0)


@pytest.mark.parametrize("standing", Standing)
def test_a_queue_with_a_lease_out_stays(standing: Standing) -> None:
    """Whoever finishes must find it, even if it may not be served."""
    index = Index()
    queue = index.take_up(7)
    lane = lane_of(queue)
    lane.ask()
    lane.answer([head(1)])
    index.settle(queue)
    lane.take()
    queue.standing = standing
    queue.lanes.clear()
    index.settle(queue)
    assert index.get(7) is queue
    queue.out = 0
    index.settle(queue)
    assert index.get(7) is None


def test_a_queue_that_has_gone_takes_no_other_with_it() -> None:
    """One of the same id may have come meanwhile."""
    index = Index()
    old = index.take_up(7)
    index.settle(old)
    new = index.take_up(7)
    lane_of(new)
    index.settle(old)
    assert index.get(7) is new


def test_a_row_is_written_once_for_what_was_spent() -> None:
    """Until more is; all at once before the store is flushed."""
    index = Index()
    for queue_id, unsaved in ((7, 1), (8, 0), (9, 16)):
        index.take_up(queue_id).unsaved = unsaved
    index.save_all()
    index.save_all()
    assert index.saved == [7, 9]
    queue = index.take_up(8)
    queue.unsaved = 1
    index.save(queue)
    index.save(queue)
    assert index.saved == [7, 9, 8]


def override(surt: str, **settings: object) -> Override:
    return Override((surt,), Settings(**settings))  # type: ignore[arg-type]


def order_of_hosts(rig: Rig) -> list[str]:
    """Hosts in the order in which they are served."""
    return [url.split("/")[2] for url in rig.drain(0.0)]


# The rules by themselves


def test_a_sheet_goes_before_the_order() -> None:
    """For the host of a queue, or for a queue that is named by its key."""
    sheets = Sheets(
        [
            override("test,a,", total_budget=7, session_budget=5, queue_precedence=1),
            override("test,b,", key=QueueKey("own"), total_budget=9),
        ]
    )
    rules = QueueRules(sheets=sheets, host_of=str, budgets=Budgets(total_budget=100, balance_replenish=50))
    a, own, other = QueueKey("a.test"), QueueKey("own"), QueueKey("c.test")
    assert [rules.total_budget(key, None) for key in (a, own, other)] == [7, 9, 100]
    assert [rules.session_budget(key) for key in (a, own, other)] == [5, 50, 50]
    assert [rules.first_precedence(key) for key in (a, own, other)] == [1, 3, 3]
    assert rules.total_budget(a, 1) == 1, "the operator's goes before the sheet's"


@each_row(
    ("own", "sheet", "order", "counts"),
    [
        (5, 6, 7, 5),
        (None, 6, 7, 6),
        (None, None, 7, 7),
        (0, 6, 7, 0),
        (None, 0, 7, 0),
        (UNLIMITED, 6, 7, UNLIMITED),
        (None, UNLIMITED, 7, UNLIMITED),
    ],
)
def test_the_nearest_total_budget_counts(own: int | None, sheet: int | None, order: int, counts: int) -> None:
    """The operator's word for one queue beats the sheet's for a site, which beats the order's for all; 0 and -1 are words."""
    sheets = Sheets([] if sheet is None else [override("test,a,", total_budget=sheet)])
    rules = QueueRules(sheets=sheets, host_of=str, budgets=Budgets(total_budget=order))
    assert rules.total_budget(QueueKey("a.test"), own) == counts


def test_a_total_budget_ends_when_it_is_spent() -> None:
    """A queue with budget left goes on; one without is retired."""
    assert not is_over_total(99, 100)
    assert is_over_total(100, 100)
    assert is_over_total(101, 100)


def test_a_total_budget_of_0_is_spent_at_once() -> None:
    """0 is an amount, not the absence of one."""
    assert is_over_total(0, 0)


@given(st.integers(0, 2**62))
def test_a_budget_without_end_is_never_spent(spent: int) -> None:
    """-1 means that nothing is too much."""
    assert not is_over_total(spent, UNLIMITED)


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(1, 10**9))
def test_raising_a_budget_far_enough_wakes_a_queue(spent: int, budget: int, more: int) -> None:
    """A retired queue runs again as soon as its budget is larger than what it spent, and not before."""
    assert is_over_total(spent, budget) == (budget <= spent)
    assert not is_over_total(spent, spent + more)


def test_a_queues_precedence_follows_its_history() -> None:
    """The policy computes it from the pages that ended; without a policy it is always the base."""
    queue = WorkQueue(1, 1)
    rules = QueueRules(queues=parse_queue_precedence("success:2,2"))
    rules.meet(queue)
    told = []
    for _ in range(6):
        told.append(rules.precedence(queue, OutcomeKind.DONE, 1))
        queue.pay(OutcomeKind.DONE, 1)
    assert told == [3, 4, 4, 5, 5, 6], "the page that ends now counts"
    assert rules.precedence(queue, OutcomeKind.RETRY, 1) == 6
    assert (queue.spent, queue.successes, queue.errors) == (6, 6, 0)
    queue.pay(OutcomeKind.FAILED, 101)
    assert (queue.spent, queue.successes, queue.errors) == (107, 6, 1)
    assert QueueRules().precedence(queue, OutcomeKind.DONE, 1) == queue.base_precedence


def test_a_sheet_of_url_precedence_asks_for_every_url() -> None:
    """Otherwise those that bring nothing of their own have one number."""
    plain = QueueRules(uris=parse_uri_precedence("base:5"))
    assert plain.plain_precedence == plain.in_row(Candidate("http://a.test/"), None)
    sheets = Sheets([override("http://(test,a,)/x", uri_precedence=200)])
    rules = QueueRules(uris=parse_uri_precedence("base:5"), sheets=sheets)
    assert rules.plain_precedence is None
    rows = [rules.in_row(Candidate(f"http://a.test/{path}"), None) & 255 for path in ("x/1", "y")]
    assert rows == [200, 5]


# The rules at work


def test_a_queue_of_smaller_precedence_is_served_first_at_its_gate() -> None:
    """By the sheet that names its key, wherever its URLs come from."""
    sheets = [
        override("test,l,", key=QueueKey("late"), queue_precedence=9),
        override("test,s,", key=QueueKey("soon"), queue_precedence=1),
        override("http://(test,a,)/late", key=QueueKey("late")),
        override("http://(test,a,)/soon", key=QueueKey("soon")),
    ]
    rig = build(politeness=HASTE, overrides=sheets)
    rig.add(*(f"http://a.test/{where}/{number}" for number in range(4) for where in ("late", "x", "soon")))
    served = [url.split("/")[3] for url in rig.drain(0.0)]
    assert served == ["soon"] * 4 + ["x"] * 4 + ["late"] * 4
    rig.core.operations.check()


def test_a_host_of_smaller_precedence_is_taken_into_memory_first() -> None:
    """When memory has room for few gates, those with the smallest turns come first."""
    rig = build(
        politeness=HASTE,
        gates_in_memory=1,
        overrides=[override("test,c,", queue_precedence=1), override("test,a,", queue_precedence=9)],
    )
    rig.add("http://b.test/", "http://a.test/", "http://d.test/", "http://c.test/")
    rig.core.close()
    again = build(store=rig.store, clock=rig.clock, **{**order_fields(rig), "gates_in_memory": 1})
    assert order_of_hosts(again) == ["c.test", "b.test", "d.test", "a.test"]


def order_fields(rig: Rig) -> dict[str, object]:
    return {"politeness": rig.order.politeness, "overrides": rig.order.overrides}


def test_a_queue_at_the_floor_never_runs() -> None:
    """Its URLs are kept; the others are served, the crawl is not done."""
    rig = build(politeness=HASTE, overrides=[override("test,a,", queue_precedence=255)])
    rig.add(*pages("a.test", 2), "http://b.test/")
    assert order_of_hosts(rig) == ["b.test"]
    assert not rig.core.is_done
    assert rig.lease() is None
    rig.core.operations.check()


@pytest.mark.parametrize("clean", [True, False])
def test_a_queue_that_succeeds_gives_way_and_remembers_it(clean: bool) -> None:
    """After each session its precedence is asked for again; what it rests on survives a restart."""
    order = {
        "politeness": HASTE,
        "policy": "bkdr:5",
        "queue_precedence": "success:2",
        "budgets": Budgets(balance_replenish=2),
    }
    rig = build(**order)
    rig.add(*pages("a.test", 200))
    had = Counter[QueueKey]()
    while 2 not in had.values():
        lease = rig.lease_now()
        had[lease.queue] += 1
        rig.finish(lease)
    assert precedences(rig)[lease.queue] == 4
    if clean:
        rig.core.close()
    else:
        rig.store.close(clean=False)
    rig.clock.advance(60.0)
    again = build(store=rig.store, clock=rig.clock, **order)
    assert precedences(again)[lease.queue] == 4
    others: set[QueueKey] = set()
    while (served := again.lease_now()).queue != lease.queue:
        others.add(served.queue)
        again.finish(served)
    assert len(others) == 4


@pytest.mark.parametrize("total_budget", [-1, 100])
def test_a_queue_that_is_alone_has_its_new_precedence_too(total_budget: int) -> None:
    """Though it goes on at once: who comes later with a smaller one is served first, and a restart remembers it."""
    order = {
        "politeness": HASTE,
        "policy": "parallel:2",
        "queue_precedence": "success:2",
        "budgets": Budgets(balance_replenish=2, total_budget=total_budget),
    }
    rig = build(**order)
    ours = [
        url
        for url in pages("a.test", 40)
        if rig.parts.admission.assignment.of_url(url) == (QueueKey("a.test"), GateKey("a.test"))
    ]
    rig.add(*ours[:9])
    for _ in range(4):
        rig.finish(rig.lease_now())
    assert precedences(rig) == {QueueKey("a.test"): 5}
    assert rig.store.queue(name_id("a.test")).row.precedence == 5  # type: ignore[union-attr]
    rig.core.operations.check()
    rig.store.close(clean=False)
    rig.clock.advance(60.0)
    again = build(store=rig.store, clock=rig.clock, **order)
    again.add(*pages("a.test", 40))
    assert again.lease_now().queue == "a.test+1"


def test_a_queue_that_comes_to_the_floor_alone_runs_no_more() -> None:
    """Its heads that are in memory or on their way are not served either."""
    rig = build(
        politeness=HASTE, queue_precedence="tests.frontier.scheduling.test_queues:sinking",
        budgets=Budgets(balance_replenish=2),
    )  # fmt: skip
    rig.add(*pages("a.test", 50))
    assert len(rig.drain(0.0)) == 6
    rig.core.operations.check()


def sinking(history: QueueHistory) -> int:
    return 255 if history.successes >= 6 else history.base


def precedences(rig: Rig) -> dict[QueueKey, int]:
    return {view.key: view.precedence for view in rig.core.operations.queues()}


def test_a_sheets_total_budget_retires_its_hosts_queue_only() -> None:
    """The order's holds for the others."""
    rig = build(politeness=HASTE, overrides=[override("test,a,", total_budget=2)])
    rig.add(*pages("a.test", 4), *pages("b.test", 4))
    assert sorted(order_of_hosts(rig)) == ["a.test"] * 2 + ["b.test"] * 4
    assert rig.core.operations.statistics().retired == 2
    rig.core.operations.check()


def test_a_sheets_budget_that_was_raised_wakes_by_itself() -> None:
    """At the next opening, as the order's does."""
    rig = build(politeness=HASTE, overrides=[override("test,a,", total_budget=2)])
    rig.add(*pages("a.test", 4))
    rig.drain(0.0)
    rig.core.close()
    again = build(store=rig.store, clock=rig.clock, politeness=HASTE, overrides=[override("test,a,", total_budget=3)])
    assert len(again.drain(0.0)) == 1
    again.core.operations.check()
