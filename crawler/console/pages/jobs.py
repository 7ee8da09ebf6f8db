"""The first page: all jobs, those that need attention first, and what can be done to several of them."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial

from nicegui import events, run, ui
from starlette.requests import Request

from anabranch.crawler.console.pages.newjob import open_new_job
from anabranch.crawler.console.pages.shell import (
    PHASES,
    STATE_ICONS,
    Column,
    View,
    confirmed,
    count,
    cut,
    every,
    keep_in_address,
    looked,
    mishap,
    page,
    possible_actions,
    say,
    table,
    title,
    view_of,
)
from anabranch.crawler.console.routing import Console
from anabranch.crawler.console.watch import EVERY_S
from anabranch.crawler.operate import NOT_RUNNING, STOPPED, UNKNOWN, Facts, FrontierError, Phase, counted
from anabranch.crawler.order.quantities import format_bytes
from anabranch.crawler.outcomes.errors import CrawlerError, UsageError

_COLUMNS = (
    Column("job", "Job"),
    Column("state", "State"),
    Column("pages", "Pages", is_number=True),
    Column("rate", "Pages/s", is_number=True),
    Column("queued", "Queued", is_number=True),
    Column("failed", "Failed", is_number=True),
    Column("free", "Free disk", is_number=True),
    Column("note", "Note", is_sortable=False, is_wide=True),
)
#: Groups of states, in the order of the list: those that need attention first.
_ATTENTION, _RUNNING, _STOPPED, _FINISHED = "Needs attention", "Running", "Stopped", "Finished"
_GROUPS: Mapping[str, frozenset[str]] = {
    _ATTENTION: frozenset({"killed", "failed", "unknown", "waiting", "paused"}),
    _RUNNING: frozenset({"starting", "running", "draining"}),
    _STOPPED: frozenset({"stopped"}),
    _FINISHED: frozenset({"finished"}),
}
_ALL = "All"
#: Characters of a search that an address gives.
_MOST_SEARCH = 200
#: The states in the order of the list; those of one group have it, too.
_ORDER = ("killed", "failed", "unknown", "waiting", "paused", "starting", "running", "draining", "stopped", "finished")
_NO_JOBS = "No jobs yet. Create one here, or with `anabranch crawl`."
#: What can be done to several jobs at once.
_VERBS = {"Pause": "pause", "Resume": "play_arrow", "Stop": "stop"}


def add_jobs_page(console: Console) -> None:
    """Add the page at `/`; `?copy=NAME` opens the form of a new job with the order and the seeds of another."""

    @ui.page("/")
    async def jobs(request: Request, copy: str = "", group: str = _ALL, text: str = "") -> None:
        view = view_of(console, request)
        may_create = view.may_change and console.jobs.folder is not None
        with page(view, "Jobs"):
            _Jobs(view, may_create=may_create).make(group, text[:_MOST_SEARCH])
        if copy and may_create:
            ui.timer(0.0, lambda: open_new_job(view, copy), once=True)


#: Vue shows what is between braces as text, whatever it holds.
_JOB_CELL = """<q-td :props="props"><a :href="props.row.href" class="text-primary">{{ props.row.job }}</a>
<q-chip v-for="tag in props.row.tags" :key="tag" dense outline clickable size="sm" color="primary"
 :aria-label="'Search for the tag ' + tag" @click="$parent.$emit('tag', tag)">{{ tag }}</q-chip></q-td>"""
_STATE_CELL = """<q-td :props="props" style="white-space:nowrap"><q-icon :name="props.row.icon" size="xs" class="q-mr-xs"
 :color="props.row.colour" aria-hidden="true" /><q-badge :color="props.row.colour">{{ props.row.state }}</q-badge></q-td>"""


class _Jobs:
    """The list in one window."""

    def __init__(self, view: View, *, may_create: bool) -> None:
        self._view, self._may_create = view, may_create
        self._found: Sequence[Facts] = ()

    def make(self, group: str, text: str) -> None:
        """Make the parts, with this group of states and this search, and keep them up to date."""
        known = {_ALL: _ALL, **({group: group} if group in _GROUPS else {})}
        with ui.row().classes("w-full items-center"):
            title("Jobs")
            ui.space()
            if self._may_create:
                ui.button("New job", icon="add", on_click=lambda: open_new_job(self._view))
        with ui.row().classes("w-full items-center gap-2"):
            self._group = ui.toggle(known, value=group if group in known else _ALL, on_change=self._search)
            self._group.props('dense no-caps unelevated toggle-color=primary padding="4px 12px" aria-label="States"')
            self._text = ui.input("Search names, tags, notes", value=text, on_change=self._search)
            self._text.props("outlined dense clearable debounce=200").classes("col").style("min-width:12rem")
        verbs = ui.row().classes("w-full items-center gap-2")
        self._rows = table(_COLUMNS, "href", "Jobs", selects=self._view.may_change)
        self._rows.add_slot("body-cell-job", _JOB_CELL)
        self._rows.add_slot("body-cell-state", _STATE_CELL)
        self._rows.add_slot("no-data", f'<span class="soft">{_NO_JOBS}</span>')
        self._rows.on("tag", self._search_tag)
        if self._view.may_change:
            with verbs:
                self._make_verbs()
        every(EVERY_S, self._redraw)

    def _make_verbs(self) -> None:
        self._rows.on_select(self._show_verbs)
        self._chosen = ui.label().classes("soft").props("role=status")
        self._verbs = {
            verb: ui.button(verb, icon=icon, on_click=partial(self._steer, verb)).props("outline dense")
            for verb, icon in _VERBS.items()
        }
        self._show_verbs()

    async def _redraw(self) -> None:
        found = await looked(self._view.console.watch.rows)
        if found is not None:
            self._found = ranked(found)
            self._show()

    def _show(self) -> None:
        group = str(self._group.value)
        words = group_words(self._found, group)
        if words != self._group.options:
            self._group.set_options(words, value=group)
        of_group = [row for row in self._found if group in {_ALL, group_of(row)}]
        wanted = str(self._text.value or "")
        self._rows.rows = [_cells(self._view, row) for row in of_group if is_found(row, _words(row), wanted)]
        self._keep_chosen()

    def _keep_chosen(self) -> None:
        """Rows that are shown no more are not chosen either."""
        if self._view.may_change:
            shown = {str(row["href"]): row for row in self._rows.rows}
            self._rows.selected = [shown[one["href"]] for one in self._rows.selected if one["href"] in shown]
            self._show_verbs()

    def _search(self) -> None:
        group = str(self._group.value)
        keep_in_address(group="" if group == _ALL else group, text=str(self._text.value or ""))
        self._show()

    def _search_tag(self, event: events.GenericEventArguments) -> None:
        self._text.value = str(event.args)

    def _able(self, verb: str) -> list[str]:
        """The names of the chosen jobs that allow this verb."""
        is_in_database = self._view.console.jobs.folder is None
        return [
            str(row["name"])
            for row in self._rows.selected
            if verb in possible_actions(str(row["state"]), is_in_database=is_in_database)
        ]

    def _show_verbs(self) -> None:
        number = len(self._rows.selected)
        self._chosen.text = (
            f"{counted(number, 'job')} selected:" if number else "Select jobs to act on several at once:"
        )
        for verb, button in self._verbs.items():
            button.set_enabled(bool(self._able(verb)))

    async def _steer(self, verb: str) -> None:
        """Do it to all chosen jobs that allow it, at the same time."""
        names = self._able(verb)
        question = f"{verb} {counted(len(names), 'crawl')}: {cut(', '.join(names), 500)}?"
        if verb == "Stop" and not await confirmed(question, verb):
            return
        try:
            self._view.check_operator()
        except UsageError as error:
            say(str(error), is_bad=True)
            return
        faults = await asyncio.gather(*(run.io_bound(partial(self._steered, name, verb.lower())) for name in names))
        failed = [fault for fault in faults if fault]
        if len(failed) < len(names):
            say(f"{verb}: {counted(len(names) - len(failed), 'job')} done")
        for fault in failed[:5]:
            say(fault, is_bad=True)
        self._rows.selected = []
        await self._redraw()

    def _steered(self, name: str, verb: str) -> str:
        """Do it to one job; why it failed, or empty (blocks)."""
        console = self._view.console
        try:
            console.change(self._view.holder, verb, name, {}, lambda: console.jobs.job(name).steer(verb, {}))
        except (CrawlerError, FrontierError) as error:
            return f"{name}: {error}"
        return ""


def group_words(rows: Sequence[Facts], chosen: str) -> dict[str, str]:
    """The words of the button of each group that has jobs, or is chosen. Pure."""
    numbers = Counter(map(group_of, rows))
    groups = {group: f"{group} {numbers[group]:,}" for group in _GROUPS if numbers[group] or group == chosen}
    return {_ALL: f"{_ALL} {len(rows):,}", **groups}


def group_of(row: Facts) -> str:
    """The group of a job's state. Pure."""
    return next((group for group, states in _GROUPS.items() if row["state"] in states), _ATTENTION)


def ranked(rows: Sequence[Facts]) -> list[Facts]:
    """The jobs, those first that need attention, then by name. Pure."""
    places = {state: place for place, state in enumerate(_ORDER)}
    return sorted(rows, key=lambda row: (places.get(str(row["state"]), 0), str(row["job"])))


def is_found(row: Facts, note: str, wanted: str) -> bool:
    """Whether each word that is searched for is in the name, a tag, the state or the note of a job. Pure."""
    text = " ".join([str(row["job"]), str(row["state"]), *row["tags"], note]).lower()
    return all(word in text for word in wanted.lower().split())


def _cells(view: View, row: Facts) -> dict[str, object]:
    state = str(row["state"])
    return {
        "name": row["job"],
        "job": cut(row["job"], 100),
        "tags": [cut(tag, 40) for tag in row["tags"]],
        "href": view.href("jobs", row["job"]),
        "state": state,
        "icon": STATE_ICONS.get(state, "help"),
        "colour": PHASES.get(state, "grey-7"),
        "pages": count(row["pages"]),
        "rate": f"{row['pages_per_s']:.1f}" if row["pid"] else "",
        "queued": count(row["queued"]),
        "failed": count(row["failed"]),
        "free": "" if row["free_disk_bytes"] is None else format_bytes(row["free_disk_bytes"]),
        "note": _words(row),
    }


def _words(row: Facts) -> str:
    return cut(mishap(row, time.time()) or _note(row), 300)


def _note(row: Facts) -> str:
    """The last trouble of a job that runs or was killed; else what it waits for, or why it stands still. Pure."""
    if row["state"] == Phase.PAUSED.value:
        return str(row["line"]).rpartition(" · ")[2]  # behind the figures
    if row["state"] in {Phase.WAITING.value, Phase.STARTING.value}:
        return str(row["line"])
    trouble = row["last_trouble"]
    if row["phase"] == UNKNOWN or (row["phase"] == STOPPED and not row["is_finished"] and row["line"] != NOT_RUNNING):
        return str(row["line"])
    return "" if trouble is None else f"{trouble['url']}: {trouble['reason']}"
