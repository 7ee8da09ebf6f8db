"""The end of a log: its last whole lines, and those that are added later."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


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


@dataclass
class LogFollower:
    """Reads the lines that are added to a log. After a rotation it reads the new file from the start.

    Lines written to the old file between the last call and the rotation are missed.
    """

    path: Path
    position: int = 0  #: bytes read so far
    inode: int = 0
    is_begun: bool = False

    def new_lines(self, most_bytes: int = 1 << 20) -> list[str]:
        """The whole lines since the last call, of at most the last `most_bytes`. The first call returns none."""
        is_first, self.is_begun = not self.is_begun, True
        try:
            with self.path.open("rb") as file:
                status = os.fstat(file.fileno())
                if status.st_ino != self.inode or status.st_size < self.position:
                    self.inode, self.position = status.st_ino, 0
                # One byte more tells whether the first line is whole.
                begin = max(self.position, status.st_size - most_bytes - 1)
                file.seek(begin)
                read = file.read(status.st_size - begin)
        except OSError:
            return []
        whole = read[: read.rfind(b"\n") + 1]
        is_cut, self.position = begin > self.position, begin + len(whole)
        if is_first:
            return []
        return _lines(whole.partition(b"\n")[2] if is_cut else whole)


def _lines(read: bytes) -> list[str]:
    """The whole lines as text. Bytes that are not UTF-8, perhaps from a site, are replaced."""
    return read[: read.rfind(b"\n") + 1].decode("utf-8", "replace").split("\n")[:-1]
