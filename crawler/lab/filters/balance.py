"""Figures 10 and 11 of the DSBF paper (2016): how evenly URLs of portals and small sites fill the filters.

The same distinct URLs are inserted into one filter per domain as at the Internet Archive, into Apoidea's filters chosen by the
hash of the domain, into one filter of 2 GB, and into a DSBF of height 1. The first half measures (`run`), the second
makes the report.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from math import log, sqrt
from pathlib import Path
from statistics import median

import numpy as np

from anabranch.crawler.lab.filters.baselines import FilterReport, PerDomainFilters
from anabranch.crawler.lab.report import NOT_RECOVERABLE, Cell, Curve, LabReport, OnProgress, Panel, Table
from anabranch.crawler.lab.urls import distinct_urls
from anabranch.crawler.order.quantities import format_bytes
from anabranch.crawler.outcomes.errors import DiskFull, UsageError
from anabranch.dedup.bloom.filter import Dsbf
from anabranch.dedup.bloom.formulas import DsbfParameters, false_positive_rates, leaves_for
from anabranch.dedup.bloom.tree import Tree
from anabranch.dedup.keys import BoolArray, Fingerprints, fingerprints, map_hashes

_ARCHIVE_BITS, _APOIDEA_BITS, _SINGLE_BITS = 1 << 18, 1 << 16, 1 << 34
_HASHES = 10  # k of the Internet Archive; Apoidea's is not published
_PROBED = 3  # every third URL, altered, is a probe
_NOT_INSERTED = b"&not=inserted"  # makes a probe of a URL
_SPARE_BYTES = 1 << 28  # free space beyond the 2 GB: the DSBF's logs, and some for others
_SMALLEST_LEAF_BITS = 1 << 12
_AT_ONCE = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class BalanceOptions:
    """Options of `anabranch lab balance`."""

    urls: Path | None = None  #: one URL a line; all its distinct ones are used; `count` and `seed` are not used then
    count: int = 1_500_000  #: generated URLs
    seed: int = 1  #: of the generated URLs
    leaves: int = 10  #: c of the DSBF
    filters: int | None = None  #: number of Apoidea's filters; None: as many as take the memory of the DSBF
    two_gigabytes: bool = True  #: measure the filter of 2 GB, too; it needs that much disk for a while
    false_positive: float = 1e-3  #: f_max of the DSBF; the other filters' sizes are published


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sample:
    """The inserted URLs, and the probes."""

    urls: Sequence[bytes]  #: distinct
    probes: Sequence[bytes]  #: never inserted; on the same domains in the same proportions


def run(options: BalanceOptions, on_progress: OnProgress) -> LabReport:
    """Fill and measure all filters. Raises: UsageError; DiskFull; errors of the filters.

    Cost: a minute and 900 MB of memory for 1.5 million URLs, and 2 GB of disk in the folder of temporary files.
    """
    _refuse(options)
    steps = 5 if options.two_gigabytes else 4
    with tempfile.TemporaryDirectory(prefix="anabranch-balance-") as folder:
        if options.two_gigabytes:
            _require_space(Path(folder))
        on_progress(0, steps, "URLs")
        urls = distinct_urls(options.urls, options.count, options.seed)
        sample = _Sample(urls=urls, probes=_probes(urls))
        parameters = sized(len(urls), options.leaves, options.false_positive)
        on_progress(1, steps, "one filter per domain")
        kinds = [_fixed("Internet Archive", PerDomainFilters.internet_archive(), _ARCHIVE_BITS, sample)]
        on_progress(2, steps, "filters chosen by the hash of the domain")
        number = options.filters or max(1, options.leaves * parameters.leaf_bits // _APOIDEA_BITS)
        kinds.append(_fixed("Apoidea", PerDomainFilters.apoidea(number, _HASHES), _APOIDEA_BITS, sample))
        on_progress(3, steps, "DSBF")
        dsbf = _dsbf(parameters, sample, Path(folder) / "dsbf")
        if options.two_gigabytes:
            on_progress(4, steps, "one filter of 2 GB")
            single = PerDomainFilters.single(Path(folder) / "single", _SINGLE_BITS, _HASHES)
            kinds.append(_fixed("one of 2 GB", single, _SINGLE_BITS, sample))
    on_progress(steps, steps, "done")
    return report([*kinds, dsbf])


def sized(n: int, leaves: int, false_positive: float) -> DsbfParameters:
    """A DSBF with that many leaves, the smallest that holds n URLs without a split."""
    leaf_bits = _SMALLEST_LEAF_BITS
    while leaves_for(n, _with(leaf_bits, false_positive).split_above) > leaves:
        leaf_bits *= 2
    split_above = _with(leaf_bits, false_positive).split_above
    low, high = n, leaves * split_above  # the most that the leaves hold is between them
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if leaves_for(middle, split_above) <= leaves else (low, middle - 1)
    return _with(leaf_bits, false_positive, low)


def _with(leaf_bits: int, false_positive: float, expected: int = 0) -> DsbfParameters:
    return DsbfParameters(expected=expected, false_positive=false_positive, leaf_bits=leaf_bits)


def _refuse(options: BalanceOptions) -> None:
    least = _PROBED if options.urls is None else 0
    if options.count < least:
        raise UsageError(f"--count is {options.count}: ask for {least} URLs or more")
    for name, number in (("leaves", options.leaves), ("filters", options.filters)):
        if number is not None and number < 1:
            raise UsageError(f"--{name} {number}: it must be 1 or more")
    if not 0 < options.false_positive <= 0.5:
        raise UsageError(f"--false-positive {options.false_positive}: it must be above 0 and at most 0.5")


def _require_space(folder: Path) -> None:
    needed, free = _SINGLE_BITS // 8 + _SPARE_BYTES, shutil.disk_usage(folder).free
    if free < needed:
        held = f"{folder.parent} has {format_bytes(free)} free, the filter of 2 GB needs {format_bytes(needed)} for a while"
        raise DiskFull(f"{held}; point TMPDIR at another disk, or leave that filter out: --no-two-gigabytes")


def _probes(urls: Sequence[bytes]) -> list[bytes]:
    """URLs on the same hosts that are not among these. Raises: UsageError if there are none."""
    held = set(urls)
    probes = [probe for url in urls[::_PROBED] if (probe := url + _NOT_INSERTED) not in held]
    if not probes:
        raise UsageError(f"each URL also occurs with {_NOT_INSERTED.decode()} at its end; give other URLs")
    return probes


def _fixed(name: str, filters: PerDomainFilters, bits: int, sample: _Sample) -> FilterSet:
    """Fill and measure filters chosen by the domain."""
    with closing(filters):
        filters.add(sample.urls)
        return FilterSet(
            name=name,
            filter_bits=bits,
            hashes=_HASHES,
            capacity=int(bits * log(2) / _HASHES),  # half the bits set, formula (6): the published 18,170
            filters=tuple(filters.report(sample.probes)),
            probes=len(sample.probes),
            hits=int(filters.contains(sample.probes).sum()),
        )


def _dsbf(parameters: DsbfParameters, sample: _Sample, folder: Path) -> FilterSet:
    """Fill the product's filter. Raises: UsageError if a leaf has split: then it has not c leaves."""
    with Dsbf.open(folder, parameters) as dsbf:
        new = np.concatenate([dsbf.add(part) for part in _parts(sample.urls)])
        known = np.concatenate([~dsbf.unseen(part) for part in _parts(sample.probes)])
        dsbf.check()  # so the bits are those of the elements, which give the fill
        if dsbf.statistics().splits:
            raise UsageError("a leaf of the DSBF has split: these URLs spread too unevenly; give fewer --leaves")
    return FilterSet(
        name=f"DSBF, c = {parameters.first_leaves}",
        filter_bits=parameters.leaf_bits,
        hashes=parameters.hashes,
        capacity=parameters.capacity,
        filters=tuple(_leaves(parameters, sample, new, known)),
        probes=len(known),
        hits=int(known.sum()),
    )


def _leaves(parameters: DsbfParameters, sample: _Sample, new: BoolArray, known: BoolArray) -> Iterator[FilterReport]:
    """Each leaf: its fill computed by LocHash and MapHash, and its measured answers."""
    tree, elements = Tree.rooted(parameters.first_leaves), fingerprints(sample.urls)
    of_urls, of_probes = tree.descend(elements), tree.descend(fingerprints(sample.probes))
    for number, leaf in enumerate(tree.leaves, 1):
        mine, asked = of_urls == leaf, of_probes == leaf
        urls = int(mine.sum())
        yield FilterReport(
            name=f"leaf {number}",
            urls=urls,
            accepted=int(new[mine].sum()),
            fill=_bits_set(elements[mine], parameters) / parameters.leaf_bits,
            expected_rate=float(false_positive_rates(parameters.leaf_bits, parameters.hashes, np.array([urls]))[0]),
            measured_rate=float(known[asked].mean()) if asked.any() else None,
        )


def _bits_set(elements: Fingerprints, parameters: DsbfParameters) -> int:
    first, second = map_hashes(elements)
    positions = first[:, None] + second[:, None] * np.arange(parameters.hashes)
    return len(np.unique(positions & (parameters.leaf_bits - 1)))


def _parts(keys: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    return (keys[start : start + _AT_ONCE] for start in range(0, len(keys), _AT_ONCE))


_PROSE = (
    "Published in words alone: a fixed filter per domain overflows for portals and wastes space on small sites; a DSBF "
    "with H = 1, c = 10 is balanced."
)
_FULLEST = 10  # filters shown one by one
_NAMED = 3  # overflowing filters that the closing words name
_IDLE = 0.1  # a filter with less than this share of its capacity is mostly waste
_MOST_POINTS = 300  # of a curve
_LEAST_RATE = 1e-9  # lower rates would flatten the panel


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterSet:
    """Filters of one kind, all of one size, filled."""

    name: str
    filter_bits: int
    hashes: int
    capacity: int  #: URLs that one is made for
    filters: tuple[FilterReport, ...]  #: in order of their making
    probes: int  #: asked of all filters together
    hits: int  #: taken for known

    @property
    def urls(self) -> int:
        """URLs in all filters."""
        return sum(one.urls for one in self.filters)

    @property
    def memory_bytes(self) -> int:
        """Bits of all filters."""
        return len(self.filters) * self.filter_bits // 8

    @property
    def ranked(self) -> list[FilterReport]:
        """The fullest first."""
        return sorted(self.filters, key=lambda one: -one.urls)

    @property
    def overflowing(self) -> list[FilterReport]:
        """Those beyond their capacity, the fullest first."""
        return [one for one in self.ranked if one.urls > self.capacity]

    @property
    def idle_bytes(self) -> int:
        """Bits of filters that hold less than a tenth of their capacity."""
        return sum(one.urls < _IDLE * self.capacity for one in self.filters) * self.filter_bits // 8

    @property
    def mean_formula(self) -> float:
        """The rate that a query meets if queries spread as the URLs do."""
        return sum(one.urls * one.expected_rate for one in self.filters) / self.urls

    @property
    def mean_measured(self) -> float:
        """The share of probes taken for known."""
        return self.hits / self.probes

    @property
    def lost(self) -> int:
        """URLs taken for known at their only insertion: a crawl would never fetch them."""
        return sum(one.urls - one.accepted for one in self.filters)


def report(kinds: Sequence[FilterSet]) -> LabReport:
    """Tables, panels and closing words. The last kind is the DSBF, the first the filters per domain."""
    fullest = f"The {_FULLEST} fullest of the {kinds[0].name}'s filters"
    drawn = sorted(kinds, key=lambda kind: len(kind.filters) == 1)  # a lone filter last: it is not in every panel
    rates = f"False-positive rate per filter, from {_LEAST_RATE:g} on"
    return LabReport(
        name="balance",
        tables=(
            _urls_table(kinds),
            _rates_table(kinds),
            _each_table("The leaves of the DSBF", kinds[-1], kinds[-1].filters),
            _each_table(fullest, kinds[0], kinds[0].ranked[:_FULLEST]),
        ),
        panels=(
            _urls_panel(drawn),
            _ranks(
                "Fill per filter", "share of bits set", [_curve(k, lambda one: one.fill) for k in drawn], is_log_y=False
            ),
            _ranks(rates, "rate by formula", [_curve(k, _shown_rate) for k in drawn], is_log_y=True),
        ),
        closing=tuple(_closing(kinds)),
    )


def _urls_table(kinds: Sequence[FilterSet]) -> Table:
    columns: tuple[str, ...] = ("filters", "number", "memory MiB", "capacity", "fullest", "median", "emptiest")
    columns += ("over it", "% of URLs in these", "published")
    return Table(
        title=f"Figures 10 and 11: {kinds[0].urls:,} URLs, how they spread",
        columns=columns,
        rows=tuple(_urls_row(kind) for kind in kinds),
        note=(
            "Capacity: URLs that one filter is made for, half its bits set; a leaf of the DSBF splits a little before f_max. "
            f"The DSBF's leaves are the smallest power of two of bits that holds all URLs. "
            f"A domain is a host: with registrable domains all hosts of a portal would share one filter. {_PROSE}"
        ),
    )


def _urls_row(kind: FilterSet) -> tuple[Cell, ...]:
    counts = [one.urls for one in kind.ranked]
    return (
        kind.name,
        len(counts),
        kind.memory_bytes / 2**20,
        kind.capacity,
        counts[0],
        median(counts),
        counts[-1],
        len(kind.overflowing),
        100 * sum(one.urls for one in kind.overflowing) / kind.urls,
        NOT_RECOVERABLE,
    )


def _rates_table(kinds: Sequence[FilterSet]) -> Table:
    columns: tuple[str, ...] = (
        "filters",
        "fill max",
        "fill mean",
        "worst formula",
        "worst measured",
        "mean formula",
        "mean measured",
    )
    columns += ("3 sigma", "% of URLs lost", "published")
    return Table(
        title="Figures 10 and 11: fill and false-positive rate",
        columns=columns,
        rows=tuple(_rates_row(kind) for kind in kinds),
        note=(
            f"k = {', '.join(sorted({str(kind.hashes) for kind in kinds}))} (Apoidea's is not published). Worst: the fullest "
            f"filter; mean: the rate of queries distributed over the domains like the URLs, {kinds[0].probes:,} probes; "
            "3 sigma: the sampling error of the measured mean. URLs lost: taken for known at their only insertion."
        ),
    )


def _rates_row(kind: FilterSet) -> tuple[Cell, ...]:
    worst, mean = kind.ranked[0], kind.mean_formula
    return (
        kind.name,
        max(one.fill for one in kind.filters),
        sum(one.fill for one in kind.filters) / len(kind.filters),
        worst.expected_rate,
        worst.measured_rate,
        mean,
        kind.mean_measured,
        3 * sqrt(mean * (1 - mean) / max(1, kind.probes)),
        100 * kind.lost / kind.urls,
        NOT_RECOVERABLE,
    )


def _each_table(title: str, kind: FilterSet, filters: Sequence[FilterReport]) -> Table:
    rows = [
        (one.name, one.urls, one.urls / kind.capacity, one.fill, one.expected_rate, one.measured_rate, NOT_RECOVERABLE)
        for one in filters
    ]
    columns = ("filter", "URLs", "of capacity", "fill", "rate by formula", "rate measured", "published")
    return Table(title=title, columns=columns, rows=tuple(rows))


def _urls_panel(kinds: Sequence[FilterSet]) -> Panel:
    """A curve for each kind, and its capacity, except that of a single filter, which is far higher."""
    curves = []
    for kind in kinds:
        curves.append(_curve(kind, lambda one: one.urls or None))
        if len(kind.filters) > 1:
            ends = (1.0, float(len(kind.filters)))
            label = f"{kind.name}: capacity"
            curves.append(Curve(label=label, x=ends, y=(kind.capacity, kind.capacity), is_dashed=True))
    return _ranks("URLs per filter", "URLs", curves, is_log_y=True)


def _ranks(title: str, y_label: str, curves: Sequence[Curve], *, is_log_y: bool) -> Panel:
    x_label = "rank of the filter, the fullest is 1"
    drawn = tuple(curve for curve in curves if curve.x)
    return Panel(title=title, x_label=x_label, y_label=y_label, curves=drawn, is_log_x=True, is_log_y=is_log_y)


def _curve(kind: FilterSet, value: Callable[[FilterReport], float | None]) -> Curve:
    """A value against the filter's rank; of very many filters a selection, denser where they are fuller."""
    ranked = kind.ranked
    ranks = np.unique(np.geomspace(1, len(ranked), min(len(ranked), _MOST_POINTS)).round().astype(int)).tolist()
    if len(ranked) <= _MOST_POINTS:
        ranks = list(range(1, len(ranked) + 1))
    points = [(rank, y) for rank in ranks if (y := value(ranked[rank - 1])) is not None]
    return Curve(label=kind.name, x=tuple(float(rank) for rank, _ in points), y=tuple(y for _, y in points))


def _shown_rate(one: FilterReport) -> float | None:
    return one.expected_rate if one.expected_rate >= _LEAST_RATE else None


def _closing(kinds: Sequence[FilterSet]) -> Iterator[str]:
    *others, dsbf = kinds
    for kind in others:
        yield f"{kind.name}: {_overflow(kind)}; {_waste(kind)}." if len(kind.filters) > 1 else _single(kind)
    counts = [one.urls for one in dsbf.ranked]
    worst = dsbf.ranked[0].expected_rate
    yield (
        f"{dsbf.name}: {_overflow(dsbf)}; the fullest leaf holds {counts[0]:,} URLs, the emptiest {counts[-1]:,}: "
        f"{counts[0] / max(1, counts[-1]):.3f} to 1, and the worst rate is {worst / dsbf.mean_formula:.3f} times the mean one, "
        f"in {format_bytes(dsbf.memory_bytes)} altogether."
    )


def _single(kind: FilterSet) -> str:
    """The cost of one filter for all URLs."""
    only = kind.filters[0]
    return (
        f"{kind.name}: {only.urls / kind.capacity:.2g} times its capacity, {only.fill:.2%} of its bits set; it takes "
        f"{format_bytes(kind.memory_bytes)} however few the URLs are."
    )


def _overflow(kind: FilterSet) -> str:
    """Which filters are beyond their capacity."""
    over = kind.overflowing
    if not over:
        return f"none of {len(kind.filters):,} overflows"
    named = ", ".join(f"{_name(one)} {one.urls / kind.capacity:.1f} times" for one in over[:_NAMED])
    share = sum(one.urls for one in over) / kind.urls
    return f"{len(over):,} of {len(kind.filters):,} overflow with {share:.0%} of the URLs (the fullest: {named} its capacity)"


def _name(one: FilterReport) -> str:
    return f"filter {one.name}" if one.name.isdecimal() else one.name


def _waste(kind: FilterSet) -> str:
    """How much memory is nearly empty."""
    idle = [one for one in kind.filters if one.urls < _IDLE * kind.capacity]
    held = sum(one.urls for one in idle) / kind.urls
    return (
        f"{len(idle):,} filled to less than {_IDLE:.0%} of their capacity take {format_bytes(kind.idle_bytes)} of "
        f"{format_bytes(kind.memory_bytes)} for {held:.0%} of the URLs"
    )
