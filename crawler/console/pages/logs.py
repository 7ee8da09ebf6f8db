"""The page of the logs of a job: their last lines as text or in columns, new ones as they are written, and whole files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import re2  # type: ignore[import-untyped]
from nicegui import events, ui
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, Response

from anabranch.crawler.accounts.crawl_log import NotALogLine, iso_time, parse_crawl_log_line
from anabranch.crawler.console.api import LOGS
from anabranch.crawler.console.pages.shell import (
    Column,
    View,
    cell,
    cut,
    every,
    link_cell,
    looked,
    page,
    say,
    table,
    title,
    view_of,
)
from anabranch.crawler.console.routing import Console
from anabranch.crawler.console.urlfacts import is_within
from anabranch.crawler.job.workerfolders import worker_folders
from anabranch.crawler.operate import counted, duration_words
from anabranch.crawler.outcomes.errors import UsageError
from anabranch.crawler.report.logtail import LogFollower, last_lines

#: Lines that the page holds, and characters of a line that are shown and searched.
MOST_LINES, MOST_CHARS = 2000, 2000
#: Lines that are added at once; of more, the last ones.
_MOST_NEW = 500
#: What is read of the end of a log.
_TAIL_BYTES = 8 << 20
_EVERY_S = 1.0
_SHOWN = (100, 500, MOST_LINES)
#: The folder of the job itself.
_JOB = "job"

#: RE2 takes a time that grows with the line, whatever the pattern; `re` may never end.
_PATTERNS = re2.Options()
_PATTERNS.log_errors = False

#: Sends the first URL of a line that is clicked, unless a part of it is being selected.
_URL_OF_LINE = r"""event => {
  const found = event.target.innerText.match(/https?:\/\/[^\s"]+/);
  if (found && !String(getSelection())) emit(found[0]);
}"""

#: Whether a line is shown.
Fits = Callable[[str], bool]


def add_logs_page(console: Console, app: Starlette) -> None:
    """Add the page at `/jobs/NAME/logs`, and a route below it that a whole log is downloaded from."""

    def file(request: Request) -> Response:
        job, asked = request.path_params["name"], request.query_params
        directory = console.jobs.directory(job)
        folder, log = log_folders(directory).get(asked.get("of", _JOB)), asked.get("log", "")
        if directory is None or folder is None or log not in LOGS or not is_within(directory, folder / log):
            raise UsageError(f"{job}: there is no such log here")
        if not (folder / log).is_file():
            raise UsageError(f"{log}: the log does not exist yet")
        return FileResponse(folder / log, media_type="text/plain; charset=utf-8", filename=f"{job}-{log}")

    app.add_route("/jobs/{name}/logs/file", file)

    @ui.page("/jobs/{name}/logs")
    async def logs(request: Request, name: str) -> None:
        view = view_of(console, request)
        with page(view, f"{name}: logs", name, "logs", zone="Times are UTC, as in the logs."):
            title("Logs")
            folders = await looked(lambda: log_folders(console.jobs.directory(name)))
            if folders:
                _Tail(view, name, folders).make()
            elif folders is not None:
                ui.label(
                    "The logs of this job are not in its folder here, but on the machines of its workers."
                ).classes("soft")


class _Tail:
    """One window on the logs of a job."""

    def __init__(self, view: View, name: str, folders: Mapping[str, Path]) -> None:
        self._view, self._name, self._folders = view, name, folders
        self._follower: LogFollower | None = None  #: of the lines that are shown
        self._begun: LogFollower | None = None  #: of the log that was chosen last

    def make(self) -> None:
        """Make the parts, and show lines from now on."""
        with ui.row().classes("w-full items-center gap-2"):
            self._log = ui.select(list(LOGS), value=LOGS[0], label="Log", on_change=self._begin).props("outlined dense")
            self._of = ui.select(
                list(self._folders), value=next(iter(self._folders)), label="Written by", on_change=self._begin
            ).props("outlined dense")
            self._of.visible = len(self._folders) > 1
            self._count = ui.select(list(_SHOWN), value=_SHOWN[0], label="Last lines", on_change=self._begin)
            self._count.props("outlined dense").style("min-width:7rem")
            self._text = ui.input("Filter", on_change=self._begin).props("outlined dense clearable debounce=400")
            self._text.classes("col").style("min-width:10rem")
            self._is_pattern = ui.switch("Regular expression", on_change=self._begin)
        with ui.row().classes("w-full items-center gap-2"):
            self._follows = ui.switch("Follow", value=True)
            self._wraps = ui.switch("Wrap", value=True, on_change=self._wrap)
            self._in_columns = ui.switch("Columns", on_change=self._begin)
            ui.button("Download", icon="download", on_click=self._download).props("outline dense")
            self._hint = ui.label("Click a line to explain its URL.").classes("soft gt-xs")
        self._fault = ui.label().classes("text-negative").props("role=alert")
        self._lines = ui.log(max_lines=MOST_LINES).classes("w-full lines").style("height:65vh;max-height:none")
        self._lines.props('tabindex=0 role=log aria-live=off aria-label="Lines of the log"')
        self._lines.on("click", self._explain, js_handler=_URL_OF_LINE)
        self._place = ui.column().classes("w-full")
        self._rows: ui.table | None = None  #: of the log that is shown in columns
        self._state = ui.label().classes("soft figure").props("role=status")
        every(_EVERY_S, self._follow)

    async def _begin(self) -> None:
        """Show the end of the log that is chosen now."""
        self._follower = None
        self._begin_view()
        fits = self._fits()
        if fits is None:
            self._state.text = ""
            return
        path, most = self._path(), int(self._count.value)
        follower = self._begun = LogFollower(path)
        found = await looked(lambda: _end_of(path, follower, fits)[-most:])
        if found is not None and follower is self._begun:  # the choice is the same still
            self._begin_view()
            self._push(found)
            self._state.text = counted(len(found), "line") if found else _why_empty(path)
            self._follower = follower

    async def _follow(self) -> None:
        if self._follower is None:
            if not self._fault.text:
                await self._begin()
            return
        follower, fits = self._follower, self._fits()
        if not self._follows.value or fits is None:
            return
        found = await looked(lambda: fitting(follower.new_lines(), fits))
        if found and follower is self._follower:
            skipped = len(found) - _MOST_NEW
            self._push([*([f"… {skipped:,} lines are skipped"] if skipped > 0 else []), *found[-_MOST_NEW:]])
            self._state.text = f"{len(found):,} new in the last second"

    def _begin_view(self) -> None:
        """Show no line yet, in columns or as text."""
        columns = COLUMNS.get(str(self._log.value))
        self._in_columns.set_enabled(columns is not None)
        is_table = bool(self._in_columns.value) and columns is not None
        self._lines.clear()
        self._place.clear()
        self._rows = None
        self._lines.visible = self._hint.visible = not is_table
        self._wraps.set_enabled(not is_table)
        if is_table and columns is not None:
            with self._place:
                self._rows = table(columns.heads, "id", "The log in columns, the newest line first")
                self._rows.add_slot("body-cell-url", link_cell("url"))

    def _wrap(self) -> None:
        self._lines.style("white-space:pre-wrap" if self._wraps.value else "white-space:pre")
        self._lines.classes(
            add="" if self._wraps.value else "unwrapped", remove="unwrapped" if self._wraps.value else ""
        )

    def _explain(self, event: events.GenericEventArguments) -> None:
        ui.navigate.to(self._view.path("jobs", self._name, "url", url=str(event.args)[:MOST_CHARS]))

    def _download(self) -> None:
        asked = {"log": str(self._log.value), "of": str(self._of.value)}
        if not self._path().is_file():
            say(_why_empty(self._path()), is_bad=True)
            return
        ui.navigate.to(self._view.path("jobs", self._name, "logs", "file", **asked))

    def _path(self) -> Path:
        return self._folders[str(self._of.value)] / str(self._log.value)

    def _fits(self) -> Fits | None:
        """The filter; None if it is wrong, which is shown."""
        try:
            found = line_filter(self._text.value or "", is_pattern=bool(self._is_pattern.value))
        except UsageError as error:
            self._fault.text = str(error)
            return None
        self._fault.text = ""
        return found

    def _push(self, lines: Sequence[str]) -> None:
        columns = COLUMNS.get(str(self._log.value))
        if self._rows is not None and columns is not None:
            first = max((int(row["id"]) for row in self._rows.rows), default=0) + 1
            new = [
                {"id": number, "href": self._view.href("jobs", self._name, "url", url=cells["url"]), **cells}
                for number, cells in enumerate(filter(None, map(columns.cells, lines)), first)
            ]
            self._rows.rows = [*reversed(new), *self._rows.rows][:MOST_LINES]
            return
        for line in lines:
            self._lines.push(line or " ")


class LogColumns(NamedTuple):
    """The columns of a log whose lines have fields."""

    heads: Sequence[Column]
    cells: Callable[[str], dict[str, str] | None]  #: of a line; None for one that has no fields


def crawl_log_cells(line: str) -> dict[str, str] | None:
    """The cells of a line of crawl.log. Pure."""
    try:
        entry = parse_crawl_log_line(line.encode("ascii", "replace"))
    except NotALogLine:
        return None
    took = "" if entry.start_s is None or entry.end_s is None else duration_words(entry.end_s - entry.start_s)
    return {
        "time": iso_time(entry.logged_s),
        "status": str(entry.status),
        "url": cut(entry.url, 500),
        "size": "" if entry.size_bytes is None else f"{entry.size_bytes:,}",
        "took": took,
        "type": cell(entry.mime),
        "hops": cell(entry.hops),
        "notes": cell(", ".join(entry.annotations)),
    }


def error_cells(line: str) -> dict[str, str] | None:
    """The cells of a line of errors.jsonl. Pure."""
    try:
        fields = json.loads(line)
        return {
            "time": cell(str(fields["time"])),
            "status": cell(str(fields["status"])),
            "url": cut(str(fields["url"]), 500),
            "reason": cell(str(fields["message"] or fields["words"])),
            "attempt": cell(str(fields.get("attempt", ""))),
            "next": "given up" if fields["final"] else "retry",
        }
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


#: Logs that can be shown in columns.
COLUMNS: Mapping[str, LogColumns] = {
    "crawl.log": LogColumns(
        (
            Column("time", "Time", is_whole=True),
            Column("status", "Status", is_number=True),
            Column("url", "URL", is_wide=True),
            Column("size", "Bytes", is_number=True),
            Column("took", "Took", is_number=True),
            Column("type", "Type"),
            Column("hops", "Hops"),
            Column("notes", "Notes", is_sortable=False),
        ),
        crawl_log_cells,
    ),
    "errors.jsonl": LogColumns(
        (
            Column("time", "Time", is_whole=True),
            Column("status", "Status", is_number=True),
            Column("url", "URL", is_wide=True),
            Column("reason", "Reason", is_wide=True),
            Column("attempt", "Attempt", is_number=True),
            Column("next", "Next"),
        ),
        error_cells,
    ),
}


def _why_empty(path: Path) -> str:
    """Why no line of a log is shown."""
    try:
        return "no line fits the filter" if path.stat().st_size else "the log is empty"
    except OSError:
        return "the log does not exist yet"


def log_folders(directory: Path | None) -> dict[str, Path]:
    """Map the job and its workers on this machine to their folders of logs. Links out of the job are left out."""
    if directory is None:
        return {}
    named = {_JOB: directory} | {f"worker {folder.name}": folder for folder in worker_folders(directory)}
    return {whose: folder / "logs" for whose, folder in named.items() if is_within(directory, folder / "logs")}


def _end_of(path: Path, follower: LogFollower, fits: Fits) -> list[str]:
    """The last lines of a log; the follower goes on behind them. Raises: UsageError for a link out of its folder."""
    if not is_within(path.parent, path):
        raise UsageError(f"{path.name} is a link out of the job's folder, which the console does not follow")
    follower.new_lines()
    return fitting(last_lines(path, _TAIL_BYTES), fits)


def line_filter(text: str, *, is_pattern: bool) -> Fits:
    """Whether a line holds the text, or what the regular expression finds. Raises: UsageError if it is none. Pure."""
    if not is_pattern:
        return lambda line: text in line
    try:
        pattern = re2.compile(text, _PATTERNS)
    except re2.error as error:
        raise UsageError(f"{text!r} is not a regular expression: {error.args[0].decode()}") from error
    return lambda line: pattern.search(line) is not None


def fitting(lines: Iterable[str], fits: Fits) -> list[str]:
    """The lines that fit, as text that is safe to show, cut at `MOST_CHARS`. Pure."""
    return [cut(line, MOST_CHARS) for line in lines if fits(line[:MOST_CHARS])]
