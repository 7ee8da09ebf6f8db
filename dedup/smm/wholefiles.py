"""The files of a store of two levels: all made with the store, mapped once, and mapped for as long as it is open.

The body of the file PAGES has one byte a page, 1 if the page has blocks: shared by all processes, and lasting.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from anabranch.dedup.batch import IntArray
from anabranch.dedup.errors import CUT_OFF, FormatMismatch
from anabranch.dedup.mappedfiles import MappedFiles
from anabranch.dedup.smm.fileindex import FileIndex
from anabranch.dedup.smm.ledger import Ledger
from anabranch.dedup.smm.pagetable import PAGE_BYTES, PageTable

_MOST_FILES = 4096
_MOST_BYTES = 1 << 37  # the ledger then has 8 MiB

ALL = slice(None)


class WholeFiles:
    """Places in `data` for all addresses at once."""

    def __init__(self, folder: Path, index: FileIndex, ledger: Ledger) -> None:
        self._paths = [folder / name for name in index.names()]
        if not ledger.count_is_rough:
            counts = np.count_nonzero(ledger.body.reshape(index.files, -1), axis=1)
            _require_filled(self._paths[file] for file in np.flatnonzero(counts).tolist())
        self._file_bits = index.file_bits
        self._mapped = MappedFiles(self._paths, index.file_bytes, PAGE_BYTES)
        self.data = self._mapped.data
        self.stride = self._mapped.stride
        #: Bytes between the end of a file and the next one in the mapped array.
        self._padding = self.stride - index.file_bytes
        self.pages = PageTable(ledger.body.view(np.bool_))
        per_file = self.stride // PAGE_BYTES
        for file in np.flatnonzero(self._mapped.is_full).tolist():
            self.pages.trust(file * per_file, (file + 1) * per_file)

    @staticmethod
    def can_hold(index: FileIndex) -> bool:
        """True if so many files of that size may be mapped at once: the kernel allows some 65,000 maps in all."""
        return index.files <= _MOST_FILES and index.files * index.file_bytes <= _MOST_BYTES

    @staticmethod
    def create(folder: Path, index: FileIndex) -> None:
        """Make the files, empty: mapping gives an empty file its size.

        They are not synced one by one: the sync of a file that holds bits includes its size. So a file that a power
        loss left empty never held a synced bit.
        """
        for name in index.names():
            (folder / name).touch()
        Ledger.create(folder, index.files * -(-index.file_bytes // PAGE_BYTES))

    @staticmethod
    def open_ledger(folder: Path, index: FileIndex) -> Ledger:
        """The ledger of such a store."""
        return Ledger(folder, index.files * -(-index.file_bytes // PAGE_BYTES))

    def parts(self, addresses: IntArray, *, create: bool = False) -> Iterable[tuple[slice | IntArray, IntArray]]:
        """One part, all addresses, and where in `data` the bytes of their bits lie. Nothing has to be created."""
        del create
        places = addresses >> 3
        if self._padding:
            places += addresses // self._file_bits * self._padding
        return ((ALL, places),)

    def place(self, address: int, *, create: bool = False) -> int:
        """The place of one address."""
        del create
        return (address >> 3) + address // self._file_bits * self._padding

    def path(self, place: int) -> Path:
        """The file that is mapped at a multiple of `stride`."""
        return self._paths[place // self.stride]

    def note_allocated(self, place: int) -> None:
        """Pages of the file at that place were allocated; the shared table says it all."""

    def existing(self) -> Iterator[Path]:
        """All files."""
        return iter(self._paths)

    def sync_folders(self, folders: set[Path]) -> None:
        """The names of all files are durable since the store was made."""

    def close(self) -> None:
        """Unmap all files."""
        self.pages.close()
        self.data = np.zeros(0, dtype=np.uint8)
        self._mapped.close()


def _require_filled(paths: Iterable[Path]) -> None:
    """Raise `FormatMismatch` if one of these files, of which the ledger says that pages have blocks, is empty.

    Only if all writers ended well: after a power loss the ledger may know of blocks whose file lost its size.
    """
    for path in paths:
        if path.exists() and not path.stat().st_size:
            raise FormatMismatch(f"{path} {CUT_OFF}")
