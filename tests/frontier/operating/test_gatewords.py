"""What is said of a gate: why it is closed, and how fast it lets through."""

from __future__ import annotations

import math

import pytest

from anabranch.frontier.models import GateKey, HostTrouble
from anabranch.frontier.operating.gatewords import rate_per_s, why_closed
from anabranch.frontier.scheduling.backoff import Backoff
from anabranch.frontier.scheduling.gates import Gate, Politeness

NOW_S = 1000.0


def gate(slots: int = 1, **politeness: float) -> Gate:
    """Rests of 3 s; the first trouble closes it for 60 s."""
    return Gate(1, GateKey("a.test"), Politeness(slots=slots, **politeness), None, Backoff(jitter=0.0))


def fetch(some: Gate, at_s: float = NOW_S) -> None:
    """One of no time."""
    some.take(at_s)
    some.rest(at_s, at_s, at_s)


# The rate


@pytest.mark.parametrize(("slots", "rate"), [(1, 1 / 3), (6, 2.0)])
def test_the_highest_rate_is_slots_by_the_shortest_rest(slots: int, rate: float) -> None:
    """That of a fetch that takes no time."""
    assert rate_per_s(gate(slots)) == rate


def test_what_keeps_starts_apart_leaves_one_in_so_many_seconds() -> None:
    """A Crawl-delay, or a throttle if that is longer, with the one slot that is left."""
    six = gate(6)
    six.set_spacing(10.0)
    assert rate_per_s(six) == 0.1
    six.trouble(HostTrouble.THROTTLED, 0.0, NOW_S)
    assert rate_per_s(six) == 1 / 60
    six.set_spacing(100.0)
    assert rate_per_s(six) == 0.01


def test_a_gate_that_never_rests_has_no_limit() -> None:
    """Whatever its slots."""
    assert rate_per_s(gate(3, min_delay_s=0.0)) == math.inf


# Why it is closed


def test_an_open_gate_has_no_reason() -> None:
    """Nor has one with a free slot, whatever the others do."""
    two = gate(2)
    assert why_closed(two, NOW_S) == ""
    fetch(two)
    assert why_closed(two, NOW_S) == ""


def test_slots_that_are_out_are_counted() -> None:
    """Also if there are fewer slots by now than are out."""
    two = gate(2)
    two.take(NOW_S)
    two.take(NOW_S)
    assert why_closed(two, NOW_S) == "2 of 2 slots are out"
    two.set_slots(1)
    assert why_closed(two, NOW_S) == "2 of 1 slots are out"
    two.give_back(NOW_S)
    assert why_closed(two, NOW_S) == "its only slot is out"


def test_a_rest_is_counted_down_from_now() -> None:
    """To the millisecond; at its end the gate is open."""
    one = gate()
    fetch(one)
    assert why_closed(one, NOW_S) == "rests for another 3.0s"
    assert why_closed(one, NOW_S + 2.984) == "rests for another 16ms"
    assert why_closed(one, NOW_S + 3) == ""


def test_a_block_is_told_until_its_end_or_as_one_without() -> None:
    """A rest that ends before it is not worth a word; one that is longer is."""
    one = gate()
    fetch(one)
    one.block(NOW_S + 2)
    assert why_closed(one, NOW_S) == "blocked for another 2.0s, rests for another 3.0s"
    one.block(NOW_S + 90)
    assert why_closed(one, NOW_S) == "blocked for another 1m 30s"
    one.block(math.inf)
    assert why_closed(one, NOW_S) == "blocked until it is unblocked"


def test_a_blocked_gate_whose_slots_are_out_has_both_reasons() -> None:
    """Neither of them alone would open it."""
    one = gate()
    one.take(NOW_S)
    one.block(NOW_S + 90)
    assert why_closed(one, NOW_S) == "blocked for another 1m 30s, its only slot is out"


def test_what_closes_it_for_longer_than_others_is_told_behind() -> None:
    """Troubles, a throttle, a Crawl-delay; of an open gate nothing is said."""
    one = gate()
    one.set_spacing(10.0)
    fetch(one)
    assert why_closed(one, NOW_S + 1.5) == "rests for another 8.5s, Crawl-delay 10s"
    one.trouble(HostTrouble.THROTTLED, 0.0, NOW_S)
    assert why_closed(one, NOW_S) == (
        "blocked for another 1m, troubles in a row: 1, starts 1m apart since a 429, Crawl-delay 10s"
    )
    assert why_closed(one, NOW_S + 10_000) == ""
