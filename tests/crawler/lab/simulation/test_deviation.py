"""How far a simulated run is from a live one."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from anabranch.crawler.lab.policies.series import RunResult, Sample
from anabranch.crawler.lab.simulation.deviation import deviation, table, words
from anabranch.frontier.policies.balance import Balance


def run_of(active: float, urls_per_s: float, seconds: int = 10) -> RunResult:
    samples = tuple(Sample(at_s, at_s * active, active, 0, 0, 0, at_s * urls_per_s, 0) for at_s in range(seconds + 1))
    return RunResult(
        policy="host", samples=samples, duration_s=seconds, is_drained=True, queue_lengths=Balance(1, 1, 1)
    )


def test_a_run_does_not_deviate_from_itself() -> None:
    """The distance is 0 in both curves."""
    assert deviation(run_of(5, 3), run_of(5, 3))[3::3] == (0.0, 0.0)


def test_the_distance_is_told_as_a_share_of_the_live_mean() -> None:
    """8 against 10 workers is a fifth of the live run's 10, and 3 URLs/s against 2 a half."""
    found = deviation(run_of(10, 2), run_of(8, 3))
    assert found[1:4] == pytest.approx((10, 8, 0.2))
    assert found[4:] == pytest.approx((2, 3, 0.5))


def test_curves_that_cross_deviate_though_their_means_are_equal() -> None:
    """Distances do not cancel out."""
    live = run_of(10, 2)
    ups = tuple(sample._replace(held_s=20 * min(sample.at_s, 5)) for sample in live.samples)
    found = deviation(live, replace(live, samples=ups))
    assert found.simulated_active == pytest.approx(10)
    assert found.active == pytest.approx(1.0)


def test_a_run_that_ends_earlier_deviates_until_the_other_ends() -> None:
    """Nobody is active after its end."""
    assert deviation(run_of(10, 2, 10), run_of(10, 2, 5)).active == pytest.approx(0.5, abs=0.1)


def test_nothing_live_to_compare_with_is_no_crash() -> None:
    """A live run in which nothing happened is infinitely far from one in which something did."""
    found = deviation(run_of(0, 0), run_of(1, 0))
    assert found.active == math.inf
    assert "beyond measure" in words("a web", [found])


def test_the_words_name_what_is_far_off() -> None:
    """And say so if nothing is; the table has percents."""
    near, far = deviation(run_of(10, 2), run_of(9, 2)), deviation(run_of(10, 2), run_of(4, 2))
    assert words("a web", [near]) == "a web: the simulation is within 20% of the live run under every policy."
    assert words("a web", [near, far]).endswith("under 1 of 2 policies: host 60 % in active workers and 0 % in URLs/s.")
    assert table("a web", [far]).rows == (("host", 10.0, 4.0, pytest.approx(60.0), 2.0, 2.0, 0.0),)
