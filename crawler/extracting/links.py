"""Links: what a document leads to, by which hop, and where in it that was written.

Readers yield references as they are written (`Reference`); `gathered` makes links of them: resolved, each URL once, the first
hop wins, at most so many.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

from crawler.urls.links import LinkResolver

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

#: How many references are resolved at once, and how many of a document are read at all.
_BATCH = 256
MAX_REFERENCES = 200_000
#: How long the links of a document may be on average, and how much more is resolved for them: a `base` of 8,000 characters
#: makes 6,000 links of 50 MB out of a page of 50 KB, and each takes 20 µs.
CHARS_A_LINK = 256
RESOLVED_A_KEPT = 4

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


def gathered(
    references: Iterable[Reference], base: str, max_links: int, resolver: LinkResolver
) -> tuple[list[Link], int]:
    """The links among the references, and how many more there were than `max_links`.

    `base` is a canonical URL. Once there are enough, or as much text as so many have, the others are no longer resolved but
    told apart by their spelling; after 200,000 references the rest is not read. Memory: bounded, 256 bytes for each of
    `max_links`. Cost: 0.7 µs a reference, 2 µs more if its URL is new to the resolver.
    """
    links: dict[str, Link] = {}
    make = tuple.__new__  # what Link(…) does, in half the time
    rest = islice(references, MAX_REFERENCES)
    kept_chars = resolved_chars = 0
    max_chars = max_links * CHARS_A_LINK
    while len(links) < max_links and kept_chars < max_chars and resolved_chars < RESOLVED_A_KEPT * max_chars:
        batch = list(islice(rest, _BATCH))
        urls = resolver.resolve(base, [text for text, _, _ in batch])
        for url, (_, hop, context) in zip(urls, batch, strict=True):
            if url is not None and url not in links:
                links[url] = make(Link, (url, hop, context))
                kept_chars += len(url)
        if len(batch) < _BATCH:
            break
        resolved_chars += sum(len(base if url is None else url) for url in urls)
    kept = list(links.values())
    others = {text for text, _, _ in rest}
    return kept[:max_links], max(len(kept) - max_links, 0) + len(others)


def merged(first: Iterable[Link], second: Iterable[Link]) -> list[Link]:
    """The links of both, each URL once; the first wins."""
    links: dict[str, Link] = {}
    for link in (*first, *second):
        links.setdefault(link.url, link)
    return list(links.values())
