"""Reads HTML: one parse, one pass over the elements that have links.

The tree is lexbor's, as a browser builds it with scripting off (so `<noscript>` is read). Documents that would take hours to
build are flattened before (`nesting`). Frames are embedded (`E`), as in Heritrix: without its frames a page is not complete,
and the scope's limit of embeds keeps a frame of another site from leading away.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import chain, islice
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import unquote, urljoin

from selectolax.lexbor import LexborDocumentOptions, LexborHTMLParser, LexborNode, SelectolaxError, create_tag

from anabranch.crawler.extract.content_type import XHTML
from anabranch.crawler.extract.css_js import css_links, is_likely, speculative_links
from anabranch.crawler.extract.encoding import UTF_8, Decoded, html_in_utf8, query_in
from anabranch.crawler.extract.link_attributes import (
    CUSTOM,
    MAX_CANDIDATES,
    XLINK,
    AttributeRule,
    Attributes,
    custom_element_links,
    element_attributes,
    element_links,
    flash_variables,
    global_attribute_links,
    global_attributes,
    one_or_more,
    srcset_urls,
)
from anabranch.crawler.extract.links import (
    EMBED,
    MAX_REFERENCES,
    NAVIGATION,
    NOFOLLOW_MARK,
    REDIRECT,
    SPECULATIVE,
    SUBMIT,
    ExtractOptions,
    Found,
    Reference,
    hop_of_rel,
    refresh_url,
)
from anabranch.crawler.extract.nesting import Disorder, tame
from anabranch.crawler.extract.resolver import LinkResolver, gathered
from anabranch.crawler.fetch.mime import mime_type
from anabranch.crawler.urls.parsing import canonical, host_of

#: Elements that lead to other pages, and the contexts of their links.
ANCHORS = MappingProxyType({"a": "a/@href", "area": "area/@href"})
#: `meta` elements with these names, properties or items hold a URL that previews of the page show (https://ogp.me/, X cards).
PREVIEWS = frozenset(
    {
        *(f"og:{kind}{more}" for kind in ("image", "video", "audio") for more in ("", ":url", ":secure_url")),
        *("twitter:image", "twitter:image:src", "twitter:player:stream"),
    }
)
#: Others, some of which hold no URL (`none`), so only what looks like one is read: tiles of Windows, items of schema.org.
LIKELY_PREVIEWS = frozenset(
    {
        *("image", "thumbnail", "thumbnailurl", "contenturl", "logo", "image_src", "msapplication-config"),
        *(f"msapplication-{kind}" for kind in ("tileimage", "square70x70logo", "square150x150logo")),
        *(f"msapplication-{kind}" for kind in ("wide310x150logo", "square310x310logo")),
    }
)
#: Names of a `param` whose value is a URL. With `valuetype=ref` any value is one.
_PARAMETERS = frozenset(
    {
        *("data", "file", "filename", "href", "image", "movie", "mrl"),
        *("poster", "qtsrc", "sound", "source", "src", "url", "videofile"),
    }
)

#: Tag numbers of names that HTML knows are below this, and the same in all documents; those of others (SVG's `use`) are above.
_KNOWN_TAGS = 1 << 16
#: The context of a plain link.
_PLAIN = ANCHORS["a"]

#: The name of a comment, as the tree has it.
_COMMENT = "-comment"
_COMMENT_NUMBER = 4
#: Elements that the page's reader reads itself, and comments.
_READ = frozenset({"base", "meta", "link", "style", "script", "template", "iframe", "noembed", "noframes", _COMMENT})
#: What a document inside a page has if it has links. Without it no tree is made, which takes 50 µs.
_SIGNS_OF_LINKS = ("href", "src", "url", "data", "background", "content", "action", "value", "poster")
#: Attributes that may hold a script (`javascript:…`) in place of a URL.
_SCRIPTED = ("href", "src", "action", "data")
_SCRIPT_SCHEME = "javascript:"
#: Documents inside a page that are read, and how deep they may be nested.
MAX_INNER = 100
MAX_INNER_DEPTH = 3
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
#: An element of it.
Node = LexborNode


def parsed(body: bytes, content_type: str) -> Tree:
    """The tree of a document, of its first 16 MiB. Of one that is nested beyond reason only its title, links and styles."""
    page = _as_page(body, content_type).text[:MOST_TREE_BYTES]
    return LexborHTMLParser(b"".join(tame(page, NEEDED | {b"title"}, huge=MOST_TREE_BYTES)))


def _as_page(body: bytes, content_type: str, url: str = "") -> Decoded:
    """Decode a page, and close the elements that only XHTML closes by themselves."""
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
    the others, then those of the documents inside: `srcdoc`, whose own `base` counts for itself, conditional comments, and what
    `noframes`, `noembed` and `iframe` show where frames are unknown. A `resolver` that is kept from page to page saves most of
    the URL parsing.
    """
    page = _as_page(body, content_type, url)
    page_reader = _PageReader(options)
    pieces = iter(tame(page.text, NEEDED, marked=MARKED))
    first = page_reader.references(next(pieces))
    base = (canonical(page_reader.base, url) or url) if page_reader.base else url
    rest = chain.from_iterable(map(page_reader.references, pieces))
    encoded = query_in(page.encoding if options.page_queries else UTF_8)
    inner = _inner_document_links(page_reader, base, options, encoded)
    references: Iterable[Reference] = chain(first, rest, inner)
    if options.nofollow_links:
        references = (reference for reference in references if not reference[2].endswith(NOFOLLOW_MARK))
    if encoded is not None:
        references = ((encoded(text), hop, context) for text, hop, context in references)
    links, dropped = gathered(references, base, options.max_outlinks, LinkResolver() if resolver is None else resolver)
    own_url = canonical(page_reader.own_url, base) if page_reader.own_url else None
    robots = tuple(page_reader.robots)
    left = dropped + page_reader.unread
    return Found(links, left, notes=page.notes, nofollow=_is_nofollow(robots), robots=robots, canonical=own_url)


def _is_nofollow(robots: Iterable[str]) -> bool:
    """Whether these directives forbid to follow the page's links."""
    words = {word.strip().lower() for content in robots for word in content.split(",")}
    return not words.isdisjoint(("nofollow", "none"))


class _Inner(NamedTuple):
    """A document inside a page."""

    text: str
    has_base: bool  #: its own `base` counts for its links
    depth: int = 1


def _inner_document_links(
    page: _PageReader, base: str, options: ExtractOptions, encoded: Callable[[str], str] | None
) -> Iterator[Reference]:
    """The references of the documents that were found inside a page, and inside them. `base` is the page's.

    At most `MAX_INNER` are read, `MAX_INNER_DEPTH` deep. Each is shorter than the one around it, and all share the limit of
    nesting of one page, so the cost is bounded. `page.unread` counts the others.
    """
    if not page.inner:
        return
    disorder = Disorder()
    waiting = deque((inner, base) for inner in page.inner)
    for _ in range(MAX_INNER):
        inner, around = waiting.popleft()
        reader = _PageReader(options)
        pieces = iter(tame(inner.text.encode(errors="replace"), NEEDED, marked=MARKED, shared=disorder))
        first = reader.references(next(pieces))
        own = (inner.has_base and reader.base and canonical(reader.base, around)) or around
        references = chain(first, chain.from_iterable(map(reader.references, pieces)))
        yield from references if own == base else _resolved(references, own, encoded)
        if inner.depth < MAX_INNER_DEPTH:
            waiting.extend((deeper._replace(depth=inner.depth + 1), own) for deeper in reader.inner)
        else:
            page.unread += len(reader.inner)
        if not waiting:
            return
    page.unread += len(waiting)


def _resolved(references: Iterable[Reference], base: str, encoded: Callable[[str], str] | None) -> Iterator[Reference]:
    """The references with absolute URLs, by a base that is not the page's; queries in the page's encoding."""
    for text, hop, context in references:
        if (url := canonical(text if encoded is None else encoded(text), base)) is not None:
            yield url, hop, context


class _Element(NamedTuple):
    """The rules for the elements of one name. (One record: five look-ups for each element cost 2 % of a page.)"""

    tag: str
    is_read: bool = False  #: by the page's reader itself
    is_anchor: bool = False
    rows: tuple[tuple[str, str, str], ...] = ()  #: of the table
    rule: Callable[[Attributes, ExtractOptions], Iterator[Reference]] | None = None


class _Tables(NamedTuple):
    """The table of links for some options, in the forms that the walk asks."""

    known: Mapping[int, _Element]  #: by lexbor's tag numbers, which are cheaper to get than names
    others: Mapping[str, _Element]  #: by names, of those without a number
    global_attributes: Mapping[str, AttributeRule]
    attributes: frozenset[str]  #: the names in `global_attributes`
    marks: frozenset[str]  #: attributes by which any element may have links
    wide: frozenset[str]  #: attributes by which an element without a number may have links
    special: frozenset[str]  #: attributes that make an anchor more than a plain link
    plain: _Element | None  #: the element whose plain links take the shortest way; None: each may hold a script


@lru_cache(16)
def _tables(options: ExtractOptions) -> _Tables:
    rows, global_rows = element_attributes(options), global_attributes(options)
    records = {
        tag: _Element(tag, tag in _READ, tag in ANCHORS, rows.get(tag, ()), RULED.get(tag))
        for tag in {*rows, *RULED, *ANCHORS, *_READ}
    }
    numbers = {tag: create_tag(tag).tag_id for tag in records} | {_COMMENT: _COMMENT_NUMBER}
    known = {number: records[tag] for tag, number in numbers.items() if number < _KNOWN_TAGS}
    others = {tag: records[tag] for tag, number in numbers.items() if number >= _KNOWN_TAGS}
    attributes = frozenset(global_rows)
    marks = attributes | {"style"}
    wide = marks | CUSTOM | _names_of(others.values())
    special = marks | {"rel"} | _names_of(records[tag] for tag in ANCHORS)
    plain = None if options.speculative else records["a"]
    return _Tables(known, others, global_rows, attributes, marks, wide, special, plain)


def _names_of(records: Iterable[_Element]) -> set[str]:
    """The attributes of elements."""
    return {name for record in records for name, _, _ in record.rows}


#: Elements that the table does not have.
_OTHER = _Element("")


class _PageReader:
    """Reads the references of a page, or of a document inside one, and what it says of itself."""

    def __init__(self, options: ExtractOptions) -> None:
        self._options = options
        self._tables = _tables(options)
        self._has_templates = False
        self._found: list[Reference] = []
        self.base: str | None = None  #: the `href` of the first base that has one
        self.robots: list[str] = []
        self.own_url: str | None = None
        self.inner: list[_Inner] = []
        self.unread = 0  #: documents inside that are too many or too deep

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
            node = root.prev
            while node is not None:  # comments may precede <html>, and follow it
                if node.is_comment_node:
                    self._read_comment(node.comment_content)
                node = node.prev
            node = root.next
            while node is not None:
                self._read_comment(node.comment_content)
                node = node.next
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
        found = self._found
        tables = self._tables
        known, special, plain = tables.known, tables.special, tables.plain
        marks, wide = tables.marks, tables.wide
        for node in top.traverse():
            number, attributes = node.tag_id, node.attributes
            element = known.get(number)
            if element is None:
                if attributes and not (marks if number < _KNOWN_TAGS else wide).isdisjoint(attributes):
                    self._take_other(node, attributes)
            # Most links are plain, so they take the shortest way.
            elif (
                element is plain
                and (text := attributes.get("href"))
                and (len(attributes) == 1 or special.isdisjoint(attributes))
            ):
                found.append((text, NAVIGATION, _PLAIN))
            else:
                self._take(node, element, attributes)

    def _take_other(self, node: LexborNode, attributes: Attributes) -> None:
        """Read an element without a number, or with an attribute that any element may have."""
        tag = node.tag or ""
        element = self._tables.others.get(tag, _OTHER)
        if element is _OTHER and "-" in tag:
            self._found += custom_element_links(tag, attributes)
        self._take(node, element, attributes)

    def _take(self, node: LexborNode, element: _Element, attributes: Attributes) -> None:
        tag, is_read, is_anchor, rows, rule = element
        found, options = self._found, self._options
        if is_read:
            if tag == _COMMENT:
                self._read_comment(node.comment_content)
                return
            self._read(node, tag, attributes)
        if is_anchor and (anchor := anchored(tag, attributes)) is not None:
            found.append(anchor)
        if rows:
            found += element_links(tag, rows, attributes)
        if rule is not None:
            found += rule(attributes, options)
        if options.css and (style := attributes.get("style")) and "(" in style:
            found += css_links(style)
        if not self._tables.attributes.isdisjoint(attributes):
            found += global_attribute_links(attributes, self._tables.global_attributes)
        if options.speculative:
            found += _scripted(attributes)

    def _read(self, node: LexborNode, tag: str, attributes: Attributes) -> None:
        """Read an element that describes the page, or has text with links."""
        match tag:
            case "base" if self.base is None and "href" in attributes:
                self.base = attributes["href"] or ""
            case "meta" if content := attributes.get("content"):
                self._read_meta(attributes, content)
            case "link" if _is_canonical(attributes.get("rel") or ""):
                self.own_url = attributes.get("href") or self.own_url
            case "style" if self._options.css:
                self._found += islice(css_links(node.text()), MAX_REFERENCES)
            case "script" if "src" not in attributes:
                self._read_script(node, attributes)
            case "template":
                self._has_templates = True  # their content is read last
            case "iframe" | "noembed" | "noframes":
                self._read_frame(node, attributes)

    def _read_script(self, node: LexborNode, attributes: Attributes) -> None:
        """Read a script of the page, or SVG's link to one."""
        for name in ("href", XLINK):
            if text := attributes.get(name):
                self._found.append((text, EMBED, f"script/@{name}"))
        if self._options.speculative:
            self._found += islice(speculative_links(node.text()), MAX_REFERENCES)

    def _read_frame(self, node: LexborNode, attributes: Attributes) -> None:
        """Keep the document inside an element: a frame's own, or what is shown in its place."""
        if srcdoc := attributes.get("srcdoc"):
            self.inner.append(_Inner(srcdoc, has_base=True))
        elif _may_link(text := node.text()):
            self.inner.append(_Inner(text, has_base=False))

    def _read_comment(self, text: str | None) -> None:
        """Keep the content of a conditional comment: `<!--[if IE]> … <![endif]-->`."""
        if text and text[:3].lower() == "[if" and _may_link(text):
            self.inner.append(_Inner(text.partition(">")[2], has_base=False))

    def _read_meta(self, attributes: Attributes, content: str) -> None:
        """Instructions for robots, and the page's own URL."""
        name = (attributes.get("name") or "").strip().lower()
        if name in ("robots", self._options.robot.lower()) and len(self.robots) < _MAX_ROBOTS:
            self.robots.append(content[:_MAX_ROBOTS_CHARS])
        elif (attributes.get("property") or "").strip().lower() == "og:url":
            self.own_url = self.own_url or content


def _is_canonical(rel: str) -> bool:
    rel = rel.lower()
    return "canonical" in rel and "canonical" in rel.split()


def _may_link(text: str) -> bool:
    return "=" in text and any(map(text.lower().__contains__, _SIGNS_OF_LINKS))


def anchored(tag: str, attributes: Attributes) -> Reference | None:
    """The link of `a` or `area`. An empty `href` is the page itself. SVG's `a` may have `xlink:href`."""
    text = attributes.get("href")
    if text is None:
        text = attributes.get(XLINK) if tag == "a" else None
        if text is None and "href" not in attributes:
            return None
    context = ANCHORS[tag]
    return text or "", NAVIGATION, context + _mark(attributes) if "rel" in attributes else context


def _mark(attributes: Attributes) -> str:
    rel = attributes.get("rel")
    return NOFOLLOW_MARK if rel and "nofollow" in rel.lower().split() else ""


def _link(attributes: Attributes, _: ExtractOptions) -> Iterator[Reference]:
    hop = hop_of_rel(attributes.get("rel"))
    if hop is None and (attributes.get("itemprop") or "").strip().lower() in LIKELY_PREVIEWS:
        hop = EMBED
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
    for key in ("property", "name", "itemprop"):
        words = (attributes.get(key) or "").lower().split()
        if words and (text := (attributes.get("content") or "").strip()) and _is_preview(words, text):
            yield from ((url, EMBED, "meta/@content") for url in one_or_more(text))
            return


def _is_preview(words: list[str], text: str) -> bool:
    """Whether a `meta` with these names holds a URL for previews."""
    return not PREVIEWS.isdisjoint(words) or (not LIKELY_PREVIEWS.isdisjoint(words) and is_likely(text))


def _form(attributes: Attributes, options: ExtractOptions) -> Iterator[Reference]:
    """Forms that are sent by GET, because POST changes things."""
    is_get = (attributes.get("method") or "get").strip().lower() not in ("post", "dialog")
    if options.forms and is_get and (text := attributes.get("action")):
        yield text, SUBMIT, f"form/@action{_mark(attributes)}"


def _object(attributes: Attributes, _: ExtractOptions) -> Iterator[Reference]:
    if text := attributes.get("data"):
        yield from _below_codebase([text], attributes, "object/@data")
    yield from _below_codebase((attributes.get("archive") or "").split(), attributes, "object/@archive")


def _applet(attributes: Attributes, _: ExtractOptions) -> Iterator[Reference]:
    archives = (attributes.get("archive") or "").replace(",", " ").split()
    yield from _below_codebase(archives, attributes, "applet/@archive")
    if (text := attributes.get("code")) and not archives:
        yield from _below_codebase([text], attributes, "applet/@code")


def _param(attributes: Attributes, options: ExtractOptions) -> Iterator[Reference]:
    """The parameter of a plug-in that is a URL by its name: the film of Flash, the file of a player."""
    name = (attributes.get("name") or "").strip().lower()
    if text := (attributes.get("value") or "").strip():
        if name in _PARAMETERS or (attributes.get("valuetype") or "").lower() == "ref":
            yield text, EMBED, "param/@value"
        elif name == "flashvars" and options.speculative:
            yield from ((url, SPECULATIVE, "param/@value") for url in flash_variables(text))


def _scripted(attributes: Attributes) -> Iterator[Reference]:
    """The strings of `javascript:` URLs that look like URLs."""
    for name in _SCRIPTED:
        text = (attributes.get(name) or "").lstrip()
        if text[: len(_SCRIPT_SCHEME)].lower() == _SCRIPT_SCHEME:
            yield from speculative_links(unquote(text[len(_SCRIPT_SCHEME) :]))


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
    {"link": _link, "meta": _meta, "form": _form, "object": _object, "applet": _applet, "param": _param}
)

#: The elements of the table, without those of an order.
_TABLED = tuple(element_attributes(ExtractOptions()))
#: The tags that a flattened document keeps.
NEEDED = frozenset(
    tag.encode()
    for tag in (*_TABLED, *RULED, *ANCHORS, "base", "style", "noembed", "noframes")
    if tag not in ("html", "image", "use")
)
#: Attributes for which a flattened document keeps any other element.
MARKED = re.compile(
    rb"(?<![\w-])(?=[\w-]*?(?:background|style|data-[a-z]|lazy|src|original|file|on[a-z]))[\w-]++\s*+=", re.IGNORECASE
)
