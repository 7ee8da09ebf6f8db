"""Times, durations and rates for the eye."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

import pytest

from anabranch.frontier.operating.timewords import (
    clock_words,
    counted,
    duration_words,
    in_time,
    moment_words,
    rate_words,
)

NOW_S = 1_782_900_000.0  # 2026-07-01 10:00:00 UTC


@pytest.fixture(params=["UTC", "Asia/Tokyo"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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
    """What is past is now."""
    assert moment_words(NOW_S - 1, NOW_S) == "now"
    assert moment_words(NOW_S + 12, NOW_S).endswith(":00:12, in 12s")


def test_without_a_time_nothing_is_said_of_it() -> None:
    """Neither of a time that is not known nor of one that never comes."""
    assert in_time("it opens", None, NOW_S) == in_time("it opens", math.inf, NOW_S) == ""
    assert in_time("it opens", NOW_S, NOW_S) == "; it opens now"


def test_one_thing_is_singular() -> None:
    """And thousands have their comma."""
    assert [counted(1, "URL"), counted(2000, "URL"), counted(2, "try", "tries")] == ["1 URL", "2,000 URLs", "2 tries"]
