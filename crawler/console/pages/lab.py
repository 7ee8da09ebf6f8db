"""The lab: compares queue policies on a generated web, and charts the active workers of each while it runs."""

from __future__ import annotations

from datetime import UTC, datetime

from nicegui import ui
from starlette.requests import Request

from anabranch.crawler.console.lab import BOUNDS, POLICIES, POLITENESSES, LabRequest, LabRun, LabRuns
from anabranch.crawler.console.pages.shell import (
    LINES,
    Column,
    View,
    act,
    confirmed,
    cut,
    every,
    heading,
    link_cell,
    looked,
    page,
    say,
    table,
    text_block,
    title,
    view_of,
)
from anabranch.crawler.console.routing import Console
from anabranch.crawler.console.urlfacts import safe_text
from anabranch.crawler.console.watch import EVERY_S

#: Title of a chart, and the index of its value in a point.
_CHARTS = (("Active workers by policy", 1), ("URLs a second by policy", 2))
_MEANS = (
    Column("policy", "Policy"),
    Column("active", "Active workers, mean", is_number=True),
    Column("urls", "URLs/s, mean", is_number=True),
)
_PAST = (Column("when", "When (UTC)"), Column("policies", "Policies"), Column("size", "Size"), Column("state", "Best"))
#: Past comparisons that are listed.
_LISTED = 20


def add_lab_page(console: Console) -> None:
    """Add the page at `/lab`, with the comparison that `?run=` names, or the last one."""
    runs = LabRuns(console.audit.path.parent / "lab")

    @ui.page("/lab")
    async def lab(request: Request) -> None:
        view = view_of(console, request)
        with page(view, "Lab"):
            title("Compare queue policies")
            ui.label(
                "Crawls a generated web on this machine with each policy in turn. This slows down other crawls on this machine."
            ).classes("soft")
            _Lab(view, runs, request.query_params.get("run", "")).make()


class _Lab:
    """The lab in one window."""

    def __init__(self, view: View, runs: LabRuns, wanted: str) -> None:
        self._view, self._runs, self._wanted = view, runs, wanted
        self._drawn: LabRun | None = None

    def make(self) -> None:
        """Make the parts, and keep them up to date."""
        if self._view.may_change:
            self._form()
        with ui.column().classes("w-full") as self._run:
            with ui.row().classes("w-full items-center gap-2"):
                self._title = ui.label().props("role=heading aria-level=2").classes("text-h6")
                ui.space()
                self._stop = ui.button("Stop", icon="stop", on_click=self._end).props("outline dense")
                self._stop.visible = False
            self._progress = ui.linear_progress(0.0, show_value=False).props('aria-label="progress" instant-feedback')
            self._state = ui.label().classes("soft").style("overflow-wrap:anywhere").props("role=status")
            with (
                ui.element("section")
                .classes("w-full")
                .props('aria-label="Charts"')
                .style("display:grid;grid-template-columns:repeat(auto-fill,minmax(min(32rem,100%),1fr));gap:12px")
            ):
                self._charts = [_chart(title) for title, _ in _CHARTS]
            self._means = table(_MEANS, "policy", "Means").props("hide-pagination")
            with ui.expansion("Output of the command").classes("w-full"):
                self._said = text_block("", "Output of the command")
        self._run.visible = False
        heading("Past comparisons")
        self._past = table(_PAST, "name", "Past comparisons")
        self._past.add_slot("body-cell-when", link_cell("when"))
        every(EVERY_S, self._redraw)

    def _form(self) -> None:
        asked = LabRequest()
        with ui.card().classes("w-full"), ui.row().classes("w-full items-center gap-2"):
            policies = ui.select(
                list(POLICIES), value=list(asked.policies), multiple=True, label="Policies", new_value_mode="add-unique"
            )
            policies.props("outlined dense use-chips").style("min-width:16rem")
            politeness = ui.select(list(POLITENESSES), value=asked.politeness, label="Politeness")
            politeness.props("outlined dense").style("min-width:7rem")
            numbers = {
                name: ui.number(name.capitalize(), value=getattr(asked, name), min=least, max=most, precision=0)
                .props("outlined dense")
                .style("width:7rem")
                for name, (least, most) in BOUNDS.items()
            }

            async def start() -> None:
                given = {name: int(number.value or 0) for name, number in numbers.items()}
                wanted = LabRequest(policies=tuple(policies.value), politeness=str(politeness.value), **given)
                name = await act(
                    self._view, "compare", "", {"options": wanted.options}, lambda: self._runs.start(wanted)
                )
                if name is not None:
                    say("The comparison has started.")
                    self._wanted = name
                    await self._redraw()

            ui.button("Compare", icon="play_arrow", on_click=start)

    async def _end(self) -> None:
        if await confirmed("Stop the comparison? What it has measured so far is kept.", "Stop"):
            await act(self._view, "compare-stop", "", {}, self._runs.stop)
            await self._redraw()

    async def _redraw(self) -> None:
        found = await looked(self._look)
        if found is None:
            self._wanted = ""
            return
        run, past = found
        self._past.rows = [_past_cells(self._view, one) for one in past]
        if run is None or run == self._drawn:
            return
        self._drawn, self._run.visible = run, True
        self._title.text = f"{_when(run.name)}: {', '.join(run.asked.policies)}"
        self._stop.visible = run.is_running and self._view.may_change
        self._progress.value = run.done
        last = "" if run.means or not run.said else f" · {run.said[-1]}"
        self._state.text = cut(f"{_state(run)}{last}", 300)
        self._said.text = safe_text("\n".join(run.said))
        self._means.visible = bool(run.means)
        self._draw(run)
        self._means.rows = [
            {"policy": policy, "active": f"{active:.1f}", "urls": f"{urls:.1f}"}
            for policy, (active, urls) in run.means.items()
        ]

    def _look(self) -> tuple[LabRun | None, list[LabRun]]:
        """The comparison to show, and the past ones."""
        past = [self._runs.run(name) for name in self._runs.names[:_LISTED]]
        if self._wanted:
            return self._runs.run(self._wanted), past
        return past[0] if past else None, past

    def _draw(self, run: LabRun) -> None:
        for chart, (_, place) in zip(self._charts, _CHARTS, strict=True):
            chart.options["series"] = series_of(run, place)
            chart.update()
            chart.visible = bool(run.live)


def series_of(run: LabRun, place: int) -> list[dict[str, object]]:
    """A line for each policy, in the order of the request. Pure."""
    return [
        {
            "name": policy,
            "type": "line",
            "showSymbol": False,
            "data": [[round(point[0], 2), round(point[place], 2)] for point in run.live.get(policy, ())],
        }
        for policy in run.asked.policies
    ]


def _when(name: str) -> str:
    return datetime.strptime(name[:15], "%Y%m%d-%H%M%S").replace(tzinfo=UTC).strftime("%Y-%m-%d %H:%M:%S")


def _state(run: LabRun) -> str:
    return "running" if run.is_running else "finished" if run.means else "ended early"


def _past_cells(view: View, run: LabRun) -> dict[str, object]:
    asked, best = run.asked, next(iter(run.means), "")
    return {
        "name": run.name,
        "href": view.href("lab", run=run.name),
        "when": _when(run.name),
        "policies": ", ".join(asked.policies),
        "size": f"{asked.pages:,} pages, {asked.hosts} hosts, {asked.workers} workers, {asked.seconds} s, {asked.politeness}",
        "state": best or _state(run),
    }


def _chart(title: str) -> ui.echart:
    """An empty chart of lines over the seconds of a run."""
    axis = {
        "type": "value", "min": 0, "axisLabel": {"color": "#808890"}, "splitLine": {"lineStyle": {"color": "#80889050"}},
    }  # fmt: skip
    made = ui.echart({
        "title": {"text": title, "textStyle": {"fontSize": 14, "color": "#808890"}},
        "color": LINES,
        "aria": {"enabled": True},
        "animation": False,
        "grid": {"left": 8, "right": 16, "top": 36, "bottom": 40, "containLabel": True},
        "tooltip": {"trigger": "axis", "renderMode": "richText"},
        "legend": {"bottom": 0, "textStyle": {"color": "#808890"}},
        "xAxis": {
            **axis, "name": "seconds", "nameLocation": "middle", "nameGap": 24, "nameTextStyle": {"color": "#808890"},
        },
        "yAxis": axis,
        "series": [],
    })  # fmt: skip
    return made.classes("w-full").style("height:300px").props(f'role=img aria-label="{title}"')
