"""Which elements of HTML lead where: the table of attributes, and the elements with rules of their own.

Frames are embedded (`E`), as by default in Heritrix: a page without its frames is not the page, and the scope's limit of
embeds keeps a frame of another site from leading away. It is one letter or the other: a URL is queued by one hop path.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from types import MappingProxyType
from urllib.parse import urljoin

from anabranch.crawler.extracting.css import css_links
from anabranch.crawler.extracting.links import EMBED, NAVIGATION, NOFOLLOW_MARK, REDIRECT, SUBMIT, Reference
from anabranch.crawler.extracting.options import ExtractOptions
from anabranch.crawler.extracting.refresh import refresh_url
from anabranch.crawler.extracting.rels import hop_of_rel
from anabranch.crawler.extracting.srcset import srcset_urls

#: The attributes of an element as they are written; None: without a value.
Attributes = Mapping[str, str | None]

_XLINK = "xlink:href"

#: The attributes that hold one URL of something embedded, with the context of its link.
EMBEDDED: Mapping[str, tuple[tuple[str, str], ...]] = MappingProxyType(
    {
        tag: tuple((name, f"{tag}/@{name}") for name in names)
        for tag, names in {
            "img": ("src",),
            "script": ("src",),
            "iframe": ("src",),
            "frame": ("src",),
            "source": ("src",),
            "video": ("src", "poster"),
            "audio": ("src",),
            "track": ("src",),
            "embed": ("src",),
            "input": ("src",),
            "image": ("href", _XLINK),
            "use": ("href", _XLINK),
        }.items()
    }
)
#: The elements that lead to other pages, and the context of their links.
ANCHORS = MappingProxyType({"a": "a/@href", "area": "area/@href"})
#: Where scripts find the images that they load late (Heritrix's list).
DATA_URLS = (
    "data-src",
    "data-original",
    "data-lazy",
    "data-src-small",
    "data-src-medium",
    "data-full-src",
)
DATA_CANDIDATES = ("data-srcset", "data-original-set", "data-lazy-srcset")
LATE = frozenset((*DATA_URLS, *DATA_CANDIDATES))

#: What `meta` elements with these names or properties hold is a URL of something that pages about the page show
#: (https://ogp.me/, X cards).
PREVIEWS = frozenset(
    {
        *(f"og:{kind}{more}" for kind in ("image", "video", "audio") for more in ("", ":url", ":secure_url")),
        *("twitter:image", "twitter:image:src", "twitter:player:stream"),
    }
)

#: Several URLs where one belongs, or one as in a `srcset`; a URL may hold commas and, as browsers read it, spaces.
_LISTED = re.compile(
    r",(?:[\t\n\f\r ]|$)|[\t\n\f\r ]\d+(?:\.\d+)?[wx][\t\n\f\r ]*$|^https?://[^\t\n\f\r ]*?,https?://", re.ASCII
)
#: A comma between absolute URLs, where a `srcset` has a space, too.
_BEFORE_URL = re.compile(r",(?=https?://)")

#: Candidates of one image that are read.
MAX_CANDIDATES = 1000


def embedded(tag: str, attributes: Attributes) -> list[Reference]:
    """What an element of the table embeds. An empty `src` is never fetched, nor is a part of the page itself."""
    found = [
        (text, EMBED, context)
        for name, context in EMBEDDED[tag]
        if (text := attributes.get(name)) and not text.startswith("#")
    ]
    if candidates := attributes.get("srcset"):
        found += [(url, EMBED, f"{tag}/@srcset") for url in islice(srcset_urls(candidates), MAX_CANDIDATES)]
    return found


def late(attributes: Attributes) -> Iterator[Reference]:
    """What scripts will load: the `data-src` family, on any element."""
    for name in DATA_URLS:
        if text := attributes.get(name):
            yield from ((url, EMBED, f"@{name}") for url in _one_or_more(text))
    for name in DATA_CANDIDATES:
        for url in islice(srcset_urls(attributes.get(name) or ""), MAX_CANDIDATES):
            yield url, EMBED, f"@{name}"


def _one_or_more(text: str) -> Iterable[str]:
    """The URLs of an attribute that is to hold one, and may hold a list."""
    return islice(srcset_urls(_BEFORE_URL.sub(", ", text)), MAX_CANDIDATES) if _LISTED.search(text) else (text,)


def styled(attributes: Attributes) -> Iterator[Reference]:
    """The links of a `style` attribute."""
    style = attributes.get("style")
    if style and "(" in style:
        yield from css_links(style)


def anchored(tag: str, attributes: Attributes) -> Reference | None:
    """The link of `a` or `area`; an empty `href` is the page itself. SVG's `a` may have it in `xlink:href`."""
    text = attributes.get("href")
    if text is None:
        text = attributes.get(_XLINK) if tag == "a" else None
        if text is None and "href" not in attributes:
            return None
    context = ANCHORS[tag]
    return text or "", NAVIGATION, context + _mark(attributes) if "rel" in attributes else context


def _mark(attributes: Attributes) -> str:
    rel = attributes.get("rel")
    return NOFOLLOW_MARK if rel and "nofollow" in rel.lower().split() else ""


def _link(attributes: Attributes, _: ExtractOptions) -> Iterator[Reference]:
    hop = hop_of_rel(attributes.get("rel"))
    text = attributes.get("href") or ""
    if hop is not None and (text or (hop == NAVIGATION and "href" in attributes)):
        yield text, hop, "link/@href"
    for url in islice(srcset_urls(attributes.get("imagesrcset") or ""), MAX_CANDIDATES):
        yield url, EMBED, "link/@imagesrcset"


def _meta(attributes: Attributes, _: ExtractOptions) -> Iterator[Reference]:
    if (attributes.get("http-equiv") or "").strip().lower() == "refresh":
        text = refresh_url(attributes.get("content") or "")
        if text is not None:
            yield text, REDIRECT, "meta refresh"
    for key in ("property", "name"):
        found = PREVIEWS.intersection((attributes.get(key) or "").lower().split())
        if found and (text := (attributes.get("content") or "").strip()):
            yield from ((url, EMBED, "meta/@content") for url in _one_or_more(text))
            return


def _form(attributes: Attributes, options: ExtractOptions) -> Iterator[Reference]:
    """Only what is asked for by GET: POST changes things."""
    is_get = (attributes.get("method") or "get").strip().lower() not in ("post", "dialog")
    if options.forms and is_get and (text := attributes.get("action")):
        yield text, SUBMIT, f"form/@action{_mark(attributes)}"


def _object(attributes: Attributes, _: ExtractOptions) -> Iterator[Reference]:
    if text := attributes.get("data"):
        yield from _below_codebase([text], attributes, "object/@data")


def _applet(attributes: Attributes, _: ExtractOptions) -> Iterator[Reference]:
    archives = (attributes.get("archive") or "").replace(",", " ").split()
    yield from _below_codebase(archives, attributes, "applet/@archive")
    if (text := attributes.get("code")) and not archives:
        yield from _below_codebase([text], attributes, "applet/@code")


def _below_codebase(texts: list[str], attributes: Attributes, context: str) -> Iterator[Reference]:
    """`codebase` is a base for these alone."""
    codebase = attributes.get("codebase") or ""
    for text in texts:
        try:
            yield urljoin(codebase, text), EMBED, context
        except ValueError:  # no URL to Python: brackets that hold no address
            continue


#: The elements with rules of their own.
RULED: Mapping[str, Callable[[Attributes, ExtractOptions], Iterator[Reference]]] = MappingProxyType(
    {"link": _link, "meta": _meta, "form": _form, "object": _object, "applet": _applet}
)

#: The tags to keep of a document that is flattened.
NEEDED = frozenset(
    tag.encode() for tag in (*EMBEDDED, *RULED, *ANCHORS, "base", "style") if tag not in ("image", "use")
)
