"""A set of addresses that is compact while it is small, and mapped files (`bitfiles.py`) once it has grown.

Few bits lie far apart: nearly each has a page of its own, 4096 bytes of disk and 30 to 60 µs. So up to `COMPACT_KEYS`
addresses are in memory and in one file, 8 bytes each. Beyond that every call that sets bits also sets some of the earlier
ones in the mapped files. Until these have all, the compact form answers; then its file goes.

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
from anabranch.dedup.smm.mapping import make_files
from anabranch.dedup.smm.sharing import LEDGER_FILE, Sharing

ADDRESSES_FILE = "ADDRESSES"
#: Addresses of the compact form at most: some 6 MB of memory, where the mapped files would take 256 MiB of disk.
COMPACT_KEYS = 1 << 16
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


class _Few:
    """The compact form: the addresses, and how many of the first ones the mapped files have."""

    def __init__(self, addresses: list[int]) -> None:
        self.known = set(addresses)
        self.in_order = addresses  #: only ever extended, so that a sync in another thread may copy it
        self.moved = 0

    def add(self, addresses: Iterable[int]) -> None:
        """Add those that are not there; of equal ones the first."""
        new = [address for address in dict.fromkeys(addresses) if address not in self.known]
        self.known.update(new)
        self.in_order.extend(new)


class GrowingBits(Closing):
    """The addresses of a folder with an ADDRESSES file, held alone. Its calls and their errors are those of `BitFiles`."""

    def __init__(self, folder: Path, index: FileIndex, sharing: Sharing, limit: int = COMPACT_KEYS) -> None:
        self._folder = folder
        self._index = index
        self._sharing = sharing
        self._limit = limit
        sharing.attend(folder / LEDGER_FILE, alone=True)
        self._few: _Few | None = _Few(read_addresses(folder, index))
        self._files_used = self._count_files(self._few.in_order)
        self._files: BitFiles | None = None  # from the first address that moves on
        self._saved = len(self._few.in_order)  # addresses in the file
        self._has_file = True
        self._one_sync = threading.Lock()
        self.is_closed = False

    @property
    def is_compact(self) -> bool:
        """The bits are in one small file."""
        return self._few is not None

    @property
    def bits_set(self) -> int:
        """Number of set bits."""
        self._require_open()
        return self._mapped.bits_set if self._few is None else len(self._few.known)

    @property
    def used(self) -> BitsUsed | None:
        """What the bits take on the disk; the files of a compact form are counted at the opening and at each sync."""
        few = self._few
        return self._mapped.used if few is None else BitsUsed(self._files_used, _HEADER_BYTES + 8 * len(few.in_order))

    def are_clear(self, addresses: IntArray) -> BoolArray:
        """True where the bit is 0."""
        self._require_open()
        if self._few is None:
            return self._mapped.are_clear(addresses)
        known = self._few.known
        return np.array([address not in known for address in addresses.tolist()], dtype=np.bool_)

    def is_clear(self, address: int) -> bool:
        """`are_clear` of one address."""
        self._require_open()
        return self._mapped.is_clear(address) if self._few is None else address not in self._few.known

    def test_and_set(self, addresses: IntArray) -> BoolArray:
        """Test and set: True where a bit was 0, for the first of equal addresses. Raises: StoreFull with no bit set."""
        new = self.are_clear(addresses) & first_of_each(addresses.tolist())
        self.set(addresses[new])
        return new

    def set(self, addresses: IntArray) -> None:
        """Set bits. Raises: as `test_and_set`."""
        self._make_room(len(addresses))
        if self._few is None:
            self._mapped.set(addresses)
        else:
            self._few.add(addresses.tolist())

    def set_one(self, address: int) -> None:
        """`set` one address."""
        self._make_room(1)
        if self._few is None:
            self._mapped.set_one(address)
        else:
            self._few.add((address,))

    def sync(self) -> None:
        """Make all bits that were set before this call durable. Raises: OSError."""
        self._require_open()
        with self._one_sync:
            if (few := self._few) is not None:
                addresses = few.in_order[:]
                if len(addresses) > self._saved:
                    write_addresses(self._folder, addresses)
                    self._saved, self._files_used = len(addresses), self._count_files(addresses)
                return
            self._mapped.sync()
            if self._has_file:
                (self._folder / ADDRESSES_FILE).unlink(missing_ok=True)
                sync_folder(self._folder)
                self._has_file = False

    def check(self) -> None:
        """Verify the file of the compact form, or the mapped files. Raises: InvariantBroken, FormatMismatch."""
        self._require_open()
        if self._few is None:
            self._mapped.check()
        elif not self._few.known.issuperset(read_addresses(self._folder, self._index)):
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

    def _make_room(self, count: int) -> None:
        """Before `count` more addresses: if they are too many for the compact form, move some, or the last ones, on."""
        self._require_open()
        few = self._few
        with self._sharing:  # raises in a process that was forked off
            if few is None or len(few.in_order) + count <= self._limit:
                return
            if self._files is None:
                make_files(self._folder, self._index)
                sync_folder(self._folder)
        if self._files is None:
            self._files = BitFiles(self._folder, self._index, self._sharing)
        part = few.in_order[few.moved : few.moved + MOVED_AT_ONCE + 2 * count]
        self._files.set(np.array(part, dtype=np.int64))
        few.moved += len(part)
        if few.moved == len(few.in_order):
            self._few = None

    def _require_open(self) -> None:
        if self.is_closed:
            raise FilterClosed(f"the store {self._folder} is closed")
