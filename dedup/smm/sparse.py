"""Sparse files: where their data lies."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from anabranch.dedup.durablefiles import descriptor
from anabranch.dedup.errors import FormatMismatch

_READ_BYTES = 1 << 20


def data_ranges(fd: int, size: int) -> Iterator[tuple[int, int]]:
    """Start and end of each range below `size` that may hold other bytes than 0 (lseek(2), SEEK_DATA).

    What lies outside holds zeros, and need not be read: on a file system in memory, reading a hole of a map takes
    memory. Where the system cannot tell, the range is the whole file.
    """
    stop = 0
    while stop < size:
        try:
            start = os.lseek(fd, stop, os.SEEK_DATA)
            stop = min(os.lseek(fd, start, os.SEEK_HOLE), size)
        except OSError as error:
            if error.errno == errno.ENXIO:  # no data after this place
                return
            if error.errno != errno.EINVAL:
                raise
            start, stop = stop, size
        if start < stop:
            yield start, stop


def count_bits(path: Path, size: int) -> int:
    """The number of set bits in a file that is empty or has `size` bytes. Raises: FormatMismatch, OSError."""
    counted = 0
    with descriptor(path, os.O_RDONLY) as fd:
        there = os.fstat(fd).st_size
        if there not in (0, size):
            raise FormatMismatch(f"{path} has {there} bytes instead of {size}: it is damaged")
        for start, stop in data_ranges(fd, there):
            for offset in range(start, stop, _READ_BYTES):
                text = os.pread(fd, min(_READ_BYTES, stop - offset), offset)
                counted += int(np.bitwise_count(np.frombuffer(text, dtype=np.uint8)).sum())
    return counted
