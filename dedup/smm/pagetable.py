"""Which pages of sparse mapped files have blocks on the disk, and how a page gets them.

Writing to a page of a map that has no block on a full disk is a SIGBUS, so blocks are asked for first, by a call that
answers with an OSError. A page not known to have blocks holds no bit and is not even touched by a query, so that
asking a fresh store costs no page fault. (On tmpfs even reading a hole takes memory, and ends in SIGBUS when full.)
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from anabranch.dedup.batch import BoolArray, IntArray
from anabranch.dedup.durablefiles import descriptor, telling_full, write_all

#: What is allocated at once. A memory page is written back whole, so it is never less than one. With 4 KiB a store
#: that fills up makes 131,072 calls and as many extents, 4 s in all [measured on ext4]; with this a quarter of them.
PAGE_BYTES = max(1 << 14, mmap.PAGESIZE)
PAGE_SHIFT = PAGE_BYTES.bit_length() - 1


def allocate_by_fallocate(fd: int, offset: int, length: int) -> None:
    """Give the range blocks without changing its bytes (posix_fallocate)."""
    os.posix_fallocate(fd, offset, length)
    # The system takes a range that was never written for a hole (`sparse.py`): others would not look at its bits.
    write_all(fd, os.pread(fd, 1, offset), offset)


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
    """What is known of each page of a mapped array.

    `present[page]`: the page has blocks; the array may be shared by all processes. A page is `is_sure` once this
    process allocated it itself; only such pages are written to, since after a power loss `present` may promise too much.
    """

    def __init__(self, present: BoolArray) -> None:
        self.present = present
        self.is_sure: BoolArray = np.zeros(len(present), dtype=np.bool_)
        #: All pages are present, or sure: then neither has to be looked up.
        self.all_present = bool(present.all())
        self.all_sure = False
        self._unsure = len(present)

    def doubtful(self, pages: IntArray) -> list[int]:
        """Those of the pages that this process has not made sure of, each once, in order."""
        return sorted(set(pages[~self.is_sure[pages]].tolist()))

    def record(self, pages: list[int]) -> None:
        """These pages, each named once, were just allocated."""
        self._unsure -= len(pages) - int(self.is_sure[pages].sum())
        self.is_sure[pages] = True
        self.present[pages] = True
        self._note_all()

    def trust(self, start: int, stop: int) -> None:
        """The pages of that range lie in files that have all their blocks: they are sure, if they are present."""
        self._unsure -= int((self.present[start:stop] & ~self.is_sure[start:stop]).sum())
        self.is_sure[start:stop] |= self.present[start:stop]
        self._note_all()

    def forget(self, start: int, stop: int) -> None:
        """The pages of that range are others from now on, of which nothing is known: not present, not sure."""
        self._unsure += int(self.is_sure[start:stop].sum())
        self.is_sure[start:stop] = False
        self.present[start:stop] = False
        self.all_present = self.all_sure = False

    def close(self) -> None:
        """Let go of the array `present`."""
        self.present = np.zeros(0, dtype=np.bool_)

    def _note_all(self) -> None:
        self.all_sure = not self._unsure
        self.all_present |= self.all_sure
