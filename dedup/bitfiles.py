"""A set of addresses on disk, one bit each, in sparse files of full size that are mapped shared.

`fileindex.py` says which bit of which file an address is. The set outlives the process; other processes that map the
files see a bit as soon as it is set. The file PAGES (`pagetable.py`) says which pages have blocks on the disk: bits are
set in such pages only, and the others, which hold none, are not touched.
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import numpy as np

from dedup.batch import BoolArray, ByteArray, IntArray
from dedup.durablefiles import sync_path
from dedup.errors import InvariantBroken
from dedup.fileindex import FileIndex
from dedup.mappedfiles import MappedFiles
from dedup.pagetable import PAGE_BYTES, PAGE_SHIFT, PageTable, allocate_pages

_BIT: ByteArray = np.array([128 >> bit for bit in range(8)], dtype=np.uint8)
_COUNT_AT_ONCE = 4096  # pages


class BitFiles:
    """The files of one folder; `BitFiles.create` makes them.

    Setting and asking belong to one thread; `sync` may run in another one at the same time.
    """

    def __init__(self, folder: Path, index: FileIndex) -> None:
        self._folder = folder
        self._index = index
        self._paths = [folder / name for name in index.names()]
        self._files = MappedFiles(self._paths, index.file_bytes, PAGE_BYTES)
        #: Bytes between the end of a file and the next one in the mapped array.
        self._padding = self._files.stride - index.file_bytes
        try:
            self._pages = PageTable(folder, self._files.data.size // PAGE_BYTES)
        except BaseException:
            self._files.close()
            raise
        self._pages.trust(np.repeat(self._files.is_full, self._files.stride // PAGE_BYTES))
        self._touched: BoolArray = np.full(index.files, self._pages.count_is_rough)

    @staticmethod
    def create(folder: Path, index: FileIndex) -> None:
        """Make the files, empty (mapping gives an empty file its size), and the page table.

        The files are not synced one by one: the sync of a file that holds bits includes its size. So a file that a
        power loss left empty never held a synced bit.
        """
        for below in index.folders():
            (folder / below).mkdir(exist_ok=True)
        for name in index.names():
            (folder / name).touch()
        PageTable.create(folder, index.files * -(-index.file_bytes // PAGE_BYTES))

    @property
    def bits_set(self) -> int:
        """Number of set bits; after a crash it may miss what was being set then, until `check`."""
        return self._pages.bits_set

    def are_clear(self, addresses: IntArray) -> BoolArray:
        """True where the bit is 0. Cost: one page touched per address."""
        places, bits = self._places(addresses), _BIT[addresses & 7]
        present = self._pages.all_present or self._pages.present[places >> PAGE_SHIFT]
        if present is True or present.all():
            empty: BoolArray = (self._files.data[places] & bits) == 0
            return empty
        clear: BoolArray = np.ones(len(addresses), dtype=np.bool_)
        clear[present] = (self._files.data[places[present]] & bits[present]) == 0
        return clear

    def is_clear(self, address: int) -> bool:
        """`are_clear` of one address."""
        place = self._place(address)
        return not (
            self._pages.present.item(place >> PAGE_SHIFT) and self._files.data.item(place) & 128 >> (address & 7)
        )

    def set(self, addresses: IntArray) -> None:
        """Set bits that are all clear; the array may name one twice.

        Raises: StoreFull (an OSError) with some pages allocated and no bit set; it may be repeated.
        """
        if not len(addresses):
            return
        places = self._places(addresses)
        if not self._pages.all_sure:
            self._make_sure(places >> PAGE_SHIFT)
        self._pages.begin()
        np.bitwise_or.at(self._files.data, places, _BIT[addresses & 7])
        self._pages.bits_set += len(set(addresses.tolist()))
        # After the bits, so that a sync in another thread never takes the note away before the bit is there.
        self._touched[places // self._files.stride] = True

    def set_one(self, address: int) -> None:
        """`set` one bit."""
        place = self._place(address)
        if not self._pages.is_sure.item(place >> PAGE_SHIFT):
            self._make_sure(np.array([place >> PAGE_SHIFT]))
        self._pages.begin()
        self._files.data[place] |= 128 >> (address & 7)
        self._pages.bits_set += 1
        self._touched[place // self._files.stride] = True

    def sync(self) -> None:
        """Make all bits that were set before this call durable (fdatasync, file by file). Raises: OSError."""
        touched, self._touched = self._touched, np.zeros_like(self._touched)
        try:
            for file in np.flatnonzero(touched).tolist():
                sync_path(self._paths[file])
            if touched.any():
                self._pages.sync()
        except OSError:
            self._touched |= touched
            raise

    def check(self) -> None:
        """Count the bits and compare with the kept number; after a crash, correct that number instead.

        Cost: reads every allocated page, at most all files. Raises: InvariantBroken.
        """
        kept, counted = self._pages.bits_set, self._count()
        if self._pages.count_is_rough:
            self._pages.bits_set = counted
            self._pages.count_is_rough = False
        elif kept != counted:
            raise InvariantBroken(f"{self._folder}: {counted} bits are set, {kept} were counted")

    def close(self) -> None:
        """Sync and unmap; call it once. Raises: OSError from the sync, with the files let go."""
        try:
            self.sync()
            self._pages.end()
        finally:
            self._pages.close()
            self._files.close()

    def _places(self, addresses: IntArray) -> IntArray:
        """Where in the mapped array the bytes of the addresses' bits lie."""
        places = addresses >> 3
        if self._padding:
            places += addresses // self._index.file_bits * self._padding
        return places

    def _place(self, address: int) -> int:
        return (address >> 3) + address // self._index.file_bits * self._padding

    def _make_sure(self, numbers: IntArray) -> None:
        """Allocate those pages that this process has not allocated yet."""
        per_file = self._files.stride // PAGE_BYTES
        length = min(PAGE_BYTES, self._index.file_bytes)
        for file, group in groupby(self._pages.doubtful(numbers), key=lambda page: page // per_file):
            missing = list(group)
            while missing:
                offsets = [page % per_file * PAGE_BYTES for page in missing]
                done = allocate_pages(self._paths[file], offsets, length)
                self._pages.record(missing[:done])
                missing = missing[done:]

    def _count(self) -> int:
        """Count the set bits of all present pages."""
        cells = self._files.data.reshape(-1, PAGE_BYTES)
        present = np.flatnonzero(self._pages.present)
        parts = (present[start : start + _COUNT_AT_ONCE] for start in range(0, len(present), _COUNT_AT_ONCE))
        return sum(int(np.bitwise_count(cells[part]).sum()) for part in parts)
