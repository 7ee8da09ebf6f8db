"""The sentences that the SMM experiment ends with follow from its numbers."""

from dataclasses import replace
from math import exp

import pytest

from anabranch.crawler.lab.filters.smm_comparison import (
    Method,
    Times,
    closing_of,
    compared,
    errors_compared,
    methods_of,
    named,
    published_methods,
    sizes_compared,
)
from anabranch.crawler.lab.filters.smm_passes import BloomRun, Measured, Passes, SmmRun, TableRun
from anabranch.crawler.lab.filters.smm_published import URLS


def method(family, member="", us=None, **more):
    return Method(family=family, member=member, times=Times(first=us), **more)


def first(method):
    return method.times.first


def passes(first_us=1.0, second_us=1.0, new=10, forgotten=0):
    return Passes(first_us=first_us, second_us=second_us, new=new, forgotten=forgotten)


def smm(store="fresh", singly=None, batch=None):
    return SmmRun(store=store, singly=singly or passes(), batch=batch or passes(), open_us=0.0, close_us=0.0)


def measured(**more):
    """Ten URLs, one table, one Bloom filter; all is well."""
    reopened = smm("reopened", passes(new=0), passes(new=0))
    return Measured(
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
            "tables": ((TableRun(buckets=10, empty_us=1.0, missing_us=9.0, passes=passes(), false_hits=0),),),
            "table_bytes": 500,
            "blooms": ((BloomRun(bits=80_000, hashes=4, singly=None, batch=passes(), false_hits=2),),),
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
    """Times are compared as ratios; those within a tenth count as even, and what has no time is left out."""
    others = [("10", 20.0), ("100", 4.0), ("1,000", 2.0), ("10,000", 1.0), ("none", None)]
    methods = [method("SMM", us=2.0), *(method("table", f"B={b}", us) for b, us in others)]
    assert compared("Query", methods, first) == (
        "Query: SMM 2 µs per URL; wins against table with B=10, 100 (2 to 10 times as fast); "
        "about even with table with B=1,000; loses to table with B=10,000 (takes 2 times as long)."
    )


@pytest.mark.parametrize(("theirs", "verdict"), [(1.11, "wins"), (1.09, "even"), (0.92, "even"), (0.90, "loses")])
def test_even_ends_at_a_tenth(theirs, verdict) -> None:
    """Two runs of one method may differ by as much."""
    assert verdict in compared("Q", [method("SMM", us=1.0), method("table", "B=1", us=theirs)], first)


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
    """The SMM wins the repeated query everywhere; its insert pass loses to tables of 1,000 buckets and more."""
    ours = published_methods()
    assert ours[0].times.first == 787_788.5 / URLS
    assert ours[1].times == Times(15_632_846 / URLS, 34_547_932 / URLS)
    query = compared("Q", ours, lambda method: method.times.second)
    assert "wins against every bitmap table" in query
    assert "loses" not in query
    insert = compared("I", ours, first)
    assert "wins against bitmap table with B=10, 100 " in insert
    assert "loses to bitmap table with B=1,000, 10,000 " in insert


def test_methods_have_the_medians_of_their_runs() -> None:
    """Per URL; the SMM's of fresh stores alone."""
    times = ((10.0, 20.0, 5.0, 6.0), (30.0, 40.0, 7.0, 8.0), (900.0, 900.0, 900.0, 900.0))
    runs = tuple(smm(singly=passes(a, b), batch=passes(c, d)) for a, b, c, d in times)
    ours, table, bloom = methods_of(measured(fresh=runs))
    assert ours.times == Times(3.0, 4.0, 0.7, 0.8)
    assert table.times == Times(0.1, 0.1, None, None)
    assert bloom.times == Times(None, None, 0.1, 0.1)
    assert [m.name for m in (ours, table, bloom)] == ["SMM", "bitmap table B=10", "Bloom m=80,000 k=4"]


def test_formulas_stand_beside_what_was_counted() -> None:
    """With n of b bits of the SMM set, a URL meets a set one with 1 - (1 - 1/b)^n; Bloom by (1 - e^(-kn/m))^k."""
    fresh = (smm(singly=passes(new=9)),)
    full = BloomRun(bits=80, hashes=4, singly=None, batch=passes(new=8), false_hits=2)
    ours, table, bloom = methods_of(measured(fresh=fresh, blooms=((full,),)))
    assert (ours.dropped, table.dropped, bloom.dropped) == (1, 0, 2)
    assert (ours.rate, table.rate, bloom.rate) == (0.03, 0.0, 0.02)
    assert ours.rate_expected == pytest.approx(1 - (1 - 1 / 1000) ** 10)
    assert ours.dropped_expected == pytest.approx(sum(1 - (1 - 1 / 1000) ** i for i in range(10)))
    assert bloom.rate_expected == pytest.approx((1 - exp(-4 * 10 / 80)) ** 4)
    assert bloom.dropped_expected == pytest.approx(sum((1 - exp(-4 * i / 80)) ** 4 for i in range(10)))
    assert (table.rate_expected, table.dropped_expected) == (0.0, 0.0)


def test_one_url_at_a_time_the_rivals_are_the_tables() -> None:
    """A Bloom filter made for batches is compared in batches."""
    slow = BloomRun(bits=80_000, hashes=4, singly=passes(1e6, 1e6), batch=passes(), false_hits=0)
    singly, batch, *_ = closing_of(measured(blooms=((slow,),)))
    assert "one URL at a time: SMM" in singly
    assert "Bloom" not in singly
    assert "in one batch: SMM" in batch
    assert "Bloom m=80,000 with k=4" in batch


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
    assert closing_of(measured(tables=((replace(run, passes=passes(forgotten=2)),),)))[-1].startswith("DEFECT: 2 ")
