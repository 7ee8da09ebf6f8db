"""The first part of an ordered set whose rest is in the store."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from anabranch.frontier.records import GateKey, Turn, name_id
from anabranch.frontier.scheduling.gates import Gate, Politeness
from anabranch.frontier.scheduling.queues import Lane, LanePlace, WorkQueue
from anabranch.frontier.scheduling.readylist import GateHeap, Group, Outbox, Prefix, ReadyList
from tests.frontier.builder import START_S, CountingStore, build
from tests.rows import each_row


def behind(keys: dict[int, int], after: int | None, limit: int) -> list[tuple[int, int]]:
    """Answer as a store does: the first members after a key, in order."""
    entries = sorted((key, member) for member, key in keys.items() if after is None or key > after)
    return entries[:limit]


def filled(most: int, keys: Iterable[int]) -> Prefix[int]:
    """A complete prefix in which each key is its own member."""
    prefix: Prefix[int] = Prefix(most, is_complete=True)
    for key in keys:
        prefix.offer(key, key)
    return prefix


def drained(prefix: Prefix[int]) -> list[int]:
    members = []
    while (entry := prefix.pop()) is not None:
        members.append(entry[1])
    return members


def test_members_come_by_key() -> None:
    """The smallest first, whatever the order in which they came."""
    prefix = filled(10, [5, 2, 9])
    assert prefix.first() == (2, 2)
    assert (len(prefix), 9 in prefix, 4 in prefix) == (3, True, False)
    assert drained(prefix) == [2, 5, 9]
    assert not prefix.may_have_any


def test_a_member_stands_at_its_last_key() -> None:
    """Being offered again moves it; what it stood at before is forgotten."""
    prefix = filled(10, [1, 2])
    prefix.offer(7, 1)
    prefix.offer(1, 2)
    assert prefix.pop() == (1, 2)
    assert prefix.pop() == (7, 1)
    assert prefix.pop() is None


def test_a_prefix_of_what_is_stored_knows_nothing_until_it_has_read() -> None:
    """It may have any, has none in memory, and takes nothing in: a read will bring it."""
    prefix: Prefix[int] = Prefix(10, is_complete=False)
    prefix.offer(4, 4)
    assert (prefix.may_have_any, prefix.wants_more, prefix.first(), len(prefix)) == (True, True, None, 0)
    assert prefix.ask() is None, "from the very beginning"
    assert not prefix.wants_more, "it is asked"
    prefix.answer([(4, 4), (6, 6)], 2)
    assert prefix.first() == (4, 4)
    assert prefix.may_have_any


def test_fewer_than_were_asked_for_are_all_there_are() -> None:
    """Then whatever arrives is taken in, and an empty prefix has nothing."""
    prefix: Prefix[int] = Prefix(10, is_complete=False)
    prefix.ask()
    prefix.answer([(4, 4)], 2)
    prefix.offer(99, 99)
    assert drained(prefix) == [4, 99]
    assert not prefix.may_have_any
    assert not prefix.wants_more


def test_what_comes_behind_the_horizon_is_left_to_the_next_read() -> None:
    """An entry before the horizon is taken in at once."""
    prefix: Prefix[int] = Prefix(4, is_complete=False)
    prefix.ask()
    prefix.answer([(10, 10), (20, 20)], 2)
    prefix.offer(30, 30)
    prefix.offer(15, 15)
    assert drained(prefix) == [10, 15, 20]
    assert prefix.ask() == 20, "it reads on behind the last one that it read"
    prefix.answer([(30, 30)], 2)
    assert drained(prefix) == [30]


def test_more_are_wanted_when_a_quarter_remains() -> None:
    """Before the last one is taken, so that nobody waits for the read."""
    prefix: Prefix[int] = Prefix(8, is_complete=False)
    prefix.ask()
    prefix.answer([(key, key) for key in range(8)], 8)
    wanted = []
    while prefix.pop() is not None:
        wanted.append(prefix.wants_more)
    assert wanted == [False] * 5 + [True] * 3


def test_what_comes_while_a_read_is_under_way_is_not_lost() -> None:
    """The read was written before it came, so the answer cannot hold it."""
    prefix: Prefix[int] = Prefix(4, is_complete=False)
    prefix.ask()
    prefix.offer(5, 5)
    prefix.answer([(1, 1)], 2)
    assert drained(prefix) == [1, 5]


def test_what_was_read_is_where_a_member_stands() -> None:
    """It was offered with a later key meanwhile, but the store had it already and keeps its place."""
    prefix: Prefix[int] = Prefix(4, is_complete=False)
    prefix.ask()
    prefix.offer(9, 1)
    prefix.answer([(1, 1), (2, 2)], 2)
    assert drained(prefix) == [1, 2]


def test_what_goes_while_a_read_is_under_way_is_not_brought_back() -> None:
    """The answer has it still; unless it came again after it went."""
    prefix: Prefix[int] = Prefix(4, is_complete=False)
    prefix.ask()
    prefix.discard(1)
    prefix.discard(2)
    prefix.offer(9, 2)
    prefix.answer([(1, 1), (2, 2), (3, 3)], 4)
    assert drained(prefix) == [2, 3]


def test_too_many_members_are_cut_to_the_first_ones() -> None:
    """Beyond twice the bound, down to it; the others are rows, and are read when few remain."""
    keys = {key: key for key in range(9)}
    prefix = filled(4, keys)
    assert len(prefix) == 4
    assert drained(prefix) == [0, 1, 2, 3]
    prefix.answer(behind(keys, prefix.ask(), 10), 10)
    assert drained(prefix) == [4, 5, 6, 7, 8]


def test_a_cut_waits_for_the_read_that_is_under_way() -> None:
    """The read began behind the old horizon: what a cut gave up before that would be lost between the two."""
    keys = {key: key for key in (100, 101, 102)}
    prefix: Prefix[int] = Prefix(2, is_complete=False)
    prefix.ask()
    prefix.answer(behind(keys, None, 1), 1)
    answer = behind(keys, prefix.ask(), 5)
    for key in (50, 51, 52, 53):
        prefix.offer(key, key)
    members = [prefix.pop(), prefix.pop()]
    prefix.answer(answer, 5)
    keys |= {52: 52, 53: 53}
    assert members == [(50, 50), (51, 51)]
    assert drained(prefix) + [key for key, _ in behind(keys, prefix.ask(), 5)] == sorted(keys)


class PrefixModel(RuleBasedStateMachine):
    """A prefix over a sorted list whose reads are answered later, as they saw the list when they were asked."""

    def __init__(self) -> None:
        super().__init__()
        self.keys: dict[int, int] = {}
        self.answer: list[tuple[int, int]] | None = None
        self.number = 0

    @initialize(most=st.integers(1, 5), limit=st.integers(1, 4), stored=st.integers(0, 12))
    def begin(self, most: int, limit: int, stored: int) -> None:
        self.most, self.limit = most, limit
        self.prefix: Prefix[int] = Prefix(most, is_complete=not stored)
        for _ in range(stored):
            self.number += 10
            self.keys[self.number] = self.number

    @rule(low=st.integers(0, 60), rises=st.booleans())
    def come(self, low: int, rises: bool) -> None:
        """A new member, mostly behind all others, sometimes among them."""
        self.number += 10
        key = self.number if rises else low * 10 + self.number % 97 % 9 + 1
        if key not in self.keys.values():
            self.keys[self.number] = key
            self.prefix.offer(key, self.number)

    @precondition(lambda self: self.keys and self.answer is None)
    @rule(data=st.data(), low=st.integers(0, 60))
    def move(self, data: st.DataObject, low: int) -> None:
        """A member gets another key."""
        member = data.draw(st.sampled_from(sorted(self.keys)))
        if low * 10 + 5 not in self.keys.values():
            self.keys[member] = low * 10 + 5
            self.prefix.offer(low * 10 + 5, member)

    @precondition(lambda self: self.keys)
    @rule(data=st.data())
    def come_again(self, data: st.DataObject) -> None:
        """A member that is not in memory is taken for a new one; the store has it, and keeps its key."""
        member = data.draw(st.sampled_from(sorted(self.keys)))
        if member not in self.prefix:
            self.number = max(self.number, *self.keys.values()) + 10
            self.prefix.offer(self.number, member)

    @precondition(lambda self: self.keys)
    @rule(data=st.data())
    def go(self, data: st.DataObject) -> None:
        member = data.draw(st.sampled_from(sorted(self.keys)))
        del self.keys[member]
        self.prefix.discard(member)

    @rule()
    def pop(self) -> None:
        entry = self.prefix.pop()
        if entry is not None:
            assert entry == min((key, member) for member, key in self.keys.items())
            del self.keys[entry[1]]

    @precondition(lambda self: self.prefix.wants_more)
    @rule()
    def ask(self) -> None:
        self.answer = behind(self.keys, self.prefix.ask(), self.limit)

    @precondition(lambda self: self.answer is not None)
    @rule()
    def read(self) -> None:
        assert self.answer is not None
        self.prefix.answer(self.answer, self.limit)
        self.answer = None

    @invariant()
    def the_first_is_the_first_of_all(self) -> None:
        if not hasattr(self, "prefix"):
            return
        first = self.prefix.first()
        if first is not None:
            assert first == min((key, member) for member, key in self.keys.items())
        elif self.keys:
            assert self.prefix.may_have_any, "what is in the store will be read"

    @invariant()
    def memory_is_bounded(self) -> None:
        if hasattr(self, "prefix") and self.answer is None:
            assert len(self.prefix) <= 2 * self.most + self.limit

    def teardown(self) -> None:
        """At the end everything comes, in order."""
        if not hasattr(self, "prefix"):
            return
        if self.answer is not None:
            self.read()
        expected = [member for _, member in sorted((key, member) for member, key in self.keys.items())]
        came = []
        for _ in range(1000):
            came += drained(self.prefix)
            if not self.prefix.may_have_any:
                break
            assert self.prefix.wants_more
            self.prefix.answer(behind(self.keys, self.prefix.ask(), self.limit), self.limit)
        assert came == expected


TestPrefixModel = PrefixModel.TestCase
TestPrefixModel.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)


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


def line_of_a() -> ReadyList:
    return ReadyList(Gate(2, GateKey("a.test"), Politeness()), GateHeap())


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
    outbox.questions_asked()
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
