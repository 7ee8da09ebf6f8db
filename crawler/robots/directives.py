"""The robots directives of a page: the header `X-Robots-Tag` and `<meta name="robots">`. Pure.

There is no standard; this is what search engines publish (developers.google.com/search/docs/crawling-indexing/robots-meta-tag).
Directives for all robots and for our product both apply. `nofollow` forbids the page's links; the others become annotations.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

#: Directive -> its meaning. `all`, `index` and `follow` are the default.
_MEANINGS: dict[str, frozenset[str]] = {
    "nofollow": frozenset({"nofollow"}),
    "noindex": frozenset({"noindex"}),
    "none": frozenset({"nofollow", "noindex"}),
    "noarchive": frozenset({"noarchive"}),
    "nocache": frozenset({"noarchive"}),  # the same for Bing
}
#: Directives with a value: the text before their colon is no agent.
_VALUED = frozenset({"unavailable_after", "max-snippet", "max-image-preview", "max-video-preview"})
#: Hops that `nofollow` permits: parts of the page (embeds, inferred), and its redirects.
OPEN_HOPS = frozenset("EIR")

_TOKEN = re.compile(r"[A-Za-z0-9_.-]+")
#: A weekday in front of a date; it may be a piece of its own, since pieces end at commas.
_WEEKDAY = re.compile(r"(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*,?\s*", re.IGNORECASE)

#: The most directives of one page that are read.
MAX_DIRECTIVES = 1000


@dataclass(frozen=True, slots=True)
class Directives:
    """The directives that apply to us."""

    nofollow: bool = False
    noindex: bool = False
    noarchive: bool = False

    def __or__(self, other: Directives) -> Directives:
        """Both together."""
        return Directives(
            self.nofollow or other.nofollow, self.noindex or other.noindex, self.noarchive or other.noarchive
        )

    @property
    def annotations(self) -> tuple[str, ...]:
        """The annotations for the twelfth field of crawl.log."""
        asked = (("nofollow", self.nofollow), ("noindex", self.noindex), ("noarchive", self.noarchive))
        return tuple(word for word, is_asked in asked if is_asked)

    def may_follow(self, hop: str) -> bool:
        """Whether a link with this hop letter may be scheduled: with nofollow only what the page needs."""
        return not self.nofollow or hop in OPEN_HOPS


NOTHING = Directives()


def header_directives(values: Iterable[str], product: str, now_s: float) -> Directives:
    """The directives of `X-Robots-Tag` fields: "noindex, nofollow", "anabranch: nofollow". `now_s`: epoch seconds."""
    return _directives(values, product.lower(), now_s, may_name_agents=True)


def meta_directives(metas: Iterable[tuple[str, str]], product: str, now_s: float) -> Directives:
    """The directives of meta elements, given as name and content; those named `robots` or as our product apply."""
    names = {"robots", product.lower()}
    contents = (content for name, content in metas if name.strip().lower() in names)
    return _directives(contents, product, now_s, may_name_agents=False)


def _directives(values: Iterable[str], product: str, now_s: float, *, may_name_agents: bool) -> Directives:
    asked: set[str] = set()
    left = MAX_DIRECTIVES
    for value in values:
        pieces = value.split(",", left)[:left]
        left -= len(pieces)
        agent = None
        for number, piece in enumerate(pieces):
            word = piece.strip().lower()
            name, colon, rest = word.partition(":")
            name = name.rstrip()
            if may_name_agents and colon and name not in _VALUED and _TOKEN.fullmatch(name):
                agent, word = name, rest.strip()
            if agent is None or agent == product:
                asked |= _meaning(word, pieces[number + 1 : number + 2], now_s)
        if not left:
            break
    return Directives("nofollow" in asked, "noindex" in asked, "noarchive" in asked)


def _meaning(word: str, following: list[str], now_s: float) -> frozenset[str]:
    name, colon, value = word.partition(":")
    if not colon:
        return _MEANINGS.get(word, frozenset())
    text = value.strip()
    if _WEEKDAY.fullmatch(text):  # its comma has split the date
        text = " ".join(following)
    at = _date(_WEEKDAY.sub("", text.strip(), count=1)) if name.strip() == "unavailable_after" else None
    return frozenset() if at is None or at.timestamp() > now_s else frozenset({"noindex"})


def _date(text: str) -> datetime | None:
    """RFC 822, 850 or ISO 8601, UTC without a zone; None if it is no date."""
    for read in (parsedate_to_datetime, datetime.fromisoformat):
        try:
            at = read(text)
        except (ValueError, TypeError, OverflowError, IndexError):
            continue
        return at if at.tzinfo else at.replace(tzinfo=UTC)
    return None
