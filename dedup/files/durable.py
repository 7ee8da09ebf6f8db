"""Files that survive a crash: how they are written, and when they count as durable.

A file that changes is replaced by a temporary file, its sync, the rename and the sync of the folder, so that a crash leaves
the old text or the new one. A file that grows is appended to in whole lines and cut back to the last line that counts.
All functions raise OSError; `store_full_errors` makes the error of this room of a full disk.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
from collections.abc import Callable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

from anabranch.dedup.errors import StoreFull

#: Ending of files that are being written; such a file means nothing and may be removed.
UNFINISHED = ".new"

_libc = ctypes.CDLL(None, use_errno=True)
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@contextlib.contextmanager
def store_full_errors(path: Path) -> Iterator[None]:
    """Turn "no space left", "quota exceeded" and "file too large" into `StoreFull`; other errors pass."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise StoreFull(error.errno, "no room to write the filter; free space and repeat", str(path)) from error


@contextlib.contextmanager
def errors_named(path: Path) -> Iterator[None]:
    """Inside, an OSError of a call on a descriptor names the file, or the one that an unfinished one becomes. Cost: 1 µs."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path).removesuffix(UNFINISHED)
        raise


@contextlib.contextmanager
def descriptor(path: Path, flags: int, mode: int = 0o600) -> Iterator[int]:
    """An open file descriptor, closed at the end. New files get the mode less the umask. An OSError inside names the file."""
    fd = os.open(path, flags | os.O_CLOEXEC, mode)
    try:
        with errors_named(path):
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
    with descriptor(path, os.O_RDONLY) as fd:
        sync_file(fd)


def sync_folder(folder: Path) -> None:
    """Return when the names in the folder are on the medium."""
    with descriptor(folder, os.O_RDONLY | os.O_DIRECTORY) as fd:
        os.fsync(fd)


def sync_file_system(folder: Path) -> bool:
    """Return when all files and names of the folder's file system are on the medium (Linux's syncfs(2)); False without that."""
    syncfs = getattr(_libc, "syncfs", None)
    if syncfs is None:
        return False
    with descriptor(folder, os.O_RDONLY) as fd:
        if syncfs(fd):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(folder))
    return True


def write_file(path: Path, data: bytes) -> None:
    """Write and sync a file; its name is durable only after `sync_folder`. After an error the file is gone."""
    try:
        with descriptor(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY) as fd:
            write_all(fd, data, 0)
            sync_file(fd)
    except OSError:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
        raise


def swap_file(path: Path, data: bytes, *, names_first: bool = False) -> None:
    """Replace a file's text at once, readable by the owner; the new one survives a power loss only after `sync_folder`.

    After an error the old text is in place. With `names_first` the files that the new text names exist whenever it
    does.
    """
    unfinished = path.with_name(path.name + UNFINISHED)
    write_file(unfinished, data)
    try:
        if names_first:
            sync_folder(path.parent)
        unfinished.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise


def replace_file(path: Path, data: bytes, *, names_first: bool = False) -> None:
    """Replace a file's text at once and durably; otherwise as `swap_file`."""
    swap_file(path, data, names_first=names_first)
    sync_folder(path.parent)


#: How much is read at once while the end of the last whole line is looked for.
_BLOCK_BYTES = 1 << 16
_CHUNK_BYTES = 1 << 20


def checked_line(text: bytes) -> bytes:
    """`CRC-32 in hex, a space, text` and a newline: a later change of it is detected."""
    return b"%08x %b\n" % (crc32(text), text)


def checked_text(line: bytes) -> bytes:
    """The text of such a line. Raises: ValueError if it was changed."""
    text = line[9:-1]
    if line != checked_line(text):
        raise ValueError("not as it was written")
    return text


def checked_json(written: bytes) -> Any:
    """The JSON value in a file of one such line; older versions have no checksum. Raises: ValueError, RecursionError."""
    return json.loads(written if written.startswith(b"{") else checked_text(written))


def append_to(path: Path, data: bytes, head: bytes = b"", mode: int = 0o666) -> None:
    """Append, unsynced, to the file that has the name now, since an operator may move it; `head` first in an empty one.

    A new file gets the permissions `mode`.
    """
    with descriptor(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, mode) as fd:
        rest = memoryview(data if not head or os.fstat(fd).st_size else head + data)
        while rest:
            rest = rest[os.write(fd, rest) :]


#: How many bytes before the end of a file its mark has the digest of.
_MARKED_BYTES = 64
_DIGEST_BYTES = 8


class FileMark(NamedTuple):
    """The end of a growing file at one moment. The bytes before that end prove later that a file is still the same one.

    An inode proves that only for an empty file: a copy of the file has another one, and a new file may get an old one.
    """

    size: int
    inode: int
    digest: str  #: BLAKE2b-64 in hex of the last 64 bytes, or of all if there are fewer


def cut_back(path: Path, mark: FileMark) -> int | None:
    """Cut a file to the end that was marked, durably; returns how many bytes were cut.

    None: the file is missing, shorter or another one, and stays as it is. Raises: OSError.
    """
    try:
        with descriptor(path, os.O_RDWR) as fd:
            surplus = _surplus(fd, mark)
            if surplus:
                os.ftruncate(fd, mark.size)
                sync_file(fd)
            return surplus
    except FileNotFoundError:
        return None if mark.size else 0


def mark_of(fd: int, end: int) -> FileMark:
    """The mark of an end of an open file. Raises: OSError."""
    return FileMark(end, os.fstat(fd).st_ino, _digest(_before(fd, end)))


def has_end(path: Path, mark: FileMark) -> bool:
    """Whether the file is the one that was marked, perhaps with more behind that end. Raises: OSError."""
    with descriptor(path, os.O_RDONLY) as fd:
        return _surplus(fd, mark) is not None


def _surplus(fd: int, mark: FileMark) -> int | None:
    """How many bytes are behind the end that was marked; None if the file is shorter or another one."""
    found = os.fstat(fd)
    surplus = found.st_size - mark.size
    is_same = _digest(_before(fd, mark.size)) == mark.digest if mark.size else mark.inode == found.st_ino or not surplus
    return surplus if is_same and surplus >= 0 else None


def _before(fd: int, end: int) -> bytes:
    """The last bytes before an offset."""
    start = max(end - _MARKED_BYTES, 0)
    return os.pread(fd, end - start, start)


def _digest(tail: bytes) -> str:
    return blake2b(tail, digest_size=_DIGEST_BYTES).hexdigest()


class AppendOnlyFile:
    """Whole lines or records, appended by one writer: what is synced is durable, and counts when it is kept.

    Opening cuts a torn end. `end_of_whole` returns how many bytes of a descriptor are whole, by default up to the last
    newline.
    """

    def __init__(self, path: Path, end_of_whole: Callable[[int], int] | None = None) -> None:
        self.path = path
        self._end_of_whole = end_of_whole or end_of_last_line
        self._fd = -1
        self.written_bytes = 0  #: size of the file, with what does not count yet
        self.kept_bytes = 0  #: how much of the file counts
        self._mark: FileMark | None = None  # of the present end
        self._tail: bytes | None = None  # the last bytes that were written; None: they are in the file
        self._open()

    def follow(self) -> bool:
        """Go on in the file that has the name now, behind its content, if this one was moved, removed or cut; say whether."""
        try:
            named = self.path.stat()
        except FileNotFoundError:
            named = None
        if named is None or (named.st_dev, named.st_ino) != self._identity:
            self._open()
        elif named.st_size < self.kept_bytes:
            self._begin_behind()
        else:
            return False
        return True

    def mark(self) -> FileMark:
        """The end of all that was written. Cost: 2 µs, after a cut a read of 64 bytes. Raises: OSError."""
        if self._mark is None:
            if self._tail is None:
                self._tail = _before(self._fd, self.written_bytes)
            self._mark = FileMark(self.written_bytes, self._identity[1], _digest(self._tail))
        return self._mark

    def append(self, data: bytes) -> None:
        """Write and sync behind what is kept. Raises: OSError, maybe with a part written."""
        if not data:
            return
        self.begin()
        self.write(data)
        self.sync()

    def begin(self) -> None:
        """Cut what does not count: the end of the file, even if somebody cut that meanwhile. Raises: OSError."""
        written = self.written_bytes - self.kept_bytes
        if written > 0:
            with errors_named(self.path):
                size = os.fstat(self._fd).st_size
                self.kept_bytes = min(self.kept_bytes, max(size - written, 0))
                os.ftruncate(self._fd, self.kept_bytes)
                sync_file(self._fd)
            self.written_bytes, self._mark, self._tail = self.kept_bytes, None, None

    def write(self, data: bytes | bytearray) -> None:
        """Write a part of what `sync` makes durable. Raises: OSError, maybe with a part written."""
        rest = memoryview(data)
        with errors_named(self.path):
            while rest:  # a second time only if the disk took a part: then it says why
                count = os.write(self._fd, rest)
                self.written_bytes += count
                rest = rest[count:]
        if self._tail is not None or len(data) >= _MARKED_BYTES:
            last = bytes(data[-_MARKED_BYTES:])
            self._tail = last if len(last) == _MARKED_BYTES else ((self._tail or b"") + last)[-_MARKED_BYTES:]
        self._mark = None

    def sync(self) -> None:
        """Return when all that was written is on the medium. Raises: OSError."""
        with errors_named(self.path):
            sync_file(self._fd)

    def keep(self) -> None:
        """All that is written counts."""
        self.kept_bytes = self.written_bytes

    def take_back(self) -> None:
        """Cut what does not count; if the disk refuses that too, the next append or opening tries again."""
        with contextlib.suppress(OSError):
            self.begin()

    def close(self) -> None:
        """Close the file without a sync. A second call does nothing."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with contextlib.suppress(OSError):
                os.close(fd)

    def _open(self) -> None:
        """Open the file of this name in the place of the one that is open."""
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        self.close()
        self._fd = fd
        try:
            self._begin_behind()
            sync_folder(self.path.parent)
        except OSError:
            self.close()
            raise

    def _begin_behind(self) -> None:
        """Keep the whole lines of the file, and cut the rest."""
        found = os.fstat(self._fd)
        self._identity = found.st_dev, found.st_ino
        self.written_bytes, self._mark, self._tail = found.st_size, None, None
        self.kept_bytes = self._end_of_whole(self._fd)
        self.begin()


def end_of_last_line(fd: int) -> int:
    """Bytes up to and with the last newline. Cost: the torn line is read, backwards."""
    end = os.fstat(fd).st_size
    while end:
        start = max(end - _BLOCK_BYTES, 0)
        newline = os.pread(fd, end - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0


def size_and_crc(file: Path) -> tuple[int, int]:
    """The size and the CRC-32 of a file. Raises: OSError."""
    size = crc = 0
    with file.open("rb", buffering=0) as chunks:
        while chunk := chunks.read(_CHUNK_BYTES):
            size, crc = size + len(chunk), crc32(chunk, crc)
    return size, crc
