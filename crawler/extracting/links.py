"""Links: what a document leads to, by which hop, and where in it that was written.

Readers yield references as they are written (`Reference`), of which `gathering.py` makes links.
"""

from __future__ import annotations

from typing import NamedTuple

#: Heritrix's letters of a hop: what following a link means.
NAVIGATION = "L"  #: to another page
EMBED = "E"  #: to a part of the page: images, styles, scripts, frames
REDIRECT = "R"  #: to where the page moved: Location, Refresh
SPECULATIVE = "X"  #: to a text in a script that looks like a URL
INFERRED = "I"  #: to what a header says the page is, too
PREREQUISITE = "P"  #: to what must be known before: robots.txt, DNS
MANIFEST = "M"  #: to what a sitemap names, and to the sitemap itself
SUBMIT = "S"  #: to the answer of a form

#: The hops of a page's links; what must be known before is no link.
FOLLOWED = frozenset({NAVIGATION, EMBED, REDIRECT, SPECULATIVE, INFERRED, MANIFEST, SUBMIT})

#: How the context of a link ends whose element says `rel=nofollow`.
NOFOLLOW_MARK = " rel=nofollow"

#: How many references of a document are read at all.
MAX_REFERENCES = 200_000

#: A reference as it is written, its hop, its context.
Reference = tuple[str, str, str]


class Link(NamedTuple):
    """A link of a page. (A tuple: thousands are made a second.)"""

    url: str  #: absolute and canonical
    hop: str  #: one of the letters above
    context: str = ""  #: where it stands: `a/@href`, `img/@srcset`, `css`, `Location`, `sitemap` …

    @property
    def is_nofollow(self) -> bool:
        """The page asks robots not to follow it."""
        return self.context.endswith(NOFOLLOW_MARK)


class Found(NamedTuple):
    """What was read out of one answer."""

    links: list[Link]  #: in document order, each URL once
    dropped: int = 0  #: links beyond the limit, at least
    nofollow: bool = False  #: the page's `meta` asks robots to follow none of its links
    notes: tuple[str, ...] = ()  #: annotations of crawl.log, such as `extractTimeout`
    robots: tuple[str, ...] = ()  #: what its robots `meta` elements say, as written
    canonical: str | None = None  #: its own URL as it says it is (`og:url`, `rel=canonical`): a hint, and no link
