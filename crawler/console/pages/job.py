"""The page of a job: what it does, its curves, and the buttons that steer it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nicegui import ui
from starlette.requests import Request

from anabranch.crawler.console.api import Console
from anabranch.crawler.console.pages.charts import SIDE_BY_SIDE, chart, thinned
from anabranch.crawler.console.pages.shell import (
    PHASES,
    Column,
    View,
    act,
    confirmed,
    count,
    every,
    looked,
    page,
    say,
    table,
    view_of,
)
from anabranch.crawler.console.watch import EVERY_S, JobWatch, Sample
from anabranch.crawler.order.quantities import format_bytes
from anabranch.crawler.run.verbs import Facts
from anabranch.frontier.times import duration_words

#: Title of a chart -> its lines: name, what of a sample.
_CHARTS: Sequence[tuple[str, Sequence[tuple[str, Callable[[Sample], float | None]]]]] = (
    ("Pages/s", (("pages/s", lambda one: one.pages_per_s),)),
    ("KB/s", (("KB/s", lambda one: one.kb_per_s),)),
    ("Active workers", (("active", lambda one: one.active),)),
    ("Queued URLs", (("queued", lambda one: one.queued),)),
    ("URLs that the filter knows", (("seen", lambda one: one.seen),)),
    ("Links that the filter dropped, a second", (("dropped/s", lambda one: one.dropped_per_s),)),
    ("Latency of a fetch, seconds", (("latency", lambda one: one.latency_s),)),
)
_CLASSES = ("2xx", "3xx", "4xx", "5xx", "failed", "excluded")
_HOSTS = (
    Column("host", "Host"),
    Column("urls", "URLs", is_number=True),
    Column("bytes", "Bytes", is_number=True),
    Column("remaining", "Remaining", is_number=True),
)


def add_job_page(console: Console, watch: JobWatch) -> None:
    """Add the page at `/jobs/NAME`."""

    @ui.page("/jobs/{name}")
    async def job(request: Request, name: str) -> None:
        view = view_of(console, watch, request)
        with page(view, name, name, ""):
            _Overview(view, name).make()


class _Overview:
    """One window on a job."""

    def __init__(self, view: View, name: str) -> None:
        self._view, self._name = view, name
        self._charts: list[ui.echart] = []

    def make(self) -> None:
        """Make the parts, and draw them from now on."""
        with ui.row().classes("w-full items-center q-gutter-sm"):
            ui.label(self._name).classes("text-h5").props("role=heading aria-level=1").style("overflow-wrap:anywhere")
            self._badge = ui.badge("").props("aria-label=state")
            ui.space()
            self._buttons = {
                action: ui.button(action, icon=icon, on_click=lambda _, action=action: self._steer(action)).props(
                    "outline dense no-caps"
                )
                for action, icon in _ACTIONS.items()
            }
        self._line = ui.label().classes("figure").props("aria-live=polite")
        self._why = ui.label().classes("text-warning").props("role=status")
        with ui.row().classes("w-full q-gutter-sm"):
            self._figures = {name: _figure(name) for name in _FIGURES}
        with ui.element("section").classes("w-full").props('aria-label="Curves"').style(SIDE_BY_SIDE):
            self._charts = [chart(title, [name for name, _ in lines]) for title, lines in _CHARTS]
            self._classes = chart("Answers by class, of the run", _CLASSES, is_area=True)
        ui.label("Busiest hosts").classes("text-h6")
        self._hosts = table(_HOSTS, "host", "Busiest hosts")
        self._trouble = ui.label().classes("w-full").style("overflow-wrap:anywhere")
        every(EVERY_S, self._redraw)
        every(10 * EVERY_S, self._redraw_hosts)

    async def _redraw(self) -> None:
        watch, name = self._view.watch, self._name
        found = await looked(lambda: (watch.row(name), watch.status(name), watch.samples(name)))
        if found is None:
            return
        row, status, samples = found
        if row is None:
            self._line.text = "This job is not there any more."
            return
        state = "finished" if row["is_finished"] else str(row["phase"])
        self._badge.text = state
        self._badge.props(f"color={PHASES.get(state, 'grey-7')}")
        self._line.text = str(row["line"])
        self._why.text = "" if status is None else str(status["paused"] or status["trouble"] or "")
        for action, button in self._buttons.items():
            button.visible = self._view.may_change and action in _possible(state)
        for label, text in zip(self._figures.values(), _figures(row, status), strict=True):
            label.text = text or "–"
        trouble = row["last_trouble"]
        self._trouble.text = "" if trouble is None else (
            f"Last trouble, {duration_words(trouble['ago_s'])} ago: {trouble['url']}: {trouble['reason']}"
        )  # fmt: skip
        self._draw(samples)

    def _draw(self, samples: Sequence[Sample]) -> None:
        shown = thinned(samples)
        for drawn, (_, lines) in zip(self._charts, _CHARTS, strict=True):
            for series, (_, value) in zip(drawn.options["series"], lines, strict=True):
                series["data"] = [[one.time_s * 1000, value(one)] for one in shown if value(one) is not None]
            drawn.visible = any(series["data"] for series in drawn.options["series"])
            drawn.update()
        for series, kind in zip(self._classes.options["series"], _CLASSES, strict=True):
            series["data"] = [[one.time_s * 1000, one.classes.get(kind, 0)] for one in shown if one.classes]
        self._classes.visible = any(one.classes for one in shown)
        self._classes.update()

    async def _redraw_hosts(self) -> None:
        job = self._view.console.jobs
        facts = await looked(lambda: job.job(self._name).report({"name": "hosts", "limit": 10}))
        if facts is not None:
            self._hosts.rows = [
                {
                    "host": row["host"],
                    "urls": count(row["#urls"]),
                    "bytes": format_bytes(row["#bytes"]),
                    "remaining": count(row["#remaining"]),
                }
                for row in facts["rows"]
            ]

    async def _steer(self, action: str) -> None:
        jobs, name = self._view.console.jobs, self._name
        question = _QUESTIONS.get(action)
        if question and not await confirmed(question.format(name), action):
            return
        if action == "Start":
            done = await act(self._view, "start", name, {}, lambda: jobs.start(name))
        elif action == "Another round":
            done = await act(self._view, "start", name, {"again": True}, lambda: jobs.start(name, again=True))
        elif action == "Remove":
            moved = await act(self._view, "remove", name, {}, lambda: jobs.remove(name))
            if moved is not None:
                ui.navigate.to(self._view.path())
            return
        else:
            verb = action.lower()
            done = await act(self._view, verb, name, {}, lambda: bool(jobs.job(name).steer(verb, {})))
        if done is not None:
            say(f"{action}: done")
        await self._redraw()


_ACTIONS = {
    "Start": "play_arrow",
    "Pause": "pause",
    "Resume": "play_arrow",
    "Stop": "stop",
    "Another round": "replay",
    "Remove": "delete",
}
_QUESTIONS = {
    "Stop": "Stop the crawl of {}? Fetches under way may end; it can be started again.",
    "Another round": "Crawl {} again from its seeds? What is queued is thrown away.",
    "Remove": "Move {} aside? Its folder gets another name; nothing is deleted.",
}
_FIGURES = ("Pages", "Queued", "Failed", "Active", "Bytes", "Free room", "Elapsed")


def _possible(state: str) -> set[str]:
    """What can be done to a job in this state. Pure."""
    if state == "running":
        return {"Pause", "Stop"}
    if state == "paused":
        return {"Resume", "Stop"}
    if state == "stopped":
        return {"Start", "Another round", "Remove"}
    return {"Another round", "Remove"} if state == "finished" else set()


def _figure(name: str) -> ui.label:
    with ui.card().classes("q-pa-sm").style("min-width:7rem"):
        ui.label(name).classes("soft text-caption")
        return ui.label("").classes("text-h6 figure")


def _figures(row: Facts, status: Facts | None) -> tuple[str, ...]:
    """The texts of `_FIGURES`. Pure."""
    runs = status if status is not None and status["pid"] else None
    free = row["free_disk_bytes"]
    return (
        count(row["pages"]), count(row["queued"]), count(row["failed"]),
        "" if runs is None else f"{runs['active']} / {runs['workers']}",
        "" if runs is None else format_bytes(runs["fetched_bytes"]),
        "" if free is None else format_bytes(free),
        "" if runs is None else duration_words(runs["elapsed_s"]),
    )  # fmt: skip
