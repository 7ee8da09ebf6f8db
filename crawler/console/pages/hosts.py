"""The page of a job's hosts: the gates as a grid, a panel that explains one, and what was fetched from each host."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from nicegui import ui
from starlette.applications import Starlette
from starlette.requests import Request

from anabranch.crawler.console.pages.grid import Grid, rows_route
from anabranch.crawler.console.pages.panel import PanelFacts, RowPanel, block_host, unblock_host
from anabranch.crawler.console.pages.shell import (
    Column,
    View,
    cell,
    count,
    every,
    heading,
    looked,
    page,
    show_rows,
    table,
    title,
    view_of,
)
from anabranch.crawler.console.queues import GATE_STATES, ListedGate, QueueTables
from anabranch.crawler.console.routing import Console
from anabranch.crawler.console.watch import News
from anabranch.crawler.operate import NOT_BEGUN, Facts, UnknownQueue, duration_words
from anabranch.crawler.order.quantities import format_bytes

_COLUMNS = (
    Column("key", "Gate"),
    Column("state", "State"),
    Column("opens", "Opens in", is_number=True, is_sortable=False),
    Column("urls", "URLs", is_number=True),
    Column("queues", "Queues", is_number=True),
    Column("in_flight", "In flight", is_number=True, is_sortable=False),
    Column("spacing_s", "Crawl-delay", is_number=True),
    Column("throttle_s", "Throttle", is_number=True),
    Column("troubles", "Troubles", is_number=True),
)
#: Columns of what was fetched from each host. Queued URLs are known only of hosts that have a queue of their own.
FETCHED = (
    Column("host", "Host"),
    Column("urls", "URLs", is_number=True),
    Column("bytes", "Bytes", is_number=True),
    Column("queued", "Queued", is_number=True),
)
_MOST_FETCHED = 1000
_FETCHED_S = 30.0
_URLS_SHOWN = 20
#: Queues with URLs behind a gate that are asked about it.
_QUEUES_ASKED = 3


def add_hosts_page(console: Console, tables: QueueTables, app: Starlette) -> None:
    """Add the page at `/jobs/NAME/hosts`; `?host=KEY` opens one."""
    app.add_route("/jobs/{name}/hosts/rows", rows_route(tables.gates, gate_row, "gate"))

    @ui.page("/jobs/{name}/hosts")
    async def hosts(request: Request, name: str, host: str = "") -> None:
        view = view_of(console, request)
        with page(view, f"{name}: hosts", name, "hosts"):
            title("Hosts")
            panel = RowPanel(view, name, partial(_found, console, tables, name), "host")
            panel.add_buttons(_actions(view, name))
            rows = view.href("jobs", name, "hosts", "rows")
            grid = Grid(rows, _COLUMNS, GATE_STATES, panel, partial(tables.renew, name), request.query_params)
            heading("Fetched from the busiest hosts")
            fetched = table(FETCHED, "host", "Fetched so far").bind_filter_from(grid.text, "value", str_or_empty)

            news = News()

            async def redraw() -> None:
                row = await looked(lambda: console.watch.row(name))
                if row is None or row["line"] == NOT_BEGUN or not news.has(row):
                    return
                asked = {"name": "hosts", "limit": _MOST_FETCHED}
                facts = await looked(lambda: console.jobs.job(name).report(asked))
                if facts is not None:
                    show_rows(fetched, list(map(fetched_row, facts["rows"])), "queued")

            every(_FETCHED_S, redraw)
            if host:
                ui.timer(0.0, partial(panel.open, host), once=True)


def str_or_empty(value: str | None) -> str:
    """A cleared box has no text. Pure."""
    return value or ""


def gate_row(gate: ListedGate, now_s: float) -> dict[str, str]:
    """A row of the grid. Pure."""
    opens_in_s = gate.opens_s - now_s
    return {
        "id": gate.key,
        "key": cell(gate.key),
        "state": gate.state,
        "opens": "" if opens_in_s <= 0 or gate.in_flight else duration_words(opens_in_s),
        "urls": count(gate.urls),
        "queues": count(gate.queues),
        "in_flight": count(gate.in_flight) if gate.is_live else "",
        "spacing_s": _span(gate.spacing_s),
        "throttle_s": _span(gate.throttle_s),
        "troubles": count(gate.troubles),
    }


def _span(seconds: float) -> str:
    return duration_words(seconds) if seconds else ""


def fetched_row(row: Mapping[str, Any]) -> dict[str, str]:
    """A row of the table, of one of `report hosts`. Pure."""
    return {
        "host": cell(row["host"]),
        "urls": count(row["#urls"]),
        "bytes": format_bytes(row["#bytes"]),
        "queued": count(row["#remaining"]),
    }


def _found(console: Console, tables: QueueTables, name: str, key: str) -> PanelFacts:
    found, job, gates = tables.gate(name, key, _URLS_SHOWN), console.jobs.job(name), []
    for queue in [*dict.fromkeys(url.queue for url in found.urls)][
        :_QUEUES_ASKED
    ]:  # one of them knows more of its gate
        with suppress(UnknownQueue):  # it is empty by now
            facts = job.answer("show", {"subject": queue}).facts
            gates = [gate for gate in facts.get("gates") or () if gate["gate"] == key]
        if gates:
            break
    return gate_panel(found.row, gates, time.time())._replace(urls=found.urls)


def gate_panel(gate: ListedGate, gates: list[Facts], now_s: float) -> PanelFacts:
    """Return the panel of a gate. `gates` holds the running crawl's facts about it, if there are any. Pure."""
    closed, opens_in_s = "", gate.opens_s - now_s
    if gates:
        closed = gates[0]["why_closed"]
    elif gate.in_flight:
        closed = "fetches from it are under way"
    elif opens_in_s > 0:
        closed = f"{gate.state} for another {duration_words(opens_in_s)}"
    figures = {"URLs": count(gate.urls), "queues": count(gate.queues), "troubles in a row": count(gate.troubles)}
    if gate.is_live:
        figures["in flight"] = count(gate.in_flight)
    if gate.spacing_s:
        figures["Crawl-delay"] = duration_words(gate.spacing_s)
    if gate.throttle_s:
        figures["throttle"] = duration_words(gate.throttle_s)
    if gate.slots is not None:
        figures["connections"] = count(gate.slots)
    actions = frozenset({"Block …", *(["Unblock …"] if opens_in_s > 0 or gate.throttle_s or closed else [])})
    return PanelFacts(f"closed: {closed}" if closed else "open", figures, gates, [], actions)


def _actions(view: View, name: str) -> Mapping[str, Callable[[str], Awaitable[None]]]:
    async def block(key: str) -> None:
        await block_host(view, name, [key])

    async def unblock(key: str) -> None:
        await unblock_host(view, name, [key])

    return {"Block …": block, "Unblock …": unblock}
