"""Draws a report's panels into one picture. The only file that uses matplotlib, which it imports when it draws.

Figures are made without pyplot, so no window system is used; the file's suffix chooses the renderer (Agg for png).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.crawler.lab.report import Curve, LabReport, Panel, shown
from anabranch.crawler.outcomes.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: The kinds of picture, by the file's suffix.
SUFFIXES = (".png", ".svg", ".pdf")
DPI = 150

_PANEL_INCHES = (7.5, 4.8)  # width and least height
_BAR_INCHES = 0.24  # height of a level bar
_MOST_MARKERS = 40  # points of a line that are still marked one by one
_MOST_TICKS = 12  # places on a log axis that are all named
_LEGEND_COLUMNS = 3
_LEGEND_DROP_INCHES = 0.6  # from the axes down to the legend


def require_plots(path: Path) -> None:
    """Raise UsageError, in one line, if no picture can be drawn into such a file: its suffix, or no matplotlib."""
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"{path}: a picture is one of {', '.join(SUFFIXES)}; name the file so")
    try:
        import matplotlib.figure  # noqa: F401, PLC0415 - an extra, and slow to load
    except ImportError as error:
        raise UsageError(f"plots need matplotlib: pip --python {sys.executable} install matplotlib") from error


def draw(report: LabReport, path: Path) -> None:
    """Write the report's panels as one picture of the kind that the suffix says. Raises: OSError."""
    figure_of(report).savefig(path, dpi=DPI, format=path.suffix.lower().removeprefix("."))


def figure_of(report: LabReport) -> Figure:
    """All panels, two per row, an odd last one as wide as both, with their legends below."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - an extra, and slow to load

    across = max(1, min(2, len(report.panels)))
    rows = [report.panels[start : start + across] for start in range(0, len(report.panels), across)]
    heights = [max(map(_height, row)) for row in rows] or [_PANEL_INCHES[1]]
    figure = Figure(figsize=(_PANEL_INCHES[0] * across, sum(heights)), layout="constrained")
    grid = figure.add_gridspec(len(heights), across, height_ratios=heights)
    for row, panels in enumerate(rows):
        for column, panel in enumerate(panels):
            axes = figure.add_subplot(grid[row, column] if len(panels) == across else grid[row, :])
            _draw_panel(axes, panel)
            _legend(axes, panel, heights[row])
    return figure


def _height(panel: Panel) -> float:
    bars = len(panel.names) * sum(not curve.is_dashed for curve in panel.curves)
    legend_rows = -(-len(panel.curves) // _LEGEND_COLUMNS)
    return max(_PANEL_INCHES[1], 1.6 + _BAR_INCHES * bars) + 0.18 * legend_rows


def _draw_panel(axes: Axes, panel: Panel) -> None:
    axes.set_title(panel.title, fontsize=11)
    if panel.is_bars and panel.names:
        _draw_level_bars(axes, panel)
    else:
        (_draw_bars if panel.is_bars else _draw_lines)(axes, panel)
        _scale(axes, panel)
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.set_axisbelow(True)


def _legend(axes: Axes, panel: Panel, height: float) -> None:
    """Below the axis' name, in the order of the curves; none where one set of bars needs no name."""
    drawn = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    labels = [label for label in (*(curve.label for curve in panel.curves), panel.shaded_label) if label in drawn]
    if len(labels) > 1 or (labels and panel.is_course):
        axes.legend(
            [drawn[label] for label in labels],
            labels,
            loc="upper center",
            bbox_to_anchor=(0.5, -_LEGEND_DROP_INCHES / (height - _LEGEND_DROP_INCHES)),
            ncols=min(_LEGEND_COLUMNS, len(labels)),
            fontsize=8,
            frameon=False,
        )


def _scale(axes: Axes, panel: Panel) -> None:
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label)
    if panel.is_log_y:
        axes.set_yscale("log")
    places = sorted({x for curve in panel.curves for x in curve.x})
    if not panel.is_log_x:
        if places and places[-1] >= 1000:
            axes.xaxis.set_major_formatter("{x:,.0f}")
        return
    axes.set_xscale("log")
    if len(places) <= _MOST_TICKS:  # the numbers that were measured, not powers of ten between them
        axes.set_xticks(places, [shown(x) for x in places])
        axes.set_xticks([], minor=True)


def _draw_lines(axes: Axes, panel: Panel) -> None:
    for curve, colour in zip(panel.curves, _colours(panel.curves), strict=True):
        style = "--" if curve.is_dashed else "-"
        marker = "" if curve.is_dashed or panel.is_course or len(curve.x) > _MOST_MARKERS else "o"
        axes.plot(
            curve.x, curve.y, style, marker=marker, markersize=3.5, linewidth=1.4, color=colour, label=curve.label
        )
    for number, (low, high) in enumerate(panel.shaded):
        label = "" if number else panel.shaded_label
        axes.axvspan(low, high, color="0.85", zorder=0, label=label)


def _colours(curves: Sequence[Curve]) -> list[str]:
    """A colour per curve: a dashed one has that of the full one that its label names, as in `formula, c = 3`."""
    colours: dict[str, str] = {}
    chosen: list[str] = []
    for curve in curves:
        named = [label for label in colours if re.search(rf"(?<!\w){re.escape(label)}(?!\w)", curve.label)]
        own = f"C{len(set(chosen))}"
        chosen.append(colours[max(named, key=len)] if curve.is_dashed and named else own)
        if not curve.is_dashed:
            colours[curve.label] = chosen[-1]
    return chosen


def _split(panel: Panel) -> tuple[list[Curve], list[Curve]]:
    """The curves drawn as bars, and the dashed ones drawn over them."""
    return [c for c in panel.curves if not c.is_dashed], [c for c in panel.curves if c.is_dashed]


def _shifts(bars: int, room: float) -> tuple[float, list[float]]:
    """The width of each of `bars` adjacent bars in `room`, and their distances from the middle."""
    width = room / max(1, bars)
    return width, [(number - (bars - 1) / 2) * width for number in range(bars)]


def _draw_bars(axes: Axes, panel: Panel) -> None:
    """Vertical bars at their x, those of several curves side by side; a dashed curve is a line over them."""
    full, dashed = _split(panel)
    places = sorted({x for curve in full for x in curve.x})
    step = min((after - before for before, after in pairwise(places)), default=1.0)
    width, shifts = _shifts(len(full), 0.8 * step)
    for number, (curve, shift) in enumerate(zip(full, shifts, strict=True)):
        axes.bar([x + shift for x in curve.x], curve.y, width=width, label=curve.label, color=f"C{number}")
    for number, curve in enumerate(dashed, len(full)):
        axes.plot(curve.x, curve.y, "--", color=f"C{number}", linewidth=1.4, label=curve.label)


def _draw_level_bars(axes: Axes, panel: Panel) -> None:
    """Horizontal bars with their values at the ends; a dashed curve is a mark on each bar. 0 has only its text."""
    full, dashed = _split(panel)
    low, high = _reach(panel)
    axes.set(xlabel=panel.y_label, ylabel=panel.x_label, xscale="log" if panel.is_log_y else "linear", xlim=(low, high))
    width, shifts = _shifts(len(full), 0.8)
    for number, (curve, shift) in enumerate(zip(full, shifts, strict=True)):
        middles = [x + shift for x in curve.x]
        lengths = [max(value - low, 0.0) for value in curve.y]
        axes.barh(middles, lengths, height=width * 0.92, left=low, color=f"C{number}", label=curve.label)
        for x, middle, value in zip(curve.x, middles, curve.y, strict=True):
            end = max([value, *_marks_at(x, dashed)]) if value > 0 else low  # the text comes after the marks
            axes.annotate(shown(value), (end, middle), (5, 0), textcoords="offset points", va="center", fontsize=7)
    for number, curve in enumerate(dashed, len(full)):
        axes.plot(curve.y, curve.x, "|", color=f"C{number}", markersize=11, mew=1.6, label=curve.label)
    axes.set_yticks(range(len(panel.names)), panel.names, fontsize=8)
    axes.set_ylim(len(panel.names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)


def _marks_at(place: float, dashed: Sequence[Curve]) -> list[float]:
    return [value for curve in dashed for x, value in zip(curve.x, curve.y, strict=True) if x == place]


def _reach(panel: Panel) -> tuple[float, float]:
    """The range of the values, with room for the text at the ends."""
    values = [value for curve in panel.curves for value in curve.y if value > 0] or [1.0]
    if not panel.is_log_y:
        return 0.0, max(values) * 1.15
    decades = max(values) / min(values)
    return min(values) / (3 * decades**0.05), max(values) * 3 * decades**0.1
