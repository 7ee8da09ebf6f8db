"""The sentences that the SMM experiment ends with follow from its numbers."""

from __future__ import annotations

from dataclasses import replace
from math import exp

import pytest

from anabranch.crawler.lab.filters.smm_report import (
    URLS,
    BloomRun,
    Method,
    Passes,
    SmmMeasurements,
    SmmRun,
    TableRun,
    Times,
    beside,
    closing_of,
    compared,
    errors_compared,
    methods_of,
    named,
    published_methods,
    report_of,
    sizes_compared,
)
from anabranch.crawler.lab.report import NOT_RECOVERABLE


def method(family, member="", us=None, rounds=9, **more):
    """Its time is the same in each round, if it has one."""
    times = Times(first=us)
    return Method(family=family, member=member, times=times, rounds=(times,) * rounds, **more)


def first(times):
    return times.first


def passes(first_us=1.0, second_us=1.0, new=10, forgotten=0):
    return Passes(first_us=first_us, second_us=second_us, new=new, forgotten=forgotten)


def smm(store="fresh", singly=None, batch=None):
    return SmmRun(store=store, singly=singly or passes(), batch=batch or passes(), open_us=0.0, close_us=0.0)


def measured(**more):
    """Ten URLs, one table, one Bloom filter; all is well."""
    reopened = smm("reopened", passes(new=0), passes(new=0))
    return SmmMeasurements(
        **{
            "urls": 10,
            "distinct": 10,
            "mean_url_bytes": 50.5,
            "missing": 10,
            "probes": 100,
            "reopening": (smm(), reopened),
            "fresh": (smm(), smm()),
            "smm_false_hits": 3,
            "smm_bits": 1000,
            "smm_disk_bytes": 4096,
            "tables": (
                (TableRun(buckets=10, empty_us=1.0, missing_us=9.0, singly=passes(), batch=passes(), false_hits=0),),
            ),
            "table_bytes": 500,
            "blooms": ((BloomRun(bits=80_000, hashes=4, singly=passes(), batch=passes(), false_hits=2),),),
        }
        | more
    )


def test_methods_are_named_by_families() -> None:
    """A whole family of several is `every`; a part of it names its members."""
    tables = [method("table", f"B={b}") for b in (10, 100)]
    bloom = [method("Bloom m=8", f"k={k}") for k in (1, 4, 5)]
    every = [*tables, *bloom]
    assert named(every, every) == "every table and every Bloom m=8"
    assert named([tables[0], *bloom[1:]], every) == "table with B=10 and Bloom m=8 with k=4, 5"
    assert named([tables[0]], [tables[0]]) == "table with B=10"


def test_what_is_faster_loses_and_what_is_slower_wins() -> None:
    """Times are compared as ratios of the same round; a rival that is once faster, once slower shows no difference."""
    others = [("10", 20.0), ("100", 4.0), ("10,000", 1.0), ("none", None)]
    methods = [method("SMM", us=2.0), *(method("table", f"B={b}", us) for b, us in others)]
    noisy = tuple(Times(first=us) for us in (1.0, 3.0, 2.0, 1.5, 2.5, 1.9, 2.1, 1.0, 3.0))
    methods.append(replace(method("table", "B=1,000", 2.0), rounds=noisy))
    assert compared("Query", methods, first) == (
        "Query: SMM 2 µs per URL; wins against table with B=10, 100 (2 to 10 times as fast); "
        "no difference shown to table with B=1,000; loses to table with B=10,000 (takes 2 times as long)."
    )


@pytest.mark.parametrize(("theirs", "verdict"), [(1.02, "wins"), (1.0, "no difference shown"), (0.98, "loses")])
def test_a_small_difference_counts_if_every_round_has_it(theirs, verdict) -> None:
    """The interval decides, not a margin."""
    assert verdict in compared("Q", [method("SMM", us=1.0), method("table", "B=1", us=theirs)], first)


def test_a_ratio_is_of_the_same_round() -> None:
    """A machine that slows down in a round slows both, and does not change who wins."""
    pace = (1.0, 5.0, 1.0, 9.0, 1.0, 1.0, 3.0, 1.0, 1.0)
    smm, table = (
        replace(method(name, us=us), rounds=tuple(Times(first=us * slow) for slow in pace))
        for name, us in (("SMM", 2.0), ("table", 1.9))
    )
    assert "loses to" in compared("Q", [smm, table], first)


def test_on_a_shared_machine_only_large_differences_are_verdicts() -> None:
    """Its caches are shared, too; the report says so, with what the passes had of a core."""
    fast = BloomRun(bits=80_000, hashes=4, singly=passes(2.0, 2.0), batch=passes(2.0, 2.0), false_hits=0)
    slow = replace(fast, bits=80, singly=passes(9.0, 9.0))
    waiting = replace(slow, batch=replace(slow.batch, waited_us=12.0))
    quiet = closing_of(measured(fresh=(smm(),) * 9, blooms=((fast,) * 9, (slow,) * 9)))
    assert "wins against Bloom m=80,000 with k=4 and Bloom m=80 with k=4 (2 to 9 times as fast)" in quiet[0]
    shared = closing_of(measured(fresh=(smm(),) * 9, blooms=((fast,) * 9, (waiting,) * 9)))
    assert "wins against Bloom m=80 with k=4 (9 times as fast); no difference shown to" in shared[0]
    (line,) = (line for line in shared if line.startswith("The machine was shared"))
    assert "the passes had 40% of a core" in line
    assert not any(line.startswith("The machine was shared") for line in quiet)


def test_few_rounds_have_no_verdict() -> None:
    """The published figures are shown all the same."""
    closing = closing_of(measured())
    assert closing[0] == "No verdict from 2 rounds: ratios have an interval from 9 on (--runs 9)."
    assert closing[1].startswith("Published repeated query, one figure each: SMM 2.238 µs per URL; less than")


def test_without_a_rival_there_is_no_sentence() -> None:
    """A part that was left out is not lost."""
    assert compared("Q", [method("SMM", us=1.0), method("table", "B=1")], first) == ""
    assert compared("Q", [method("SMM"), method("table", "B=1", us=1.0)], first) == ""


def test_false_positives_are_ranked_by_the_formulas() -> None:
    """A rate too small to be measured is still larger or smaller than another."""
    bloom = [method("Bloom m=8", f"k={k}", rate_expected=rate) for k, rate in ((1, 0.5), (4, 1e-9))]
    line = errors_compared([method("SMM", rate=0.0, rate_expected=1e-5), *bloom, method("table", "B=1")])
    assert line == (
        "False positives: SMM 0 measured, 1.0e-05 by the formula; wins against Bloom m=8 with k=1; "
        "loses to Bloom m=8 with k=4; loses to table with B=1, which makes none."
    )


def test_sizes_tell_who_takes_less() -> None:
    """The SMM's is on the disk, and it stays there."""
    others = [method("Bloom m=8", "k=1", size_bytes=1024), method("table", "B=1", size_bytes=1 << 20)]
    assert sizes_compared([method("SMM", size_bytes=2048), *others], 7) == (
        "Space: SMM 2 KiB on the disk for 7 URLs, and keeps them when it ends; "
        "less than the memory of table with B=1; more than the memory of Bloom m=8 with k=1."
    )


def test_the_published_figures_say_what_they_say() -> None:
    """The SMM takes less for the repeated query everywhere; its insert pass takes more than tables of 1,000 buckets."""
    ours = published_methods()
    assert ours[0].times.first == 787_788.5 / URLS
    assert ours[1].times == Times(15_632_846 / URLS, 34_547_932 / URLS)
    query = beside("Q", ours, lambda times: times.second)
    assert "less than every bitmap table" in query
    assert "more" not in query
    insert = beside("I", ours, first)
    assert "less than bitmap table with B=10, 100 " in insert
    assert "more than bitmap table with B=1,000, 10,000 " in insert


def test_methods_have_the_medians_of_their_runs() -> None:
    """Per URL; the SMM's of fresh stores alone."""
    times = ((10.0, 20.0, 5.0, 6.0), (30.0, 40.0, 7.0, 8.0), (900.0, 900.0, 900.0, 900.0))
    runs = tuple(smm(singly=passes(a, b), batch=passes(c, d)) for a, b, c, d in times)
    ours, table, bloom = methods_of(measured(fresh=runs))
    assert ours.times == Times(3.0, 4.0, 0.7, 0.8)
    assert table.times == Times(0.1, 0.1, 0.1, 0.1)
    assert bloom.times == Times(0.1, 0.1, 0.1, 0.1)
    assert [m.name for m in (ours, table, bloom)] == ["SMM", "bitmap table B=10", "Bloom m=80,000 k=4"]


def test_formulas_stand_beside_what_was_counted() -> None:
    """With n of b bits of the SMM set, a URL meets a set one with 1 - (1 - 1/b)^n; Bloom by (1 - e^(-kn/m))^k."""
    fresh = (smm(singly=passes(new=9)),)
    full = BloomRun(bits=80, hashes=4, singly=passes(), batch=passes(new=8), false_hits=2)
    ours, table, bloom = methods_of(measured(fresh=fresh, blooms=((full,),)))
    assert (ours.dropped, table.dropped, bloom.dropped) == (1, 0, 2)
    assert (ours.rate, table.rate, bloom.rate) == (0.03, 0.0, 0.02)
    assert ours.rate_expected == pytest.approx(1 - (1 - 1 / 1000) ** 10)
    assert ours.dropped_expected == pytest.approx(sum(1 - (1 - 1 / 1000) ** i for i in range(10)))
    assert bloom.rate_expected == pytest.approx((1 - exp(-4 * 10 / 80)) ** 4)
    assert bloom.dropped_expected == pytest.approx(sum((1 - exp(-4 * i / 80)) ** 4 for i in range(10)))
    assert (table.rate_expected, table.dropped_expected) == (0.0, 0.0)


def test_like_is_compared_with_like() -> None:
    """One URL a call with one URL a call, a batch with a batch; the SMM wins the one here and loses the other."""
    bloom = BloomRun(bits=80_000, hashes=4, singly=passes(9.0, 9.0), batch=passes(0.5, 0.5), false_hits=0)
    table = TableRun(
        buckets=10, empty_us=1.0, missing_us=9.0, singly=passes(9.0, 9.0), batch=passes(0.5, 0.5), false_hits=0
    )
    rounds = measured(fresh=(smm(),) * 9, blooms=((bloom,) * 9,), tables=((table,) * 9,))
    singly, batch, singly_insert, batch_insert, *_ = closing_of(rounds)
    rivals = "bitmap table with B=10 and Bloom m=80,000 with k=4"
    for line in (singly, singly_insert):
        assert f"one URL a call: SMM 0.1 µs per URL; wins against {rivals} (9 times as fast)." in line
    for line in (batch, batch_insert):
        assert f"in one batch: SMM 0.1 µs per URL; loses to {rivals} (takes 2 times as long)." in line


def test_both_readings_of_the_published_first_pass_are_compared() -> None:
    """If run 1 alone had a fresh store, its time is that of query and insert, and one table less is slower."""
    every, first_alone = (line for line in closing_of(measured()) if line.startswith("Published query and insert"))
    assert (
        "every run had a fresh store (mean of four), one figure each: SMM 10.5 µs per URL; "
        "less than bitmap table with B=10, 100" in every
    )
    assert (
        "only run 1 had one, one figure each: SMM 27.18 µs per URL; less than bitmap table with B=10 (" in first_alone
    )


@pytest.mark.parametrize(
    ("defect", "lost"),
    [
        ({}, 0),
        ({"reopening": (smm(), smm("reopened", passes(new=2), passes(new=0, forgotten=3)))}, 5),
        ({"fresh": (smm(), smm(batch=passes(forgotten=4)))}, 4),
        ({"blooms": ((BloomRun(bits=80, hashes=1, singly=passes(forgotten=1), batch=passes(), false_hits=0),),)}, 1),
    ],
)
def test_a_forgotten_url_is_called_a_defect(defect, lost) -> None:
    """Whoever forgot it; a reopened store must know all in its first pass already."""
    expected = f"DEFECT: {lost} URLs were forgotten." if lost else "No method forgot a URL, reopened stores included."
    assert closing_of(measured(**defect))[-1] == expected


def test_a_forgotten_url_of_a_table_is_one_too() -> None:
    """The tables are no exception."""
    (run,) = measured().tables[0]
    assert closing_of(measured(tables=((replace(run, batch=passes(forgotten=2)),),)))[-1].startswith("DEFECT: 2 ")


def timed_passes(first_us, second_us, new=100):
    return Passes(first_us=first_us, second_us=second_us, new=new, forgotten=0)


def smm_opening(store, us, new=100):
    both = timed_passes(us, us / 10, new), timed_passes(us / 2, us / 20, new)
    return SmmRun(store=store, singly=both[0], batch=both[1], open_us=2000.0, close_us=4000.0)


def report(**more):
    """100 URLs: a fresh store takes 1000 µs, reopened ones 500; five runs."""
    table = TableRun(
        buckets=100,
        empty_us=1.0,
        missing_us=9.0,
        singly=timed_passes(3.0, 4.0),
        batch=timed_passes(2.0, 1.0),
        false_hits=0,
    )
    bloom = BloomRun(
        bits=80_000, hashes=4, singly=timed_passes(70.0, 60.0), batch=timed_passes(7.0, 6.0), false_hits=50
    )
    values = {
        "urls": 100,
        "distinct": 100,
        "mean_url_bytes": 50.5,
        "missing": 100,
        "probes": 1000,
        "reopening": (smm_opening("fresh", 1000.0), *[smm_opening("reopened", 500.0, 0)] * 4),
        "fresh": (smm_opening("fresh", 1000.0),) * 5,
        "smm_false_hits": 0,
        "smm_bits": 1 << 32,
        "smm_disk_bytes": 4096,
        "tables": ((table, table),),
        "table_bytes": 1024,
        "blooms": ((bloom,),),
    }
    return report_of(SmmMeasurements(**values | more))


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
    """The source does not state whether the published runs 2 to 4 were such."""
    reopening, fresh = report().tables[:2]
    assert [row[1] for row in fresh.rows] == ["fresh"] * 5 + [None] * 4
    assert fresh.columns == reopening.columns
    assert "not counted: opening the store (2 ms" in fresh.note.lower()


def test_a_run_that_was_disturbed_does_not_count_twice() -> None:
    """All tables but the mean of table 1 have medians."""
    table = [
        TableRun(
            buckets=100,
            empty_us=us,
            missing_us=us,
            singly=timed_passes(us, us),
            batch=timed_passes(us, us),
            false_hits=0,
        )
        for us in (1.0, 2.0, 99.0)
    ]
    bloom = [
        BloomRun(bits=80, hashes=1, singly=timed_passes(us, us), batch=timed_passes(us, us), false_hits=0)
        for us in (1.0, 2.0, 99.0)
    ]
    reopening = (smm_opening("fresh", 1000.0), *(smm_opening("reopened", us, 0) for us in (500.0, 500.0, 9e9)))
    disturbed = report(tables=(table,), blooms=(bloom,), reopening=reopening)
    _, _, tables, blooms, every, _ = disturbed.tables
    assert disturbed.panels[0].curves[0].y[2:4] == (5.0, 2.5)
    assert {*tables.rows[0][3:5], *tables.rows[0][6:8], *tables.rows[0][9:]} == {2.0}
    assert set(blooms.rows[0][3:]) == {2.0}
    assert every.rows[1][2:4] == every.rows[2][4:6] == (0.02, 0.02)


def test_a_ratio_stands_beside_its_interval() -> None:
    """One row for each peer; without intervals the cells are empty."""
    few = report().tables[5]
    assert [row[0] for row in few.rows] == ["bitmap table B=100", "Bloom m=80,000 k=4"]
    assert few.rows[0][1:3] == (pytest.approx(4 / 100), "")
    bloom = BloomRun(
        bits=80_000, hashes=4, singly=timed_passes(2000.0, 300.0), batch=timed_passes(7.0, 6.0), false_hits=5
    )
    many = report(fresh=(smm_opening("fresh", 1000.0),) * 9, blooms=((bloom,) * 9,)).tables[5]
    assert many.rows[1][1:3] == (3.0, "3 to 3")
    assert many.rows[1][5:7] == (2.0, "2 to 2")


def test_table_2_has_three_published_columns() -> None:
    """The first query has both readings beside it, since the source does not say what it met."""
    table = report().tables[2]
    assert table.rows == ((100, 2, 3_497_778, 1.0, 9.0, 1_116_397, 3.0, 2.0, 3_487_212, 4.0, 1.0),)
    assert [column for column in table.columns if column.endswith("published")] == [table.columns[i] for i in (2, 5, 8)]


def test_what_was_left_out_is_named() -> None:
    """The buckets, under their table."""
    tables = report().tables[2]
    assert tables.note.endswith("Left out by --quick: 10, 1,000, 10,000 buckets.")


def test_table_3_is_lost() -> None:
    """Its cells say so; what was measured stands beside them."""
    assert report().tables[3].rows == ((80_000, 4, NOT_RECOVERABLE, 70.0, 7.0, 60.0, 6.0),)


def test_all_methods_stand_side_by_side_with_their_errors() -> None:
    """Time per URL, new URLs dropped and false hits, each beside its formula."""
    smm_row, table_row, bloom_row = report().tables[4].rows
    assert smm_row[:7] == ("SMM", 4.0, 10.0, 1.0, 5.0, 0.5, 0)
    assert table_row[:6] == ("bitmap table B=100", (1024 + 64 * 100) / 1024, 0.03, 0.04, 0.02, 0.01)
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
        "bitmap table B=100, one batch",
        "Bloom m=80,000 k=4",
        "Bloom m=80,000 k=4, one batch",
    )
    first, second = times.curves
    assert first.y == (10.0, 5.0, 5.0, 2.5, 0.03, 0.02, 0.7, 0.07)
    assert second.y == (1.0, 0.5, 0.5, 0.25, 0.04, 0.01, 0.6, 0.06)
    measured, formula = rates.curves
    assert (measured.x, measured.y) == ((0.0, 1.0, 2.0), (0.0, 0.0, 0.05))
    assert (formula.x, formula.is_dashed) == ((0.0, 2.0), True)


def test_one_run_has_no_reopened_store() -> None:
    """Then its bars are missing, and nothing else."""
    fresh = (smm_opening("fresh", 1000.0),)
    times, _ = report(reopening=fresh, fresh=fresh).panels
    assert [name for name in times.names if "reopened" in name] == []
    assert len(times.curves[0].x) == len(times.names) == 6
