"""Queues, lanes and windows."""

from __future__ import annotations

from collections import Counter

import pytest

from anabranch.frontier.errors import LifecycleError
from anabranch.frontier.policies.budgets import Budgets
from anabranch.frontier.policies.precedence import QueueHistory, parse_queue_precedence, parse_uri_precedence
from anabranch.frontier.policies.sheets import Override, Settings, Sheets
from anabranch.frontier.records import FRONT, Candidate, GateKey, OutcomeKind, QueueKey, Turn, name_id
from anabranch.frontier.scheduling.gates import Gate, Politeness
from anabranch.frontier.scheduling.lifecycle import Holds, QueueState
from anabranch.frontier.scheduling.queues import (
    LOW_WINDOW,
    WINDOW,
    Lane,
    LanePlace,
    QueueIndex,
    QueueRules,
    WorkQueue,
)
from anabranch.frontier.scheduling.readylist import GateHeap, ReadyList
from anabranch.frontier.stores.contract import QueueRow, Standing
from tests.frontier.builder import HASTE, Rig, build, head, pages, row

PLENTY = 3000


def new_index(per_queue: int = 1, saved: list[WorkQueue] | None = None) -> QueueIndex:
    """An index, and the queues whose rows it had written."""
    return QueueIndex(per_queue, ([] if saved is None else saved).append)


def counted(index: QueueIndex) -> dict[QueueState, int]:
    """The states that any queue is in, with their counts."""
    return {state: count for state, count in index.states.items() if count}


def new_lane(balance: int = PLENTY, *, per_queue: int = 1, index: QueueIndex | None = None) -> Lane:
    """A lane that has something in the store and nothing in memory."""
    queue = (new_index(per_queue) if index is None else index).take_up(1)
    lane = Lane(queue, ReadyList(Gate(2, GateKey("a.test"), Politeness()), GateHeap()), Turn(1), balance)
    queue.lanes.add(lane)
    return lane


def filled(heads: int, balance: int = PLENTY) -> Lane:
    """A lane that was asked for heads and got so many."""
    lane = new_lane(balance)
    lane.ask()
    lane.answer([head(ordinal) for ordinal in range(1, heads + 1)])
    return lane


def ordinals(lane: Lane) -> list[int]:
    return [item.row.ordinal for item in lane.window]


# What a queue holds


def test_a_queue_holds_the_strongest_of_its_facts() -> None:
    """Leases before heads, heads before an answer under way, that before rows, rows before retries."""
    lane = new_lane()
    queue = lane.queue
    lane.more = False
    assert queue.holds() is Holds.NOTHING
    queue.waits = 1
    assert queue.holds() is Holds.RETRIES
    lane.more = True
    assert queue.holds() is Holds.ROWS
    queue.asked = 1
    assert queue.holds() is Holds.ASKED
    queue.heads = 1
    assert queue.holds() is Holds.HEADS
    assert not queue.is_busy
    queue.out = 1
    assert queue.holds() is Holds.LEASES
    assert queue.is_busy


@pytest.mark.parametrize(("standing", "holds"), [(Standing.PAUSED, Holds.PAUSED), (Standing.RETIRED, Holds.RETIRED)])
def test_an_order_of_the_operator_is_the_strongest_fact(standing: Standing, holds: Holds) -> None:
    """Whatever is leased, in memory or on its way."""
    queue = filled(3).queue
    queue.out = 1
    queue.standing = standing
    assert queue.holds() is holds


def test_a_queue_of_several_leases_is_in_flight_when_it_can_give_no_more() -> None:
    """Either all the leases it may have are out, or some are and it has nothing else."""
    lane = new_lane(per_queue=2)
    queue = lane.queue
    queue.out, queue.heads = 1, 1
    assert (queue.is_busy, queue.holds()) == (False, Holds.HEADS)
    queue.heads, lane.more = 0, False
    assert (queue.is_busy, queue.holds()) == (False, Holds.LEASES)
    queue.out, queue.heads = 2, 1
    assert (queue.is_busy, queue.holds()) == (True, Holds.LEASES)


def test_a_queue_learns_its_row_and_gives_it_back() -> None:
    """The facts that must survive a restart are in the row."""
    queue = new_lane().queue
    facts = QueueRow(1, QueueKey("q"), Standing.OPEN, 3, 40, 500, 30, 2)
    assert not queue.is_known
    queue.learn(facts)
    assert queue.is_known
    assert queue.row() == facts


# Windows


def test_a_window_is_refilled_when_it_runs_low_and_only_if_there_is_more() -> None:
    """At LOW_WINDOW heads left, if the store may have rows beyond them and no answer is under way."""
    lane = filled(WINDOW)
    while len(lane.window) > LOW_WINDOW + 1:
        lane.take()
    assert not lane.wants_heads(), "long enough"
    lane.take()
    assert lane.wants_heads()
    lane.ask()
    assert not lane.wants_heads(), "under way"
    assert not filled(2).wants_heads(), "fewer than were asked for: there is no more"


def test_no_more_is_read_than_the_session_can_pay() -> None:
    """A lane that gives way after three URLs reads three, and is not refilled for those."""
    lane = new_lane(balance=3)
    assert lane.ask() == 3
    lane.answer([head(1), head(2), head(3)])
    assert lane.more
    assert not lane.wants_heads()
    lane.take()
    lane.balance = 2
    assert not lane.wants_heads()


def test_rows_that_are_leased_or_in_memory_are_read_and_left_out() -> None:
    """The question counts them in; the answer leaves them out, even if they were finished meanwhile."""
    lane = filled(2)
    lane.take()
    assert lane.ask() == WINDOW + 2
    lane.leased.clear()
    assert lane.answer([head(ordinal) for ordinal in (1, 2, 3, 4)])
    assert ordinals(lane) == [2, 3, 4]
    assert lane.queue.heads == 3


def test_as_many_rows_as_were_asked_for_mean_that_there_may_be_more() -> None:
    """Fewer mean that there are none, unless one came meanwhile."""
    assert filled(WINDOW).more
    assert not filled(WINDOW - 1).more
    lane = new_lane()
    lane.ask()
    lane.more = True
    lane.answer([])
    assert lane.more


def test_an_answer_that_was_forgotten_is_dropped() -> None:
    """Only the answer to the last question counts; answers come in the order of the questions."""
    lane = new_lane()
    lane.ask()
    assert lane.forget_answer()
    assert not lane.is_asked
    lane.ask()
    assert not lane.answer([head(1)]), "it belongs to the first question"
    assert lane.is_asked
    assert lane.answer([head(2)])
    assert ordinals(lane) == [2]


def test_a_forgotten_answer_may_come_before_the_next_question() -> None:
    """Nothing is under way then, and nothing is taken; the rows are still in the store."""
    lane = new_lane()
    lane.ask()
    lane.forget_answer()
    assert not lane.forget_answer()
    assert not lane.answer([head(1)])
    assert (ordinals(lane), lane.queue.asked, lane.more) == ([], 0, True)


def test_an_answer_that_nobody_asked_for_is_a_defect() -> None:
    """It shows at once."""
    with pytest.raises(AssertionError, match="nobody asked"):
        new_lane().answer([])


def test_a_row_that_is_served_earlier_drives_later_ones_from_the_window() -> None:
    """They are in the store and are read again; those before it stay."""
    lane = new_lane()
    lane.ask()
    lane.answer([head(1, precedence=FRONT), head(2), head(3)])
    assert not lane.drop_behind(row(4))
    assert ordinals(lane) == [1, 2, 3]
    assert lane.drop_behind(row(5, precedence=FRONT))
    assert ordinals(lane) == [1]
    assert (lane.queue.heads, lane.more) == (1, True)


def test_a_retry_that_is_due_drives_younger_urls_from_the_window() -> None:
    """It is older than they are, and goes back to its place among equals."""
    lane = new_lane()
    lane.ask()
    lane.answer([head(3), head(7)])
    assert lane.drop_behind(row(5))
    assert ordinals(lane) == [3]


def test_rows_that_are_removed_leave_the_window() -> None:
    """And nothing else does."""
    lane = filled(4)
    lane.drop({2, 3, 99})
    assert (ordinals(lane), lane.queue.heads) == ([1, 4], 2)


def test_a_head_that_comes_back_is_next() -> None:
    """Before all others of its lane."""
    lane = filled(3)
    lane.take()
    lane.put_first(head(1))
    assert (ordinals(lane), lane.queue.heads) == ([1, 2, 3], 3)


# Where a lane stands


def test_a_lane_stands_where_its_rows_are() -> None:
    """In memory, on their way, in the store, or nowhere."""
    lane = new_lane()
    assert lane.belongs() is LanePlace.STORED
    lane.ask()
    assert lane.belongs() is LanePlace.LOADING
    lane.answer([head(1)])
    assert lane.belongs() is LanePlace.READY
    lane.place = LanePlace.PARKED
    assert lane.belongs() is LanePlace.PARKED
    lane.take()
    assert lane.belongs() is LanePlace.NOWHERE
    lane.more = True
    assert lane.belongs() is LanePlace.STORED
    lane.queue.standing = Standing.PAUSED
    assert lane.belongs() is LanePlace.NOWHERE


# The index


def test_a_queue_is_in_memory_as_long_as_it_has_a_lane_or_a_lease() -> None:
    """An idle queue costs no object."""
    index = new_index()
    lane = new_lane(index=index)
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
    queue = new_lane(index=index).queue
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
    lane = new_lane(index=index)
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
    lane = filled(1)
    lane.queue.state = QueueState.EMPTY
    with pytest.raises(LifecycleError, match="empty may not come to hold heads in memory"):
        new_index().settle(lane.queue)


def test_repr_says_state_and_counts() -> None:
    """Queues and lanes in a message can be understood."""
    lane = filled(2)
    lane.queue.key = QueueKey("q")
    lane.take()
    lane.place = LanePlace.READY
    assert repr(lane.queue) == "<WorkQueue q inactive, 1 leased, 1 heads>"
    assert repr(lane) == "<Lane q at a.test ready, 1 heads>"
    lane.more = True
    assert repr(lane) == "<Lane q at a.test ready, 1 heads and more>"


class Index(QueueIndex):
    """Remembers whose rows were to be written."""

    def __init__(self, per_queue: int = 1) -> None:
        self.saved: list[int] = []
        super().__init__(per_queue, lambda queue: self.saved.append(queue.id))

    def counted(self) -> dict[str, int]:
        """The states that have queues."""
        return {state.value: count for state, count in self.states.items() if count}


def lane_of(queue: WorkQueue) -> Lane:
    """Its only lane in memory, which may have rows."""
    lane = Lane(queue, ReadyList(Gate(2, GateKey("a.test"), Politeness()), GateHeap()), Turn(1), 3000)
    queue.lanes.add(lane)
    return lane


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
