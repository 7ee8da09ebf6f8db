"""Files that survive a crash: what is written, in which order, and when it counts as durable.

A file is replaced by a temporary file, its sync, the rename and the sync of the folder, so that a crash leaves
the old text or the new one, never a mixture.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from anabranch.dedup.errors import FilterInUse, StoreFull

#: Ending of files that are being written; such a file means nothing and may be removed.
UNFINISHED = ".new"

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@contextmanager
def telling_full(path: Path) -> Iterator[None]:
    """Turn "no space left", "quota exceeded" and "file too large" into `StoreFull`; other errors pass."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise StoreFull(error.errno, "no room to write the filter; free space and repeat", str(path)) from error


@contextmanager
def descriptor(path: Path, flags: int) -> Iterator[int]:
    """An open file descriptor, closed at the end. New files are their owner's alone."""
    fd = os.open(path, flags | os.O_CLOEXEC, 0o600)
    try:
        yield fd
    finally:
        os.close(fd)


def write_all(fd: int, data: bytes, offset: int) -> None:
    """Write all of `data` at `offset`. Raises OSError with part of it written."""
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, offset)
        view, offset = view[written:], offset + written


def sync_file(fd: int) -> None:
    """Return when the file's bytes and size are on the medium (macOS needs F_FULLFSYNC for that)."""
    if hasattr(fcntl, "F_FULLFSYNC"):
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    elif hasattr(os, "fdatasync"):
        os.fdatasync(fd)
    else:
        os.fsync(fd)


def sync_path(path: Path) -> None:
    """`sync_file` through a descriptor of its own; it covers what others wrote or changed in a map."""
    with telling_full(path), descriptor(path, os.O_RDONLY) as fd:
        sync_file(fd)


def sync_folder(folder: Path) -> None:
    """Return when the names in the folder are on the medium."""
    with descriptor(folder, os.O_RDONLY) as fd:
        os.fsync(fd)


def write_file(path: Path, data: bytes) -> None:
    """Write and sync a file; its name is durable only after `sync_folder`. After an error it is gone."""
    try:
        with telling_full(path), descriptor(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY) as fd:
            write_all(fd, data, 0)
            sync_file(fd)
    except OSError:
        path.unlink(missing_ok=True)
        raise


def swap_file(path: Path, data: bytes) -> None:
    """Replace a file's text at once; that lasts a power loss only after `sync_folder`.

    The folder is synced before the rename, so that files which the new text names are there whenever it is.
    """
    unfinished = path.with_name(path.name + UNFINISHED)
    write_file(unfinished, data)
    sync_folder(path.parent)
    unfinished.replace(path)


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file's text at once and durably."""
    swap_file(path, data)
    sync_folder(path.parent)


class FolderLock:
    """Keeps a folder for one holder by an advisory lock (flock), which ends with the process at the latest."""

    def __init__(self, folder: Path) -> None:
        self._fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._fd)
            if not isinstance(error, BlockingIOError):
                raise
            raise FilterInUse(f"{folder} is open elsewhere; end the process that uses it first") from error

    def release(self) -> None:
        """Let go of the folder; a second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
