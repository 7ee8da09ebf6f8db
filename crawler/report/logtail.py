"""The end of a log: its last whole lines, and those that are added later."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


def last_lines(path: Path, most_bytes: int) -> list[bytes]:
    """The last whole lines within so many bytes; none if the file cannot be read."""
    try:
        with path.open("rb") as file:
            start = max(os.fstat(file.fileno()).st_size - most_bytes, 0)
            file.seek(max(start - 1, 0))  # with the newline before a whole line
            read = file.read(most_bytes + 1 if start else most_bytes)
    except OSError:
        return []
    if start:
        read = read.partition(b"\n")[2]
    return read[: read.rfind(b"\n") + 1].splitlines()


@dataclass
class LogFollower:
    """Reads what is added to a log, whoever rotates it: the file that has the name then is read from its begin."""

    path: Path
    position: int = 0  #: bytes that were read
    inode: int = 0

    def new_lines(self, most_bytes: int = 1 << 20) -> list[bytes]:
        """The whole lines since the last call; since the end of the file at the first. None is lost within `most_bytes`."""
        try:
            with self.path.open("rb") as file:
                status = os.fstat(file.fileno())
                if not self.inode:
                    self.position = status.st_size
                elif status.st_ino != self.inode or status.st_size < self.position:
                    self.position = 0
                self.inode = status.st_ino
                self.position = max(self.position, status.st_size - most_bytes)
                file.seek(self.position)
                read = file.read(most_bytes)
        except OSError:
            return []
        whole = read[: read.rfind(b"\n") + 1]
        self.position += len(whole)
        return whole.splitlines()
