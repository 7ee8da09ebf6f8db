"""Keys in memory: `RecentKeys`, a bounded set, and `WarmupFilter`, the front of a `UniqFilter` (`uniq.py`) for a job.

Most links of a page were met a moment ago, and a set answers for a few dozen keys several times as fast as numpy. A
UniqFilter is also slow at first: each of its first keys touches a new page of a file, 30 to 60 microseconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from itertools import compress, islice
from operator import not_
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from anabranch.dedup.uniq import UniqFilter, UniqStatistics

#: Keys that a filter in its warm-up has at most; also the generation of the recent keys afterwards.
WARMUP_KEYS: Final = 8192
#: Earlier keys that a call marks in the UniqFilter when the warm-up ends, besides twice as many as the call marks.
WARMUP_SLICE: Final = 64
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


class WarmupFilter:
    """In-memory front of a UniqFilter: an exact set during the warm-up, then a cache of recent keys. For threads as it.

    The job's store has every key that was marked, so during the warm-up nothing is written: `position` is empty, and
    the store marks all keys again at the next opening. Above `limit` keys each call also marks some earlier keys in the
    UniqFilter. Once it has all, the filter is full: the UniqFilter decides and is synced.
    """

    def __init__(self, uniq: UniqFilter, limit: int = WARMUP_KEYS) -> None:
        """The filter is full from the start if the UniqFilter was ever synced with keys."""
        self._uniq = uniq
        self._limit = limit
        self._is_full = bool(uniq.position())  #: the UniqFilter has all keys
        self._keys: set[bytes] = set()  #: during the warm-up: all keys that were marked
        self._unwritten: deque[bytes] = deque()  #: those of them that the UniqFilter does not have
        self._recent = RecentKeys[bytes](limit)

    def unseen(self, keys: Sequence[bytes]) -> list[bool]:
        """True where a key is new; nothing is changed."""
        if not self._is_full:
            known = self._keys
            return [key not in known for key in keys]
        if len(keys) >= MANY_KEYS:
            answers: list[bool] = self._uniq.unseen(keys).tolist()
            return answers
        asked = self._recent.missing(keys)
        if not asked:
            return [False] * len(keys)
        answers = self._uniq.unseen(asked).tolist()
        self._recent.add(asked if True not in answers else compress(asked, map(not_, answers)))
        new = set(compress(asked, answers))
        return [key in new for key in keys] if new else [False] * len(keys)

    def mark(self, keys: Sequence[bytes]) -> None:
        """Make the keys known. Raises: as `UniqFilter.mark`; the call may be repeated."""
        if self._is_full:
            self._uniq.mark(keys)
            self._recent.add(keys)
            return
        self._keys.update(keys)
        self._unwritten.extend(keys)
        if len(self._keys) > self._limit:
            self._write(WARMUP_SLICE + 2 * len(keys))

    def sync(self) -> None:
        """If the filter is full, make all that was marked before this call durable. Raises: OSError; it may be repeated."""
        if self._is_full:
            self._uniq.sync()

    def position(self) -> str:
        """The position that covers all keys marked before the last `sync`; empty during the warm-up."""
        return self._uniq.position()

    def statistics(self) -> UniqStatistics:
        """As `UniqFilter.statistics`; during the warm-up the filter drops nothing wrongly."""
        found = self._uniq.statistics()
        return found if self._is_full else replace(found, keys=len(self._keys), false_drop=0.0, expected_lost=0.0)

    def close(self) -> None:
        """Close the UniqFilter; a second call does nothing. Raises: OSError, with the files closed."""
        self._uniq.close(keep_position=not self._is_full)

    def __repr__(self) -> str:
        state = "full" if self._is_full else f"warming up, {len(self._keys)} keys"
        return f"<WarmupFilter {state}, {self._uniq!r}>"

    def _write(self, count: int) -> None:
        """Mark `count` of the unwritten keys in the UniqFilter; with the last one the warm-up ends."""
        keys = list(islice(self._unwritten, count))
        self._uniq.mark(keys)
        for _ in keys:
            self._unwritten.popleft()
        if not self._unwritten:
            self._recent.add(self._keys)
            self._keys = set()
            self._is_full = True
