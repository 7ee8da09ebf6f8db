"""Where a job of several processes has what: its shares below `shares/`, and the note that says how many there are."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from anabranch.crawler.job.folder import wait_until_free, who_holds
from anabranch.crawler.job.frontier import refuse_lost_queue
from anabranch.crawler.job.seeds import has_seeds
from anabranch.crawler.job.state import FINISHED_MARK, clear_queue_in_memory, division_of, is_finished
from anabranch.crawler.outcomes.errors import OrderError, StoreLost, UsageError, storage_errors
from anabranch.dedup.files.durable import replace_file, sync_folder
from anabranch.frontier.composition import has_store
from anabranch.frontier.jobfolder import is_job

SHARES = "shares"
_NOTE = "processes"


def processes_of(directory: Path) -> int:
    """How many processes the job is divided among; 1 for a job that is not. Raises: StorageError, StoreLost."""
    note = directory / "state" / _NOTE
    with storage_errors(note):
        if not note.exists():
            return 1
        said = note.read_text()
    try:
        return int(said)
    except ValueError as error:
        raise StoreLost(f"{note}: damaged; it must say how many processes the job has") from error


def shares_of(directory: Path) -> list[Path]:
    """The folders of a job's shares; none for a job that is not divided."""
    processes = processes_of(directory)
    return [directory / SHARES / str(share) for share in range(processes)] if processes > 1 else []


class ShareOf(NamedTuple):
    """A share, and whose it is."""

    share: int
    shares: int
    job: Path

    def __str__(self) -> str:
        return f"share {self.share} of a job of {self.shares} processes"


def share_of(directory: Path) -> ShareOf | None:
    """Which share of which job a folder is; None for a whole job. Raises: StorageError, StoreLost."""
    division = division_of(directory / "state")
    return None if division is None else ShareOf(division.share, division.shares, directory.resolve().parent.parent)


def refuse_share(directory: Path) -> None:
    """A share is crawled, and given seeds, with its job: alone it knows no seeds, and fetches whatever it is given.

    Raises: UsageError if the folder is a share's; StorageError, StoreLost.
    """
    share = share_of(directory)
    if share is not None:
        raise UsageError(f"{directory}: is {share}; name the job, {share.job}")


def unfinish_job_of(directory: Path) -> None:
    """A share is changed by itself: its job is finished no more, durably, so that `fresh` asks before it removes what is there.

    Nothing if the folder is a whole job's, or a share's that stands alone. Raises: StorageError, StoreLost.
    """
    share = share_of(directory)
    if share is None or directory.resolve() not in shares_of(share.job):
        return
    state = share.job / "state"
    with storage_errors(state):
        if is_finished(state):
            (state / FINISHED_MARK).unlink()
            sync_folder(state)


def await_orphans(directory: Path) -> None:
    """Processes of a parent that was killed may still be ending: wait until none holds a share (blocks).

    Not while somebody holds the job: whoever wants it hears of that.
    """
    if not is_job(directory) or who_holds(directory)[0]:
        return
    for share in shares_of(directory):
        if is_job(share):
            wait_until_free(share)


def settle_processes(directory: Path, processes: int) -> None:
    """Note the number of a new job; an old one keeps its own. The caller holds the job's lock.

    Raises: OrderError for another number than the job's; QueueLost; StoreLost if a share's queue is gone; StorageError.
    """
    state = directory / "state"
    before = processes_of(directory)
    is_begun = has_seeds(directory) or has_store(state)
    if processes != before and (is_begun or before > 1):
        if before == 1:
            refuse_lost_queue(state)  # no number of processes goes on with it
        begun = (
            f"with [crawl] processes = {before}, which divides its hosts for good" if before > 1 else "in one process"
        )
        raise OrderError(
            f"{directory}: the job was begun {begun}; go on with --processes {before}, "
            "or start over with --fresh, which moves it aside"
        )
    if processes > 1:
        if before == 1:
            with storage_errors(state):
                replace_file(state / _NOTE, f"{processes}\n".encode())
        clear_queue_in_memory(state)  # what a run that was to have its queue in memory, and got no seed, has left
    refuse_lost(directory)


def refuse_lost(directory: Path) -> None:
    """Raises: StoreLost if a share that has begun has no queue."""
    lost = [
        share for share in shares_of(directory) if (share / "order.toml").exists() and not has_store(share / "state")
    ]
    if lost:
        raise StoreLost(
            f"{lost[0] / 'state'}: the share's queue is missing or empty; restore it from a copy, "
            "or start over with --fresh, which moves it aside"
        )
