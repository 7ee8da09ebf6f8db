"""The reports of a job, as tables and as downloads."""

from __future__ import annotations

import json

from nicegui import ui
from starlette.requests import Request

from anabranch.crawler.console.api import Console
from anabranch.crawler.console.pages.shell import Column, View, cut, looked, page, table, title, view_of
from anabranch.crawler.operate import Facts
from anabranch.crawler.report.reports import MOST_ROWS, REPORTS, ROWS_BY_DEFAULT
from anabranch.crawler.report.table import report_of, text_lines

#: JavaScript that formats a cell; sorting compares the raw numbers.
_SHOWN = "value => typeof value === 'number' ? value.toLocaleString('en', {maximumFractionDigits: 3}) : value ?? '–'"


def add_reports_page(console: Console) -> None:
    """Add the page at `/jobs/NAME/reports`, with the report that `?report=` names."""

    @ui.page("/jobs/{name}/reports")
    async def reports(request: Request, name: str) -> None:
        view, asked = view_of(console, request), request.query_params.get("report", "")
        with page(view, f"Reports · {name}", name, "reports"):
            title("Reports")
            _Report(view, name, asked if asked in REPORTS else next(iter(REPORTS))).make()


class _Report:
    """The reports in one window."""

    def __init__(self, view: View, name: str, report: str) -> None:
        self._view, self._name, self._first = view, name, report

    def make(self) -> None:
        """Make the parts, and show the first report."""
        with ui.row().classes("w-full items-center gap-2"):
            self._report = ui.select(list(REPORTS), value=self._first, label="Report", on_change=self._show)
            self._report.props("outlined dense").style("min-width:14rem")
            self._filter = ui.input("Filter").props("outlined dense clearable")
            ui.button("Refresh", icon="refresh", on_click=self._show).props("outline dense")
            ui.space()
            ui.button("Text", icon="download", on_click=lambda: self._download("txt")).props("outline dense")
            ui.button("JSON", icon="download", on_click=lambda: self._download("json")).props("outline dense")
        self._place = ui.column().classes("w-full")
        ui.timer(0.05, self._show, once=True)

    async def _show(self) -> None:
        report = str(self._report.value)
        self._place.clear()
        with self._place:
            ui.spinner().props('aria-label="looking"')
        facts = await looked(lambda: self._ask(report, ROWS_BY_DEFAULT))
        if report != self._report.value:
            return
        self._place.clear()
        if facts is not None:
            with self._place:
                made = report_table(facts, report)
                made.bind_filter_from(self._filter, "value", lambda text: text or "")
                if facts.get("more"):
                    shown = f"Only the first {ROWS_BY_DEFAULT:,} rows are shown; a download has up to {MOST_ROWS:,}."
                    ui.label(shown).classes("soft")

    def _ask(self, report: str, limit: int) -> Facts:
        return self._view.console.jobs.job(self._name).report({"name": report, "limit": limit})

    async def _download(self, form: str) -> None:
        report = str(self._report.value)
        facts = await looked(lambda: self._ask(report, MOST_ROWS))
        if facts is not None:
            ui.download.content(written(facts, form), f"{self._name}-{report}.{form}")


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
    """A report as `anabranch report` prints it: `txt`, or `json`. Pure."""
    text = json.dumps(facts, indent=2) + "\n" if form == "json" else "".join(text_lines(report_of(dict(facts))))
    return text.encode("utf-8", "backslashreplace")
