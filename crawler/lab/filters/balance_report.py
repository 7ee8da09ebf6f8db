"""What `anabranch lab balance` measured, as tables, panels and words: how even the filters are, and what unevenness costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import median

import numpy as np

from anabranch.crawler.lab.report import NOT_RECOVERABLE, Cell, Curve, Panel, Report, Table
from anabranch.crawler.orders.quantities import format_bytes
from anabranch.dedup.baselines import FilterReport

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
class Kind:
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
        """The share of the probes that were taken for known."""
        return self.hits / self.probes

    @property
    def lost(self) -> int:
        """URLs, each inserted once, that were taken for known on their way in: a crawl would never fetch them."""
        return sum(one.urls - one.accepted for one in self.filters)


def report(kinds: Sequence[Kind]) -> Report:
    """Tables, panels and closing words. The last kind is the DSBF, the first the filters per domain."""
    fullest = f"The {_FULLEST} fullest of the {kinds[0].name}'s filters"
    drawn = sorted(kinds, key=lambda kind: len(kind.filters) == 1)  # a lone filter last: it is not in every panel
    rates = f"False-positive rate per filter, from {_LEAST_RATE:g} on"
    return Report(
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


def _urls_table(kinds: Sequence[Kind]) -> Table:
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


def _urls_row(kind: Kind) -> tuple[Cell, ...]:
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


def _rates_table(kinds: Sequence[Kind]) -> Table:
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
            f"filter; mean: what a query meets that falls on the domains as the URLs do, {kinds[0].probes:,} probes; "
            "3 sigma: the sampling error of the measured mean. URLs lost: taken for known at their only insertion."
        ),
    )


def _rates_row(kind: Kind) -> tuple[Cell, ...]:
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


def _each_table(title: str, kind: Kind, filters: Sequence[FilterReport]) -> Table:
    rows = [
        (one.name, one.urls, one.urls / kind.capacity, one.fill, one.expected_rate, one.measured_rate, NOT_RECOVERABLE)
        for one in filters
    ]
    columns = ("filter", "URLs", "of capacity", "fill", "rate by formula", "rate measured", "published")
    return Table(title=title, columns=columns, rows=tuple(rows))


def _urls_panel(kinds: Sequence[Kind]) -> Panel:
    """A curve for each kind, and its capacity; that of a kind with one filter alone would stand far above."""
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


def _curve(kind: Kind, value: Callable[[FilterReport], float | None]) -> Curve:
    """A value against the filter's rank; of very many filters some, denser where they are fuller."""
    ranked = kind.ranked
    ranks = np.unique(np.geomspace(1, len(ranked), min(len(ranked), _MOST_POINTS)).round().astype(int)).tolist()
    if len(ranked) <= _MOST_POINTS:
        ranks = list(range(1, len(ranked) + 1))
    points = [(rank, y) for rank in ranks if (y := value(ranked[rank - 1])) is not None]
    return Curve(label=kind.name, x=tuple(float(rank) for rank, _ in points), y=tuple(y for _, y in points))


def _shown_rate(one: FilterReport) -> float | None:
    return one.expected_rate if one.expected_rate >= _LEAST_RATE else None


def _closing(kinds: Sequence[Kind]) -> Iterator[str]:
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


def _single(kind: Kind) -> str:
    """What one filter for all URLs costs."""
    only = kind.filters[0]
    return (
        f"{kind.name}: {only.urls / kind.capacity:.2g} times its capacity, {only.fill:.2%} of its bits set; it takes "
        f"{format_bytes(kind.memory_bytes)} however few the URLs are."
    )


def _overflow(kind: Kind) -> str:
    """Which filters are beyond their capacity."""
    over = kind.overflowing
    if not over:
        return f"none of {len(kind.filters):,} overflows"
    named = ", ".join(f"{_name(one)} {one.urls / kind.capacity:.1f} times" for one in over[:_NAMED])
    share = sum(one.urls for one in over) / kind.urls
    return f"{len(over):,} of {len(kind.filters):,} overflow with {share:.0%} of the URLs (the fullest: {named} its capacity)"


def _name(one: FilterReport) -> str:
    return f"filter {one.name}" if one.name.isdecimal() else one.name


def _waste(kind: Kind) -> str:
    """How much memory stands nearly empty."""
    idle = [one for one in kind.filters if one.urls < _IDLE * kind.capacity]
    held = sum(one.urls for one in idle) / kind.urls
    return (
        f"{len(idle):,} filled to less than {_IDLE:.0%} of their capacity take {format_bytes(kind.idle_bytes)} of "
        f"{format_bytes(kind.memory_bytes)} for {held:.0%} of the URLs"
    )
