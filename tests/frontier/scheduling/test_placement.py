"""Lanes come into memory when their heads are asked for, stand in line, and leave when nothing of them is left."""

from __future__ import annotations

from anabranch.frontier.fingerprints import name_id
from anabranch.frontier.models import GateKey
from anabranch.frontier.outbox import LANES_AT_ONCE, Outbox
from anabranch.frontier.scheduling.lifecycle import QueueState
from anabranch.frontier.scheduling.placement import ASKED_AT_LEAST, Placement
from anabranch.frontier.scheduling.workqueues import Lane, Place
from anabranch.frontier.stores.messages import GateRead, GateRow, GatesRead, LaneRow, LanesRead, Standing
from anabranch.frontier.turns import turn_of
from tests.frontier.builder import HASTE, build, head

HOST = GateKey("a.test")
GATE = name_id(HOST)


class Yard(Placement):
    """Lanes at the gate of one host, whose row was read with these lanes: by queue, one after another."""

    def __init__(
        self, lanes: int = 0, *, slots: int = 1, precedences: tuple[int, ...] = (), gates: int = 100, **order: object
    ) -> None:
        rig = build(politeness=HASTE, **order)
        self.outbox = Outbox(0)
        super().__init__(self.outbox, rig.schedule.window.maker, rig.parts.rules, gates)
        self.window.stored.more = False
        self.line = self.window.load(GATE, HOST)
        self.line.gate.set_slots(slots)
        turns = [turn_of(precedence, number) for number, precedence in enumerate(precedences or (3,) * lanes, start=1)]
        rows = [LaneRow(queue, GATE, turn, 1, 0) for queue, turn in enumerate(turns, start=1)]
        row = GateRow(GATE, HOST, 0.0, 0.0, 0.0, 0.0, 0.0, 0, 0.0, slots)
        self.window.gates_read(GatesRead([GateRead(row, rows)], GATE, None), 1000.0)
        self.outbox.questions_asked()

    def asked_for(self) -> list[int]:
        """The queues whose heads were asked for, in order."""
        return [lane.queue.id for lane in self.outbox.heads]

    def loaded(self, heads: int = 2) -> Lane:
        """The lane of the first queue, with so many heads; the store had no more."""
        assert self.activate(self.line)
        lane = self.line.lanes[1]
        self.bring(lane, heads)
        return lane

    def bring(self, lane: Lane, heads: int) -> None:
        """The store answers."""
        assert lane.answer([head(number) for number in range(1, heads + 1)])
        self.answered(lane)
        self.place(lane)


def test_lanes_come_by_their_turn_as_many_as_the_gate_can_use() -> None:
    """Twice what it serves at once, one more while it serves; the others stay ids."""
    for slots, wanted in ((1, [1, 2]), (3, [1, 2])):
        yard = Yard(9, slots=slots)
        assert yard.activate(yard.line)
        assert yard.asked_for() == wanted
        assert (yard.asked, yard.line.active, len(yard.line.waiting)) == (2, 2, 7)
        assert yard.activate(yard.line)
        assert yard.asked == 2, "they are on their way"
    yard = Yard(9, slots=5)
    yard.line.gate.out = 2
    yard.activate(yard.line)
    assert yard.asked_for() == [1, 2, 3, 4]


def test_lanes_of_a_better_queue_come_first_and_those_at_the_floor_never() -> None:
    """Whoever came first; a queue at the floor waits for another precedence."""
    yard = Yard(precedences=(9, 4, 2), precedence_floor=9, slots=9)
    yard.line.gate.out = 4
    assert yard.activate(yard.line)
    assert yard.asked_for() == [3, 2]
    assert len(yard.line.waiting) == 1


def test_the_store_is_asked_for_no_more_than_the_leases_out_justify() -> None:
    """The gate keeps its lanes, and is told that the store has enough to do."""
    yard = Yard(2)
    yard.asked = ASKED_AT_LEAST
    assert not yard.activate(yard.line)
    assert (yard.asked_for(), len(yard.line.waiting)) == ([], 2)
    yard.out = 1  # two more
    assert yard.activate(yard.line)
    assert yard.asked_for() == [1, 2]


def test_a_queue_that_may_not_be_served_is_passed_over() -> None:
    """Its lane is a row; the next one comes."""
    yard = Yard(3)
    yard.index.take_up(1).standing = Standing.PAUSED
    yard.activate(yard.line)
    assert yard.asked_for() == [2, 3]


def test_more_lanes_are_asked_for_when_few_remain() -> None:
    """Behind the last one that was read, once."""
    yard = Yard(LANES_AT_ONCE)
    yard.activate(yard.line)
    assert yard.outbox.lanes == [(yard.line, turn_of(3, LANES_AT_ONCE))]
    yard.activate(yard.line)
    assert len(yard.outbox.lanes) == 1
    complete = Yard(LANES_AT_ONCE - 1)
    complete.activate(complete.line)
    assert complete.outbox.lanes == []


def test_lanes_that_are_read_later_stand_in_line_unless_they_are_in_memory() -> None:
    """A lane is served from one place: its window, or its id in the line."""
    yard = Yard(LANES_AT_ONCE)
    yard.activate(yard.line)
    rows = [LaneRow(queue, GATE, turn_of(3, queue + 100), 1, 0) for queue in (1, 50)]
    yard.lanes_read(yard.line, LanesRead(GATE, rows), 500)
    assert (1 in yard.line.waiting, 50 in yard.line.waiting, yard.line.waiting.is_complete) == (False, True, True)


def test_a_lane_with_heads_stands_behind_those_of_its_precedence() -> None:
    """Better queues go first, equals take turns; to be placed again where it stands is to keep its turn."""
    yard = Yard(3, slots=9)
    yard.line.gate.out = 4
    yard.activate(yard.line)
    lanes = [yard.line.lanes[queue] for queue in (1, 2, 3)]
    for lane, precedence in zip(lanes, (5, 3, 3), strict=True):
        lane.queue.precedence = precedence
        yard.bring(lane, 1)
    yard.place(lanes[1])
    assert [lane.place for lane in lanes] == [Place.READY] * 3
    assert yard.index.states[QueueState.READY] == 3
    assert [yard.line.best() for _ in range(4)] == [lanes[1], lanes[2], lanes[0], None]


def test_a_lane_that_was_taken_out_of_line_is_not_served() -> None:
    """Until it is placed again, once, behind the others."""
    yard = Yard(2)
    first, second = yard.loaded(), yard.line.lanes[2]
    yard.bring(second, 1)
    yard.unplace(first)
    assert (first.place, yard.line.active) == (Place.NOWHERE, 1)
    for _ in range(2):
        yard.place(first)
    assert (first.place, yard.line.active) == (Place.READY, 2)
    assert [yard.line.best() for _ in range(3)] == [second, first, None]


def test_a_parked_lane_that_is_taken_out_of_line_is_not_called_back() -> None:
    """Its queue forgets it."""
    yard = Yard(1)
    lane = yard.loaded()
    lane.queue.out = 1
    assert yard.line.best() is None
    assert (lane.place, lane.queue.parked) == (Place.PARKED, [lane])
    yard.unplace(lane)
    assert (lane.place, lane.queue.parked) == (Place.NOWHERE, [])


def test_a_lane_without_heads_whose_store_has_more_is_an_id_again() -> None:
    """Its object goes, its queue with it; its turn is kept."""
    yard = Yard(1)
    lane = yard.loaded()
    lane.drop_all()  # better rows came, say
    yard.place(lane)
    assert (lane.is_dropped, yard.line.lanes, len(yard.index)) == (True, {}, 0)
    assert yard.line.waiting.first() == (turn_of(3, 1), 1)
    assert yard.outbox.batch.removed == []


def test_a_lane_of_which_nothing_is_left_goes_and_its_row_may_too() -> None:
    """The store deletes it if it counts nothing; the gate is idle."""
    yard = Yard(1)
    lane = yard.loaded(heads=0)
    assert (lane.is_dropped, yard.line.lanes, len(yard.index), yard.line.has_work) == (True, {}, 0, False)
    assert yard.outbox.batch.removed == [(1, GATE)]
    assert yard.asked == 0


def test_a_lane_stays_while_a_lease_is_out() -> None:
    """Whoever finishes must find it; nothing of it is served meanwhile."""
    yard = Yard(1)
    lane = yard.loaded(heads=1)
    lane.take()
    yard.place(lane)
    assert (lane.place, lane.is_dropped, yard.line.lanes) == (Place.NOWHERE, False, {1: lane})
    yard.drop(lane)
    assert yard.line.lanes == {1: lane}
    lane.leased.clear()
    yard.drop(lane)
    assert (lane.is_dropped, yard.line.lanes) == (True, {})


def test_a_lane_that_is_dropped_waits_for_no_answer() -> None:
    """What comes for it later is not its own; heads in memory are rows again."""
    yard = Yard(2)
    lane, asked = yard.loaded(), yard.line.lanes[2]
    yard.drop(lane)
    yard.drop(asked)
    assert (yard.asked, yard.line.active, yard.line.lanes, len(yard.index)) == (0, 0, {}, 0)
    assert not asked.answer([head(1)])
    assert yard.line.best() is None
    assert yard.outbox.batch.removed == [], "they have rows"


def test_rows_that_are_no_more_leave_their_windows() -> None:
    """An answer under way may hold them: it is not waited for, and the lane asked for anew when its turn comes."""
    yard = Yard(2)
    lane, asked = yard.loaded(), yard.line.lanes[2]
    yard.drop_rows(yard.line, {1})
    assert [some.row.ordinal for some in lane.window] == [2]
    assert (asked.is_dropped, yard.asked, 2 in yard.line.waiting) == (True, 0, True)
    yard.drop_rows(yard.line, {2})
    assert (lane.is_dropped, yard.outbox.batch.removed) == (True, [(1, GATE)])


def test_a_group_counts_what_is_on_its_way_for_its_hosts() -> None:
    """However the waiting ends: by an answer, or by none."""
    yard = Yard(3, group={"a.test": "one"})
    group = yard.line.group
    assert group is not None
    yard.activate(yard.line)
    assert group.asked == yard.asked == 2
    yard.bring(yard.line.lanes[1], 1)
    assert group.asked == yard.asked == 1
    yard.forget_answer(yard.line.lanes[2])
    yard.forget_answer(yard.line.lanes[1])  # nothing is on its way for it
    assert group.asked == yard.asked == 0


def test_a_queue_that_spent_something_is_written_when_it_leaves() -> None:
    """With the batch of the call that let it go."""
    yard = Yard(1)
    lane = yard.loaded(heads=1)
    lane.queue.spent, lane.queue.unsaved = 5, 1
    yard.drop(lane)
    assert [(row.id, row.spent) for row in yard.outbox.batch.queues] == [(1, 5)]


def test_a_line_whose_last_lane_has_gone_gives_its_place_to_another_gate() -> None:
    """Not before: what has something to serve stays."""
    yard = Yard(1, gates=1)
    other = GateKey("b.test")
    assert yard.window.admit(name_id(other), other) is None
    yard.loaded(heads=0)
    assert yard.window.admit(name_id(other), other) is not None
    assert yard.window.get(GATE) is None
