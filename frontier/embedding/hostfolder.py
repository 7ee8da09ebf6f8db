"""The folder of a host program's job: it is taken if nobody else's job is in it, and only what was written here is removed.

The mark that says whose job it is (`format.json`) is on the disk before anything but the lock, and goes last. So a process may
be killed at any point, and the next one knows what it finds: a folder with an order or a state and without that mark is a
stranger's, and is left as it is.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from anabranch.frontier.composition import SEEN_FOLDER, STORE_FILE
from anabranch.frontier.embedding.folder import (
    FORMAT_FILE,
    LEASES_FILE,
    LOCK_FILE,
    ORDER_FILE,
    STATE,
    UNFINISHED,
    Held,
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
from anabranch.frontier.errors import FormatMismatch, StoreInUse, StoreUnavailable

#: What the store writes: its file, and what SQLite and the owner's line put beside it.
_STORE_FILES = tuple(f"{STORE_FILE}{ending}" for ending in ("", "-wal", "-shm", "-journal", ".owner", ".seal"))
#: Folders that are removed while they are being taken, one after another.
_TRIES = 10
_UNWRITABLE = "choose a folder that can be written"


class HostFolder:
    """A job's folder that is held until `let_go`, or until the process ends. Every method blocks."""

    def __init__(self, path: Path) -> None:
        """Take it, or make it. Raises: FormatMismatch if it is not a host's, StoreInUse, StoreUnavailable."""
        _refuse_strangers(path)
        self.path = path
        self.state = path / STATE
        with _told(path, _UNWRITABLE):
            self._made = missing_folders(path)
        self._lock: int | None = self._locked()
        self._is_new = False
        try:
            _refuse_strangers(path)  # somebody may have made a job of it before it was held
            self._is_new = not os.path.lexists(self.state / FORMAT_FILE)
            with _told(path, _UNWRITABLE):
                _replace(self.state / FORMAT_FILE, format_text(embedded=True))
        except BaseException:
            self.fail()
            raise

    def _locked(self) -> int:
        try:
            return _lock(self.path)
        except BaseException:
            remove_made(self._made)
            raise

    @property
    def leases(self) -> Path:
        """The file that tells what is in flight."""
        return self.state / LEASES_FILE

    def describe(self, order: str) -> None:
        """Keep the order that the job is run by. Raises: StoreUnavailable."""
        with _told(self.path, "make room, or choose another folder"):
            _replace(self.path / ORDER_FILE, order.encode())

    def forget(self) -> None:
        """Remove the rows, then the filter; it stays a job. Raises: StoreUnavailable."""
        with _told(self.path, "it cannot be emptied"):
            for name in _STORE_FILES:
                (self.state / name).unlink(missing_ok=True)
            if (self.state / SEEN_FOLDER).exists():
                shutil.rmtree(self.state / SEEN_FOLDER)

    def remove(self) -> None:
        """Remove all that was written here, and the folder if nothing else is in it. A second call does nothing.

        Raises: StoreUnavailable.
        """
        if self._lock is None:
            return
        self._remove_files()
        with suppress(OSError):  # others' files are in it, or somebody makes a job of it again
            self.state.rmdir()
            self.path.rmdir()

    def _remove_files(self) -> None:
        self.forget()
        order, mark = self.path / ORDER_FILE, self.state / FORMAT_FILE
        with _told(self.path, "it cannot be removed"):
            for file in (_unfinished(order), order, self.leases, _unfinished(mark), mark, self.state / LOCK_FILE):
                file.unlink(missing_ok=True)

    def fail(self) -> None:
        """Let go after a failed start. A job that this start made is removed; an older one stays as it is."""
        if self._is_new:
            with suppress(StoreUnavailable):
                self._remove_files()
        remove_made(self._made)
        self.let_go()

    def let_go(self) -> None:
        """Others may take it. A second call is harmless."""
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)


def _refuse_strangers(folder: Path) -> None:
    """Raises: FormatMismatch if another's job, or what may be one, is in the folder; StoreUnavailable."""
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
    with _told(folder, _UNWRITABLE):
        is_strange = os.path.lexists(order) or (os.path.lexists(state) and not is_being_made(state))
    if is_strange:
        strange = ORDER_FILE if os.path.lexists(order) else STATE
        raise FormatMismatch(f"{folder}: {strange} is there and no job of a program's; choose another folder")


def _lock(folder: Path) -> int:
    """The folder's lock; the folder is made. Raises: StoreInUse, StoreUnavailable."""
    for tries_left in reversed(range(_TRIES)):
        try:
            make_folders(folder)
            return take_lock(folder)
        except Held as held:
            who = "another process" if held.process is None else f"process {held.process}"
            raise StoreInUse(f"{folder}: {who} uses this job; end it first, or choose another folder") from held
        except OSError as error:
            if isinstance(error, FileNotFoundError) and tries_left:
                continue  # its holder removes it at this moment
            raise StoreUnavailable(f"{folder}: {error.strerror}; {_UNWRITABLE}") from error
    raise AssertionError("the last try ends in another way")


@contextmanager
def _told(folder: Path, advice: str) -> Iterator[None]:
    """Raises: StoreUnavailable for what the system refuses."""
    try:
        yield
    except OSError as error:
        raise StoreUnavailable(f"{folder}: {error.strerror}; {advice}") from error


def _replace(path: Path, data: bytes) -> None:
    """Rewrite a file at once and durably, unless it says the same."""
    if path.is_file() and path.read_bytes() == data:
        return
    unfinished = _unfinished(path)
    with os.fdopen(os.open(unfinished, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _unfinished(path: Path) -> Path:
    return path.with_name(path.name + UNFINISHED)
