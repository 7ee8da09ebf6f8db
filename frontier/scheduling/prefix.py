"""The first part of an ordered set whose rest is in the store: what keeps memory small where there are many.

The lanes that wait at a gate, and the rows that wait for a retry, can be millions. Memory has the first of them, up to
a *horizon*; what lies behind is rows, read when few remain. What arrives behind the horizon is not taken in, since a
read will bring it. What arrives while a read is under way is remembered, since that read was written before it came.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush, nsmallest
from typing import Generic, TypeVar

from anabranch.frontier.turns import Turn

K = TypeVar("K", Turn, tuple[float, int])


class Prefix(Generic[K]):
    """Members (whole numbers) by key, the smallest first; every operation costs O(log members)."""

    __slots__ = ("_gone", "_heap", "_horizon", "_keys", "_meanwhile", "_most", "is_asked", "is_complete")

    def __init__(self, most: int, *, is_complete: bool) -> None:
        self._most = most  #: members that are kept in memory, twice as many for a moment
        self._heap: list[tuple[K, int]] = []
        self._keys: dict[int, K] = {}
        self.is_complete = is_complete  #: nothing lies behind the horizon
        self._horizon: K | None = None  #: the last key that was read; None = none was
        self._gone: set[int] = set()  #: what was discarded while a read was under way, which may bring it
        self._meanwhile: dict[int, K] = {}  #: what came behind the horizon while a read was under way
        self.is_asked = False

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, member: int) -> bool:
        return member in self._keys

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(self._keys)

    @property
    def may_have_any(self) -> bool:
        """Something is in memory, or may be in the store."""
        return bool(self._keys) or not self.is_complete

    @property
    def wants_more(self) -> bool:
        """Few remain, the store may have more, and nobody has asked yet."""
        return not (self.is_complete or self.is_asked) and len(self._keys) <= self._most >> 2

    def offer(self, key: K, member: int) -> None:
        """The member stands at this key now; it is kept here unless that lies behind the horizon."""
        self._keys.pop(member, None)
        if self.is_complete or (self._horizon is not None and key <= self._horizon):
            self._keys[member] = key
            heappush(self._heap, (key, member))
        if not self.is_asked:
            self._limit()
        else:
            # A key that is too small costs a look in vain, one that is too large loses the member.
            self._gone.discard(member)
            self._meanwhile[member] = min(key, self._meanwhile.get(member, key))

    def discard(self, member: int) -> None:
        """The member stands nowhere any more."""
        self._keys.pop(member, None)
        if self.is_asked:
            self._meanwhile.pop(member, None)
            self._gone.add(member)

    def first_key(self) -> K | None:
        """The smallest key in memory, else the horizon; None if there is neither."""
        while self._heap and self._keys.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else self._horizon

    def first(self) -> tuple[K, int] | None:
        """The first member with its key; None if none is in memory."""
        self.first_key()
        return self._heap[0] if self._heap else None

    def pop(self) -> tuple[K, int] | None:
        """Take the first member out."""
        entry = self.first()
        if entry is not None:
            heappop(self._heap)
            self.discard(entry[1])
        return entry

    def ask(self) -> K | None:
        """Note that the store is asked; answers the key behind which to read."""
        self.is_asked = True
        return self._horizon

    def answer(self, entries: list[tuple[K, int]], limit: int) -> None:
        """Take what was read, in order; fewer than the limit means that there is no more."""
        self.is_asked = False
        self.is_complete = len(entries) < limit
        if entries:
            self._horizon = entries[-1][0]
        meanwhile, self._meanwhile = self._meanwhile, {}
        gone, self._gone = self._gone, set()
        for key, member in entries:
            if member in gone:
                continue
            # One that came meanwhile had its place in the store already: what was read is where it stands.
            meanwhile.pop(member, None)
            if member not in self._keys:
                self._keys[member] = key
                heappush(self._heap, (key, member))
        for member, key in meanwhile.items():
            self.offer(key, member)

    def _limit(self) -> None:
        """Keep the first ones if there are too many; the others are rows.

        Not while a read is under way: it began behind the old horizon, and would pass over what is given up before it.
        """
        if len(self._keys) <= 2 * self._most:
            return
        kept = nsmallest(self._most, ((key, member) for member, key in self._keys.items()))
        self._keys = {member: key for key, member in kept}
        self._heap = kept
        heapify(self._heap)
        self._horizon = kept[-1][0]
        self.is_complete = False
