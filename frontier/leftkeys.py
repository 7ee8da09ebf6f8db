"""Keys that were left to other crawls, which share a filter with this one: rows of theirs died on their way to the store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from anabranch.frontier.models import Row

#: Keys that other crawls own that are remembered.
REMEMBERED_KEYS = 65_536


class LeftKeys:
    """They count as pending for a while, since no filter here has them: a popular link is not asked about each time."""

    def __init__(self) -> None:
        self._keys: set[bytes] = set()

    def sort_out(
        self, keys: Sequence[bytes], died: Sequence[Row], under_way: Callable[[], Iterable[bytes]]
    ) -> tuple[list[bytes], set[bytes]]:
        """Of the keys of rows that were synced, those that are this crawl's; and which are pending no more.

        A row that died costs its key once: a forced row may have the same, and lives. Once there are too many, those left
        before are forgotten, apart from those that are `under_way` again, with a row that was forced. Cost: O(keys).
        """
        dead = Counter(row.dedup_key() for row in died)
        own = list((Counter(keys) - dead).elements())
        left = dead.keys() - own
        self._keys.difference_update(own)
        if len(self._keys) + len(left) <= REMEMBERED_KEYS:
            self._keys |= left
            return own, set(own)
        before, self._keys = self._keys, left
        return own, before.difference(left, under_way()).union(own)
