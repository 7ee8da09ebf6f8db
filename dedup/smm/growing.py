"""A set of addresses that is compact while it is small, and mapped files (`bitfiles.py`) once it has grown.

Few bits lie far apart: nearly each has pages of its own, 16 KiB of disk and 30 to 60 µs. So up to `COMPACT_KEYS` addresses
are in memory and in one file, 8 bytes each. Beyond that each call that sets bits also moves some of the earlier ones to the
mapped files. The compact form answers until the mapped files have all; then they answer, and its file is removed.

File ADDRESSES: the magic, then a CRC-32 of the rest as a little-endian 64-bit number, then the addresses as such numbers, in
the order in which they were set. It is replaced as a whole at each sync. A store without it has its bits in the mapped
files. Only one process has such a store open.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path
from zlib import crc32

import numpy as np

from anabranch.dedup.errors import FilterClosed, FormatMismatch, InvariantBroken
from anabranch.dedup.files import Closing
from anabranch.dedup.files.durable import replace_file, store_full_errors, sync_folder
from anabranch.dedup.keys import BoolArray, IntArray, first_of_each
from anabranch.dedup.smm.addresses import FileIndex
from anabranch.dedup.smm.bitfiles import BitFiles, BitsUsed
from anabranch.dedup.smm.mapping import ledger_bytes, make_files
from anabranch.dedup.smm.sharing import LEDGER_FILE, Ledger, Sharing

ADDRESSES_FILE = "ADDRESSES"
#: Addresses of the compact form at most: some 6 MB of memory, where the mapped files would take 450 MiB of disk.
COMPACT_KEYS = 1 << 16
#: Memory of one of them at most: a number, its place in a list, and a part of a page of the table.
COMPACT_KEY_BYTES = 92
#: Earlier addresses that a call sets in the mapped files, besides twice as many as it brings: a few milliseconds.
MOVED_AT_ONCE = 64

_MAGIC = b"ANASMMAD"
_HEADER_BYTES = 16


def write_addresses(folder: Path, addresses: Iterable[int]) -> None:
    """Replace the file of the compact form, durably. Raises: StoreFull, OSError."""
    body = np.fromiter(addresses, dtype="<i8").tobytes()
    path = folder / ADDRESSES_FILE
    with store_full_errors(path):
        replace_file(path, _MAGIC + crc32(body).to_bytes(8, "little") + body)


def read_addresses(folder: Path, index: FileIndex) -> list[int]:
    """The addresses in the file of the compact form. Raises: FormatMismatch if it is damaged; OSError."""
    path = folder / ADDRESSES_FILE
    data = path.read_bytes()
    body = data[_HEADER_BYTES:]
    checksum = int.from_bytes(data[len(_MAGIC) : _HEADER_BYTES], "little")
    if not data.startswith(_MAGIC) or len(body) % 8 or checksum != crc32(body):
        raise FormatMismatch(f"{path} is damaged: its checksum is not that of its addresses")
    addresses: list[int] = np.frombuffer(body, dtype="<i8").tolist()
    if addresses and not 0 <= min(addresses) <= max(addresses) < index.files * index.file_bits:
        raise FormatMismatch(f"{path} is damaged: it holds addresses beyond the end of the store")
    return addresses


#: The golden ratio of 2^64: the top bits of an address times it are its place (Fibonacci hashing).
_GOLDEN = 0x9E3779B97F4A7C15
_MASK_64 = (1 << 64) - 1
#: A table has so many places for each address of the limit, twice of which it holds while they move.
_PLACES_PER_KEY = 8


class AddressTable:
    """A set of addresses in one array, with linear probing, so that a batch is looked up in a few passes.

    A set of Python's takes longer for the links of a page: each look-up waits for the memory of an entry, then of a number.
    """

    def __init__(self, most: int) -> None:
        bits = (_PLACES_PER_KEY * max(most, 1)).bit_length()
        # An address plus 1, or 0. Memory pages come as they are touched.
        self._table: IntArray = np.zeros(1 << bits, dtype=np.int64)
        self._last, self._shift = (1 << bits) - 1, 64 - bits
        self._factor, self._drop = np.uint64(_GOLDEN), np.uint64(self._shift)
        self.count = 0

    def add(self, addresses: Iterable[int]) -> None:
        """Add addresses that are not there."""
        for address in addresses:
            place = self._place(address)
            while self._table.item(place):
                place = place + 1 & self._last
            self._table[place] = address + 1
            self.count += 1

    def __contains__(self, address: int) -> bool:
        place = self._place(address)
        while (held := self._table.item(place)) != address + 1:
            if not held:
                return False
            place = place + 1 & self._last
        return True

    def are_missing(self, addresses: IntArray) -> BoolArray:
        """True where an address is not there."""
        places = (addresses.view(np.uint64) * self._factor >> self._drop).view(np.int64)
        wanted = addresses + 1
        held = self._table[places]
        missing: BoolArray = held != wanted
        others = np.flatnonzero(missing & (held != 0))
        places, wanted = places[others], wanted[others]
        while len(others):  # another address has the place: look at the next one
            places = places + 1 & self._last
            held = self._table[places]
            missing[others] = is_missing = held != wanted
            goes_on = is_missing & (held != 0)
            others, places, wanted = others[goes_on], places[goes_on], wanted[goes_on]
        return missing

    def _place(self, address: int) -> int:
        return (address * _GOLDEN & _MASK_64) >> self._shift


class _CompactForm:
    """The addresses of a small store, and how many of the first ones the mapped files have."""

    def __init__(self, addresses: list[int], limit: int) -> None:
        self.known = AddressTable(max(limit, len(addresses)))
        self.known.add(dict.fromkeys(addresses))
        self.in_order = addresses  #: only ever extended, so that a sync in another thread may copy it
        self.moved = 0

    def missing(self, addresses: IntArray) -> list[int]:
        """The addresses that are not there, each once."""
        return list(dict.fromkeys(addresses[self.known.are_missing(addresses)].tolist()))

    def add(self, missing: list[int]) -> None:
        """Add addresses that are missing."""
        self.known.add(missing)
        self.in_order.extend(missing)


class GrowingBits(Closing):
    """The addresses of a folder with an ADDRESSES file, held alone. Its calls and their errors are those of `BitFiles`."""

    def __init__(self, folder: Path, index: FileIndex, sharing: Sharing, limit: int = COMPACT_KEYS) -> None:
        self._folder = folder
        self._index = index
        self._sharing = sharing
        self._limit = limit
        sharing.attend(folder / LEDGER_FILE, alone=True)
        Ledger(folder, ledger_bytes(index)).close()  # a damaged one is refused now, and not when the store has grown
        self._compact: _CompactForm | None = _CompactForm(read_addresses(folder, index), limit)
        self._files_used = self._count_files(self._compact.in_order)
        self._files: BitFiles | None = None  # from the first address that moves on
        self._saved = len(self._compact.in_order)  # addresses in the file
        self._has_file = True
        self._one_sync = threading.Lock()
        self.is_closed = False

    @property
    def is_compact(self) -> bool:
        """The bits are in one small file."""
        return self._compact is not None

    @property
    def bits_set(self) -> int:
        """Number of set bits."""
        self._require_open()
        compact = self._compact  # once: a sync in another thread asks, too
        return self._mapped.bits_set if compact is None else compact.known.count

    @property
    def used(self) -> BitsUsed | None:
        """The files and bytes that the bits take on the disk. A compact form counts its files at the opening and each sync."""
        compact, files = self._compact, self._files
        if compact is None:
            return self._mapped.used
        moved = None if files is None else files.used
        file_bytes = _HEADER_BYTES + 8 * len(compact.in_order)
        return BitsUsed(self._files_used, file_bytes + (0 if moved is None else moved.bytes))

    def are_clear(self, addresses: IntArray) -> BoolArray:
        """True where the bit is 0."""
        self._require_open()
        compact = self._compact
        if compact is None:
            return self._mapped.are_clear(addresses)
        return compact.known.are_missing(addresses)

    def is_clear(self, address: int) -> bool:
        """`are_clear` of one address."""
        self._require_open()
        compact = self._compact
        return self._mapped.is_clear(address) if compact is None else address not in compact.known

    def test_and_set(self, addresses: IntArray) -> BoolArray:
        """Test and set: True where a bit was 0, for the first of equal addresses. Raises: StoreFull with no bit set."""
        new = self.are_clear(addresses) & first_of_each(addresses.tolist())
        self.set(addresses[new])
        return new

    def set(self, addresses: IntArray) -> None:
        """Set bits. Raises: as `test_and_set`."""
        if not self._stays_compact(addresses):
            self._mapped.set(addresses)

    def set_one(self, address: int) -> None:
        """`set` one address."""
        if not self._stays_compact(np.array([address])):
            self._mapped.set_one(address)

    def sync(self) -> None:
        """Make all bits that were set before this call durable. Raises: OSError."""
        self._require_open()
        if not self._sharing.is_this_process:
            return  # it was forked off and cannot set bits; its copy is older than the file
        with self._one_sync:
            if (compact := self._compact) is not None:
                addresses = compact.in_order[:]
                if len(addresses) > self._saved:
                    write_addresses(self._folder, addresses)
                    self._saved, self._files_used = len(addresses), self._count_files(addresses)
                return
            self._mapped.sync()
            if self._has_file:
                (self._folder / ADDRESSES_FILE).unlink(missing_ok=True)
                sync_folder(self._folder)
                self._has_file = False

    def release_pages(self) -> None:
        """Give all resident pages of the mapped files back to the kernel, if there are any; bits and answers stay."""
        self._require_open()
        if self._files is not None:
            self._files.release_pages()

    def check(self) -> None:
        """Verify the file of the compact form, or the mapped files. Raises: InvariantBroken, FormatMismatch."""
        self._require_open()
        if self._compact is None:
            self._mapped.check()
        elif not all(address in self._compact.known for address in read_addresses(self._folder, self._index)):
            raise InvariantBroken(f"{self._folder / ADDRESSES_FILE} holds addresses that were never set")

    def close(self) -> None:
        """Sync, unmap and unlock; a second call does nothing. Raises: OSError from the sync, with the files closed."""
        if self.is_closed:
            return
        try:
            if self._sharing.is_this_process:
                self.sync()
        finally:
            self.is_closed = True
            if self._files is not None:
                self._files.close()
            self._sharing.close()

    def _count_files(self, addresses: list[int]) -> int:
        return len({address // self._index.file_bits for address in addresses})

    @property
    def _mapped(self) -> BitFiles:
        assert self._files is not None, "the mapped files answer once they have all addresses"
        return self._files

    def _stays_compact(self, addresses: IntArray) -> bool:
        """Add the addresses to the compact form; False if the mapped files answer, which then have all others."""
        self._require_open()
        compact = self._compact
        with self._sharing:  # raises in a process that was forked off
            missing = [] if compact is None else compact.missing(addresses)
        if compact is None:
            return False
        if len(compact.in_order) + len(missing) > self._limit and missing:
            self._move(compact, MOVED_AT_ONCE + 2 * len(missing))
        if self._compact is None:
            return False
        compact.add(missing)
        return True

    def _move(self, compact: _CompactForm, count: int) -> None:
        """Set the next `count` addresses in the mapped files; after the last one these answer. Raises: StoreFull, OSError."""
        if self._files is None:
            with store_full_errors(self._folder):
                make_files(self._folder, self._index)
            sync_folder(self._folder)
            self._files = BitFiles(self._folder, self._index, self._sharing)
        part = compact.in_order[compact.moved : compact.moved + count]
        self._files.set(np.array(part, dtype=np.int64))
        compact.moved += len(part)
        if compact.moved == len(compact.in_order):
            self._compact = None

    def _require_open(self) -> None:
        if self.is_closed:
            raise FilterClosed(f"the store {self._folder} is closed")
