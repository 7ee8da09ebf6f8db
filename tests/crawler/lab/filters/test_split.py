"""`anabranch lab split`: a small DSBF outgrows its plan; what its tables, pictures and sentences are made of."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import isnan
from pathlib import Path

import pytest

from anabranch.crawler.lab.filters import split
from anabranch.crawler.lab.filters.split import SplitMeasurements, SplitOptions, SplitPoint, report, run, waves_of
from anabranch.crawler.lab.report import LabReport
from anabranch.crawler.outcomes.errors import UsageError
from anabranch.dedup.errors import BadParameters
from tests.rows import each_row

SMALL = SplitOptions(n=20_000, planned=2_000, points=8, probes=2_000, leaf_bits=4096)


def quiet(done: int, total: int, what: str) -> None:
    """Progress that goes nowhere."""


@pytest.fixture(scope="module")
def small() -> LabReport:
    split._BATCH, before = 500, split._BATCH
    try:
        return run(SMALL, quiet)
    finally:
        split._BATCH = before


def column(report: LabReport, name: str) -> list[float]:
    table = report.tables[0]
    return [float(row[table.columns.index(name)] or 0) for row in table.rows]


def test_the_dsbf_stays_below_its_bound_and_the_planned_filter_does_not(small: LabReport) -> None:
    """Ten times as many URLs as were planned: leaves split in waves, and no leaf ever exceeds f_max by formula."""
    assert max(column(small, "worst leaf by formula")) <= 1e-3
    assert column(small, "splits")[-1] > 0
    assert column(small, "leaves")[-1] > column(small, "leaves")[0]
    assert column(small, "classic, planned size: rate")[-1] > 0.9
    assert column(small, "classic, final size: rate")[-1] < 0.01
    assert "never above f_max = 0.001, splits included" in small.closing[0]


def test_measured_rates_are_those_of_the_formula(small: LabReport) -> None:
    """2,000 probes at each point: within four standard deviations, and one hit where hardly any is expected."""
    for name, formula in (("DSBF: rate", "by formula"), ("classic, planned size: rate", "by formula (planned)")):
        for rate, expected in zip(column(small, name), column(small, formula), strict=True):
            assert rate == pytest.approx(expected, abs=4 * (expected / SMALL.probes) ** 0.5 + 1 / SMALL.probes)


def test_all_panels_have_the_waves_and_each_filter(small: LabReport) -> None:
    """The rates, the cost of both operations, and the fill of the leaves, which falls with each wave."""
    rates, insertion, fill, query = small.panels
    waves = len(small.tables[1].rows)
    assert waves >= 1
    assert all(len(panel.shaded) == waves and panel.shaded_label for panel in small.panels)
    assert [len(panel.curves) for panel in (rates, insertion, fill, query)] == [7, 3, 3, 3]
    fullest, mean, emptiest = (curve.y for curve in fill.curves)
    assert all(low <= middle <= high <= 100 for low, middle, high in zip(emptiest, mean, fullest, strict=True))
    assert any(after < before for before, after in pairwise(mean))


def test_more_is_asked_than_a_file_has(tmp_path: Path) -> None:
    """URLs from a file must do for n and for the probes."""
    file = tmp_path / "urls.txt"
    file.write_text("http://a.example/1\nhttp://a.example/2\n")
    with pytest.raises(UsageError, match="2 distinct URLs; --n and --probes need 22,000"):
        run(replace(SMALL, urls=file), quiet)


@each_row(
    ("flag", "value"),
    [("n", 9_999), ("planned", 0), ("planned", 20_001), ("points", 0), ("points", 201), ("probes", 0)],
)
def test_a_number_that_makes_no_sense_is_refused(flag: str, value: int) -> None:
    """Before anything is measured, by its name."""
    with pytest.raises(UsageError, match=f"--{flag}"):
        replace(SMALL, **{flag: value})  # type: ignore[arg-type]  # a number, whatever the field


def test_an_impossible_shape_is_refused() -> None:
    """The error is that of the DSBF itself."""
    with pytest.raises(BadParameters, match="leaf_bits is 1000"):
        run(replace(SMALL, leaf_bits=1000), quiet)


def point(urls: int, **more: float) -> SplitPoint:
    values: dict[str, float] = {"rate": 0.0, "formula": 1e-4, "worst": 2e-4, "insert_us": 1.0, "query_us": 0.1} | more
    return SplitPoint(urls=urls, memory_bytes=1024, fills=(0.1, 0.2, 0.3), **values)


def measurements(**more: object) -> SplitMeasurements:
    points = (point(10_000), point(20_000))
    values: dict[str, object] = {
        "options": replace(SMALL, points=2),
        "hashes": 10,
        "capacity": 100,
        "dsbf": points,
        "planned": points,
        "final": points,
        "split_at": (),
    }
    return SplitMeasurements(**values | more)  # type: ignore[arg-type]  # fields by name


def test_splits_near_each_other_are_one_wave() -> None:
    """A gap of more than a twentieth of n begins the next one."""
    measured = measurements(split_at=((2_000, 3), (2_500, 1), (3_500, 2), (4_600, 1)))
    assert waves_of(measured) == [(2_000, 3_500, 6), (4_600, 4_600, 1)]


def test_the_filters_take_turns_point_by_point() -> None:
    """In an order that reverses, so that a busy machine slows all of them."""
    whats: list[str] = []
    run(replace(SMALL, points=3, probes=100), lambda _done, _total, what: whats.append(what))
    names = [what.partition(", ")[0] for what in whats[1:-1]]
    turn = ["DSBF", "classic Bloom filter of the planned size", "classic Bloom filter of the final size"]
    assert names == [*turn, *reversed(turn), *turn]


def test_a_cost_is_a_ratio_with_its_interval() -> None:
    """By points; where they do not agree no difference is shown, and few of them have no interval."""
    points = tuple(point(1_000 * number) for number in range(1, 11))
    dear = tuple(replace(one, insert_us=3.0, query_us=0.2) for one in points)
    (line,) = (
        line
        for line in report(measurements(dsbf=dear, planned=points, final=points)).closing
        if "Where it does not hold" in line
    )
    assert "one classic filter of that size needs less memory and less time." in line
    assert "takes the DSBF 3 (95 %: 3 to 3) times as long to insert and 2 (95 %: 2 to 2) times as long to query" in line
    (line,) = (line for line in report(measurements()).closing if "Where it does not hold" in line)
    assert "needs less memory; no difference in time is shown." in line
    assert "1 (2 rounds: no interval) times as long to insert" in line


def test_without_a_split_the_report_says_so() -> None:
    """The URLs stayed within the plan; a rate of 0 is a gap on the log axis."""
    found = report(measurements())
    assert found.closing[-1] == "No leaf split: the URLs stayed within the plan."
    assert found.tables[1].rows == ()
    assert all(map(isnan, found.panels[0].curves[0].y))


def test_a_leaf_above_its_bound_is_shouted() -> None:
    """It would be a defect of the DSBF."""
    assert "ABOVE f_max" in report(measurements(dsbf=(point(10_000, worst=2e-3), point(20_000)))).closing[0]
