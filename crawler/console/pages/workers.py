"""The page of a job's workers: the processes that share it, and the fetches under way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nicegui import events, ui
from starlette.requests import Request

from anabranch.crawler.console.pages.shell import (
    Column,
    View,
    act,
    answered,
    cell,
    confirmed,
    count,
    every,
    heading,
    link_cell,
    looked,
    named_dialog,
    page,
    say,
    table,
    title,
    view_of,
)
from anabranch.crawler.console.routing import Console
from anabranch.crawler.console.watch import EVERY_S, is_at_rest
from anabranch.crawler.operate import Facts, duration_words

_WORKERS = (
    Column("name", "Worker"),
    Column("state", "State"),
    Column("shares", "Shares", is_number=True),
    Column("pages", "Pages", is_number=True),
    Column("rate", "Pages/s", is_number=True),
    Column("active", "Active", is_number=True),
    Column("beat", "Last heartbeat", is_number=True),
    Column("machine", "Machine"),
)
_FETCHES = (
    Column("worker", "Worker"),
    Column("step", "Processor"),
    Column("in_step", "Time in it", is_number=True),
    Column("lease", "Since its lease", is_number=True),
    Column("try", "Attempt", is_number=True),
    Column("url", "URL", is_sortable=False, is_wide=True),
)
#: Of a worker that is late its lease has ended: its pages may be lost.
_ACTIONS = """<q-td :props="props">
<q-btn v-if="props.row.state == 'drained'" flat dense color="primary" label="Let it come back"
 :aria-label="'Let ' + props.row.name + ' come back'" @click="$parent.$emit('resume', props.row.id)"></q-btn>
<q-btn v-else-if="props.row.state != 'late'" flat dense color="primary" label="Drain"
 :aria-label="'Drain ' + props.row.name" @click="$parent.$emit('drain', props.row.id)"></q-btn>
<q-btn v-else flat dense color="negative" label="Requeue its lost pages"
 :aria-label="'Requeue the lost pages of ' + props.row.name" @click="$parent.$emit('requeue', props.row.id)"></q-btn>
</q-td>"""
_MOST_FETCHES = 1000


def add_workers_page(console: Console) -> None:
    """Add the page at `/jobs/NAME/workers`."""

    @ui.page("/jobs/{name}/workers")
    async def workers(request: Request, name: str) -> None:
        view = view_of(console, request)
        with page(view, f"{name}: workers", name, "workers"):
            _Workers(view, name).make()


class _Workers:
    """One window on the workers of a job."""

    def __init__(self, view: View, name: str) -> None:
        self._view, self._name = view, name

    def make(self) -> None:
        """Make the parts, and draw them from now on."""
        title("Workers")
        with ui.column().classes("w-full") as self._several:
            more = (Column("action", "", is_sortable=False),) if self._view.may_change else ()
            self._workers = table((*_WORKERS, *more), "id", "Workers")
            self._workers.add_slot("body-cell-action", _ACTIONS)
            self._workers.on("drain", self._drain)
            self._workers.on("resume", self._let_back)
            self._workers.on("requeue", lambda event: self._requeue(str(event.args)))
            if self._view.may_change:
                ui.button("Requeue a lost worker's pages …", icon="replay", on_click=self._ask_lost).props(
                    "outline dense"
                )
        self._several.visible = False
        heading("Fetches under way")
        self._fetches = table(_FETCHES, "id", "Fetches under way")
        self._fetches.add_slot("body-cell-url", link_cell("url"))
        every(EVERY_S, self._redraw_workers)
        every(EVERY_S, self._redraw_fetches)  # a worker that stands still keeps only these waiting

    async def _redraw_workers(self) -> None:
        def find() -> tuple[bool, Sequence[Facts]]:
            lines = self._view.console.jobs.job(self._name).workers()
            return lines is not None, lines or ()

        found = await looked(find)
        if found is not None:
            self._several.visible, lines = found
            self._workers.rows = list(map(worker_row, lines))

    async def _redraw_fetches(self) -> None:
        fetches = await looked(self._fetches_found)
        if fetches is not None:
            self._fetches.rows = [
                {**row, "href": self._view.href("jobs", self._name, "url", url=uri)}
                for row, uri in map(fetch_row, fetches)
            ]

    def _fetches_found(self) -> Sequence[Facts]:
        job, row = self._view.console.jobs.job(self._name), self._view.console.watch.row(self._name)
        if row is None or is_at_rest(row):
            return ()
        return job.fetches(_MOST_FETCHES)

    async def _drain(self, event: events.GenericEventArguments) -> None:
        worker = str(event.args)
        if not await confirmed(
            f"Drain {cell(worker)}? It finishes its fetches, hands its shares to the other workers, and ends. "
            "A worker of a database stays away until you let it come back.",
            "Drain",
        ):
            return

        def drain() -> bool:
            self._view.console.jobs.job(self._name).drain(worker)
            return True

        say(f"{cell(worker)} is draining; it ends after its fetches")
        if await act(self._view, "drain", self._name, {"worker": worker}, drain):
            say(f"{cell(worker)} has ended")

    async def _let_back(self, event: events.GenericEventArguments) -> None:
        worker = str(event.args)

        def let_back() -> bool:
            self._view.console.jobs.job(self._name).steer("resume", {"worker": worker})
            return True

        if await act(self._view, "resume", self._name, {"worker": worker}, let_back):
            say(f"{cell(worker)} may come back; start it on its machine")

    async def _ask_lost(self) -> None:
        with named_dialog("Requeue lost pages") as dialog, ui.card():
            ui.label("Queues again the pages that a lost worker had fetched but not saved.")
            worker = ui.input("Name of the worker").props("outlined dense autofocus").classes("w-full")
            with ui.row().classes("w-full justify-end"):
                ui.button("Cancel", on_click=dialog.close).props("flat")
                ui.button("Requeue", on_click=lambda: dialog.submit(worker.value)).props("color=negative")
        if lost := await answered(dialog):
            await self._requeue(str(lost), is_confirmed=True)

    async def _requeue(self, lost: str, *, is_confirmed: bool = False) -> None:
        question = f"Queue the lost pages of {cell(lost)} again? Only if that worker will not come back."
        if not (is_confirmed or await confirmed(question, "Requeue")):
            return
        job = self._view.console.jobs.job(self._name)
        number = await act(self._view, "requeue", self._name, {"worker": lost}, lambda: job.requeue(lost))
        if number is not None:
            say(f"{count(number)} pages of {cell(lost)} are queued again")


def worker_row(line: Mapping[str, Any]) -> dict[str, str]:
    """A row of the table, of a worker's facts. Pure."""
    return {
        "id": line["name"],
        "name": cell(line["name"]),
        "state": line["state"],
        "shares": count(line["shares"]),
        "pages": count(line["pages"]),
        "rate": f"{line['pages_per_s']:.1f}",
        "active": count(line["active"]),
        "beat": f"{duration_words(line['last_beat_s'])} ago",
        "machine": cell(line["machine"]),
    }


def fetch_row(fact: Mapping[str, Any]) -> tuple[dict[str, str], str]:
    """A row of the table, of a row of the report; and its URL. Pure."""
    row = {
        "id": f"{fact['worker']} {fact['uri'][:300]}",
        "worker": cell(fact["worker"]),
        "step": cell(fact["processor"]),
        "in_step": duration_words(fact["step-s"]),
        "lease": duration_words(fact["lease-s"]),
        "try": count(fact["try"]),
        "url": cell(fact["uri"]),
    }
    return row, fact["uri"]
