"""Figure 7 of the DSBF paper (2016): the false-positive rate against the number of URLs, for trees of c leaves.

The trees have height 1 and the DSBF's own parts (LocHash, MapHash, leaves), but never split. c = 1 is the classic Bloom filter.
n URLs are inserted and n/10 others are looked up; the share taken for known is compared with formula (8),
(1 - e^(-kn/(ms)))^k, for the mean query, and (7), the rate of the worst leaf. The first half measures (`run`), the second makes
the report.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path

import numpy as np

from anabranch.crawler.lab.report import NOT_RECOVERABLE, Cell, Curve, LabReport, OnProgress, Panel, Table
from anabranch.crawler.lab.urls import distinct_urls
from anabranch.crawler.outcomes.errors import UsageError
from anabranch.dedup.bloom.bits import LeafBits
from anabranch.dedup.bloom.formulas import best_hashes, capacity_with, false_positive_rates
from anabranch.dedup.bloom.tree import Tree
from anabranch.dedup.keys import BoolArray, Fingerprints, IntArray, fingerprints

_FEWEST_URLS, _MOST_LEAVES = 10_000, 100  # so the smallest leaf has 64 bits
_MOST_POINTS = 100
_PART = 10  # as published: one probe for ten URLs inserted
_AT_ONCE = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class FprOptions:
    """Options of `anabranch lab fpr`."""

    urls: Path | None = None  #: one URL a line, for n + n/10 distinct ones; `n` and `seed` are not used then
    n: int = 2_000_000  #: URLs inserted at the last point
    leaves: tuple[int, ...] = (1, 2, 3, 5, 10)  #: the values of c
    points: int = 10  #: of each curve, evenly spaced up to n
    false_positive: float = 1e-3  #: f_max: sets k, and the filters' sizes such that n goes beyond what they hold
    seed: int = 1  #: of the generated URLs


class FixedTree:
    """A DSBF of height 1 in memory that never splits, however full it gets."""

    def __init__(self, leaves: int, leaf_bits: int, hashes: int) -> None:
        self.leaf_bits, self.hashes = leaf_bits, hashes
        self._tree = Tree.rooted(leaves)
        self._bits = LeafBits(leaf_bits, hashes, leaves)
        self._slots: IntArray = np.array([-1, *(self._bits.take() for _ in range(leaves))], dtype=np.int64)
        self.counts: IntArray = np.zeros(leaves, dtype=np.int64)  #: elements per leaf

    def mark(self, elements: Fingerprints) -> None:
        """Insert elements that are distinct."""
        nodes = self._tree.descend(elements)
        self.counts += np.bincount(nodes - 1, minlength=len(self.counts))
        for part in _parts(len(elements)):
            self._bits.mark(self._slots[nodes[part]], elements[part])

    def ask(self, elements: Fingerprints) -> tuple[IntArray, BoolArray]:
        """The leaf of each element, from 0, and whether it is taken for known."""
        nodes, known = self._tree.descend(elements), np.zeros(len(elements), dtype=np.bool_)
        for part in _parts(len(elements)):
            known[part] = ~self._bits.unseen(self._slots[nodes[part]], elements[part])
        return nodes - 1, known


def run(options: FprOptions, on_progress: OnProgress) -> LabReport:
    """Measure both halves of the figure. Raises: UsageError. Cost: 5 µs and 300 bytes per URL."""
    _refuse(options)
    steps = 1 + 2 * len(options.leaves)
    on_progress(0, steps, "URLs")
    elements = fingerprints(distinct_urls(options.urls, options.n + -(-options.n // _PART), options.seed))
    n, hashes = len(elements) * _PART // (_PART + 1), best_hashes(1 << 30, options.false_positive)
    if n < _FEWEST_URLS:
        raise UsageError(f"{n} distinct URLs to insert are too few: give {_FEWEST_URLS} and a tenth more to ask for")
    whole = whole_bits(n, hashes, options.false_positive)
    equal, fixed = [], []
    for step, leaves in enumerate(options.leaves):
        on_progress(1 + 2 * step, steps, f"c = {leaves}, the same memory")
        share = FixedTree(leaves, 1 << (whole // leaves).bit_length() - 1, hashes)
        stops = _stops(n * leaves * share.leaf_bits // whole, options.points)
        equal.append(tuple(measured(share, elements, stops)))
        on_progress(2 + 2 * step, steps, f"c = {leaves}, the same leaf size")
        fixed.append(tuple(measured(FixedTree(leaves, whole // 4, hashes), elements, _stops(n, options.points))))
    on_progress(steps, steps, "done")
    return report([same_memory(whole, equal), same_leaf_size(whole // 4, fixed)], hashes, options.false_positive)


def whole_bits(n: int, hashes: int, false_positive: float) -> int:
    """The largest power of two of bits with a capacity of n or less."""
    bits = 64
    while capacity_with(2 * bits, hashes, false_positive) <= n:
        bits *= 2
    return bits


def measured(tree: FixedTree, elements: Fingerprints, stops: Sequence[int]) -> Iterator[Point]:
    """Fill the tree up to each stop, and query the elements that follow, a tenth as many."""
    held = 0
    for stop in stops:
        tree.mark(elements[held:stop])
        held = stop
        yield _point(tree, stop, *tree.ask(elements[stop : stop + stop // _PART]))


def _point(tree: FixedTree, urls: int, leaves: IntArray, known: BoolArray) -> Point:
    number, fullest = len(tree.counts), int(tree.counts.argmax())
    there = leaves == fullest
    loads = np.array([urls / number, tree.counts[fullest]])
    equal, most = false_positive_rates(tree.leaf_bits, tree.hashes, loads).tolist()
    return Point(
        leaves=number,
        bits=number * tree.leaf_bits,
        urls=urls,
        fullest=int(tree.counts[fullest]),
        mean=ProbeResult(probes=len(known), hits=int(known.sum()), formula=equal),
        worst=ProbeResult(probes=int(there.sum()), hits=int(known[there].sum()), formula=most),
    )


def _refuse(options: FprOptions) -> None:
    if options.urls is None and options.n < _FEWEST_URLS:
        raise UsageError(f"--n is {options.n}: rates of less than {_FEWEST_URLS} URLs say little; ask for more")
    if not options.leaves or not all(1 <= leaves <= _MOST_LEAVES for leaves in options.leaves):
        raise UsageError(f"--leaves {options.leaves}: name one number or more, each from 1 to {_MOST_LEAVES}")
    if not 1 <= options.points <= _MOST_POINTS:
        raise UsageError(f"--points {options.points}: a curve has from 1 to {_MOST_POINTS}")
    if not 0 < options.false_positive <= 0.5:
        raise UsageError(f"--false-positive {options.false_positive}: it must be above 0 and at most 0.5")


def _stops(last: int, points: int) -> list[int]:
    return [last * number // points for number in range(1, points + 1)]


def _parts(count: int) -> Iterator[slice]:
    return (slice(start, start + _AT_ONCE) for start in range(0, count, _AT_ONCE))


_ENOUGH_HITS = 10  # with fewer expected, a distance in sigmas means nothing
_FEWEST_HITS = 3  # one or two are no rate to draw
_LEAST_EXPECTED = 0.1  # hits: a formula is drawn a little further than what is measured
_SUSPECT = 4.0  # sigmas: by chance one point in 16,000 is that far off
_COLUMNS = (
    "bits per URL",
    "leaves c",
    "URLs n",
    "memory KiB",
    "mean query",
    "3 sigma",
    "formula (8)",
    "worst leaf",
    "3 sigma (worst)",
    "formula (7)",
    "published",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """Probes that were never inserted."""

    probes: int
    hits: int  #: taken for known
    formula: float  #: rate to be expected

    @property
    def rate(self) -> float:
        """The rate measured."""
        return self.hits / self.probes if self.probes else 0.0

    @property
    def sigma(self) -> float:
        """Sampling error: the standard deviation of the measured rate if the formula holds."""
        return sqrt(self.formula * (1 - self.formula) / self.probes) if self.probes else 0.0

    @property
    def deviation(self) -> float | None:
        """Distance from the formula in sigmas; None if fewer than ten hits, or misses, are expected."""
        if min(self.formula, 1 - self.formula) * self.probes < _ENOUGH_HITS:
            return None
        return (self.rate - self.formula) / self.sigma


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A filter with n URLs in it."""

    leaves: int
    bits: int  #: of all leaves
    urls: int
    fullest: int  #: URLs in the fullest leaf
    mean: ProbeResult  #: all probes, and formula (8)
    worst: ProbeResult  #: the probes that meet the fullest leaf, and formula (7)


@dataclass(frozen=True, slots=True, kw_only=True)
class Half:
    """One of the figure's two settings, measured: a curve for each c."""

    title: str
    x_label: str
    note: str
    unit_bits: int | None  #: n is scaled to so many bits on the x axis; None: it is shown as it is
    curves: tuple[tuple[Point, ...], ...]

    def x(self, point: Point) -> float:
        """The place of the point on the x axis."""
        return point.urls * self.unit_bits / point.bits if self.unit_bits else point.urls


def same_memory(whole: int, curves: Sequence[tuple[Point, ...]]) -> Half:
    """The half with as many bits per URL for every c; `whole` bits are those of the classic filter."""
    return Half(
        title="Figure 7, the same total memory: false-positive rate",
        x_label=f"URLs n for each {whole // 8192} KiB of memory",
        note=(
            "A leaf has a power of two of bits. Where the memory is not divided by c so, the leaves are the next smaller "
            "ones and n is less in proportion: rows of equal bits per URL compare."
        ),
        unit_bits=whole,
        curves=tuple(curves),
    )


def same_leaf_size(leaf_bits: int, curves: Sequence[tuple[Point, ...]]) -> Half:
    """The half with leaves of one size, so that memory grows with c."""
    return Half(
        title=f"Figure 7, the same leaf size ({leaf_bits // 8192} KiB): false-positive rate",
        x_label="URLs n",
        note="No leaf splits here, however full it is: in use a DSBF would split and stay below f_max.",
        unit_bits=None,
        curves=tuple(curves),
    )


def report(halves: Sequence[Half], hashes: int, false_positive: float) -> LabReport:
    """Tables, panels and closing words of the two halves."""
    return LabReport(
        name="fpr",
        tables=tuple(_table(half, hashes) for half in halves),
        panels=(*(_panel(half, false_positive) for half in halves), _worst_panel(halves[1])),
        closing=tuple(_closing(halves, false_positive)),
    )


def _table(half: Half, hashes: int) -> Table:
    rows = [_row(point) for at_one_n in zip(*half.curves, strict=True) for point in at_one_n]
    note = f"{half.note} k = {hashes}; n/10 probes; 3 sigma: the sampling error of the rate before it."
    return Table(title=half.title, columns=_COLUMNS, rows=tuple(rows), note=note)


def _row(point: Point) -> tuple[Cell, ...]:
    mean, worst = point.mean, point.worst
    return (
        point.bits / point.urls,
        point.leaves,
        point.urls,
        point.bits / 8192,
        mean.rate,
        3 * mean.sigma,
        mean.formula,
        worst.rate,
        3 * worst.sigma,
        worst.formula,
        NOT_RECOVERABLE,
    )


def _panel(half: Half, false_positive: float) -> Panel:
    """For each c the measured rates and the formula, as far down as the probes allow; and f_max."""
    curves = []
    for points in half.curves:
        hit = [point for point in points if point.mean.hits >= _FEWEST_HITS]
        curves.append(Curve(label=f"c = {points[0].leaves}", x=_xs(half, hit), y=tuple(p.mean.rate for p in hit)))
        curves.append(_formula(half, points))
    ends = _xs(half, [half.curves[0][0], half.curves[0][-1]])
    curves.append(Curve(label="f_max", x=ends, y=(false_positive, false_positive), is_dashed=True))
    drawn = tuple(curve for curve in curves if curve.x)
    y_label = f"false-positive rate ({_FEWEST_HITS} hits or more)"
    return Panel(title=half.title, x_label=half.x_label, y_label=y_label, curves=drawn, is_log_y=True)


def _formula(half: Half, points: Sequence[Point]) -> Curve:
    label = f"formula (8), c = {points[0].leaves}"
    near = [point for point in points if point.mean.formula * point.mean.probes >= _LEAST_EXPECTED]
    return Curve(label=label, x=_xs(half, near), y=tuple(point.mean.formula for point in near), is_dashed=True)


def _worst_panel(half: Half) -> Panel:
    curves = [
        Curve(
            label=f"c = {points[0].leaves}",
            x=_xs(half, points),
            y=tuple(point.worst.formula / point.mean.formula for point in points),
        )
        for points in half.curves
    ]
    title = "Worst leaf against mean query, the same leaf size"
    y_label = "formula (7) of the fullest leaf / formula (8)"
    return Panel(title=title, x_label=half.x_label, y_label=y_label, curves=tuple(curves))


def _xs(half: Half, points: Sequence[Point]) -> tuple[float, ...]:
    return tuple(half.x(point) for point in points)


def _closing(halves: Sequence[Half], false_positive: float) -> Iterator[str]:
    equal, fixed = ([curve[-1] for curve in half.curves] for half in halves)
    yield _same_memory_words(equal)
    shown = ", ".join(f"{point.mean.rate:.2g} with c = {point.leaves}" for point in fixed)
    yield f"The same leaf size, {fixed[0].urls:,} URLs: {shown}."
    yield f"f_max = {false_positive:g} is exceeded {', '.join(_crossing(c, false_positive) for c in halves[1].curves)}."
    yield _agreement([point for half in halves for curve in half.curves for point in curve])
    yield _worst_words(max(fixed, key=lambda point: point.worst.formula / point.mean.formula))


def _same_memory_words(last: Sequence[Point]) -> str:
    """The range of the rates at equal bits per URL."""
    rates = sorted(point.mean.rate for point in last)
    return (
        f"The same memory, {last[0].bits / last[0].urls:.2f} bits per URL: {rates[0]:.3g} to {rates[-1]:.3g} whatever c; "
        f"formula (8) says {last[0].mean.formula:.3g}."
    )


def _worst_words(most: Point) -> str:
    """How much worse the fullest leaf is."""
    return (
        f"Worst leaf and mean query: with c = {most.leaves} the fullest leaf holds {most.fullest:,} URLs, "
        f"{most.urls / most.leaves:,.0f} on average; its rate by formula is {most.worst.formula / most.mean.formula:.3f} "
        f"times that of the mean query."
    )


def _crossing(curve: Sequence[Point], false_positive: float) -> str:
    """The number of URLs from which the measured rate is above f_max."""
    above = [point.urls for point in curve if point.mean.rate > false_positive]
    where = f"from n = {above[0]:,} on" if above else "nowhere"
    return f"{where} with c = {curve[0].leaves}"


def _agreement(points: Sequence[Point]) -> str:
    """The largest distance of a measured rate from formula (8)."""
    known = [(abs(point.mean.deviation), point) for point in points if point.mean.deviation is not None]
    if not known:
        return "Measured and formula (8): too few hits at every point to compare; ask for more URLs."
    sigmas, far = max(known, key=lambda pair: pair[0])
    verdict = "as chance has it" if sigmas < _SUSPECT else "more than chance explains"
    return (
        f"Measured and formula (8) are at most {sigmas:.1f} sigma apart (c = {far.leaves}, n = {far.urls:,}; sampling error "
        f"{far.mean.sigma:.2g}) at the {len(known)} points of {len(points)} with enough hits to compare: {verdict}."
    )
