"""Which pages of a sparse store have blocks on the disk, and how a page gets them.

Writing to a page of a map that has no block on a full disk is a SIGBUS, so blocks are asked for first, by a call that
answers with an OSError. The file PAGES (mapped, one byte a page, after a header) remembers which pages have blocks.
It is shared and lasting: a page that it does not name holds no bit, and is not even touched by a query, so that
asking a fresh store costs no page fault. (On tmpfs even reading a hole takes memory, and ends in SIGBUS when full.)

Header, little-endian: 8 bytes magic, 8 bytes version, 8 bytes "in use" (1: a writer may have died), 8 bytes number of
bits set in the store.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from dedup.batch import BoolArray, IntArray
from dedup.durablefiles import descriptor, sync_path, telling_full, write_all, write_file
from dedup.errors import FormatMismatch
from dedup.mappedfiles import MappedFiles

NAME = "PAGES"
#: What is allocated at once. A memory page is written back whole, so it is never less than one. With 4 KiB a store
#: that fills up makes 131,072 calls and as many extents, 4 s in all [measured on ext4]; with this a quarter of them.
PAGE_BYTES = max(1 << 14, mmap.PAGESIZE)
PAGE_SHIFT = PAGE_BYTES.bit_length() - 1

_HEADER_BYTES = 64
_MAGIC = int.from_bytes(b"ANASMMPG", "little")
_VERSION = 1
_IN_USE, _BITS_SET = 2, 3


def allocate_by_fallocate(fd: int, offset: int, length: int) -> None:
    """Give the range blocks without changing its bytes (posix_fallocate)."""
    os.posix_fallocate(fd, offset, length)


def allocate_by_rewriting(fd: int, offset: int, length: int) -> None:
    """Give the range blocks by writing back the bytes that it holds, where posix_fallocate is missing (macOS)."""
    write_all(fd, os.pread(fd, length, offset), offset)


Allocate = Callable[[int, int, int], None]
_allocate: Allocate = allocate_by_fallocate if hasattr(os, "posix_fallocate") else allocate_by_rewriting


def allocate_pages(path: Path, offsets: list[int], length: int) -> int:
    """Allocate `length` bytes at each offset through a descriptor of its own; answers how many succeeded.

    Raises: StoreFull only if the first one fails, so that the caller records the others before it asks again.
    """
    done = 0
    try:
        with telling_full(path), descriptor(path, os.O_RDWR) as fd:
            for offset in offsets:
                _allocate(fd, offset, length)
                done += 1
    except OSError:
        if not done:
            raise
    return done


class PageTable:
    """The PAGES file of a store with `pages` pages.

    `present[page]`: the page has blocks (shared by all processes). A page is `is_sure` once this process allocated
    it itself; only such pages are written to, since after a power loss `present` may promise too much.
    """

    def __init__(self, folder: Path, pages: int) -> None:
        self._path = folder / NAME
        self._file = MappedFiles([self._path], _HEADER_BYTES + pages, mmap.PAGESIZE)
        self._header = self._file.data[:_HEADER_BYTES].view(np.uint64)
        self.present: BoolArray = self._file.data[_HEADER_BYTES : _HEADER_BYTES + pages].view(np.bool_)
        self.is_sure: BoolArray = np.zeros(pages, dtype=np.bool_)
        if int(self._header[0]) != _MAGIC or int(self._header[1]) != _VERSION:
            self._unmap()
            raise FormatMismatch(f"{self._path} is damaged: it does not start as a {NAME} file of version {_VERSION}")
        #: All pages are present, or sure: then neither has to be looked up. Neither is ever taken back.
        self.all_present = bool(self.present.all())
        self.all_sure = False
        #: The number of set bits may be off by what a crash interrupted.
        self.count_is_rough = bool(self._header[_IN_USE])

    @staticmethod
    def create(folder: Path, pages: int) -> None:
        """Write the table of a store without bits; not sparse, so that it can be mapped without fear."""
        header = np.zeros(_HEADER_BYTES // 8, dtype="<u8")
        header[:2] = _MAGIC, _VERSION
        write_file(folder / NAME, header.tobytes() + bytes(pages))

    @property
    def bits_set(self) -> int:
        """Number of set bits in the store."""
        return int(self._header[_BITS_SET])

    @bits_set.setter
    def bits_set(self, count: int) -> None:
        self._header[_BITS_SET] = count

    def begin(self) -> None:
        """Record durably that a writer is at work; free after the first time."""
        if not self._header[_IN_USE]:
            self._header[_IN_USE] = 1
            try:
                self.sync()
            except OSError:
                self._header[_IN_USE] = 0
                raise

    def end(self) -> None:
        """Record durably that the writer ended well and that the count of bits is exact."""
        if self._header[_IN_USE] and not self.count_is_rough:
            self._header[_IN_USE] = 0
            self.sync()

    def doubtful(self, pages: IntArray) -> list[int]:
        """Those of the pages that this process has not made sure of, each once, in order."""
        return sorted(set(pages[~self.is_sure[pages]].tolist()))

    def record(self, pages: list[int]) -> None:
        """These pages were just allocated."""
        self.is_sure[pages] = True
        self.present[pages] = True
        self.all_present, self.all_sure = bool(self.present.all()), bool(self.is_sure.all())

    def trust(self, full: BoolArray) -> None:
        """Pages in files that have all their blocks are sure, if they are present."""
        self.is_sure[:] = full & self.present
        self.all_sure = bool(self.is_sure.all())

    def sync(self) -> None:
        """Make the table durable."""
        sync_path(self._path)

    def close(self) -> None:
        """Unmap the file; a second call does nothing."""
        self._unmap()

    def _unmap(self) -> None:
        self._header = np.zeros(_HEADER_BYTES // 8, dtype=np.uint64)
        self.present = np.zeros(0, dtype=np.bool_)
        self._file.close()
