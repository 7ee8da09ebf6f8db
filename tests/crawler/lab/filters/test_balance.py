"""Figures 10 and 11, measured: four kinds of filters filled with the same URLs."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from math import exp
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.crawler.lab.filters import balance
from anabranch.crawler.lab.filters.balance import BalanceOptions, FilterSet, report, run, sized
from anabranch.crawler.lab.filters.baselines import FilterReport, host_of
from anabranch.crawler.lab.report import NOT_RECOVERABLE, Cell, LabReport, Table
from anabranch.crawler.lab.urls import portal_urls
from anabranch.crawler.outcomes.errors import DiskFull, UsageError
from anabranch.dedup.bloom.formulas import DsbfParameters

COUNT = 12_000
SMALL = BalanceOptions(count=COUNT, two_gigabytes=False)


class Disk(NamedTuple):
    """The answer of `shutil.disk_usage`."""

    total: int
    used: int
    free: int


def quiet(done: int, total: int, what: str) -> None:
    """Progress that nobody reads."""


def rows(table: Table) -> dict[str, dict[str, Cell]]:
    """First cell -> column -> cell."""
    return {str(row[0]): dict(zip(table.columns, row, strict=True)) for row in table.rows}


@pytest.fixture(scope="module")
def small() -> LabReport:
    return run(SMALL, quiet)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder for temporary files; it must be empty in the end."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert not list(folder.iterdir())


@given(st.integers(1, 5_000_000), st.integers(1, 20))
def test_the_dsbf_has_the_leaves_asked_for_and_no_larger_ones_than_needed(n: int, leaves: int) -> None:
    """It holds n URLs before a split; leaves of half the size would not."""
    parameters = sized(n, leaves, 1e-3)
    assert parameters.first_leaves == leaves
    assert parameters.expected >= n
    if parameters.leaf_bits > 4096:
        assert leaves * parameters.split_above > n > leaves * parameters.split_above / 2.5


def test_every_kind_gets_every_url_once(small: LabReport) -> None:
    """A filter per domain, and the same memory for the DSBF and those chosen by hash."""
    spread, rates, leaves, fullest = small.tables
    hosts = Counter(map(host_of, portal_urls(COUNT)))
    kinds = rows(spread)
    assert list(kinds) == list(rows(rates)) == ["Internet Archive", "Apoidea", "DSBF, c = 10"]
    assert kinds["Internet Archive"]["number"] == len(hosts)
    assert kinds["Internet Archive"]["fullest"] == max(hosts.values())
    assert kinds["Apoidea"]["memory MiB"] == kinds["DSBF, c = 10"]["memory MiB"]
    assert sum(int(row["URLs"] or 0) for row in rows(leaves).values()) == COUNT
    assert [(row[0], row[1]) for row in fullest.rows] == [
        (name.decode(), count) for name, count in sorted(hosts.items(), key=lambda pair: -pair[1])[:10]
    ]
    assert {row[-1] for table in small.tables for row in table.rows} == {NOT_RECOVERABLE}


def test_fill_and_rates_of_the_leaves_are_those_of_their_urls(small: LabReport) -> None:
    """Each leaf by itself: bits set as 1 - e^(-kn/m) says, the rate as its power of k."""
    parameters = sized(COUNT, 10, 1e-3)
    for leaf in rows(small.tables[2]).values():
        load = parameters.hashes * float(leaf["URLs"] or 0) / parameters.leaf_bits
        assert leaf["fill"] == pytest.approx(1 - exp(-load), rel=0.02)
        assert leaf["rate by formula"] == pytest.approx((1 - exp(-load)) ** parameters.hashes)


def test_measured_rates_of_the_leaves_are_those_of_the_formula() -> None:
    """With a bound of 0.3 there are enough hits to see; all leaves together give the mean."""
    report = run(BalanceOptions(count=COUNT, two_gigabytes=False, leaves=3, false_positive=0.3), quiet)
    measured = [float(row["rate measured"] or 0) for row in rows(report.tables[2]).values()]
    for rate, leaf in zip(measured, rows(report.tables[2]).values(), strict=True):
        assert rate == pytest.approx(leaf["rate by formula"], abs=4 * (0.25 / (COUNT / 9)) ** 0.5)
    assert sum(measured) / 3 == pytest.approx(rows(report.tables[1])["DSBF, c = 3"]["mean measured"], rel=0.01)
    assert min(measured) > 0.01


def test_a_portal_overflows_its_own_filter_and_no_leaf_of_the_dsbf(tmp_path: Path) -> None:
    """One host with 40,000 URLs beside a hundred with one each: twice the capacity of 32 KB; for ten leaves all is one."""
    portal = [b"http://portal.example/%d" % number for number in range(40_000)]
    small_sites = [b"http://s%d.example/" % number for number in range(100)]
    file = tmp_path / "urls"
    file.write_bytes(b"\n".join(portal + small_sites + portal))
    report = run(BalanceOptions(urls=file, two_gigabytes=False), quiet)
    kinds, fills = rows(report.tables[0]), rows(report.tables[1])
    assert kinds["Internet Archive"]["capacity"] == 18_170
    assert kinds["Internet Archive"]["fullest"] == 40_000
    assert (kinds["Internet Archive"]["over it"], kinds["DSBF, c = 10"]["over it"]) == (1, 0)
    archive, dsbf = fills["Internet Archive"], fills["DSBF, c = 10"]
    assert archive["worst measured"] == pytest.approx(archive["worst formula"], rel=0.1)
    assert float(archive["mean formula"] or 0) > 0.05 > 1e-3 > float(dsbf["mean measured"] or 0)
    assert float(archive["% of URLs lost"] or 0) > 0.5 > float(dsbf["% of URLs lost"] or 0)
    assert (
        "1 of 101 overflow with 100% of the URLs (the fullest: portal.example 2.2 times its capacity)"
        in report.closing[0]
    )


def test_the_leaves_of_the_dsbf_are_even(small: LabReport) -> None:
    """Each has its tenth, within four standard deviations of chance."""
    for leaf in rows(small.tables[2]).values():
        assert leaf["URLs"] == pytest.approx(COUNT / 10, abs=4 * (COUNT / 10) ** 0.5)


def test_the_number_of_filters_chosen_by_hash_can_be_given() -> None:
    """And the number of leaves."""
    kinds = rows(run(BalanceOptions(count=2000, two_gigabytes=False, filters=7, leaves=3), quiet).tables[0])
    assert kinds["Apoidea"]["number"] == 7
    assert kinds["DSBF, c = 3"]["number"] == 3


def test_probes_are_never_among_the_urls(tmp_path: Path) -> None:
    """A file may hold what a probe would be: it is left out, and no rate counts it as false."""
    urls = [b"http://a.example/%d" % number for number in range(300)]
    file = tmp_path / "urls"
    file.write_bytes(b"\n".join(urls + [url + b"&not=inserted" for url in urls]))
    report = run(BalanceOptions(urls=file, two_gigabytes=False), quiet)
    assert [row["mean measured"] for row in rows(report.tables[1]).values()] == [0, 0, 0]


def test_a_run_is_the_same_each_time(small: LabReport) -> None:
    """Nothing in the numbers depends on the clock or on chance."""
    assert run(SMALL, quiet) == small


def test_the_filter_of_two_gigabytes_is_a_sparse_file_for_a_while(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its one row: 2^34 bits, 3,000 of them set by 300 URLs; the file is gone afterwards."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Disk(1 << 40, 0, 1 << 40))
    told: list[tuple[int, int]] = []
    report = run(BalanceOptions(count=300), lambda done, total, _: told.append((done, total)))
    single = rows(report.tables[0])["one of 2 GB"]
    assert (single["number"], single["memory MiB"], single["fullest"]) == (1, 2048, 300)
    assert rows(report.tables[1])["one of 2 GB"]["fill max"] == pytest.approx(3000 / 2**34, rel=0.01)
    assert told == [(step, 5) for step in range(6)]


def test_too_little_space_is_told_before_anything_is_done(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the folder, what it has and what to do."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Disk(1 << 40, 0, 1 << 31))
    told: list[str] = []
    with pytest.raises(DiskFull, match=rf"^{temporary} has 2.0 GiB free.* needs 2.2 GiB .*--no-two-gigabytes$"):
        run(BalanceOptions(count=300), lambda _done, _total, what: told.append(what))
    assert not told


def test_a_split_leaf_is_no_figure_of_c_leaves(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Should the leaves turn out too small, the run says so instead of showing leaves that are no more."""
    monkeypatch.setattr(balance, "sized", lambda *_: DsbfParameters(expected=100, leaf_bits=4096))
    with pytest.raises(UsageError, match="a leaf of the DSBF has split"):
        run(BalanceOptions(count=2000, two_gigabytes=False), quiet)


def test_urls_that_leave_nothing_to_ask_for_are_refused(temporary: Path, tmp_path: Path) -> None:
    """A probe is a URL with a suffix; if all of these are inserted, no rate can be measured."""
    file = tmp_path / "urls"
    file.write_bytes(b"http://a.test/\nhttp://a.test/&not=inserted\n")
    with pytest.raises(UsageError, match="&not=inserted at its end"):
        run(BalanceOptions(urls=file, two_gigabytes=False), quiet)


@pytest.mark.parametrize("step", range(5))
def test_an_interrupt_at_any_step_leaves_no_file(temporary: Path, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Temporary folders are removed on every way out."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Disk(1 << 40, 0, 1 << 40))

    def interrupt(done: int, total: int, what: str) -> None:
        if done == step:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(BalanceOptions(count=300), interrupt)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (BalanceOptions(count=2, two_gigabytes=False), "count is 2"),
        (BalanceOptions(leaves=0, two_gigabytes=False), "leaves 0"),
        (BalanceOptions(filters=0, two_gigabytes=False), "filters 0"),
        (BalanceOptions(false_positive=0.0, two_gigabytes=False), "false-positive 0"),
        (BalanceOptions(urls=Path("/missing/urls"), two_gigabytes=False), "/missing/urls"),
    ],
)
def test_what_fills_no_filter_is_refused(options: BalanceOptions, what: str, temporary: Path) -> None:
    """One line that names the option."""
    with pytest.raises(UsageError, match=what):
        run(options, quiet)


def filled(name: str, urls: int, rate: float = 0.0, accepted: int | None = None) -> FilterReport:
    return FilterReport(
        name=name,
        urls=urls,
        accepted=urls if accepted is None else accepted,
        fill=urls / 1000,
        expected_rate=rate,
        measured_rate=rate or None,
    )


ARCHIVE = FilterSet(
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
