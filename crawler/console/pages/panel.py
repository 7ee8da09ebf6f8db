"""A panel beside a grid: what a queue or a host does now, its gates and next URLs, and what can be done to it."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from nicegui import ui

from anabranch.crawler.console.pages.shell import (
    Column,
    View,
    act,
    answer_buttons,
    answered,
    cell,
    cut,
    every,
    link_cell,
    looked,
    named_dialog,
    say,
    show_rows,
    table,
    zone_name,
)
from anabranch.crawler.console.queues import QueuedUrl
from anabranch.crawler.console.watch import is_at_rest
from anabranch.crawler.operate import Facts, VerbAnswer, duration_words
from anabranch.crawler.outcomes.errors import UsageError

#: An open panel is drawn again so often.
_EVERY_S = 4.0
_GATES = (
    Column("gate", "Gate"),
    Column("opens", "Opens in", is_number=True, is_sortable=False),
    Column("rate", "URLs/s", is_number=True, is_sortable=False),
    Column("why", "Reason", is_sortable=False, is_wide=True),
    Column("group", "Group", is_sortable=False),
)
_URLS = (
    Column("url", "URL", is_sortable=False, is_wide=True),
    Column("attempts", "Attempts", is_number=True, is_sortable=False),
    Column("due", "Retry in", is_number=True, is_sortable=False),
)
#: How long a host is blocked -> seconds.
_TIMES: Mapping[str, float | None] = {
    "10 minutes": 600.0, "1 hour": 3600.0, "6 hours": 6 * 3600.0, "1 day": 86400.0, "1 week": 7 * 86400.0,
    "until it is unblocked": None,
}  # fmt: skip


#: The event of a window whose Back closes its panel.
_CLOSED = "panel_closed"
#: Puts an open panel into the address, as a step that Back takes back; and takes it out when the panel is closed otherwise.
_CAME = """{{
  const address = new URL(location.href), isNew = address.searchParams.get({0}) !== {1};
  address.searchParams.set({0}, {1});
  history[isNew ? "pushState" : "replaceState"]({{...history.state, panel: isNew}}, "", address);
  window.onpopstate = () => emitEvent("{2}");
}}"""
_WENT = """{{
  const address = new URL(location.href);
  if (address.searchParams.has({0})) {{
    if (history.state?.panel) history.back();
    else {{ address.searchParams.delete({0}); history.replaceState(history.state, "", address); }}
  }}
}}"""


class PanelFacts(NamedTuple):
    """The contents of a panel."""

    reason: str
    figures: Mapping[str, str]
    gates: Sequence[Facts]
    urls: Sequence[QueuedUrl]
    actions: frozenset[str] | None = None  #: the buttons that apply; None: all


class RowPanel:
    """The panel of a page. It is drawn again while it is open."""

    def __init__(self, view: View, name: str, find: Callable[[str], PanelFacts], parameter: str) -> None:
        """`find` gets the key of a row, and blocks. The address has the key as `parameter` while the panel is open."""
        self._parameter = parameter
        self._view, self._name, self._find = view, name, find
        self._key = ""
        self._readings = self._shown = 0  #: readings begun, and the number of the one that is shown
        self.gates: list[str] = []  #: keys of those that are shown
        with ui.dialog().props('position=right aria-label="Details"') as self._dialog, ui.card().classes("panel"):
            with ui.row().classes("w-full items-center no-wrap"):
                self._title = ui.label().classes("text-h6").props("role=heading aria-level=2")
                ui.space()
                ui.button(icon="close", on_click=self._dialog.close).props('flat round dense aria-label="Close"')
            self._reason = ui.label().props("role=status")
            self._place = ui.row().classes("gap-1")
            self._buttons: dict[str, ui.button] = {}
            self._figures = ui.label().classes("soft figure")
            self._gates = table(_GATES, "gate", "Gates")
            self._gates.pagination = {"rowsPerPage": 10}
            self._urls = table(_URLS, "url", "URLs that are fetched next")
            self._urls.add_slot("body-cell-url", link_cell("url"))
        self._dialog.on("show", self._note_in_address)
        self._dialog.on("hide", lambda: ui.run_javascript(_WENT.format(json.dumps(self._parameter))))
        ui.on(_CLOSED, self._dialog.close)
        every(_EVERY_S, self._redraw_of_running)

    def add_buttons(self, actions: Mapping[str, Callable[[str], Awaitable[None]]]) -> None:
        """Add what can be done to a row, by the words of the button; an action gets the key of the row."""
        if self._view.may_change:
            with self._place:
                for words, action in actions.items():
                    made = ui.button(words, on_click=lambda _, action=action: self._do(action))
                    self._buttons[words] = made.props("outline dense")

    async def open(self, key: str) -> None:
        """Show the row of this key."""
        self._key = key
        self._title.text = cell(key)
        self._reason.text = self._figures.text = ""
        self._gates.rows, self._urls.rows = [], []
        self._dialog.props["aria-label"] = f"Details of {cell(key)}"
        self._dialog.update()
        self._dialog.open()
        await self._redraw()

    def _note_in_address(self) -> None:
        ui.run_javascript(_CAME.format(json.dumps(self._parameter), json.dumps(self._key), _CLOSED))

    async def _do(self, action: Callable[[str], Awaitable[None]]) -> None:
        await action(self._key)
        await self._redraw()

    async def _redraw_of_running(self) -> None:
        """A stopped job stays as it is, and would have to be opened."""
        if self._dialog.value and self._key:
            row = await looked(lambda: self._view.console.watch.row(self._name))
            if row is not None and not is_at_rest(row):
                await self._redraw()

    async def _redraw(self) -> None:
        if not (self._dialog.value and self._key):
            return
        key = self._key
        self._readings += 1
        number = self._readings
        found = await looked(lambda: self._find(key))
        if key != self._key or number < self._shown:  # one that began later, such as after a verb, was faster
            return
        self._shown = number
        if found is None:
            self._key = ""  # once is enough
            return
        self._reason.text = cut(found.reason)
        for words, button in self._buttons.items():
            button.set_enabled(found.actions is None or words in found.actions)
        self._figures.text = " · ".join(f"{name} {value}" for name, value in found.figures.items())
        self.gates = [gate["gate"] for gate in found.gates]
        show_rows(self._gates, list(map(closed_row, found.gates)), "group")
        self._gates.visible = bool(found.gates)
        now_s = time.time()
        urls = [
            {**url_row(one, now_s), "href": self._view.href("jobs", self._name, "url", url=one.url)}
            for one in found.urls
        ]
        show_rows(self._urls, urls, "due")


def url_row(url: QueuedUrl, now_s: float) -> dict[str, str]:
    """A row of the table of URLs. Pure."""
    is_waiting = url.due_s is not None and url.due_s > now_s
    return {
        "url": cell(url.url),
        "attempts": str(url.attempts),
        "due": duration_words(url.due_s - now_s) if url.due_s is not None and is_waiting else "",
    }


def closed_row(gate: Mapping[str, Any]) -> dict[str, str]:
    """A row of the table of gates. Pure."""
    opens_in_s, rate, group = gate["opens_in_s"], gate["rate_per_s"], gate["group"]
    why = [gate["why_closed"], "" if group is None else group["why_closed"]]
    return {
        "gate": cell(gate["gate"]),
        "opens": "unknown" if opens_in_s is None else "open" if opens_in_s <= 0 else duration_words(opens_in_s),
        "rate": "" if rate is None else f"{rate:.3g}",
        "why": cell("; ".join(filter(None, why))),
        "group": "" if group is None else cell(group["gate"]),
    }


async def unblock_host(view: View, name: str, hosts: Sequence[str]) -> None:
    """Ask which of these hosts is to be unblocked; and unblock it."""
    if not hosts:
        say("no host is known for this queue", is_bad=True)
        return
    with named_dialog("Unblock a host") as dialog, ui.card():
        ui.label("Removes every block of the host, and its rest after a 429 or 503.")
        host = _choice(hosts)
        answer_buttons(dialog, "Unblock")
    if await answered(dialog):
        chosen = str(host.value)
        asked = {"host": chosen}
        if await act(view, "unblock", name, asked, lambda: view.console.jobs.job(name).answer("unblock", asked)):
            say(f"{cell(chosen)} is unblocked")


def _choice(hosts: Sequence[str]) -> ui.select:
    labels = {host: cell(host) for host in hosts}
    return ui.select(labels, value=hosts[0], label="Host").props("outlined dense").classes("w-full")


async def block_host(view: View, name: str, hosts: Sequence[str]) -> None:
    """Ask which of these hosts is to be blocked, and how long or until when; and block it."""
    if not hosts:
        say("no host is known for this queue", is_bad=True)
        return
    with named_dialog("Block a host") as dialog, ui.card():
        ui.label("Nothing is fetched from a host while it is blocked.")
        host = _choice(hosts)
        span = ui.select([*_TIMES], value="1 hour", label="For").props("outlined dense").classes("w-full")
        until = ui.input(f"Or until ({zone_name(time.time())})").props("outlined dense stack-label type=datetime-local")
        until.classes("w-full")
        answer_buttons(dialog, "Block")

    def block() -> VerbAnswer:
        ends = _end_of_block(str(span.value), until.value or "")
        return view.console.jobs.job(name).answer("block", {"host": str(host.value), "replaces": True, **ends})

    done = None
    while done is None and await dialog:  # after a refusal once more, with what was chosen
        asked: dict[str, object] = {"host": host.value, "until": until.value or str(span.value)}
        done = await act(view, "block", name, asked, block)
    if not dialog.is_deleted:
        dialog.delete()
    if done:
        say(cell(done.facts.get("note", "")) or f"{cell(str(host.value))} is blocked")


def _end_of_block(span: str, until: str) -> Mapping[str, float | None]:
    """The arguments of `block`: until a moment, in the local zone, or else for a time. Raises: UsageError."""
    try:
        return {"until_s": datetime.fromisoformat(until).timestamp()} if until else {"for_s": _TIMES[span]}
    except ValueError as error:
        raise UsageError(f"{until}: give a date and a time, like 2027-01-31T14:00") from error
