"""Leaves on this machine: slices of one array, so that a batch is one vectorised pass over all leaves."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np

from anabranch.dedup.batch import BoolArray, ByteArray, Fingerprints, IntArray
from anabranch.dedup.fingerprint import map_hashes, map_hashes_of
from anabranch.dedup.leaves.room import MemoryRoom, Room

#: Elements that are looked up in one pass: with more, the arrays of positions outgrow the processor's cache.
_AT_ONCE = 2048


class ArenaLeaves:
    """Slots of `leaf_bits` bits (a power of two), `hashes` positions an element, in the bytes of a room.

    Slot s is bytes s * leaf_bits / 8 and on; bit 0 is the least significant one of a byte. A dropped slot is used
    again. When no slot is free the room grows by a quarter.
    """

    def __init__(self, leaf_bits: int, hashes: int, slots: int = 1, room: Room | None = None) -> None:
        self._leaf_bits = leaf_bits
        self._leaf_bytes = leaf_bits // 8
        self._steps: IntArray = np.arange(hashes, dtype=np.int64)[:, None]
        self._room: Room = room or MemoryRoom()
        if slots > self._slots():
            self._room.extend(slots * self._leaf_bytes)
        self._dropped: list[int] = []  # free slots, whose bits are to be cleared
        self._fresh = 0  # from this slot on none was ever taken: all bits are clear

    @property
    def memory_bytes(self) -> int:
        """Size of the arena."""
        return self._room.data.nbytes

    def take(self) -> int:
        """A slot with all bits clear. Raises: OSError, with nothing taken."""
        if self._dropped:
            slot = self._dropped[-1]
            self._room.secure(slot * self._leaf_bytes, self._leaf_bytes)
            self._slice(slot)[:] = 0
            return self._dropped.pop()
        if self._fresh == self._slots():
            self._room.extend((self._fresh + self._fresh // 4 + 1) * self._leaf_bytes)
        self._room.secure(self._fresh * self._leaf_bytes, self._leaf_bytes)
        self._fresh += 1
        return self._fresh - 1

    def claim(self, slots: Collection[int]) -> None:
        """Take exactly these slots, with the bits that stand there. Raises: ValueError if there are fewer."""
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
        if len(elements) <= _AT_ONCE:
            return self._are_clear(*self._positions(slots, elements))
        parts = [slice(start, start + _AT_ONCE) for start in range(0, len(elements), _AT_ONCE)]
        return np.concatenate([self._are_clear(*self._positions(slots[part], elements[part])) for part in parts])

    def is_unseen(self, slot: int, element: int) -> bool:
        """True if the element has a clear bit in the slot."""
        held = self._room.data.item
        return any(not held(place) & bit for place, bit in self._positions_of(slot, element))

    def mark(self, slots: IntArray, elements: Fingerprints) -> BoolArray:
        """Set the elements' bits; True where one was clear before the batch. Cost: 90 bytes per element for a moment."""
        if len(elements) <= _AT_ONCE:
            positions = self._positions(slots, elements)
            new = self._are_clear(*positions)
            if new.any():
                self._set(*positions)
            return new
        parts = [slice(start, start + _AT_ONCE) for start in range(0, len(elements), _AT_ONCE)]
        all_positions = [self._positions(slots[part], elements[part]) for part in parts]
        new = np.concatenate([self._are_clear(*positions) for positions in all_positions])
        for positions in all_positions:
            self._set(*positions)
        return new

    def mark_one(self, slot: int, element: int) -> bool:
        """Set the element's bits; True if one was clear."""
        data = self._room.data
        held = data.item
        clear = [(place, bit) for place, bit in self._positions_of(slot, element) if not held(place) & bit]
        for place, bit in clear:
            data[place] = held(place) | bit
        return bool(clear)

    def agrees(self, slot: int, elements: Fingerprints) -> bool:
        """True if the slot's bits are exactly those of the elements."""
        return bool(np.array_equal(self._slice(slot), self._image(elements)))

    def _are_clear(self, places: IntArray, shifts: ByteArray) -> BoolArray:
        """True for columns in which a bit is 0."""
        held = self._room.data[places]
        held >>= shifts
        clear: BoolArray = (np.bitwise_and.reduce(held, axis=0) & 1) == 0
        return clear

    def _set(self, places: IntArray, shifts: ByteArray) -> None:
        """Set all bits at once, and again what is missing, since several may lie in one byte.

        Of those numpy stores the last one alone; with each round fewer are missing, and there are at most eight.
        """
        data, bits = self._room.data, np.left_shift(1, shifts, dtype=np.uint8)
        data[places] |= bits
        missing = (data[places] & bits) == 0
        while missing.any():
            places, bits = places[missing], bits[missing]
            data[places] |= bits
            missing = (data[places] & bits) == 0

    def _positions(self, slots: IntArray, elements: Fingerprints) -> tuple[IntArray, ByteArray]:
        """Byte in the arena and bit in it, for every hash (rows) and element (columns)."""
        first, second = map_hashes(elements)
        places = second * self._steps
        places += first
        places &= self._leaf_bits - 1
        shifts = places.astype(np.uint8)
        shifts &= 7
        places >>= 3
        places += slots * self._leaf_bytes
        return places, shifts

    def _positions_of(self, slot: int, element: int) -> Iterator[tuple[int, int]]:
        """Byte in the arena and value of the bit in it, for every hash of one element."""
        position, step = map_hashes_of(element)
        start, mask = slot * self._leaf_bytes, self._leaf_bits - 1
        for _ in range(len(self._steps)):
            bit = position & mask
            yield start + (bit >> 3), 1 << (bit & 7)
            position += step

    def _image(self, elements: Fingerprints) -> ByteArray:
        """The bytes of a leaf that holds exactly the elements."""
        first, second = map_hashes(elements)
        bits = np.zeros(self._leaf_bits, dtype=np.bool_)
        for step in self._steps[:, 0].tolist():
            bits[(first + second * step) & (self._leaf_bits - 1)] = True
        return np.packbits(bits, bitorder="little")

    def _slice(self, slot: int) -> ByteArray:
        return self._room.data[slot * self._leaf_bytes : (slot + 1) * self._leaf_bytes]

    def _slots(self) -> int:
        return self._room.data.size // self._leaf_bytes
