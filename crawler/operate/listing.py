"""The jobs below a folder or in a server's databases: a row of facts for each, for the cost of a question to its crawl."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from shutil import disk_usage

from anabranch.crawler.job.state import FAILED, is_finished, is_moved_aside, run_record, tags_of
from anabranch.crawler.outcomes.endings import FORESEEABLE, is_over
from anabranch.crawler.outcomes.errors import CrawlerError, UsageError
from anabranch.crawler.report.jobstatus import (
    FINISHED,
    KILLED,
    STOPPED,
    UNKNOWN,
    Facts,
    is_plain,
    undisturbed,
    with_run,
)
from anabranch.crawler.report.logtail import PROGRESS_LOG_FILE, ProgressLine, last_logged, last_run
from anabranch.frontier import kept_counters
from anabranch.frontier.jobfolder import STATE, STORE_FILE, has_store, is_job

#: The `line` of a job that no process has crawled yet.
NOT_BEGUN = "not started yet"
#: The `line` of a job whose last run was killed.
NOT_RUNNING = "not running"


#: What is known of a job that does not answer, or cannot be read.
_UNKNOWN: Facts = {"phase": UNKNOWN, "state": UNKNOWN, "desired_state": None, "ended": None}
_NOTHING = ProgressLine(0.0, 0, 0, 0, 0.0, 0.0, 0, 0)


def job_folders(folder: Path) -> list[Path]:
    """The jobs in a folder, by name, without those that were moved aside; the folder itself if it is a job."""
    if is_job(folder):
        return [folder]
    try:
        return sorted(
            entry for entry in folder.iterdir() if not is_moved_aside(entry) and entry.is_dir() and is_job(entry)
        )
    except OSError:
        return []


def listed_jobs(folder: Path) -> Iterator[Facts]:
    """The facts of each job in a folder; see `listed`."""
    for directory in job_folders(folder):
        yield listed(directory)


def listed_databases(url: str) -> Iterator[Facts]:
    """The facts of each job in the database that the URL names; without one, in all of the server.

    Raises: UsageError, FrontierError.
    """
    from anabranch.crawler.operate.finding import operated, refuse_password  # noqa: PLC0415 - most jobs have no database
    from anabranch.crawler.order.frontier import DATABASES  # noqa: PLC0415
    from anabranch.frontier import PostgresDatabase  # noqa: PLC0415

    if not url.startswith(DATABASES):
        raise UsageError(f"{url}: there is no such folder; name one that holds jobs, or postgresql://HOST")
    refuse_password(url)
    for place in PostgresDatabase(url).jobs():
        try:
            row = row_of(operated(place).status())
        except FORESEEABLE as error:
            name = place.rpartition("/")[2].partition("?")[0]
            row = {**_row_of_left(name, _NOTHING, str(error)), **_UNKNOWN, "free_disk_bytes": None}
        yield {**row, "folder": place}


def listed(directory: Path) -> Facts:
    """The row of one job. A stopped job is not opened: its facts are in its logs. A job that cannot be read is a row, too."""
    where = {"folder": str(directory), "free_disk_bytes": _free_bytes(directory), "tags": tags_of(directory)}
    with suppress(OSError, ValueError), undisturbed(directory) as is_free:
        if is_free and is_plain(directory):
            return {**_left(directory), **where}
    try:
        status = _of_crawl(directory)
    except FORESEEABLE as error:
        left = _left(directory, is_held=True)
        known = {} if _is_left_by_its_run(directory, str(left["state"])) else _UNKNOWN
        return {**left, **where, **known, "phase": UNKNOWN, "line": str(error)}
    return {**(_left(directory) if status is None else row_of(status)), **where}


def _is_left_by_its_run(directory: Path, state: str) -> bool:
    """A job that does not answer is as its last run left it, because another process has it open: a command, or a page.

    One that nobody holds has another fault; that its run was killed or failed is known all the same.
    """
    from anabranch.crawler.job.folder import who_holds  # noqa: PLC0415 - most stopped jobs need none of it

    try:
        record, (is_held, pid) = run_record(directory / STATE), who_holds(directory)
    except (OSError, CrawlerError):
        return False
    if record is None or (is_held and pid in {None, record.pid}):
        return False
    return is_held or state in {KILLED, FAILED}


def row_of(status: Facts) -> Facts:
    """The row of a job, from its status. Pure."""
    totals, elapsed_s = status["totals"] or {}, status["elapsed_s"]
    return {
        "job": status["job"],
        "folder": "",
        "phase": status["phase"],
        "is_finished": status["is_finished"],
        "pid": status["pid"],
        "pages": totals.get("done", 0),
        "queued": totals.get("pending", 0) + totals.get("retired", 0),
        "failed": totals.get("failed", 0),
        "pages_per_s": status["pages"] / elapsed_s if elapsed_s > 0 else 0.0,
        "free_disk_bytes": status["free_disk_bytes"],
        "last_trouble": status["last_trouble"],
        "tags": [],
        "state": status.get("state", status["phase"]),  # a crawl of an earlier version has neither
        "desired_state": status["desired_state"],
        "ended": status.get("ended"),
        "line": status["line"],
    }


def _of_crawl(directory: Path) -> Facts | None:
    """The status of a crawl, or of the rows of a job of several workers; None of a job that nobody crawls."""
    from anabranch.crawler.job.folder import refuse_foreign  # noqa: PLC0415 - most stopped jobs need none of it
    from anabranch.crawler.operate.finding import operated_folder  # noqa: PLC0415

    refuse_foreign(directory)
    return operated_folder(directory).listed()


def _left(directory: Path, *, is_held: bool = False) -> Facts:
    """The row of a job as its last run left it. `is_held`: a process may have its store open."""
    done = is_finished(directory / STATE)
    trouble = None if done else last_logged(directory, time.time())
    run = last_run(directory / "logs" / PROGRESS_LOG_FILE)
    # The log gets a line only now and then, so a killed crawl has done more than it says, and one may have got URLs since.
    is_current = is_held or done or (run.ending and not is_over(run.ending))
    progress = run.progress if is_current else _of_store(directory / STATE) or run.progress
    known = progress or _NOTHING
    ending = "" if is_over(run.ending) and known.queued else run.ending
    row = _row_of_left(directory.resolve().name, known, _line(progress, ending, is_done=done), is_done=done)
    row = {**row, "last_trouble": None if trouble is None else trouble._asdict()}
    with suppress(OSError):
        return with_run(row, directory)
    return row


def _row_of_left(job: str, known: ProgressLine, line: str, *, is_done: bool = False) -> Facts:
    """The row of a job that nobody crawls. Pure."""
    return {
        "job": job,
        "phase": STOPPED,
        "is_finished": is_done,
        "pid": None,
        "pages": known.downloaded,
        "queued": known.queued,
        "failed": known.failed,
        "pages_per_s": 0.0,
        "last_trouble": None,
        "tags": [],
        "state": FINISHED if is_done else STOPPED,
        "desired_state": FINISHED if is_done else STOPPED,
        "ended": None,
        "line": line,
    }


def _of_store(state: Path) -> ProgressLine | None:
    """The totals in the store of a job that no process holds; None without a store, or if it cannot be read."""
    with suppress(OSError), undisturbed(state.parent) as is_free:
        now = kept_counters(state / STORE_FILE) if is_free and has_store(state) else None
        return None if now is None else ProgressLine(0.0, now.accepted, now.queued, now.done, 0.0, 0.0, now.failed, 0)
    return None


def _line(progress: ProgressLine | None, ending: str, *, is_done: bool) -> str:
    """Return the line about a job that nobody crawls. Pure."""
    if progress is None:
        return NOT_BEGUN
    if is_done and not progress.downloaded:
        return "finished, and no URL was answered: the report `seeds` says why"
    return "finished" if is_done else ending or NOT_RUNNING


def _free_bytes(directory: Path) -> int | None:
    try:
        return disk_usage(directory).free
    except OSError:
        return None
