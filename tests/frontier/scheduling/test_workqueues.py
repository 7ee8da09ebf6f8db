"""Queues, lanes and windows."""

from __future__ import annotations

import pytest

from anabranch.frontier.errors import LifecycleError
from anabranch.frontier.models import FRONT, GateKey, QueueKey
from anabranch.frontier.scheduling.gatelines import GateHeap, Line
from anabranch.frontier.scheduling.gates import Gate, Politeness
from anabranch.frontier.scheduling.lifecycle import Holds, QueueState
from anabranch.frontier.scheduling.queueindex import QueueIndex
from anabranch.frontier.scheduling.workqueues import LOW_WINDOW, WINDOW, Lane, Place, WorkQueue
from anabranch.frontier.stores.messages import QueueRow, Standing
from anabranch.frontier.turns import Turn
from tests.frontier.builder import head, row

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
    lane = Lane(queue, Line(Gate(2, GateKey("a.test"), Politeness()), GateHeap()), Turn(1), balance)
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
    """What must survive a restart does."""
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
    assert lane.belongs() is Place.STORED
    lane.ask()
    assert lane.belongs() is Place.LOADING
    lane.answer([head(1)])
    assert lane.belongs() is Place.READY
    lane.place = Place.PARKED
    assert lane.belongs() is Place.PARKED
    lane.take()
    assert lane.belongs() is Place.NOWHERE
    lane.more = True
    assert lane.belongs() is Place.STORED
    lane.queue.standing = Standing.PAUSED
    assert lane.belongs() is Place.NOWHERE


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
    lane.place = Place.READY
    lane.take()
    assert repr(lane.queue) == "<WorkQueue q inactive, 1 leased, 1 heads>"
    assert repr(lane) == "<Lane q at a.test ready, 1 heads>"
    lane.more = True
    assert repr(lane) == "<Lane q at a.test ready, 1 heads and more>"
