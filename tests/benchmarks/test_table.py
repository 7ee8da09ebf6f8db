"""How a run's rows are shown."""

import json

import pytest

from scripts.benchmarks.calibration import REFERENCE_ROUNDS
from scripts.benchmarks.rows import Judged, Row
from scripts.benchmarks.table import Run, amount, json_of, text_of
from tests.rows import each_row

FAST = Row(name="fast", what="keys asked", measured=1_234_567.8, unit="URLs/s", target=1_000_000.0, note="18 leaves")
LATE = Row(name="late", what="one call", measured=12.34, unit="ms", target=10.0, is_bound=True)
PLAIN = Row(name="plain", what="a peer", measured=5.0, unit="URLs/s")
BROKEN = Row(name="broken", what="a server", measured=None, unit="", note="OSError: no server")


def run(*rows: Row, is_quick: bool = False) -> Run:
    judged = tuple(Judged(row=row, calibration=REFERENCE_ROUNDS / 4, fastest=REFERENCE_ROUNDS / 2) for row in rows)
    return Run(subject="dedup", is_quick=is_quick, took_s=12.0, rows=judged)


def test_each_row_shows_figure_target_ratio_and_verdict() -> None:
    """A rate also shows what it is scaled to."""
    fast, late = (line.split() for line in text_of(run(FAST, LATE)).splitlines() if line.startswith(("fast", "late")))
    assert fast[3:] == ["1,234,568", "URLs/s", "2,469,136", "URLs/s", ">=", "1,000,000", "URLs/s", "2.47", "met"]
    assert late[3:] == ["12.3", "ms", "<=", "10", "ms", "0.81", "falls", "short"]


def test_an_interval_stands_beside_its_figure() -> None:
    """Without its unit, which the figure has."""
    row = Row(name="x", what="ratio", measured=1.5, unit="x", interval=(1.25, 2.0))
    line = next(line for line in text_of(run(row)).splitlines() if line.startswith("x "))
    assert line.split() == ["x", "ratio", "1.5", "x", "1.25", "to", "2"]


def test_columns_stand_one_below_the_other() -> None:
    """Every row's verdict begins in the same column."""
    lines = text_of(run(FAST, LATE)).splitlines()
    head = next(line for line in lines if line.startswith("row"))
    for line in lines:
        if line.startswith(("fast", "late")):
            assert line[head.index("verdict") :] in ("met", "falls short")


def test_notes_stand_below_the_table() -> None:
    """A note names its row; rows without one have no line there."""
    notes = text_of(run(FAST, LATE)).split("\nnotes\n")[1]
    assert notes.strip() == "fast: 18 leaves"


def test_a_small_version_says_so() -> None:
    """The figures of `--quick` cannot be taken for the real ones."""
    assert "quick:" in text_of(run(FAST, is_quick=True))
    assert "quick:" not in text_of(run(FAST))


@pytest.mark.parametrize(("rows", "short"), [((FAST, PLAIN), False), ((FAST, LATE), True), ((FAST, BROKEN), True)])
def test_a_run_falls_short_with_one_of_its_rows(rows: tuple[Row, ...], short: bool) -> None:
    """A missed target does, and a row that could not be measured; one without a target does not."""
    assert run(*rows).falls_short is short


def test_json_has_every_figure_unrounded() -> None:
    """Machines get what the table rounds, the verdict, and the machine that it was measured on."""
    told = json.loads(json_of(run(FAST, BROKEN)))
    fast, broken = told["rows"]
    assert (fast["measured"], fast["scaled"], fast["verdict"]) == (1_234_567.8, 2_469_135.6, "met")
    assert (broken["measured"], broken["ratio"], broken["verdict"]) == (None, None, "not run")
    assert told["machine"].keys() >= {"cores", "cpu", "python", "numpy"}


@each_row(
    ("value", "unit", "shown"),
    [
        (None, "URLs/s", ""),
        (0.0, "keys", "0 keys"),
        (123_456.7, "URLs/s", "123,457 URLs/s"),
        (0.000987, "", "0.000987"),
        (2048.0, "", "2,048"),
        (3070.6, "µs", "3,071 µs"),
        (536_870_912.0, "bytes", "512.0 MiB"),
        (3 * 2**30, "bytes", "3.0 GiB"),
        (12.0, "bytes", "12.0 bytes"),
    ],
)
def test_numbers_are_shown_for_reading(value: float | None, unit: str, shown: str) -> None:
    """Rates and counts are whole, sizes have a binary unit, the rest has three digits."""
    assert amount(value, unit) == shown
