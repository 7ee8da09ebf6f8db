"""Gates: slots, rests and blocks."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frontier.gates import Gate, Politeness
from frontier.models import GateKey
from frontier.stores.base import GateRow

NOW_S = 1000.0


def gate(slots: int = 1, **politeness: float) -> Gate:
    return Gate(1, GateKey("a.test"), Politeness(slots=slots, **politeness))


def gate_row(rests_s: float = 0.0, blocked_s: float = 0.0, spacing_s: float = 0.0, last_s: float = 3.0) -> GateRow:
    return GateRow(1, GateKey("a.test"), rests_s, blocked_s, spacing_s, last_s)


@pytest.mark.parametrize(
    ("fetch_s", "rest_s"), [(0.0, 3.0), (0.5, 3.0), (0.6, 3.0), (1.0, 5.0), (6.0, 30.0), (100.0, 30.0), (-1.0, 3.0)]
)
def test_the_rest_is_the_factor_times_the_fetch_within_bounds(fetch_s: float, rest_s: float) -> None:
    """D = clamp(5 x fetch seconds, 3 s, 30 s); a clock that went back counts as no time."""
    assert Politeness().rest_s(fetch_s) == rest_s


def test_a_slot_rests_from_the_end_of_the_fetch() -> None:
    """Not from its start, and not from the moment it is reported."""
    one = gate()
    one.take(NOW_S)
    assert one.opens_s() == math.inf
    assert one.rest(NOW_S, NOW_S + 2, NOW_S + 4) == NOW_S + 2 + 10
    assert one.opens_s() == NOW_S + 12
    assert one.last_rest_s == 10


def test_a_rest_that_is_over_when_it_is_reported_closes_nothing() -> None:
    """A late report delays nobody."""
    one = gate()
    one.take(NOW_S)
    one.rest(NOW_S, NOW_S + 1, NOW_S + 60)
    assert one.opens_s() <= NOW_S + 60


def test_a_gate_has_k_slots() -> None:
    """K fetches run at once, not one more; a slot that ends rests by itself."""
    three = gate(3)
    for _ in range(3):
        assert three.opens_s() <= NOW_S
        three.take(NOW_S)
    assert three.opens_s() == math.inf
    three.rest(NOW_S, NOW_S + 1, NOW_S + 1)
    assert three.opens_s() == NOW_S + 6
    three.rest(NOW_S, NOW_S + 2, NOW_S + 2)
    assert three.opens_s() == NOW_S + 6, "the slot that has rested first"
    three.take(NOW_S + 6)
    assert three.opens_s() == NOW_S + 12, "the other one"


def test_a_closed_gate_gives_no_slot() -> None:
    """Taking through a closed gate is a defect of the caller."""
    one = gate()
    one.take(NOW_S)
    with pytest.raises(AssertionError, match="closed gate"):
        one.take(NOW_S)


def test_a_released_slot_does_not_rest() -> None:
    """Nothing was fetched: the next may go at once. Rests that are over are forgotten then."""
    two = gate(2)
    two.take(NOW_S)
    two.rest(NOW_S, NOW_S, NOW_S)
    two.take(NOW_S)
    two.give_back(NOW_S)
    assert two.opens_s() <= NOW_S
    two.take(NOW_S + 3)
    two.give_back(NOW_S + 3)
    assert two.row().rests_until_s == 0.0


def test_a_crawl_delay_leaves_one_slot_that_rests_as_long() -> None:
    """Starts are the Crawl-delay apart whatever k; a longer rest of the fetch itself wins."""
    many = gate(8)
    many.spacing_s = 20.0
    assert many.slots == 1
    many.take(NOW_S)
    assert many.opens_s() == math.inf
    many.rest(NOW_S, NOW_S + 1, NOW_S + 1)
    assert many.opens_s() == NOW_S + 1 + 20
    many.take(NOW_S + 21)
    many.rest(NOW_S + 21, NOW_S + 31, NOW_S + 31)
    assert many.opens_s() == NOW_S + 31 + 30


def test_a_crawl_delay_waits_for_all_rests_and_then_for_its_own() -> None:
    """Slots that rest when it comes count as one; taken back, all slots are there again."""
    three = gate(3)
    for _ in range(3):
        three.take(NOW_S)
    for end_s in (NOW_S + 1, NOW_S + 2, NOW_S + 3):
        three.rest(NOW_S, end_s, end_s)
    assert three.opens_s() == NOW_S + 1 + 5, "the first of three"
    three.spacing_s = 10.0
    assert three.opens_s() == NOW_S + 3 + 15, "the last of three"
    three.take(NOW_S + 18)
    assert three._rests == []
    three.spacing_s = 0.0
    three.take(NOW_S + 18)
    three.take(NOW_S + 18)
    assert three.opens_s() == math.inf


def test_a_busy_gate_remembers_no_more_rests_than_slots() -> None:
    """So every step costs O(log k), however long it runs."""
    four = gate(4, delay_factor=0.0)
    for turn in range(100):
        now_s = NOW_S + 3.0 * turn
        for _ in range(4):
            four.take(now_s)
        for _ in range(4):
            four.rest(now_s, now_s, now_s)
        assert len(four._rests) == 4


def test_a_crawl_delay_waits_for_all_fetches_under_way() -> None:
    """With slots lowered, the gate opens when the last of the old fetches has rested."""
    three = gate(3)
    for _ in range(3):
        three.take(NOW_S)
    three.spacing_s = 10.0
    for end_s in (NOW_S + 1, NOW_S + 2, NOW_S + 3):
        assert three.opens_s() == math.inf
        three.rest(NOW_S, end_s, end_s)
    assert three.opens_s() == NOW_S + 3 + 15


def test_a_block_closes_all_slots_and_the_longest_wins() -> None:
    """A shorter block does not shorten a longer one; a rest beyond the block counts on."""
    two = gate(2)
    two.block(NOW_S + 50)
    two.block(NOW_S + 10)
    assert two.opens_s() == NOW_S + 50
    two.blocked_until_s = 0.0
    two.take(NOW_S)
    two.take(NOW_S)
    two.rest(NOW_S, NOW_S + 6, NOW_S + 6)
    two.block(NOW_S + 10)
    assert two.opens_s() == NOW_S + 36


def test_after_a_clean_end_a_gate_rests_on_to_the_same_moment() -> None:
    """Rest, block, Crawl-delay and the latest rest are the row's."""
    one = gate()
    one.restore(gate_row(rests_s=NOW_S + 7, spacing_s=9.0, last_s=6.0), NOW_S, clean=True)
    assert (one.opens_s(), one.spacing_s, one.last_rest_s) == (NOW_S + 7, 9.0, 6.0)
    other = gate()
    other.restore(gate_row(rests_s=NOW_S - 7, blocked_s=NOW_S + 3600), NOW_S, clean=True)
    assert other.opens_s() == NOW_S + 3600


def test_after_an_unclean_end_a_gate_opens_no_earlier_than_its_last_rest() -> None:
    """A fetch may have been under way up to this moment."""
    one = gate(4)
    one.restore(gate_row(rests_s=NOW_S - 7, last_s=12.0), NOW_S, clean=False)
    assert one.opens_s() == NOW_S + 12
    other = gate(4)
    other.restore(gate_row(rests_s=NOW_S + 20, last_s=12.0), NOW_S, clean=False)
    assert other.opens_s() == NOW_S + 20


@pytest.mark.parametrize(("spacing_s", "longest_s"), [(0.0, 30.0), (200.0, 200.0)])
def test_a_clock_that_went_back_delays_by_the_longest_rest_at_most(spacing_s: float, longest_s: float) -> None:
    """A rest that ends in a far future is clamped."""
    one = gate()
    one.restore(gate_row(rests_s=NOW_S + 1e6, spacing_s=spacing_s), NOW_S, clean=True)
    assert one.opens_s() == NOW_S + longest_s


def test_a_rest_that_was_restored_is_no_block() -> None:
    """Taking a block back leaves it; it is written as a rest again, so that the clamp holds at the next opening too."""
    one = gate(2)
    one.restore(gate_row(rests_s=NOW_S + 7, blocked_s=NOW_S + 3600), NOW_S, clean=True)
    one.blocked_until_s = 0.0
    assert one.opens_s() == NOW_S + 7
    assert one.row() == gate_row(rests_s=NOW_S + 7)


def test_a_row_keeps_what_must_survive() -> None:
    """The rest of the slot that rests longest, the block, the Crawl-delay, the latest rest."""
    two = gate(2)
    assert two.row() == gate_row()
    two.take(NOW_S)
    two.take(NOW_S)
    two.rest(NOW_S, NOW_S + 4, NOW_S + 4)
    two.rest(NOW_S, NOW_S + 5, NOW_S + 5)
    two.spacing_s = 2.0
    two.block(NOW_S + 9)
    assert two.row() == gate_row(rests_s=NOW_S + 30, blocked_s=NOW_S + 9, spacing_s=2.0, last_s=25.0)


def test_repr_says_slots_and_block() -> None:
    """A gate in a message can be understood."""
    one = gate(2)
    one.take(NOW_S)
    one.block(1234.5)
    assert repr(one) == "<Gate a.test 1/2 out, blocked until 1234.500>"


@settings(max_examples=60)
@given(
    slots=st.integers(1, 4),
    steps=st.lists(st.tuples(st.sampled_from(["take", "rest", "give_back", "wait"]), st.floats(0, 20)), max_size=60),
)
def test_out_and_resting_never_exceed_the_slots(slots: int, steps: list[tuple[str, float]]) -> None:
    """Whatever happens: a gate is open exactly if fewer than k are out or rest (counted by hand)."""
    some, now_s, starts, rests = gate(slots), NOW_S, [], []
    for step, seconds in steps:
        if step == "wait":
            now_s += seconds
        elif step == "take" and some.opens_s() <= now_s:
            some.take(now_s)
            starts.append(now_s)
        elif step == "rest" and starts:
            rests.append(some.rest(starts.pop(0), now_s, now_s))
        elif step == "give_back" and starts:
            some.give_back(now_s)
            starts.pop()
        resting = sum(until_s > now_s for until_s in rests)
        assert (some.opens_s() <= now_s) == (len(starts) + resting < slots)
        assert some.out == len(starts)
