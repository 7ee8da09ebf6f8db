"""The newest elements of an exact index: a dictionary in memory and a log on the disk.

File `log-<number>.log`: a header of 64 bytes (magic, version, number), then 16 bytes an element (`keys.py`).
"""

from __future__ import annotations

import os
import struct
import threading
import zlib
from operator import eq
from pathlib import Path
from typing import TypeAlias

import numpy as np

from anabranch.dedup.errors import CUT_OFF, FormatMismatch, InvariantBroken
from anabranch.dedup.exact.runs import ranked
from anabranch.dedup.files.durable import descriptor, store_full_errors, sync_path, write_all, write_file
from anabranch.dedup.keys import FINGERPRINT_BYTES, BoolArray, Fingerprints, HashArray, from_bytes, to_bytes

VERSION = 1

#: The start of a log: its bytes, their CRC-32. A log is only appended to, so what was once true of it stays true.
Seal: TypeAlias = tuple[int, int]

_MAGIC = b"ANATAIL\n"
_HEADER = struct.Struct("<8sI4xQ40x")  # magic, version, number
#: Memory of an element: two numbers and their place in a dictionary.
TAIL_ELEMENT_BYTES = 140
#: Size of a log without elements.
HEADER_BYTES = _HEADER.size


class TailLog:
    """A set of elements, and a file with the set as of the last `flush`. `flush` and `sync` may run in another thread."""

    def __init__(self, path: Path, number: int, content: bytes = b"") -> None:
        """`content`: the whole elements of its file, empty without a file."""
        self.path = path
        self.number = number
        self._highs: dict[int, int] = {}  # low half -> high half of the first element that has it
        self._others: dict[tuple[int, int], None] = {}  # (high, low) of all others: forged, or one in 2^64
        self._waiting: list[bytes] = []
        self._length = len(content)  # bytes of the file that count
        self._checksum = zlib.crc32(content)  # of these bytes
        self._is_synced = not content  # a file that is read may never have been synced
        self._lock = threading.Lock()
        self._learn(from_bytes(content[_HEADER.size :]))

    @classmethod
    def reopen(cls, path: Path, number: int, seal: Seal | None = None) -> TailLog:
        """The set in a file, without a torn tail. Raises: FormatMismatch if it is missing or contradicts its `seal`."""
        content = _content(path, number)
        if seal is not None:
            length, checksum = seal
            if len(content) < length:
                raise FormatMismatch(f"{path} {CUT_OFF}")
            if zlib.crc32(content[:length]) != checksum:
                raise FormatMismatch(
                    f"{path} and its checksum disagree: it is damaged; restore it from a copy, or start over"
                )
        whole = len(content) - (len(content) - _HEADER.size) % FINGERPRINT_BYTES
        if whole < len(content):
            os.truncate(path, whole)
        return cls(path, number, content[:whole])

    def __len__(self) -> int:
        return len(self._highs) + len(self._others)

    @property
    def file_bytes(self) -> int:
        """Size of the file, what waits to be written not included."""
        return self._length

    @property
    def seal(self) -> Seal:
        """The length and checksum of the file as of the last `flush`; durable after the next `sync`."""
        with self._lock:
            return self._length, self._checksum

    def knows(self, highs: HashArray, lows: HashArray) -> BoolArray:
        """True where the element of these halves is in the set. Cost: 0.2 µs each."""
        found = map(eq, map(self._highs.get, lows.tolist()), highs.tolist())
        known = np.fromiter(found, dtype=np.bool_, count=len(highs))
        if self._others:
            pairs = zip(highs.tolist(), lows.tolist(), strict=True)
            known |= np.fromiter((pair in self._others for pair in pairs), dtype=np.bool_, count=len(highs))
        return known

    def knows_one(self, high: int, low: int) -> bool:
        """`knows` of one element."""
        return self._highs.get(low) == high or (high, low) in self._others

    def take(self, elements: Fingerprints) -> None:
        """Add elements; one that is known stays what it is."""
        self._learn(elements)
        with self._lock:
            self._waiting.append(to_bytes(elements))

    def take_one(self, element: int) -> None:
        """`take` of one element."""
        self._learn_one(element >> 64, element & (1 << 64) - 1)
        with self._lock:
            self._waiting.append(element.to_bytes(FINGERPRINT_BYTES, "big"))

    def columns(self) -> tuple[HashArray, HashArray]:
        """Both halves of all elements, in ascending order."""
        others = np.array(list(self._others), dtype=np.uint64).reshape(-1, 2)
        lows = np.fromiter(self._highs, dtype=np.uint64, count=len(self._highs))
        highs = np.fromiter(self._highs.values(), dtype=np.uint64, count=len(self._highs))
        return ranked(np.concatenate((highs, others[:, 0])), np.concatenate((lows, others[:, 1])))

    def flush(self) -> None:
        """Write what was taken. Raises: StoreFull, OSError; what could not be written waits on."""
        with self._lock:
            if not self._length:
                header = _HEADER.pack(_MAGIC, VERSION, self.number)
                with store_full_errors(self.path):
                    write_file(self.path, header)
                self._length, self._checksum, self._is_synced = _HEADER.size, zlib.crc32(header), False
            if not self._waiting:
                return
            data = b"".join(self._waiting)
            with store_full_errors(self.path), descriptor(self.path, os.O_WRONLY) as fd:
                write_all(fd, data, self._length)  # not at the file's end: half of a failed write may be there
            self._waiting.clear()
            self._length, self._checksum = self._length + len(data), zlib.crc32(data, self._checksum)
            self._is_synced = False

    def sync(self) -> None:
        """Make durable what was flushed, the file's name aside. Raises: OSError; it may be repeated."""
        with self._lock:
            if self._is_synced:
                return
            self._is_synced = True
        try:
            with store_full_errors(self.path):
                sync_path(self.path)
        except OSError:
            self._is_synced = False
            raise

    def check(self) -> None:
        """Write what was taken and compare the file with the set. Raises: InvariantBroken, FormatMismatch, OSError."""
        self.flush()
        content, (length, _) = _content(self.path, self.number), self.seal
        if len(content) < length:
            raise FormatMismatch(f"{self.path} {CUT_OFF}")
        mine, there = self.columns(), TailLog(self.path, self.number, content[:length]).columns()
        if not all(np.array_equal(one, other) for one, other in zip(mine, there, strict=True)):
            raise InvariantBroken(f"{self.path} and the elements in memory disagree")

    def _learn(self, elements: Fingerprints) -> None:
        for high, low in elements.tolist():
            self._learn_one(high, low)

    def _learn_one(self, high: int, low: int) -> None:
        if self._highs.setdefault(low, high) != high:
            self._others[high, low] = None


def _content(path: Path, number: int) -> bytes:
    """All bytes of a log, which is never longer than two tails. Raises: FormatMismatch, OSError."""
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise FormatMismatch(f"{path} is missing: the index is damaged") from error
    if len(content) < _HEADER.size or not content.startswith(_MAGIC):
        raise FormatMismatch(f"{path} is damaged: it does not start as a log")
    _, version, found = _HEADER.unpack(content[: _HEADER.size])
    if version != VERSION:
        raise FormatMismatch(f"{path} has version {version}, this program reads {VERSION}")
    if found != number:
        raise FormatMismatch(f"{path} is log {found}: the file was renamed")
    return content
