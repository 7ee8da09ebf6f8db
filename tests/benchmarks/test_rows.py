"""How a measured figure is scaled and judged."""

from pathlib import Path

import pytest

from scripts.benchmarks.calibration import REFERENCE_ROUNDS
from scripts.benchmarks.rows import Judged, Row, Setting, rounds_row
from tests.rows import each_row


def judged(
    measured: float | None, unit: str, target: float | None, *, is_bound: bool = False, speed: float = 1.0
) -> Judged:
    row = Row(name="r", what="w", measured=measured, unit=unit, target=target, is_bound=is_bound)
    return Judged(row=row, calibration=speed * REFERENCE_ROUNDS / 2, fastest=speed * REFERENCE_ROUNDS)


def test_a_rate_is_scaled_to_the_reference_machine() -> None:
    """Half the rate on a machine of half the speed is as good as the whole; what disturbed it beside the row is no excuse."""
    slow = judged(100.0, "URLs/s", 200.0, speed=0.5)
    assert (slow.scaled, slow.ratio, slow.verdict) == (200.0, 1.0, "met")


def test_a_fast_machine_earns_nothing() -> None:
    """The target's rate on a machine of twice the speed falls short."""
    assert judged(200.0, "URLs/s", 200.0, speed=2.0).verdict == "falls short"


@each_row("unit", ["ms", "s", "bytes", "x", ""])
def test_only_rates_are_scaled(unit: str) -> None:
    """Times, sizes, ratios and shares are judged as measured."""
    assert judged(7.0, unit, None, speed=0.5).scaled == 7.0


@pytest.mark.parametrize(
    ("measured", "verdict", "ratio"), [(5.0, "met", 2.0), (10.0, "met", 1.0), (20.0, "falls short", 0.5)]
)
def test_a_bound_is_met_from_below(measured: float, verdict: str, ratio: float) -> None:
    """A bound is the largest value allowed: less is better, and the ratio still says how many times better."""
    found = judged(measured, "ms", 10.0, is_bound=True)
    assert (found.verdict, found.ratio) == (verdict, ratio)


def test_none_where_none_is_allowed_is_met_without_a_ratio() -> None:
    """Zero losses meet a bound of zero; one does not."""
    none, one = judged(0.0, "keys", 0.0, is_bound=True), judged(1.0, "keys", 0.0, is_bound=True)
    assert (none.verdict, none.ratio) == ("met", None)
    assert (one.verdict, one.ratio) == ("falls short", None)


def test_without_a_target_there_is_no_verdict() -> None:
    """A figure for comparison is not judged."""
    found = judged(3.0, "URLs/s", None)
    assert (found.verdict, found.ratio) == ("", None)


def test_what_could_not_be_measured_is_not_run() -> None:
    """A missing figure is never taken for a good one."""
    found = judged(None, "", None)
    assert (found.scaled, found.verdict) == (None, "not run")


def test_the_small_version_takes_a_twentieth_of_the_keys() -> None:
    """`--quick` changes the counts and nothing else."""
    settings = [Setting(folder=Path(), is_quick=is_quick, say=print) for is_quick in (False, True)]
    assert [setting.count(1000) for setting in settings] == [1000, 50]


@pytest.mark.parametrize(
    ("interval", "verdict"), [((0.9, 1.2), "undecided"), ((1.0, 1.2), "met"), ((0.7, 0.9), "falls short")]
)
def test_a_target_within_the_interval_is_undecided(interval: tuple[float, float], verdict: str) -> None:
    """More rounds decide; an interval on one side of the target does."""
    row = Row(name="r", what="w", measured=1.1, unit="x", target=1.0, interval=interval)
    assert Judged(row=row, calibration=1.0, fastest=1.0).verdict == verdict


def test_the_interval_of_a_rate_is_scaled_as_the_rate_is() -> None:
    """On a machine of half the speed a target of 200 is within 90 to 120, and beyond 70 to 90."""
    for interval, verdict in (((90.0, 120.0), "undecided"), ((70.0, 90.0), "falls short"), ((101.0, 120.0), "met")):
        row = Row(name="r", what="w", measured=100.0, unit="URLs/s", target=200.0, interval=interval)
        assert Judged(row=row, calibration=1.0, fastest=REFERENCE_ROUNDS / 2).verdict == verdict


def test_a_figure_of_rounds_has_its_interval_if_they_are_nine() -> None:
    """The median is shown, and the note has the spread."""
    row = rounds_row("r", "w", [1.0, 1.1, 1.2] * 3, "x", target=1.0, note="more")
    assert (row.measured, row.interval) == (1.1, (1.0, 1.2))
    assert row.note == "1 to 1.2 in 9 rounds; more"
    few = rounds_row("r", "w", [2.0], "x")
    assert (few.measured, few.interval, few.note) == (2.0, None, "2 to 2 in 1 round; an interval takes 9")
