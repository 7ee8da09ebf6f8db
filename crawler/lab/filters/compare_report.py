"""The result of `anabranch compare --filters`: what each filter answered is judged by the truth, and shown.

Pure: `judged` counts the losses, `report_of` makes tables, panels and sentences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from math import nan
from typing import NamedTuple

import numpy as np

from anabranch.crawler.lab.report import Cell, Curve, LabReport, Panel, Table
from anabranch.dedup.keys import BoolArray, IntArray

NAME = "filters"
#: The first key of the JSON form and its value.
MAGIC, COMPARISON = "anabranch", "filter comparison"
VERSION = 1

#: Lost URLs of each filter that are named.
MOST_NAMED = 20
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


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterEnding:
    """The state and costs of a filter after all links."""

    disk_bytes: int  #: blocks that its files take
    sync_s: float  #: all syncs together
    close_s: float
    open_s: float  #: opening it again with all its URLs
    expected_lost: float | None  #: URLs lost by its own estimate; None: it has none
    forgotten: (
        int  #: of the first 1,000 URLs, those that it does not know after the opening; anything but 0 is a defect
    )


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


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterRun:
    """One filter."""

    name: str
    points: tuple[FilterPoint, ...]
    dropped: tuple[int, ...]  #: URLs dropped when they were new, up to each point
    losses: Losses
    ending: FilterEnding

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
    runs: tuple[FilterRun, ...]


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
    """The tables, four panels and the conclusions; `options` are the experiment's, for the JSON form."""
    return LabReport(
        name=NAME,
        tables=(_table(compared), *_lost_tables(compared)),
        panels=(_lost_panel(compared), _time_panel(compared), _space_panel(compared), _opening_panel(compared)),
        closing=tuple(_closing(compared)),
        csv_tables=(_curves_table(compared),),
        data={MAGIC: COMPARISON, "version": VERSION, "options": dict(options), **_data(compared)},
    )


def _data(compared: FilterComparison) -> dict[str, object]:
    """All measurements by name; a point is a list in the order of `columns`."""
    plain = asdict(compared)
    for run, kept in zip(plain["runs"], compared.runs, strict=True):
        run["points"] = [list(point) for point in kept.points]
    return {"columns": list(FilterPoint._fields), **plain}


_COLUMNS = (
    "filter",
    "URLs lost",
    "expected lost",
    "fetched again",
    "µs a link",
    "CPU µs a link",
    "memory, MiB",
    "resident, MiB",
    "disk, MiB",
    "syncs, ms",
    "close, ms",
    "open, ms",
)


def _table(compared: FilterComparison) -> Table:
    similar = any(run.name == SIMILAR for run in compared.runs)
    return Table(
        title=(
            f"{compared.source}: {compared.links:,} links of {compared.pages:,} pages lead to {compared.urls:,} URLs; "
            f"filters for {compared.expected:,}"
        ),
        columns=_COLUMNS,
        rows=tuple(map(_row, compared.runs)),
        note=(
            f"Lost: new URLs that the filter never called new; expected lost: by its own estimate; fetched again: known "
            f"ones that it called new. Each page's links are asked for in one batch, and the new ones marked: time and CPU "
            f"time of both, without the syncs, which are shown apart. Memory: growth of the process, a process per filter; "
            f"resident counts mapped files, too, which the system may drop. Disk: blocks. Open: the closed filter, with "
            f"all URLs, its files cached. Filters are made for a rate of {compared.false_positive:g}."
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
        run.wall_us,
        run.cpu_us,
        last.memory_bytes / _MIB,
        last.resident_bytes / _MIB,
        ending.disk_bytes / _MIB,
        1000 * ending.sync_s,
        1000 * ending.close_s,
        1000 * ending.open_s,
    )


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
            for run in compared.runs
            for point, dropped in zip(run.points, run.dropped, strict=True)
        ),
    )


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
            for run in compared.runs
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
                y=tuple(
                    (after.cpu_us - before.cpu_us) / (after.links - before.links)
                    for before, after in pairwise((FilterPoint(0, 0.0, 0.0, 0, 0), *run.points))
                ),
            )
            for run in compared.runs
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


def _closing(compared: FilterComparison) -> Iterator[str]:
    ranked = [run for run in compared.runs if run.name != SIMILAR]
    whole = [run for run in ranked if run.losses.are_none]
    if ranked:
        yield f"No URL lost: {_names(whole)}."
    for run in (run for run in ranked if run.losses.lost):
        yield f"{run.name} lost {run.losses.lost:,} of {compared.urls:,} URLs ({100 * run.losses.lost / compared.urls:.2g} %)."
    if len(whole) > 1:
        yield _best_of(whole)
    for run in compared.runs:
        yield from _oddities(run)


def _best_of(whole: Sequence[FilterRun]) -> str:
    quick = min(whole, key=lambda run: run.cpu_us)
    small = min(whole, key=lambda run: run.points[-1].memory_bytes)
    least = min(whole, key=lambda run: run.ending.disk_bytes)
    return (
        f"Of those that lost none, {quick.name} is the fastest ({quick.cpu_us:.3g} µs of CPU a link), {small.name} takes "
        f"the least memory ({small.points[-1].memory_bytes / _MIB:.3g} MiB), {least.name} the least disk "
        f"({least.ending.disk_bytes / _MIB:.3g} MiB)."
    )


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
