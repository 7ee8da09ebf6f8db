"""The queues in memory: they come when they are needed, are counted by state, and go with their row written."""

from __future__ import annotations

import pytest

from anabranch.frontier.errors import LifecycleError
from anabranch.frontier.models import GateKey
from anabranch.frontier.scheduling.gatelines import GateHeap, Line
from anabranch.frontier.scheduling.gates import Gate, Politeness
from anabranch.frontier.scheduling.lifecycle import QueueState
from anabranch.frontier.scheduling.queueindex import QueueIndex
from anabranch.frontier.scheduling.workqueues import Lane, WorkQueue
from anabranch.frontier.stores.messages import Standing
from anabranch.frontier.turns import Turn
from tests.frontier.builder import head


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
    lane = Lane(queue, Line(Gate(2, GateKey("a.test"), Politeness()), GateHeap()), Turn(1), 3000)
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
