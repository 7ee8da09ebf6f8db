"""Reads HTML: one parse, one pass over the elements that have links.

The tree is lexbor's, as a browser builds it with scripting off (so `<noscript>` is read). Documents that would take hours to
build are flattened before (`nesting`). Frames are embedded (`E`), as in Heritrix: without its frames a page is not complete,
and the scope's limit of embeds keeps a frame of another site from leading away.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import chain, islice
from types import MappingProxyType
from urllib.parse import urljoin

from selectolax.lexbor import LexborDocumentOptions, LexborHTMLParser, LexborNode, SelectolaxError, create_tag

from anabranch.crawler.extract.content_type import XHTML
from anabranch.crawler.extract.css_js import css_links, speculative_links
from anabranch.crawler.extract.encoding import Decoded, html_in_utf8, query_in
from anabranch.crawler.extract.links import (
    EMBED,
    MAX_REFERENCES,
    NAVIGATION,
    NOFOLLOW_MARK,
    REDIRECT,
    SUBMIT,
    ExtractOptions,
    Found,
    Reference,
    hop_of_rel,
    refresh_url,
)
from anabranch.crawler.extract.nesting import tame
from anabranch.crawler.extract.resolver import LinkResolver, gathered
from anabranch.crawler.fetch.mime import mime_type
from anabranch.crawler.urls.parsing import canonical, host_of

#: The attributes of an element as written; None: without a value.
Attributes = Mapping[str, str | None]

_XLINK = "xlink:href"

#: Element -> attributes with one embedded URL, and the contexts of their links.
EMBEDDED: Mapping[str, tuple[tuple[str, str], ...]] = MappingProxyType(
    {
        tag: tuple((name, f"{tag}/@{name}") for name in names)
        for tag, names in {
            **dict.fromkeys(["img", "iframe", "frame", "source", "audio", "track", "embed", "input"], ("src",)),
            "script": ("src", "href", _XLINK),  # the latter two in SVG
            "video": ("src", "poster"),
            **dict.fromkeys(["image", "use", "feimage"], ("href", _XLINK)),
            "mglyph": ("src",),
        }.items()
    }
)
#: Elements of MathML, each of which may be a link.
_MATHML = frozenset(
    {"math", "maction", "menclose", "merror", "mfenced", "mfrac", "mi", "mmultiscripts", "mn", "mo", "mover", "mpadded"}
    | {"mphantom", "mroot", "mrow", "ms", "msqrt", "mstyle", "msub", "msubsup", "msup", "mtable", "mtd", "mtext", "mtr"}
    | {"munder", "munderover", "semantics"}
)
#: Elements that lead to other pages, and the contexts of their links.
ANCHORS = MappingProxyType({tag: f"{tag}/@href" for tag in ("a", "area", *_MATHML)})
#: Attributes from which scripts load images later (Heritrix's list).
DATA_URLS = ("data-src", "data-original", "data-lazy", "data-src-small", "data-src-medium", "data-full-src")
DATA_CANDIDATES = ("data-srcset", "data-original-set", "data-lazy-srcset")
LATE = frozenset((*DATA_URLS, *DATA_CANDIDATES))

#: `meta` elements with these names or properties hold a URL that previews of the page show (https://ogp.me/, X cards).
PREVIEWS = frozenset(
    {
        *(f"og:{kind}{more}" for kind in ("image", "video", "audio") for more in ("", ":url", ":secure_url")),
        *("twitter:image", "twitter:image:src", "twitter:player:stream"),
    }
)

#: Candidates of one image that are read.
MAX_CANDIDATES = 1000
#: Tag numbers of names that HTML knows are below this, and the same in all documents; those of others (SVG's `use`) are above.
_KNOWN_TAGS = 1 << 16
#: The context of a plain link.
_PLAIN = ANCHORS["a"]
#: Attributes that make an anchor more than a plain link.
_SPECIAL = LATE | {"rel", "style"}
#: Attributes by which any element may have links.
_MARKS = LATE | {"style"}

#: Elements that the page's reader reads itself.
_READ = frozenset({"base", "meta", "link", "style", "script", "template"})
#: How much of the robots `meta` elements is kept.
_MAX_ROBOTS = 16
_MAX_ROBOTS_CHARS = 1000

#: `<script src="x"/>` in XHTML is a whole element; for an HTML parser it swallows the rest. XML has no < in a value.
_SELF_CLOSED_RAW = re.compile(
    rb"""<(script|style|title|textarea|iframe)((?:\s(?:[^<>"'/]|/(?!>)|"[^"<]*+"|'[^'<]*+')*+)?)/>""", re.IGNORECASE
)


#: Most bytes of a document that `parsed` reads: a tree of this size takes 0.1 GB of prose, 1.7 GB of nothing but attributes.
MOST_TREE_BYTES = 16 << 20

#: The tree of a document.
Tree = LexborHTMLParser


def parsed(body: bytes, content_type: str) -> Tree:
    """The tree of a document, of its first 16 MiB. Of one that is nested beyond reason only its title, links and styles."""
    page = _as_page(body, content_type).text[:MOST_TREE_BYTES]
    return LexborHTMLParser(b"".join(tame(page, NEEDED | {b"title"}, huge=MOST_TREE_BYTES)))


def _as_page(body: bytes, content_type: str, url: str = "") -> Decoded:
    """In UTF-8, as HTML."""
    page = html_in_utf8(body, content_type, host_of(url).rpartition(".")[2] if url else "")
    if mime_type(content_type).essence == XHTML:
        page = page._replace(text=_SELF_CLOSED_RAW.sub(rb"<\1\2></\1>", page.text))
    return page


def read_html(
    body: bytes, content_type: str, url: str, options: ExtractOptions, resolver: LinkResolver | None = None
) -> Found:
    """The links of a page, and its instructions for robots. Broken pages are read as far as possible. Cost: 15 µs per KB.

    `content_type` is the header field: in `application/xhtml+xml` `<script/>` is closed. `url` is the page's canonical URL; the
    first `base[href]`, resolved against it, counts for all links, unless it is no http(s) URL. Links in a `<template>` follow
    the others. A `resolver` that is kept from page to page saves most of the URL parsing.
    """
    page = _as_page(body, content_type, url)
    page_reader = _PageReader(options)
    pieces = iter(tame(page.text, NEEDED))
    first = page_reader.references(next(pieces))
    base = (canonical(page_reader.base, url) or url) if page_reader.base else url
    references: Iterable[Reference] = chain(first, chain.from_iterable(map(page_reader.references, pieces)))
    if options.nofollow_links:
        references = (reference for reference in references if not reference[2].endswith(NOFOLLOW_MARK))
    if options.page_queries and (encoded := query_in(page.encoding)) is not None:
        references = ((encoded(text), hop, context) for text, hop, context in references)
    links, dropped = gathered(references, base, options.max_outlinks, LinkResolver() if resolver is None else resolver)
    own_url = canonical(page_reader.own_url, base) if page_reader.own_url else None
    robots = tuple(page_reader.robots)
    words = {word.strip().lower() for content in robots for word in content.split(",")}
    is_nofollow = not words.isdisjoint(("nofollow", "none"))
    return Found(links, dropped, notes=page.notes, nofollow=is_nofollow, robots=robots, canonical=own_url)


@cache
def _names() -> dict[int, str]:
    """The names by lexbor's tag numbers: a node's number is cheaper to get than its name."""
    numbers = {create_tag(name).tag_id: name for name in _NAMED}
    return {number: name for number, name in numbers.items() if number < _KNOWN_TAGS}


class _PageReader:
    def __init__(self, options: ExtractOptions) -> None:
        self._options = options
        self._has_templates = False
        self._found: list[Reference] = []
        self.base: str | None = None  #: the `href` of the first base that has one
        self.robots: list[str] = []
        self.own_url: str | None = None

    def references(self, piece: bytes) -> list[Reference]:
        """The references of the page or of a piece: in document order, then those in templates, where `base` is ignored."""
        try:
            tree = LexborHTMLParser(piece, options=LexborDocumentOptions.WO_EVENTS)
        except SelectolaxError as error:  # it reads any page: only memory can be lacking
            raise MemoryError from error
        found: list[Reference] = []
        self._found = found
        if (root := tree.root) is not None:
            self._walk(root)
        if self._has_templates:
            base = self.base
            fragments = tree.template_fragments()[::-1]
            while fragments:  # also nested ones, in document order
                fragment = fragments.pop()
                self._walk(fragment)
                fragments.extend(reversed(fragment.template_fragments()))
            self.base = base
        return found

    def _walk(self, top: LexborNode) -> None:
        found, names = self._found, _names()
        for node in top.traverse():
            number, attributes = node.tag_id, node.attributes
            tag = names.get(number)
            if tag is None:
                if attributes and (number >= _KNOWN_TAGS or not _MARKS.isdisjoint(attributes)):
                    self._take(node, node.tag or "", attributes)
            # Most links are plain, so they take the shortest way.
            elif (
                tag == "a"
                and (text := attributes.get("href"))
                and (len(attributes) == 1 or _SPECIAL.isdisjoint(attributes))
            ):
                found.append((text, NAVIGATION, _PLAIN))
            else:
                self._take(node, tag, attributes)

    def _take(self, node: LexborNode, tag: str, attributes: Attributes) -> None:
        found = self._found
        if tag in ANCHORS:
            if (anchor := anchored(tag, attributes)) is not None:
                found.append(anchor)
        else:
            if tag in EMBEDDED:
                found += embedded(tag, attributes)
            if tag in RULED:
                found += RULED[tag](attributes, self._options)
            if tag in _READ:
                self._read(node, tag, attributes)
        if self._options.css and (style := attributes.get("style")) and "(" in style:
            found += css_links(style)
        if self._options.data_attributes and not LATE.isdisjoint(attributes):
            found += late(attributes)

    def _read(self, node: LexborNode, tag: str, attributes: Attributes) -> None:
        """Read an element that describes the page, or has text with links."""
        match tag:
            case "base" if self.base is None and "href" in attributes:
                self.base = attributes["href"] or ""
            case "meta" if content := attributes.get("content"):
                self._read_meta(attributes, content)
            case "link" if "canonical" in (attributes.get("rel") or "").lower().split():
                self.own_url = attributes.get("href") or self.own_url
            case "style" if self._options.css:
                self._found += islice(css_links(node.text()), MAX_REFERENCES)
            case "script" if self._options.speculative and "src" not in attributes:
                self._found += islice(speculative_links(node.text()), MAX_REFERENCES)
            case "template":
                self._has_templates = True  # their content is read last

    def _read_meta(self, attributes: Attributes, content: str) -> None:
        """Instructions for robots, and the page's own URL."""
        name = (attributes.get("name") or "").strip().lower()
        if name in ("robots", self._options.robot.lower()) and len(self.robots) < _MAX_ROBOTS:
            self.robots.append(content[:_MAX_ROBOTS_CHARS])
        elif (attributes.get("property") or "").strip().lower() == "og:url":
            self.own_url = self.own_url or content


#: A list of URLs in the place of one, or one as in a `srcset`. A URL may hold commas and, as browsers read it, spaces.
_LISTED = re.compile(
    r",(?:[\t\n\f\r ]|$)|[\t\n\f\r ]\d+(?:\.\d+)?[wx][\t\n\f\r ]*$|^https?://[^\t\n\f\r ]*?,https?://", re.ASCII
)
#: A comma between absolute URLs, without the space of a `srcset`.
_BEFORE_URL = re.compile(r",(?=https?://)")


def embedded(tag: str, attributes: Attributes) -> list[Reference]:
    """The URLs that an element embeds, without empty ones and fragments of the page."""
    found = [
        (text, EMBED, context)
        for name, context in EMBEDDED[tag]
        if (text := attributes.get(name)) and not text.startswith("#")
    ]
    if candidates := attributes.get("srcset"):
        found += [(url, EMBED, f"{tag}/@srcset") for url in islice(srcset_urls(candidates), MAX_CANDIDATES)]
    return found


def late(attributes: Attributes) -> Iterator[Reference]:
    """The URLs that scripts will load: the `data-src` family, on any element."""
    for name in DATA_URLS:
        if text := attributes.get(name):
            yield from ((url, EMBED, f"@{name}") for url in _one_or_more(text))
    for name in DATA_CANDIDATES:
        for url in islice(srcset_urls(attributes.get(name) or ""), MAX_CANDIDATES):
            yield url, EMBED, f"@{name}"


def _one_or_more(text: str) -> Iterable[str]:
    """The URLs of an attribute for one URL, which may hold a list."""
    return islice(srcset_urls(_BEFORE_URL.sub(", ", text)), MAX_CANDIDATES) if _LISTED.search(text) else (text,)


def anchored(tag: str, attributes: Attributes) -> Reference | None:
    """The link of `a`, `area` or an element of MathML. An empty one is the page itself. All but `area` may use `xlink:href`."""
    text = attributes.get("href")
    if text is None:
        text = attributes.get(_XLINK) if tag != "area" else None
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
    """Forms that are sent by GET, because POST changes things."""
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
    """Resolve against `codebase`, a base for these attributes only."""
    codebase = attributes.get("codebase") or ""
    for text in texts:
        try:
            yield urljoin(codebase, text), EMBED, context
        except ValueError:  # not a URL to Python: brackets without an address
            continue


#: Elements with their own rules.
RULED: Mapping[str, Callable[[Attributes, ExtractOptions], Iterator[Reference]]] = MappingProxyType(
    {"link": _link, "meta": _meta, "form": _form, "object": _object, "applet": _applet}
)

#: The tags that a flattened document keeps.
NEEDED = frozenset(
    tag.encode()
    for tag in (*EMBEDDED, *RULED, *ANCHORS, "base", "style")
    if tag not in ("image", "use", "mglyph", *_MATHML)
)
#: All elements that the reader handles by name.
_NAMED = (*EMBEDDED, *RULED, *ANCHORS, "base", "style", "template")


#: Commas and spaces before a candidate, then its URL, up to the next space.
_URL = re.compile(r"[\t\n\f\r ,]*+([^\t\n\f\r ]++)")
#: Its descriptors, up to a comma outside parentheses.
_DESCRIPTORS = re.compile(r"(?:[^(,]++|\([^)]*+\)?)*+,?")


def srcset_urls(text: str) -> Iterator[str]:
    """The URLs of a `srcset`, in order, as written. Cost: linear. https://html.spec.whatwg.org/#parsing-a-srcset-attribute"""
    position = 0
    while (url := _URL.match(text, position)) is not None:
        position = url.end()
        if url[1].endswith(","):
            if bare := url[1].rstrip(","):
                yield bare
            continue
        yield url[1]
        descriptors = _DESCRIPTORS.match(text, position)
        position = descriptors.end() if descriptors is not None else len(text)
