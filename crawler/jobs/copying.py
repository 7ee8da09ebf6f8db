"""Copies of jobs to look at: of those that can only be read (on a full disk, on a read-only medium, another user's).

Where a copy stands, and how its errors are told, is the same for that of a job whose host runs (`embedded`).
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from anabranch.crawler.jobs.holding import lock_to_look_at, who_holds
from anabranch.crawler.jobs.job import ORDER_FILE
from anabranch.crawler.jobs.writing import PAYLOADS
from anabranch.crawler.outcomes.endings import FORESEEABLE
from anabranch.crawler.outcomes.errors import STORAGE_ERRORS, DiskFull, JobInUse, NotPermitted, storage_error

#: What of a state folder is not copied, with SQLite's files beside it: it is large, and only a crawl reads it.
_LEFT = PAYLOADS

#: What opening a job's queue and filter may write.
_ROOM_BYTES = 8 << 20


def can_be_written(directory: Path) -> bool:
    """Whether this user may take the job: nobody can crawl it here otherwise."""
    state = directory / "state"
    return os.access(state, os.W_OK | os.X_OK) and (not (state / "lock").exists() or os.access(state / "lock", os.W_OK))


def has_room(directory: Path) -> bool:
    """The disk takes what opening the job writes: space, quota and limits of the file size allow it. Nothing of it stays."""
    try:
        with tempfile.TemporaryFile(dir=directory / "state") as probe:
            os.posix_fallocate(probe.fileno(), 0, _ROOM_BYTES)
    except OSError as error:
        return STORAGE_ERRORS.get(error.errno or 0) is not DiskFull
    return True


def refuse_unwritable(directory: Path) -> None:
    """Raises: NotPermitted if what is to be changed cannot be."""
    if not can_be_written(directory):
        raise NotPermitted(
            f"{directory}: the job cannot be written, so nothing can be changed in it; "
            "change the permissions, or copy the folder to where it can be written"
        )


@contextmanager
def to_be_read(directory: Path) -> Iterator[Path]:
    """The job's folder; or, if that cannot be written or its disk is full, a copy below the folder for temporary files.

    The copy is gone at the end, with what is changed in it.

    Opening a job's queue writes to it. So its order and its state are copied: as much room and time as these take. Logs are
    read where they are. Foreseeable errors that come out of the block name the job's own folder. Raises: JobInUse if somebody
    crawls it meanwhile, StorageError.
    """
    if can_be_written(directory) and has_room(directory):
        yield directory
        return
    with scratch_of(directory) as copy:
        with copying_errors(copy):
            _copy(directory, copy)
        with told_of(directory, copy):
            yield copy


@contextmanager
def scratch_of(directory: Path) -> Iterator[Path]:
    """Where a copy of the job may be made, below the system's folder for temporary files; it is gone at the end."""
    with tempfile.TemporaryDirectory(prefix="anabranch-") as scratch:
        yield Path(scratch).resolve() / directory.resolve().name


@contextmanager
def copying_errors(copy: Path) -> Iterator[None]:
    """What goes wrong with the disk while the copy is made. Raises: StorageError."""
    try:
        yield
    except OSError as error:
        is_full = STORAGE_ERRORS.get(error.errno or 0) is DiskFull  # of the copy, whatever file the system names
        raise storage_error(error, copy if is_full else Path(error.filename or copy), "TMPDIR") from error


@contextmanager
def told_of(directory: Path, copy: Path) -> Iterator[None]:
    """Foreseeable errors of the copy name the job's own folder."""
    try:
        yield
    except FORESEEABLE as error:
        error.args = (str(error).replace(str(copy), str(directory)),)
        raise


def _copy(directory: Path, copy: Path) -> None:
    """Copy what is read of the job, while nobody can begin to crawl it."""
    with lock_to_look_at(directory) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise JobInUse(directory, who_holds(directory)[1]) from error
        for part in (directory, *(share for share in directory.glob("shares/*") if (share / "state").is_dir())):
            _copy_part(part, copy / part.relative_to(directory))


def _copy_part(directory: Path, copy: Path) -> None:
    """A job's own, or one share's."""
    (copy / "state").mkdir(parents=True)
    for path in (directory / ORDER_FILE, *(directory / "state").rglob("*")):
        target = copy / path.relative_to(directory)
        if path.is_dir():
            target.mkdir()
        elif path.is_file() and not path.name.startswith(_LEFT):
            shutil.copyfile(path, target)
    logs = (directory / "logs").resolve()
    if logs.is_dir():
        (copy / "logs").symlink_to(logs)
