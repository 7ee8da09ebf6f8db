"""Several processes, one folder: who has it open, and whose turn it is to change it.

Two advisory locks (flock), which the kernel frees when a process ends, however it ends. The lock on the folder is one
turn: to open, to change a batch of bits, to close. The lock on a file in it is held for as long as the folder is open:
shared by all, or exclusive by one. No file of its own is needed, and none is left behind.

The processes must be on one machine. A process does not share a lock with the one that it was forked from: each opens
the folder itself.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from anabranch.dedup.errors import FilterClosed, FilterInUse


class Sharing:
    """One opening of a folder. `with sharing:` is a turn, in which no other process has one.

    A turn costs 1.3 µs if nobody waits, and nothing once the folder is held `alone`. Turns do not nest, and belong to
    one thread.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._turn = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        self._presence = -1
        self._has_turns = True
        self._process = os.getpid()

    def attend(self, path: Path, *, alone: bool) -> bool:
        """Have the folder open from now on, by a lock on `path`; in a turn. True if nobody else has it open.

        Raises: FilterInUse if another has it open alone, or if another has it open and this one wants it alone.
        """
        self._presence = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        if self._locks(fcntl.LOCK_EX):
            # Between the two locks nobody comes in: all openings are turns, and this is one.
            is_first = alone or self._locks(fcntl.LOCK_SH)
            assert is_first
            return True
        if alone or not self._locks(fcntl.LOCK_SH):
            raise FilterInUse(f"{self._folder} is open elsewhere; end the process that uses it first")
        return False

    def end_turns(self) -> None:
        """Take none from now on, since the folder is held alone."""
        self._has_turns = False

    def is_alone(self) -> bool:
        """True if no other process has the folder open; in a turn."""
        if not self._has_turns:
            return True
        is_alone = self._locks(fcntl.LOCK_EX)
        fcntl.flock(self._presence, fcntl.LOCK_SH)  # a failed upgrade may have lost it
        return is_alone

    @property
    def is_own(self) -> bool:
        """False in a process that was forked off after the opening."""
        return self._process == os.getpid()

    def __enter__(self) -> None:
        if self._process != os.getpid():
            raise FilterClosed(f"{self._folder} was opened before this process was forked off: open it here again")
        if self._has_turns:
            fcntl.flock(self._turn, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        if self._has_turns:
            fcntl.flock(self._turn, fcntl.LOCK_UN)

    def close(self) -> None:
        """Let go of the folder; a second call does nothing."""
        for fd in (self._presence, self._turn):
            if fd >= 0:
                os.close(fd)
        self._presence = self._turn = -1

    def _locks(self, kind: int) -> bool:
        try:
            fcntl.flock(self._presence, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
