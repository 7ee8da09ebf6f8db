"""From durable rows to marks: the filter hears of a key only when its row is committed and synced.

In between the key is in a pending set. So the filter may know less than the store, never more.

A commit may bring thousands of keys, at some 30 µs each while the filter is young. They are marked in slices, one a call of the
Frontier, so that no call of a host's event loop pays for all. Nobody waits for them: until then they are pending.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import chain, islice
from typing import Final

from anabranch.frontier.leftkeys import LeftKeys
from anabranch.frontier.models import Row
from anabranch.frontier.seen import SeenFilter

#: Keys that one call marks at most, beside as many as came in since the last one.
SLICE: Final = 64


class Marking:
    """The keys that the filter does not know yet. There are never more than those of rows that a store may be behind by.

    Each slice holds as many keys as came in since the last one, and more, so what is to be marked does not pile up.
    """

    def __init__(self, seen: SeenFilter) -> None:
        self._seen = seen
        self.pending: set[bytes] = set()  #: keys that are not marked
        self.ordinal = 0  #: every row up to this one is known to the filter
        self.has_shared = False  #: the store asks a filter beside this one, and lets rows die that other crawls have
        self._unsynced: deque[tuple[int, int, list[bytes]]] = deque()
        self._due: deque[bytes] = deque()  # of rows that are durable
        # When so many keys of all that were ever due are marked, the rows up to this one are known.
        self._ends: deque[tuple[int, int]] = deque()
        self._ever_due = 0
        self._came = 0  # keys since the last slice
        self._left = LeftKeys()  # keys that died so

    @property
    def is_behind(self) -> bool:
        """Something is durable that is not known yet."""
        return bool(self._ends)

    @property
    def slices(self) -> int:
        """How many more slices there are at most."""
        return -(-len(self._due) // SLICE)

    def remember(self, number: int, ordinal: int, keys: list[bytes]) -> None:
        """The rows of this batch up to this one have these keys, none if the filter blocks: the store marks it then."""
        self.pending.update(keys)
        self._unsynced.append((number, ordinal, keys))
        self._came += len(keys)

    def synced(self, number: int, died: Sequence[Row] = ()) -> None:
        """Batches up to `number` are durable, but for the rows that `died`: their keys are due."""
        unsynced = self._unsynced
        if not unsynced or unsynced[0][0] > number:
            return
        keys: list[bytes] = []
        while unsynced and unsynced[0][0] <= number:
            _, ordinal, added = unsynced.popleft()
            keys.extend(added)
        if died and self.has_shared:
            keys = self._without_dead(keys, died)
        if not self._ends:
            self._came = 0  # nothing was due meanwhile
        self._due.extend(keys)
        self._ever_due += len(keys)
        self._ends.append((self._ever_due, ordinal))

    def mark_some(self) -> None:
        """Mark the next slice. Raises: OSError of the filter."""
        due, count = self._due, SLICE + self._came
        self._came = 0
        if due:
            keys = list(islice(due, count))
            self._seen.mark(keys)
            for _ in keys:
                due.popleft()
            self.pending.difference_update(keys)
        ends, known = self._ends, self._ever_due - len(due)
        while ends and ends[0][0] <= known:
            self.ordinal = ends.popleft()[1]

    def _without_dead(self, keys: list[bytes], died: Sequence[Row]) -> list[bytes]:
        own, known = self._left.sort_out(keys, died, self._under_way)
        self.pending.difference_update(known.difference(own))
        return own

    def _under_way(self) -> chain[bytes]:
        return chain(self._due, chain.from_iterable(added for _, _, added in self._unsynced))
