"""The jobs below a folder: a row of facts for each, which costs no more than a question to a running crawl."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from anabranch.crawler.job.folder import who_holds
from anabranch.crawler.job.state import is_finished
from anabranch.crawler.job.workerfolders import is_old_division
from anabranch.crawler.operate.contract import OperatedJob
from anabranch.crawler.operate.finding import operated_folder
from anabranch.crawler.operate.folderjob import EmbeddedJob, FolderJob
from anabranch.crawler.outcomes.endings import FORESEEABLE
from anabranch.crawler.outcomes.errors import CrawlerError
from anabranch.crawler.report.progress_log import PROGRESS_LOG_FILE, last_progress
from anabranch.crawler.report.troubles import last_logged
from anabranch.crawler.run.limits import free_bytes_of
from anabranch.crawler.run.status import STOPPED
from anabranch.crawler.run.verbs import Facts
from anabranch.frontier.jobfolder import STATE, is_job

#: The phase of a job whose process does not answer, or that cannot be read; its `line` has the reason.
UNKNOWN = "unknown"


def job_folders(folder: Path) -> list[Path]:
    """The jobs in a folder, by name; the folder itself if it is a job."""
    if is_job(folder):
        return [folder]
    try:
        return sorted(entry for entry in folder.iterdir() if entry.is_dir() and is_job(entry))
    except OSError:
        return []


def listed_jobs(folder: Path) -> Iterator[Facts]:
    """The facts of each job in a folder; see `listed`."""
    for directory in job_folders(folder):
        yield listed(directory)


def listed(directory: Path) -> Facts:
    """The facts of one job: those of a stopped one are in its logs, so nothing is opened. Raises nothing foreseeable."""
    facts: dict[str, Any] = {
        "job": directory.resolve().name,
        "folder": str(directory),
        "free_disk_bytes": _free_bytes(directory),
        "last_trouble": None,
        "pid": None,
        "pages_per_s": 0.0,
        "is_finished": is_finished(directory / STATE),
    }
    counts = {"pages": 0, "queued": 0, "failed": 0}
    try:
        job = operated_folder(directory)
        status = _of_crawl(job, directory)
    except FORESEEABLE as error:
        return {**facts, **counts, "phase": UNKNOWN, "line": str(error)}
    if status is not None:
        return {**facts, **_counts(status), "is_finished": status["is_finished"]}
    trouble = None if facts["is_finished"] else last_logged(directory, time.time())
    progress = last_progress(directory / "logs" / PROGRESS_LOG_FILE)
    if progress is not None:
        counts = {"pages": progress.downloaded, "queued": progress.queued, "failed": progress.failed}
    line = "finished" if facts["is_finished"] else "not running" if progress is not None else "has not begun"
    facts["last_trouble"] = None if trouble is None else trouble._asdict()
    return {**facts, **counts, "phase": STOPPED, "line": line}


def _of_crawl(job: OperatedJob, directory: Path) -> Facts | None:
    """The status of a crawl, or of the rows of a job of several workers; None of a job that nobody crawls."""
    if isinstance(job, EmbeddedJob):
        raise CrawlerError("belongs to a program that embeds the Frontier")
    if not isinstance(job, FolderJob):
        return job.status()
    if not is_old_division(directory) and not who_holds(directory)[0]:
        return None
    status = job.running_status()
    if status is None:
        raise CrawlerError("is being opened, closed or changed")
    return status


def _counts(status: Facts) -> Facts:
    """Those of a row, from a status."""
    totals, elapsed_s = status["totals"] or {}, status["elapsed_s"]
    return {
        "phase": status["phase"],
        "pid": status["pid"],
        "pages": totals.get("done", 0),
        "queued": totals.get("pending", 0) + totals.get("retired", 0),
        "failed": totals.get("failed", 0),
        "pages_per_s": status["pages"] / elapsed_s if elapsed_s > 0 else 0.0,
        "last_trouble": status["last_trouble"],
        "line": status["line"],
    }


def _free_bytes(directory: Path) -> int | None:
    try:
        return free_bytes_of(directory)
    except OSError:
        return None


def size_bytes(directory: Path) -> int:
    """What the files of a job occupy on the disk. Cost: 2 µs a file."""
    total = 0
    for place, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.lstat(os.path.join(place, name)).st_blocks * 512  # noqa: PTH118 - twice as fast
            except OSError:
                continue
    return total
