"""Jobs whose queue is in memory: it ends with its process, and nobody may take the job that is left for one to go on with.

Such a job bears a mark from before its first seed is noted until the job is started afresh, begins another round, or has its
first seed noted with a queue that lasts.
"""

from __future__ import annotations

from pathlib import Path

from anabranch.crawler.jobs.durablefiles import replace_file, sync_folder
from anabranch.crawler.outcomes.errors import storage_errors

#: Stands from a crawl's good end until the job is opened again; beside the other mark, which no opening goes on from, it stays.
FINISHED_MARK = "finished"
#: Stands while the job's queue is, or was, in memory.
FORGETS_MARK = "queue-in-memory"


def note_forgetting(state: Path) -> None:
    """Keep that the job's queue will be gone. Raises: StorageError."""
    with storage_errors(state):
        state.mkdir(parents=True, exist_ok=True)
        replace_file(state / FORGETS_MARK, b"")


def note_lasting(state: Path) -> None:
    """Keep that the job's queue will stay; for a job that has no seed yet. Raises: StorageError."""
    with storage_errors(state):
        if forgets(state):
            (state / FORGETS_MARK).unlink()
            sync_folder(state)


def forgets(state: Path) -> bool:
    """The job's queue is, or was, in the memory of one process."""
    return (state / FORGETS_MARK).exists()


def is_finished(state: Path) -> bool:
    """The last run of the job left nothing to do."""
    return (state / FINISHED_MARK).exists()
