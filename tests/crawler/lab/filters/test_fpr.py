"""Figure 7, measured: the tree that never splits, and what is made of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.crawler.lab.filters.fpr import (
    FixedTree,
    FprOptions,
    Point,
    ProbeResult,
    measured,
    report,
    run,
    same_leaf_size,
    same_memory,
    whole_bits,
)
from anabranch.crawler.lab.report import NOT_RECOVERABLE, Cell, LabReport
from anabranch.crawler.lab.urls import portal_urls
from anabranch.crawler.outcomes.errors import UsageError
from anabranch.dedup.bloom.filter import Dsbf
from anabranch.dedup.bloom.formulas import DsbfParameters, capacity_with
from anabranch.dedup.keys import fingerprints

SMALL = FprOptions(n=20_000, points=4, leaves=(1, 3, 10))


def quiet(done: int, total: int, what: str) -> None:
    """Progress that nobody reads."""


def column(report: LabReport, table: int, name: str) -> list[Cell]:
    place = report.tables[table].columns.index(name)
    return [row[place] for row in report.tables[table].rows]


@pytest.fixture(scope="module")
def small() -> LabReport:
    return run(SMALL, quiet)


def test_the_tree_answers_as_the_products_filter_does(tmp_path: Path) -> None:
    """Same hashes, same leaves: before any split the two tell the same of every key, false positives included."""
    parameters = DsbfParameters(expected=3000, false_positive=0.2, leaf_bits=4096)
    urls = portal_urls(23_000)
    tree = FixedTree(parameters.first_leaves, parameters.leaf_bits, parameters.hashes)
    tree.mark(fingerprints(urls[:3000]))
    _, known = tree.ask(fingerprints(urls))
    with Dsbf.open(tmp_path / "dsbf", parameters) as dsbf:
        dsbf.mark(urls[:3000])
        assert dsbf.statistics().splits == 0
        assert (~dsbf.unseen(urls)).tolist() == known.tolist()
    assert known[:3000].all()
    assert 0 < known[3000:].mean() < 0.3


@given(st.integers(1, 7), st.integers(0, 300))
def test_what_was_marked_is_known_in_its_leaf(leaves: int, count: int) -> None:
    """No false negative, however full; the leaves' counts add up."""
    tree = FixedTree(leaves, 64, 2)
    elements = fingerprints([b"%d" % number for number in range(count)])
    tree.mark(elements)
    leaf, known = tree.ask(elements)
    assert known.all()
    assert np.bincount(leaf, minlength=leaves).tolist() == tree.counts.tolist()


def test_probes_are_others_than_what_is_in_the_tree() -> None:
    """In a filter far too large for a false positive no probe is known, at any stop."""
    points = measured(FixedTree(2, 1 << 22, 10), fingerprints(portal_urls(5500)), [1000, 3000, 5000])
    assert [(point.urls, point.mean.probes, point.mean.hits) for point in points] == [
        (1000, 100, 0),
        (3000, 300, 0),
        (5000, 500, 0),
    ]


def test_measured_rates_are_those_of_the_formulas() -> None:
    """Half full, twice full, four times full: mean query and worst leaf within four sigma of (8) and (7)."""
    tree = FixedTree(5, 1 << 15, 10)
    points = list(measured(tree, fingerprints(portal_urls(88_000)), [10_000, 20_000, 40_000, 80_000]))
    for point in points:
        assert point.mean.rate == pytest.approx(point.mean.formula, abs=4 * point.mean.sigma)
        assert point.worst.rate == pytest.approx(point.worst.formula, abs=4 * point.worst.sigma)
        assert point.worst.formula > point.mean.formula
        assert point.fullest > point.urls / 5
    assert [point.mean.deviation is not None for point in points] == [False, True, True, True]


def test_the_worst_leaf_is_the_fullest_and_only_its_own_probes_count() -> None:
    """One leaf crammed, the other empty: every probe of the one is known, none of the other."""
    elements = fingerprints(portal_urls(6000))
    leaf, _ = FixedTree(2, 64, 2).ask(elements)
    crammed, probes = elements[:5000][leaf[:5000] == 1], elements[5000:]
    (point,) = measured(FixedTree(2, 64, 2), np.concatenate([crammed, probes]), [len(crammed)])
    asked = leaf[5000 : 5000 + len(crammed) // 10]
    assert (point.fullest, point.worst.probes) == (len(crammed), np.count_nonzero(asked == 1))
    assert point.worst.hits == point.mean.hits == point.worst.probes
    assert point.mean.probes == len(asked)


@given(st.integers(10_000, 10**8), st.integers(1, 20))
def test_the_classic_filter_is_the_largest_that_n_overfills(n: int, hashes: int) -> None:
    """So the rate crosses f_max within the figure."""
    bits = whole_bits(n, hashes, 1e-3)
    assert capacity_with(bits, hashes, 1e-3) <= n < capacity_with(2 * bits, hashes, 1e-3)


def test_both_halves_have_a_row_for_each_c_at_each_n(small: LabReport) -> None:
    """Rows of one n stand together; what the figure said is lost, in every row."""
    for table in (0, 1):
        assert column(small, table, "leaves c") == [1, 3, 10] * 4
        assert set(column(small, table, "published")) == {NOT_RECOVERABLE}
    assert column(small, 1, "URLs n") == [n for n in (5000, 10_000, 15_000, 20_000) for _ in range(3)]


def test_the_same_memory_gives_every_c_the_same_rate(small: LabReport) -> None:
    """Bits per URL and formula (8) are equal in the rows of one n, though leaves are powers of two."""
    rows = list(
        zip(
            column(small, 0, "bits per URL"), column(small, 0, "formula (8)"), column(small, 0, "leaves c"), strict=True
        )
    )
    for start in range(0, len(rows), 3):
        for bits, formula, _ in rows[start : start + 3]:
            assert bits == pytest.approx(rows[start][0], rel=1e-3)
            assert formula == pytest.approx(rows[start][1], rel=1e-2)
    memory = dict(zip(column(small, 0, "leaves c"), column(small, 0, "memory KiB"), strict=True))
    assert memory == {1: 32, 3: 24, 10: 20}


def test_the_same_leaf_size_gives_more_leaves_a_lower_rate(small: LabReport) -> None:
    """A leaf holds 4,558 URLs: one overflows from the first n on, three from n = 15,000 on, ten never."""
    rates = column(small, 1, "mean query")
    by_leaves = {c: rates[place::3] for place, c in enumerate((1, 3, 10))}
    assert [[rate > 1e-3 for rate in by_leaves[c]] for c in (1, 3)] == [[True] * 4, [False, False, True, True]]
    assert by_leaves[10] == [0, 0, 0, 0]
    assert column(small, 1, "memory KiB")[:3] == [8, 24, 80]
    assert "from n = 5,000 on with c = 1, from n = 15,000 on with c = 3, nowhere with c = 10" in small.closing[2]


def test_a_run_is_the_same_each_time(small: LabReport) -> None:
    """Nothing in the numbers depends on the clock or on chance."""
    assert run(SMALL, quiet) == small


def test_progress_ends_with_all_steps_done() -> None:
    """Every step is told once, in order."""
    told: list[tuple[int, int]] = []
    run(FprOptions(n=10_000, points=1, leaves=(1, 2)), lambda done, total, _: told.append((done, total)))
    assert told == [(step, 5) for step in range(6)]


def test_a_files_distinct_urls_are_inserted_once(tmp_path: Path) -> None:
    """The file repeats 22,000 distinct URLs: 20,000 are inserted and 2,000 asked for."""
    file = tmp_path / "urls"
    file.write_bytes(b"\n".join(portal_urls(22_000) * 2))
    assert run(FprOptions(urls=file, points=4, leaves=(1, 3, 10)), quiet) == run(SMALL, quiet)


def few(tmp_path: Path) -> FprOptions:
    file = tmp_path / "urls"
    file.write_bytes(b"http://a.example/\n" * 20_000)
    return FprOptions(urls=file)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (lambda _: FprOptions(n=9999), "n is 9999"),
        (lambda _: FprOptions(leaves=()), r"leaves \(\)"),
        (lambda _: FprOptions(leaves=(3, 101)), "leaves"),
        (lambda _: FprOptions(points=0), "points 0"),
        (lambda _: FprOptions(points=101), "points 101"),
        (lambda _: FprOptions(false_positive=0.0), "false-positive 0"),
        (lambda _: FprOptions(false_positive=0.6), "false-positive 0.6"),
        (few, "0 distinct URLs to insert are too few"),
    ],
)
def test_what_gives_no_figure_is_refused(options: Callable[[Path], FprOptions], what: str, tmp_path: Path) -> None:
    """One line that names the option."""
    with pytest.raises(UsageError, match=what):
        run(options(tmp_path), quiet)


def test_the_most_leaves_at_the_highest_rate_still_have_whole_bytes() -> None:
    """The smallest filters that the limits allow."""
    assert run(FprOptions(n=10_000, points=2, leaves=(100,), false_positive=0.5), quiet).tables[0].rows


def point(urls: int, hits: int, formula: float, *, leaves: int = 1, worst: float = 0.0) -> Point:
    return Point(
        leaves=leaves,
        bits=leaves << 20,
        urls=urls,
        fullest=urls // leaves + 1,
        mean=ProbeResult(probes=10_000, hits=hits, formula=formula),
        worst=ProbeResult(probes=1000, hits=hits // 10, formula=worst or formula),
    )


def reported(*curves: tuple[Point, ...]) -> LabReport:
    return report([same_memory(1 << 20, curves), same_leaf_size(1 << 20, curves)], 10, 1e-3)


def test_a_sampling_error_is_that_of_a_share() -> None:
    """sqrt(p (1 - p) / probes), with p of the formula."""
    asked = ProbeResult(probes=10_000, hits=230, formula=0.02)
    assert asked.sigma == pytest.approx(0.0014)
    assert asked.deviation == pytest.approx(0.003 / 0.0014)


@pytest.mark.parametrize("formula", [0.0, 0.0009, 0.9991, 1.0])
def test_too_few_hits_or_misses_tell_nothing(formula: float) -> None:
    """Fewer than ten expected: a distance in sigmas would be about single hits."""
    assert ProbeResult(probes=10_000, hits=50, formula=formula).deviation is None


def test_without_probes_there_is_no_rate() -> None:
    """A leaf that no probe meets divides nothing by nothing."""
    asked = ProbeResult(probes=0, hits=0, formula=0.5)
    assert (asked.rate, asked.sigma, asked.deviation) == (0.0, 0.0, None)


@pytest.mark.parametrize(
    ("hits", "words"),
    [
        (250, "at most 3.6 sigma apart (c = 1, n = 2,000"),
        (255, "as chance has it"),
        (300, "more than chance explains"),
        (100, "more than chance explains"),
    ],
)
def test_the_farthest_point_decides_whether_the_formula_holds(hits: int, words: str) -> None:
    """Far means beyond four sigma; the nearer points do not hide it."""
    closing = reported((point(1000, 205, 0.02), point(2000, hits, 0.02), point(3000, 201, 0.02)))
    assert any(words in line for line in closing.closing)


def test_points_without_enough_hits_are_said_not_to_count() -> None:
    """All rates too small: no verdict."""
    lines = reported((point(1000, 0, 1e-9),)).closing
    assert any("too few hits at every point" in line for line in lines)


def test_f_max_is_crossed_where_the_measured_rate_says() -> None:
    """Each c on its own; one that never does is named, too."""
    low = tuple(point(urls, 1, 1e-4, leaves=2) for urls in (1000, 2000, 3000))
    high = (point(1000, 10, 1e-3), point(2000, 11, 1e-3), point(3000, 90, 9e-3))
    assert "f_max = 0.001 is exceeded from n = 2,000 on with c = 1, nowhere with c = 2." in reported(high, low).closing


def test_the_worst_leaf_is_that_of_the_last_n_with_the_largest_ratio() -> None:
    """Its load and its rate beside the mean ones."""
    curves = [(point(3000, 60, 6e-3, leaves=c, worst=6e-3 * ratio),) for c, ratio in ((1, 1.0), (5, 1.25), (10, 1.1))]
    assert reported(*curves).closing[-1] == (
        "Worst leaf and mean query: with c = 5 the fullest leaf holds 601 URLs, 600 on average; its rate by formula is 1.250 "
        "times that of the mean query."
    )


def test_rates_of_one_or_two_hits_are_not_drawn() -> None:
    """A curve begins where there are three; its formula goes on as far down as a tenth of a hit."""
    drawn = reported((point(1000, 2, 1e-6), point(2000, 2, 1e-5), point(3000, 3, 3e-4))).panels[1]
    assert [(curve.label, curve.x) for curve in drawn.curves] == [
        ("c = 1", (3000,)),
        ("formula (8), c = 1", (2000, 3000)),
        ("f_max", (1000, 3000)),
    ]


def test_with_the_same_memory_n_is_scaled_to_the_classic_filter() -> None:
    """A filter of three quarters of the memory with three quarters of the URLs stands at the same x."""
    three = Point(
        leaves=3,
        bits=3 << 18,
        urls=750,
        fullest=251,
        mean=ProbeResult(probes=75, hits=9, formula=0.1),
        worst=ProbeResult(probes=25, hits=3, formula=0.1),
    )
    panel = report([same_memory(1 << 20, [(three,)]), same_leaf_size(1 << 18, [(three,)])], 10, 1e-3).panels
    assert (panel[0].curves[0].x, panel[1].curves[0].x) == ((1000,), (750,))
