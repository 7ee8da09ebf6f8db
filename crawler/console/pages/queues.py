"""The page of a job's queues: all of them as a grid, and a panel that explains one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial

from nicegui import ui
from starlette.applications import Starlette
from starlette.requests import Request

from anabranch.crawler.console.pages.grid import Grid, rows_route
from anabranch.crawler.console.pages.panel import PanelFacts, RowPanel, block_host, unblock_host
from anabranch.crawler.console.pages.shell import (
    Column,
    View,
    act,
    answered,
    cell,
    confirmed,
    count,
    named_dialog,
    page,
    say,
    title,
    view_of,
)
from anabranch.crawler.console.queues import QUEUE_STATES, ListedQueue, QueueTables
from anabranch.crawler.console.routing import Console
from anabranch.crawler.operate import Facts, UnknownQueue

_COLUMNS = (
    Column("key", "Queue"),
    Column("state", "State"),
    Column("urls", "URLs", is_number=True),
    Column("waiting", "Waiting", is_number=True),
    Column("in_flight", "In flight", is_number=True, is_sortable=False),
    Column("precedence", "Precedence", is_number=True),
    Column("spent", "Spent", is_number=True),
    Column("budget", "Budget", is_number=True),
    Column("gates", "Gates", is_number=True),
    Column("errors", "Errors", is_number=True),
)
#: Figures of a queue in its panel.
_FIGURES = {
    "urls": "URLs", "waiting": "waiting", "in_flight": "in flight", "precedence": "precedence", "spent": "spent",
    "budget": "budget", "gates": "gates",
}  # fmt: skip
#: URLs of a queue that are shown.
URLS_SHOWN = 20


def add_queues_page(console: Console, tables: QueueTables, app: Starlette) -> None:
    """Add the page at `/jobs/NAME/queues`; `?queue=KEY` opens one."""
    app.add_route("/jobs/{name}/queues/rows", rows_route(tables.queues, queue_row, "queue"))

    @ui.page("/jobs/{name}/queues")
    async def queues(request: Request, name: str, queue: str = "") -> None:
        view = view_of(console, request)
        with page(view, f"{name}: queues", name, "queues"):
            title("Queues")
            panel = RowPanel(view, name, partial(_found, console, tables, name), "queue")
            panel.add_buttons(_actions(view, name, panel))
            rows = view.href("jobs", name, "queues", "rows")
            Grid(rows, _COLUMNS, QUEUE_STATES, panel, partial(tables.renew, name), request.query_params)
            if queue:
                ui.timer(0.0, partial(panel.open, queue), once=True)


def queue_row(queue: ListedQueue, _now_s: float) -> dict[str, str]:
    """A row of the grid. Pure."""
    budget = queue.budget
    return {
        "id": queue.key,
        "key": cell(queue.key),
        "state": queue.state,
        "urls": count(queue.urls),
        "waiting": count(queue.waiting),
        "in_flight": count(queue.in_flight) if queue.is_live else "",
        "precedence": count(queue.precedence),
        "spent": count(queue.spent),
        "budget": "default" if budget is None else "unlimited" if budget < 0 else count(budget),
        "gates": count(queue.gates),
        "errors": count(queue.errors),
    }


def _found(console: Console, tables: QueueTables, name: str, key: str) -> PanelFacts:
    facts = console.jobs.job(name).answer("show", {"subject": key}).facts
    shown = panel_facts(facts)
    with suppress(UnknownQueue):  # it is younger than the tables
        found = tables.queue(name, key, URLS_SHOWN)
        shown = shown._replace(figures={**shown.figures, "errors": count(found.row.errors)}, urls=found.urls)
    return shown


def panel_facts(facts: Facts) -> PanelFacts:
    """Return the panel for the facts of `frontier show`. Pure."""
    queue: Mapping[str, int | None] = facts.get("queue") or {}
    figures = {
        words: "unlimited" if queue[name] is None else count(queue[name])
        for name, words in _FIGURES.items()
        if name in queue
    }
    explained, gates = facts["explanation"], facts.get("gates") or []
    reason = f"{explained['state']}: {explained['reason']}" if explained["reason"] else explained["state"]
    actions = queue_actions(str(explained["state"]), has_gates=bool(gates)) if queue else frozenset[str]()
    return PanelFacts(reason, figures, gates, [], actions)


def queue_actions(state: str, *, has_gates: bool) -> frozenset[str]:
    """The buttons that apply to a queue in this state. Pure."""
    found = {"Budget …"} | ({"Block host …", "Unblock host …"} if has_gates else set())
    found |= {"Resume"} if state == "paused" else {"Pause"}
    return frozenset(found if state == "retired" else found | {"Retire …"})


def _actions(view: View, name: str, panel: RowPanel) -> Mapping[str, Callable[[str], Awaitable[None]]]:
    """Map the words of each button to its action on a queue."""

    async def do(verb: str, key: str, **more: object) -> None:
        asked = {"queue": key, **more}
        if await act(view, verb, name, asked, lambda: view.console.jobs.job(name).answer(verb, asked)):
            say(f"{verb}: done")

    async def retire(key: str) -> None:
        if await confirmed(f"Retire {cell(key)}? Its URLs stay queued but are not fetched.", "Retire"):
            await do("retire", key)

    async def set_budget(key: str) -> None:
        with named_dialog("Budget of a queue") as dialog, ui.card():
            ui.label("A queue that has spent its budget is retired; a larger budget reactivates it.")
            units = ui.number("Units (-1: unlimited, empty: the default of the order)", min=-1, precision=0).props(
                "outlined dense autofocus"
            )
            units.classes("w-full")
            with ui.row().classes("w-full justify-end"):
                ui.button("Cancel", on_click=lambda: dialog.submit(False)).props("flat")
                ui.button("Set", on_click=lambda: dialog.submit(True))
        if await answered(dialog):
            await do("set-budget", key, units=None if units.value is None else int(units.value))

    async def block(_key: str) -> None:
        await block_host(view, name, panel.gates)

    async def unblock(_key: str) -> None:
        await unblock_host(view, name, panel.gates)

    return {
        "Pause": partial(do, "pause"),
        "Resume": partial(do, "resume"),
        "Retire …": retire,
        "Budget …": set_budget,
        "Block host …": block,
        "Unblock host …": unblock,
    }
