"""The overview of a job: its state and figures, charts, busiest hosts, recent failures, and the buttons that control it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

from nicegui import ui
from starlette.requests import Request

from anabranch.crawler.console.audit import seeds_note
from anabranch.crawler.console.bottleneck import Bottleneck, bottleneck
from anabranch.crawler.console.orders import differing_tables
from anabranch.crawler.console.pages.charts import SIDE_BY_SIDE, begin_of, chart, mark_lines, points, thinned
from anabranch.crawler.console.pages.hosts import FETCHED, fetched_row
from anabranch.crawler.console.pages.newjob import save_template, tags_in
from anabranch.crawler.console.pages.schedule import ScheduleSection
from anabranch.crawler.console.pages.shell import (
    PHASES,
    STATE_ICONS,
    Column,
    View,
    act,
    answer_buttons,
    answered,
    confirmed,
    count,
    cut,
    every,
    heading,
    link_cell,
    looked,
    menu_item,
    mishap,
    named_dialog,
    page,
    possible_actions,
    say,
    show_rows,
    table,
    title,
    view_of,
    zone_ms,
)
from anabranch.crawler.console.routing import Console
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
from anabranch.crawler.report.logtail import RunMark, failures_logged

#: A chart: its title, and its lines, each a name and the value of a sample.
Lines = Sequence[tuple[str, Callable[[Moment], float | None]]]
#: Title of a group of charts, and its charts. That of the answers by class has lines of its own.
_BY_CLASS = "Answers by class, this run"
_GROUPS: Mapping[str, Mapping[str, Lines]] = {
    "Speed": {
        "Pages/s": (("pages/s", lambda one: one.pages_per_s),),
        "KB/s": (("KB/s", lambda one: one.kb_per_s),),
        "Active workers": (("active", lambda one: one.active),),
    },
    "Answers": {
        _BY_CLASS: (),
        "Mean time of a fetch, seconds": (("seconds", lambda one: one.latency_s),),
    },
    "Queue and filter": {
        "Queued URLs": (("queued", lambda one: one.queued),),
        "URLs in the filter": (("URLs", lambda one: one.seen),),
        "Links that the filter dropped, per second": (("dropped/s", lambda one: one.dropped_per_s),),
    },
}
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


class _Seen(NamedTuple):
    """What a look at a job found."""

    row: Facts
    status: Facts | None
    samples: Sequence[Moment]
    marks: Sequence[RunMark]
    version: str


class _Overview:
    """The overview in one window."""

    def __init__(self, view: View, name: str) -> None:
        self._view, self._name = view, name
        self._charts: list[tuple[ui.column, dict[str, ui.echart]]] = []  #: by group
        self._drawn: object = None  #: the last moment, and the number of marks
        self._news = News()
        self._resumes = False  #: it was crawled before
        self._is_starting = False  #: this window waits for the start of its crawl
        self._bottleneck = Bottleneck("")
        self._possible: set[str] = set()
        self._shown_tags: list[str] = []

    def make(self) -> None:
        """Make the parts, and keep them up to date."""
        with ui.row().classes("w-full items-center gap-2"):
            title(cut(self._name, 100))
            self._icon = ui.icon("help").props("size=sm aria-hidden=true")
            self._badge = ui.badge("").props("aria-label=state")
            self._tags = ui.row().classes("gap-1")
            ui.space()
            self._buttons = {
                action: ui.button(action, icon=icon, on_click=lambda _, action=action: self._steer(action)).props(
                    "outline dense"
                )
                for action, icon in _ACTIONS.items()
                if self._view.console.jobs.folder is not None or action not in _BY_FOLDER
            }
            if self._view.may_change:
                self._make_menu()
        self._make_top()
        with ui.element("section").classes("w-full figures").props('aria-label="Figures"'):
            self._figures = {name: _figure(name) for name in _FIGURES}
        with ui.row().classes("gap-4"):
            ui.link("Limits and other settings", self._view.path("jobs", self._name, "order")).classes("text-primary")
            ui.link("Fetches under way", self._view.path("jobs", self._name, "workers")).classes("text-primary")
        for group, charts in _GROUPS.items():
            self._make_group(group, charts)
        ScheduleSection(self._view, self._name).make()
        heading("Busiest hosts")
        self._hosts = table(FETCHED, "host", "Busiest hosts").props("hide-pagination")
        heading("Latest troubles")
        self._troubles = table(_TROUBLES, "id", "Latest troubles").props("hide-pagination")
        self._troubles.add_slot("body-cell-url", link_cell("url"))
        every(EVERY_S, self._redraw)
        every(10 * EVERY_S, self._redraw_tables)
        ui.timer(0.0, self._show_notes, once=True)

    def _make_menu(self) -> None:
        with ui.button("More", icon="more_vert").props("outline dense"), ui.menu():
            if self._view.console.jobs.folder is not None:
                menu_item("Copy …", lambda: ui.navigate.to(self._view.path(copy=self._name)))
                menu_item("Tags …", self._change_tags)
            menu_item("Save as template …", self._save_template)
            self._remove = menu_item("Remove …", lambda: self._steer("Remove"))

    def _make_top(self) -> None:
        """What limits the job now, with its action; and what it was told when it was created."""
        with ui.card().classes("w-full q-pa-sm"), ui.row().classes("w-full items-center gap-2"):
            self._sentence = ui.label().classes("col figure").style("min-width:14rem;overflow-wrap:anywhere")
            self._sentence.props('role=status aria-label="What limits it now"')
            self._remedy = ui.button(on_click=self._open_remedy).props("dense unelevated")
            self._remedy.visible = False
        with ui.column().classes("w-full gap-1"):
            self._line = ui.label().classes("figure soft")
            self._other_version = ui.label().classes("text-warning")
        with ui.card().classes("w-full q-pa-sm gap-1") as self._notes:
            with ui.row().classes("w-full items-center gap-2"):
                ui.label("When this job was created").classes("text-bold")
                ui.space()
                self._refused = ui.button(
                    "Download the refused seeds", icon="download", on_click=self._download_refused
                )
                self._refused.props("flat dense")
                if self._view.may_change:
                    ui.button("Dismiss", on_click=self._dismiss).props("flat dense")
            self._warnings = ui.label().classes("text-warning").props('role=status aria-label="Warnings"')
            self._warnings.style("white-space:pre-wrap;overflow-wrap:anywhere")
        self._notes.visible = False

    def _make_group(self, group: str, charts: Mapping[str, Lines]) -> None:
        with ui.column().classes("w-full gap-2") as place:
            heading(group)
            with ui.element("section").classes("w-full").props(f'aria-label="Charts: {group}"').style(SIDE_BY_SIDE):
                made = {
                    title: chart(title, list(_CLASSES), colours=list(_CLASSES.values()), is_area=True)
                    if title == _BY_CLASS
                    else chart(title, [name for name, _ in lines])
                    for title, lines in charts.items()
                }
        place.visible = False
        self._charts.append((place, made))

    async def _redraw(self) -> None:
        watch, name = self._view.console.watch, self._name

        def find() -> _Seen | None:
            row = watch.row(name)
            if row is None:
                return None
            return _Seen(row, watch.status(name), watch.samples(name), watch.marks(name), watch.version(name))

        found = await looked(lambda: (find(),))
        if found is None:
            return
        seen = found[0]
        if seen is None:
            self._show_state("removed")
            self._sentence.text, self._line.text, self._remedy.visible = "This job does not exist.", "", False
            return
        row = seen.row
        self._show_state("starting" if self._is_starting else str(row["state"]))
        self._show_bottleneck(row, seen.status)
        self._show_hints(seen.version)
        self._show_tags(row["tags"])
        self._line.text = _line(row)
        self._line.visible = bool(row["pid"])
        self._resumes = row["line"] != NOT_BEGUN
        for label, text in zip(self._figures.values(), _figures(row, seen.status), strict=True):
            label.text = text or "–"
        drawn = (seen.samples[-1] if seen.samples else None, len(seen.marks))
        if drawn != self._drawn and seen.samples:
            self._drawn = drawn
            self._draw(seen.samples, seen.marks)

    def _show_state(self, state: str) -> None:
        self._badge.text = state
        colour = PHASES.get(state, "grey-7")
        self._badge.props(f"color={colour}")
        self._icon.props(f"name={STATE_ICONS.get(state, 'help')} color={colour}")
        possible = possible_actions(state, is_in_database=self._view.console.jobs.folder is None)
        for action, button in self._buttons.items():
            button.visible = self._view.may_change and state != "removed"
            button.set_enabled(action in possible)
        if self._view.may_change:
            self._remove.set_enabled("Remove" in possible)
        self._possible = possible

    def _show_bottleneck(self, row: Facts, status: Facts | None) -> None:
        fault = mishap(row, time.time())
        found = bottleneck(row, status)
        if self._is_starting:
            found = Bottleneck("It starts: its process opens the queue.")
        elif fault:
            found = found._replace(words=fault)
        self._bottleneck = found
        self._sentence.text = cut(found.words)
        colour = "text-negative" if fault else "text-warning" if found.is_bad else ""
        self._sentence.classes(replace=f"col figure {colour}")
        self._remedy.visible = bool(found.action)
        self._remedy.text = found.action
        for action, button in self._buttons.items():
            helps = action == found.verb and action in self._possible
            button.props(add="unelevated" if helps else "outline", remove="outline" if helps else "unelevated")

    def _open_remedy(self) -> None:
        found = self._bottleneck
        if found.page:
            asked = {"order": "key", "reports": "report"}.get(found.page, "")
            more = {asked: found.key} if asked and found.key else {}
            ui.navigate.to(self._view.path("jobs", self._name, found.page, **more))

    def _show_hints(self, version: str) -> None:
        """Show whether the crawl is of another version than the console."""
        self._other_version.text = (
            f"The crawl runs version {cut(version, 50)}, the console {VERSION}: some figures may be missing."
            if version not in {"", VERSION}
            else ""
        )
        self._other_version.visible = bool(self._other_version.text)

    def _show_tags(self, tags: Sequence[str]) -> None:
        if tags == self._shown_tags:
            return
        self._shown_tags = list(tags)
        self._tags.clear()
        with self._tags:
            for tag in tags:
                ui.chip(cut(tag, 40)).props("dense outline size=sm color=primary")

    async def _show_notes(self) -> None:
        """Show what the job was told when it was created; that survives until somebody dismisses it."""
        found = await looked(lambda: self._view.console.jobs.notes(self._name))
        warnings, has_refused = found or ([], False)
        self._notes.visible = bool(warnings)
        self._warnings.text = "\n".join(cut(line, 300) for line in warnings[:50])
        self._refused.visible = has_refused

    async def _download_refused(self) -> None:
        lines = await looked(lambda: self._view.console.jobs.refused_seeds(self._name))
        if lines is not None:
            ui.download.content("".join(f"{line}\n" for line in lines).encode(), f"{self._name}-refused-seeds.txt")

    async def _dismiss(self) -> None:
        def dismiss() -> bool:
            self._view.console.jobs.dismiss(self._name)
            return True

        if await act(self._view, "dismiss", self._name, {}, dismiss):
            self._notes.visible = False

    async def _change_tags(self) -> None:
        with named_dialog("Tags") as dialog, ui.card().classes("w-full").style("max-width:28rem"):
            ui.label("Tags are shown in the list of jobs, and found by its search.")
            given = ui.input("Tags, with commas between them", value=", ".join(self._shown_tags))
            given.props("outlined dense autofocus").classes("w-full")
            answer_buttons(dialog, "Set tags", color="primary")
        if not await answered(dialog):
            return
        tags = tags_in(str(given.value or ""))

        def change() -> bool:
            self._view.console.jobs.set_tags(self._name, tags)
            return True

        if await act(self._view, "tag", self._name, {"tags": tags}, change):
            self._show_tags(tags)

    async def _save_template(self) -> None:
        tables = await looked(lambda: differing_tables(self._view.console.jobs.job(self._name).order()))
        if tables is not None:
            await save_template(self._view, tables, self._name)

    def _draw(self, samples: Sequence[Moment], marks: Sequence[RunMark]) -> None:
        shown, begins_s = thinned(samples), begin_of(samples, marks)
        for (place, charts), (_, lines) in zip(self._charts, _GROUPS.items(), strict=True):
            for named, drawn in charts.items():
                lists = _class_points(shown) if named == _BY_CLASS else _points(shown, lines[named])
                for series, data in zip(drawn.options["series"], lists, strict=True):
                    series["data"] = data
                drawn.options["series"][0]["markLine"] = mark_lines(marks, begins_s)
                drawn.options["xAxis"]["min"] = zone_ms(begins_s)
                drawn.visible = any(len(data) > 1 for data in lists)
                drawn.update()
            place.visible = any(drawn.visible for drawn in charts.values())

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
        with named_dialog("Add seeds") as dialog, ui.card().classes("w-full").style("max-width:40rem"):
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
        with named_dialog("Retry failed") as dialog, ui.card().classes("w-full").style("max-width:40rem"):
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

        if self._is_starting:
            return
        self._is_starting = True
        self._show_state("starting")
        pressed = self._buttons[action].props("loading")
        try:
            row = await act(self._view, "start", name, {"again": True} if again else {}, start)
        finally:
            self._is_starting = False
            pressed.props(remove="loading")
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
}
#: Those that a job in a database has not: its workers are started on their machines.
_BY_FOLDER = frozenset({"Start", "Another round"})
_QUESTIONS = {
    "Stop": "Stop the crawl of {}? It finishes its fetches, and can be started again, or resumed in a database.",
    "Another round": "Crawl {} again from its seeds? URLs that are still queued are dropped.",
    "Remove": "Remove {} from the list? Its folder is renamed; nothing is deleted.",
}
#: Pages and failures are those of all runs.
_FIGURES = ("Pages", "Queued", "Failed", "Active / workers", "Bytes, this run", "Time, this run", "Free disk")


def _line(row: Facts) -> str:
    """Return the line on the job's activity or its rest; the counts of a running crawl are those of its run. Pure."""
    return f"This run: {cut(row['line'])}" if row["pid"] else cut(row["line"])


def _points(shown: Sequence[Moment], lines: Lines) -> list[list[list[float | None]]]:
    """The points of each line of a chart. Pure."""
    return [points([(one.time_s, value(one)) for one in shown]) for _, value in lines]


def _class_points(shown: Sequence[Moment]) -> list[list[list[float | None]]]:
    """The points of each class of answers. Pure."""
    return [[[zone_ms(one.time_s), one.classes.get(kind, 0)] for one in shown if one.classes] for kind in _CLASSES]


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
