"""The filter of a job: charts of its growth, and all its figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from nicegui import ui
from starlette.requests import Request

from anabranch.crawler.console.api import Console
from anabranch.crawler.console.pages.charts import SIDE_BY_SIDE, chart, thinned
from anabranch.crawler.console.pages.shell import Column, cell, every, looked, page, table, title, view_of
from anabranch.crawler.console.watch import EVERY_S
from anabranch.crawler.operate import STOPPED, Facts
from anabranch.crawler.report.filterreport import filter_line, filter_table

#: Title of the chart with a logarithmic scale: the value grows through many powers of ten.
_PROBABILITY = "Probability that a new URL is dropped"
#: A filter's figures at one moment.
Figures = Mapping[str, float]


def dropped_share(now: Figures) -> float | None:
    """The share of all questions so far that were dropped as known. Pure."""
    return now["dropped"] / now["asked"] if now.get("asked") and "dropped" in now else None


#: Title of a chart, and its value at a moment; None: no point.
_CHARTS: Sequence[tuple[str, Callable[[Figures], float | None]]] = (
    ("URLs known", lambda now: now.get("keys")),
    ("Share of the SMM's bits that are set", lambda now: now.get("smm_fill")),
    ("Share of questions that were dropped", dropped_share),
    (_PROBABILITY, lambda now: now.get("false_drop_probability") or None),
    ("Leaves of the DSBF", lambda now: now.get("dsbf_leaves")),
)
_NOT_ASKED = "The filter has not been asked yet."
_LEFT = "The crawl is stopped; its filter was left like this."
_COLUMNS = (
    Column("figure", "Figure"),
    Column("value", "Value", is_number=True, is_sortable=False),
    Column("meaning", "Meaning", is_sortable=False, is_wide=True),
)


def add_filter_page(console: Console) -> None:
    """Add the page at `/jobs/NAME/filter`."""

    @ui.page("/jobs/{name}/filter")
    async def filter_(request: Request, name: str) -> None:
        view = view_of(console, request)
        with page(view, f"{name}: filter", name, "filter"):
            title("Filter")
            line = ui.label().classes("figure").props("aria-live=polite")
            with ui.element("section").classes("w-full").props('aria-label="Charts"').style(SIDE_BY_SIDE):
                charts = [chart(title, [title], is_log=title == _PROBABILITY) for title, _ in _CHARTS]
            hint = ui.label("Charts begin when a crawl runs while this page or the overview is open.").classes("soft")
            figures = table(_COLUMNS, "figure", "Figures of the filter")

        left: list[dict[str, str]] = []  # the figures of a stopped job, which is opened for them once

        async def redraw() -> None:
            found = await looked(lambda: (console.watch.status(name), console.watch.samples(name)))
            if found is None:
                return
            status, samples = found
            facts = {} if status is None else status["filter"] or {}
            words = await _look_at_left(console, name, status, left)
            line.text = cell(filter_line(facts)) or words
            figures.rows = left or figure_rows(facts)
            moments = [(one.time_s * 1000, one.filter) for one in thinned([one for one in samples if one.filter])]
            for drawn, (_, value) in zip(charts, _CHARTS, strict=True):
                points = [[time_ms, value(now)] for time_ms, now in moments if value(now) is not None]
                drawn.options["series"][0]["data"] = points
                drawn.visible = len(points) > 1
                drawn.update()
            hint.visible = not moments

        every(EVERY_S, redraw)


async def _look_at_left(console: Console, name: str, status: Facts | None, left: list[dict[str, str]]) -> str:
    """Bring the figures of a stopped job up to date: they are asked for once. Returns what they are, in words."""
    if status is None or status["phase"] != STOPPED:
        left.clear()
    elif not left:
        report = await looked(lambda: console.jobs.job(name).report({"name": "filter"}))
        rows = [] if report is None else report["rows"]
        left.extend(figure_rows({row["figure"]: row["value"] for row in rows}))
    return _LEFT if left else _NOT_ASKED


def figure_rows(facts: Mapping[str, float | str]) -> list[dict[str, str]]:
    """The rows of the table, in the order of `report filter`. Pure."""
    return [
        {"figure": cell(str(name)), "value": _words(value), "meaning": str(meaning)}
        for name, value, meaning in filter_table(facts).rows
    ]


def _words(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else cell(str(value))
