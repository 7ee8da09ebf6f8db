"""What is known of gates that are not in memory, while reads are under way and gates come and go."""

from __future__ import annotations

import pytest

from anabranch.frontier.models import GateKey
from anabranch.frontier.scheduling.storedgates import StoredGates
from anabranch.frontier.stores.messages import GateRead, GateRow, GatesRead
from anabranch.frontier.turns import Turn

NOW_S = 1000.0


def answer(count: int, wakes_s: float | None = None, asked: int | None = None) -> GatesRead:
    """So many gates that were read."""
    rows = [GateRow(number, GateKey(f"h{number}.test"), 0, 0, 0, 3.0, 0, 0, 0, None) for number in range(count)]
    return GatesRead([GateRead(row, []) for row in rows], asked, wakes_s)


def all_read(wakes_s: float | None = None) -> StoredGates:
    """Nothing is left in the store that could serve now."""
    stored = StoredGates()
    stored.ask(10)
    stored.answered(answer(3, wakes_s))
    return stored


def test_at_first_the_store_may_hold_gates() -> None:
    """Nobody has looked."""
    stored = StoredGates()
    assert stored.may_serve(NOW_S)
    assert stored.next_time() is None


@pytest.mark.parametrize(("read", "more"), [(9, False), (10, True), (11, True)])
def test_fewer_than_were_asked_for_are_all(read: int, more: bool) -> None:
    """Of as many as were asked for nobody knows whether they were the last."""
    stored = StoredGates()
    assert stored.ask(10) == 10
    assert stored.is_asked
    stored.answered(answer(read))
    assert (stored.more, stored.is_asked, stored.may_serve(NOW_S)) == (more, False, more)


def test_a_closed_gate_in_the_store_may_serve_when_it_opens() -> None:
    """Its time is known from the last read; while another one is under way that will tell."""
    stored = all_read(NOW_S + 5)
    assert not stored.may_serve(NOW_S + 4.9)
    assert stored.may_serve(NOW_S + 5)
    assert stored.next_time() == NOW_S + 5
    stored.ask(10)
    assert stored.next_time() is None


def test_a_gate_read_by_its_name_tells_nothing_of_the_others() -> None:
    """What is asked by turn is still under way, and what came to it still missed."""
    stored = StoredGates()
    stored.ask(10)
    stored.woken(1, Turn(5), 7)
    assert stored.answered(answer(1, asked=1)) == {}
    assert stored.is_asked
    assert stored.answered(answer(1)) == {1: [(Turn(5), 7)]}


def test_lanes_that_come_during_a_read_are_told_with_its_answer_once() -> None:
    """The read saw their gates as they were before; afterwards there may be more gates, too."""
    stored = StoredGates()
    stored.ask(10)
    for turn, queue in ((5, 7), (6, 8)):
        stored.woken(1, Turn(turn), queue)
    stored.woken(2, Turn(9), 7)
    assert stored.answered(answer(0)) == {1: [(Turn(5), 7), (Turn(6), 8)], 2: [(Turn(9), 7)]}
    assert stored.more
    stored.ask(10)
    assert stored.answered(answer(0)) == {}
    assert not stored.more


def test_lanes_that_come_while_nothing_is_read_are_in_the_next_read() -> None:
    """Nothing is missed: there may only be more."""
    stored = all_read()
    stored.woken(1, Turn(5), 7)
    assert stored.more
    stored.ask(10)
    assert stored.answered(answer(1)) == {}


def test_gates_that_an_order_opened_may_be_beyond_the_answer_under_way() -> None:
    """Such as a queue that was resumed."""
    stored = StoredGates()
    stored.ask(10)
    stored.note_woken()
    stored.answered(answer(0))
    assert stored.more


@pytest.mark.parametrize(
    ("turn", "wakes_s", "more", "next_s"),
    [
        (Turn(1), None, True, NOW_S + 50),
        (Turn(1), NOW_S + 20, False, NOW_S + 20),
        (Turn(1), NOW_S + 90, False, NOW_S + 50),
        (None, None, False, NOW_S + 50),
    ],
)
def test_a_gate_that_leaves_is_among_those_in_the_store(
    turn: Turn | None, wakes_s: float | None, more: bool, next_s: float
) -> None:
    """At once if it is open, when it opens if it is closed, not at all if it has nothing to serve."""
    stored = all_read(NOW_S + 50)
    stored.left(turn, wakes_s)
    assert (stored.more, stored.next_time()) == (more, next_s)


def test_a_gate_that_leaves_during_a_read_is_in_no_answer() -> None:
    """Its time counts beside that of the answer; the next answer has it."""
    stored = all_read()
    stored.ask(10)
    stored.left(Turn(1), NOW_S + 20)
    stored.answered(answer(1, NOW_S + 50))
    assert stored.next_time() == NOW_S + 20
    stored.ask(10)
    stored.answered(answer(1, NOW_S + 50))
    assert stored.next_time() == NOW_S + 50


def test_a_time_that_came_when_no_room_could_be_made_is_not_waited_for() -> None:
    """Else the host would be told to ask again at once, for ever; a later time counts."""
    stored = all_read(NOW_S)
    stored.stuck(NOW_S)
    assert stored.next_time() is None
    assert stored.may_serve(NOW_S)
    stored.wakes_s = NOW_S + 1
    assert stored.next_time() == NOW_S + 1
