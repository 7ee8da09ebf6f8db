"""The lease board: a small file in which a host program shows its leases to other processes.

In the store a leased URL is a queued one, so a process that reads a copy of the store needs the board. The file has slots of 32
bytes, each written in one call and never synced; a page costs two such calls, of 5 to 15 microseconds:

    ordinal > 0:  this row was leased at `time_s`
    ordinal = 0:  the gate is closed until `time_s`; the slot is free after that

The file is valid only while a process holds the job: a process that dies leaves it, the next one empties it.
"""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from heapq import heappop, heappush
from pathlib import Path
from typing import NamedTuple

from anabranch.frontier.completion import LeaseElsewhere
from anabranch.frontier.errors import StoreUnavailable

_SLOT = struct.Struct("<qqqd")  # ordinal, queue, gate, time_s
#: Longer rests are blocks, which are in the store.
_LONGEST_REST_S = 3600.0


class OutElsewhere(NamedTuple):
    """The contents of a lease board."""

    leases: list[LeaseElsewhere]
    rests: dict[int, float]  #: id of a gate -> epoch seconds until which it is closed


class LeaseBoard:
    """A `Board` in a file, with at most as many slots as there were leases and resting gates at one moment."""

    def __init__(self, file: Path) -> None:
        """Make an empty file. Raises: StoreUnavailable."""
        try:
            self._file: int | None = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        except OSError as error:
            raise StoreUnavailable(f"{file}: {error.strerror}; make room, or choose another folder") from error
        self._path = file
        self._slots: dict[int, int] = {}  #: ordinal -> slot
        self._free: list[int] = []
        self._rests: list[tuple[float, int]] = []  #: heap: until when a slot says that a gate rests
        self._last = 0  #: slots of the file

    def out(self, ordinal: int, queue: int, gate: int, since_s: float) -> None:
        """A lease is handed out."""
        slot = self._slots[ordinal] = self._take(since_s)
        self._write(slot, ordinal, queue, gate, since_s)

    def back(self, ordinal: int, gate: int, opens_s: float, now_s: float) -> None:
        """A lease has ended, and its gate is closed until `opens_s`."""
        slot = self._slots.pop(ordinal, None)
        if slot is None:
            return
        if now_s < opens_s <= now_s + _LONGEST_REST_S:
            heappush(self._rests, (opens_s, slot))
            self._write(slot, 0, 0, gate, opens_s)
        else:
            self._free.append(slot)
            self._write(slot, 0, 0, 0, 0.0)

    def close(self) -> None:
        """Remove the file. Idempotent."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)
            with suppress(OSError):  # it is not valid any more
                self._path.unlink()

    def _take(self, now_s: float) -> int:
        if self._free:
            return self._free.pop()
        if self._rests and self._rests[0][0] <= now_s:
            return heappop(self._rests)[1]
        self._last += 1
        return self._last - 1

    def _write(self, slot: int, *fields: float) -> None:
        """Write a slot. On a full disk the board is removed: readers then report that they do not know the leases."""
        if self._file is None:
            return
        try:
            os.pwrite(self._file, _SLOT.pack(*fields), slot * _SLOT.size)
        except OSError:
            self.close()


def read_board(file: Path) -> OutElsewhere | None:
    """The contents of the board of a running process; None without one."""
    try:
        data = file.read_bytes()
    except OSError:
        return None
    leases: list[LeaseElsewhere] = []
    rests: dict[int, float] = {}
    for ordinal, queue, gate, time_s in _SLOT.iter_unpack(data[: len(data) // _SLOT.size * _SLOT.size]):
        if ordinal > 0:
            leases.append(LeaseElsewhere(ordinal, queue, gate, time_s))
        elif time_s > 0:
            rests[gate] = max(rests.get(gate, 0.0), time_s)
    return OutElsewhere(leases, rests)
