"""The page of the logs of a job: their last lines, and new ones as they are written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import re2  # type: ignore[import-untyped]
from nicegui import ui
from starlette.requests import Request

from anabranch.crawler.console.api import LOGS, Console
from anabranch.crawler.console.pages.shell import View, cut, every, looked, page, title, view_of
from anabranch.crawler.console.urlfacts import is_within
from anabranch.crawler.job.workerfolders import worker_folders
from anabranch.crawler.operate import counted
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

#: Whether a line is shown.
Fits = Callable[[str], bool]


def add_logs_page(console: Console) -> None:
    """Add the page at `/jobs/NAME/logs`."""

    @ui.page("/jobs/{name}/logs")
    async def logs(request: Request, name: str) -> None:
        view = view_of(console, request)
        with page(view, f"{name}: logs", name, "logs"):
            title("Logs")
            folders = await looked(lambda: log_folders(console.jobs.directory(name)))
            if folders:
                _Tail(view, folders).make()
            elif folders is not None:
                ui.label(
                    "The logs of this job are not in its folder here, but on the machines of its workers."
                ).classes("soft")


class _Tail:
    """One window on the logs of a job."""

    def __init__(self, view: View, folders: Mapping[str, Path]) -> None:
        self._view, self._folders = view, folders
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
            self._follows = ui.switch("Follow", value=True)
        self._fault = ui.label().classes("text-negative").props("role=alert")
        self._lines = ui.log(max_lines=MOST_LINES).classes("w-full lines").style("height:65vh;max-height:none")
        self._lines.props('tabindex=0 role=log aria-live=off aria-label="Lines of the log"')
        self._state = ui.label().classes("soft figure").props("role=status")
        every(_EVERY_S, self._follow)

    async def _begin(self) -> None:
        """Show the end of the log that is chosen now."""
        self._follower = None
        self._lines.clear()
        fits = self._fits()
        if fits is None:
            self._state.text = ""
            return
        path, most = self._path(), int(self._count.value)
        follower = self._begun = LogFollower(path)
        found = await looked(lambda: _end_of(path, follower, fits)[-most:])
        if found is not None and follower is self._begun:  # the choice is the same still
            self._lines.clear()
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

    def _push(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._lines.push(line or " ")


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
