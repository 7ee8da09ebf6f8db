"""The result of an experiment: tables, panels of curves, and closing sentences. Data only; the command shows it.

And the interval without which no sentence says that one thing is faster than another.
"""

from __future__ import annotations

import csv
import io
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

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
