"""What a link's relation means for a crawl: `rel` of the element `link` and of the header `Link`."""

from __future__ import annotations

from anabranch.crawler.extracting.links import EMBED, NAVIGATION

#: Heritrix's list (ExtractorHTML.processLinkTagWithRel), and what it misses: without these a page is not whole, either.
_EMBED_RELS = frozenset(
    {"icon", "stylesheet", "modulepreload", "prefetch", "prerender"}
    | {"preload", "manifest", "apple-touch-icon", "apple-touch-icon-precomposed", "mask-icon"}
)
_HINT_RELS = frozenset({"dns-prefetch", "preconnect"})
_PINGBACK = "pingback"


def hop_of_rel(rel: str | None) -> str | None:
    """The hop of a link with this `rel`, keyword by keyword; None if it is not to be followed.

    What renders is embedded, hints are nothing, the rest leads to another page.
    """
    hop = None
    for keyword in (rel or "").lower().split():
        if keyword in _EMBED_RELS:
            return EMBED
        if keyword == _PINGBACK:
            return None
        if keyword not in _HINT_RELS:
            hop = NAVIGATION
    return hop
