"""The tables and panels of the SMM experiment out of numbers that a test can read."""

import pytest

from anabranch.crawler.lab.filters.smm_passes import BloomRun, Measured, Passes, SmmRun, TableRun
from anabranch.crawler.lab.filters.smm_report import report_of
from anabranch.crawler.lab.report import NOT_RECOVERABLE


def passes(first_us, second_us, new=100):
    return Passes(first_us=first_us, second_us=second_us, new=new, forgotten=0)


def smm(store, us, new=100):
    both = passes(us, us / 10, new), passes(us / 2, us / 20, new)
    return SmmRun(store=store, singly=both[0], batch=both[1], open_us=2000.0, close_us=4000.0)


def report(**more):
    """100 URLs: a fresh store takes 1000 µs, reopened ones 500; five runs."""
    table = TableRun(buckets=100, empty_us=1.0, missing_us=9.0, passes=passes(3.0, 4.0), false_hits=0)
    bloom = BloomRun(bits=80_000, hashes=4, singly=passes(70.0, 60.0), batch=passes(7.0, 6.0), false_hits=50)
    values = {
        "urls": 100,
        "distinct": 100,
        "mean_url_bytes": 50.5,
        "missing": 100,
        "probes": 1000,
        "reopening": (smm("fresh", 1000.0), *[smm("reopened", 500.0, 0)] * 4),
        "fresh": (smm("fresh", 1000.0),) * 5,
        "smm_false_hits": 0,
        "smm_bits": 1 << 32,
        "smm_disk_bytes": 4096,
        "tables": ((table, table),),
        "table_bytes": 1024,
        "blooms": ((bloom,),),
    }
    return report_of(Measured(**values | more))


def test_every_row_is_as_long_as_its_heads() -> None:
    """In every table."""
    for table in report().tables:
        assert {len(row) for row in table.rows} == {len(table.columns)}, table.title


def test_table_1_has_the_published_run_beside_the_measured_one() -> None:
    """Five runs: the fifth has no published one; then their mean and median, whole and per URL."""
    rows = report().tables[0].rows
    assert rows[0] == ("1", "fresh", 2_038_838, 1000.0, 500.0, 170_205, 100.0, 50.0)
    assert rows[3] == ("4", "reopened", 342_219, 500.0, 250.0, 165_811, 50.0, 25.0)
    assert rows[4][2] is rows[4][5] is None
    assert rows[5] == ("mean", None, 787_788.5, 600.0, 300.0, 167_850, 60.0, 30.0)
    assert rows[6] == ("median", None, 385_072.0, 500.0, 250.0, 167_692, 50.0, 25.0)
    assert rows[7] == (
        "mean/URL",
        None,
        pytest.approx(10.502, abs=1e-3),
        6.0,
        3.0,
        pytest.approx(2.2376, abs=1e-4),
        0.6,
        0.3,
    )
    assert rows[8] == (
        "median/URL",
        None,
        pytest.approx(5.1335, abs=1e-3),
        5.0,
        2.5,
        pytest.approx(2.2355, abs=1e-3),
        0.5,
        0.25,
    )


def test_fresh_stores_have_a_table_of_their_own() -> None:
    """Whether the published runs 2 to 4 were such is not said."""
    reopening, fresh = report().tables[:2]
    assert [row[1] for row in fresh.rows] == ["fresh"] * 5 + [None] * 4
    assert fresh.columns == reopening.columns
    assert "not counted: opening the store (2 ms" in fresh.note.lower()


def test_a_run_that_was_disturbed_does_not_count_twice() -> None:
    """All tables but the mean of table 1 have medians."""
    table = [
        TableRun(buckets=100, empty_us=us, missing_us=us, passes=passes(us, us), false_hits=0)
        for us in (1.0, 2.0, 99.0)
    ]
    bloom = [BloomRun(bits=80, hashes=1, singly=None, batch=passes(us, us), false_hits=0) for us in (1.0, 2.0, 99.0)]
    reopening = (smm("fresh", 1000.0), *(smm("reopened", us, 0) for us in (500.0, 500.0, 9e9)))
    disturbed = report(tables=(table,), blooms=(bloom,), reopening=reopening)
    _, _, tables, blooms, every = disturbed.tables
    assert disturbed.panels[0].curves[0].y[2:4] == (5.0, 2.5)
    assert set(tables.rows[0][3:5]) == {2.0}
    assert set(blooms.rows[0][4::2]) == {2.0}
    assert every.rows[1][2:4] == every.rows[2][4:6] == (0.02, 0.02)


def test_table_2_has_three_published_columns() -> None:
    """The first query has both readings beside it, since the source does not say what it met."""
    table = report().tables[2]
    assert table.rows == ((100, 2, 3_497_778, 1.0, 9.0, 1_116_397, 3.0, 3_487_212, 4.0),)
    assert [column for column in table.columns if column.endswith("published")] == [table.columns[i] for i in (2, 5, 7)]


def test_what_was_left_out_is_named() -> None:
    """Buckets under their table, single URLs under the Bloom filters'."""
    quick = BloomRun(bits=80_000, hashes=4, singly=None, batch=passes(7.0, 6.0), false_hits=0)
    _, _, tables, blooms, _ = report(blooms=((quick,),)).tables
    assert tables.note.endswith("Left out by --quick: 10, 1,000, 10,000 buckets.")
    assert blooms.note.endswith("Left out by --quick: one URL at a time.")
    assert blooms.rows == ((80_000, 4, NOT_RECOVERABLE, None, 7.0, None, 6.0),)
    assert "--quick" not in report().tables[3].note


def test_table_3_is_lost() -> None:
    """Its cells say so; what was measured stands beside them."""
    assert report().tables[3].rows == ((80_000, 4, NOT_RECOVERABLE, 70.0, 7.0, 60.0, 6.0),)


def test_all_methods_stand_side_by_side_with_their_errors() -> None:
    """Time per URL, new URLs dropped and false hits, each beside its formula."""
    smm_row, table_row, bloom_row = report().tables[4].rows
    assert smm_row[:7] == ("SMM", 4.0, 10.0, 1.0, 5.0, 0.5, 0)
    assert table_row[:6] == ("bitmap table B=100", (1024 + 64 * 100) / 1024, 0.03, 0.04, None, None)
    assert table_row[6:] == (0, 0.0, 0.0, 0.0)
    assert bloom_row[8] == 0.05
    assert bloom_row[9] == pytest.approx(6.2e-10, rel=0.05)


def test_the_panels_have_a_bar_for_every_time_and_every_rate() -> None:
    """Stores fresh and reopened, singly and in a batch; a formula of 0 has no mark on a log axis."""
    times, rates = report().panels
    assert times.names == (
        "SMM, fresh store",
        "SMM, fresh store, one batch",
        "SMM, reopened store",
        "SMM, reopened store, one batch",
        "bitmap table B=100",
        "Bloom m=80,000 k=4, one batch",
    )
    first, second = times.curves
    assert first.y == (10.0, 5.0, 5.0, 2.5, 0.03, 0.07)
    assert second.y == (1.0, 0.5, 0.5, 0.25, 0.04, 0.06)
    measured, formula = rates.curves
    assert (measured.x, measured.y) == ((0.0, 1.0, 2.0), (0.0, 0.0, 0.05))
    assert (formula.x, formula.is_dashed) == ((0.0, 2.0), True)


def test_one_run_has_no_reopened_store() -> None:
    """Then its bars are missing, and nothing else."""
    fresh = (smm("fresh", 1000.0),)
    times, _ = report(reopening=fresh, fresh=fresh).panels
    assert [name for name in times.names if "reopened" in name] == []
    assert len(times.curves[0].x) == len(times.names) == 4
