"""A disk that loses power: what a folder holds after it, by the rules that POSIX gives and no more."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest


class Disk:
    """Watches the syncs of one flat folder.

    A file's bytes last as of its last sync. What happened to names since the folder's last sync is undone, or has
    lasted, or only removals have: all three happen.
    """

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        self._held: list[int] = []  # open files: else a new file may get the inode of a removed one
        self._bytes: dict[int, bytes] = {}  # inode -> synced content
        self._names: dict[str, int] = {}  # synced name -> inode
        for name in ("fdatasync", "fsync"):
            patch.setattr(os, name, self.sync)

    def sync(self, fd: int) -> None:
        """Replaces fsync and fdatasync: records the bytes of a file, or the folder's names, that last from now on."""
        status = os.fstat(fd)
        names = self._names_now() if self._folder.exists() else {}
        if stat.S_ISDIR(status.st_mode):
            if names and status.st_ino == self._folder.stat().st_ino:
                self._names = names
            return
        for name in [name for name, inode in names.items() if inode == status.st_ino]:
            self._bytes[status.st_ino] = (self._folder / name).read_bytes()
            self._held.append(os.open(self._folder / name, os.O_RDONLY))

    def _names_now(self) -> dict[str, int]:
        return {path.name: path.stat().st_ino for path in self._folder.iterdir()}

    def lose_power(self, target: Path) -> list[Path]:
        """Copies of the folder as it may be after a power loss now."""
        copies = []
        now = self._names_now()
        removed = {name: inode for name, inode in self._names.items() if name in now}
        for number, names in enumerate((self._names, now, removed)):
            copy = target / f"lost{number}"
            copy.mkdir(parents=True)
            for name, inode in names.items():
                (copy / name).write_bytes(self._bytes.get(inode, b""))
            copies.append(copy)
        return copies

    def close(self) -> None:
        for fd in self._held:
            os.close(fd)
        self._held.clear()
