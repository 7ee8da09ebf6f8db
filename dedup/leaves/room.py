"""Where the bytes of local leaves lie: one stretch of memory, or one mapped file. Either is one array that can grow.

The file BITS: a header of 4096 bytes (magic, version, k, m, a stamp that ties it to one MANIFEST), then slot by slot.
It is mapped while a filter works on mapped leaves, and written at a clean end by one whose leaves are in memory;
whether its bits count is said in the MANIFEST alone (`image.py`). Numbers are little-endian; bit 0 of a leaf is the
least significant one of its first byte.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
from pathlib import Path
from typing import Protocol

import numpy as np

from anabranch.dedup.batch import ByteArray
from anabranch.dedup.durablefiles import descriptor, sync_file, telling_full, write_all
from anabranch.dedup.errors import FormatMismatch
from anabranch.dedup.smm.pagetable import allocate_pages

NAME = "BITS"
VERSION = 1
HEADER_BYTES = 4096
STAMP_BYTES = 16

_MAGIC = b"ANADSBFB"
_HEADER = struct.Struct("<8sIIQ16s")  # magic, version, k, m, stamp
_UNSTAMPED = bytes(STAMP_BYTES)
#: Linux moves a private map to where it has room (mremap), without copying a byte.
_CAN_MOVE = sys.platform == "linux"
_NOTHING: ByteArray = np.zeros(0, dtype=np.uint8)


class Room(Protocol):
    """Bytes that keep their content while they become more."""

    data: ByteArray  #: all of them; another array after `extend`, so do not hold on to it

    def extend(self, size: int) -> None:
        """Have so many bytes, more than now; the new ones are 0. Raises: OSError, with the room as it was."""
        ...

    def secure(self, start: int, length: int) -> None:
        """See to it that this part can be written to. Raises: OSError."""
        ...

    def close(self) -> None:
        """Let go of the bytes; a second call does nothing."""
        ...


class MemoryRoom:
    """Bytes in memory, taken from the kernel page by page as they are touched."""

    def __init__(self) -> None:
        self._map: mmap.mmap | None = None
        self.data: ByteArray = _NOTHING

    def extend(self, size: int) -> None:
        """Have so many bytes. Cost on Linux: some microseconds whatever the size; elsewhere a copy."""
        if self._map is not None and _CAN_MOVE and self._move(self._map, size):
            return
        grown = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANON)
        data = np.frombuffer(grown, dtype=np.uint8)
        data[: self.data.size] = self.data
        self._map, self.data = grown, data

    def secure(self, start: int, length: int) -> None:
        """Memory needs nothing."""

    def close(self) -> None:
        """Forget the bytes."""
        self._map, self.data = None, _NOTHING

    def _move(self, old: mmap.mmap, size: int) -> bool:
        """Have the kernel move the map; False if somebody holds an array over it, as a kept traceback may."""
        self.data = _NOTHING
        try:
            old.resize(size)
        except BufferError:
            return False
        finally:
            self.data = np.frombuffer(old, dtype=np.uint8)
        return True


class FileRoom:
    """Bytes in the file BITS of a folder, mapped shared.

    `secure` gives a part blocks on the disk, so that a full disk is a StoreFull and never a SIGBUS.
    """

    def __init__(self, path: Path, leaf_bits: int, hashes: int) -> None:
        self._path = path
        self._shape = hashes, leaf_bits
        self._map: mmap.mmap | None = None
        self.data: ByteArray = _NOTHING

    def begin(self) -> None:
        """Start with an empty file, whatever was there. Raises: OSError."""
        self.close()  # a map of the old file would reach beyond the end of the new one
        with telling_full(self._path), descriptor(self._path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY) as fd:
            write_all(fd, header(*self._shape, _UNSTAMPED), 0)

    def resume(self, size: int) -> None:
        """Map the bytes that are there. Raises: OSError."""
        self._remap(size)

    def extend(self, size: int) -> None:
        """Have so many bytes: the file grows, sparse, and is mapped anew. Cost: some microseconds."""
        with telling_full(self._path), descriptor(self._path, os.O_RDWR) as fd:
            os.ftruncate(fd, HEADER_BYTES + size)
        self._remap(size)

    def secure(self, start: int, length: int) -> None:
        """Give the part blocks on the disk. Raises: StoreFull, OSError."""
        allocate_pages(self._path, [HEADER_BYTES + start], length)

    def stamp(self, stamp: bytes) -> None:
        """Make all bits durable, then this stamp. Raises: OSError."""
        with telling_full(self._path), descriptor(self._path, os.O_RDWR) as fd:
            sync_file(fd)
            write_all(fd, header(*self._shape, stamp), 0)
            sync_file(fd)

    def close(self) -> None:
        """Unmap the file."""
        self._map, self.data = None, _NOTHING

    def _remap(self, size: int) -> None:
        with descriptor(self._path, os.O_RDWR) as fd:
            self._map = mmap.mmap(fd, HEADER_BYTES + size)
        # Without it the kernel reads around each fault, far more than is asked for.
        if hasattr(mmap, "MADV_RANDOM"):
            self._map.madvise(mmap.MADV_RANDOM)
        self.data = np.frombuffer(self._map, dtype=np.uint8, offset=HEADER_BYTES)


def header(hashes: int, leaf_bits: int, stamp: bytes) -> bytes:
    """The first bytes of a BITS file."""
    return _HEADER.pack(_MAGIC, VERSION, hashes, leaf_bits, stamp).ljust(HEADER_BYTES, b"\0")


def require_header(path: Path, fd: int, wanted: bytes) -> None:
    """Raise `FormatMismatch` unless the file starts with these bytes of `header`."""
    if os.pread(fd, len(wanted), 0) != wanted:
        raise FormatMismatch(f"{path} is another filter's, another state's or damaged")
