"""Gates: slots, rests, blocks, troubles."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from anabranch.frontier.inspect.explain import why_closed
from anabranch.frontier.policies.groups import parse_group
from anabranch.frontier.policies.sheets import Override, Settings, Sheets
from anabranch.frontier.records import GateKey, HostTrouble, Lease, Outcome, OutcomeKind, QueueKey, name_id
from anabranch.frontier.scheduling.gates import Backoff, Gate, GateMaker, Politeness
from anabranch.frontier.stores.contract import GateRow
from tests.frontier.ledger import PolitenessLedger
from tests.rows import each_row

NOW_S = 1000.0
KEY = GateKey("a.test")
#: Waits of 60 s, 120 s, … up to 480 s; forgiven after 600 s.
BACKOFF = Backoff(cap_s=480.0, jitter=0.0)
NONE, THROTTLED, UNAVAILABLE, UNREACHABLE = HostTrouble


def gate(slots: int = 1, **politeness: float) -> Gate:
    return Gate(1, KEY, Politeness(slots=slots, **politeness), None, BACKOFF)


def gate_row(
    rests_s: float = 0.0,
    blocked_s: float = 0.0,
    spacing_s: float = 0.0,
    last_s: float = 3.0,
    throttle_s: float = 0.0,
    troubles: int = 0,
    troubled_s: float = 0.0,
    slots: int | None = None,
) -> GateRow:
    return GateRow(1, KEY, rests_s, blocked_s, spacing_s, last_s, throttle_s, troubles, troubled_s, slots)


def fetch(some: Gate, start_s: float, end_s: float) -> None:
    """One fetch without trouble, told at its end."""
    some.take(start_s)
    some.well(end_s)
    some.rest(start_s, end_s, end_s)


def fail(some: Gate, start_s: float, kind: HostTrouble = UNAVAILABLE, retry_after_s: float = 0.0) -> None:
    """One fetch of no time that ends in trouble."""
    some.take(start_s)
    some.rest(start_s, start_s, start_s)
    some.trouble(kind, retry_after_s, start_s)


@each_row(
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


@each_row(("fetch_s", "is_written"), [(1.0, False), (0.8, False), (0.6, False), (1.01, True), (3.0, True), (0.4, True)])
def test_the_row_is_written_again_when_its_rest_would_be_too_short_or_twice_too_long(fetch_s, is_written) -> None:
    """After a crash every gate rests for its row's rest; a row of 5 s serves rests of 2.5 to 5 s."""
    one = gate(min_delay_s=0.0)
    fetch(one, NOW_S, NOW_S + 1)
    one.row()
    fetch(one, NOW_S + 100, NOW_S + 100 + fetch_s)
    assert one.must_be_written is is_written


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


def test_a_rest_is_not_over_before_its_end() -> None:
    """A slot that is taken a moment before leaves the other one resting."""
    two = gate(2)
    two.take(NOW_S)
    two.take(NOW_S)
    two.rest(NOW_S, NOW_S + 1, NOW_S + 1)
    two.rest(NOW_S, NOW_S + 1.01, NOW_S + 1.01)
    two.take(NOW_S + 6)
    two.give_back(NOW_S + 6)
    two.take(NOW_S + 6)
    assert two.opens_s() == NOW_S + 1.01 + 5 * 1.01


def test_a_closed_gate_gives_no_slot() -> None:
    """Taking through a closed gate is a defect of the caller."""
    one = gate()
    one.take(NOW_S)
    with pytest.raises(AssertionError, match="closed gate"):
        one.take(NOW_S)


def test_a_released_slot_does_not_rest() -> None:
    """Nothing was fetched: the next may go at once."""
    two = gate(2)
    two.take(NOW_S)
    two.rest(NOW_S, NOW_S, NOW_S)
    two.take(NOW_S)
    two.give_back(NOW_S)
    assert two.opens_s() <= NOW_S


def test_a_crawl_delay_leaves_one_slot_that_rests_as_long() -> None:
    """Starts are the Crawl-delay apart whatever k; a longer rest of the fetch itself wins."""
    many = gate(8)
    many.set_spacing(20.0)
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
    three.set_spacing(10.0)
    assert three.opens_s() == NOW_S + 3 + 15, "the last of three"
    three.take(NOW_S + 18)
    assert three.rests == []
    three.set_spacing(0.0)
    three.take(NOW_S + 18)
    three.take(NOW_S + 18)
    assert three.opens_s() == math.inf


def test_a_crawl_delay_counts_from_the_latest_start_before_it() -> None:
    """The fetch of robots.txt itself is one of the starts that are kept apart; taken back, that is forgotten."""
    two = gate(2)
    two.take(NOW_S)
    two.take(NOW_S + 1)
    two.rest(NOW_S + 1, NOW_S + 1, NOW_S + 1)
    two.rest(NOW_S, NOW_S + 2, NOW_S + 2)
    two.set_spacing(60.0)
    assert two.opens_s() == NOW_S + 1 + 60
    assert two.row().rests_until_s == NOW_S + 1 + 60, "so it survives a restart"
    two.set_spacing(0.0)
    assert two.opens_s() == NOW_S + 1 + 3


def test_a_lease_that_fetched_nothing_is_no_start() -> None:
    """A page that robots.txt forbids costs no Crawl-delay."""
    one = gate()
    one.set_spacing(60.0)
    assert one.opens_s() <= 0.0
    one.take(NOW_S)
    one.give_back(NOW_S)
    assert one.opens_s() <= NOW_S


def test_slots_that_are_lowered_wait_until_fewer_are_out_or_rest() -> None:
    """Nobody is stopped, but none starts before fewer than the new k run or rest."""
    four = gate(4)
    for _ in range(4):
        four.take(NOW_S)
    four.set_slots(2)
    assert four.slots == 2
    for end_s in (NOW_S + 1, NOW_S + 2, NOW_S + 3):
        assert four.opens_s() == math.inf
        four.rest(NOW_S, end_s, end_s)
    assert four.opens_s() == NOW_S + 3 + 15, "one is out, and three rest: the last of them"
    four.rest(NOW_S, NOW_S + 4, NOW_S + 4)
    assert four.opens_s() == NOW_S + 3 + 15, "four rest: the third"


def test_a_slot_that_is_added_opens_at_once() -> None:
    """The rests of the others go on; None gives back what the order says."""
    one = gate()
    one.take(NOW_S)
    one.set_slots(2)
    assert one.opens_s() <= NOW_S
    one.take(NOW_S)
    one.rest(NOW_S, NOW_S + 1, NOW_S + 1)
    assert one.opens_s() == NOW_S + 6
    one.set_slots(None)
    assert (one.slots, one.opens_s()) == (1, math.inf)


def test_other_politeness_counts_from_the_next_fetch_on() -> None:
    """The rest that has begun goes on."""
    one = gate()
    one.take(NOW_S)
    one.rest(NOW_S, NOW_S + 1, NOW_S + 1)
    one.set_politeness(Politeness(delay_factor=0.0, min_delay_s=1.0, max_delay_s=1.0, slots=1))
    assert one.opens_s() == NOW_S + 6
    one.take(NOW_S + 6)
    one.rest(NOW_S + 6, NOW_S + 7, NOW_S + 7)
    assert one.opens_s() == NOW_S + 8


def test_slots_that_are_set_do_not_lift_a_crawl_delay() -> None:
    """While there is one, there is one slot."""
    one = gate()
    one.set_spacing(5.0)
    one.set_slots(8)
    assert one.slots == 1
    one.set_spacing(0.0)
    assert one.slots == 8


def test_a_busy_gate_remembers_no_more_rests_than_slots() -> None:
    """So every step costs O(log k), however long it runs."""
    four = gate(4, delay_factor=0.0)
    for turn in range(100):
        now_s = NOW_S + 3.0 * turn
        for _ in range(4):
            four.take(now_s)
        for _ in range(4):
            four.rest(now_s, now_s, now_s)
        assert len(four.rests) == 4


def test_a_crawl_delay_waits_for_all_fetches_under_way() -> None:
    """With slots lowered, the gate opens when the last of the old fetches has rested."""
    three = gate(3)
    for _ in range(3):
        three.take(NOW_S)
    three.set_spacing(10.0)
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
    two.unblock()
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
    one.unblock()
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
    two.set_spacing(2.0)
    two.set_slots(3)
    two.trouble(THROTTLED, 0.0, NOW_S + 5)
    assert two.row() == GateRow(1, KEY, NOW_S + 30, NOW_S + 65, 2.0, 25.0, 60.0, 1, NOW_S + 5, 3)


def test_repr_says_slots_and_block() -> None:
    """A gate in a message can be understood."""
    one = gate(2)
    one.take(NOW_S)
    one.block(1234.5)
    assert repr(one) == "<Gate a.test 1/2 out, blocked until 1234.500>"


@pytest.mark.parametrize("kind", [THROTTLED, UNAVAILABLE, UNREACHABLE])
def test_a_trouble_closes_all_slots_for_longer_with_each_in_a_row(kind: HostTrouble) -> None:
    """60 s, 120 s, 240 s, 480 s, 480 s from the moment it is told."""
    two, now_s = gate(2), NOW_S
    for wait_s in (60.0, 120.0, 240.0, 480.0, 480.0):
        fail(two, now_s, kind)
        assert two.opens_s() == now_s + wait_s
        now_s += wait_s


def test_what_the_host_asks_for_closes_the_gate_for_so_long() -> None:
    """Retry-After counts from the moment it is told."""
    one = gate()
    fail(one, NOW_S, retry_after_s=600.0)
    assert one.opens_s() == NOW_S + 600


def test_a_host_without_trouble_may_ask_for_a_rest_too() -> None:
    """Retry-After of another answer closes the gate for so long; no trouble is counted, no jitter added."""
    one = Gate(1, KEY, Politeness())
    fail(one, NOW_S, NONE, 50.0)
    assert (one.opens_s(), one.troubles, one.throttle_s) == (NOW_S + 50, 0, 0.0)
    other = gate()
    fail(other, NOW_S)
    fail(other, NOW_S + 60, NONE, 5.0)
    assert (other.opens_s(), other.troubles) == (NOW_S + 65, 1), "only what it asked for, whatever was before"


def test_a_shorter_wait_does_not_shorten_an_operators_block() -> None:
    """The longest of all blocks counts."""
    one = gate()
    one.take(NOW_S)
    one.block(NOW_S + 1000)
    one.rest(NOW_S, NOW_S, NOW_S)
    one.trouble(UNAVAILABLE, 0.0, NOW_S)
    assert one.opens_s() == NOW_S + 1000


def test_fetches_that_were_out_together_tell_of_one_trouble() -> None:
    """Eight connections that are lost at once are no reason to wait 2^7 times as long."""
    eight = gate(8)
    for _ in range(8):
        eight.take(NOW_S)
    for second in range(8):
        eight.rest(NOW_S, NOW_S + second, NOW_S + second)
        eight.trouble(UNREACHABLE, 0.0, NOW_S + second)
    assert (eight.troubles, eight.opens_s()) == (1, NOW_S + 7 + 60)


def test_troubles_are_forgiven_after_quiet_time_without_a_block() -> None:
    """600 s from the end of the block on; one second less does not do."""
    one = gate()
    for start_s, troubles in ((0.0, 1), (60.0 + 599.0, 2), (659.0 + 120.0 + 600.0, 1)):
        fail(one, NOW_S + start_s)
        assert one.troubles == troubles


def test_the_time_of_a_fetch_that_fails_is_not_quiet() -> None:
    """A dead host whose fetches take 20 minutes to time out is not asked every 21 minutes for ever."""
    one, now_s = gate(), NOW_S
    for troubles in range(1, 5):
        one.take(now_s)
        now_s += 1200.0
        one.rest(now_s - 1200.0, now_s, now_s)
        one.trouble(UNREACHABLE, 0.0, now_s)
        assert one.troubles == troubles
        now_s = one.opens_s()


def test_a_good_fetch_takes_one_trouble_back() -> None:
    """A healthy host with a time-out every few minutes does not climb to blocks of an hour."""
    one, now_s = gate(), NOW_S
    for troubles in range(1, 4):
        fail(one, now_s)
        assert one.troubles == troubles
        now_s = one.opens_s()
    fetch(one, now_s, now_s + 1)
    assert one.troubles == 2


def test_a_good_fetch_after_quiet_time_forgives_all() -> None:
    """So that the row and explanations do not tell of troubles of last week."""
    one, now_s = gate(), NOW_S
    for _ in range(3):
        fail(one, now_s)
        now_s = one.opens_s()
    fetch(one, now_s + 600, now_s + 601)
    assert one.troubles == 0


def test_after_a_429_one_slot_is_left_until_a_fetch_ends_well() -> None:
    """Starts are as far apart as the wait was, whatever k; then all slots are there again, and rests are the usual ones."""
    four = gate(4)
    fail(four, NOW_S, THROTTLED)
    fail(four, NOW_S + 60, THROTTLED)
    assert (four.slots, four.throttle_s, four.opens_s()) == (1, 120.0, NOW_S + 60 + 120)
    four.take(NOW_S + 180)
    assert four.opens_s() == math.inf
    four.rest(NOW_S + 180, NOW_S + 181, NOW_S + 181)
    assert four.opens_s() == NOW_S + 181 + 120, "it told nothing of the host"
    fetch(four, NOW_S + 301, NOW_S + 302)
    assert (four.slots, four.throttle_s) == (4, 0.0)
    assert four.opens_s() <= NOW_S + 302


@pytest.mark.parametrize("kind", [UNAVAILABLE, UNREACHABLE])
def test_other_troubles_leave_all_slots(kind: HostTrouble) -> None:
    """A 503 says nothing of the rate; neither ends the throttle of a 429."""
    four = gate(4)
    fail(four, NOW_S, kind)
    assert (four.slots, four.throttle_s) == (4, 0.0)
    fail(four, NOW_S + 60, THROTTLED)
    fail(four, NOW_S + 180, kind)
    assert (four.slots, four.throttle_s) == (1, 120.0)


def test_a_good_fetch_that_began_before_the_429_proves_nothing() -> None:
    """It was out when the host complained."""
    two = gate(2)
    two.take(NOW_S)
    fail(two, NOW_S, THROTTLED)
    two.well(NOW_S + 1)
    two.rest(NOW_S, NOW_S + 1, NOW_S + 1)
    assert (two.slots, two.throttle_s) == (1, 60.0)


def test_an_unblocked_gate_has_had_no_troubles() -> None:
    """The operator knows better: it opens as soon as it has rested, with all slots, and the waits start anew."""
    two = gate(2)
    fail(two, NOW_S, THROTTLED)
    two.unblock()
    assert (two.slots, two.opens_s(), two.troubles) == (2, 0.0, 0)
    fail(two, NOW_S + 1)
    assert two.opens_s() == NOW_S + 61


def test_a_trouble_after_the_operator_unblocked_is_the_first() -> None:
    """Though its fetch was out when the gate closed before: the host is in trouble still."""
    two = gate(2)
    two.take(NOW_S)
    fail(two, NOW_S)
    two.unblock()
    two.rest(NOW_S, NOW_S + 1, NOW_S + 1)
    two.trouble(UNAVAILABLE, 0.0, NOW_S + 1)
    assert two.opens_s() == NOW_S + 61


def test_the_jitter_of_a_gate_is_the_same_after_a_restart() -> None:
    """Two gates of one id find the same time, another id another."""
    opens_s = []
    for gate_id in (1, 1, 2):
        some = Gate(gate_id, KEY, Politeness())
        fail(some, NOW_S)
        opens_s.append(some.opens_s())
    assert opens_s[0] == opens_s[1] != opens_s[2]


def test_troubles_and_slots_survive_in_the_row() -> None:
    """A restart is no way out of a throttle: the next trouble counts on, and fewer slots stay fewer."""
    old = gate(4)
    old.set_slots(2)
    fail(old, NOW_S, THROTTLED)
    new = gate(4)
    new.restore(old.row(), NOW_S + 10, clean=True)
    assert new.row() == old.row()
    assert (new.slots, new.opens_s()) == (1, NOW_S + 60)
    fail(new, NOW_S + 60, THROTTLED)
    assert new.opens_s() == NOW_S + 60 + 120
    fetch(new, NOW_S + 180, NOW_S + 180)
    assert new.slots == 2


def test_after_an_unclean_end_a_crawl_delay_counts_from_the_opening() -> None:
    """It was set after the last rest began: the longer of both is kept."""
    one = gate()
    one.restore(gate_row(spacing_s=50.0, last_s=3.0), NOW_S, clean=False)
    assert one.opens_s() == NOW_S + 50


@pytest.mark.parametrize("rests_s", [0.0, NOW_S - 100.0])
def test_after_an_unclean_end_a_crawl_delay_that_is_told_later_counts_from_the_opening(rests_s: float) -> None:
    """A fetch may have begun just before, of which the row says nothing yet."""
    one = gate()
    one.restore(gate_row(rests_s=rests_s, last_s=3.0), NOW_S, clean=False)
    one.set_spacing(50.0)
    assert one.opens_s() == NOW_S + 50


def test_a_gate_that_is_read_long_after_an_unclean_opening_opens_at_once() -> None:
    """Fetches of the dead owner are over by then: its last rest counts from the opening."""
    one = gate()
    one.restore(gate_row(last_s=12.0), NOW_S, clean=False, opened_s=NOW_S - 5)
    assert one.opens_s() == NOW_S + 7
    other = gate()
    other.restore(gate_row(rests_s=NOW_S + 9, last_s=12.0), NOW_S, clean=False, opened_s=NOW_S - 500)
    assert other.opens_s() == NOW_S + 9, "rests of this owner's own fetches count on"


def test_a_group_has_slots_and_rests_of_its_own() -> None:
    """Nothing that is done to a host's gate reaches it: the schedule asks both."""
    group = gate(2)
    host = Gate(2, GateKey("b.test"), Politeness(), group)
    host.take(NOW_S)
    host.block(NOW_S + 100)
    host.trouble(THROTTLED, 0.0, NOW_S)
    assert host.group is group
    assert (group.out, group.opens_s(), group.row()) == (0, 0.0, gate_row())


#: One step: what happens, how long after the last, and a number that each kind reads in its own way.
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "take",
                "take",
                "take",
                "rest",
                "rest",
                "give_back",
                "trouble",
                "block",
                "unblock",
                "slots",
                "spacing",
                "open",
            ]
        ),
        st.sampled_from([0.0, 0.5, 3.0, 20.0, 700.0]),
        st.integers(0, 7),
    ),
    max_size=80,
)


class Bench:
    """One gate, its ledger and a clock."""

    def __init__(self, slots: int, factor: float) -> None:
        politeness = Politeness(slots=slots, delay_factor=factor)
        backoff = Backoff(cap_s=480.0)
        self.gate = Gate(1, KEY, politeness, None, backoff)
        self.ledger = PolitenessLedger(politeness, backoff=backoff)
        self.now_s = NOW_S
        self.out: list[Lease] = []

    def start(self, ordinal: int) -> None:
        """The gate takes at the moment it named, and the ledger looks at it."""
        self.gate.take(self.now_s)
        lease = Lease(ordinal, "", b"", "", None, 0, None, QueueKey(""), KEY, self.now_s)
        self.ledger.start(lease)
        self.out.append(lease)

    def end(self, number: int, trouble: HostTrouble = NONE, *, fetched: bool = True) -> None:
        """One of the leases comes back, as the core gives it back."""
        lease = self.out.pop(number % len(self.out))
        start_s, end_s = (lease.since_s, self.now_s) if fetched else (None, None)
        outcome = Outcome(OutcomeKind.DONE, 200, start_s, end_s, 0.0, trouble, 40.0 * (number // 2))
        if trouble is NONE and fetched:
            self.gate.well(self.now_s)
        if start_s is not None and end_s is not None:
            self.gate.rest(start_s, end_s, self.now_s)
        else:
            self.gate.give_back(self.now_s)
        if trouble is not NONE or outcome.retry_after_s > 0:
            self.gate.trouble(trouble, outcome.retry_after_s, self.now_s)
        self.ledger.end(lease, outcome, self.now_s)

    def change(self, step: str, number: int) -> None:
        """The operator or robots.txt changes the rules."""
        if step == "block":
            self.gate.block(self.now_s + 30.0 * number)
            self.ledger.block(KEY, self.now_s + 30.0 * number)
        elif step == "unblock":
            self.gate.unblock()
            self.ledger.unblock(KEY)
        elif step == "slots":
            self.gate.set_slots(number or None)
            self.ledger.set_slots(KEY, number or None)
        elif step == "spacing":
            self.gate.set_spacing(10.0 * (number // 2))
            self.ledger.set_delay(KEY, 10.0 * (number // 2))

    def reopen(self, *, clean: bool) -> None:
        """Another owner takes up the gate from its row; all that was told was durable."""
        if clean:
            while self.out:
                self.end(0, fetched=False)
        row, old = self.gate.row(), self.gate
        self.gate = Gate(old.id, old.key, old.politeness, old.group, old.backoff)
        self.gate.restore(row, self.now_s, clean=clean)
        if not clean:
            self.out.clear()
            self.ledger.died(self.now_s, durable=True)


#: A slot rests for a throttle; an operator takes the throttle back; the owner dies.
TAKEN_BACK = [
    (step, 0.0, int(step == "open")) for step in ("take", "take", "trouble", "rest", "unblock", "open", "take")
]


@settings(max_examples=300)
@example(slots=2, factor=0.0, steps=TAKEN_BACK)
@given(slots=st.integers(1, 5), factor=st.sampled_from([0.0, 5.0]), steps=STEPS)
def test_whatever_happens_the_ledger_finds_no_fault_and_a_gate_opens_when_it_says(
    slots: int, factor: float, steps: list[tuple[str, float, int]]
) -> None:
    """I6 under fetches, troubles, blocks, other rules and restarts; and at opens_s() a slot is really to be had."""
    bench = Bench(slots, factor)
    for ordinal, (step, after_s, number) in enumerate(steps, 1):
        bench.now_s += after_s
        if step == "take" and bench.gate.opens_s() < math.inf:
            bench.now_s = max(bench.now_s, bench.gate.opens_s())
            bench.start(ordinal)
        elif step in ("rest", "give_back") and bench.out:
            bench.end(number, fetched=step == "rest")
        elif step == "trouble" and bench.out:
            bench.end(number, (THROTTLED, UNAVAILABLE, UNREACHABLE)[number % 3])
        elif step == "open":
            bench.reopen(clean=number % 2 == 0)
        else:
            bench.change(step, number)
        assert bench.gate.out == bench.ledger.out
        assert (bench.gate.opens_s() == math.inf) == (bench.gate.out >= bench.gate.slots)
        assert bool(why_closed(bench.gate, bench.now_s)) == (bench.gate.opens_s() > bench.now_s)


DAY_S = 86_400.0
EXACT = Backoff(jitter=0.0)


@each_row(
    ("troubles", "wait_s"), [(0, 0.0), (1, 60.0), (2, 120.0), (6, 1920.0), (7, 3600.0), (8, 3600.0), (10**6, 3600.0)]
)
def test_the_wait_doubles_with_each_trouble_up_to_the_cap(troubles: int, wait_s: float) -> None:
    """min(base × 2^(n-1), cap), for any n; nothing after none."""
    assert EXACT.interval_s(troubles) == wait_s
    assert EXACT.wait_s(troubles, 0.0, 1) == wait_s


@each_row(
    ("asked_s", "wait_s"),
    [
        (-5.0, 60.0),
        (1.0, 60.0),
        (61.0, 61.0),
        (DAY_S, DAY_S),
        (DAY_S + 1, DAY_S),
        (float("inf"), DAY_S),
        (float("nan"), 60.0),
    ],
)
def test_what_the_host_asks_for_is_kept_up_to_a_day(asked_s: float, wait_s: float) -> None:
    """Retry-After may lengthen the wait, never shorten it; nonsense is no reason to wait."""
    assert EXACT.wait_s(1, asked_s, 1) == wait_s


@given(troubles=st.integers(1, 200), gate_id=st.integers(-(2**63), 2**63 - 1))
def test_jitter_adds_up_to_its_share_and_can_be_repeated(troubles: int, gate_id: int) -> None:
    """Never shorter than without it; the same gate finds the same time after a restart."""
    backoff = Backoff(jitter=0.25)
    wait_s = backoff.wait_s(troubles, 0.0, gate_id)
    assert backoff.interval_s(troubles) <= wait_s <= 1.25 * backoff.interval_s(troubles)
    assert wait_s == Backoff(jitter=0.25).wait_s(troubles, 0.0, gate_id)


def test_hosts_that_failed_together_are_not_asked_together() -> None:
    """A thousand gates spread over the whole share of the jitter, and over another order at the next trouble."""
    gates = range(1000)
    first, second = ({gate: Backoff().wait_s(n, 0.0, gate) / Backoff().interval_s(n) for gate in gates} for n in (1, 2))
    for waits in (first, second):
        tenths = [sum(1.0 + tenth / 100 <= wait < 1.01 + tenth / 100 for wait in waits.values()) for tenth in range(10)]
        assert min(tenths) > 60
    assert sorted(gates, key=first.__getitem__) != sorted(gates, key=second.__getitem__)


def test_a_share_of_what_the_host_asked_for_is_not_added() -> None:
    """Jitter is for our own waits: the host named its time."""
    assert Backoff(jitter=1.0).wait_s(1, 500.0, 7) == 500.0


USUAL = Politeness(delay_factor=2.0, min_delay_s=1.0, max_delay_s=5.0, slots=3)
OF_GROUPS = Politeness(delay_factor=0.0, min_delay_s=7.0, max_delay_s=7.0, slots=2)
HOST, GROUP = GateKey("www.a.test"), GateKey("domain:a.test")


def maker(sheets: Mapping[str, Settings] | None = None, **asked: Any) -> GateMaker:
    """With groups by domain, unless the test says otherwise."""
    table = Sheets([Override((surt,), settings) for surt, settings in (sheets or {}).items()])
    return GateMaker(USUAL, OF_GROUPS, sheets=table, **{"group_of": parse_group("domain"), **asked})


def test_a_host_has_the_politeness_of_the_order() -> None:
    """And its backoff, under the id of its name."""
    backoff = Backoff(base_s=11.0)
    gate = maker(backoff=backoff).host_gate(HOST)
    assert (gate.id, gate.key, gate.politeness, gate.backoff) == (name_id(HOST), HOST, USUAL, backoff)


def test_an_override_changes_what_it_names_and_leaves_the_rest() -> None:
    """For the hosts that it covers. A least delay lifts the longest one."""
    made = maker({"(test,a,": Settings(min_delay_s=9.0), "(test,a,www,": Settings(max_connections=8)})
    lifted = Politeness(delay_factor=2.0, min_delay_s=9.0, max_delay_s=9.0, slots=8)
    assert made.host_gate(HOST).politeness == lifted
    assert made.host_gate(GateKey("b.test")).politeness == USUAL


def test_an_override_of_queues_and_urls_leaves_gates_as_they_are() -> None:
    """It may name what no gate has."""
    assert maker({"(test,a,": Settings(uri_precedence=7)}).host_gate(HOST).politeness == USUAL


@pytest.mark.parametrize("group", ["domain", None])
def test_a_key_of_a_group_makes_the_gate_of_a_group(group: str | None) -> None:
    """Asked as a host's, too, as an operator may; overrides are for hosts."""
    made = maker({"(": Settings(max_connections=8)}, group_of=parse_group(group))
    for gate in (made.host_gate(GROUP), made.group_gate(GROUP)):
        assert (gate.id, gate.politeness) == (name_id(GROUP), OF_GROUPS)


def test_a_host_has_the_group_of_the_rule_and_a_group_has_none() -> None:
    """A group named by an operator stands in no other group."""
    made = maker()
    assert made.has_groups
    assert (made.group_of(HOST), made.group_of(GROUP)) == (GROUP, None)
    none = maker(group_of=None)
    assert not none.has_groups
    assert none.group_of(HOST) is None


def test_without_politeness_nothing_waits() -> None:
    """No rest, no end of slots, no group; whatever the overrides say."""
    made = maker({"(test,a,": Settings(min_delay_s=9.0, max_connections=1)}, is_off=True)
    politeness = made.host_gate(HOST).politeness
    assert (politeness.rest_s(1e6), made.has_groups, made.group_of(HOST)) == (0.0, False, None)
    assert politeness.slots > 100_000
