"""The lanes that wait at a gate, and the heaps of gates by opening time."""

from __future__ import annotations

import math

import pytest

from anabranch.frontier.fingerprints import name_id
from anabranch.frontier.models import GateKey
from anabranch.frontier.scheduling.gatelines import GateHeap, Group, Line
from anabranch.frontier.scheduling.gates import Gate, Politeness
from anabranch.frontier.scheduling.workqueues import Lane, Place, WorkQueue
from anabranch.frontier.turns import Turn


def gate(name: str, slots: int = 1) -> Gate:
    return Gate(name_id(name), GateKey(name), Politeness(slots=slots))


def line(name: str = "a.test", slots: int = 1, heap: GateHeap | None = None) -> Line:
    """The line of a gate that was read, at which one lane waits."""
    made = Line(gate(name, slots), heap or GateHeap())
    made.waiting.ask()
    made.waiting.answer([(Turn(1), 1)], 16)
    made.is_loading = False
    return made


def lane(at: Line, *, stamp: int = 1, queue: WorkQueue | None = None) -> Lane:
    """A lane in memory, in its line's heap if it has a stamp."""
    made = Lane(queue or WorkQueue(stamp, 1), at, Turn(1), 3000)
    made.stamp, made.place = stamp, Place.READY
    return made


def group(name: str, heap: GateHeap, *members: str) -> tuple[Group, list[Line]]:
    """A group whose row was read, with some hosts that have something to serve."""
    made = Group(gate(name), heap)
    made.is_loading = False
    lines = [line(member, heap=heap) for member in members]
    for some in lines:
        some.group = made
        some.enlist()
    return made, lines


# One line


def test_the_best_lane_is_the_first_whose_queue_is_free() -> None:
    """Entries that are out of date are skipped, lanes whose queue is busy are parked at their queue."""
    some = line()
    stale, busy, free = lane(some, stamp=9), lane(some, stamp=2), lane(some, stamp=3)
    busy.queue.out = 1
    some.active = 2
    some.ready = [(3, 1, stale), (3, 2, busy), (3, 3, free)]
    assert some.best() is free
    assert (busy.place, busy.stamp, busy.queue.parked, some.active) == (Place.PARKED, 0, [busy], 1)
    assert some.best() is None


def test_a_queue_that_may_have_two_leases_is_free_with_one() -> None:
    """Its lane is served, not parked."""
    some = line()
    ready = lane(some, queue=WorkQueue(1, 2))
    ready.queue.out = 1
    some.ready = [(3, 1, ready)]
    assert some.best() is ready


def test_a_queue_of_smaller_precedence_is_served_first() -> None:
    """Whoever came first; equals go by their stamps."""
    some = line()
    first, second, third = (lane(some, stamp=stamp) for stamp in (1, 2, 3))
    some.ready = [(1, 3, third), (5, 2, second), (5, 1, first)]
    assert [some.best(), some.best(), some.best()] == [third, first, second]


@pytest.mark.parametrize(
    ("slots", "out", "wanted"), [(1, 0, 2), (1, 1, 1), (4, 0, 2), (4, 1, 2), (4, 2, 3), (4, 4, 1), (100, 20, 40)]
)
def test_a_gate_wants_what_it_can_serve_and_twice_what_it_serves_at_most(slots: int, out: int, wanted: int) -> None:
    """One more than it has free slots, so that the next one finds a head in memory."""
    some = line(slots=slots)
    some.gate.out = out
    assert some.wanted() == wanted


def test_a_line_serves_nothing_before_its_row_is_read() -> None:
    """Its gate may be blocked, or rest, for all that is known."""
    some = line()
    some.is_loading = True
    assert some.serves_s() == math.inf
    some.is_loading = False
    assert some.serves_s() == 0.0


def test_a_line_that_leaves_serves_nothing() -> None:
    """It waits for its last lease."""
    some = line()
    some.is_leaving = True
    assert some.serves_s() == math.inf


def test_the_first_turn_is_the_smallest_of_all_that_it_could_serve() -> None:
    """Lanes in memory that have something count, those whose leases are out do not."""
    some = line()
    ready, leased = lane(some), lane(some, stamp=2)
    ready.turn, leased.turn, leased.place = Turn(7), Turn(0), Place.NOWHERE
    some.lanes = {1: ready, 2: leased}
    assert some.first_turn() == 1
    some.waiting.discard(1)
    assert some.first_turn() == 7
    some.lanes.clear()
    assert some.first_turn() is None
    assert not some.has_work


# The heap


def test_the_gate_that_opened_first_is_first() -> None:
    """By opening time; equals by the order in which they came."""
    heap = GateHeap()
    lines = [line(name, heap=heap) for name in "abcd"]
    for some, opens_s in zip(lines, [5.0, 3.0, 3.0, 9.0], strict=True):
        some.gate.block(opens_s)
        some.enlist()
    assert heap.first_open(2.0) is None
    served = []
    while (some := heap.first_open(8.0)) is not None:
        served.append(some.gate.key)
        some.delist()
    assert served == ["b", "c", "a"]
    assert heap.next_time() == 9.0


def test_a_line_that_did_not_change_keeps_its_turn() -> None:
    """Being told again is no new arrival."""
    heap = GateHeap()
    first, second = line("a", heap=heap), line("b", heap=heap)
    for some in (first, second, first):
        some.enlist()
    assert heap.first_open(0.0) is first


def test_a_line_with_nothing_to_serve_or_no_slot_has_no_place() -> None:
    """It loses the one it had."""
    heap = GateHeap()
    some = line(heap=heap)
    some.enlist()
    some.gate.take(0.0)
    assert some.gate.opens_s() == math.inf
    some.enlist()
    assert heap.next_time() is None
    empty = line("b", heap=heap)
    empty.waiting.discard(1)
    empty.enlist()
    assert heap.first_open(1e9) is None


def test_a_gate_that_closed_meanwhile_is_put_where_it_belongs() -> None:
    """Its place in the heap is checked against the gate itself before it is served."""
    heap = GateHeap()
    some = line(heap=heap)
    some.enlist()
    some.gate.block(50.0)
    assert heap.first_open(10.0) is None
    assert heap.next_time() == 50.0
    assert heap.first_open(50.0) is some


# Groups: the heap has two levels


def test_hosts_of_a_group_stand_in_its_heap_and_the_group_in_the_outer_one() -> None:
    """One entry for all of them, at the time when the group and its first host are open."""
    heap = GateHeap()
    some, (first, second) = group("g", heap, "a", "b")
    assert len(heap._heap) == 1
    first.gate.block(20.0)
    second.gate.block(10.0)
    some.gate.block(15.0)
    for member in (first, second):
        member.enlist()
    assert heap.next_time() == 15.0
    assert heap.first_open(14.0) is None
    assert heap.first_open(15.0) is second


def test_a_closed_group_hides_its_open_hosts() -> None:
    """Others are served meanwhile; when the group opens its hosts come by their own opening times."""
    heap = GateHeap()
    some, members = group("g", heap, "a", "b", "c")
    some.gate.block(100.0)
    alone = line("x", heap=heap)
    alone.enlist()
    assert heap.first_open(10.0) is alone
    alone.delist()
    assert heap.first_open(10.0) is None
    assert heap.first_open(100.0) is members[0]


def test_a_group_serves_nothing_before_its_row_is_read() -> None:
    """As a host does."""
    heap = GateHeap()
    some, _ = group("g", heap, "a")
    some.is_loading = True
    assert some.serves_s() == math.inf


def test_a_group_without_an_open_host_has_no_place() -> None:
    """It is given one again when a host has something to serve."""
    heap = GateHeap()
    _, (member,) = group("g", heap, "a")
    member.delist()
    assert heap.next_time() is None
    member.enlist()
    assert heap.first_open(0.0) is member


def test_a_line_opens_when_its_gate_and_its_group_do() -> None:
    """The later of both."""
    heap = GateHeap()
    some, (member,) = group("g", heap, "a")
    some.gate.block(30.0)
    member.gate.block(20.0)
    assert member.opens_s() == 30.0
    member.gate.block(40.0)
    assert member.opens_s() == 40.0


def test_the_open_lines_are_those_whose_gates_are_all_open() -> None:
    """Of hosts that stand alone and of groups; a closed gate or group hides what stands behind it, an old entry nothing."""
    heap = GateHeap()
    lines = [line(f"{number}.test", heap=heap) for number in range(20)]
    for number, some in enumerate(lines):
        some.gate.block(100.0 * (number % 3))
        some.enlist()
    moved = lines[0]
    moved.gate.block(500.0)
    moved.enlist()
    _, members = group("open.test", heap, "a.open.test", "b.open.test")
    closed, _ = group("closed.test", heap, "a.closed.test")
    closed.gate.block(500.0)
    closed.enlist()
    opened = [some for number, some in enumerate(lines) if number % 3 < 2 and some is not moved]
    assert set(heap.open_lines(150.0)) == {*opened, *members}
    assert set(heap.open_lines(-1.0)) == set()
