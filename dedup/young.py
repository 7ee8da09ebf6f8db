"""A UniqFilter whose keys somebody else keeps, too: exact and in memory while they are few, and quick about recent ones.

A job's store has every key that was marked. So while there are few, nothing needs to be written: the filter is a set, its
`position` stays empty, and who opens the folder next marks all keys again, which is what an empty position asks for. With more
than `LIMIT` keys it *grows up*: each call that marks also puts some of the earlier ones into the UniqFilter, until that has
all. From then on the UniqFilter decides, and is synced; the keys that were met last are still answered by a set, if few are
asked for.

What is saved is the price of a young UniqFilter: each of its first keys falls into a page of a file that nobody has touched, at
30 to 60 microseconds; and numpy's calls for the few dozen links of a page, most of which the crawl has met a moment ago.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from itertools import compress, islice
from operator import not_
from typing import Final

from anabranch.dedup.uniq import UniqFilter, UniqStatistics

#: Keys that a young filter has at most, and of recent ones that are remembered: at least; up to twice as many.
LIMIT: Final = 8192
#: Earlier keys that a call puts into the UniqFilter while it grows up, beside twice as many as it marks.
SLICE: Final = 64
#: Of so many keys at once the UniqFilter is asked without a look at the recent ones, which would take as long.
MANY: Final = 256


class YoungFilter:
    """A filter that may be empty after any end: whoever opens one whose `position` is empty marks every key again.

    Marking and asking belong to one thread; `sync` and `position` may run in another one at the same time.
    """

    def __init__(self, uniq: UniqFilter, limit: int = LIMIT) -> None:
        """It is young if the UniqFilter was never synced with keys."""
        self._uniq = uniq
        self._limit = limit
        self._is_grown = bool(uniq.position())  #: the UniqFilter has all keys
        self._recent: set[bytes] = set()  #: keys that were marked; all of them while it is young
        self._older: set[bytes] = set()  #: those before; none while it is young
        self._untold: deque[bytes] = deque()  #: keys that the UniqFilter does not have

    def unseen(self, keys: Sequence[bytes]) -> list[bool]:
        """True where a key is new; nothing is changed."""
        recent, older = self._recent, self._older
        if not self._is_grown:
            return [key not in recent for key in keys]
        if len(keys) >= MANY:
            answers: list[bool] = self._uniq.unseen(keys).tolist()
            return answers
        asked = [key for key in keys if key not in recent and key not in older]
        if not asked:
            return [False] * len(keys)
        answers = self._uniq.unseen(asked).tolist()
        recent.update(asked if True not in answers else compress(asked, map(not_, answers)))
        new = set(compress(asked, answers))
        self._turn()
        return [key in new for key in keys] if new else [False] * len(keys)

    def mark(self, keys: Sequence[bytes]) -> None:
        """Put the keys into the set, and into the UniqFilter if it has grown up. Raises: as `UniqFilter.mark`; repeat it."""
        if self._is_grown:
            self._uniq.mark(keys)
            self._recent.update(keys)
            self._turn()
            return
        self._recent.update(keys)
        self._untold.extend(keys)
        if len(self._recent) > self._limit:
            self._grow(SLICE + 2 * len(keys))

    def sync(self) -> None:
        """Make all that was marked before this call durable, once it has grown up. Raises: OSError; it may be repeated."""
        if self._is_grown:
            self._uniq.sync()

    def position(self) -> str:
        """What stands for all marked before the last `sync`; empty while it is young."""
        return self._uniq.position()

    def statistics(self) -> UniqStatistics:
        """As `UniqFilter.statistics`; while it is young it drops nothing wrongly."""
        told = self._uniq.statistics()
        return told if self._is_grown else replace(told, keys=len(self._recent), false_drop=0.0, expected_lost=0.0)

    def close(self) -> None:
        """Let go of files; a second call does nothing. Raises: OSError, with the files let go."""
        self._uniq.close(stands=self._is_grown)

    def __repr__(self) -> str:
        state = "grown up" if self._is_grown else f"young, {len(self._recent)} keys"
        return f"<YoungFilter {state}, {self._uniq!r}>"

    def _grow(self, count: int) -> None:
        """Tell the UniqFilter so many of the keys that it does not have."""
        keys = list(islice(self._untold, count))
        self._uniq.mark(keys)
        for _ in keys:
            self._untold.popleft()
        if not self._untold:
            self._recent, self._older = set(), self._recent
            self._is_grown = True

    def _turn(self) -> None:
        """Forget the older half of what is remembered, if that is enough."""
        if len(self._recent) >= self._limit:
            self._recent, self._older = set(), self._recent
