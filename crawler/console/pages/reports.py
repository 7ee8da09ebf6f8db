"""The reports of a job, as tables and as downloads."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence

from nicegui import ui
from starlette.requests import Request

from anabranch.crawler.console.pages.shell import (
    Column,
    View,
    cut,
    keep_in_address,
    link_cell,
    looked,
    page,
    table,
    title,
    view_of,
)
from anabranch.crawler.console.routing import Console
from anabranch.crawler.export.tables import harmless
from anabranch.crawler.operate import Facts
from anabranch.crawler.report.reports import MOST_ROWS, REPORTS, ROWS_BY_DEFAULT
from anabranch.crawler.report.rounds import CHANGES, ROUNDS
from anabranch.crawler.report.table import json_facts, report_of, text_lines

#: The reports, the first one first, and the comparison of two rounds.
_NAMES = [*REPORTS, ROUNDS]
#: JavaScript that formats a cell; sorting compares the raw numbers.
_SHOWN = "value => typeof value === 'number' ? value.toLocaleString('en', {maximumFractionDigits: 3}) : value ?? '–'"


def add_reports_page(console: Console) -> None:
    """Add the page at `/jobs/NAME/reports`, with the report that `?report=` names."""

    @ui.page("/jobs/{name}/reports")
    async def reports(request: Request, name: str) -> None:
        view, asked = view_of(console, request), request.query_params.get("report", "")
        with page(view, f"Reports · {name}", name, "reports"):
            title("Reports")
            _Report(view, name, asked if asked in _NAMES else next(iter(_NAMES))).make()


class _Report:
    """The reports in one window."""

    def __init__(self, view: View, name: str, report: str) -> None:
        self._view, self._name, self._first = view, name, report

    def make(self) -> None:
        """Make the parts, and show the first report."""
        with ui.row().classes("w-full items-center gap-2"):
            self._report = ui.select(_NAMES, value=self._first, label="Report", on_change=self._show)
            self._report.props("outlined dense").style("min-width:14rem")
            self._filter = ui.input("Filter").props("outlined dense clearable")
            ui.button("Refresh", icon="refresh", on_click=self._show).props("outline dense")
            ui.space()
            ui.button("Text", icon="download", on_click=lambda: self._download("txt")).props("outline dense")
            ui.button("CSV", icon="download", on_click=lambda: self._download("csv")).props("outline dense")
            ui.button("JSON", icon="download", on_click=lambda: self._download("json")).props("outline dense")
        with ui.row().classes("w-full items-center gap-2") as self._of_rounds:
            self._before = ui.number("From round", min=1, precision=0, on_change=self._show)
            self._after = ui.number("To round", min=1, precision=0, on_change=self._show)
            for one in (self._before, self._after):
                one.props("outlined dense debounce=500 clearable").style("width:8rem")
            self._change = ui.select(["", *CHANGES], value="", label="Change", on_change=self._show)
            self._change.props("outlined dense").style("min-width:8rem")
        self._of_rounds.visible = self._first == ROUNDS
        self._place = ui.column().classes("w-full")
        ui.timer(0.05, self._show, once=True)

    async def _show(self) -> None:
        asked = self._asked
        keep_in_address(report=asked[0])
        self._of_rounds.visible = asked[0] == ROUNDS
        self._place.clear()
        with self._place:
            ui.spinner().props('aria-label="looking"')
        found = await looked(lambda: self._find(asked, ROWS_BY_DEFAULT))
        if asked != self._asked:
            return
        self._place.clear()
        if found is None:
            return
        facts, words = found
        with self._place:
            if words:
                ui.label(words).classes("figure").props('role=status aria-label="Comparison"')
            made = report_table(facts, asked[0])
            made.bind_filter_from(self._filter, "value", lambda text: text or "")
            if asked[0] == ROUNDS:
                made.add_slot("body-cell-c1", link_cell("c1"))
                for row in made.rows:
                    row["href"] = self._view.href("jobs", self._name, "url", url=str(row["c1"]))
            if facts.get("more"):
                shown = f"Only the first {ROWS_BY_DEFAULT:,} rows are shown; a download has up to {MOST_ROWS:,}."
                ui.label(shown).classes("soft")

    @property
    def _asked(self) -> tuple[str, int | None, int | None, str]:
        """The report; and the rounds and the change, which only the comparison of rounds has."""
        before, after = (None if one.value is None else int(one.value) for one in (self._before, self._after))
        return str(self._report.value), before, after, str(self._change.value or "")

    def _find(self, asked: tuple[str, int | None, int | None, str], limit: int) -> tuple[Facts, str]:
        """A report as its JSON, and a line about it (blocks)."""
        report, before, after, change = asked
        jobs = self._view.console.jobs
        if report != ROUNDS:
            return jobs.job(self._name).report({"name": report, "limit": limit}), ""
        found = jobs.compare_rounds(self._name, before, after, change=change, limit=limit)
        return {**json_facts(found.table, limit), "more": found.more}, found.line

    async def _download(self, form: str) -> None:
        asked = self._asked
        found = await looked(lambda: self._find(asked, MOST_ROWS))
        if found is not None:
            ui.download.content(written(found[0], form), f"{self._name}-{asked[0]}.{form}")


def report_table(facts: Facts, caption: str) -> ui.table:
    """A report as a sortable table."""
    heads, rows = report_rows(facts)
    columns = []
    for number, head in enumerate(heads):
        name = f"c{number}"
        is_number = "heads" in facts and any(isinstance(row[name], int | float) for row in rows)
        columns.append(Column(name, head, is_number=is_number))
    made = table(columns, "row", caption)
    for column in made.columns:
        column[":format"] = _SHOWN
        column.pop(":sort", None)  # the cells hold numbers, not texts
    made.rows = rows
    made.update()
    return made


def report_rows(facts: Facts) -> tuple[tuple[str, ...], list[dict[str, object]]]:
    """Column heads, and rows with the keys c0, c1, …: a head may be a text from a site. Texts are made printable. Pure."""
    heads = tuple(facts["heads"]) if "heads" in facts else ("name", "value")
    listed = [[row[head] for head in heads] for row in facts["rows"]] if "heads" in facts else facts["facts"].items()
    rows = [
        {
            "row": number,
            **{f"c{place}": cut(cell) if isinstance(cell, str) else cell for place, cell in enumerate(cells)},
        }
        for number, cells in enumerate(listed)
    ]
    return heads, rows


def written(facts: Facts, form: str) -> bytes:
    """A report as `anabranch report` prints it: `txt`, or `json`; or as `csv`. Pure."""
    if form == "csv":
        table = report_of(dict(facts))
        return csv_text(table.heads or ("name", "value"), table.rows)
    text = json.dumps(facts, indent=2) + "\n" if form == "json" else "".join(text_lines(report_of(dict(facts))))
    return text.encode("utf-8", "backslashreplace")


def csv_text(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> bytes:
    """A table as CSV in UTF-8 (RFC 4180). A text that a spreadsheet would take for a formula gets an apostrophe. Pure."""
    text = io.StringIO(newline="")
    lines = csv.writer(text)
    for row in (heads, *rows):
        lines.writerow([harmless(cell) if isinstance(cell, str) else "" if cell is None else cell for cell in row])
    return text.getvalue().encode("utf-8", "backslashreplace")
