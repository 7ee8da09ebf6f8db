"""Clocks: whatever is done to the machine's, time goes on and never back."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

import pytest

from anabranch.frontier.composition import FrontierOrder, open_frontier
from anabranch.frontier.frontier import Frontier
from anabranch.frontier.records import Candidate, Outcome, OutcomeKind
from anabranch.frontier.scheduling.gates import Politeness
from anabranch.frontier.times import (
    clock_words,
    counted,
    duration_words,
    in_time,
    moment_words,
    never_back,
    rate_words,
    steady_clock,
)
from tests.rows import each_row

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


NOW_S = 1_782_900_000.0  # 2026-07-01 10:00:00 UTC


@pytest.fixture(params=["UTC", "Asia/Tokyo"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


@each_row(
    ("seconds", "words"),
    [
        (0, "0ms"),
        (-5, "0ms"),
        (0.25, "250ms"),
        (0.9996, "1.0s"),
        (4.23, "4.2s"),
        (9.94, "9.9s"),
        (10.2, "10s"),
        (59.6, "1m"),
        (123, "2m 3s"),
        (3600, "1h"),
        (93_600, "1d 2h"),
        (86_401, "1d"),
        (math.inf, "for ever"),
    ],
)
def test_a_duration_has_its_two_largest_units(seconds: float, words: str) -> None:
    """More of them nobody reads."""
    assert duration_words(seconds) == words


def test_a_time_is_local(zone: str) -> None:
    """The operator's clock on the wall shows the same; another day has its date."""
    hour = {"UTC": "10", "Asia/Tokyo": "19"}[zone]
    assert clock_words(NOW_S, NOW_S) == f"{hour}:00:00"
    assert clock_words(NOW_S + 86_400, NOW_S) == f"2026-07-02 {hour}:00:00"


@pytest.mark.parametrize("at_s", [1e15, math.inf, math.nan])
def test_a_time_beyond_the_calendar_is_never(at_s: float) -> None:
    """A block for good is infinity."""
    assert clock_words(at_s, NOW_S) == "never"


@each_row(
    ("rate", "words"),
    [
        (2.5, "2.5 URLs a second"),
        (1.001, "1 URL a second"),
        (0.2, "a URL each 5.0s"),
        (math.inf, "no limit"),
        (0, "no URL at all"),
    ],
)
def test_a_slow_rate_is_told_as_the_time_between_two(rate: float, words: str) -> None:
    """0.0033 a second says less than five minutes."""
    assert rate_words(rate) == words


def test_a_moment_says_when_and_how_soon(zone: str) -> None:
    """A moment in the past is "now"."""
    assert moment_words(NOW_S - 1, NOW_S) == "now"
    assert moment_words(NOW_S + 12, NOW_S).endswith(":00:12, in 12s")


def test_without_a_time_nothing_is_said_of_it() -> None:
    """Neither of a time that is not known nor of one that never comes."""
    assert in_time("it opens", None, NOW_S) == in_time("it opens", math.inf, NOW_S) == ""
    assert in_time("it opens", NOW_S, NOW_S) == "; it opens now"


def test_one_thing_is_singular() -> None:
    """And thousands have their comma."""
    assert [counted(1, "URL"), counted(2000, "URL"), counted(2, "try", "tries")] == ["1 URL", "2,000 URLs", "2 tries"]
