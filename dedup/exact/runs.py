"""Immutable files of sorted fingerprints that are searched in place: the runs of an exact index.

File `run-<number>.run`: a header of 64 bytes (magic, version, number, count, checksums of the two columns), then the
high halves of all elements in ascending order, then the low half of each; 8 bytes a half, little-endian. Elements with
equal high halves, forged ones, are in the order of their low halves.

A long run is searched by interpolation (`find`). Hashes are spread evenly: among n of them the first guess is off by
about sqrt(n) / 2, the second by the root of that, the third by a few places. That is three memory accesses a value,
which do not wait for one another; a binary search has some ten that do.
"""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path

import numpy as np
import xxhash

from anabranch.dedup.errors import FormatMismatch, InvariantBroken
from anabranch.dedup.files.durable import descriptor, store_full_errors, write_all
from anabranch.dedup.files.mapped import release
from anabranch.dedup.keys import FINGERPRINT_BYTES, BoolArray, HashArray, IntArray

VERSION = 1

_MAGIC = b"ANASRUN\n"
_HEADER = struct.Struct("<8sI4xQQQQ16x")  # magic, version, number, count, XXH3-64 of the high halves, of the low ones
_HALF_BYTES = FINGERPRINT_BYTES // 2
_CHECK_AT_ONCE = 1 << 18  # elements


class SortedRun:
    """One run of one element or more, each once, mapped read-only. Raises: FormatMismatch, OSError."""

    def __init__(self, path: Path, number: int) -> None:
        self.path = path
        self.number = number
        try:
            with descriptor(path, os.O_RDONLY) as fd:
                self.count, *self._checksums = _checked_header(path, number, fd)
                self._map = mmap.mmap(fd, 0, access=mmap.ACCESS_READ)
        except FileNotFoundError as error:
            raise FormatMismatch(f"{path} is missing: the index is damaged") from error
        if hasattr(mmap, "MADV_RANDOM"):
            self._map.madvise(mmap.MADV_RANDOM)
        halves = np.frombuffer(self._map, dtype="<u8", offset=_HEADER.size)
        self._highs: HashArray = halves[: self.count]
        self._lows: HashArray = halves[self.count :]

    @property
    def file_bytes(self) -> int:
        """Size of the file."""
        return len(self._map)

    def knows(self, highs: HashArray, lows: HashArray) -> BoolArray:
        """True where the element of these halves is in the run. Cost: a search each, less in ascending order."""
        if self.count >= WORTH_GUESSING and len(highs) >= FEWEST_GUESSED:
            places, known = find(self._highs, highs)
        else:
            places = self._highs.searchsorted(highs)
            known = self._highs.take(places, mode="clip") == highs
        candidates = np.flatnonzero(known)
        if len(candidates):
            same = self._lows[places[candidates]] == lows[candidates]
            for i in candidates[~same].tolist():
                known[i] = self._is_among_equals(places.item(i), highs[i], lows[i])
        return known

    def knows_one(self, high: int, low: int) -> bool:
        """`knows` of one element."""
        wanted = np.uint64(high)
        place = int(self._highs.searchsorted(wanted))
        if place == self.count or self._highs[place] != wanted:
            return False
        return self._lows.item(place) == low or self._is_among_equals(place, wanted, np.uint64(low))

    def part(self, start: int, stop: int) -> tuple[HashArray, HashArray]:
        """Both halves of a stretch of elements, read ahead from the file."""
        # The map is advised for random access, so a stretch is announced, or each page would be a read of its own.
        if hasattr(mmap, "MADV_WILLNEED") and start < stop:
            for place in (start, self.count + start):
                offset = _HEADER.size + place * _HALF_BYTES
                first = offset // mmap.PAGESIZE * mmap.PAGESIZE
                self._map.madvise(mmap.MADV_WILLNEED, first, offset + (stop - start) * _HALF_BYTES - first)
        return self._highs[start:stop], self._lows[start:stop]

    def release_pages(self) -> None:
        """Give all resident pages of the file back to the kernel."""
        release(self._map)

    def high(self, place: int) -> int:
        """High half of the element at a place."""
        return self._highs.item(place)

    def place_above(self, high: int, start: int) -> int:
        """First place from `start` on whose high half is above this one."""
        return start + int(self._highs[start:].searchsorted(np.uint64(high), side="right"))

    def check(self) -> None:
        """Read all: header, checksums and order. Raises: InvariantBroken, FormatMismatch."""
        with descriptor(self.path, os.O_RDONLY) as fd:  # first: reading a map of a cut file is a SIGBUS
            if _checked_header(self.path, self.number, fd) != (self.count, *self._checksums):
                raise InvariantBroken(f"{self.path} was replaced while it was open")
        columns = (self._highs, self._lows)
        for column, wanted in zip(columns, self._checksums, strict=True):
            found = xxhash.xxh3_64()
            for start in range(0, self.count, _CHECK_AT_ONCE):
                found.update(column[start : start + _CHECK_AT_ONCE].data)
            if found.intdigest() != wanted:
                raise InvariantBroken(f"{self.path} and its checksum disagree: it is damaged")
        for start in range(0, self.count, _CHECK_AT_ONCE):
            highs, lows = (column[start : start + _CHECK_AT_ONCE + 1] for column in columns)
            ascends = (highs[:-1] < highs[1:]) | (highs[:-1] == highs[1:]) & (lows[:-1] < lows[1:])
            if not ascends.all():
                raise InvariantBroken(f"{self.path} is not in ascending order")

    def _is_among_equals(self, place: int, high: np.uint64, low: np.uint64) -> bool:
        """True if one of the elements from `place` on that share this high half has this low half."""
        equals = self._lows[place : int(self._highs.searchsorted(high, side="right"))]
        found = int(equals.searchsorted(low))
        return found < len(equals) and bool(equals[found] == low)


class RunWriter:
    """A run that is being written, part by part; its header comes last. Raises: StoreFull, OSError."""

    def __init__(self, path: Path, number: int, count: int) -> None:
        self._path = path
        self._number = number
        self._count = count
        self._written = 0
        self._checksums = (xxhash.xxh3_64(), xxhash.xxh3_64())
        with store_full_errors(path):
            self._fd = os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_CLOEXEC, 0o600)

    def append(self, highs: HashArray, lows: HashArray) -> None:
        """Write the next elements; after an OSError nothing was taken and the call may be repeated."""
        columns = [half.astype("<u8", copy=False).tobytes() for half in (highs, lows)]
        with store_full_errors(self._path):
            for place, data in zip((self._written, self._count + self._written), columns, strict=True):
                write_all(self._fd, data, _HEADER.size + place * _HALF_BYTES)
        for checksum, data in zip(self._checksums, columns, strict=True):
            checksum.update(data)
        self._written += len(highs)

    def finish(self) -> SortedRun:
        """The run, in place but not synced."""
        if self._written != self._count:
            raise InvariantBroken(f"{self._path} has {self._written} elements, {self._count} were announced")
        high, low = (checksum.intdigest() for checksum in self._checksums)
        with store_full_errors(self._path):
            write_all(self._fd, _HEADER.pack(_MAGIC, VERSION, self._number, self._count, high, low), 0)
        run = SortedRun(self._path, self._number)
        os.close(self._fd)
        return run

    def abandon(self) -> None:
        """Remove the file."""
        os.close(self._fd)
        self._path.unlink(missing_ok=True)


def write_run(path: Path, number: int, highs: HashArray, lows: HashArray) -> SortedRun:
    """A run of these elements, which are distinct and sorted. Raises: StoreFull, OSError, with nothing left behind."""
    writer = RunWriter(path, number, len(highs))
    try:
        writer.append(highs, lows)
        return writer.finish()
    except BaseException:
        writer.abandon()
        raise


def ranked(highs: HashArray, lows: HashArray) -> tuple[HashArray, HashArray]:
    """The elements in ascending order. Cost: 17 ns each, less where sorted stretches lie one behind the other."""
    order = np.argsort(highs, kind="stable")  # a merge sort, which makes use of such stretches
    sorted_highs = highs[order]
    if (sorted_highs[1:] == sorted_highs[:-1]).any():
        order = np.lexsort((lows, highs))
    return sorted_highs, lows[order]


def _checked_header(path: Path, number: int, fd: int) -> tuple[int, int, int]:
    """Count and checksums in the file's header. Raises: FormatMismatch."""
    header, size = os.pread(fd, _HEADER.size, 0), os.fstat(fd).st_size
    if len(header) < _HEADER.size or not header.startswith(_MAGIC):
        raise FormatMismatch(f"{path} is damaged: it does not start as a run")
    _, version, found, count, *checksums = _HEADER.unpack(header)
    if version != VERSION:
        raise FormatMismatch(f"{path} has version {version}, this program reads {VERSION}")
    if found != number:
        raise FormatMismatch(f"{path} is run {found}: the file was renamed")
    if not count or size != _HEADER.size + count * FINGERPRINT_BYTES:
        raise FormatMismatch(f"{path} has {size} bytes, which does not fit {count} elements: it is damaged")
    return count, checksums[0], checksums[1]


#: Shorter arrays are mostly in the processor's cache, where a binary search is as fast.
WORTH_GUESSING = 1 << 21
#: For fewer values a binary search is faster: it has one numpy call, a guess has 25.
FEWEST_GUESSED = 24

_LOOKS = 2
_WINDOW: IntArray = np.arange(32, dtype=np.int64)  # four cache lines; one value in 200 lies outside of it
_RANGE = 2.0**64


def find(ascending: HashArray, wanted: HashArray) -> tuple[IntArray, BoolArray]:
    """For each wanted value its first place, and whether it is in the array (if not, the place means nothing).

    Right for any ascending array, fast for hashes. Cost: 25 µs, and 0.3 to 0.6 µs a value among 10 million.
    """
    starts = _guess(ascending, wanted)
    windows = ascending[starts[:, None] + _WINDOW]
    hits = windows == wanted[:, None]
    places: IntArray = starts + hits.argmax(axis=1)
    found: BoolArray = hits.any(axis=1)
    unsure = np.flatnonzero((windows[:, 0] >= wanted) | (windows[:, -1] < wanted))
    if len(unsure):
        again = np.minimum(ascending.searchsorted(wanted[unsure]), len(ascending) - 1)
        places[unsure] = again
        found[unsure] = ascending[again] == wanted[unsure]
    return places, found


def _guess(ascending: HashArray, wanted: HashArray) -> IntArray:
    """Starts of the windows in which the values should be."""
    last, per_step = len(ascending) - 1, len(ascending) / _RANGE
    places: IntArray = (wanted * per_step).astype(np.int64)
    for _ in range(_LOOKS):
        np.clip(places, 0, last, out=places)
        off = (wanted - ascending[places]).view(np.int64)  # wraps around, and so is signed
        places += (off * per_step).astype(np.int64)
    return np.clip(places - len(_WINDOW) // 2, 0, len(ascending) - len(_WINDOW))
