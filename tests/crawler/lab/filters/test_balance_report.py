"""What the filled filters are made into."""

from dataclasses import replace

import pytest

from anabranch.crawler.lab.filters.balance_report import Kind, report
from anabranch.dedup.baselines import FilterReport


def filled(name: str, urls: int, rate: float = 0.0, accepted: int | None = None) -> FilterReport:
    return FilterReport(
        name=name,
        urls=urls,
        accepted=urls if accepted is None else accepted,
        fill=urls / 1000,
        expected_rate=rate,
        measured_rate=rate or None,
    )


ARCHIVE = Kind(
    name="Internet Archive",
    filter_bits=8 << 20,
    hashes=10,
    capacity=100,
    filters=(filled("a", 9), filled("b", 300, 0.5, 250), filled("c", 90, 0.1), filled("d", 1), filled("e", 200, 0.25)),
    probes=200,
    hits=50,
)
SINGLE = replace(ARCHIVE, name="one of 2 GB", filters=(filled("0", 600, 1e-30),), capacity=10**6, filter_bits=1 << 34)
DSBF = replace(
    ARCHIVE, name="DSBF, c = 2", filters=(filled("leaf 1", 290, 1e-3), filled("leaf 2", 310, 2e-3)), capacity=400
)


def test_a_filter_overflows_beyond_its_capacity() -> None:
    """The fullest first."""
    assert [one.name for one in ARCHIVE.overflowing] == ["b", "e"]
    at_capacity = replace(ARCHIVE, filters=(filled("f", 100),))
    assert at_capacity.overflowing == []


def test_a_filter_below_a_tenth_of_its_capacity_is_idle() -> None:
    """Two of 1 MiB each."""
    assert ARCHIVE.idle_bytes == 2 << 20
    assert ARCHIVE.memory_bytes == 5 << 20


def test_the_mean_rate_weighs_each_filter_by_its_urls() -> None:
    """A query meets a full filter more often."""
    assert ARCHIVE.urls == 600
    assert ARCHIVE.mean_formula == pytest.approx((300 * 0.5 + 90 * 0.1 + 200 * 0.25) / 600)
    assert ARCHIVE.mean_measured == 0.25
    assert ARCHIVE.lost == 50


def test_the_closing_words_name_overflow_waste_and_balance() -> None:
    """One sentence for each kind, out of its numbers."""
    assert report([ARCHIVE, SINGLE, DSBF]).closing == (
        (
            "Internet Archive: 2 of 5 overflow with 83% of the URLs (the fullest: b 3.0 times, e 2.0 times its capacity); "
            "2 filled to less than 10% of their capacity take 2.0 MiB of 5.0 MiB for 2% of the URLs."
        ),
        "one of 2 GB: 0.0006 times its capacity, 60.00% of its bits set; it takes 2.0 GiB however few the URLs are.",
        (
            "DSBF, c = 2: none of 2 overflows; the fullest leaf holds 310 URLs, the emptiest 290: 1.069 to 1, and the worst "
            "rate is 1.319 times the mean one, in 2.0 MiB altogether."
        ),
    )


def test_filters_that_are_numbers_are_named_so() -> None:
    """`170` alone would read as a count."""
    numbered = replace(ARCHIVE, filters=(filled("170", 250),))
    pair = replace(numbered, filters=(*numbered.filters, filled("3", 5)))
    assert "(the fullest: filter 170 2.5 times its capacity)" in report([pair, DSBF]).closing[0]


def test_worst_is_the_fullest_filter_measured_and_by_formula() -> None:
    """Not the one with the highest measured rate, which chance may give to any small sample."""
    odd = replace(ARCHIVE, filters=(*ARCHIVE.filters, replace(filled("z", 5), measured_rate=1.0)))
    columns, row = (table := report([odd, DSBF]).tables[1]).columns, table.rows[0]
    shown = dict(zip(columns, row, strict=True))
    assert (shown["worst formula"], shown["worst measured"]) == (0.5, 0.5)
    assert shown["3 sigma"] == pytest.approx(3 * (odd.mean_formula * (1 - odd.mean_formula) / 200) ** 0.5)


def test_panels_rank_the_filters_and_leave_out_what_a_log_axis_cannot_show() -> None:
    """The fullest is 1; empty filters and rates below 1e-9 have no point; a lone filter's capacity no line."""
    empty = replace(ARCHIVE, filters=(*ARCHIVE.filters, filled("none", 0)))
    urls, fill, rates = report([empty, SINGLE, DSBF]).panels
    assert [(curve.label, curve.x, curve.y) for curve in urls.curves] == [
        ("Internet Archive", (1, 2, 3, 4, 5), (300, 200, 90, 9, 1)),
        ("Internet Archive: capacity", (1, 6), (100, 100)),
        ("DSBF, c = 2", (1, 2), (310, 290)),
        ("DSBF, c = 2: capacity", (1, 2), (400, 400)),
        ("one of 2 GB", (1,), (600,)),
    ]
    assert fill.curves[0].x == (1, 2, 3, 4, 5, 6)
    assert [(curve.label, curve.x) for curve in rates.curves] == [
        ("Internet Archive", (1, 2, 3)),
        ("DSBF, c = 2", (1, 2)),
    ]


def test_of_very_many_filters_some_are_drawn() -> None:
    """At most 300 points, the first and the last among them, in order."""
    many = replace(ARCHIVE, filters=tuple(filled(str(number), number) for number in range(1, 20_001)))
    (curve, *_) = report([many, DSBF]).panels[1].curves
    assert len(curve.x) <= 300
    assert (curve.x[0], curve.x[-1]) == (1, 20_000)
    assert list(curve.x) == sorted(set(curve.x))
    assert curve.y[0] == 20
