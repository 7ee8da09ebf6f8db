"""The part of a job's overview about its schedule: the next run, the last ones, and notices that were not delivered."""

from __future__ import annotations

import time
from collections.abc import Sequence

from nicegui import ui

from anabranch.crawler.console.pages.shell import Column, View, cut, every, heading, looked, table
from anabranch.crawler.operate import Facts, clock_words, counted, moment_words

#: Seconds between two looks.
_EVERY_S = 20.0
_RUNS = (
    Column("due", "Due"),
    Column("outcome", "What came of it", is_wide=True, is_sortable=False),
    Column("missed", "Missed before it", is_sortable=False),
)
_NOTICES = (
    Column("at", "Run ended"),
    Column("to", "To", is_sortable=False),
    Column("error", "Last failure", is_wide=True, is_sortable=False),
    Column("next", "Next try", is_sortable=False),
)


class ScheduleSection:
    """The schedule of a job in one window; it is hidden while there is nothing to say."""

    def __init__(self, view: View, name: str) -> None:
        self._view, self._name = view, name

    def make(self) -> None:
        """Make the parts, and keep them up to date."""
        with ui.element("section").classes("w-full").props('aria-label="Schedule"') as self._section:
            heading("Schedule")
            self._line = ui.label().classes("figure")
            self._runs = table(_RUNS, "id", "Scheduled runs").props("hide-pagination")
            self._caption = ui.label("Notices of ends that were not delivered").classes("soft")
            self._notices = table(_NOTICES, "id", "Notices that were not delivered").props("hide-pagination")
        self._section.visible = False
        every(_EVERY_S, self._redraw)

    async def _redraw(self) -> None:
        keeper = self._view.console.keeper

        def find() -> tuple[Facts | None, Sequence[Facts]]:
            return (None, ()) if keeper is None else (keeper.schedule(self._name), keeper.notices(self._name))

        found = await looked(find)
        if found is None:
            return
        (facts, notices), now_s = found, time.time()
        self._section.visible = facts is not None or bool(notices)
        self._line.text = "" if facts is None else schedule_line(facts, now_s)
        self._runs.rows = [] if facts is None else [run_row(run, now_s) for run in facts["runs"]]
        self._runs.visible = bool(self._runs.rows)
        self._notices.rows = [notice_row(one, now_s) for one in notices]
        self._caption.visible = self._notices.visible = bool(notices)


def schedule_line(facts: Facts, now_s: float) -> str:
    """When the job is due, and what was missed. Pure."""
    when = "never again" if facts["next_s"] is None else moment_words(facts["next_s"], now_s)
    zone = "" if facts["schedule"].startswith("every ") else f" ({facts['zone']})"
    missed = f"; {counted(facts['missed'], 'run')} missed" if facts["missed"] else ""
    begins = "another round" if facts["starts"] == "again" else "what is queued"
    return cut(f"{facts['schedule']}{zone}, {begins}: next run {when}{missed}")


def run_row(run: Facts, now_s: float) -> dict[str, str]:
    """A scheduled run as a row of the table. Pure."""
    words = {"still running": "left out: the run before it still ran", "failed": f"not started: {run['words']}"}
    outcome = words.get(run["outcome"]) or str(run["outcome"])
    return {
        "id": str(run["due_s"]), "due": clock_words(run["due_s"], now_s), "outcome": cut(outcome, 300),
        "missed": str(run["missed"] or ""),
    }  # fmt: skip


def notice_row(notice: Facts, now_s: float) -> dict[str, str]:
    """A notice that was not delivered as a row of the table. Pure."""
    next_s = notice["next_s"]
    again = f"given up after {counted(notice['tries'], 'try', 'tries')}"
    return {
        "id": f"{notice['id']}.{notice['to']}", "at": clock_words(notice["made_s"], now_s), "to": notice["to"],
        "error": cut(notice["error"], 300), "next": again if next_s is None else moment_words(next_s, now_s),
    }  # fmt: skip
