"""Figures 10 and 11, measured: four kinds of filters filled with the same URLs."""

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from math import exp
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.crawler.lab.filters import balance
from anabranch.crawler.lab.filters.balance import BalanceOptions, run, sized
from anabranch.crawler.lab.report import NOT_RECOVERABLE, Cell, Report, Table
from anabranch.crawler.lab.urls import portal_urls
from anabranch.crawler.outcomes.errors import DiskFull, UsageError
from anabranch.dedup.baselines import host_of
from anabranch.dedup.dsbf.bloom import DsbfParameters

COUNT = 20_000
SMALL = BalanceOptions(count=COUNT, two_gigabytes=False)


class Disk(NamedTuple):
    """What `shutil.disk_usage` answers."""

    total: int
    used: int
    free: int


def quiet(done: int, total: int, what: str) -> None:
    """Progress that nobody reads."""


def rows(table: Table) -> dict[str, dict[str, Cell]]:
    """First cell -> column -> cell."""
    return {str(row[0]): dict(zip(table.columns, row, strict=True)) for row in table.rows}


@pytest.fixture(scope="module")
def small() -> Report:
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


def test_every_kind_gets_every_url_once(small: Report) -> None:
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


def test_fill_and_rates_of_the_leaves_are_those_of_their_urls(small: Report) -> None:
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


def test_the_leaves_of_the_dsbf_are_even(small: Report) -> None:
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


def test_a_run_is_the_same_each_time(small: Report) -> None:
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
    """A probe is a URL with something behind it; where all of these are inserted, no rate can be measured."""
    file = tmp_path / "urls"
    file.write_bytes(b"http://a.test/\nhttp://a.test/&not=inserted\n")
    with pytest.raises(UsageError, match="&not=inserted behind it"):
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
