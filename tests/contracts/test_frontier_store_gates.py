"""Rules about lanes, gates and standings that every store of the Frontier keeps."""

import math

import pytest

from anabranch.frontier.records import Row, turn_of
from anabranch.frontier.stores.contract import (
    Announced,
    Counters,
    GateRead,
    GatesRead,
    LaneId,
    LaneRow,
    LeftGate,
    Moved,
    Standing,
)
from tests.frontier.stores.rows import (
    A_LANE,
    NOW_S,
    OTHER_LANE,
    Teller,
    done,
    gate_row,
    lane,
    pages,
    queue_row,
    row,
    served_again,
    synced,
    waiting,
)

QUEUE, GATE = A_LANE


def many(teller: Teller, lanes: list[LaneId], turns: list[int]) -> list[Row]:
    """One row in each lane; the lanes' turns have these arrivals."""
    first = teller.last_number + 1
    rows = [row(ordinal, lane=found) for ordinal, found in enumerate(lanes, start=first)]
    teller.say(rows, turns={found: turn_of(3, turn) for found, turn in zip(lanes, turns, strict=True)})
    return rows


def gates_in_order(teller: Teller, number: int) -> list[LaneId]:
    """So many lanes of one queue at gates that are not held, whose turns rise."""
    lanes = [lane("one", f"gate {place}") for place in range(number)]
    many(teller, lanes, list(range(1, number + 1)))
    teller.say(woken=[(gate, turn_of(3, place)) for place, (_, gate) in enumerate(lanes, start=1)])
    return lanes


def totals(teller: Teller) -> tuple[int, int]:
    """Rows in retired and in paused queues, as the last `Synced` says and as they are counted."""
    teller.say()
    told, counted = synced(teller.answers())[-1], teller.store.counters()
    assert (told.retired, told.paused) == (counted.retired, counted.paused)
    return told.retired, told.paused


# Lanes in line at a gate


def test_lanes_stand_at_their_gate_by_turn(teller: Teller) -> None:
    """Whatever the order in which they were said; only those of this gate."""
    lanes = [lane(f"queue {number}", "a.test") for number in range(5)]
    many(teller, [*lanes, OTHER_LANE], [5, 2, 4, 1, 3, 0])
    assert [(found.queue, found.turn) for found in teller.line(GATE)] == [
        (lanes[place][0], turn_of(3, turn)) for place, turn in ((3, 1), (1, 2), (4, 3), (2, 4), (0, 5))
    ]


def test_a_smaller_queue_precedence_stands_before_an_earlier_arrival(teller: Teller) -> None:
    """A turn is precedence, then arrival."""
    first, second = lane("one", "a.test"), lane("two", "a.test")
    teller.say([row(1, lane=first), row(2, lane=second)], turns={first: turn_of(5, 1), second: turn_of(2, 9)})
    assert [found.queue for found in teller.line(GATE)] == [second[0], first[0]]


def test_lanes_are_read_behind_a_turn(teller: Teller) -> None:
    """Page by page; fewer than the limit means that there are no more."""
    lanes = [lane(f"queue {number}", "a.test") for number in range(7)]
    many(teller, lanes, [3, 7, 1, 5, 2, 6, 4])
    assert len(teller.line(GATE, limit=3)) == 3
    listed = list(pages(lambda after: teller.line(GATE, after, 3), lambda found: found.turn))
    assert [found.turn for found in listed] == [turn_of(3, turn) for turn in range(1, 8)]
    assert teller.line(GATE, turn_of(3, 7)) == []
    assert [found.turn for found in teller.line(GATE, turn_of(2, 99), 1)] == [turn_of(3, 1)]


def test_a_lane_counts_its_rows_and_those_that_wait(teller: Teller) -> None:
    """Through new rows, moves there and back, and ends; a lane of which all rows wait stands in no line."""
    rows, turn = [row(1), row(2)], turn_of(3, 7)
    teller.say(rows, turns={A_LANE: turn})
    away = waiting(rows[0], NOW_S)
    teller.say(moved=[Moved(rows[0], away)])
    assert teller.line(GATE) == [LaneRow(*A_LANE, turn, 2, 1)]
    teller.say(ended=[done(rows[1])])
    assert teller.line(GATE) == []
    assert teller.store.lanes(QUEUE, None, 9) == [LaneRow(*A_LANE, turn, 1, 1)]
    teller.say(moved=[Moved(away, served_again(away))])
    assert teller.line(GATE) == [LaneRow(*A_LANE, turn, 1, 0)]
    teller.say(ended=[done(served_again(away))])
    assert (teller.line(GATE), teller.store.lanes(QUEUE, None, 9)) == ([], [])


def test_a_duplicate_counts_in_no_lane(teller: Teller) -> None:
    """Not even in one that was announced for it."""
    teller.say([row(1, "u"), row(2, "u"), row(3, "u", lane=OTHER_LANE)])
    assert [found.count for found in teller.line(GATE)] == [1]
    assert teller.line(OTHER_LANE[1]) == []


def test_an_announced_lane_that_is_servable_keeps_its_turn(teller: Teller) -> None:
    """Newcomers do not push a lane that waits for its turn behind."""
    teller.say([row(1)], turns={A_LANE: turn_of(3, 1)})
    teller.say([row(2)], turns={A_LANE: turn_of(3, 9)})
    assert teller.line(GATE) == [LaneRow(*A_LANE, turn_of(3, 1), 2, 0)]


@pytest.mark.parametrize("why", ["it is empty", "all its rows wait", "its queue is paused"])
def test_an_announced_lane_that_is_not_servable_takes_the_turn(teller: Teller, why: str) -> None:
    """It has no place in the line that it could keep."""
    teller.say([row(1)], turns={A_LANE: turn_of(3, 1)})
    if why == "it is empty":
        teller.say(ended=[done(row(1))])
    elif why == "all its rows wait":
        teller.say(moved=[Moved(row(1), waiting(row(1), NOW_S))])
    else:
        teller.say(standings=[(QUEUE, Standing.PAUSED)])
    teller.say([row(2)], turns={A_LANE: turn_of(3, 9)})
    teller.say(standings=[(QUEUE, Standing.OPEN)])
    assert [found.turn for found in teller.line(GATE)] == [turn_of(3, 9)]


def test_a_lane_that_is_said_to_have_another_turn_has_it(teller: Teller) -> None:
    """Forwards and backwards, servable or not; an unknown lane is ignored."""
    lanes = [lane(f"queue {number}", "a.test") for number in range(3)]
    rows = many(teller, lanes, [1, 2, 3])
    teller.change_turns({lanes[0]: turn_of(3, 9), lanes[2]: turn_of(1, 3), OTHER_LANE: turn_of(3, 1)})
    assert [found.queue for found in teller.line(GATE)] == [lanes[2][0], lanes[1][0], lanes[0][0]]
    assert teller.line(OTHER_LANE[1]) == []
    teller.say(ended=[done(rows[1])])
    teller.change_turns({lanes[1]: turn_of(0, 1)})
    teller.say([row(9, lane=lanes[1])])
    assert [found.queue for found in teller.line(GATE)] == [lanes[1][0], lanes[2][0], lanes[0][0]]


def test_a_lane_is_removed_only_if_it_counts_nothing(teller: Teller) -> None:
    """Rows that came in the meantime are never lost; a lane that was removed can be announced again."""
    teller.say([row(1), row(2, lane=OTHER_LANE)], turns={A_LANE: turn_of(3, 1), OTHER_LANE: turn_of(3, 2)})
    teller.say(ended=[done(row(1))], removed=[A_LANE, OTHER_LANE])
    assert [found.count for found in teller.line(OTHER_LANE[1])] == [1]
    teller.say([row(3)], turns={A_LANE: turn_of(3, 5)})
    assert teller.line(GATE) == [LaneRow(*A_LANE, turn_of(3, 5), 1, 0)]
    assert teller.heads() == [3]


# One gate


def test_a_gate_that_is_asked_for_is_made(teller: Teller) -> None:
    """With nothing known of it, and no lanes."""
    assert teller.take_gate(GATE) == GateRead(gate_row(GATE), [])
    assert teller.store.gate(GATE) == gate_row(GATE)
    assert teller.store.gate(OTHER_LANE[1]) is None


def test_a_gate_that_was_named_has_a_row(teller: Teller) -> None:
    """A name for a known one leaves it as it is."""
    teller.say([row(1)])
    assert teller.store.gate(GATE) == gate_row(GATE)
    teller.say(gates=[gate_row(GATE, spacing_s=2.5)])
    teller.say([row(2)], turns={A_LANE: turn_of(3, 9)})
    assert teller.store.gate(GATE) == gate_row(GATE, spacing_s=2.5)


def test_a_gate_is_as_it_was_last_written(teller: Teller) -> None:
    """Each column; a block without end too."""
    facts = {"rests_until_s": 1.5, "blocked_until_s": math.inf, "spacing_s": 2.5, "last_rest_s": 3.5, "slots": 4}
    trouble = {"throttle_s": 4.5, "troubles": 7, "troubled_s": 5.5}
    teller.say(gates=[gate_row(GATE, rests_until_s=9.0)])
    teller.say(gates=[gate_row(GATE, **facts, **trouble)])
    assert teller.store.gate(GATE) == gate_row(GATE, **facts, **trouble)
    assert teller.take_gate(GATE).row == gate_row(GATE, **facts, **trouble)


def test_a_gate_comes_with_the_first_of_its_lanes(teller: Teller) -> None:
    """It comes with as many lanes as were asked for, by turn."""
    many(teller, [lane(f"queue {number}", "a.test") for number in range(4)], [3, 1, 4, 2])
    assert [found.turn for found in teller.take_gate(GATE, lanes=3).lanes] == [turn_of(3, turn) for turn in (1, 2, 3)]


# Gates that are not held


def test_gates_come_by_turn_and_only_once(teller: Teller) -> None:
    """No more than were asked for; what is held is not handed out again."""
    lanes = gates_in_order(teller, 5)
    assert teller.holds(limit=2) == [gate for _, gate in lanes[:2]]
    assert teller.holds() == [gate for _, gate in lanes[2:]]
    assert teller.holds() == []


def test_gates_come_with_their_rows_and_first_lanes(teller: Teller) -> None:
    """Each of them reads as `ask_gate` reads it alone."""
    teller.say([row(1)], turns={A_LANE: turn_of(3, 1)}, gates=[gate_row(GATE, spacing_s=2.0)])
    teller.say([row(2, lane=lane("queue 9", "a.test"))], turns={lane("queue 9", "a.test"): turn_of(3, 2)})
    teller.say(woken=[(GATE, turn_of(3, 1))])
    first = GateRead(gate_row(GATE, spacing_s=2.0), [LaneRow(*A_LANE, turn_of(3, 1), 1, 0)])
    assert teller.take_gates(lanes=1) == GatesRead([first], None, None)


def test_a_gate_without_a_turn_is_not_handed_out(teller: Teller) -> None:
    """Nobody said that there is something to serve."""
    teller.say([row(1)])
    assert teller.holds() == []


def test_a_woken_gate_has_the_smallest_turn_that_was_said(teller: Teller) -> None:
    """A later one does not put it back; an unknown gate is ignored."""
    many(teller, [A_LANE, OTHER_LANE], [1, 2])
    teller.say(woken=[(GATE, turn_of(3, 5)), (OTHER_LANE[1], turn_of(3, 2))])
    teller.say(woken=[(GATE, turn_of(3, 1)), (4711, turn_of(3, 0))])
    teller.say(woken=[(GATE, turn_of(3, 9))])
    assert teller.holds() == [GATE, OTHER_LANE[1]]


def test_a_gate_that_is_held_cannot_be_woken(teller: Teller) -> None:
    """Its owner serves it from memory."""
    many(teller, [A_LANE], [1])
    teller.take_gate(GATE)
    teller.say(woken=[(GATE, turn_of(3, 1))])
    assert teller.holds() == []
    teller.say(left=[LeftGate(GATE, None, None)])
    assert teller.holds() == []


def test_a_gate_that_leaves_comes_again_with_its_turn(teller: Teller) -> None:
    """The turn is the one that it leaves with."""
    lanes = gates_in_order(teller, 3)
    teller.holds()
    turns = [turn_of(3, 7), turn_of(3, 5), turn_of(3, 6)]
    teller.say(left=[LeftGate(gate, turn, None) for (_, gate), turn in zip(lanes, turns, strict=True)])
    assert teller.holds() == [lanes[place][1] for place in (1, 2, 0)]


def test_a_gate_that_leaves_and_is_woken_at_once_can_be_served(teller: Teller) -> None:
    """Within one batch it leaves first."""
    many(teller, [A_LANE], [1])
    teller.take_gate(GATE)
    teller.say(left=[LeftGate(GATE, None, None)], woken=[(GATE, turn_of(3, 1))])
    assert teller.holds() == [GATE]


def test_a_closed_gate_waits_for_its_time(teller: Teller) -> None:
    """Then it counts with its turn; until then the answer says when the next one opens."""
    lanes = gates_in_order(teller, 4)
    gates = [gate for _, gate in lanes]
    teller.holds()
    times = [NOW_S + 20, NOW_S + 10, None, None]
    turns = [turn_of(3, place) for place in range(1, 5)]
    teller.say(left=[LeftGate(*facts) for facts in zip(gates, turns, times, strict=True)])
    first = teller.take_gates(NOW_S, limit=1)
    assert ([gate.row.id for gate in first.gates], first.wakes_s) == ([gates[2]], NOW_S + 10)
    second = teller.take_gates(NOW_S + 10)
    assert ([gate.row.id for gate in second.gates], second.wakes_s) == ([gates[1], gates[3]], NOW_S + 20)
    third = teller.take_gates(NOW_S + 25)
    assert ([gate.row.id for gate in third.gates], third.wakes_s) == ([gates[0]], None)


def test_an_open_gate_that_found_no_room_is_no_reason_to_wake(teller: Teller) -> None:
    """`wakes_s` is about gates that are closed now."""
    lanes = gates_in_order(teller, 2)
    teller.holds()
    teller.say(left=[LeftGate(gate, turn_of(3, place), NOW_S + place) for place, (_, gate) in enumerate(lanes)])
    read = teller.take_gates(NOW_S + 9, limit=1)
    assert ([gate.row.id for gate in read.gates], read.wakes_s) == ([lanes[0][1]], None)
    assert teller.holds(NOW_S + 9) == [lanes[1][1]]


def test_a_closed_gate_that_is_woken_stays_closed(teller: Teller) -> None:
    """Only its turn may get smaller."""
    many(teller, [A_LANE, OTHER_LANE], [5, 2])
    teller.take_gate(GATE)
    teller.say(left=[LeftGate(GATE, turn_of(3, 5), NOW_S + 10)], woken=[(OTHER_LANE[1], turn_of(3, 2))])
    teller.say(woken=[(GATE, turn_of(3, 1))])
    assert teller.take_gates(NOW_S, limit=0).wakes_s == NOW_S + 10
    assert teller.holds(NOW_S + 10) == [GATE, OTHER_LANE[1]]


def test_a_closed_gate_can_be_asked_for(teller: Teller) -> None:
    """`ask_gate` takes it whatever its state, and then nothing remains to open."""
    many(teller, [A_LANE], [1])
    teller.take_gate(GATE)
    teller.say(left=[LeftGate(GATE, turn_of(3, 1), NOW_S + 10)])
    assert teller.take_gate(GATE).lanes == [LaneRow(*A_LANE, turn_of(3, 1), 1, 0)]
    assert teller.take_gates(NOW_S + 20) == GatesRead([], None, None)


def test_a_gate_that_lost_all_it_had_is_passed_over(teller: Teller) -> None:
    """It neither comes nor takes a place that another could have."""
    lanes = gates_in_order(teller, 3)
    rows = [row(place, lane=found) for place, found in enumerate(lanes, start=1)]
    teller.say(ended=[done(rows[0])], moved=[Moved(rows[1], waiting(rows[1], NOW_S))])
    assert teller.holds(limit=1) == [lanes[2][1]]
    teller.say(moved=[Moved(waiting(rows[1], NOW_S), rows[1])], woken=[(lanes[1][1], turn_of(3, 2))])
    assert teller.holds() == [lanes[1][1]]


# Standings


@pytest.mark.parametrize("standing", [Standing.PAUSED, Standing.RETIRED])
def test_a_queue_that_is_not_open_serves_nothing(teller: Teller, standing: Standing) -> None:
    """None of its lanes stands in line, and no gate is handed out for them; lanes of others are."""
    lanes = [A_LANE, (QUEUE, OTHER_LANE[1]), OTHER_LANE]
    many(teller, lanes, [1, 2, 3])
    teller.say(woken=[(GATE, turn_of(3, 1)), (OTHER_LANE[1], turn_of(3, 2))])
    teller.say(standings=[(QUEUE, standing)])
    assert teller.line(GATE) == []
    assert [found.queue for found in teller.line(OTHER_LANE[1])] == [OTHER_LANE[0]]
    assert teller.holds(limit=1) == [OTHER_LANE[1]]
    assert teller.holds() == []
    facts = teller.store.queue(QUEUE)
    assert facts is not None
    assert (facts.row.standing, facts.count) == (standing, 2)
    assert teller.heads() == [1]


def test_rows_of_queues_that_are_not_open_are_counted(teller: Teller) -> None:
    """New ones, ended ones, waiting ones, in lanes that are new too; and they go from one count to the other."""
    teller.say([row(1), row(2), row(3, lane=OTHER_LANE)])
    assert totals(teller) == (0, 0)
    teller.say(standings=[(QUEUE, Standing.PAUSED)])
    assert totals(teller) == (0, 2)
    teller.say([row(4), row(5, lane=(QUEUE, OTHER_LANE[1])), row(6, lane=OTHER_LANE)])
    assert totals(teller) == (0, 4)
    teller.say(ended=[done(row(1)), done(row(3, lane=OTHER_LANE))], moved=[Moved(row(2), waiting(row(2), NOW_S))])
    assert totals(teller) == (0, 3)
    teller.say(standings=[(QUEUE, Standing.RETIRED)])
    assert totals(teller) == (3, 0)
    teller.say(standings=[(QUEUE, Standing.OPEN)])
    assert totals(teller) == (0, 0)
    assert teller.store.counters() == Counters(last_ordinal=6, queued=4, done=2, waiting=1, queues=2)


def test_a_standing_changes_after_the_rows_of_its_batch(teller: Teller) -> None:
    """Rows that a batch adds and ends are counted under the new standing, even if it is written twice."""
    teller.say([row(1), row(2)], standings=[(QUEUE, Standing.RETIRED)])
    assert totals(teller) == (2, 0)
    teller.say([row(3)], ended=[done(row(1))], standings=[(QUEUE, Standing.PAUSED), (QUEUE, Standing.PAUSED)])
    assert totals(teller) == (0, 2)
    teller.say([row(4)], standings=[(QUEUE, Standing.OPEN)])
    assert totals(teller) == (0, 0)
    assert [found.count for found in teller.line(GATE)] == [3]


def test_a_standing_is_only_changed_by_saying_so(teller: Teller) -> None:
    """A queue's row says it too, and is not believed; an unknown queue has none."""
    teller.say([row(1)], standings=[(QUEUE, Standing.PAUSED), (OTHER_LANE[0], Standing.PAUSED)])
    teller.say(queues=[queue_row(QUEUE, spent=5)])
    facts = teller.store.queue(QUEUE)
    assert facts is not None
    assert facts.row == queue_row(QUEUE, spent=5, standing=Standing.PAUSED)
    teller.say(queues=[queue_row(OTHER_LANE[0], standing=Standing.RETIRED)])
    other = teller.store.queue(OTHER_LANE[0])
    assert other is not None
    assert other.row.standing is Standing.OPEN


def test_a_queue_that_opens_wakes_its_gates(teller: Teller) -> None:
    """Each gets the smallest turn of its servable lanes; a gate that is held does not."""
    held, other = lane("queue 1", "held.test"), lane("queue 3", "a.test")
    lanes = [A_LANE, other, held, OTHER_LANE, (QUEUE, OTHER_LANE[1])]
    teller.say(queue_names=[(QUEUE, queue_row(QUEUE).key, 3)])
    teller.say(standings=[(QUEUE, Standing.RETIRED)])
    many(teller, lanes, [6, 4, 1, 9, 5])
    teller.take_gate(held[1])
    assert teller.holds() == []
    teller.say(standings=[(QUEUE, Standing.OPEN)])
    assert teller.holds() == [GATE, OTHER_LANE[1]]
    assert [found.turn for found in teller.line(GATE)] == [turn_of(3, 4), turn_of(3, 6)]


def test_a_queue_that_opens_wakes_a_gate_that_leaves_in_the_same_batch(teller: Teller) -> None:
    """The core let it go because it had nothing to serve; no wake-up is lost between the two."""
    many(teller, [A_LANE], [1])
    teller.take_gate(GATE)
    teller.say(standings=[(QUEUE, Standing.PAUSED)])
    teller.say(left=[LeftGate(GATE, None, None)], standings=[(QUEUE, Standing.OPEN)])
    assert teller.holds() == [GATE]


def test_a_queue_that_opens_without_rows_to_serve_wakes_nothing(teller: Teller) -> None:
    """Empty lanes and lanes of which all rows wait have no turn to give."""
    rows = many(teller, [A_LANE, (QUEUE, OTHER_LANE[1])], [1, 2])
    teller.say(standings=[(QUEUE, Standing.PAUSED)])
    teller.say(ended=[done(rows[0])], moved=[Moved(rows[1], waiting(rows[1], NOW_S))])
    teller.say(standings=[(QUEUE, Standing.OPEN)])
    assert teller.holds() == []


def test_a_closed_gate_stays_closed_when_a_queue_opens(teller: Teller) -> None:
    """Opening a queue is no reason to fetch from a host too early."""
    many(teller, [A_LANE, lane("queue 3", "a.test")], [1, 2])
    teller.take_gate(GATE)
    teller.say(standings=[(QUEUE, Standing.PAUSED)])
    teller.say(left=[LeftGate(GATE, turn_of(3, 2), NOW_S + 10)])
    teller.say(standings=[(QUEUE, Standing.OPEN)])
    assert teller.take_gates(NOW_S) == GatesRead([], None, NOW_S + 10)
    assert teller.holds(NOW_S + 10) == [GATE]


def test_queues_are_listed_by_standing(teller: Teller) -> None:
    """Paused and retired ones even without rows, open ones only with rows."""
    names = ["open", "empty", "paused", "retired", "gone"]
    lanes = {name: lane(name, "a.test") for name in names}
    rows = {name: row(number, lane=lanes[name]) for number, name in enumerate(names, start=1)}
    teller.say(list(rows.values()))
    ids = {name: queue for name, (queue, _) in lanes.items()}
    stopped = [(ids["paused"], Standing.PAUSED), (ids["retired"], Standing.RETIRED), (ids["gone"], Standing.RETIRED)]
    teller.say(ended=[done(rows["empty"]), done(rows["gone"])], standings=stopped)

    def listed(standing: Standing | None) -> list[int]:
        return [fact.row.id for fact in teller.store.queues(standing, None, 9)]

    assert listed(Standing.OPEN) == [ids["open"]]
    assert listed(Standing.PAUSED) == [ids["paused"]]
    assert listed(Standing.RETIRED) == sorted([ids["retired"], ids["gone"]])
    assert listed(None) == sorted(ids[name] for name in names if name != "empty")
    after = min(ids["retired"], ids["gone"])
    assert len(teller.store.queues(Standing.RETIRED, after, 9)) == 1


def test_the_tally_says_what_the_rows_say_of_queues(teller: Teller) -> None:
    """One with rows to serve is inactive, one whose rows all wait is snoozed, whatever the operator stopped is that."""
    names = ["inactive", "empty", "snoozed", "paused", "retired", "also inactive"]
    rows = [row(number, lane=lane(name, "a.test")) for number, name in enumerate(names, start=1)]
    more = row(9, lane=lane("also inactive", "b.test"))
    teller.say([*rows, more])
    stopped = [(rows[3].queue, Standing.PAUSED), (rows[4].queue, Standing.RETIRED)]
    away = [Moved(old, waiting(old, NOW_S)) for old in (rows[2], more)]
    teller.say(ended=[done(rows[1])], moved=away, standings=stopped)
    tally = teller.store.tally()
    assert {state: count for state, count in tally.items() if count} == {
        "inactive": 2,
        "empty": 1,
        "snoozed": 1,
        "paused": 1,
        "retired": 1,
    }


def test_a_lane_is_announced_before_its_rows_are_counted(teller: Teller) -> None:
    """So a batch may announce a lane twice; it is made once."""
    teller.say([row(1)], turns={A_LANE: turn_of(3, 4)}, announced=[Announced(*A_LANE, turn_of(3, 6))])
    assert [found.count for found in teller.line(GATE)] == [1]
