"""What a host's robots.txt allows (RFC 9309), decided by Protego behind this one file.

Fetching robots.txt is the worker's business, and so is a 429 or 503 to it (the host is busy, nothing
is decided). What stands here is pure: the rules out of one answer, and a cache of rules by origin.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from protego import Protego

from crawler.urls.parsing import authority_of

#: RFC 9309 section 2.5: at least 500 KiB must be read; we read no more.
MAX_ROBOTS_BYTES = 500 * 1024

#: RFC 9309 section 2.4: rules should not be used for longer than a day.
LIFETIME_S = 24 * 3600.0
#: A host that could not be asked is asked again soon.
UNREACHABLE_LIFETIME_S = 3600.0

#: Origins that a cache holds, by default.
MAX_ORIGINS = 10_000


class RobotsRules:
    """What one robots.txt says to one product. Without a parsed file, `default` answers for every URL."""

    __slots__ = ("_default", "_parsed", "_product", "crawl_delay_s")

    #: Seconds between two fetches that the host asks for; None = it asks for nothing.
    crawl_delay_s: float | None

    def __init__(self, parsed: Protego | None, product: str = "", *, default: bool = True) -> None:
        self._parsed = parsed
        self._product = product
        self._default = default
        self.crawl_delay_s = None if parsed is None else parsed.crawl_delay(product)

    def allows(self, url: str) -> bool:
        """True if the product may fetch the URL. robots.txt itself is always allowed in a parsed file.

        A URL that the parser cannot read is not allowed: in doubt we stay away. Never raises.
        Cost: O(rules).
        """
        if self._parsed is None:
            return self._default
        try:
            return self._parsed.can_fetch(url, self._product)
        except Exception:  # noqa: BLE001  a parser's fault must not end a crawl; the decision is stated above
            return False

    def __repr__(self) -> str:
        kind = "parsed" if self._parsed else "allow all" if self._default else "disallow all"
        return f"<RobotsRules {kind}, crawl delay {self.crawl_delay_s}>"


#: There is no robots.txt: everything is allowed.
ALLOW_ALL = RobotsRules(None, default=True)
#: robots.txt could not be had: nothing is allowed until it can.
DISALLOW_ALL = RobotsRules(None, default=False)


def parse_robots(status: int, body: bytes, product: str) -> RobotsRules:
    """The rules out of the answer to a robots.txt fetch (RFC 9309 section 2.3.1).

    2xx: the body, cut at 500 KiB, UTF-8 with or without BOM, bad bytes replaced. 4xx: ALLOW_ALL.
    All others (5xx, a redirect that was not followed, a fetch status below 0): DISALLOW_ALL, and so
    is a body on which the parser breaks. `product` is the bare product token ("anabranch"), not
    the whole User-Agent. Never raises. Cost: O(body).

    A group matches by prefix at a token's start ("ana" also speaks to "anabranch"): stricter than
    RFC 9309 section 2.2.1.
    """
    if 400 <= status <= 499:
        return ALLOW_ALL
    if not 200 <= status <= 299:
        return DISALLOW_ALL
    text = body[:MAX_ROBOTS_BYTES].decode("utf-8", errors="replace").removeprefix("\ufeff")
    try:
        return RobotsRules(Protego.parse(text), product)
    except Exception:  # noqa: BLE001  a parser's fault must not end a crawl; the decision is stated above
        return DISALLOW_ALL


def robots_url(url: str) -> str:
    """Where the rules for a canonical http(s) URL stand: "https://a.test:8443/robots.txt"."""
    return f"{url.partition('://')[0]}://{authority_of(url)}/robots.txt"


class _Kept(NamedTuple):
    rules: RobotsRules
    until_s: float


class RobotsCache:
    """Rules by origin (scheme, host, port) for 24 hours; DISALLOW_ALL for one hour.

    A parsed "Disallow: /" is an answer and stays for 24 hours too. Holds at most `max_origins`; the
    one that was asked for longest ago goes first. Times are epoch seconds. All calls O(1).
    """

    def __init__(self, max_origins: int = MAX_ORIGINS) -> None:
        self._max_origins = max_origins
        self._kept: OrderedDict[str, _Kept] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, url: str, now_s: float) -> RobotsRules | None:
        """The rules for the URL's origin; None if they are not known or too old."""
        origin = robots_url(url)
        kept = self._kept.get(origin)
        if kept is None:
            return None
        if now_s >= kept.until_s:
            del self._kept[origin]
            return None
        self._kept.move_to_end(origin)
        return kept.rules

    def put(self, url: str, rules: RobotsRules, now_s: float) -> None:
        """Keep the rules for the URL's origin, from now on."""
        origin = robots_url(url)
        lifetime_s = UNREACHABLE_LIFETIME_S if rules is DISALLOW_ALL else LIFETIME_S
        self._kept[origin] = _Kept(rules, now_s + lifetime_s)
        self._kept.move_to_end(origin)
        if len(self._kept) > self._max_origins:
            self._kept.popitem(last=False)
