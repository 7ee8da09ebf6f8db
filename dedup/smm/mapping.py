"""The mapped files of a store, and which of their pages have blocks on the disk.

Two levels (`_WholeFiles`): all files are made with the store and mapped once. The body of the ledger (`sharing.py`) has one
byte a page, 1 if the page has blocks.

Three and more levels (`_LazyFiles`), up to 2^48 bits in 16 million files: a file is made when its first bit is set, and
mapped when it is asked for, over one of a fixed number of places; the least recently used file loses its place. The body
of the ledger has 4,096 counters: a process that allocates pages in a file adds 1 to the counter of its number mod 4,096,
after the pages have blocks and before they hold bits; a process that finds a counter changed asks the file system for the
blocks again. Cost at random addresses: 0.3 ms for a new URL, 60 µs for a known one of a file without a place [on ext4].

A write to a mapped page without a block on a full disk is a SIGBUS, so blocks are allocated first (`files/mapped.py`). A
page not known to have blocks holds no bit, and queries do not touch it: on tmpfs even reading a hole takes memory.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from anabranch.dedup.errors import CUT_OFF, FormatMismatch
from anabranch.dedup.files.durable import store_full_errors, sync_folder
from anabranch.dedup.files.mapped import PAGE_BYTES, MappedFiles, MappedPlaces, data_ranges
from anabranch.dedup.keys import BoolArray, IntArray
from anabranch.dedup.smm.addresses import FileIndex
from anabranch.dedup.smm.sharing import Ledger


class PageTable:
    """The known state of each page of a mapped array.

    `present[page]`: the page has blocks; the array may be shared by all processes. A page is `is_sure` once this process
    allocated it itself; only such pages are written to, since after a power loss `present` may promise too much.
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
        """The pages of that range belong to files with all their blocks: they are sure, if they are present."""
        self._unsure -= int((self.present[start:stop] & ~self.is_sure[start:stop]).sum())
        self.is_sure[start:stop] |= self.present[start:stop]
        self._note_all()

    def forget(self, start: int, stop: int) -> None:
        """Nothing is known of the pages of that range from now on: not present, not sure."""
        self._unsure += int(self.is_sure[start:stop].sum())
        self.is_sure[start:stop] = False
        self.present[start:stop] = False
        self.all_present = self.all_sure = False

    def close(self) -> None:
        """Release the array `present`."""
        self.present = np.zeros(0, dtype=np.bool_)

    def _note_all(self) -> None:
        self.all_sure = not self._unsure
        self.all_present |= self.all_sure


ALL = slice(None)


class StoreFiles:
    """The mapped files of one store: `places` of them lie in `data`, one every `stride` bytes."""

    def __init__(self, mapped: MappedPlaces, index: FileIndex, present: BoolArray) -> None:
        self._mapped = mapped
        self._file_bits = index.file_bits
        self.data = mapped.data
        self.stride = mapped.stride
        self.pages = PageTable(present)

    def note_allocated(self, place: int) -> None:
        """Notify the other processes that pages of the file at that place were allocated; in a turn."""

    def sync_folders(self, folders: set[Path]) -> None:
        """Make the names in these folders durable, and the folders' own."""

    def used(self) -> tuple[int, int] | None:
        """How many files have blocks, and the bytes of these blocks; None if only a look at every file could tell."""
        return None

    def release_pages(self) -> None:
        """Give all resident pages back to the kernel."""
        self._mapped.release_pages()

    def close(self) -> None:
        """Unmap all files."""
        self.pages.close()
        self.data = np.zeros(0, dtype=np.uint8)
        self._mapped.close()


_MOST_WHOLE_FILES = 4096
_MOST_WHOLE_BYTES = 1 << 37  # the ledger then has 8 MiB


def are_whole(index: FileIndex) -> bool:
    """True if all files may be mapped at once: the kernel allows some 65,000 maps in all."""
    return index.files <= _MOST_WHOLE_FILES and index.files * index.file_bytes <= _MOST_WHOLE_BYTES


def ledger_bytes(index: FileIndex) -> int:
    """Size of the ledger's body."""
    return index.files * -(-index.file_bytes // PAGE_BYTES) if are_whole(index) else 8 * _COUNTERS


def make_files(folder: Path, index: FileIndex) -> None:
    """Make the files if all are mapped at once, empty and unsynced; those that are there stay as they are.

    The sync of a file that holds bits includes its size, so a file that a power loss left empty never held a synced bit.
    """
    for name in index.names() if are_whole(index) else ():
        (folder / name).touch()


def create_files(folder: Path, index: FileIndex) -> None:
    """Make the ledger and the files of an empty store, as `make_files`."""
    make_files(folder, index)
    Ledger.create(folder, ledger_bytes(index))


class _WholeFiles(StoreFiles):
    """Places in `data` for all addresses at once; the ledger has the pages, and the names of all files are durable."""

    def __init__(self, folder: Path, index: FileIndex, ledger: Ledger) -> None:
        self._paths = [folder / name for name in index.names()]
        if not ledger.count_is_rough:  # after a power loss the ledger may list blocks of a file that lost its size
            counts = np.count_nonzero(ledger.body.reshape(index.files, -1), axis=1)
            for path in [self._paths[file] for file in np.flatnonzero(counts).tolist()]:
                if path.exists() and not path.stat().st_size:
                    raise FormatMismatch(f"{path} {CUT_OFF}")
        mapped = MappedFiles(self._paths, index.file_bytes, PAGE_BYTES)
        super().__init__(mapped, index, ledger.body.view(np.bool_))
        #: Bytes between the end of a file and the next one in the mapped array.
        self._padding = self.stride - index.file_bytes
        per_file = self.stride // PAGE_BYTES
        for file in np.flatnonzero(mapped.is_full).tolist():
            self.pages.trust(file * per_file, (file + 1) * per_file)

    def parts(self, addresses: IntArray, *, create: bool = False) -> Iterable[tuple[slice | IntArray, IntArray]]:
        """Addresses in parts of few enough files, and where in `data` their bytes are until the next part."""
        del create
        places = addresses >> 3
        if self._padding:
            places += addresses // self._file_bits * self._padding
        return ((ALL, places),)

    def place(self, address: int, *, create: bool = False) -> int:
        """The place of one address; it holds until the next call."""
        del create
        return (address >> 3) + address // self._file_bits * self._padding

    def path(self, place: int) -> Path:
        """The file that is mapped at a multiple of `stride`."""
        return self._paths[place // self.stride]

    def existing(self) -> Iterator[Path]:
        """All files that were made, folder by folder."""
        return iter(self._paths)

    def used(self) -> tuple[int, int]:
        by_file = np.count_nonzero(self.pages.present.reshape(len(self._paths), -1), axis=1)
        return int(np.count_nonzero(by_file)), int(by_file.sum()) * min(PAGE_BYTES, self._file_bits >> 3)


_COUNTERS = 4096
_HEX = frozenset("0123456789ABCDEF")
_MOST_OPEN = 1024
_MOST_MAPPED_BYTES = 1 << 44  # of address space; a process has 2^47 bytes on most machines


class _LazyFiles(StoreFiles):
    """Places in `data` for the addresses of at most 1,024 files at a time, fewer if files are larger than 16 GiB."""

    def __init__(self, folder: Path, index: FileIndex, ledger: Ledger) -> None:
        self._folder = folder
        self._index = index
        self._most = max(1, min(_MOST_OPEN, _MOST_MAPPED_BYTES // index.file_bytes))
        mapped = MappedPlaces(self._most, index.file_bytes, PAGE_BYTES)
        self._per_file = mapped.stride // PAGE_BYTES
        super().__init__(mapped, index, np.zeros(self._most * self._per_file, dtype=np.bool_))
        self._counters = ledger.body.data.cast("Q")
        self._slots: OrderedDict[int, int] = OrderedDict()  # by file, the one used last at the end
        self._free = list(range(self._most))
        self._file_in = [-1] * self._most
        self._is_there = [False] * self._most
        self._looked_at = [0] * self._most  # the file's counter when the system was asked about it

    def parts(self, addresses: IntArray, *, create: bool = False) -> Iterator[tuple[slice | IntArray, IntArray]]:
        files = addresses // self._file_bits
        distinct, inverse = np.unique(files, return_inverse=True)
        if len(distinct) <= self._most:
            yield ALL, self._places(addresses, files, self._slots_of(distinct, create=create)[inverse])
            return
        order = np.argsort(inverse, kind="stable")
        bounds = np.searchsorted(inverse[order], np.arange(0, len(distinct) + self._most, self._most)).tolist()
        for number, start in enumerate(bounds[:-1]):
            part, first = order[start : bounds[number + 1]], number * self._most
            slots = self._slots_of(distinct[first : first + self._most], create=create)
            yield part, self._places(addresses[part], files[part], slots[inverse[part] - first])

    def place(self, address: int, *, create: bool = False) -> int:
        file, offset = divmod(address, self._file_bits)
        return self._slot(file, create=create) * self.stride + (offset >> 3)

    def path(self, place: int) -> Path:
        return self._folder / self._index.name(self._file_in[place // self.stride])

    def note_allocated(self, place: int) -> None:
        slot = place // self.stride
        counter = self._file_in[slot] % _COUNTERS
        self._counters[counter] += 1
        self._looked_at[slot] = self._counters[counter]

    def existing(self) -> Iterator[Path]:
        return self._below(self._folder, 0)

    def sync_folders(self, folders: set[Path]) -> None:
        above = {parent for folder in folders for parent in folder.parents if self._folder in (parent, *parent.parents)}
        for folder in folders | above:
            sync_folder(folder)

    def close(self) -> None:
        self._counters.release()
        super().close()

    def _places(self, addresses: IntArray, files: IntArray, slots: IntArray) -> IntArray:
        return slots * self.stride + (addresses - files * self._file_bits >> 3)

    def _slots_of(self, files: IntArray, *, create: bool) -> IntArray:
        # None of them is pushed out by another one of them: each is the last in line, and they are not more than the places.
        return np.array([self._slot(file, create=create) for file in files.tolist()], dtype=np.int64)

    def _slot(self, file: int, *, create: bool) -> int:
        slot = self._slots.get(file)
        if slot is None or self._looked_at[slot] != self._counters[file % _COUNTERS] or create > self._is_there[slot]:
            # Ask the system about the file, in its own place or in one that is free or given up.
            slot = self._slots.pop(file, None)
            if slot is None:
                slot = self._free.pop() if self._free else self._slots.popitem(last=False)[1]
            try:
                self._look(file, slot, create=create)
            except BaseException:
                self._free.append(slot)
                raise
            self._slots[file] = slot
        self._slots.move_to_end(file)
        return slot

    def _look(self, file: int, slot: int, *, create: bool) -> None:
        """Map a file if it is there, and note which of its pages have blocks."""
        first = slot * self._per_file
        self.pages.forget(first, first + self._per_file)
        self._file_in[slot], self._is_there[slot] = file, False
        self._looked_at[slot] = self._counters[file % _COUNTERS]  # first, so that later allocations are noticed
        path = self._folder / self._index.name(file)
        fd = _opened(path, create=create)
        if fd < 0:
            return
        try:
            is_full = self._mapped.put(slot, path, fd)
            self._mapped.advise(slot)
            for start, stop in data_ranges(fd, self._index.file_bytes):
                self.pages.present[first + start // PAGE_BYTES : first - (-stop // PAGE_BYTES)] = True
        finally:
            os.close(fd)
        self._is_there[slot] = True
        if is_full:
            self.pages.trust(first, first + self._per_file)

    def _below(self, folder: Path, level: int) -> Iterator[Path]:
        digits = 2 * self._index.levels[level]
        for entry in sorted(folder.iterdir()):
            if len(entry.name) != digits or not _HEX.issuperset(entry.name):
                continue
            if level == len(self._index.levels) - 2:
                yield entry
            else:
                yield from self._below(entry, level + 1)


def _opened(path: Path, *, create: bool) -> int:
    """A descriptor of a file, made with its folders if asked for; -1 if it is not there."""
    flags = os.O_RDWR | os.O_CLOEXEC
    try:
        if not create:
            return os.open(path, flags)
        with store_full_errors(path):
            try:
                return os.open(path, flags | os.O_CREAT, 0o600)
            except FileNotFoundError:
                path.parent.mkdir(parents=True, exist_ok=True)
                return os.open(path, flags | os.O_CREAT, 0o600)
    except FileNotFoundError:
        return -1
    except (NotADirectoryError, IsADirectoryError, FileExistsError) as error:
        raise FormatMismatch(f"{path} is not a file below folders: the store is damaged") from error


def open_files(folder: Path, index: FileIndex, ledger: Ledger) -> _WholeFiles | _LazyFiles:
    """Map the files of a store. Raises: FormatMismatch if one of them is damaged; OSError."""
    return (_WholeFiles if are_whole(index) else _LazyFiles)(folder, index, ledger)
