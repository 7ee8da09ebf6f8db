"""The bits of a DSBF's leaves: slices of one array, in memory or in a mapped file, so that a batch is one vectorised pass.

`MemoryBits` and `MappedBits` hold the array, which can grow; `LeafBits` divides it into one slot per leaf.

The file BITS: a header of 4096 bytes (magic, version, k, m, a stamp that ties it to one MANIFEST), then slot by slot. Its
version is 1 for classic leaves and 2 for blocked ones. It is mapped while a filter works on mapped leaves, and written at a
clean end by a filter that keeps its leaves in memory. The MANIFEST alone says whether its bits count (`restoring.py`).
Numbers are little-endian; bit 0 of a leaf is the least significant one of its first byte.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path

import numpy as np

from anabranch.dedup.bloom.formulas import BLOCK_BITS, BLOCKED, CLASSIC, LEAF_KINDS
from anabranch.dedup.files.durable import descriptor, store_full_errors, sync_file, write_all
from anabranch.dedup.files.mapped import allocate_pages, release
from anabranch.dedup.keys import BoolArray, ByteArray, Fingerprints, IntArray, map_hashes, map_hashes_of

BITS_FILE = "BITS"
VERSION = 1
HEADER_BYTES = 4096
STAMP_BYTES = 16

_MAGIC = b"ANADSBFB"
_HEADER = struct.Struct("<8sIIQ16s")  # magic, version, k, m, stamp
#: Linux moves a private map to where it has room (mremap), without copying a byte.
_CAN_MOVE = sys.platform == "linux"
_COPIED_AT_ONCE = 1 << 24  # bytes
_NOTHING: ByteArray = np.zeros(0, dtype=np.uint8)


class BitStorage:
    """The bytes of a filter's leaves while it is open; they keep their content while they become more."""

    def __init__(self, path: Path, leaf_bits: int, hashes: int, kind: str = CLASSIC) -> None:
        self._path = path
        self._shape = leaf_bits, hashes
        self._version = VERSION + LEAF_KINDS[kind]
        self._map: mmap.mmap | None = None
        self.data: ByteArray = _NOTHING  #: all bytes; another array after `extend`, so do not hold on to it

    def begin(self) -> None:
        """Start without bytes, whatever the file holds. Raises: OSError."""
        self.close()

    def load(self, size: int, stamp: bytes, checksum: int | None) -> bool:
        """Take over the bytes of the file; False if it has another stamp, shape, size or checksum. Raises: OSError."""
        raise NotImplementedError

    def extend(self, size: int) -> None:
        """Grow to `size` bytes; the new ones are 0. Raises: OSError, with the storage unchanged."""
        raise NotImplementedError

    def secure(self, start: int, length: int) -> None:
        """Make sure that this part can be written to. Raises: OSError."""

    def save(self, stamp: bytes) -> int | None:
        """Make the file durable under this stamp; its checksum, None for none. Raises: OSError."""
        raise NotImplementedError

    def release_pages(self) -> None:
        """Give resident pages of a mapped file back to the kernel; bytes in memory stay there."""

    def close(self) -> None:
        """Release the bytes; a second call does nothing."""
        self._map, self.data = None, _NOTHING

    def _is_saved(self, stamp: bytes, size: int) -> bool:
        """True if the file has this stamp, our shape and `size` bytes of bits."""
        try:
            with descriptor(self._path, os.O_RDONLY) as fd:
                has_header = os.pread(fd, HEADER_BYTES, 0) == self._header(stamp)
                return has_header and os.fstat(fd).st_size == HEADER_BYTES + size
        except FileNotFoundError:
            return False

    def _header(self, stamp: bytes) -> bytes:
        leaf_bits, hashes = self._shape
        return _HEADER.pack(_MAGIC, self._version, hashes, leaf_bits, stamp).ljust(HEADER_BYTES, b"\0")


class MemoryBits(BitStorage):
    """Bytes in memory, taken from the kernel page by page as they are touched. The file is read and written whole."""

    def load(self, size: int, stamp: bytes, checksum: int | None) -> bool:
        """Read the file. Cost: 1 ms per MiB."""
        if not self._is_saved(stamp, size):
            return False
        self.extend(size)
        found = 0
        with descriptor(self._path, os.O_RDONLY) as fd:
            for start in range(0, size, _COPIED_AT_ONCE):
                part = self.data[start : start + _COPIED_AT_ONCE]
                if os.preadv(fd, [part.data], HEADER_BYTES + start) < part.nbytes:
                    return False
                found = zlib.crc32(part.data, found)
        return checksum in (None, found)

    def extend(self, size: int) -> None:
        """Grow to `size` bytes. Cost on Linux: some microseconds whatever the size; elsewhere a copy."""
        if self._map is not None and _CAN_MOVE and self._move(self._map, size):
            return
        grown = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANON)
        data = np.frombuffer(grown, dtype=np.uint8)
        data[: self.data.size] = self.data
        self._map, self.data = grown, data

    def save(self, stamp: bytes) -> int | None:
        """Write the file. Cost: a copy of all bits to the disk. After an error there is no file."""
        checksum = 0
        try:
            with store_full_errors(self._path), descriptor(self._path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY) as fd:
                write_all(fd, self._header(stamp), 0)
                for start in range(0, self.data.size, _COPIED_AT_ONCE):
                    part = self.data[start : start + _COPIED_AT_ONCE].tobytes()
                    write_all(fd, part, HEADER_BYTES + start)
                    checksum = zlib.crc32(part, checksum)
                sync_file(fd)
        except OSError:
            self._path.unlink(missing_ok=True)
            raise
        return checksum

    def _move(self, old: mmap.mmap, size: int) -> bool:
        """Have the kernel move the map; False if another array refers to it, as a kept traceback may."""
        self.data = _NOTHING
        try:
            old.resize(size)
        except BufferError:
            return False
        finally:
            self.data = np.frombuffer(old, dtype=np.uint8)
        return True


class MappedBits(BitStorage):
    """Bytes in the file itself, mapped shared. `secure` allocates blocks, so that a full disk is a StoreFull and no SIGBUS."""

    def begin(self) -> None:
        """Start with an empty file."""
        self.close()  # a map of the old file would reach beyond the end of the new one
        with store_full_errors(self._path), descriptor(self._path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY) as fd:
            write_all(fd, self._header(bytes(STAMP_BYTES)), 0)

    def load(self, size: int, stamp: bytes, checksum: int | None) -> bool:
        """Map the file, its bytes unread. Cost: microseconds, then a page fault for each page that is touched."""
        del checksum
        if not self._is_saved(stamp, size):
            return False
        self._remap(size)
        self.secure(0, size)  # a copy of the file may be sparse
        return True

    def extend(self, size: int) -> None:
        """Grow the file, sparse, and map it anew. Cost: some microseconds."""
        with store_full_errors(self._path), descriptor(self._path, os.O_RDWR) as fd:
            os.ftruncate(fd, HEADER_BYTES + size)
        self._remap(size)

    def secure(self, start: int, length: int) -> None:
        """Allocate blocks for the part. Raises: StoreFull, OSError."""
        allocate_pages(self._path, [HEADER_BYTES + start], length)

    def save(self, stamp: bytes) -> int | None:
        """Make all bits durable, then this stamp."""
        with store_full_errors(self._path), descriptor(self._path, os.O_RDWR) as fd:
            sync_file(fd)
            write_all(fd, self._header(stamp), 0)
            sync_file(fd)
        return None

    def release_pages(self) -> None:
        """Give all resident pages of the file back to the kernel."""
        if self._map is not None:
            release(self._map)

    def _remap(self, size: int) -> None:
        with descriptor(self._path, os.O_RDWR) as fd:
            self._map = mmap.mmap(fd, HEADER_BYTES + size)
        # Without it the kernel reads around each fault, far more than is asked for.
        if hasattr(mmap, "MADV_RANDOM"):
            self._map.madvise(mmap.MADV_RANDOM)
        self.data = np.frombuffer(self._map, dtype=np.uint8, offset=HEADER_BYTES)


#: By name, as `Dsbf.open` takes them.
STORAGES: dict[str, type[MemoryBits] | type[MappedBits]] = {"memory": MemoryBits, "mapped": MappedBits}


class ClassicPositions:
    """Positions all over the leaf: (first + i * second) mod m, of the two hashes of `map_hashes`."""

    def __init__(self, leaf_bits: int, hashes: int) -> None:
        self._mask = leaf_bits - 1
        self._hashes = hashes
        self._steps: IntArray = np.arange(hashes, dtype=np.int64)[:, None]

    def of(self, elements: Fingerprints) -> IntArray:
        """Numbers of bits in the leaf, for every hash (rows) and element (columns)."""
        first, second = map_hashes(elements)
        positions = second * self._steps
        positions += first
        positions &= self._mask
        return positions

    def of_one(self, element: int) -> Iterator[int]:
        """`of` one element."""
        position, step = map_hashes_of(element)
        for _ in range(self._hashes):
            yield position & self._mask
            position += step


#: The golden ratio of 2^64, as of Fibonacci hashing (Knuth, volume 3, section 6.4); RocksDB's FastLocalBloom steps by it, too.
_GOLDEN = 0x9E3779B97F4A7C15
_MASK_64 = (1 << 64) - 1
_BLOCK_SHIFT = BLOCK_BITS.bit_length() - 1


class BlockedPositions:
    """Positions in one block. The lowest bits of the fingerprint choose it; position i is the top 9 bits of low * golden^i.

    `low` is the fingerprint's low half, in which LocHash has no part. Steps of one width, as in a classic leaf, would give
    each block 2^17 patterns at most: too few for the rate.
    """

    def __init__(self, leaf_bits: int, hashes: int) -> None:
        self._last = leaf_bits // BLOCK_BITS - 1
        self._hashes = hashes
        factors = [pow(_GOLDEN, step, 1 << 64) for step in range(hashes)]
        self._factors = np.array(factors, dtype=np.uint64)[:, None]
        self._mask, self._top = np.uint64(self._last), np.uint64(64 - _BLOCK_SHIFT)

    def blocks(self, elements: Fingerprints) -> IntArray:
        """The number of each element's block."""
        return (elements[:, 1] & self._mask).view(np.int64)

    def of(self, elements: Fingerprints) -> IntArray:
        """Numbers of bits in the leaf, for every hash (rows) and element (columns)."""
        mixed = elements[:, 1] * self._factors
        mixed >>= self._top
        positions = mixed.view(np.int64)
        positions += self.blocks(elements) << _BLOCK_SHIFT
        return positions

    def of_one(self, element: int) -> Iterator[int]:
        """`of` one element."""
        mixed = element & _MASK_64
        first = (mixed & self._last) << _BLOCK_SHIFT
        for _ in range(self._hashes):
            yield first + (mixed >> 64 - _BLOCK_SHIFT)
            mixed = mixed * _GOLDEN & _MASK_64


#: By kind of leaf.
POSITIONS: dict[str, type[ClassicPositions] | type[BlockedPositions]] = {
    CLASSIC: ClassicPositions,
    BLOCKED: BlockedPositions,
}


def bits_of(elements: Fingerprints, leaf_bits: int, hashes: int, kind: str = CLASSIC) -> BoolArray:
    """The bits of a leaf that holds exactly the elements."""
    positions = POSITIONS[kind](leaf_bits, hashes)
    bits = np.zeros(leaf_bits, dtype=np.bool_)
    for start in range(0, len(elements), _LOOKED_UP_AT_ONCE):
        bits[positions.of(elements[start : start + _LOOKED_UP_AT_ONCE])] = True
    return bits


#: Elements that are looked up in one pass: with more, the arrays of positions outgrow the processor's cache.
_LOOKED_UP_AT_ONCE = 2048


class LeafBits:
    """Slots of `leaf_bits` bits (a power of two), `hashes` positions an element, in the bytes of a storage.

    Bit 0 is the least significant one of a byte. A dropped slot is used again; else the storage grows by a quarter.
    """

    def __init__(
        self, leaf_bits: int, hashes: int, slots: int = 1, storage: BitStorage | None = None, kind: str = CLASSIC
    ) -> None:
        self._shape = leaf_bits, hashes, kind
        self._leaf_bytes = leaf_bits // 8
        self._positions = POSITIONS[kind](leaf_bits, hashes)
        #: By default in memory, and never saved.
        self._storage = storage or MemoryBits(Path(BITS_FILE), leaf_bits, hashes, kind)
        if slots > self._slots():
            self._storage.extend(slots * self._leaf_bytes)
        self._dropped: list[int] = []  # free slots; `take` clears their bits
        self._fresh = 0  # from this slot on none was ever taken: all bits are clear

    @property
    def memory_bytes(self) -> int:
        """Size of all slots."""
        return self._storage.data.nbytes

    def take(self) -> int:
        """A slot with all bits clear. Raises: OSError, with nothing taken."""
        if self._dropped:
            slot = self._dropped[-1]
            self._storage.secure(slot * self._leaf_bytes, self._leaf_bytes)
            self._slice(slot)[:] = 0
            return self._dropped.pop()
        if self._fresh == self._slots():
            self._storage.extend((self._fresh + self._fresh // 4 + 1) * self._leaf_bytes)
        self._storage.secure(self._fresh * self._leaf_bytes, self._leaf_bytes)
        self._fresh += 1
        return self._fresh - 1

    def claim(self, slots: Collection[int]) -> None:
        """Take exactly these slots, with the bits that are in them. Raises: ValueError if there are fewer."""
        self._fresh = self._slots()
        held = set(slots)
        if not held <= set(range(self._fresh)):
            raise ValueError(f"slots go up to {max(held)}, but there are {self._fresh}")
        self._dropped = [slot for slot in range(self._fresh - 1, -1, -1) if slot not in held]

    def drop(self, slot: int) -> None:
        """Give a slot back; the next `take` may answer it."""
        self._dropped.append(slot)

    def fill(self, slot: int, elements: Fingerprints) -> None:
        """Make the slot's bits exactly those of the elements. Cost: 0.1 µs per element, m bytes for a moment."""
        self._slice(slot)[:] = self._image(elements)

    def unseen(self, slots: IntArray, elements: Fingerprints) -> BoolArray:
        """True where the element has a clear bit in its slot."""
        if len(elements) <= _LOOKED_UP_AT_ONCE:
            return self._are_clear(*self._places(slots, elements))
        parts = [slice(start, start + _LOOKED_UP_AT_ONCE) for start in range(0, len(elements), _LOOKED_UP_AT_ONCE)]
        return np.concatenate([self._are_clear(*self._places(slots[part], elements[part])) for part in parts])

    def is_unseen(self, slot: int, element: int) -> bool:
        """True if the element has a clear bit in the slot."""
        held = self._storage.data.item
        return any(not held(place) & bit for place, bit in self._places_of(slot, element))

    def mark(self, slots: IntArray, elements: Fingerprints) -> BoolArray:
        """Set the elements' bits; True where one was clear before the batch. Cost: 90 bytes per element for a moment."""
        if len(elements) <= _LOOKED_UP_AT_ONCE:
            places = self._places(slots, elements)
            new = self._are_clear(*places)
            if new.any():
                self._set(*places)
            return new
        parts = [slice(start, start + _LOOKED_UP_AT_ONCE) for start in range(0, len(elements), _LOOKED_UP_AT_ONCE)]
        all_places = [self._places(slots[part], elements[part]) for part in parts]
        new = np.concatenate([self._are_clear(*places) for places in all_places])
        for places in all_places:
            self._set(*places)
        return new

    def mark_one(self, slot: int, element: int) -> bool:
        """Set the element's bits; True if one was clear."""
        data = self._storage.data
        held = data.item
        clear = [(place, bit) for place, bit in self._places_of(slot, element) if not held(place) & bit]
        for place, bit in clear:
            data[place] = held(place) | bit
        return bool(clear)

    def agrees(self, slot: int, elements: Fingerprints) -> bool:
        """True if the slot's bits are exactly those of the elements."""
        return bool(np.array_equal(self._slice(slot), self._image(elements)))

    def _are_clear(self, places: IntArray, shifts: ByteArray) -> BoolArray:
        """True for columns in which a bit is 0."""
        held = self._storage.data[places]
        held >>= shifts
        clear: BoolArray = (np.bitwise_and.reduce(held, axis=0) & 1) == 0
        return clear

    def _set(self, places: IntArray, shifts: ByteArray) -> None:
        """Set all bits, and again those that are missing: of several in one byte numpy stores the last one alone."""
        data, bits = self._storage.data, np.left_shift(1, shifts, dtype=np.uint8)
        data[places] |= bits
        missing = (data[places] & bits) == 0
        while missing.any():
            places, bits = places[missing], bits[missing]
            data[places] |= bits
            missing = (data[places] & bits) == 0

    def _places(self, slots: IntArray, elements: Fingerprints) -> tuple[IntArray, ByteArray]:
        """Byte in the storage and bit in it, for every hash (rows) and element (columns)."""
        places = self._positions.of(elements)
        shifts = places.astype(np.uint8)
        shifts &= 7
        places >>= 3
        places += slots * self._leaf_bytes
        return places, shifts

    def _places_of(self, slot: int, element: int) -> Iterator[tuple[int, int]]:
        """Byte in the storage and value of the bit in it, for every hash of one element."""
        start = slot * self._leaf_bytes
        for position in self._positions.of_one(element):
            yield start + (position >> 3), 1 << (position & 7)

    def _image(self, elements: Fingerprints) -> ByteArray:
        """The bytes of a leaf that holds exactly the elements."""
        leaf_bits, hashes, kind = self._shape
        return np.packbits(bits_of(elements, leaf_bits, hashes, kind), bitorder="little")

    def _slice(self, slot: int) -> ByteArray:
        return self._storage.data[slot * self._leaf_bytes : (slot + 1) * self._leaf_bytes]

    def _slots(self) -> int:
        return self._storage.data.size // self._leaf_bytes
