"""What `anabranch lab redis` makes of its figures."""

from dataclasses import replace

import pytest

from anabranch.crawler.lab.filters.redis_report import Measured, Setup, report
from anabranch.crawler.lab.report import NOT_RECOVERABLE

SETUP = Setup(urls=1000, known=250, batch=300, latency_s=0.0004, false_positive=1e-3, cores=2)


def row(
    leaves: int, threads: int, new_per_s: float, known_per_s: float = 90_000.0, client_cores: float = 0.5
) -> Measured:
    return Measured(
        leaves=leaves,
        threads=threads,
        new_per_s=new_per_s,
        known_per_s=known_per_s,
        client_cores=client_cores,
        falsely_known=1,
        splits=0,
    )


ROWS = (row(1, 1, 20_000.0), row(1, 4, 30_000.0), row(3, 1, 25_000.0), row(3, 4, 60_000.0))


def words(*rows: Measured, setup: Setup = SETUP) -> str:
    return "\n".join(report(setup, rows).closing)


def test_the_published_figure_stands_beside_its_own_c_alone() -> None:
    """The paper's prose is about c = 3; what its curves said elsewhere is not recoverable."""
    (table,) = report(SETUP, ROWS).tables
    published = [cells[table.columns.index("published URLs/s")] for cells in table.rows]
    assert published == [NOT_RECOVERABLE, NOT_RECOVERABLE, "about 15,000", "about 15,000"]
    assert [cells[table.columns.index("new / published")] for cells in table.rows] == [None, None, 25 / 15, 4.0]
    assert all(len(cells) == len(table.columns) for cells in table.rows)


def test_each_c_is_a_curve_over_its_threads() -> None:
    """Beside them, dashed, what was published and what a crawler needs."""
    (panel,) = report(SETUP, ROWS).panels
    solid = [curve for curve in panel.curves if not curve.is_dashed]
    assert [(curve.label, curve.x, curve.y) for curve in solid] == [
        ("c = 1", (1.0, 4.0), (20_000.0, 30_000.0)),
        ("c = 3", (1.0, 4.0), (25_000.0, 60_000.0)),
    ]
    assert [curve.y[0] for curve in panel.curves if curve.is_dashed] == [15_000.0, 2_000.0]


def test_the_need_of_a_crawler_is_held_against_the_slowest_row() -> None:
    """2,000 checks per second, whether the URLs are new or known; a row that is too slow is named."""
    assert "(c = 1, 1 thread) does 20,000, 10 times as many" in words(*ROWS)
    slow = row(3, 8, 50_000.0, known_per_s=1_500.0)
    assert "(c = 3, 8 threads) is too slow for it with 1,500" in words(*ROWS, slow)


@pytest.mark.parametrize(("last", "verb"), [(60_000.0, "rises"), (29_000.0, "hardly changes"), (10_000.0, "falls")])
def test_whether_the_speed_rises_with_c_is_read_from_the_rows(last: float, verb: str) -> None:
    """The paper's claim is repeated only if this run shows it."""
    told = words(*ROWS[:2], row(5, 4, last))
    assert f"Here it {verb} from c = 1 to c = 5 (best rows, URLs/s: c = 1: 30,000; c = 5: {last:,.0f})" in told


def test_a_peak_between_the_first_and_the_last_c_is_named() -> None:
    """A speed that rises and falls again is not told as if it only rose."""
    assert "rises from c = 1 to c = 5, with its peak at c = 3 (" in words(*ROWS, row(5, 4, 50_000.0))


@pytest.mark.parametrize(
    ("used", "told"),
    [
        (0.97, "0.97 of 2 cores, so Python is the limit"),
        (0.7, "0.70 of 2 cores, the rest was for 3 servers."),
        (0.2, "0.20 of 2 cores, so the limit is 3 servers, each of which runs one script at a time"),
    ],
)
def test_what_limits_is_read_from_the_fastest_row(used: float, told: str) -> None:
    """Threads that fill a core show that the interpreter is the limit, idle ones that the servers are."""
    assert told in words(*ROWS, row(3, 8, 70_000.0, client_cores=used))


def test_one_row_is_a_report_too() -> None:
    """With one c and one number of threads there is nothing to compare, and the rest is said."""
    told = words(row(2, 1, 20_000.0))
    assert "rises" not in told
    assert "published 15,000" not in told
    assert "(1.0e-03; the bound is 0.001)" in told


def test_a_run_without_a_wire_says_so() -> None:
    """Loopback is no match for the paper's machines; a simulated wire is called simulated."""
    without = replace(SETUP, latency_s=0.0)
    assert "--latency 0.4ms" in words(*ROWS, setup=without)
    assert "loopback without a wire" in report(without, ROWS).tables[0].title
    assert "simulated: a thread waits 0.4 ms longer" in words(*ROWS)
    assert "0.4 ms to all servers but one" in report(SETUP, ROWS).tables[0].title
