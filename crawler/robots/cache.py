"""What an answer to a robots.txt fetch means (RFC 9309, 2.3.1), and the rules of many origins, for as long as they hold.

| answer | meaning | kept for |
|---|---|---|
| 2xx | the rules that stand in it | `lifetime_s` |
| 4xx; 3xx that leads nowhere or too far | there are no rules: all is allowed | `lifetime_s` |
| 429, 5xx, no answer | the rules are not known: nothing is allowed | `unreachable_s`, after several tries |

Rules that are too old are not used for a host that cannot be asked any more, nor is such a host ever taken for one without
rules, however long that lasts (the RFC permits both after a long time, 30 days say): it is asked again and again instead.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from anabranch.crawler.robots.parsing import ALLOW_ALL, DISALLOW_ALL, RobotsRules, parse_robots
from anabranch.crawler.urls.parsing import authority_of

#: RFC 9309 section 2.4: rules should not be used for longer than a day.
LIFETIME_S = 24 * 3600.0
#: A host that could not be asked is asked again soon.
UNREACHABLE_LIFETIME_S = 3600.0

#: Origins that a cache holds, and what their rules may take in memory together. A hostile file takes up to 12 MB.
MAX_ORIGINS = 10_000
MAX_BYTES = 64 << 20
#: Rules of so many bytes and more are large: where memory is short they make room for each other before others do for them.
LARGE_BYTES = 64 << 10

_TOO_MANY_REQUESTS = 429


def rules_of(status: int, body: bytes, product: str, *, is_cut: bool = False) -> RobotsRules:
    """The rules out of the answer at the end of all redirects; `status` below 0: there was none. `is_cut`: see `parse_robots`.

    Never raises. Cost: O(body).
    """
    if 200 <= status <= 299:
        return parse_robots(body, product, is_cut=is_cut)
    if 300 <= status <= 499 and status != _TOO_MANY_REQUESTS:
        return ALLOW_ALL
    return DISALLOW_ALL


def robots_url(url: str) -> str:
    """Where the rules for a canonical http(s) URL stand: "https://a.test:8443/robots.txt". It names the origin as well."""
    return f"{url.partition('://')[0]}://{authority_of(url)}/robots.txt"


class Kept(NamedTuple):
    """Rules, and when they were learnt and are too old (epoch seconds)."""

    rules: RobotsRules
    since_s: float
    until_s: float


class RobotsCache:
    """Rules by origin (scheme, host, port); DISALLOW_ALL for a time of its own.

    A parsed "Disallow: /" is an answer and stays as long as any. Bounded in origins and in memory; the one that was asked for
    longest ago goes first, for memory a large one. Times are epoch seconds. All calls O(1), amortised.
    """

    def __init__(
        self,
        lifetime_s: float = LIFETIME_S,
        unreachable_s: float = UNREACHABLE_LIFETIME_S,
        *,
        max_origins: int = MAX_ORIGINS,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._lifetime_s = lifetime_s
        self._unreachable_s = unreachable_s
        self._max_origins = max_origins
        self._max_bytes = max_bytes
        self._kept: OrderedDict[str, Kept] = OrderedDict()
        self._large: OrderedDict[str, None] = OrderedDict()
        self._refusals: OrderedDict[str, int] = OrderedDict()
        self.size_bytes = 0  #: what the rules take in memory, about

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, url: str, now_s: float) -> RobotsRules | None:
        """The rules for the URL's origin; None if they are not known or too old."""
        origin = robots_url(url)
        kept = self._kept.get(origin)
        if kept is None:
            return None
        if now_s >= kept.until_s:
            self._drop(origin)
            return None
        self._kept.move_to_end(origin)
        if origin in self._large:
            self._large.move_to_end(origin)
        return kept.rules

    def put(self, url: str, rules: RobotsRules, now_s: float) -> None:
        """Keep the rules for the URL's origin, from now on. A row of refusals ends with that."""
        origin = robots_url(url)
        self._refusals.pop(origin, None)
        self._drop(origin)
        lifetime_s = self._unreachable_s if rules is DISALLOW_ALL else self._lifetime_s
        while self._large and self.size_bytes + rules.size_bytes > self._max_bytes:
            self._drop(next(iter(self._large)))
        while self._kept and not self._has_room(rules):
            self._drop(next(iter(self._kept)))
        self._kept[origin] = Kept(rules, now_s, now_s + lifetime_s)
        if rules.size_bytes >= LARGE_BYTES:
            self._large[origin] = None
        self.size_bytes += rules.size_bytes

    def look(self, url: str) -> Kept | None:
        """What is kept for the URL's origin, too old or not; a look makes no use of it."""
        return self._kept.get(robots_url(url))

    def refused(self, url: str) -> int:
        """The rules could not be had once more: how often in a row that is."""
        origin = robots_url(url)
        self._refusals[origin] = self._refusals.pop(origin, 0) + 1
        if len(self._refusals) > self._max_origins:
            self._refusals.popitem(last=False)
        return self._refusals.get(origin, 1)

    def _has_room(self, rules: RobotsRules) -> bool:
        return len(self._kept) < self._max_origins and self.size_bytes + rules.size_bytes <= self._max_bytes

    def _drop(self, origin: str) -> None:
        kept = self._kept.pop(origin, None)
        self._large.pop(origin, None)
        if kept is not None:
            self.size_bytes -= kept.rules.size_bytes
