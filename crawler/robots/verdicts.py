"""What the rules say of one URL, and what they said of URLs that had to wait.

A URL that waits while its robots.txt is fetched is judged by the very answer it waited for. So it needs no rules when it comes
back, and a crawl gets on however many hosts have more rules than the memory holds.
"""

from __future__ import annotations

from collections import OrderedDict
from enum import Enum, auto

from anabranch.crawler.robots.parsing import DISALLOW_ALL, RobotsRules

#: URLs that may wait at a time, one for each host that was just asked; one more forgets the one that has waited longest,
#: which then costs its host another robots.txt. 20 MB at the very most.
MAX_WAITING = 100_000


class Verdict(Enum):
    """May it be fetched?"""

    ALLOWED = auto()
    EXCLUDED = auto()
    UNKNOWN = auto()  #: robots.txt cannot be had


def verdict_of(rules: RobotsRules, url: str) -> Verdict:
    """What the rules say of the canonical URL. Cost: as `RobotsRules.allows`."""
    if rules is DISALLOW_ALL:
        return Verdict.UNKNOWN
    return Verdict.ALLOWED if rules.allows(url) else Verdict.EXCLUDED


class Verdicts:
    """Verdicts that wait for their URLs, each for one use. Times are epoch seconds. All calls O(1)."""

    def __init__(self, most: int = MAX_WAITING) -> None:
        self._most = most
        self._kept: OrderedDict[int, tuple[Verdict, float]] = OrderedDict()  #: by the URL's 64-bit hash: it may be long

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, url: str, verdict: Verdict, until_s: float) -> None:
        """The URL has to wait; its verdict holds until then."""
        key = hash(url)
        self._kept.pop(key, None)
        self._kept[key] = (verdict, until_s)
        if len(self._kept) > self._most:
            self._kept.popitem(last=False)

    def take(self, url: str, now_s: float) -> Verdict | None:
        """The verdict of a URL that has waited; None if there is none, or it is too old."""
        verdict, until_s = self._kept.pop(hash(url), (None, 0.0))
        return verdict if now_s < until_s else None
