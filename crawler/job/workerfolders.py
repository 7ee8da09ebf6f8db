"""The paths of a job that several processes crawl: the workers' folders, the shared file, marks of an older division."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

from anabranch.crawler.job.folder import wait_until_free, who_holds
from anabranch.crawler.job.orderfile import last_order_file
from anabranch.crawler.job.state import OLD_NUMBER, SCRATCH, WORKERS
from anabranch.crawler.order.loading import order_of
from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.order.sources import job_layer
from anabranch.crawler.outcomes.errors import OrderError, UsageError
from anabranch.frontier.jobfolder import STATE, STORE_FILE, has_store, is_job

#: In the folder of a division: the mark that it is complete.
COMPLETE = "complete"


def worker_folders(directory: Path) -> list[Path]:
    """The folders of all workers that the job ever had, by their number."""
    folders = [folder for folder in directory.glob(f"{WORKERS}/*") if folder.name.isdecimal()]
    return sorted(folders, key=lambda folder: int(folder.name))


def last_order(directory: Path) -> CrawlOrder | None:
    """The order of the job's last run; None if the file is missing or cannot be read."""
    try:
        file = last_order_file(directory)
        return None if file is None else order_of([job_layer(file)])
    except OrderError:
        return None


def shared_file(directory: Path) -> Path | None:
    """The file that the processes of a job share; None for a job of another kind."""
    if not (is_job(directory) and has_store(directory / STATE)):
        return None
    order = last_order(directory)
    if order is None or not order.frontier.is_shared or order.frontier.is_in_database:
        return None
    return directory / STATE / STORE_FILE


def refuse_worker(directory: Path) -> None:
    """Raises: UsageError if the folder is that of a worker, which crawls with its job alone."""
    place = directory.resolve()
    if place.parent.name == WORKERS and is_job(place) and is_job(place.parent.parent):
        raise UsageError(f"{directory}: is the folder of a worker; name its job, {place.parent.parent}")


def is_old_division(directory: Path) -> bool:
    """The job was divided by an earlier version, or a process was killed while it divided it."""
    state = directory / STATE
    return is_job(directory) and ((state / OLD_NUMBER).exists() or (state / SCRATCH / COMPLETE).exists())


def refuse_old_division(directory: Path) -> None:
    """Raises: UsageError for such a job."""
    if is_old_division(directory):
        raise UsageError(
            f"{directory}: the division of this job among processes is that of an earlier version, or was interrupted; "
            f"`anabranch divide {directory}` completes it, as a crawl does"
        )


def await_orphans(directory: Path) -> None:
    """Processes of a parent that was killed may still be ending: wait until none holds its folder (blocks).

    A process that somebody has stopped cannot end, so it is killed. No other process than the caller may hold the job.
    """
    for folder in filter(is_job, worker_folders(directory)):
        _, pid = who_holds(folder)
        if pid is not None and is_stopped(pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_until_free(folder)


def await_orphans_of_free(directory: Path) -> None:
    """Call `await_orphans`, unless another process holds the job: then taking its lock fails and says why."""
    if is_job(directory) and not who_holds(directory)[0]:
        await_orphans(directory)


def is_stopped(pid: int) -> bool:
    """Somebody has stopped the process (SIGSTOP, a debugger). False on a system without /proc."""
    with suppress(OSError, IndexError):
        # The name before the state may have any characters.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in {"T", "t"}
    return False
