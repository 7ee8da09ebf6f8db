"""Keys in memory: `RecentKeys`, a bounded set, and `RecentFront`, which asks it before a `UniqFilter` (`uniq.py`).

Most links of a page were met a moment ago, and a set answers for a few dozen keys several times as fast as numpy.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from itertools import compress
from operator import not_
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from anabranch.dedup.uniq import UniqFilter

#: A generation of the recent keys.
RECENT_KEYS: Final = 8192
#: For this many keys at once the UniqFilter is asked directly: a look at the recent keys would take as long.
MANY_KEYS: Final = 256

K = TypeVar("K", bound=Hashable)


class RecentKeys(Generic[K]):
    """A bounded set of the keys that were added or found last: one generation or more, less than two. O(1) a key.

    A full generation replaces the older one. A key that is found in the older one moves to the newer one.
    """

    def __init__(self, generation: int) -> None:
        self._generation = generation
        self._newer: set[K] = set()
        self._older: set[K] = set()

    def __contains__(self, key: K) -> bool:
        if key in self._newer:
            return True
        if key not in self._older:
            return False
        self.add((key,))
        return True

    def __bool__(self) -> bool:
        return bool(self._newer or self._older)

    def add(self, keys: Iterable[K]) -> None:
        """Add keys; forget the older generation if the newer one is full."""
        self._newer.update(keys)
        if len(self._newer) >= self._generation:
            self._newer, self._older = set(), self._newer

    def missing(self, keys: Iterable[K]) -> list[K]:
        """Those of the keys that are not in the set, in their order."""
        newer, older = self._newer, self._older
        not_newer = [key for key in keys if key not in newer]
        missing = [key for key in not_newer if key not in older]
        if len(missing) < len(not_newer):
            self.add([key for key in not_newer if key in older])
        return missing


class RecentFront:
    """A UniqFilter with its recent keys in memory, which answers for most links of a crawl.

    Its threads are those of the UniqFilter.
    """

    def __init__(self, uniq: UniqFilter, generation: int = RECENT_KEYS) -> None:
        self._uniq = uniq
        self._recent = RecentKeys[bytes](generation)
        #: The UniqFilter has all keys, so it answers these calls itself.
        self.sync = uniq.sync
        self.position = uniq.position
        self.statistics = uniq.statistics
        self.close = uniq.close

    def unseen(self, keys: Sequence[bytes]) -> list[bool]:
        """True where a key is new; nothing is changed."""
        if len(keys) >= MANY_KEYS:
            answers: list[bool] = self._uniq.unseen(keys).tolist()
            return answers
        asked = self._recent.missing(keys)
        if len(asked) < len(keys):
            self._uniq.count_known(len(keys) - len(asked))
        if not asked:
            return [False] * len(keys)
        answers = self._uniq.unseen(asked).tolist()
        self._recent.add(asked if True not in answers else compress(asked, map(not_, answers)))
        new = set(compress(asked, answers))
        return [key in new for key in keys] if new else [False] * len(keys)

    def mark(self, keys: Sequence[bytes]) -> None:
        """Make the keys known. Raises: as `UniqFilter.mark`; the call may be repeated."""
        self._uniq.mark(keys)
        self._recent.add(keys)

    def __repr__(self) -> str:
        return f"<RecentFront {self._uniq!r}>"
