"""The end of a log: its last whole lines, and those that are added later."""

from __future__ import annotations

import os
import stat
from glob import escape
from pathlib import Path

#: Endings of names of compressed files, which are not read.
_COMPRESSED = frozenset({".gz", ".bz2", ".xz", ".zst"})


def last_lines(path: Path, most_bytes: int) -> list[str]:
    """The whole lines in the last `most_bytes` of a file; empty if it cannot be read."""
    try:
        with path.open("rb") as file:
            start = max(os.fstat(file.fileno()).st_size - most_bytes, 0)
            file.seek(max(start - 1, 0))  # with the newline before a whole line
            read = file.read(most_bytes + 1 if start else most_bytes)
    except OSError:
        return []
    if start:
        read = read.partition(b"\n")[2]
    return _lines(read)


class LogFollower:
    """Reads what is added to a log, each line once, also while it is rotated: the rest of the old file first, then the new one.

    The old file is held open, so that it may be compressed or removed. It is left once the new one has content: until then a
    line may still come. Of a file that is truncated, what was not read before is lost.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None  #: that is read now
        self._position = 0  #: bytes of it that were read
        self._others: set[tuple[int, int]] = set()  #: files that were rotated before
        self._is_begun = False

    def __del__(self) -> None:
        """Close the file: whoever follows a log just stops asking."""
        if self._file is not None:
            os.close(self._file)

    def new_lines(self, most_bytes: int = 1 << 20) -> list[str]:
        """The whole lines since the last call, of each file within so many bytes; none at the first call."""
        is_first, self._is_begun = not self._is_begun, True
        lines: list[str] = []
        for file in self._newer_files():
            lines += self._read(most_bytes)
            self._follow(file)
        lines += self._read(most_bytes)
        return [] if is_first else lines

    def _newer_files(self) -> list[int]:
        """The files after the one that is read now, open, the oldest first: those that are rotated already, and the last."""
        last = _opened(self.path)
        if last is None:
            return []
        if self._file is None:
            return [last]
        if not _has_replaced(last, self._file):
            os.close(last)
            return []
        read_now = {_id(last), _id(self._file)}
        found = []
        for file in self._open_rotated():
            if _id(file) in read_now or _version(file) in self._others:
                os.close(file)
            else:
                found.append(file)
                self._others.add(_version(file))
        return [*found, last]

    def _follow(self, file: int) -> None:
        if self._file is None:
            self._others = self._versions()
        else:
            self._others.add(_version(self._file))
            os.close(self._file)
        self._file, self._position = file, 0

    def _versions(self) -> set[tuple[int, int]]:
        files = self._open_rotated()
        try:
            return {_version(file) for file in files}
        finally:
            for file in files:
                os.close(file)

    def _open_rotated(self) -> list[int]:
        """The files that had the log's name, the oldest first, without compressed ones."""
        found = self.path.parent.glob(f"{escape(self.path.name)}?*")
        named = [path for path in sorted(found, key=_age) if path.suffix not in _COMPRESSED]
        files = [_opened(path, os.O_NOFOLLOW) for path in named]  # a link may lead out of the job
        return [file for file in files if file is not None]

    def _read(self, most_bytes: int) -> list[str]:
        """The whole lines behind the position, within so many bytes of the end."""
        if self._file is None:
            return []
        size = os.fstat(self._file).st_size
        if size < self._position:  # truncated, maybe after it was copied
            self._position, self._others = 0, self._versions()
        # One byte more tells whether the first line is whole.
        begin = max(self._position, size - most_bytes - 1)
        read = os.pread(self._file, size - begin, begin)
        whole = read[: read.rfind(b"\n") + 1]
        is_cut, self._position = begin > self._position, begin + len(whole)
        return _lines(whole.partition(b"\n")[2] if is_cut else whole)


def _opened(path: Path, flags: int = 0) -> int | None:
    """The regular file at this path, open; None without one."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | flags)
    except OSError:
        return None
    if stat.S_ISREG(os.fstat(file).st_mode):
        return file
    os.close(file)
    return None


def _has_replaced(new: int, old: int) -> bool:
    """It is another file, and has content."""
    return _id(new) != _id(old) and os.fstat(new).st_size > 0


def _id(file: int) -> tuple[int, int]:
    status = os.fstat(file)
    return status.st_dev, status.st_ino


def _version(file: int) -> tuple[int, int]:
    """Identifies a rotated file: its time stays as it is, and a newer file with its inode has another time."""
    status = os.fstat(file)
    return status.st_ino, status.st_mtime_ns


def _age(path: Path) -> tuple[int, int, str]:
    """Sorts rotated files, the oldest first: by time, and those of one time by name, a.log.2 before a.log.1."""
    number = path.suffix.removeprefix(".")
    try:
        return path.stat().st_mtime_ns, -int(number) if number.isdecimal() else 0, path.name
    except OSError:  # it has been moved on
        return 0, 0, path.name


def _lines(read: bytes) -> list[str]:
    """The whole lines as text. Bytes that are not UTF-8, perhaps from a site, are replaced."""
    return read[: read.rfind(b"\n") + 1].decode("utf-8", "replace").split("\n")[:-1]
