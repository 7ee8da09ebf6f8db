"""The overview of a job: its state and figures, charts, busiest hosts, recent failures, and the buttons that control it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from nicegui import ui
from starlette.requests import Request

from anabranch.crawler.console.api import Console
from anabranch.crawler.console.audit import seeds_note
from anabranch.crawler.console.pages.charts import SIDE_BY_SIDE, chart, points, thinned
from anabranch.crawler.console.pages.hosts import FETCHED, fetched_row
from anabranch.crawler.console.pages.schedule import ScheduleSection
from anabranch.crawler.console.pages.shell import (
    PHASES,
    Column,
    View,
    act,
    answered,
    confirmed,
    count,
    cut,
    every,
    heading,
    link_cell,
    looked,
    mishap,
    page,
    say,
    show_rows,
    table,
    title,
    view_of,
)
from anabranch.crawler.console.watch import EVERY_S, Moment, News
from anabranch.crawler.operate import (
    NOT_BEGUN,
    STOPPED,
    Facts,
    clock_words,
    duration_words,
    retried_lines,
    skipped_line,
)
from anabranch.crawler.order.quantities import format_bytes
from anabranch.crawler.order.sections import VERSION
from anabranch.crawler.report.logtail import failures_logged

#: Title of a chart, and its lines: a name, and the value of a sample.
_CHARTS: Sequence[tuple[str, Sequence[tuple[str, Callable[[Moment], float | None]]]]] = (
    ("Pages/s", (("pages/s", lambda one: one.pages_per_s),)),
    ("KB/s", (("KB/s", lambda one: one.kb_per_s),)),
    ("Active workers", (("active", lambda one: one.active),)),
    ("Queued URLs", (("queued", lambda one: one.queued),)),
    ("URLs in the filter", (("URLs", lambda one: one.seen),)),
    ("Links that the filter dropped, per second", (("dropped/s", lambda one: one.dropped_per_s),)),
    ("Mean time of a fetch, seconds", (("seconds", lambda one: one.latency_s),)),
)
#: Classes of answers, with their colours.
_CLASSES = {
    "2xx": "#009e73", "3xx": "#56b4e9", "4xx": "#e69f00", "5xx": "#d55e00", "failed": "#cc79a7", "excluded": "#808890",
}  # fmt: skip
_MOST_TROUBLES = 10
_TROUBLES = (
    Column("at", "Time"),
    Column("url", "URL", is_wide=True),
    Column("reason", "Reason", is_wide=True, is_sortable=False),
    Column("what", "Next", is_sortable=False),
)


def add_job_page(console: Console) -> None:
    """Add the page at `/jobs/NAME`."""

    @ui.page("/jobs/{name}")
    async def job(request: Request, name: str) -> None:
        view = view_of(console, request)
        with page(view, name, name, ""):
            _Overview(view, name).make()


class _Overview:
    """The overview in one window."""

    def __init__(self, view: View, name: str) -> None:
        self._view, self._name = view, name
        self._charts: list[ui.echart] = []
        self._drawn: Moment | None = None  #: the last one
        self._news = News()
        self._resumes = False  #: it was crawled before

    def make(self) -> None:
        """Make the parts, and keep them up to date."""
        with ui.row().classes("w-full items-center gap-2"):
            title(cut(self._name, 100))
            self._badge = ui.badge("").props("aria-label=state")
            ui.space()
            self._buttons = {
                action: ui.button(action, icon=icon, on_click=lambda _, action=action: self._steer(action)).props(
                    "outline dense"
                )
                for action, icon in _ACTIONS.items()
            }
        with ui.column().classes("w-full gap-1"):
            self._line = ui.label().classes("figure")
            self._why = ui.label().classes("figure")
            self._other_version = ui.label().classes("text-warning")
        with ui.element("section").classes("w-full figures").props('aria-label="Figures"'):
            self._figures = {name: _figure(name) for name in _FIGURES}
        ui.link("Limits and other settings", self._view.path("jobs", self._name, "order")).classes("text-primary")
        with ui.element("section").classes("w-full").props('aria-label="Charts"').style(SIDE_BY_SIDE):
            self._charts = [chart(title, [name for name, _ in lines]) for title, lines in _CHARTS]
            self._classes = chart(
                "Answers by class, this run", list(_CLASSES), colours=list(_CLASSES.values()), is_area=True
            )
        ScheduleSection(self._view, self._name).make()
        heading("Busiest hosts")
        self._hosts = table(FETCHED, "host", "Busiest hosts").props("hide-pagination")
        heading("Latest troubles")
        self._troubles = table(_TROUBLES, "id", "Latest troubles").props("hide-pagination")
        self._troubles.add_slot("body-cell-url", link_cell("url"))
        every(EVERY_S, self._redraw)
        every(10 * EVERY_S, self._redraw_tables)

    async def _redraw(self) -> None:
        watch, name = self._view.console.watch, self._name

        def find() -> tuple[Facts | None, Facts | None, Sequence[Moment], str]:
            row = watch.row(name)
            if row is None:
                return None, None, (), ""
            return row, watch.status(name), watch.samples(name), watch.version(name)

        found = await looked(find)
        if found is None:
            return
        row, status, samples, version = found
        self._show_state("removed" if row is None else str(row["state"]))
        self._show_hints(status, version)
        fault = "" if row is None else mishap(row, time.time())
        self._line.text = "This job does not exist." if row is None else fault or _line(row)
        self._line.classes(replace="figure text-negative" if fault else "figure")
        if row is None:
            return
        self._resumes = row["line"] != NOT_BEGUN
        for label, text in zip(self._figures.values(), _figures(row, status), strict=True):
            label.text = text or "–"
        if samples and samples[-1] is not self._drawn:
            self._drawn = samples[-1]
            self._draw(samples)

    def _show_state(self, state: str) -> None:
        self._badge.text = state
        self._badge.props(f"color={PHASES.get(state, 'grey-7')}")
        for action, button in self._buttons.items():
            possible = _possible(state, is_in_database=self._view.console.jobs.folder is None)
            button.visible = self._view.may_change and action in possible

    def _show_hints(self, status: Facts | None, version: str) -> None:
        """Show why nothing is fetched, and whether the crawl is of another version than the console."""
        self._why.text, is_bad = ("", False) if status is None else _why(status)
        self._why.classes(replace="figure text-warning" if is_bad else "figure soft")
        self._other_version.text = (
            f"The crawl runs version {cut(version, 50)}, the console {VERSION}: some figures may be missing."
            if version not in {"", VERSION}
            else ""
        )
        for part in (self._why, self._other_version):
            part.visible = bool(part.text)

    def _draw(self, samples: Sequence[Moment]) -> None:
        shown = thinned(samples)
        for drawn, (_, lines) in zip(self._charts, _CHARTS, strict=True):
            for series, (_, value) in zip(drawn.options["series"], lines, strict=True):
                series["data"] = points([(one.time_s, value(one)) for one in shown])
            drawn.visible = any(len(series["data"]) > 1 for series in drawn.options["series"])
            drawn.update()
        for series, kind in zip(self._classes.options["series"], _CLASSES, strict=True):
            series["data"] = [[one.time_s * 1000, one.classes.get(kind, 0)] for one in shown if one.classes]
        self._classes.visible = len(self._classes.options["series"][0]["data"]) > 1
        self._classes.update()

    async def _redraw_tables(self) -> None:
        jobs, name, now_s = self._view.console.jobs, self._name, time.time()

        def find() -> tuple[Sequence[Facts], Sequence[Facts]] | None:
            row = self._view.console.watch.row(name)
            if not self._news.has(row):
                return None
            if row is None or row["line"] == NOT_BEGUN:
                return (), ()
            directory = jobs.directory(name)
            troubles = () if directory is None else failures_logged(directory, _MOST_TROUBLES)
            return jobs.job(name).report({"name": "hosts", "limit": 10})["rows"], troubles

        found = await looked(find)
        if found is None:
            return
        hosts, troubles = found
        show_rows(self._hosts, list(map(fetched_row, hosts)), "queued")
        self._troubles.rows = [
            {**trouble_row(one, now_s), "id": at, "href": self._view.href("jobs", name, "url", url=one["url"])}
            for at, one in enumerate(troubles)
        ]

    async def _add_seeds(self) -> None:
        with ui.dialog() as dialog, ui.card().classes("w-full").style("max-width:40rem"):
            ui.label("Add seeds").classes("text-h6")
            given = ui.textarea("URLs, one per line").props("outlined autofocus").classes("w-full")

            force = ui.checkbox("Also URLs that have ended, or that the filter takes for seen")

            async def add() -> None:
                """Add them; the dialog stays open if that fails."""
                name, texts = self._name, [line.strip() for line in given.value.splitlines() if line.strip()]
                do = partial(self._view.console.jobs.add, name, texts, force=force.value)
                note = {**seeds_note(texts), **({"force": True} if force.value else {})}
                added = await act(self._view, "add", name, note, do) if texts else None
                if added is not None:
                    say("; ".join([*seed_lines(added["seeds"]), *filter(None, [cut(added["start"], 300)])]))
                    dialog.submit(True)

            with ui.row().classes("w-full justify-end"):
                ui.button("Cancel", on_click=dialog.close).props("flat")
                ui.button("Add", on_click=add)
        await answered(dialog)

    async def _retry(self) -> None:
        with ui.dialog() as dialog, ui.card().classes("w-full").style("max-width:40rem"):
            ui.label("Queue failed URLs again").classes("text-h6")
            statuses = ui.input("Statuses, as in -1, 503, 5xx (empty: all)").props("outlined autofocus")
            host = ui.input("Host (empty: all)").props("outlined")
            for one in (statuses, host):
                one.classes("w-full")
            trap = ui.checkbox("Instead, URLs that were skipped because a parameter changes nothing")

            async def retry() -> None:
                """Queue them; the dialog stays open if that fails."""
                name, listed = self._name, [part.strip() for part in statuses.value.split(",") if part.strip()]
                arguments: dict[str, object] = {"statuses": listed} if listed else {}
                if host.value.strip():
                    arguments["host"] = host.value.strip()
                if trap.value:
                    arguments = {"trap": True}
                do = partial(self._view.console.jobs.retry, name, arguments)
                found = await act(self._view, "retry", name, arguments, do)
                if found is not None:
                    say(skipped_line(found) if trap.value else "; ".join(retried_lines(found)))
                    dialog.submit(True)

            with ui.row().classes("w-full justify-end"):
                ui.button("Cancel", on_click=dialog.close).props("flat")
                ui.button("Retry", on_click=retry)
        await answered(dialog)

    async def _steer(self, action: str) -> None:
        dialog = {"Add seeds": self._add_seeds, "Retry failed": self._retry}.get(action)
        if dialog is not None:
            await dialog()
            await self._redraw()
            return
        jobs, name = self._view.console.jobs, self._name
        question = _QUESTIONS.get(action)
        if question and not await confirmed(question.format(name), action):
            return
        if action in {"Start", "Another round"}:
            await self._start(action)
            return
        if action == "Remove":
            moved = await act(self._view, "remove", name, {}, lambda: jobs.remove(name))
            if moved is not None:
                ui.navigate.to(self._view.path())
            return
        verb = action.lower()
        facts = await act(self._view, verb, name, {}, lambda: jobs.job(name).steer(verb, {}))
        if facts is not None:
            say(f"{action}: {cut(facts['line'])}" if facts["phase"] == STOPPED else f"{action}: done")
        await self._redraw()

    async def _start(self, action: str) -> None:
        jobs, name, again = self._view.console.jobs, self._name, action == "Another round"
        resumes = self._resumes and not again

        def start() -> Facts:
            jobs.start(name, again=again)
            return jobs.row(name)

        row = await act(self._view, "start", name, {"again": True} if again else {}, start)
        if row is not None:
            # A crawl may have ended already, for example by a limit that the job reached before.
            done = "resumes" if resumes else "done"
            say(f"{action}: {done}" if row["pid"] else f"{action}: {cut(row['line'])}")
        await self._redraw()


_ACTIONS = {
    "Start": "play_arrow",
    "Pause": "pause",
    "Resume": "play_arrow",
    "Stop": "stop",
    "Add seeds": "add",
    "Retry failed": "refresh",
    "Another round": "replay",
    "Remove": "delete",
}
_QUESTIONS = {
    "Stop": "Stop the crawl of {}? It finishes its fetches, and can be started again, or resumed in a database.",
    "Another round": "Crawl {} again from its seeds? URLs that are still queued are dropped.",
    "Remove": "Remove {} from the list? Its folder is renamed; nothing is deleted.",
}
#: Pages and failures are those of all runs.
_FIGURES = ("Pages", "Queued", "Failed", "Active / workers", "Bytes, this run", "Time, this run", "Free disk")


def _possible(state: str, *, is_in_database: bool = False) -> set[str]:
    """The actions that a job in this state allows; workers of a database are started on their machines. Pure."""
    if state in {"running", "waiting"}:
        return {"Pause", "Stop", "Add seeds", "Retry failed"}
    if state == "paused":
        return {"Resume", "Stop", "Add seeds", "Retry failed"}
    more = {"Add seeds", "Retry failed"}
    if is_in_database:
        return more | {"Resume", "Stop"} if state in {"stopped", "killed"} else more if state == "finished" else set()
    rests = {"Start", "Add seeds", "Retry failed", "Another round", "Remove"}
    if state in {"killed", "failed"}:
        return rests | {"Stop"}  # it is not to run any more
    return rests if state in {"stopped", "finished"} else set()


def _line(row: Facts) -> str:
    """Return the line on the job's activity or its rest; the counts of a running crawl are those of its run. Pure."""
    return f"This run: {cut(row['line'])}" if row["pid"] else cut(row["line"])


def _why(status: Facts) -> tuple[str, bool]:
    """Why nothing is fetched, or soon will be, and whether the operator must act; empty if all is well. Pure."""
    if status["phase"] == STOPPED:
        return "", False
    trouble = status["paused"] or status["trouble"] or status["awaits"]
    return cut(str(trouble or (status["totals"] or {}).get("why_idle", ""))), bool(trouble)


def trouble_row(failure: Mapping[str, Any], now_s: float) -> dict[str, object]:
    """A row of the table of troubles. Pure."""
    return {
        "at": clock_words(datetime.fromisoformat(failure["time"]).timestamp(), now_s),
        "url": cut(failure["url"], 300),
        "reason": cut(failure["message"] or failure["words"], 300),
        "what": "given up" if failure["final"] else "retry",
    }


def seed_lines(seeds: Sequence[Facts]) -> list[str]:
    """Counts of added seeds, by verdict and reason, with the first of them if there is a reason. Pure."""
    kinds = Counter((str(seed["verdict"]), str(seed["reason"] or "")) for seed in seeds)
    first = {(str(seed["verdict"]), str(seed["reason"] or "")): str(seed["url"]) for seed in reversed(seeds)}
    return [
        f"{number} {verdict}" + (f" ({cut(first[verdict, reason], 100)}: {cut(reason, 200)})" if reason else "")
        for (verdict, reason), number in kinds.most_common(5)
    ]


def _figure(name: str) -> ui.label:
    with ui.card().classes("q-px-sm q-py-xs gap-0"):
        ui.label(name).classes("soft text-caption")
        return ui.label("").classes("text-h6 figure")


def _workers(runs: Facts) -> str:
    """`12 / 100`, and how many of them wait on slow or new hosts, if any do. Pure."""
    slow = runs["on_slow_hosts"]
    return f"{runs['active']} / {runs['workers']}" + (f" ({slow} slow or new)" if slow else "")


def _figures(row: Facts, status: Facts | None) -> tuple[str, ...]:
    """The texts of `_FIGURES`. Pure."""
    runs = status if status is not None and status["pid"] else None
    free = row["free_disk_bytes"]
    return (
        count(row["pages"]), count(row["queued"]), count(row["failed"]),
        "" if runs is None else _workers(runs),
        "" if runs is None else format_bytes(runs["fetched_bytes"]),
        "" if runs is None else duration_words(runs["elapsed_s"]),
        "" if free is None else format_bytes(free),
    )  # fmt: skip
