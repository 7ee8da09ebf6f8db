"""The folder of a host program's job: refuses folders of other jobs, and removes only what was written here.

The mark of a host program's job (`format.json`, see `frontier.jobfolder`) is written first, after the lock, and removed last.
So a process may be killed at any point: a folder with an order or a state and without that mark belongs to another program,
and is not changed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from anabranch.dedup.files.durable import UNFINISHED, replace_file
from anabranch.dedup.files.locks import LockHeld
from anabranch.frontier.errors import FormatMismatch, StoreInUse, StoreUnavailable
from anabranch.frontier.jobfolder import (
    FORMAT_FILE,
    LEASES_FILE,
    LOCK_FILE,
    ORDER_FILE,
    SEEN_FOLDER,
    STATE,
    STORE_FILE,
    format_text,
    is_being_made,
    is_embedded,
    is_job,
    is_readable,
    make_folders,
    missing_folders,
    remove_made,
    take_lock,
)

#: The files of the store: its database, and those that SQLite and the owner's mark add.
_STORE_FILES = tuple(f"{STORE_FILE}{ending}" for ending in ("", "-wal", "-shm", "-journal", ".owner", ".seal"))
#: How often taking a folder is tried while others remove it.
_TRIES = 10
_UNWRITABLE = "choose a folder that can be written"


class HostFolder:
    """A job's folder, locked until `let_go` or the end of the process. Every method blocks."""

    def __init__(self, path: Path) -> None:
        """Take the folder, or make it. Raises: FormatMismatch if it is another job's, StoreInUse, StoreUnavailable."""
        _refuse_strangers(path)
        self.path = path
        self.state = path / STATE
        self._lock: int | None = None
        self._is_new = False
        with _translated(path, _UNWRITABLE):
            self._made = missing_folders(path)
        try:
            self._lock = _lock(path)
            _refuse_strangers(path)  # another process may have made a job of it before the lock was taken
            self._is_new = not os.path.lexists(self.state / FORMAT_FILE)
            with _translated(path, _UNWRITABLE):
                _replace(self.state / FORMAT_FILE, format_text(embedded=True))
        except BaseException:
            self.fail()
            raise

    @property
    def leases(self) -> Path:
        """The file of the lease board."""
        return self.state / LEASES_FILE

    def describe(self, order: str) -> None:
        """Write the order of the job. Raises: StoreUnavailable."""
        with _translated(self.path, "make room, or choose another folder"):
            _replace(self.path / ORDER_FILE, order.encode())

    def forget(self) -> None:
        """Remove the rows, then the filter; the folder stays a job. Raises: StoreUnavailable."""
        with _translated(self.path, "it cannot be emptied"):
            for name in _STORE_FILES:
                (self.state / name).unlink(missing_ok=True)
            if (self.state / SEEN_FOLDER).exists():
                shutil.rmtree(self.state / SEEN_FOLDER)

    def remove(self) -> None:
        """Remove all that was written here, and the folder if it is empty then. Idempotent. Raises: StoreUnavailable."""
        if self._lock is None:
            return
        self._remove_files()
        with suppress(OSError):  # it holds other files, or another process makes a job of it again
            self.state.rmdir()
            self.path.rmdir()

    def _remove_files(self) -> None:
        self.forget()
        order, mark = self.path / ORDER_FILE, self.state / FORMAT_FILE
        with _translated(self.path, "it cannot be removed"):
            for file in (order, self.leases, mark, self.state / LOCK_FILE):
                file.with_name(file.name + UNFINISHED).unlink(missing_ok=True)
                file.unlink(missing_ok=True)

    def fail(self) -> None:
        """Release it after a failed start. A job that this start made is removed; an older one is not changed."""
        if self._is_new:
            with suppress(StoreUnavailable):
                self._remove_files()
        remove_made(self._made)
        self.let_go()

    def let_go(self) -> None:
        """Release the folder. Idempotent."""
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)


def _refuse_strangers(folder: Path) -> None:
    """Raises: FormatMismatch if the folder holds another job, or what may be one; StoreUnavailable."""
    if is_embedded(folder):
        if not is_readable(folder):
            raise FormatMismatch(
                f"{folder}: the job is in the format of a newer version; use that, or choose another folder"
            )
        return
    if is_job(folder):
        raise FormatMismatch(
            f"{folder}: the job of a crawl is there, and only `anabranch crawl` goes on with it; choose another folder"
        )
    state, order = folder / STATE, folder / ORDER_FILE
    with _translated(folder, _UNWRITABLE):
        is_strange = os.path.lexists(order) or (os.path.lexists(state) and not is_being_made(state))
    if is_strange:
        strange = ORDER_FILE if os.path.lexists(order) else STATE
        raise FormatMismatch(f"{folder}: {strange} is there and no job of a program's; choose another folder")


def _lock(folder: Path) -> int:
    """Make the folder and take its lock. Raises: StoreInUse, StoreUnavailable."""
    for tries_left in reversed(range(_TRIES)):
        try:
            make_folders(folder)
            return take_lock(folder)
        except LockHeld as held:
            who = "another process" if held.process is None else f"process {held.process}"
            raise StoreInUse(f"{folder}: {who} uses this job; end it first, or choose another folder") from held
        except OSError as error:
            if isinstance(error, FileNotFoundError) and tries_left:
                continue  # its holder removes it at this moment
            raise StoreUnavailable(f"{folder}: {error.strerror}; {_UNWRITABLE}") from error
    raise AssertionError("the last try returns or raises")


@contextmanager
def _translated(folder: Path, advice: str) -> Iterator[None]:
    """Raise an OSError as StoreUnavailable."""
    try:
        yield
    except OSError as error:
        raise StoreUnavailable(f"{folder}: {error.strerror}; {advice}") from error


def _replace(path: Path, data: bytes) -> None:
    """Replace a file atomically and durably, unless it has this content."""
    if not path.is_file() or path.read_bytes() != data:
        replace_file(path, data)
