"""Leaves in memory: slices of one numpy array, so that a batch is one vectorised pass over all leaves."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dedup.batch import BoolArray, ByteArray, Fingerprints, IntArray
from dedup.fingerprint import map_hashes, map_hashes_of

_BIT: ByteArray = np.array([128 >> bit for bit in range(8)], dtype=np.uint8)


class ArenaLeaves:
    """Slots of `leaf_bits` bits (a power of two), `hashes` positions an element.

    Slot s is bytes s * leaf_bits / 8 and on; bit 0 is the most significant one of a byte. A dropped slot is used
    again. When no slot is free the arena grows by a quarter, which copies it: amortised, at most five bytes moved
    per byte taken.
    """

    def __init__(self, leaf_bits: int, hashes: int, slots: int = 1) -> None:
        self._leaf_bits = leaf_bits
        self._leaf_bytes = leaf_bits // 8
        self._steps: IntArray = np.arange(hashes, dtype=np.int64)[:, None]
        self._bytes: ByteArray = np.zeros(slots * self._leaf_bytes, dtype=np.uint8)
        self._free = list(range(slots - 1, -1, -1))

    @property
    def memory_bytes(self) -> int:
        """Size of the arena."""
        return self._bytes.nbytes

    def take(self) -> int:
        """A slot with all bits clear."""
        if not self._free:
            self._grow()
        slot = self._free.pop()
        self._slice(slot)[:] = 0
        return slot

    def drop(self, slot: int) -> None:
        """Give a slot back; the next `take` may answer it."""
        self._free.append(slot)

    def fill(self, slot: int, elements: Fingerprints) -> None:
        """Make the slot's bits exactly those of the elements. Cost: 0.1 µs per element, m bytes for a moment."""
        self._slice(slot)[:] = self._image(elements)

    def unseen(self, slots: IntArray, elements: Fingerprints) -> BoolArray:
        """True where the element has a clear bit in its slot."""
        places, bits = self._positions(slots, elements)
        new: BoolArray = ((self._bytes[places] & bits) != bits).any(axis=0)
        return new

    def is_unseen(self, slot: int, element: int) -> bool:
        """True if the element has a clear bit in the slot."""
        held = self._bytes.item
        return any(not held(place) & bit for place, bit in self._positions_of(slot, element))

    def mark(self, slots: IntArray, elements: Fingerprints) -> BoolArray:
        """Set the elements' bits; True where one was clear before the batch."""
        places, bits = self._positions(slots, elements)
        clear = (self._bytes[places] & bits) != bits
        new: BoolArray = clear.any(axis=0)
        self._set(places[clear], bits[clear])
        return new

    def mark_one(self, slot: int, element: int) -> bool:
        """Set the element's bits; True if one was clear."""
        held = self._bytes.item
        clear = [(place, bit) for place, bit in self._positions_of(slot, element) if not held(place) & bit]
        for place, bit in clear:
            self._bytes[place] = held(place) | bit
        return bool(clear)

    def agrees(self, slot: int, elements: Fingerprints) -> bool:
        """True if the slot's bits are exactly those of the elements."""
        return bool(np.array_equal(self._slice(slot), self._image(elements)))

    def _positions(self, slots: IntArray, elements: Fingerprints) -> tuple[IntArray, ByteArray]:
        """Byte in the arena and bit in it, for every hash (rows) and element (columns)."""
        first, second = map_hashes(elements)
        bits = (first + second * self._steps) & (self._leaf_bits - 1)
        return (bits >> 3) + slots * self._leaf_bytes, _BIT[bits & 7]

    def _positions_of(self, slot: int, element: int) -> Iterator[tuple[int, int]]:
        """`_positions` of one element."""
        position, step = map_hashes_of(element)
        start = slot * self._leaf_bytes
        for _ in range(len(self._steps)):
            bit = position & self._leaf_bits - 1
            yield start + (bit >> 3), 128 >> (bit & 7)
            position += step

    def _set(self, places: IntArray, bits: ByteArray) -> None:
        """Set bits, several of which may lie in one byte.

        Of these numpy stores the last alone, so what is still clear is set in another round; there are at most eight.
        This is five times as fast as `np.bitwise_or.at`, which takes the bits one by one.
        """
        while len(places):
            self._bytes[places] |= bits
            clear = (self._bytes[places] & bits) == 0
            places, bits = places[clear], bits[clear]

    def _image(self, elements: Fingerprints) -> ByteArray:
        """The bytes of a leaf that holds exactly the elements."""
        first, second = map_hashes(elements)
        bits = np.zeros(self._leaf_bits, dtype=np.bool_)
        for step in self._steps[:, 0].tolist():
            bits[(first + second * step) & (self._leaf_bits - 1)] = True
        return np.packbits(bits)

    def _slice(self, slot: int) -> ByteArray:
        return self._bytes[slot * self._leaf_bytes : (slot + 1) * self._leaf_bytes]

    def _grow(self) -> None:
        slots = self._bytes.size // self._leaf_bytes
        more = slots // 4 + 1
        grown = np.zeros((slots + more) * self._leaf_bytes, dtype=np.uint8)
        grown[: self._bytes.size] = self._bytes
        self._bytes = grown
        self._free.extend(range(slots + more - 1, slots - 1, -1))
