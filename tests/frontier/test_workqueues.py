"""Queues, lanes and windows."""

import pytest

from frontier.lifecycle import Holds, QueueState
from frontier.models import FRONT, NORMAL, WAITING, QueueKey
from frontier.stores.base import LaneRow
from frontier.workqueues import LOW_WINDOW, WINDOW, Lane, Place, QueueIndex
from tests.frontier.builder import head


def lane_with(rows: int) -> Lane:
    """A lane that counts so many rows, all in the store."""
    index = QueueIndex()
    queue, _ = index.queue(QueueKey("q"))
    lane, _ = index.lane(queue, 2)
    lane.rows = queue.rows = rows
    return lane


def filled(rows: int, heads: int) -> Lane:
    """A lane with so many rows, of which the first are in its window."""
    lane = lane_with(rows)
    lane.ask()
    lane.answer([head(ordinal) for ordinal in range(1, heads + 1)])
    return lane


def ordinals(lane: Lane) -> list[int]:
    return [item.row.ordinal for item in lane.window]


def test_a_queue_holds_the_strongest_of_its_facts() -> None:
    """Leases before heads, heads before an answer under way, that before rows, rows before retries."""
    lane = lane_with(0)
    queue = lane.queue
    assert queue.holds() is Holds.NOTHING
    queue.rows = queue.waiting = 1
    assert queue.holds() is Holds.RETRIES
    queue.rows = 2
    assert queue.holds() is Holds.ROWS
    queue.asked = 1
    assert queue.holds() is Holds.ASKED
    queue.heads = 1
    assert queue.holds() is Holds.HEADS
    assert not queue.is_busy
    queue.out = 1
    assert queue.holds() is Holds.LEASES
    assert queue.is_busy


def test_a_window_is_refilled_when_it_runs_low_and_only_if_there_is_more() -> None:
    """At LOW_WINDOW heads left, if the store has rows beyond them and no answer is under way."""
    lane = filled(LOW_WINDOW + 2, LOW_WINDOW + 1)
    assert not lane.wants_heads(), "long enough"
    lane.take()
    assert lane.wants_heads()
    lane.ask()
    assert not lane.wants_heads(), "under way"
    assert not filled(2, 2).wants_heads(), "there is no more"


def test_rows_that_are_leased_or_in_memory_are_read_and_left_out() -> None:
    """The question counts them in; the answer leaves them out, even if they were finished meanwhile."""
    lane = filled(9, 2)
    lane.take()
    assert lane.ask() == WINDOW + 2
    lane.leased.clear()
    assert lane.answer([head(ordinal) for ordinal in (1, 2, 3, 4)]) == 2
    assert ordinals(lane) == [2, 3, 4]
    assert lane.queue.heads == 3


def test_an_answer_that_was_forgotten_is_dropped() -> None:
    """Only the answer to the last question counts; answers come in the order of the questions."""
    lane = lane_with(5)
    lane.ask()
    lane.forget_answer()
    assert not lane.is_asked
    lane.ask()
    assert lane.answer([head(1)]) is None, "it belongs to the first question"
    assert lane.is_asked
    assert lane.answer([head(2)]) == 1
    assert ordinals(lane) == [2]


def test_a_forgotten_answer_may_come_before_the_next_question() -> None:
    """Nothing is under way then, and nothing is taken."""
    lane = lane_with(5)
    lane.ask()
    lane.forget_answer()
    assert lane.answer([head(1)]) is None
    assert (ordinals(lane), lane.queue.asked) == ([], 0)


def test_an_answer_that_nobody_asked_for_is_a_defect() -> None:
    """It shows at once."""
    with pytest.raises(AssertionError, match="nobody asked"):
        lane_with(1).answer([])


def test_a_row_that_is_served_earlier_drives_later_ones_from_the_window() -> None:
    """They are in the store and are read again; equals and a retry that is due stay."""
    lane = lane_with(9)
    lane.ask()
    lane.answer([head(1, precedence=FRONT), head(2), head(3)])
    lane.drop_behind(NORMAL)
    assert ordinals(lane) == [1, 2, 3]
    lane.drop_behind(FRONT)
    assert ordinals(lane) == [1]
    lane.put_first(head(9, precedence=WAITING + NORMAL, due_s=1.0))
    lane.drop_behind(0)
    assert ordinals(lane) == [9], "the store no longer gives it as a head"
    assert lane.queue.heads == 1


def test_what_is_in_the_store_only_is_neither_waiting_leased_nor_in_memory() -> None:
    """All rows but those that wait, are leased or are in the window."""
    lane = filled(10, 4)
    lane.waiting = 2
    lane.take()
    assert lane.stored == 10 - 2 - 1 - 3


def test_an_index_makes_a_queue_and_a_lane_once() -> None:
    """By key and by (queue, gate); arrivals rise."""
    index = QueueIndex()
    queue, is_new = index.queue(QueueKey("q"))
    assert is_new
    assert index.queue(QueueKey("q")) == (queue, False)
    lane, is_new = index.lane(queue, 1)
    assert is_new
    assert index.lane(queue, 1) == (lane, False)
    other, _ = index.lane(queue, 2)
    assert lane.arrival < other.arrival
    assert index.get(lane.id) is lane
    assert list(index) == [lane, other]
    assert list(index.queues()) == [queue]


def test_a_restored_lane_keeps_its_place_and_newcomers_stand_behind() -> None:
    """The arrival comes from the row; the next one is later than all of them."""
    index = QueueIndex()
    queue = index.restore_queue(5, QueueKey("q"))
    lane = index.restore_lane(LaneRow(5, 7, 3, 41, 12))
    index.restore_lane(LaneRow(5, 8, 3, 12, 1))
    assert (lane.queue, lane.arrival, lane.id) == (queue, 41, (5, 7))
    assert index.next_arrival() == 42
    assert index.states[QueueState.EMPTY] == 1


def test_states_are_counted_as_queues_move() -> None:
    """Each queue is in one state; the counts add up."""
    index = QueueIndex()
    queue, _ = index.queue(QueueKey("q"))
    queue.rows = 1
    index.settle(queue)
    index.settle(queue)
    assert queue.state is QueueState.INACTIVE
    assert (index.states[QueueState.EMPTY], index.states[QueueState.INACTIVE]) == (0, 1)


def test_repr_says_state_and_counts() -> None:
    """Queues and lanes in a message can be understood."""
    lane = filled(3, 2)
    lane.place = Place.READY
    assert repr(lane.queue) == "<WorkQueue q empty 3 urls>"
    assert repr(lane) == "<Lane q ready 3 urls, 2 in memory>"
