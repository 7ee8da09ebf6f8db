"""Advisory locks (flock) of files and folders: one holder at a time, until it releases the lock or its process ends.

A lock on a file without a name keeps no process out: `lock_file` takes that of the file that has the name now.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from anabranch.dedup.errors import FilterInUse
from anabranch.dedup.files.durable import descriptor, errors_named, write_all


class LockHeld(Exception):
    """Another process holds the lock."""

    def __init__(self, process: int | None) -> None:
        super().__init__(process)
        self.process = process  #: its id; None if it has not written it yet


def try_lock(fd: int, *, shared: bool = False) -> bool:
    """Take the lock, exclusive or shared, if no other holder prevents it. Raises: OSError."""
    try:
        fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def wait_lock(fd: int, *, shared: bool = False) -> None:
    """Take the lock, exclusive or shared, once no other holder prevents it. Raises: OSError."""
    fcntl.flock(fd, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)


@contextlib.contextmanager
def folder_turn(folder: Path) -> Iterator[None]:
    """Hold the folder's lock in this block; waits until no other process does. Raises: OSError."""
    with descriptor(folder, os.O_RDONLY) as fd:
        wait_lock(fd)
        yield


class FolderLock:
    """Keeps a folder for one holder. Raises: FilterInUse, OSError."""

    def __init__(self, folder: Path) -> None:
        self._fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            is_ours = try_lock(self._fd)
        except OSError:
            self.release()
            raise
        if not is_ours:
            self.release()
            raise FilterInUse(f"{folder} is open elsewhere; end the process that uses it first")

    def release(self) -> None:
        """Release the folder; a second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def lock_file(path: Path) -> int:
    """Lock the file, made if missing, write this process's id; returns the descriptor. Raises: LockHeld, OSError."""
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            is_ours, holder = try_lock(fd), lock_holder(fd)
            if is_ours:
                with contextlib.suppress(PermissionError):  # it is another user's
                    os.fchmod(fd, 0o600)  # older versions made it for all to take
                with errors_named(path):
                    os.ftruncate(fd, 0)
                    write_all(fd, f"{os.getpid()}\n".encode(), 0)
            if is_ours and _has_name(fd, path):
                return fd
        except OSError:
            os.close(fd)
            raise
        os.close(fd)
        if not is_ours:
            raise LockHeld(holder)


def lock_holder(fd: int) -> int | None:
    """The id that a process wrote into the lock's file. It means something only while the lock is held."""
    text = os.pread(fd, 32, 0).strip()
    return int(text) if text.isdigit() else None


def _has_name(fd: int, path: Path) -> bool:
    """True if the file was not removed between its opening and its lock."""
    try:
        named = path.stat()
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(fd), named)
