"""The result of `anabranch compare --filters`: what each filter answered is judged by the truth, and shown.

Pure: `judged` counts the losses, `report_of` makes tables, panels and sentences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from math import nan, sqrt
from statistics import median
from typing import NamedTuple

import numpy as np

from anabranch.crawler.lab.filters.contestants import CONTESTANTS
from anabranch.crawler.lab.report import Cell, Curve, LabReport, Panel, Ratio, Table, ratio_of, shown
from anabranch.dedup.keys import BoolArray, IntArray

NAME = "filters"
#: The first key of the JSON form and its value.
MAGIC, COMPARISON = "anabranch", "filter comparison"
VERSION = 1

#: Lost URLs of each filter that are named.
MOST_NAMED = 20
#: Kinds of filters: marks that were synced outlive a kill; a sync writes the whole filter; built once, and only asked then.
DURABLE, IN_MEMORY, STATIC = "durable", "in memory", "static"

#: It drops URLs on purpose, so it takes no part in the ranking.
SIMILAR = "similar"

_MIB = 1 << 20


class FilterPoint(NamedTuple):
    """A filter after so many links. Times are of all links so far, in asking and marking."""

    links: int
    wall_us: float
    cpu_us: float  #: of the asking thread
    memory_bytes: int  #: growth of the process's own memory since before the opening
    resident_bytes: int  #: growth of all that is resident, mapped files included


class AskedShare(NamedTuple):
    """Links that a filter was asked for when it knew all of them."""

    links: int
    cpu_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterEnding:
    """The state and costs of a filter after all links."""

    disk_bytes: int  #: blocks that its files take
    sync_s: float  #: all syncs together
    close_s: float
    open_s: float  #: opening it again with all its URLs
    expected_lost: float | None  #: URLs lost by its own estimate; None: it has none
    #: Of the first 1,000 URLs, those that it does not know after the opening; anything but 0 is a defect.
    forgotten: int
    probes: int = 0  #: URLs that nobody marked, asked for in the end
    false_hits: int = 0  #: of these, taken for known
    filter_bits: float | None = None  #: its size by its own account; None: it has none
    urls: int = 0  #: that it took


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses:
    """How a filter's answers differ from those of a set."""

    lost: int  #: URLs that it never called new
    late: int  #: URLs that it first dropped and called new when they came again
    again: int  #: times that it called a known URL new; a crawl would fetch it again
    named: tuple[str, ...]  #: the first lost ones

    @property
    def are_none(self) -> bool:
        """Whether the filter answered as a set does."""
        return not (self.lost or self.late or self.again)


NONE_LOST = Losses(lost=0, late=0, again=0, named=())


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterRun:
    """One filter. A static one has one point, of its building, and no losses."""

    name: str
    points: tuple[FilterPoint, ...]
    dropped: tuple[int, ...]  #: URLs dropped when they were new, up to each point
    losses: Losses
    ending: FilterEnding
    asked: tuple[AskedShare, ...] = ()  #: rounds in which it knew all links

    @property
    def kind(self) -> str:
        """One of `DURABLE`, `IN_MEMORY` and `STATIC`; a filter of a user's own is durable."""
        if self.name not in CONTESTANTS:
            return DURABLE
        found = CONTESTANTS[self.name]
        return STATIC if found.is_static else DURABLE if found.is_durable else IN_MEMORY

    @property
    def filling_us(self) -> list[float]:
        """CPU time per link in each share of the filling."""
        return [
            (after.cpu_us - before.cpu_us) / (after.links - before.links)
            for before, after in pairwise((FilterPoint(0, 0.0, 0.0, 0, 0), *self.points))
        ]

    @property
    def known_us(self) -> list[float]:
        """CPU time per link in each round in which all links are known."""
        return [share.cpu_us / share.links for share in self.asked if share.links]

    @property
    def hit_rate(self) -> float | None:
        """Share of URLs that nobody marked that it takes for known."""
        return self.ending.false_hits / self.ending.probes if self.ending.probes else None

    @property
    def wall_us(self) -> float:
        """Per link."""
        return self.points[-1].wall_us / self.points[-1].links

    @property
    def cpu_us(self) -> float:
        """Per link."""
        return self.points[-1].cpu_us / self.points[-1].links


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterComparison:
    """All filters, asked for the same links."""

    source: str  #: in words
    pages: int
    links: int
    urls: int  #: distinct ones among the links
    expected: int
    false_positive: float
    runs: tuple[FilterRun, ...]  #: all made for the rate
    bits: float = 0.0  #: of memory for each expected URL
    at_memory: tuple[FilterRun, ...] = ()  #: those that can be, made for that memory
    too_large: tuple[str, ...] = ()  #: those that no rate makes so small


def judged(
    numbers: IntArray, answers: BoolArray, stops: Sequence[int], name_of: Callable[[int], str]
) -> tuple[Losses, tuple[int, ...]]:
    """The losses of a filter, and the new URLs that it had dropped after each of the `stops`.

    `numbers` has each link's URL as a number from 0, counted by first appearance; `answers` is True where the filter called the
    link new. Cost: a few numpy steps.
    """
    is_first = np.zeros(len(numbers), dtype=np.bool_)
    is_first[np.unique(numbers, return_index=True)[1]] = True
    times_new = np.bincount(numbers[answers], minlength=int(numbers.max(initial=-1)) + 1)
    dropped = np.cumsum(is_first & ~answers)
    lost = np.flatnonzero(times_new == 0)
    return Losses(
        lost=len(lost),
        late=int(dropped[-1]) - len(lost) if len(dropped) else 0,
        again=int((times_new[times_new > 1] - 1).sum()),
        named=tuple(name_of(int(number)) for number in lost[:MOST_NAMED]),
    ), tuple(int(dropped[stop - 1]) for stop in stops)


def report_of(compared: FilterComparison, options: Mapping[str, object]) -> LabReport:
    """The tables, four panels or five, and the conclusions; `options` are the experiment's, for the JSON form."""
    return LabReport(
        name=NAME,
        tables=(*_tables(compared), *_lost_tables(compared)),
        panels=(
            _lost_panel(compared),
            _time_panel(compared),
            _space_panel(compared),
            _opening_panel(compared),
            *([_hits_panel(compared)] if compared.at_memory else []),
        ),
        closing=tuple(_closing(compared)),
        csv_tables=(_curves_table(compared), _asked_table(compared)),
        data={MAGIC: COMPARISON, "version": VERSION, "options": dict(options), **_data(compared)},
    )


def _data(compared: FilterComparison) -> dict[str, object]:
    """All measurements by name; a point is a list in the order of `columns`."""
    plain = asdict(compared)
    for name in ("runs", "at_memory"):
        for run, kept in zip(plain[name], getattr(compared, name), strict=True):
            run["points"] = [list(point) for point in kept.points]
            run["asked"] = [list(share) for share in kept.asked]
    return {"columns": list(FilterPoint._fields), **plain}


def _of_kind(runs: Sequence[FilterRun], kind: str) -> list[FilterRun]:
    return [run for run in runs if run.kind == kind]


def _tables(compared: FilterComparison) -> Iterator[Table]:
    if durable := _of_kind(compared.runs, DURABLE):
        yield _filling_table(compared, durable, "durable ones")
    if in_memory := _of_kind(compared.runs, IN_MEMORY):
        yield _filling_table(compared, in_memory, "those in memory, which a sync writes as a whole")
    if static := _of_kind(compared.runs, STATIC):
        yield _static_table(compared, static)
    if len(compared.runs) > 1:
        yield _ratio_table(compared)
    for kind in (DURABLE, IN_MEMORY, STATIC):
        if sized := _of_kind(compared.at_memory, kind):
            yield _memory_table(compared, sized, kind)


_COLUMNS = (
    "filter",
    "URLs lost",
    "expected lost",
    "fetched again",
    "false hits",
    "bits a URL",
    "µs a link",
    "CPU µs a link",
    "CPU µs, known",
    "memory, MiB",
    "resident, MiB",
    "disk, MiB",
    "syncs, ms",
    "close, ms",
    "open, ms",
)


def _filling_table(compared: FilterComparison, runs: Sequence[FilterRun], what: str) -> Table:
    similar = any(run.name == SIMILAR for run in runs)
    return Table(
        title=(
            f"{compared.source}: {compared.links:,} links of {compared.pages:,} pages lead to {compared.urls:,} URLs; "
            f"filters for {compared.expected:,}; {what}, made for a rate of {compared.false_positive:g}"
        ),
        columns=_COLUMNS,
        rows=tuple(map(_row, runs)),
        note=(
            f"Lost: new URLs that the filter never called new; expected lost: by its own estimate; fetched again: known "
            f"ones that it called new; false hits: share of {runs[0].ending.probes:,} URLs that nobody marked, asked for in "
            f"the end. Bits a URL: of the filter, by its own account, over all URLs. Each page's links are asked for in one "
            f"batch, and the new ones marked: time and CPU time of both, without the syncs, which are shown apart; known: "
            f"the same pages again, in {len(runs[0].asked)} rounds. Memory: growth of the process, a process per filter; "
            f"resident counts mapped files, too, which the system may drop. Disk: blocks. Open: the closed filter, with "
            f"all URLs, its files cached."
            + (f" {SIMILAR} drops URLs that resemble others on purpose: its losses are no errors." if similar else "")
        ),
    )


def _row(run: FilterRun) -> tuple[Cell, ...]:
    last, ending = run.points[-1], run.ending
    return (
        run.name,
        run.losses.lost,
        ending.expected_lost,
        run.losses.again,
        run.hit_rate,
        _bits_per_url(run),
        run.wall_us,
        run.cpu_us,
        _known(run),
        last.memory_bytes / _MIB,
        last.resident_bytes / _MIB,
        ending.disk_bytes / _MIB,
        1000 * ending.sync_s,
        1000 * ending.close_s,
        1000 * ending.open_s,
    )


def _bits_per_url(run: FilterRun) -> float | None:
    """The filter's bits over the URLs that it accepted or was built of."""
    urls = run.ending.urls
    return run.ending.filter_bits / urls if run.ending.filter_bits is not None and urls else None


def _known(run: FilterRun) -> float | None:
    return median(run.known_us) if run.known_us else None


def _static_table(compared: FilterComparison, runs: Sequence[FilterRun]) -> Table:
    return Table(
        title=f"Static filters, built once from the {compared.urls:,} URLs and only asked then; their rates are fixed",
        columns=(
            "filter",
            "false hits",
            "bits a URL",
            "CPU µs a URL to build",
            "CPU µs, known",
            "memory, MiB",
            "disk, MiB",
            "close, ms",
            "open, ms",
        ),
        rows=tuple(
            (
                run.name,
                run.hit_rate,
                _bits_per_url(run),
                run.cpu_us,
                _known(run),
                run.points[-1].memory_bytes / _MIB,
                run.ending.disk_bytes / _MIB,
                1000 * run.ending.close_s,
                1000 * run.ending.open_s,
            )
            for run in runs
        ),
        note="They take no new URL, so a crawl cannot use them for what it finds; memory includes the building.",
    )


def _ratio_table(compared: FilterComparison) -> Table:
    base = _quickest(compared)
    return Table(
        title=f"CPU time over that of {base.name} in the same share of the links",
        columns=("filter", "asking and marking", "95 %", "all known", "95 % (known)"),
        rows=tuple(
            (run.name, *_ratio_cells(_filling_ratio(run, base)), *_ratio_cells(_known_ratio(run, base)))
            for run in compared.runs
            if run is not base
        ),
        note=(
            f"The filters take turns, each round in the reverse order of the one before: {len(base.points)} shares of links "
            f"while they are filled, {len(base.asked)} of known links. Medians of the ratios, and their 95 % intervals "
            "(bootstrap); an interval that holds 1 shows no difference."
        ),
    )


def _quickest(compared: FilterComparison) -> FilterRun:
    """The one with the least CPU time a link, of those that lose nothing, if there are any, and can be filled."""
    filled = [run for run in compared.runs if run.kind != STATIC] or list(compared.runs)
    whole = [run for run in filled if run.losses.are_none and run.name != SIMILAR]
    return min(whole or filled, key=lambda run: median(run.filling_us))


def _filling_ratio(run: FilterRun, base: FilterRun) -> Ratio | None:
    ours, theirs = run.filling_us, base.filling_us
    return ratio_of(ours, theirs) if len(ours) == len(theirs) and run.kind != STATIC and all(theirs) else None


def _known_ratio(run: FilterRun, base: FilterRun) -> Ratio | None:
    ours, theirs = run.known_us, base.known_us
    return ratio_of(ours, theirs) if ours and len(ours) == len(theirs) and all(theirs) else None


def _ratio_cells(ratio: Ratio | None) -> tuple[Cell, Cell]:
    if ratio is None:
        return None, None
    return ratio.median, "" if ratio.interval is None else f"{ratio.interval[0]:.3g} to {ratio.interval[1]:.3g}"


def _memory_table(compared: FilterComparison, runs: Sequence[FilterRun], kind: str) -> Table:
    return Table(
        title=f"Equal memory: {kind} filters, made for at most {compared.bits:g} bits for each of {compared.expected:,} URLs",
        columns=("filter", "bits a URL", "false hits", "95 %", "URLs lost", "CPU µs a link", "CPU µs, known"),
        rows=tuple(
            (
                run.name,
                _bits_per_url(run),
                run.hit_rate,
                " to ".join(map(shown, hits_interval(run))),
                None if kind == STATIC else run.losses.lost,
                None if kind == STATIC else run.cpu_us,
                _known(run),
            )
            for run in runs
        ),
        note=(
            "Each is made for the least rate that the memory allows; the 95 % interval of the false hits is Wilson's. Filters "
            "with a size of their own (an SMM, fingerprints on the disk) take no part. A cuckoo filter grows when it finds no "
            "place for a fingerprint, which short ones make likely."
        ),
    )


def hits_interval(run: FilterRun) -> tuple[float, float]:
    """The 95 % interval of the rate of false hits, by Wilson's score; 0 to 1 without probes."""
    count, z = run.ending.probes, 1.96
    if not count:
        return 0.0, 1.0
    share, square = run.ending.false_hits / count, z * z / count
    middle, half = share + square / 2, z * sqrt(share * (1 - share) / count + square / count / 4)
    return max(0.0, (middle - half) / (1 + square)), (middle + half) / (1 + square)


def _lost_tables(compared: FilterComparison) -> Iterator[Table]:
    rows = [(run.name, url) for run in compared.runs for url in run.losses.named]
    if rows:
        yield Table(title=f"URLs lost, up to {MOST_NAMED} of each filter", columns=("filter", "URL"), rows=tuple(rows))


def _curves_table(compared: FilterComparison) -> Table:
    return Table(
        title="Every point",
        columns=("filter", "links", "new URLs dropped", "wall µs", "CPU µs", "memory bytes", "resident bytes"),
        rows=tuple(
            (run.name, point.links, dropped, *point[1:])
            for run in _filled(compared)
            for point, dropped in zip(run.points, run.dropped, strict=True)
        ),
    )


def _asked_table(compared: FilterComparison) -> Table:
    return Table(
        title="Every round of known links",
        columns=("filter", "round", "links", "CPU µs"),
        rows=tuple((run.name, number, *share) for run in compared.runs for number, share in enumerate(run.asked, 1)),
    )


def _filled(compared: FilterComparison) -> list[FilterRun]:
    """The filters that were filled link by link."""
    return [run for run in compared.runs if run.kind != STATIC]


def _lost_panel(compared: FilterComparison) -> Panel:
    """A gap where nothing is lost yet: a log axis has no 0."""
    return Panel(
        title="URLs lost (no line: none)",
        x_label="links",
        y_label="new URLs dropped so far",
        curves=tuple(
            Curve(
                label=f"{run.name}: {run.losses.lost:,}",
                x=tuple(float(point.links) for point in run.points),
                y=tuple(float(dropped) or nan for dropped in run.dropped),
            )
            for run in _filled(compared)
        ),
        is_log_y=any(any(run.dropped) for run in compared.runs),
    )


def _time_panel(compared: FilterComparison) -> Panel:
    """The time of the links between two points; other programs on the machine disturb CPU time least."""
    return Panel(
        title="CPU time to ask and mark, in batches of a page",
        x_label="links",
        y_label="microseconds a link",
        curves=tuple(
            Curve(
                label=run.name,
                x=tuple(float(point.links) for point in run.points),
                y=tuple(run.filling_us),
            )
            for run in _filled(compared)
        ),
        is_log_y=True,
    )


def _bars(
    compared: FilterComparison, title: str, unit: str, values: Mapping[str, Callable[[FilterRun], float]]
) -> Panel:
    places = tuple(map(float, range(len(compared.runs))))
    return Panel(
        title=title,
        x_label="",
        y_label=unit,
        curves=tuple(
            Curve(label=label, x=places, y=tuple(max(0.0, value(run)) for run in compared.runs))
            for label, value in values.items()
        ),
        is_log_y=True,
        is_bars=True,
        names=tuple(run.name for run in compared.runs),
    )


def _space_panel(compared: FilterComparison) -> Panel:
    return _bars(
        compared,
        "Space with all URLs",
        "MiB",
        {
            "memory": lambda run: run.points[-1].memory_bytes / _MIB,
            "resident, mapped files included": lambda run: run.points[-1].resident_bytes / _MIB,
            "disk": lambda run: run.ending.disk_bytes / _MIB,
        },
    )


def _opening_panel(compared: FilterComparison) -> Panel:
    return _bars(
        compared,
        "Closing, and opening with all URLs",
        "milliseconds",
        {"close": lambda run: 1000 * run.ending.close_s, "open": lambda run: 1000 * run.ending.open_s},
    )


def _hits_panel(compared: FilterComparison) -> Panel:
    """0 has no bar: a log axis has none."""
    runs = compared.at_memory
    places = tuple(map(float, range(len(runs))))
    return Panel(
        title=f"False hits with {compared.bits:g} bits a URL",
        x_label="",
        y_label="share of URLs that nobody marked",
        curves=(
            Curve(label="measured", x=places, y=tuple(run.hit_rate or 0.0 for run in runs)),
            Curve(label="95 %: at most", x=places, y=tuple(hits_interval(run)[1] for run in runs), is_dashed=True),
        ),
        is_log_y=True,
        is_bars=True,
        names=tuple(run.name for run in runs),
    )


def _closing(compared: FilterComparison) -> Iterator[str]:
    ranked = [run for run in _filled(compared) if run.name != SIMILAR]
    whole = [run for run in ranked if run.losses.are_none]
    if ranked:
        yield f"No URL lost: {_names(whole)}."
    for run in (run for run in ranked if run.losses.lost):
        yield f"{run.name} lost {run.losses.lost:,} of {compared.urls:,} URLs ({100 * run.losses.lost / compared.urls:.2g} %)."
    yield from _verdicts(compared, whole)
    for run in compared.runs:
        yield from _oddities(run)
    for run in compared.runs:
        if run.name in CONTESTANTS:
            yield f"{run.name}: {CONTESTANTS[run.name].made_for}."


def _verdicts(compared: FilterComparison, whole: Sequence[FilterRun]) -> Iterator[str]:
    """Sentences that name the best, where that is shown."""
    if len(whole) > 1:
        yield _quick_words(whole)
        yield _small_words(whole)
    if len(compared.at_memory) > 1:
        yield _accurate_words(compared)
    if compared.too_large:
        yield f"More than {compared.bits:g} bits a URL whatever the rate: {', '.join(compared.too_large)}."


def _quick_words(whole: Sequence[FilterRun]) -> str:
    """The fastest of those that lost none, if it is shown to be; else those among which no difference is shown."""
    quick, *others = sorted(whole, key=lambda run: median(run.filling_us))
    ratios = [(run, _filling_ratio(run, quick)) for run in others]
    alike = [run for run, ratio in ratios if ratio is None or not ratio.is_above()]
    if alike:
        return (
            f"Of those that lost none, no difference in time is shown between {_names([quick, *alike])}, the fastest."
        )
    second, ratio = min(((run, ratio) for run, ratio in ratios if ratio is not None), key=lambda found: found[1].median)
    return (
        f"Of those that lost none, {quick.name} is the fastest ({quick.cpu_us:.3g} µs of CPU a link); {second.name}, the next, "
        f"takes {ratio} times as long."
    )


def _small_words(whole: Sequence[FilterRun]) -> str:
    small = min(whole, key=lambda run: run.points[-1].memory_bytes)
    least = min(whole, key=lambda run: run.ending.disk_bytes)
    return (
        f"{small.name} takes the least memory of these ({small.points[-1].memory_bytes / _MIB:.3g} MiB), {least.name} the "
        f"least disk ({least.ending.disk_bytes / _MIB:.3g} MiB)."
    )


def _accurate_words(compared: FilterComparison) -> str:
    """The fewest false hits at equal memory, if its interval is below those of all others."""
    best, *others = sorted(compared.at_memory, key=lambda run: run.hit_rate or 0.0)
    alike = [run for run in others if hits_interval(run)[0] <= hits_interval(best)[1]]
    memory = f"With at most {compared.bits:g} bits a URL"
    if alike:
        return f"{memory}, no difference in false hits is shown between {_names([best, *alike])}, the lowest."
    return f"{memory}, {best.name} makes the fewest false hits ({shown(best.hit_rate)})."


def _oddities(run: FilterRun) -> Iterator[str]:
    """Yield a sentence for each oddity of a run: late drops, as after a split, and forgotten URLs, a defect."""
    losses, ending = run.losses, run.ending
    if losses.late:
        yield f"{run.name} dropped {losses.late:,} URLs at first and called them new when they came again."
    if losses.again:
        yield f"{run.name} FORGETS: it called known URLs new {losses.again:,} times; a crawl would fetch them again."
    if ending.forgotten:
        yield f"{run.name} DOES NOT LAST: opened again, it does not know {ending.forgotten:,} of its first URLs."


def _names(runs: Sequence[FilterRun]) -> str:
    return ", ".join(run.name for run in runs) or "none of the filters"
