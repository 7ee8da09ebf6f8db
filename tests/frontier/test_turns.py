"""Turns: precedence, then arrival, in one number."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from anabranch.frontier.turns import precedence_of, turn_of, with_precedence

PRECEDENCES = st.integers(0, 255)
ARRIVALS = st.integers(1, (1 << 48) - 1)


@given(PRECEDENCES, ARRIVALS, PRECEDENCES, ARRIVALS)
def test_turns_are_ordered_by_precedence_and_then_by_arrival(a: int, first: int, b: int, second: int) -> None:
    """Whole numbers compare as the pairs do, so a database can sort by them."""
    assert (turn_of(a, first) < turn_of(b, second)) == ((a, first) < (b, second))


@given(PRECEDENCES, ARRIVALS)
def test_a_turn_fits_a_signed_integer_of_64_bits_and_tells_its_precedence(precedence: int, arrival: int) -> None:
    """For every precedence there is, and 2**48 arrivals."""
    turn = turn_of(precedence, arrival)
    assert 0 <= turn < 1 << 63
    assert precedence_of(turn) == precedence


@given(PRECEDENCES, ARRIVALS, PRECEDENCES)
def test_another_precedence_keeps_the_arrival(before: int, arrival: int, after: int) -> None:
    """Among its new equals it stands where it came."""
    assert with_precedence(turn_of(before, arrival), after) == turn_of(after, arrival)
