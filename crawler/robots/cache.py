"""A crawl's memory of robots.txt: the rules of origins, verdicts of URLs that had to wait, and the Crawl-delays of gates.

Expired rules are never used for a host that cannot be reached any more: its robots.txt is requested again and again. It counts
as a host without rules only if the order says after how many tries and how much time, as RFC 9309 permits after a long time.
"""

from __future__ import annotations

from collections import OrderedDict
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from anabranch.crawler.robots.retrieval import robots_url
from anabranch.crawler.robots.rules import ALLOW_ALL, ALLOW_UNREACHABLE, DISALLOW_ALL, UNREACHABLE, RobotsRules, shown
from anabranch.frontier.times import duration_words

if TYPE_CHECKING:
    from anabranch.frontier.records import GateKey

#: RFC 9309 section 2.4: rules should not be used for longer than a day.
LIFETIME_S = 24 * 3600.0
#: An unreachable host is asked again soon.
UNREACHABLE_LIFETIME_S = 3600.0

#: The most origins in a cache, and the memory of all their rules. A hostile file takes up to 12 MB.
MAX_ORIGINS = 10_000
MAX_BYTES = 64 << 20
#: Rules of at least this size are large: they make room for each other before small ones go.
LARGE_BYTES = 64 << 10

#: The most kept verdicts, one for each host that was just asked; a dropped one costs another robots.txt. 20 MB at most.
MAX_WAITING = 100_000
#: The most origins of one gate that are kept: those with the longest delays.
MAX_OF_GATE = 100


class CachedRules(NamedTuple):
    """Rules, and when they were fetched and expire (epoch seconds)."""

    rules: RobotsRules
    since_s: float
    until_s: float


class Failing(NamedTuple):
    """Tries in a row that brought no rules, and when the first one was (epoch seconds)."""

    tries: int
    since_s: float


class RobotsCache:
    """Rules by origin (scheme, host, port); DISALLOW_ALL, which is no parsed "Disallow: /", expires sooner than others.

    Bounded in origins and in memory: the least recently used goes first, for memory a large one. Epoch seconds. All calls O(1).
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
        self._cached: OrderedDict[str, CachedRules] = OrderedDict()
        self._large: OrderedDict[str, None] = OrderedDict()
        self._refusals: OrderedDict[str, int] = OrderedDict()
        self._failing: OrderedDict[str, Failing] = OrderedDict()
        self.size_bytes = 0  #: memory that the rules take, about

    def __len__(self) -> int:
        return len(self._cached)

    def get(self, url: str, now_s: float) -> RobotsRules | None:
        """The rules for the URL's origin; None if they are unknown or have expired."""
        origin = robots_url(url)
        cached = self._cached.get(origin)
        if cached is None:
            return None
        if now_s >= cached.until_s:
            self._drop(origin)
            return None
        self._cached.move_to_end(origin)
        if origin in self._large:
            self._large.move_to_end(origin)
        return cached.rules

    def put(self, url: str, rules: RobotsRules, now_s: float) -> None:
        """Cache the rules of the URL's origin from now on. Its refusals are over; if rules were read, its failures, too."""
        origin = robots_url(url)
        self._refusals.pop(origin, None)
        if rules not in UNREACHABLE:
            self._failing.pop(origin, None)
        self._drop(origin)
        lifetime_s = self._unreachable_s if rules in UNREACHABLE else self._lifetime_s
        room_bytes = self._max_bytes - rules.size_bytes
        while self._large and self.size_bytes > room_bytes:
            self._drop(next(iter(self._large)))
        while self._cached and (len(self._cached) >= self._max_origins or self.size_bytes > room_bytes):
            self._drop(next(iter(self._cached)))
        self._cached[origin] = CachedRules(rules, now_s, now_s + lifetime_s)
        if rules.size_bytes >= LARGE_BYTES:
            self._large[origin] = None
        self.size_bytes += rules.size_bytes

    def look(self, url: str) -> CachedRules | None:
        """The cached rules of the URL's origin, expired or not; does not count as a use."""
        return self._cached.get(robots_url(url))

    def refused(self, url: str) -> int:
        """Count a failure to get the rules of the URL's origin; returns how many there were in a row."""
        origin = robots_url(url)
        self._refusals[origin] = self._refusals.pop(origin, 0) + 1
        if len(self._refusals) > self._max_origins:
            self._refusals.popitem(last=False)
        return self._refusals.get(origin, 1)

    def failed(self, url: str, now_s: float) -> Failing:
        """Count a try that brought no rules; returns how many there were since the origin last had some, and since when."""
        origin = robots_url(url)
        tries, since_s = self._failing.pop(origin, Failing(0, now_s))
        self._failing[origin] = Failing(tries + 1, since_s)
        if len(self._failing) > self._max_origins:
            self._failing.popitem(last=False)
        return Failing(tries + 1, since_s)

    def tries(self, url: str) -> int:
        """The tries that brought no rules since the URL's origin last had some."""
        return self._failing.get(robots_url(url), Failing(0, 0.0)).tries

    def _drop(self, origin: str) -> None:
        cached = self._cached.pop(origin, None)
        self._large.pop(origin, None)
        if cached is not None:
            self.size_bytes -= cached.rules.size_bytes


def describe_cached(cached: CachedRules | None, now_s: float) -> str:
    """A crawl's knowledge of an origin's robots.txt, for the operator; None = nothing. Pure."""
    if cached is None or cached.until_s <= now_s:
        return "its rules are unknown or have expired: the next page of its host requests it"
    asked = f"requested {duration_words(now_s - cached.since_s)} ago"
    left = duration_words(cached.until_s - now_s)
    rules = cached.rules
    if rules is DISALLOW_ALL:
        return f"{asked}, without success: nothing of its host is fetched for another {left}"
    if rules is ALLOW_UNREACHABLE:
        return f"{asked}, without success for as long as the order waits: everything is allowed for another {left}"
    if rules is ALLOW_ALL:
        return f"{asked}, it does not exist: everything is allowed for another {left}"
    group = f"its rules for {shown(rules.group)} apply" if rules.group else "none of its groups applies to us,"
    delay = f", Crawl-delay {rules.crawl_delay_s:g} s" if rules.crawl_delay_s else ""
    return f"{asked}: {group} for another {left}{delay}"


class RobotsVerdict(Enum):
    """Whether a URL may be fetched."""

    ALLOWED = auto()
    EXCLUDED = auto()
    UNKNOWN = auto()  #: robots.txt cannot be fetched


def verdict_of(rules: RobotsRules, url: str) -> RobotsVerdict:
    """The rules' verdict about a canonical URL. Cost: as `RobotsRules.allows`."""
    if rules is DISALLOW_ALL:
        return RobotsVerdict.UNKNOWN
    return RobotsVerdict.ALLOWED if rules.allows(url) else RobotsVerdict.EXCLUDED


class PendingVerdicts:
    """Verdicts of URLs that wait while their robots.txt is fetched, each for one use. Epoch seconds. All calls O(1).

    Such a URL needs no rules when it is leased again, so a crawl advances even if its hosts have more rules than fit in memory.
    """

    def __init__(self, most: int = MAX_WAITING) -> None:
        self._most = most
        self._pending: OrderedDict[int, tuple[RobotsVerdict, float]] = OrderedDict()  #: by the 64-bit hash of the URL

    def __len__(self) -> int:
        return len(self._pending)

    def keep(self, url: str, verdict: RobotsVerdict, until_s: float) -> None:
        """The URL has to wait; its verdict is valid until then."""
        key = hash(url)
        self._pending.pop(key, None)
        self._pending[key] = (verdict, until_s)
        if len(self._pending) > self._most:
            self._pending.popitem(last=False)

    def take(self, url: str, now_s: float) -> RobotsVerdict | None:
        """Remove and return the verdict of a URL that has waited; None without one, or if it has expired."""
        verdict, until_s = self._pending.pop(hash(url), (None, 0.0))
        return verdict if now_s < until_s else None


class CrawlDelays:
    """The Crawl-delay of each gate: the longest of its origins, since all ports of a host share a gate.

    Bounded in origins; the least recently updated gate is dropped first, and keeps its delay until one of its origins is
    fetched again, which then decides alone. Seconds. Cost: O(origins of the gate).
    """

    def __init__(self, most: int = MAX_ORIGINS) -> None:
        self._most = most
        self._gates: OrderedDict[GateKey, dict[str, float]] = OrderedDict()
        self._origins = 0

    def __len__(self) -> int:
        """The number of origins."""
        return self._origins

    def learn(self, gate: GateKey, origin: str, delay_s: float) -> float:
        """Note the delay of an origin, 0 for none; returns the delay of its gate."""
        delays = self._gates.pop(gate, {})
        self._origins -= len(delays)
        delays[origin] = delay_s
        longest_s = max(delays.values())
        if not delay_s:
            del delays[origin]  # takes no memory
        elif len(delays) > MAX_OF_GATE:
            del delays[min(delays, key=delays.__getitem__)]
        if delays:
            self._gates[gate] = delays
            self._origins += len(delays)
        while self._origins > self._most:
            self._origins -= len(self._gates.popitem(last=False)[1])
        return longest_s
