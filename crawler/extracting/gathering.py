"""From references to the links of a document: resolved, each URL once, the first hop wins, at most so many."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from anabranch.crawler.extracting.links import MAX_REFERENCES, Link, Reference
from anabranch.crawler.extracting.resolving import NO_LINK, LinkResolver

#: How many references are resolved at once.
_BATCH = 256
#: How long the links of a document may be on average, and how much more is resolved for them: a `base` of 8,000 characters
#: makes 6,000 links of 50 MB out of a page of 50 KB, and each takes 20 µs.
CHARS_A_LINK = 256
RESOLVED_A_KEPT = 4


def gathered(
    references: Iterable[Reference], base: str, max_links: int, resolver: LinkResolver
) -> tuple[list[Link], int]:
    """The links among the references, and how many more there were than `max_links`.

    `base` is a canonical URL. Once there are enough, or as much text as so many have, the others are no longer resolved but
    told apart by their spelling; after 200,000 references the rest is not read. Memory: bounded, 256 bytes for each of
    `max_links`. Cost: 0.2 to 0.3 µs a reference beside the resolver's.
    """
    links: dict[str, Link] = {}
    rest = islice(references, MAX_REFERENCES)
    kept_chars = resolved_chars = 0
    max_chars = max_links * CHARS_A_LINK
    while len(links) < max_links and kept_chars < max_chars and resolved_chars < RESOLVED_A_KEPT * max_chars:
        batch, earlier = list(islice(rest, _BATCH)), len(links)
        found = resolver.resolve(base, batch)
        for link in found:
            if (url := link[0]) not in links:
                links[url] = link
        links.pop(NO_LINK.url, None)
        if len(batch) < _BATCH:
            break
        kept_chars += sum(map(len, islice(links, earlier, None)))
        resolved_chars += sum(len(link.url) or len(base) for link in found)
    kept = list(links.values())
    others = {text for text, _, _ in rest}
    return kept[:max_links], max(len(kept) - max_links, 0) + len(others)


def merged(first: Iterable[Link], second: Iterable[Link]) -> list[Link]:
    """The links of both, each URL once; the first wins."""
    links: dict[str, Link] = {}
    for link in (*first, *second):
        links.setdefault(link.url, link)
    return list(links.values())
