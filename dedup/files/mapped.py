"""Many equal files mapped one after the other, so that one numpy array spans them all; and where the data of sparse files is.

A stretch of addresses is reserved first, then each file is mapped over its place in it (mmap(2), MAP_FIXED). Each
descriptor is closed after mapping: `mmap.mmap` would keep a duplicate of it, 256 of the usual 1024 of a process.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from anabranch.dedup.errors import FormatMismatch
from anabranch.dedup.files.durable import descriptor, store_full_errors, write_all
from anabranch.dedup.keys import ByteArray

_MAP_FIXED = 0x10  # the same on Linux and macOS; the mmap module does not name it
#: Reserved addresses are no memory; without it the kernel refuses more of them than there is memory. Named since Python
#: 3.13; the number is Linux's on x86, ARM, RISC-V and s390, and means nothing elsewhere.
_MAP_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)
_BLOCK_BYTES = 512  # the unit of st_blocks, whatever the file system's block is

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *([ctypes.c_int] * 3), ctypes.c_int64]


class MappedPlaces:
    """Places for files of `file_bytes` each, shared and writable; place i starts at byte `i * stride` of `data`.

    Touching a page without blocks on a full disk kills the process (SIGBUS): callers allocate pages first.
    """

    def __init__(self, places: int, file_bytes: int, align: int) -> None:
        self.stride = -(-file_bytes // align) * align
        self._file_bytes = file_bytes
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANON | _MAP_NORESERVE
        self._region = mmap.mmap(-1, self.stride * places, flags=flags)
        self.data: ByteArray = np.frombuffer(self._region, dtype=np.uint8)
        self._start = self.data.ctypes.data

    def put(self, place: int, path: Path, fd: int) -> bool:
        """Map the open file over a place; an empty file gets its size first. True if all blocks are allocated."""
        status = os.fstat(fd)
        if not status.st_size:
            with store_full_errors(path):
                os.ftruncate(fd, self._file_bytes)
        elif status.st_size != self._file_bytes:
            raise FormatMismatch(f"{path} has {status.st_size} bytes instead of {self._file_bytes}: it is damaged")
        address = self._start + place * self.stride
        protection = mmap.PROT_READ | mmap.PROT_WRITE
        mapped = _libc.mmap(address, self._file_bytes, protection, mmap.MAP_SHARED | _MAP_FIXED, fd, 0)
        if mapped != address:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(path))
        return status.st_blocks * _BLOCK_BYTES >= status.st_size > 0

    def advise(self, place: int, places: int = 1) -> None:
        """Announce random reads: else the kernel reads around each fault, 250 MiB after 5,000 random keys."""
        if hasattr(mmap, "MADV_RANDOM"):
            self._region.madvise(mmap.MADV_RANDOM, place * self.stride, places * self.stride)

    def release_pages(self) -> None:
        """Give all resident pages back to the kernel, as `release` says."""
        release(self._region)

    def close(self) -> None:
        """Unmap all files; a second call does nothing. The array is empty from then on."""
        self.data = np.zeros(0, dtype=np.uint8)
        self._region.close()


class MappedFiles(MappedPlaces):
    """All the files of `paths`, in their order, mapped once and for all."""

    def __init__(self, paths: Sequence[Path], file_bytes: int, align: int) -> None:
        super().__init__(len(paths), file_bytes, align)
        try:
            #: Per file: all its blocks are allocated, so that no page of it can fail.
            self.is_full = [self._open(place, path) for place, path in enumerate(paths)]
            self.advise(0, len(paths))
        except BaseException:
            self.close()
            raise

    def _open(self, place: int, path: Path) -> bool:
        try:
            with descriptor(path, os.O_RDWR) as fd:
                return self.put(place, path, fd)
        except FileNotFoundError as error:
            raise FormatMismatch(f"{path} is missing: the store is damaged") from error


def release(region: mmap.mmap) -> None:
    """Give the resident pages of a shared map back to the kernel. Nothing is lost, and nothing has to be synced first.

    MADV_DONTNEED takes the pages out of the process; they stay in the page cache, which the kernel shrinks when memory is
    short, and what was changed is written as before. MADV_COLD would leave them resident; MADV_PAGEOUT would write and read
    the disk, for each page that is asked for again.
    """
    if hasattr(mmap, "MADV_DONTNEED"):
        region.madvise(mmap.MADV_DONTNEED)


_STATM = Path("/proc/self/statm")
_SHARED = 2  # the field with the resident pages of files and of shared memory


def resident_file_bytes() -> int:
    """Resident pages of files that this process has mapped, libraries included; 0 without /proc. Cost: 10 µs."""
    try:
        return int(_STATM.read_bytes().split()[_SHARED]) * mmap.PAGESIZE
    except OSError:
        return 0


class MappedLimit:
    """Has pages of mapped files released once more of them became resident than a limit. Works on Linux, else does nothing."""

    def __init__(self, limit_bytes: int, releases: Sequence[Callable[[], None]]) -> None:
        self._limit_bytes = limit_bytes
        self._releases = releases
        self._others = 0  # resident pages that are not ours: libraries, for example
        self._release()  # the opening may have touched pages
        self.times = 0  #: pages were released so often since

    def look(self) -> None:
        """Release all pages if they are over the limit. A look between two calls lets one call exceed it."""
        now = resident_file_bytes()
        self._others = min(self._others, now)
        if now - self._others > self._limit_bytes:
            self._release()
            self.times += 1

    def _release(self) -> None:
        for release_pages in self._releases:
            release_pages()
        self._others = resident_file_bytes()


#: Bytes that are allocated at once. A memory page is written back whole, so it is never less than one. With 4 KiB a store
#: that fills up makes 131,072 calls and as many extents, 4 s in all [measured on ext4]; with this a quarter of them.
PAGE_BYTES = max(1 << 14, mmap.PAGESIZE)
PAGE_SHIFT = PAGE_BYTES.bit_length() - 1


def allocate_by_fallocate(fd: int, offset: int, length: int) -> None:
    """Give the range blocks without changing its bytes (posix_fallocate)."""
    os.posix_fallocate(fd, offset, length)
    # The system takes a range that was never written for a hole (`data_ranges`): others would not look at its bits.
    write_all(fd, os.pread(fd, 1, offset), offset)


def allocate_by_rewriting(fd: int, offset: int, length: int) -> None:
    """Give the range blocks by writing back the bytes that it holds, where posix_fallocate is missing (macOS)."""
    write_all(fd, os.pread(fd, length, offset), offset)


Allocate = Callable[[int, int, int], None]
_allocate: Allocate = allocate_by_fallocate if hasattr(os, "posix_fallocate") else allocate_by_rewriting


def allocate_pages(path: Path, offsets: list[int], length: int) -> int:
    """Allocate `length` bytes at each offset; returns how many succeeded. Raises: StoreFull only if the first one fails."""
    done = 0
    try:
        with store_full_errors(path), descriptor(path, os.O_RDWR) as fd:
            for offset in offsets:
                _allocate(fd, offset, length)
                done += 1
    except OSError:
        if not done:
            raise
    return done


_READ_BYTES = 1 << 20


def data_ranges(fd: int, size: int) -> Iterator[tuple[int, int]]:
    """Start and end of each range below `size` that may hold other bytes than 0 (SEEK_DATA), or the whole file.

    The rest need not be read: reading a hole of a map in a file system in memory takes memory.
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
