"""The pictures, looked at through matplotlib's own objects."""

import sys
from itertools import pairwise
from pathlib import Path

import pytest

from anabranch.crawler.lab import plots
from anabranch.crawler.lab.report import Curve, LabReport, Panel
from anabranch.crawler.outcomes.errors import UsageError

MAGIC = {".png": b"\x89PNG\r\n\x1a\n", ".svg": b"<?xml", ".pdf": b"%PDF-"}


def curve(label, *y, x=None, is_dashed=False):
    return Curve(label=label, x=tuple(x or map(float, range(len(y)))), y=y, is_dashed=is_dashed)


def panel(*curves, **more):
    return Panel(**{"title": "T", "x_label": "n", "y_label": "rate", "curves": curves, **more})


def figure(*panels):
    return plots.figure_of(LabReport(name="x", tables=(), panels=panels, closing=()))


def axes_of(*curves, **more):
    return figure(panel(*curves, **more)).axes[0]


LINES = panel(curve("c = 1", 0.1, 0.2), curve("formula, c = 1", 0.1, 0.21, is_dashed=True), curve("c = 2", 0.3, 0.4))
LEVEL = panel(
    curve("measured", 0.0, 1e-3), curve("formula", 1e-9, 2e-3, is_dashed=True), is_bars=True, is_log_y=True,
    names=("none", "some"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("suffix", "panels"),
    [
        (".png", (LINES, LEVEL)),
        (".svg", (LINES,)),
        pytest.param(".pdf", (LINES,), marks=pytest.mark.slow),
        (".PNG", (LINES,)),
    ],
)
def test_the_suffix_decides_the_kind_of_picture(tmp_path, suffix, panels) -> None:
    """And the file begins as such a file begins."""
    path = tmp_path / f"picture{suffix}"
    plots.require_plots(path)
    plots.draw(LabReport(name="x", tables=(), panels=panels, closing=()), path)
    assert path.read_bytes().startswith(MAGIC[suffix.lower()])


@pytest.mark.parametrize("name", ["picture", "picture.jpg", "png"])
def test_another_kind_of_picture_is_refused(name) -> None:
    """In one line that names the kinds there are."""
    with pytest.raises(UsageError, match=r"\.png, \.svg, \.pdf"):
        plots.require_plots(Path(name))


def test_without_matplotlib_the_way_to_get_it_is_named(monkeypatch) -> None:
    """It is an extra; the experiments need it for pictures alone."""
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UsageError, match=r"^plots need matplotlib: pip --python .* install matplotlib$"):
        plots.require_plots(Path("a.png"))


@pytest.mark.parametrize(
    ("panels", "places"), [(1, [(0, [0])]), (2, [(0, [0]), (0, [1])]), (3, [(0, [0]), (0, [1]), (1, [0, 1])])]
)
def test_panels_stand_two_beside_each_other(panels, places) -> None:
    """In their order, row by row; an odd last one is as wide as both."""
    spots = [axes.get_subplotspec() for axes in figure(*[LINES] * panels).axes]
    assert [(spot.rowspan.start, list(spot.colspan)) for spot in spots] == places


def test_a_report_without_panels_is_an_empty_picture(tmp_path) -> None:
    """It is no reason to fail after the experiment."""
    plots.draw(LabReport(name="x", tables=(), panels=(), closing=()), tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size


def test_axes_have_their_names_and_scales() -> None:
    """A panel says both."""
    axes = axes_of(curve("a", 1.0, 2.0, x=(1.0, 2.0)), is_log_x=True, is_log_y=True)
    assert (axes.get_title(), axes.get_xlabel(), axes.get_ylabel()) == ("T", "n", "rate")
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert axes_of(curve("a", 1.0)).get_xscale() == "linear"


def test_a_formula_is_a_dashed_line_in_the_colour_of_what_it_foretells() -> None:
    """A dashed curve belongs to the one that its label names as whole words; others have colours of their own."""
    labels = ("c = 1", "formula, c = 1", "c = 10", "published, c = 1", "formula, c = 10", "f_max", "formula, c = 100")
    curves = [curve(label, 1.0, 2.0, is_dashed="," in label or label == "f_max") for label in labels]
    lines = axes_of(*curves).lines
    assert [line.get_linestyle() for line in lines] == ["-", "--", "-", "--", "--", "--", "--"]
    colours = [line.get_color() for line in lines]
    assert colours[0] == colours[1] == colours[3]
    assert colours[2] == colours[4]
    assert len(set(colours)) == 4
    assert list(lines[0].get_ydata()) == [1.0, 2.0]


@pytest.mark.parametrize(
    ("places", "is_log", "texts"),
    [((1.0, 2.0, 16.0), True, ["1", "2", "16"]), ((0.0, 100_000.0), False, ["0", "100,000"])],
)
def test_an_axis_has_numbers_that_can_be_read(places, is_log, texts) -> None:
    """The few that were measured on a log axis; thousands separated on a linear one."""
    drawn = figure(panel(curve("a", *[1.0] * len(places), x=places), is_log_x=is_log))
    drawn.draw_without_rendering()
    assert set(texts) <= {label.get_text() for label in drawn.axes[0].get_xticklabels()}
    assert not is_log or not drawn.axes[0].get_xticklabels(minor=True)


def test_the_points_of_a_course_over_time_are_not_marked() -> None:
    """A short run beside a long one looks like it."""
    assert [line.get_marker() for line in axes_of(curve("a", 1.0, 2.0)).lines] == ["o"]
    assert [line.get_marker() for line in axes_of(curve("a", 1.0, 2.0), is_course=True).lines] == [""]


@pytest.mark.parametrize(
    ("panel_", "labels"), [(LINES, ["c = 1", "formula, c = 1", "c = 2"]), (LEVEL, ["measured", "formula"])]
)
def test_the_legend_covers_nothing(panel_, labels) -> None:
    """It lies below the axes and the axis' name, in the order of the curves, within the picture."""
    drawn = figure(panel_)
    drawn.draw_without_rendering()
    (axes,) = drawn.axes
    legend = axes.get_legend()
    assert [text.get_text() for text in legend.get_texts()] == labels
    assert legend.get_window_extent().y1 <= axes.xaxis.label.get_window_extent().y0
    assert legend.get_window_extent().y0 >= 0


def test_one_curve_needs_no_legend() -> None:
    """The title says it."""
    assert axes_of(curve("a", 1.0)).get_legend() is None


def test_bars_of_several_curves_stand_beside_each_other() -> None:
    """None hides another, and each is as high as its value; a dashed curve is a line over them."""
    axes = axes_of(curve("a", 1.0, 2.0), curve("b", 3.0, 4.0), curve("f", 5.0, 5.0, is_dashed=True), is_bars=True)
    bars = sorted(axes.patches, key=lambda bar: bar.get_x())
    assert [bar.get_height() for bar in bars] == [1.0, 3.0, 2.0, 4.0]
    assert all(left.get_x() + left.get_width() <= right.get_x() + 1e-9 for left, right in pairwise(bars))
    assert [line.get_linestyle() for line in axes.lines] == ["--"]


def test_named_bars_lie_level_with_their_values_beside_them() -> None:
    """The first name is on top; zero has no bar on a log axis but its text; a formula is a mark."""
    axes = figure(LEVEL).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["none", "some"]
    assert axes.get_ylim()[0] > axes.get_ylim()[1]
    assert (axes.get_xscale(), axes.get_xlabel()) == ("log", "rate")
    none, some = axes.patches
    assert none.get_width() == 0
    assert some.get_x() + some.get_width() == pytest.approx(1e-3)
    assert [text.get_text() for text in axes.texts] == ["0", "1.0e-03"]
    (formula,) = axes.lines
    assert (formula.get_marker(), list(formula.get_xdata())) == ("|", [1e-9, 2e-3])
    assert axes.get_xlim()[0] < 1e-9
    assert axes.get_xlim()[1] > 2e-3


def test_level_bars_of_several_curves_lie_below_each_other() -> None:
    """The first on top; none hides another."""
    axes = axes_of(curve("a", 1.0, 2.0), curve("b", 3.0, 4.0), is_bars=True, names=("x", "y"))
    bars = sorted(axes.patches, key=lambda bar: bar.get_y())
    assert [bar.get_width() for bar in bars] == [1.0, 3.0, 2.0, 4.0]
    assert all(upper.get_y() + upper.get_height() <= lower.get_y() for upper, lower in pairwise(bars))


def test_level_bars_may_be_linear_or_all_zero() -> None:
    """Then they begin at 0, and an axis without any value still has a length."""
    linear = axes_of(curve("a", 1.0, 4.0), is_bars=True, names=("x", "y"))
    assert linear.get_xlim() == (0, pytest.approx(4.6))
    low, high = axes_of(curve("a", 0.0), is_bars=True, is_log_y=True, names=("x",)).get_xlim()
    assert 0 < low < high


def test_many_bars_make_a_higher_picture() -> None:
    """So that names do not overlap."""
    many = panel(curve("a", *[1.0] * 40), is_bars=True, names=tuple(map(str, range(40))))
    assert figure(many).get_figheight() > figure(LEVEL).get_figheight() + 4
    drawn = figure(many)
    drawn.draw_without_rendering()
    boxes = sorted((label.get_window_extent() for label in drawn.axes[0].get_yticklabels()), key=lambda box: box.y0)
    assert all(lower.y1 <= upper.y0 for lower, upper in pairwise(boxes))
