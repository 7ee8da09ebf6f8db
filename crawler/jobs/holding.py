"""Who holds a job: one process at a time, by a lock on a file of its state, until it lets go or ends, however it ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from anabranch.crawler.outcomes.errors import JobInUse, storage_errors
from anabranch.frontier.embedding.folder import LOCK_FILE, Held, holder, take_lock


def who_holds(directory: Path) -> tuple[bool, int | None]:
    """Whether a process holds the job right now, and its id if it has said so. Takes nothing, changes nothing."""
    with lock_to_look_at(directory) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True, holder(lock)
    return False, None


def until_free(directory: Path) -> None:
    """Wait until no process holds the job (blocks, woken by the system)."""
    with lock_to_look_at(directory) as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)


@contextlib.contextmanager
def lock_to_look_at(directory: Path) -> Iterator[int]:
    """The lock's descriptor, for reading."""
    with storage_errors(directory):
        lock = os.open(directory / "state" / LOCK_FILE, os.O_RDONLY)
        try:
            yield lock
        finally:
            os.close(lock)


def take_job_lock(directory: Path) -> int:
    """The lock's descriptor. Raises: JobInUse, OSError."""
    try:
        return take_lock(directory)
    except Held as held:
        raise JobInUse(directory, held.process) from held
