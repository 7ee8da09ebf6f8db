"""The filter of a job: charts of its growth, and all its figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from nicegui import ui
from starlette.requests import Request

from anabranch.crawler.console.pages.charts import SIDE_BY_SIDE, chart, thinned
from anabranch.crawler.console.pages.shell import Column, cell, every, looked, page, table, title, view_of, zone_ms
from anabranch.crawler.console.routing import Console
from anabranch.crawler.console.watch import EVERY_S, Moment
from anabranch.crawler.operate import STOPPED, Facts, counted
from anabranch.crawler.report.filterreport import WORST, filter_line, filter_table, loses_whole_sites

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
#: Fewer expected losses are none.
_A_PAGE = 0.5
#: Of a filter that is well, and one that is not.
_ICONS = {False: "check_circle", True: "warning"}
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
            _Filter(console, name).make()


class _Filter:
    """The filter in one window."""

    def __init__(self, console: Console, name: str) -> None:
        self._console, self._name = console, name
        self._left: dict[str, float | str] = {}  #: the figures of a stopped job, which is opened for them once

    def make(self) -> None:
        """Make the parts, the verdict first, and keep them up to date."""
        with ui.card().classes("w-full q-pa-sm"), ui.row().classes("w-full items-center gap-2 no-wrap"):
            self._icon = ui.icon("help").props("size=sm aria-hidden=true")
            self._verdict = ui.label().classes("figure").props('role=status aria-label="Verdict"')
        with ui.expansion("Charts").classes("w-full"):
            with ui.element("section").classes("w-full").props('aria-label="Charts"').style(SIDE_BY_SIDE):
                self._charts = [chart(title, [title], is_log=title == _PROBABILITY) for title, _ in _CHARTS]
            self._hint = ui.label("Charts begin when a crawl runs while this page or the overview is open.")
            self._hint.classes("soft")
        with ui.expansion("All figures").classes("w-full"):
            self._line = ui.label().classes("figure")
            self._figures = table(_COLUMNS, "figure", "Figures of the filter")
        every(EVERY_S, self._redraw)

    async def _redraw(self) -> None:
        watch, name = self._console.watch, self._name
        found = await looked(lambda: (watch.status(name), watch.samples(name)))
        if found is None:
            return
        status, samples = found
        facts = {} if status is None else status["filter"] or {}
        await _look_at_left(self._console, name, status, self._left)
        self._show(self._left or facts)
        self._draw([one for one in samples if one.filter])

    def _show(self, facts: Mapping[str, float | str]) -> None:
        is_bad, words = filter_verdict(facts)
        self._verdict.text = f"{words} {_LEFT}" if self._left else words
        self._verdict.classes(replace="figure text-warning" if is_bad else "figure")
        self._icon.props(f"name={_ICONS[is_bad]} color={'warning' if is_bad else 'positive'}")
        self._icon.visible = bool(facts)
        self._line.text = cell(filter_line(facts))
        self._figures.rows = figure_rows(facts)

    def _draw(self, samples: Sequence[Moment]) -> None:
        moments = [(zone_ms(one.time_s), one.filter) for one in thinned(samples)]
        for drawn, (_, value) in zip(self._charts, _CHARTS, strict=True):
            points = [[time_ms, value(now)] for time_ms, now in moments if value(now) is not None]
            drawn.options["series"][0]["data"] = points
            drawn.visible = len(points) > 1
            drawn.update()
        self._hint.visible = not moments


async def _look_at_left(console: Console, name: str, status: Facts | None, left: dict[str, float | str]) -> None:
    """Bring the figures of a stopped job up to date: they are asked for once."""
    if status is None or status["phase"] != STOPPED:
        left.clear()
    elif not left:
        report = await looked(lambda: console.jobs.job(name).report({"name": "filter"}))
        rows = [] if report is None else report["rows"]
        left.update({row["figure"]: row["value"] for row in rows})


def filter_verdict(facts: Mapping[str, float | str]) -> tuple[bool, str]:
    """Whether the filter loses more than it was planned for, and a sentence about it. Pure."""
    if not facts:
        return False, _NOT_ASKED
    number = {name: float(value) for name, value in facts.items() if not isinstance(value, str)}
    known, lost = number.get("keys", 0.0), number.get("expected_lost", 0.0)
    rate, planned = number.get("false_drop_probability", 0.0), number.get("planned_false_drop_probability", 0.0)
    head = f"{counted(int(known), 'URL')} known"
    if loses_whole_sites(facts):
        return True, f"{head}; whole sites may be lost: {WORST}."
    if lost < _A_PAGE:
        return False, f"Healthy: {head}; none expected lost."
    words = f"{head}; about {lost:,.0f} expected lost, {rate:.2g} of the new ones now"
    if planned and rate <= planned:
        return False, f"Healthy: {words}, as planned."
    return True, f"It loses more than planned: {words}. A new job with a larger [dedup] expect loses less."


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
