"""What a DSBF asks of the place where its leaves' bits live.

Calls take a whole batch over all leaves, since a loop over leaves divides the speed by their number.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from anabranch.dedup.batch import BoolArray, Fingerprints, IntArray


class Leaves(Protocol):
    """Bit arrays of equal size, each named by a slot; every place serves this: memory, a mapped file, Redis."""

    def take(self) -> int:
        """A slot with all bits clear. Raises: OSError, with nothing taken."""
        ...

    def drop(self, slot: int) -> None:
        """Give a slot back; its bits are forgotten."""
        ...

    def unseen(self, slots: IntArray, elements: Fingerprints) -> BoolArray:
        """True where the element, looked up in the slot beside it, has a clear bit."""
        ...

    def mark(self, slots: IntArray, elements: Fingerprints) -> BoolArray:
        """Set the elements' bits, each in the slot beside it; True where a bit was clear before the batch."""
        ...


class LocalLeaves(Leaves, Protocol):
    """What a filter on this machine asks beside that: one element at a time, and whole leaves."""

    @property
    def memory_bytes(self) -> int:
        """Bytes of all slots, in memory or mapped."""
        ...

    def is_unseen(self, slot: int, element: int) -> bool:
        """`unseen` of one element."""
        ...

    def mark_one(self, slot: int, element: int) -> bool:
        """`mark` of one element."""
        ...

    def fill(self, slot: int, elements: Fingerprints) -> None:
        """Make the slot's bits exactly those of the elements."""
        ...

    def agrees(self, slot: int, elements: Fingerprints) -> bool:
        """True if the slot's bits are exactly those of the elements."""
        ...

    def claim(self, slots: Collection[int]) -> None:
        """Take exactly these slots, with their bits, before any `take`. Raises: ValueError if there are fewer."""
        ...
