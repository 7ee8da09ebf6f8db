"""Queues, lanes with their windows, ready lists and groups in the heap of gates, and the outbox."""

from __future__ import annotations

import math

import pytest

from anabranch.frontier.records import FRONT, GateKey, QueueKey, Turn, name_id
from anabranch.frontier.scheduling.gates import Gate, Politeness
from anabranch.frontier.scheduling.heaps import GateHeap
from anabranch.frontier.scheduling.lifecycle import Holds
from anabranch.frontier.scheduling.readylist import (
    LOW_WINDOW,
    WINDOW,
    Group,
    Lane,
    LanePlace,
    Outbox,
    ReadyList,
    WorkQueue,
)
from anabranch.frontier.stores.contract import QueueRow, Standing
from tests.frontier.builder import START_S, CountingStore, build, head, row
from tests.rows import each_row

PLENTY = 3000


def line_of_a() -> ReadyList:
    return ReadyList(Gate(2, GateKey("a.test"), Politeness()), GateHeap())


def new_lane(balance: int = PLENTY, *, per_queue: int = 1) -> Lane:
    """A lane that has something in the store and nothing in memory."""
    queue = WorkQueue(1, per_queue)
    lane = Lane(queue, line_of_a(), Turn(1), balance)
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


def gate(name: str, slots: int = 1) -> Gate:
    return Gate(name_id(name), GateKey(name), Politeness(slots=slots))


def line(name: str = "a.test", slots: int = 1, heap: GateHeap | None = None) -> ReadyList:
    """The line of a gate that was read, at which one lane waits."""
    made = ReadyList(gate(name, slots), heap or GateHeap())
    made.waiting.ask()
    made.waiting.answer([(Turn(1), 1)], 16)
    made.is_loading = False
    return made


def lane(at: ReadyList, *, stamp: int = 1, queue: WorkQueue | None = None) -> Lane:
    """A lane in memory, in its line's heap if it has a stamp."""
    made = Lane(queue or WorkQueue(stamp, 1), at, Turn(1), 3000)
    made.stamp, made.place = stamp, LanePlace.READY
    return made


def group(name: str, heap: GateHeap, *members: str) -> tuple[Group, list[ReadyList]]:
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
    assert (busy.place, busy.stamp, busy.queue.parked, some.active) == (LanePlace.PARKED, 0, [busy], 0)
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
    ready.turn, leased.turn, leased.place = Turn(7), Turn(0), LanePlace.NOWHERE
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
    """A host serves nothing before its row is read either."""
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
    """Lines of hosts and of groups count; a closed gate or group hides those behind it, an old entry hides none."""
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


def test_numbers_rise_from_the_last_one() -> None:
    """Ordinals and turns come from one sequence, so that no two are equal."""
    outbox = Outbox(41)
    assert [outbox.number(), outbox.number()] == [42, 43]
    assert outbox.last_number == 43


@each_row(
    ("name", "question"),
    [
        ("heads", [Lane(WorkQueue(1, 1), line_of_a(), Turn(1), 1)]),
        ("lanes", [(line_of_a(), None)]),
        ("gates", [line_of_a()]),
        ("next_gates", 3),
        ("retries", None),
        ("retries", (1.0, 2)),
    ],
)
def test_every_question_counts_until_it_is_asked(name: str, question: object) -> None:
    """Waiting rows may be asked for from the very beginning, which is None; no question is False."""
    outbox = Outbox(0)
    assert not outbox.has_questions()
    setattr(outbox, name, question)
    assert outbox.has_questions()
    outbox.questions_taken()
    assert not outbox.has_questions()


def test_a_call_says_one_batch_and_a_call_that_changes_nothing_says_none() -> None:
    """Batches are numbered without gaps; each has the time and how far the sequence has come."""
    store = CountingStore()
    rig = build(store=store)
    rig.add("http://a.test/1", "http://b.test/1")
    rig.clock.advance(5.0)
    rig.core.wake()
    rig.finish(rig.lease_now())
    rig.add("http://a.test/1")
    assert [batch.number for batch in store.batches] == list(range(1, len(store.batches) + 1))
    assert (store.batches[0].now_s, store.batches[0].last_number) == (START_S, 2)
    assert (store.batches[-1].now_s, rig.core.unacknowledged.last) == (START_S + 5.0, len(store.batches))
