"""A set of addresses on disk, one bit each, in sparse files of full size that are mapped shared (`mapping.py`).

The set outlives the process. Other processes that map the files see a bit as soon as it is set; only one at a time sets
bits (`sharing.py`), and only in pages that have blocks on the disk.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np

from anabranch.dedup.errors import FilterClosed, InvariantBroken
from anabranch.dedup.files import Closing
from anabranch.dedup.files.durable import store_full_errors, sync_file_system, sync_path
from anabranch.dedup.files.mapped import PAGE_BYTES, PAGE_SHIFT, allocate_pages, count_bits
from anabranch.dedup.keys import BoolArray, ByteArray, IntArray, are_distinct, first_of_each
from anabranch.dedup.smm.addresses import FileIndex
from anabranch.dedup.smm.mapping import ALL, ledger_bytes, open_files
from anabranch.dedup.smm.sharing import Ledger, Sharing

#: More files than this are synced by one call for the whole file system: a call for each takes 2 ms [measured on ext4].
_MOST_SINGLE_SYNCS = 256
_BIT: ByteArray = np.array([128 >> bit for bit in range(8)], dtype=np.uint8)


class BitsUsed(NamedTuple):
    """The files and bytes that the bits of a store take on the disk."""

    files: int  #: of the store's files, those that hold bits
    bytes: int  #: of their pages with blocks, or of a compact form (`growing.py`)


class BitFiles(Closing):
    """The files of one folder, made by `create_files` in the turn in which they are first opened."""

    is_compact = False  #: as of `GrowingBits`

    def __init__(self, folder: Path, index: FileIndex, sharing: Sharing, *, alone: bool = False) -> None:
        self._folder = folder
        self._index = index
        self._sharing = sharing
        self._ledger = Ledger(folder, ledger_bytes(index))
        try:
            if sharing.attend(self._ledger.path, alone=alone):
                self._ledger.open_first()
            self._files = open_files(folder, index, self._ledger)
        except BaseException:
            self._ledger.close()
            raise
        self._pages = self._files.pages
        self.is_closed = False
        self._unsynced: set[int] = set()  # files
        self._unsynced_lock = threading.Lock()
        self._one_sync = threading.Lock()  # held for a whole sync: a second one waits for what the first has taken over

    @property
    def bits_set(self) -> int:
        """Number of set bits; after a crash it may miss what was being set then, until `check`."""
        self._require_open()
        return self._ledger.bits_set

    @property
    def used(self) -> BitsUsed | None:
        """The files and bytes that the bits take on the disk; None for a store of three levels or more. Cost: 50 µs."""
        used = self._files.used()
        return None if used is None else BitsUsed(*used)

    def are_clear(self, addresses: IntArray) -> BoolArray:
        """True where the bit is 0. Cost: one page touched per address."""
        self._require_open()
        clear: BoolArray = np.empty(len(addresses), dtype=np.bool_)
        bits = _BIT[addresses & 7]
        for part, places in self._files.parts(addresses):
            if part is ALL:
                return self._clear_at(places, bits)
            clear[part] = self._clear_at(places, bits[part])
        return clear

    def is_clear(self, address: int) -> bool:
        """`are_clear` of one address."""
        self._require_open()
        place = self._files.place(address)
        return not (
            self._pages.present.item(place >> PAGE_SHIFT) and self._files.data.item(place) & 128 >> (address & 7)
        )

    def test_and_set(self, addresses: IntArray) -> BoolArray:
        """Test and set: True where a bit was 0, for the first of equal addresses. Raises: StoreFull with no bit set."""
        with self._sharing:
            new = self.are_clear(addresses) & first_of_each(addresses.tolist())
            self._set(addresses[new])
        return new

    def set(self, addresses: IntArray) -> None:
        """Set bits, in one turn. Raises: as `test_and_set`."""
        with self._sharing:
            clear = addresses[self.are_clear(addresses)]
            self._set(clear)
        if len(clear) < len(addresses):
            # Bits that another process set are synced here too, since this call reports them as marked.
            self._note_unsynced(addresses)

    def set_one(self, address: int) -> None:
        """`set` one address."""
        with self._sharing:
            if self.is_clear(address):
                place = self._files.place(address, create=True)
                if not self._pages.is_sure.item(place >> PAGE_SHIFT):
                    self._make_sure(np.array([place >> PAGE_SHIFT]))
                self._ledger.begin_batch()
                self._files.data[place] |= 128 >> (address & 7)
                self._ledger.end_batch(1)
        with self._unsynced_lock:
            self._unsynced.add(address // self._index.file_bits)

    def sync(self) -> None:
        """Make all bits that were set here before this call durable. Raises: OSError."""
        self._require_open()
        with self._one_sync:
            with self._unsynced_lock:
                unsynced, self._unsynced = self._unsynced, set()
            if not unsynced:
                return
            try:
                paths = [self._folder / self._index.name(file) for file in sorted(unsynced)]
                self._make_durable(paths, are_many=len(paths) > _MOST_SINGLE_SYNCS)
                self._ledger.sync()
            except BaseException:
                with self._unsynced_lock:
                    self._unsynced |= unsynced
                raise

    def release_pages(self) -> None:
        """Give all resident pages of the files back to the kernel; bits and answers stay."""
        self._require_open()
        self._files.release_pages()

    def check(self) -> None:
        """Count the bits and compare with the kept number; after a crash, sync all and correct that number instead.

        Cost: reads all data; other processes wait. Raises: InvariantBroken, FormatMismatch.
        """
        self._require_open()
        with self._sharing:
            kept, is_rough = self._ledger.bits_set, self._ledger.count_is_rough
            counted = sum(count_bits(path, self._index.file_bytes) for path in self._files.existing())
            if is_rough:
                # What a dead writer set may not be on the disk.
                self._make_durable(self._files.existing(), are_many=self._index.files > _MOST_SINGLE_SYNCS)
                self._ledger.correct(counted, is_alone=self._sharing.is_alone())
            elif kept != counted:
                raise InvariantBroken(f"{self._folder}: {counted} bits are set, {kept} were counted")

    def close(self) -> None:
        """Sync, unmap and unlock; a second call does nothing. Raises: OSError from the sync, with the files closed."""
        if self.is_closed:
            return
        try:
            if self._sharing.is_this_process:
                self.sync()
                with self._sharing:
                    self._ledger.end()
        finally:
            self.is_closed = True
            self._files.close()
            self._ledger.close()
            self._sharing.close()

    def _require_open(self) -> None:
        if self.is_closed:
            raise FilterClosed(f"the store {self._folder} is closed")

    def _clear_at(self, places: IntArray, bits: ByteArray) -> BoolArray:
        data, present = self._files.data, self._pages.all_present or self._pages.present[places >> PAGE_SHIFT]
        if present is True or present.all():
            empty: BoolArray = (data[places] & bits) == 0
            return empty
        clear: BoolArray = np.ones(len(places), dtype=np.bool_)
        clear[present] = (data[places[present]] & bits[present]) == 0
        return clear

    def _set(self, addresses: IntArray) -> None:
        """Set bits that are all clear; the array may name one twice. In a turn."""
        if not len(addresses):
            return
        # All pages first, so that no bit is set if one of them finds no room.
        for _, places in self._files.parts(addresses, create=True):
            self._make_sure(places >> PAGE_SHIFT)
        bits = _BIT[addresses & 7]
        self._ledger.begin_batch()
        for part, places in self._files.parts(addresses, create=True):
            self._make_sure(places >> PAGE_SHIFT)  # again, since with several parts a file may have lost its place
            np.bitwise_or.at(self._files.data, places, bits[part])
        self._note_unsynced(addresses)
        distinct = len(addresses) if are_distinct(addresses) else len(set(addresses.tolist()))
        self._ledger.end_batch(distinct)

    def _note_unsynced(self, addresses: IntArray) -> None:
        # After the bits, so that a sync in another thread never takes the note away before the bit is there.
        files = (addresses // self._index.file_bits).tolist()
        with self._unsynced_lock:
            self._unsynced.update(files)

    def _make_durable(self, paths: Iterable[Path], *, are_many: bool) -> None:
        if are_many and sync_file_system(self._folder):
            return
        folders = set[Path]()
        for path in paths:
            with store_full_errors(path):
                sync_path(path)
            folders.add(path.parent)
        self._files.sync_folders(folders)

    def _make_sure(self, pages: IntArray) -> None:
        """Allocate those pages that this process has not allocated yet."""
        if self._pages.all_sure:
            return
        per_file = self._files.stride // PAGE_BYTES
        length = min(PAGE_BYTES, self._index.file_bytes)
        for file, group in groupby(self._pages.doubtful(pages), key=lambda page: page // per_file):
            missing, start = list(group), file * self._files.stride
            while missing:
                offsets = [page % per_file * PAGE_BYTES for page in missing]
                done = allocate_pages(self._files.path(start), offsets, length)
                self._files.note_allocated(start)
                self._pages.record(missing[:done])
                missing = missing[done:]
