"""SMM: the shared memory-mapped signature store, one bit per URL.

A key's signature is an address; its leading bytes choose a file, the rest a bit in it (`fileindex.py`). The files are
sparse, of full size and mapped shared, so that the set outlives the process. A bit that is 0 proves that the key was
never marked; a bit that is 1 may be another key's of the same address.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from dedup import formats, pages
from dedup.arrays import BoolArray, ByteArray, IntArray, first_of_each
from dedup.durable import sync_path
from dedup.errors import BadParameters, FilterClosed, InvariantBroken
from dedup.fileindex import FileIndex
from dedup.mapping import MappedFiles
from dedup.pages import PAGE_BYTES, PAGE_SHIFT, PageTable
from dedup.signature import Signature, signature_named

MAGIC = "anabranch smm"
VERSION = 1
#: More files than this are not mapped at once: the kernel allows a process some 65,000 maps in all.
MOST_FILES = 4096

_BIT: ByteArray = np.array([128 >> bit for bit in range(8)], dtype=np.uint8)
_COUNT_AT_ONCE = 4096  # pages


class Smm:
    """The store of one folder. Use `Smm.open`.

    Marking and asking belong to one thread; `sync` may run in another one at the same time.
    """

    def __init__(self, folder: Path, index: FileIndex, signature: Signature) -> None:
        self._folder = folder
        self._index = index
        self._signature = signature
        self._paths = [folder / name for name in index.names()]
        self._files = MappedFiles(self._paths, index.file_bytes, PAGE_BYTES)
        try:
            self._pages = PageTable(folder, self._files.data.size // PAGE_BYTES)
        except BaseException:
            self._files.close()
            raise
        self._pages.trust(np.repeat(self._files.is_full, self._files.stride // PAGE_BYTES))
        # After a crash the next sync covers what the dead process marked and we answer for from now on.
        self._touched: BoolArray = np.full(index.files, self._pages.count_is_rough)
        self._is_closed = False

    @classmethod
    def open(cls, folder: Path, signature: str = "crc32", levels: tuple[int, ...] = (1, 3)) -> Self:
        """Open a folder's store, or make it if the folder is new or empty.

        Cost: some 10 µs per file. Raises: FormatMismatch if the folder is not ours, is damaged or was made with
        another signature or other levels; BadParameters; StoreFull.
        """
        index, chosen = FileIndex(levels), signature_named(signature)
        if index.address_bytes > chosen.width_bytes:
            raise BadParameters(f"levels {levels} ask for more than the {chosen.width_bytes} bytes of {signature}")
        if index.files > MOST_FILES:
            raise BadParameters(f"levels {levels} make {index.files} files; at most {MOST_FILES} are mapped at once")
        parameters: formats.Parameters = {
            "signature": signature,
            "levels": list(levels),
            "page_bytes": PAGE_BYTES,
        }
        wanted = formats.Format(magic=MAGIC, version=VERSION, parameters=parameters)
        is_complete = formats.adopt(folder, wanted)
        if not is_complete:
            _make_files(folder, index)
            PageTable.create(folder, index.files * -(-index.file_bytes // PAGE_BYTES))
            formats.complete(folder, wanted)
        return cls(folder, index, chosen)

    @property
    def bits(self) -> int:
        """Number of bits of the whole store."""
        return self._index.files * self._index.file_bits

    @property
    def bits_set(self) -> int:
        """Number of set bits; after a crash it may miss what was being marked then, until `check`."""
        self._require_open()
        return self._pages.bits_set

    @property
    def fill(self) -> float:
        """Share of bits set: the probability that a key never marked meets a set bit."""
        return self.bits_set / self.bits

    def unseen(self, keys: Sequence[bytes]) -> BoolArray:
        """True where a key's bit is 0: it was certainly never marked. Cost: one page touched per key."""
        self._require_open()
        return self._is_clear(self._addresses(keys))

    def mark(self, keys: Sequence[bytes]) -> None:
        """Set the keys' bits.

        Raises: StoreFull (an OSError) with some pages allocated and no bit of this batch set; it may be repeated.
        """
        self._require_open()
        addresses = self._addresses(keys)
        self._set(addresses[self._is_clear(addresses)])

    def add(self, keys: Sequence[bytes]) -> BoolArray:
        """Test and set: True where a key was new. A signature twice in one batch is new once. Raises as `mark`."""
        self._require_open()
        addresses = self._addresses(keys)
        new = self._is_clear(addresses) & first_of_each(addresses.tolist())
        self._set(addresses[new])
        return new

    def sync(self) -> None:
        """Make all that was marked before this call durable (fdatasync, file by file). Raises: OSError."""
        self._require_open()
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

        Cost: reads every allocated page, at most the whole store. Raises: InvariantBroken.
        """
        self._require_open()
        kept, counted = self._pages.bits_set, self._count()
        if self._pages.count_is_rough:
            self._pages.bits_set = counted
            self._pages.count_is_rough = False
        elif kept != counted:
            raise InvariantBroken(f"{self._folder}: {counted} bits are set, {kept} were counted")

    def close(self) -> None:
        """Sync and unmap; a second call does nothing. Raises: OSError from the sync, with the files let go."""
        if self._is_closed:
            return
        try:
            self.sync()
            self._pages.end()
        finally:
            self._is_closed = True
            self._pages.close()
            self._files.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"{self.bits_set} of {self.bits} bits set"
        return f"<Smm {self._signature.name} {self._index.levels} {state}>"

    def _require_open(self) -> None:
        if self._is_closed:
            raise FilterClosed(f"the store {self._folder} is closed")

    def _addresses(self, keys: Sequence[bytes]) -> IntArray:
        return self._signature.addresses(keys, self._index.address_bytes)

    def _bytes_of(self, addresses: IntArray) -> IntArray:
        """Where in the mapped array an address's bit lies."""
        places = addresses >> 3
        if (padding := self._files.stride - self._index.file_bytes) > 0:
            places += addresses // self._index.file_bits * padding
        return places

    def _is_clear(self, addresses: IntArray) -> BoolArray:
        places, bits = self._bytes_of(addresses), _BIT[addresses & 7]
        present = self._pages.all_present or self._pages.present[places >> PAGE_SHIFT]
        if present is True or present.all():
            empty: BoolArray = (self._files.data[places] & bits) == 0
            return empty
        clear: BoolArray = np.ones(len(addresses), dtype=np.bool_)
        clear[present] = (self._files.data[places[present]] & bits[present]) == 0
        return clear

    def _set(self, addresses: IntArray) -> None:
        """Set bits that are all clear; the array may name one twice."""
        if not len(addresses):
            return
        places = self._bytes_of(addresses)
        if not self._pages.all_sure:
            self._make_sure(places >> PAGE_SHIFT)
        self._pages.begin()
        np.bitwise_or.at(self._files.data, places, _BIT[addresses & 7])
        self._pages.bits_set += len(set(addresses.tolist()))
        # After the bits, so that a sync in another thread never takes the note away before the bit is there.
        self._touched[places // self._files.stride] = True

    def _make_sure(self, numbers: IntArray) -> None:
        """Allocate those pages that this process has not allocated yet."""
        per_file = self._files.stride // PAGE_BYTES
        length = min(PAGE_BYTES, self._index.file_bytes)
        for file, group in groupby(self._pages.doubtful(numbers), key=lambda page: page // per_file):
            missing = list(group)
            while missing:
                offsets = [page % per_file * PAGE_BYTES for page in missing]
                done = pages.allocate_pages(self._paths[file], offsets, length)
                self._pages.record(missing[:done])
                missing = missing[done:]

    def _count(self) -> int:
        """Count the set bits of all present pages."""
        cells = self._files.data.reshape(-1, PAGE_BYTES)
        present = np.flatnonzero(self._pages.present)
        parts = (present[start : start + _COUNT_AT_ONCE] for start in range(0, len(present), _COUNT_AT_ONCE))
        return sum(int(np.bitwise_count(cells[part]).sum()) for part in parts)


def _make_files(folder: Path, index: FileIndex) -> None:
    """Make the files, empty; mapping gives an empty file its size.

    They are not synced one by one: the sync of a file that holds bits includes its size. So a file that a power loss
    left empty never held a synced bit.
    """
    for below in index.folders():
        (folder / below).mkdir(exist_ok=True)
    for name in index.names():
        (folder / name).touch()
