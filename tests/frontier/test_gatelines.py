"""The lanes that wait at a gate, and the heap of gates by opening time."""

import math

import pytest

from frontier.gatelines import GateHeap, Line
from frontier.gates import Gate, Politeness
from frontier.models import GateKey, QueueKey
from frontier.workqueues import Lane, Place, WorkQueue


def line(name: str = "a.test", slots: int = 1) -> Line:
    """A line with one lane whose rows are in the store."""
    made = Line(Gate(hash(name), GateKey(name), Politeness(slots=slots)))
    made.stored.append((3, 1, 1, lane()))
    return made


def lane(*, stamp: int = 1) -> Lane:
    made = Lane(WorkQueue(1, QueueKey("q")), 2, 1)
    made.stamp = stamp
    return made


def test_the_best_lane_is_the_first_whose_queue_is_free() -> None:
    """Entries that are out of date are skipped, lanes whose queue is busy are parked at their queue."""
    some = line()
    stale, busy, free = lane(stamp=9), lane(stamp=2), lane(stamp=3)
    busy.queue.out = 1
    some.active = 2
    some.ready = [(3, 1, 1, stale), (3, 2, 2, busy), (3, 3, 3, free)]
    assert some.best() is free
    assert (busy.place, busy.stamp, busy.queue.parked, some.active) == (Place.PARKED, 0, [busy], 1)
    assert some.best() is None


def test_the_next_stored_lane_is_the_first_that_is_still_there() -> None:
    """Entries that are out of date are skipped."""
    some = line()
    there = lane(stamp=2)
    some.stored = [(3, 1, 1, lane(stamp=9)), (3, 2, 2, there)]
    assert some.next_stored() is there
    assert some.next_stored() is None


@pytest.mark.parametrize(
    ("slots", "out", "wanted"), [(1, 0, 2), (1, 1, 1), (4, 0, 2), (4, 1, 2), (4, 2, 3), (4, 4, 1), (100, 20, 40)]
)
def test_a_gate_wants_what_it_can_serve_and_twice_what_it_serves_at_most(slots: int, out: int, wanted: int) -> None:
    """One more than it has free slots, so that the next one finds a head in memory."""
    some = line(slots=slots)
    some.gate.out = out
    assert some.wanted() == wanted


def test_the_gate_that_opened_first_is_first() -> None:
    """By opening time; equals by the order in which they came."""
    heap = GateHeap()
    lines = [line(name) for name in "abcd"]
    for some, opens_s in zip(lines, [5.0, 3.0, 3.0, 9.0], strict=True):
        some.gate.block(opens_s)
        heap.enlist(some)
    assert heap.first_open(2.0) is None
    served = []
    while (some := heap.first_open(8.0)) is not None:
        served.append(some.gate.key)
        some.entry = None
    assert served == ["b", "c", "a"]
    assert heap.next_time() == 9.0


def test_a_line_that_did_not_change_keeps_its_turn() -> None:
    """Being told again is no new arrival."""
    heap = GateHeap()
    first, second = line("a"), line("b")
    for some in (first, second, first):
        heap.enlist(some)
    assert heap.first_open(0.0) is first


def test_a_line_with_nothing_to_serve_or_no_slot_has_no_place() -> None:
    """It loses the one it had."""
    heap = GateHeap()
    some = line()
    heap.enlist(some)
    some.gate.take(0.0)
    assert some.gate.opens_s() == math.inf
    heap.enlist(some)
    assert heap.next_time() is None
    empty = line("b")
    empty.stored.clear()
    heap.enlist(empty)
    assert heap.first_open(1e9) is None


def test_a_gate_that_closed_meanwhile_is_put_where_it_belongs() -> None:
    """Its place in the heap is checked against the gate itself before it is served."""
    heap = GateHeap()
    some = line()
    heap.enlist(some)
    some.gate.block(50.0)
    assert heap.first_open(10.0) is None
    assert heap.next_time() == 50.0
    assert heap.first_open(50.0) is some
