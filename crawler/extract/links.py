"""The records of extraction: links and their hops, references as written, and the options of the readers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractOptions:
    """The order's section [extract], for the readers."""

    max_outlinks: int = 6000  #: links of a page that are kept (Heritrix: maxOutlinks)
    css: bool = True  #: style sheets, `<style>` and `style` attributes
    sitemaps: bool = False  #: sitemaps and feeds
    forms: bool = False  #: the targets of forms that are sent by GET
    speculative: bool = False  #: texts in scripts and JSON that look like URLs
    data_attributes: bool = True  #: `data-src` and similar, from which scripts load images later
    embed_attributes: tuple[str, ...] = ()  #: further attributes with embedded URLs, `[element/@]attribute`
    link_attributes: tuple[str, ...] = ()  #: further attributes with links to pages
    nofollow_links: bool = False  #: leave links with `rel=nofollow` out
    max_content_bytes: int = 16 << 20  #: how much of a decoded body is read
    timeout_s: float = 10.0  #: for one document in a helper process
    page_queries: bool = True  #: queries are encoded as their page; else in UTF-8, as in jobs of earlier versions
    robot: str = "anabranch"  #: the product for which `meta` elements count, like those for `robots`


#: Heritrix's letters of a hop: the kind of link that was followed.
NAVIGATION = "L"  #: to another page
EMBED = "E"  #: to a part of the page: images, styles, scripts, frames
REDIRECT = "R"  #: to where the page moved: Location, Refresh
SPECULATIVE = "X"  #: to a text in a script that looks like a URL
INFERRED = "I"  #: to another URL of the page, from a header
PREREQUISITE = "P"  #: to a prerequisite: robots.txt, DNS
MANIFEST = "M"  #: to a URL in a sitemap, and to the sitemap itself
SUBMIT = "S"  #: to the answer of a form

#: The hops of a page's links; a prerequisite is no link.
FOLLOWED = frozenset({NAVIGATION, EMBED, REDIRECT, SPECULATIVE, INFERRED, MANIFEST, SUBMIT})

#: The end of a link's context if its element has `rel=nofollow`.
NOFOLLOW_MARK = " rel=nofollow"

#: How many references of a document are read at all.
MAX_REFERENCES = 200_000

#: A reference as written, its hop, its context.
Reference = tuple[str, str, str]


class Link(NamedTuple):
    """A link of a page. (A tuple: thousands are made a second.)"""

    url: str  #: absolute and canonical
    hop: str  #: L page, E embedded, R redirect, X from a script, I from a header, M sitemap, S form
    context: str = ""  #: its place: `a/@href`, `img/@srcset`, `css`, `Location`, `sitemap` …


#: The annotation of a sitemap or feed with faults. Their numbers and kinds follow: `sitemapBroken:1references+2tags`.
SITEMAP_BROKEN = "sitemapBroken:"
#: The kinds of faults, in words.
FAULTS: Mapping[str, str] = MappingProxyType(
    {
        "attributes": "bad attributes",
        "before": "texts before the document",
        "bytes": "bad bytes",
        "controls": "control characters",
        "encoding": "unknown encodings",
        "entities": "declarations of entities",
        "nesting": "ends of reading by too many levels",
        "references": "bad references",
        "tags": "bad tags",
        "urls": "URLs that cannot be read",
    }
)
_FAULT = re.compile(r"([0-9]{1,9})([a-z]+)")


def faults_in(note: str) -> dict[str, int]:
    """The numbers of faults in an annotation, by kind; empty if it is another one."""
    if not note.startswith(SITEMAP_BROKEN):
        return {}
    return {kind: int(number) for number, kind in _FAULT.findall(note) if kind in FAULTS}


class Found(NamedTuple):
    """The result of reading one response."""

    links: list[Link]  #: in document order, each URL once
    dropped: int = 0  #: links beyond the limit, at least so many, and documents inside the page that are not read
    nofollow: bool = False  #: the page's `meta` asks robots to follow none of its links
    notes: tuple[str, ...] = ()  #: annotations of crawl.log, such as `extractTimeout`
    robots: tuple[str, ...] = ()  #: contents of its robots `meta` elements, as written
    canonical: str | None = None  #: its own URL by `og:url` or `rel=canonical`: a hint, not a link


#: Heritrix's list (ExtractorHTML.processLinkTagWithRel), and the parts of a page that it misses.
_EMBED_RELS = frozenset(
    {"icon", "stylesheet", "modulepreload", "prefetch", "prerender"}
    | {"preload", "manifest", "apple-touch-icon", "apple-touch-icon-precomposed", "mask-icon"}
    | {"apple-touch-startup-image", "fluid-icon", "image_src", "import", "compression-dictionary"}
)
_HINT_RELS = frozenset({"dns-prefetch", "preconnect"})
_PINGBACK = "pingback"


def hop_of_rel(rel: str | None) -> str | None:
    """The hop of a link with this `rel`, of the element `link` or the header `Link`; None if it is not followed."""
    hop = None
    for keyword in (rel or "").lower().split():
        if keyword in _EMBED_RELS:
            return EMBED
        if keyword == _PINGBACK:
            return None
        if keyword not in _HINT_RELS:
            hop = NAVIGATION
    return hop


#: A time (digits and dots), a separator, the rest.
_REFRESH = re.compile(
    r"[\t\n\f\r ]*+(?:[0-9]++|(?=\.))[0-9.]*+(?=[;,\t\n\f\r ])[\t\n\f\r ]*+[;,]?+[\t\n\f\r ]*+(.+)", re.DOTALL
)
_URL_IS = re.compile(r"url[\t\n\f\r ]*+=[\t\n\f\r ]*+", re.IGNORECASE)
_QUOTES = ("'", '"')


def refresh_url(text: str) -> str | None:
    """The URL of a `Refresh`, as written; None without one. https://html.spec.whatwg.org/#shared-declarative-refresh-steps"""
    refresh = _REFRESH.match(text)
    if refresh is None:
        return None
    rest = refresh[1]
    if (name := _URL_IS.match(rest)) is not None:
        rest = rest[name.end() :]
    elif rest[:1] in "uU":
        return rest  # a path that begins like `url=`; its quotes are part of it
    if rest[:1] in _QUOTES:
        rest = rest[1:].partition(rest[0])[0]
    return rest or None
