"""What an answer tells of its host."""

from __future__ import annotations

import math

import pytest

from anabranch.frontier.hosttroubles import asked_rest_s, told_by
from anabranch.frontier.models import HostTrouble

NOW_S = 1_700_000_000.0  # Tue, 14 Nov 2023 22:13:20 GMT


@pytest.mark.parametrize(
    ("value", "asked_s"),
    [
        ("120", 120.0),
        (" 7 ", 7.0),
        ("0", 0.0),
        ("360000", 360_000.0),
        ("9" * 400, math.inf),
        ("Tue, 14 Nov 2023 22:15:20 GMT", 120.0),
        ("Tue, 14 Nov 2023 22:15:20 -0000", 120.0),
        ("Wed, 15 Nov 2023 22:13:20 GMT", 86_400.0),
        ("Tue, 14 Nov 2023 22:00:00 GMT", 0.0),
        ("-5", 0.0),
        ("1.5", 0.0),
        ("\u0663", 0.0),
        ("soon", 0.0),
        ("", 0.0),
        ("Tue, 99 Nov 2023 22:13:20 GMT", 0.0),
        ("Tue, 14 Nov 99999999 22:13:20 GMT", 0.0),
    ],
)
def test_what_a_host_asks_for_is_told_uncut(value: str, asked_s: float) -> None:
    """Seconds or a date; never negative, 0 if it cannot be read. The Frontier knows the longest that may be asked for."""
    assert asked_rest_s(value, NOW_S) == asked_s


@pytest.mark.parametrize(
    ("status", "retry_after", "told"),
    [
        (200, "", (HostTrouble.NONE, 0.0)),
        (200, "7", (HostTrouble.NONE, 0.0)),
        (302, "7", (HostTrouble.NONE, 7.0)),
        (404, "", (HostTrouble.NONE, 0.0)),
        (404, "7", (HostTrouble.UNAVAILABLE, 7.0)),
        (429, "", (HostTrouble.THROTTLED, 0.0)),
        (429, "7", (HostTrouble.THROTTLED, 7.0)),
        (500, "", (HostTrouble.NONE, 0.0)),
        (500, "7", (HostTrouble.UNAVAILABLE, 7.0)),
        (503, "", (HostTrouble.UNAVAILABLE, 0.0)),
        (503, "7", (HostTrouble.UNAVAILABLE, 7.0)),
    ],
)
def test_an_answer_tells_of_its_host(status: int, retry_after: str, told: tuple[HostTrouble, float]) -> None:
    """429 is too much, 503 or an error with Retry-After is trouble; a redirect's Retry-After is a wish without trouble."""
    assert told_by(status, retry_after, NOW_S) == told
