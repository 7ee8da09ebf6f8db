"""Clocks: whatever is done to the machine's, time goes on and never back."""

from __future__ import annotations

import pytest

from anabranch.frontier.clocks import never_back, steady_clock
from anabranch.frontier.composition import FrontierOrder, open_frontier
from anabranch.frontier.core import Frontier
from anabranch.frontier.models import Candidate, Outcome, OutcomeKind
from anabranch.frontier.scheduling.gates import Politeness

HOUR_S = 3600.0
START_S = 1_000_000.0
RESTS = FrontierOrder(policy="host", politeness=Politeness(min_delay_s=10.0, max_delay_s=10.0))


class Source:
    """A clock that the test sets."""

    def __init__(self, now_s: float) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s


def test_the_steady_clock_reads_the_epoch_once() -> None:
    """From then on it goes by the monotonic clock, wherever the epoch is set to."""
    epoch, monotonic = Source(START_S), Source(50.0)
    clock = steady_clock(epoch, monotonic)
    assert clock() == START_S
    for step_s in (-HOUR_S, HOUR_S):
        epoch.now_s += step_s
        monotonic.now_s += 7.0
    assert clock() == START_S + 14.0


def test_a_clock_that_goes_on_is_left_alone() -> None:
    """Also if it stands, and if it leaps ahead."""
    source = Source(START_S)
    clock = never_back(source)
    for step_s in (0.0, 0.0, 1.5, HOUR_S, 0.25):
        source.now_s += step_s
        assert clock() == source.now_s


def test_a_clock_that_goes_back_stays_at_the_highest_time_and_goes_on_from_there() -> None:
    """However often: it is as late as it was, and a second lasts a second."""
    source = Source(START_S)
    clock = never_back(source)
    shown_s = clock()
    for back_s in (HOUR_S, 0.5, 10 * HOUR_S):
        source.now_s -= back_s
        assert clock() == shown_s
        source.now_s += 3.0
        shown_s += 3.0
        assert clock() == pytest.approx(shown_s, abs=1e-6)


@pytest.mark.parametrize("moment", ["before the lease", "during the fetch", "while the gate rests"])
def test_a_clock_set_back_neither_stalls_a_gate_nor_opens_it_early(moment: str) -> None:
    """An hour back: the rest of ten seconds lasts ten seconds all the same."""
    source = Source(START_S)
    with open_frontier(None, RESTS, clock=source) as frontier:
        frontier.schedule([Candidate(f"http://a.test/{number}") for number in range(2)])
        source.now_s -= HOUR_S * (moment == "before the lease")
        lease = frontier.lease()
        assert lease is not None
        source.now_s -= HOUR_S * (moment == "during the fetch")
        frontier.finish(lease, Outcome(OutcomeKind.DONE, 200, lease.since_s, frontier.now_s()))
        source.now_s -= HOUR_S * (moment == "while the gate rests")
        assert waits_s(frontier) == pytest.approx(10.0)
        source.now_s += 9.0
        assert frontier.lease() is None
        source.now_s += 1.001
        assert frontier.lease() is not None


def waits_s(frontier: Frontier) -> float:
    """How long until something can be leased."""
    at_s = frontier.wake().at_s
    assert at_s is not None
    return at_s - frontier.now_s()
