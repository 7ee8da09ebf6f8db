"""`anabranch lab split`: how a DSBF that splits compares with classic Bloom filters when more URLs come than were planned.

A DSBF planned for `planned` URLs takes `n`, next to a classic Bloom filter for the planned number and one for the final number.
All three have the same f_max, MapHash and code; a classic filter here is a tree of one leaf that never splits. At each point
URLs that were never inserted are queried. The filters take turns, each point in the reverse order of the point before. Times
are CPU time of this thread; those of the DSBF include its logs, since it is durable, and the elements that a split moves. The
first half of the file measures (`run`), the second makes the report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import nan
from pathlib import Path
from tempfile import TemporaryDirectory
from time import thread_time_ns
from typing import TypeVar

import numpy as np

from anabranch.crawler.lab.filters.fpr import FixedTree
from anabranch.crawler.lab.report import Cell, Curve, LabReport, OnProgress, Panel, Table, in_turns, ratio_of, shown
from anabranch.crawler.lab.urls import distinct_urls
from anabranch.crawler.outcomes.errors import UsageError
from anabranch.dedup.bloom.filter import Dsbf
from anabranch.dedup.bloom.formulas import DsbfParameters, capacity_with, false_positive_rates
from anabranch.dedup.keys import Fingerprints, fingerprints

T = TypeVar("T")

_FEWEST_URLS = 10_000
_MOST_POINTS = 200
_BATCH = 5_000
#: Splits that begin within this share of n belong to one wave.
_WAVE_GAP = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitOptions:
    """Options of `anabranch lab split`. The defaults make both classic filters just as large as they must be."""

    urls: Path | None = None  #: one URL a line, for n + probes distinct ones; `seed` is not used then
    n: int = 2_320_000  #: URLs in the end
    planned: int = 290_000  #: URLs that the DSBF and the smaller classic filter are made for
    points: int = 40  #: of each curve, evenly spaced up to n
    probes: int = 50_000  #: URLs never inserted that each point queries
    leaf_bits: int = 1 << 17  #: m
    split_fan_out: int = 4
    false_positive: float = 1e-3  #: f_max
    seed: int = 1  #: of the generated URLs

    def __post_init__(self) -> None:
        if self.n < _FEWEST_URLS:
            raise UsageError(f"--n is {self.n}: rates of less than {_FEWEST_URLS} URLs say little; ask for more")
        if not 0 < self.planned <= self.n:
            raise UsageError(f"--planned is {self.planned}; it must be from 1 to --n, {self.n}")
        if not 1 <= self.points <= _MOST_POINTS:
            raise UsageError(f"--points {self.points}: a curve has from 1 to {_MOST_POINTS}")
        if self.probes < 1:
            raise UsageError(f"--probes {self.probes}: it must be 1 or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitPoint:
    """One filter with so many URLs in it."""

    urls: int
    rate: float  #: share of the probes that it takes for known
    formula: float  #: the same by formula
    worst: float  #: highest rate of a leaf since the point before, by formula
    insert_us: float  #: per URL, since the point before
    query_us: float  #: per probe
    memory_bytes: int  #: of the bits
    fills: tuple[float, float, float]  #: emptiest leaf, mean, fullest: share of what a leaf holds at f_max
    leaves: int = 1
    splits: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitMeasurements:
    """All that was measured."""

    options: SplitOptions
    hashes: int
    capacity: int  #: URLs that a leaf of the DSBF holds at f_max
    dsbf: tuple[SplitPoint, ...]
    planned: tuple[SplitPoint, ...]  #: the classic filter for the planned number
    final: tuple[SplitPoint, ...]  #: the classic filter for the final number
    split_at: tuple[tuple[int, int], ...]  #: URLs inserted and splits begun, for each batch that began one


def run(options: SplitOptions, on_progress: OnProgress) -> LabReport:
    """Measure and report. Raises: UsageError, BadParameters, OSError. Cost: some 10 µs and 300 bytes per URL."""
    shape = DsbfParameters(
        expected=options.planned,
        false_positive=options.false_positive,
        leaf_bits=options.leaf_bits,
        split_fan_out=options.split_fan_out,
    )
    steps = 1 + 3 * options.points
    on_progress(0, steps, "making the URLs")
    elements = fingerprints(distinct_urls(options.urls, options.n + options.probes, options.seed))
    if len(elements) < options.n + options.probes:
        raise UsageError(
            f"--urls has {len(elements):,} distinct URLs; --n and --probes need {options.n + options.probes:,}"
        )
    inputs = _Inputs(
        options=options,
        shape=shape,
        inserted=elements[: options.n],
        probes=elements[options.n :],
        stops=[options.n * number // options.points for number in range(1, options.points + 1)],
    )
    with TemporaryDirectory(prefix="anabranch-lab-") as folder, Dsbf.open(Path(folder), shape) as dsbf:
        growing = _Growing(inputs, dsbf)
        planned = _Classic(inputs, options.planned, "planned")
        final = _Classic(inputs, options.n, "final")
        filters: tuple[_Growing | _Classic, ...] = (growing, planned, final)
        for step, (number, one) in enumerate(in_turns(filters, len(inputs.stops))):
            stop = inputs.stops[number]
            on_progress(1 + step, steps, f"{one.what}, {stop:,} URLs")
            one.reach(stop)
    measured = SplitMeasurements(
        options=options,
        hashes=shape.hashes,
        capacity=shape.capacity,
        dsbf=tuple(growing.points),
        planned=tuple(planned.points),
        final=tuple(final.points),
        split_at=tuple(growing.split_at),
    )
    on_progress(steps, steps, "done")
    return report(measured)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Inputs:
    """The inputs that all three filters share."""

    options: SplitOptions
    shape: DsbfParameters
    inserted: Fingerprints
    probes: Fingerprints
    stops: list[int]  #: URLs inserted at each point

    def batches(self, held: int, stop: int) -> Iterator[Fingerprints]:
        """The URLs between two numbers."""
        return (self.inserted[start : min(start + _BATCH, stop)] for start in range(held, stop, _BATCH))


class _Growing:
    """The DSBF, point by point."""

    what = "DSBF"

    def __init__(self, inputs: _Inputs, dsbf: Dsbf) -> None:
        self._inputs, self._dsbf = inputs, dsbf
        self._held = self._splits = 0
        self.points: list[SplitPoint] = []
        self.split_at: list[tuple[int, int]] = []  #: URLs inserted and splits begun, for each batch that began one

    def reach(self, stop: int) -> None:
        """Insert up to so many URLs, and ask for the probes."""
        inputs, dsbf, held = self._inputs, self._dsbf, self._held
        insert_us, worst = 0.0, 0.0
        for part in inputs.batches(held, stop):
            insert_us += _timed(partial(dsbf.mark_elements, part, np.ones(len(part), dtype=np.bool_)))[0]
            self._held += len(part)
            now = dsbf.statistics()
            worst = max(worst, now.worst_rate)
            if now.splits > self._splits:
                self.split_at.append((self._held, now.splits - self._splits))
                self._splits = now.splits
        insert_us += _timed(dsbf.sync)[0]
        query_us, new = _timed(partial(dsbf.unseen_elements, inputs.probes))
        now, loads = dsbf.statistics(), dsbf.leaf_loads() / inputs.shape.capacity
        self.points.append(
            SplitPoint(
                urls=stop,
                rate=1 - float(new.mean()),
                formula=now.mean_rate,
                worst=worst,
                insert_us=insert_us / (stop - held),
                query_us=query_us / len(inputs.probes),
                memory_bytes=now.memory_bytes,
                fills=(float(loads.min()), float(loads.mean()), float(loads.max())),
                leaves=now.leaves,
                splits=now.splits,
            )
        )


class _Classic:
    """A classic filter for a number of URLs, point by point."""

    def __init__(self, inputs: _Inputs, urls: int, what: str) -> None:
        shape = inputs.shape
        self.what = f"classic Bloom filter of the {what} size"
        self._inputs, self._held = inputs, 0
        self._tree = FixedTree(1, _bits_for(urls, shape), shape.hashes)
        self._holds = capacity_with(self._tree.leaf_bits, shape.hashes, shape.false_positive)
        self.points: list[SplitPoint] = []

    def reach(self, stop: int) -> None:
        """Insert up to so many URLs, and ask for the probes."""
        inputs, tree = self._inputs, self._tree
        insert_us = sum(_timed(partial(tree.mark, part))[0] for part in inputs.batches(self._held, stop))
        query_us, (_, known) = _timed(partial(tree.ask, inputs.probes))
        formula = float(false_positive_rates(tree.leaf_bits, tree.hashes, np.array([stop]))[0])
        self.points.append(
            SplitPoint(
                urls=stop,
                rate=float(known.mean()),
                formula=formula,
                worst=formula,
                insert_us=insert_us / (stop - self._held),
                query_us=query_us / len(inputs.probes),
                memory_bytes=tree.leaf_bits // 8,
                fills=(stop / self._holds,) * 3,
            )
        )
        self._held = stop


def _bits_for(urls: int, shape: DsbfParameters) -> int:
    """The smallest power of two of bits that holds so many URLs at f_max: MapHash needs a power of two."""
    bits = 64
    while capacity_with(bits, shape.hashes, shape.false_positive) < urls:
        bits *= 2
    return bits


def _timed(work: Callable[[], T]) -> tuple[float, T]:
    """CPU microseconds of this thread, and the result."""
    begun_ns = thread_time_ns()
    result = work()
    return (thread_time_ns() - begun_ns) / 1000, result


def report(measured: SplitMeasurements) -> LabReport:
    """The table, four panels and the conclusions."""
    return LabReport(
        name="split",
        tables=(_table(measured), _waves_table(measured)),
        panels=(
            _rates_panel(measured),
            _cost_panel(measured, "Insertion", lambda point: point.insert_us),
            _fill_panel(measured),
            _cost_panel(measured, "Query", lambda point: point.query_us),
        ),
        closing=tuple(_closing(measured)),
    )


def waves_of(measured: SplitMeasurements) -> list[tuple[int, int, int]]:
    """The waves of splits: URLs inserted at the first and at the last one, and their number."""
    gap = _WAVE_GAP * measured.options.n
    waves: list[tuple[int, int, int]] = []
    for urls, splits in measured.split_at:
        if waves and urls - waves[-1][1] <= gap:
            first, _, number = waves.pop()
            waves.append((first, urls, number + splits))
        else:
            waves.append((urls, urls, splits))
    return waves


_COLUMNS = (
    "URLs n",
    "leaves",
    "splits",
    "DSBF: rate",
    "by formula",
    "worst leaf by formula",
    "KiB",
    "classic, planned size: rate",
    "by formula (planned)",
    "classic, final size: rate",
    "by formula (final)",
    "insert µs: DSBF",
    "planned size",
    "final size",
)
_MOST_ROWS = 20


def _table(measured: SplitMeasurements) -> Table:
    points = list(zip(measured.dsbf, measured.planned, measured.final, strict=True))
    step = -(-len(points) // _MOST_ROWS)
    rows: list[tuple[Cell, ...]] = [
        (
            dsbf.urls,
            dsbf.leaves,
            dsbf.splits,
            dsbf.rate,
            dsbf.formula,
            dsbf.worst,
            dsbf.memory_bytes / 1024,
            planned.rate,
            planned.formula,
            final.rate,
            final.formula,
            dsbf.insert_us,
            planned.insert_us,
            final.insert_us,
        )
        for dsbf, planned, final in points[step - 1 :: step]
    ]
    options = measured.options
    return Table(
        title=f"A DSBF planned for {options.planned:,} URLs takes {options.n:,}, and two classic Bloom filters",
        columns=_COLUMNS,
        rows=tuple(rows),
        note=(
            f"f_max = {options.false_positive:g}, k = {measured.hashes}, m = {options.leaf_bits:,} bits a leaf, which hold "
            f"{measured.capacity:,} URLs, fan-out {options.split_fan_out}. Rates: share of {options.probes:,} URLs never "
            f"inserted that are taken for known. Worst leaf: the highest since the row before, leaves that are being split "
            f"included. Classic filters take {measured.planned[0].memory_bytes // 1024:,} and "
            f"{measured.final[0].memory_bytes // 1024:,} KiB."
        ),
    )


def _waves_table(measured: SplitMeasurements) -> Table:
    planned = measured.options.planned
    return Table(
        title="Waves of splits",
        columns=("wave", "from n", "to n", "splits", "n / planned, from", "to"),
        rows=tuple(
            (number, first, last, splits, first / planned, last / planned)
            for number, (first, last, splits) in enumerate(waves_of(measured), 1)
        ),
        note="LocHash fills all leaves of a level evenly, so they split at nearly the same time.",
    )


def _curve(
    label: str, points: Sequence[SplitPoint], value: Callable[[SplitPoint], float], *, is_dashed: bool = False
) -> Curve:
    """A point for each; there is a gap where the value is 0, which no log axis has."""
    y = tuple(value(point) or nan for point in points)
    return Curve(label=label, x=tuple(float(point.urls) for point in points), y=y, is_dashed=is_dashed)


def _rates_panel(measured: SplitMeasurements) -> Panel:
    f_max = measured.options.false_positive
    curves = (
        _curve("DSBF", measured.dsbf, lambda point: point.rate),
        _curve("worst leaf by formula, DSBF", measured.dsbf, lambda point: point.worst, is_dashed=True),
        _curve("classic, planned size", measured.planned, lambda point: point.rate),
        _curve("by formula: classic, planned size", measured.planned, lambda point: point.formula, is_dashed=True),
        _curve("classic, final size", measured.final, lambda point: point.rate),
        _curve("by formula: classic, final size", measured.final, lambda point: point.formula, is_dashed=True),
        _curve("f_max", measured.dsbf, lambda _: f_max, is_dashed=True),
    )
    return Panel(
        title="False-positive rate while URLs outgrow the plan",
        x_label="URLs n",
        y_label="share of new URLs taken for known",
        curves=curves,
        is_log_y=True,
        shaded=_shaded(measured),
        shaded_label="leaves split",
    )


def _cost_panel(measured: SplitMeasurements, what: str, value: Callable[[SplitPoint], float]) -> Panel:
    return Panel(
        title=f"{what}: CPU time per URL, in batches of {_BATCH:,}",
        x_label="URLs n",
        y_label="microseconds",
        curves=(
            _curve("DSBF, durable", measured.dsbf, value),
            _curve("classic, planned size, in memory", measured.planned, value),
            _curve("classic, final size, in memory", measured.final, value),
        ),
        shaded=_shaded(measured),
        shaded_label="leaves split",
    )


def _shaded(measured: SplitMeasurements) -> tuple[tuple[float, float], ...]:
    return tuple((float(first - _BATCH), float(last)) for first, last, _ in waves_of(measured))


def _fill_panel(measured: SplitMeasurements) -> Panel:
    """How full the leaves of the DSBF are: a tooth for each wave."""
    return Panel(
        title="Fill of the leaves of the DSBF",
        x_label="URLs n",
        y_label="URLs in a leaf, % of what it holds at f_max",
        curves=(
            _curve("fullest leaf", measured.dsbf, lambda point: 100 * point.fills[2]),
            _curve("mean", measured.dsbf, lambda point: 100 * point.fills[1]),
            _curve("emptiest leaf", measured.dsbf, lambda point: 100 * point.fills[0]),
        ),
        shaded=_shaded(measured),
        shaded_label="leaves split",
    )


def _closing(measured: SplitMeasurements) -> Iterator[str]:
    options, dsbf, planned = measured.options, measured.dsbf[-1], measured.planned[-1]
    f_max = options.false_positive
    worst = max(measured.dsbf, key=lambda point: point.worst)
    verdict = "never above" if worst.worst <= f_max else "ABOVE"
    yield (
        f"The claim: a DSBF needs no plan. Planned for {options.planned:,} URLs, with {dsbf.urls:,} it takes "
        f"{shown(dsbf.rate)} of new URLs for known; its worst leaf reached {shown(worst.worst)} by formula, at n = "
        f"{worst.urls:,} or before: {verdict} f_max = {f_max:g}, splits included."
    )
    above = next((point.urls for point in measured.planned if point.rate > f_max), None)
    since = "does not exceed f_max here" if above is None else f"exceeds f_max from n = {above:,} on"
    yield (
        f"A classic Bloom filter of the planned size {since}; with {planned.urls:,} URLs it takes {planned.rate:.1%} "
        f"of new URLs for known."
    )
    yield _known_number_words(measured)
    waves = waves_of(measured)
    if not waves:
        yield "No leaf split: the URLs stayed within the plan."
        return
    amid = [point.insert_us for point in measured.dsbf if _is_amid(point.urls, waves, measured)]
    calm = [point.insert_us for point in measured.dsbf if not _is_amid(point.urls, waves, measured)]
    cost = (
        f"; insertion takes {np.mean(amid):.2g} µs in a wave, {np.mean(calm):.2g} µs outside" if amid and calm else ""
    )
    yield f"{dsbf.splits:,} splits in {len(waves)} wave{'s' * (len(waves) > 1)}{cost}."


def _known_number_words(measured: SplitMeasurements) -> str:
    """The sentence about where the claim does not hold."""
    dsbf, final = measured.dsbf[-1], measured.final[-1]
    times = [
        f"{ratio_of([value(one) for one in measured.dsbf], [value(one) for one in measured.final])} times as long to {verb}"
        for verb, value in _COSTS.items()
    ]
    better = "needs less memory" + (" and less time" if _is_dearer(measured) else "; no difference in time is shown")
    return (
        f"Where it does not hold: if the final number is known, one classic filter of that size {better}. It takes "
        f"{final.memory_bytes / 1024:,.0f} KiB, the DSBF in the end {dsbf.memory_bytes / 1024:,.0f}; a URL takes the DSBF "
        f"{' and '.join(times)} (medians of the points; it also writes logs, which make it durable). The classic filter's rate "
        f"is {shown(final.rate)} in the end, and less before."
    )


def _is_amid(urls: int, waves: Sequence[tuple[int, int, int]], measured: SplitMeasurements) -> bool:
    """Whether some split began between the point before and this one."""
    before = urls - measured.options.n // measured.options.points
    return any(first <= urls and last > before for first, last, _ in waves)


#: What is compared, by the verb.
_COSTS: dict[str, Callable[[SplitPoint], float]] = {
    "insert": lambda point: point.insert_us,
    "query": lambda point: point.query_us,
}


def _is_dearer(measured: SplitMeasurements) -> bool:
    """Whether both operations are shown to take the DSBF longer than the classic filter of the final size."""
    return all(
        ratio_of([value(one) for one in measured.dsbf], [value(one) for one in measured.final]).is_above()
        for value in _COSTS.values()
    )
