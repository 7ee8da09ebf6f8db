"""The result of an experiment: tables, panels of curves, and closing sentences. Data only; the command shows it.

It also has the interval without which no sentence says that one thing is faster than another.
"""

from __future__ import annotations

import csv
import io
import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias, TypeVar

#: None is shown as an empty cell; figures that a source lost are the text `NOT_RECOVERABLE`.
Cell: TypeAlias = str | int | float | None

#: In a "published" column: the figure was an image or is lost.
NOT_RECOVERABLE = "not recoverable"

#: Called with the progress of an experiment: steps done, total steps, the present step in words.
OnProgress: TypeAlias = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of equal length below named columns; names carry the unit."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""  #: an explanation for the reader


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Points of one line; or, in a panel of bars, one bar per point."""

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    is_dashed: bool = False  #: a formula or bound, not a measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One pair of axes."""

    title: str
    x_label: str
    y_label: str
    curves: tuple[Curve, ...]
    is_log_x: bool = False
    is_log_y: bool = False
    is_course: bool = False  #: lines over time: their points are too many to be marked
    is_bars: bool = False  #: bars instead of lines
    shaded: tuple[tuple[float, float], ...] = ()  #: ranges of x that are marked, of lines only
    shaded_label: str = ""
    names: tuple[str, ...] = ()  #: of bars at x = 0, 1, 2, …; they are then horizontal, the first on top


@dataclass(frozen=True, slots=True, kw_only=True)
class LabReport:
    """One run of an experiment."""

    name: str  #: the command's verb, as in `anabranch lab NAME`
    tables: tuple[Table, ...]
    panels: tuple[Panel, ...]
    closing: tuple[str, ...]  #: the conclusions, one sentence a line
    csv_tables: tuple[Table, ...] = ()  #: long ones, for the CSV file only
    data: Mapping[str, object] | None = None  #: all measurements, in the form of JSON; None: not available


#: Fewest alternated rounds of a verdict.
LEAST_ROUNDS = 9
_RESAMPLES = 2_000


def interval(figures: Sequence[float]) -> tuple[float, float] | None:
    """The 95 % interval of the median of figures, such as the ratios of two contestants in each round.

    By the bootstrap: the 2.5 and 97.5 percentiles of the medians of 2,000 resamples (Efron, Annals of Statistics 7, 1979). None
    of fewer than two figures. Equal figures give equal intervals. Cost: a few ms.
    """
    if len(figures) < 2:
        return None
    draw = random.Random(0)  # noqa: S311 - no secret
    medians = sorted(statistics.median(draw.choices(figures, k=len(figures))) for _ in range(_RESAMPLES))
    return medians[_RESAMPLES // 40], medians[-_RESAMPLES // 40 - 1]


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """The ratio of two contestants: its median over the rounds, and a verdict only if the interval excludes 1."""

    figures: tuple[float, ...]  #: one of each round

    @property
    def median(self) -> float:
        """The figure to show. Raises: StatisticsError without rounds."""
        return statistics.median(self.figures)

    @cached_property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the median; None of fewer than `LEAST_ROUNDS` rounds."""
        return interval(self.figures) if len(self.figures) >= LEAST_ROUNDS else None

    def is_above(self, figure: float = 1.0) -> bool:
        """Whether it is shown to be more than 1, or than another figure."""
        return self.interval is not None and self.interval[0] > figure

    def is_below(self, figure: float = 1.0) -> bool:
        """Whether it is shown to be less than 1, or than another figure."""
        return self.interval is not None and self.interval[1] < figure

    def __str__(self) -> str:
        if self.interval is None:
            return f"{self.median:.3g} ({_many_rounds(len(self.figures))}: no interval)"
        return f"{self.median:.3g} (95 %: {self.interval[0]:.3g} to {self.interval[1]:.3g})"


def ratio_of(figures: Sequence[float], over: Sequence[float]) -> Ratio:
    """The ratio of two contestants' figures of the same rounds."""
    return Ratio(figures=tuple(one / other for one, other in zip(figures, over, strict=True)))


def _many_rounds(number: int) -> str:
    return f"{number} round{'s' * (number != 1)}"


T = TypeVar("T")


def in_turns(contestants: Sequence[T], rounds: int) -> Iterator[tuple[int, T]]:
    """Each contestant once a round, with the number of the round; each round in the reverse order of the one before.

    A change of the machine's speed so falls on all of them alike.
    """
    for number in range(rounds):
        for one in contestants[:: -1 if number % 2 else 1]:
            yield number, one


def shown(cell: Cell) -> str:
    """A cell as text: 4 significant digits, thousands separated, small ones like 9.3e-03. A CSV has all digits."""
    if not isinstance(cell, float):
        return f"{cell:,}" if isinstance(cell, int) else cell or ""
    if cell and abs(cell) < 0.01:
        return f"{cell:.1e}"
    if abs(cell) >= 999.95 or not cell:
        return f"{cell:,.0f}"
    return f"{cell:.4g}"


def csv_of(tables: Sequence[Table]) -> str:
    """All tables as CSV (RFC 4180), each below a line with its title, an empty line between them."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    for number, table in enumerate(tables):
        writer.writerows(([],) * (number > 0))
        writer.writerow([table.title])
        writer.writerow(table.columns)
        writer.writerows(table.rows)
    return text.getvalue()
