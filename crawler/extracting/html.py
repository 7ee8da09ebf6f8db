"""Links out of HTML: one parse, one pass over the elements that `elements.py` knows.

The tree is lexbor's, which builds what a browser builds with scripting off (so `<noscript>` is read). Documents that would
make it build for hours are flattened before (`nesting.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import chain, islice
from types import MappingProxyType
from typing import ClassVar

from selectolax.lexbor import LexborDocumentOptions, LexborHTMLParser, LexborNode, SelectolaxError, create_tag

from anabranch.crawler.extracting.charsets import html_as_utf8
from anabranch.crawler.extracting.css import css_links
from anabranch.crawler.extracting.elements import (
    ANCHORS,
    EMBEDDED,
    LATE,
    NEEDED,
    RULED,
    Attributes,
    anchored,
    embedded,
    late,
    styled,
)
from anabranch.crawler.extracting.gathering import gathered
from anabranch.crawler.extracting.links import MAX_REFERENCES, NAVIGATION, NOFOLLOW_MARK, Found, Reference
from anabranch.crawler.extracting.mediatypes import XHTML, media_type
from anabranch.crawler.extracting.nesting import tame
from anabranch.crawler.extracting.options import ExtractOptions
from anabranch.crawler.extracting.resolving import LinkResolver
from anabranch.crawler.extracting.speculative import speculative_links
from anabranch.crawler.urls.parsing import canonical

#: The elements that lead somewhere or say something by their names.
_NAMED = (*EMBEDDED, *RULED, *ANCHORS, "base", "style", "template")
#: Names that HTML knows have numbers below this, the same for all documents; those of others, such as SVG's `use`, are above.
_KNOWN_TAGS = 1 << 16

#: The context of a plain link.
_PLAIN = ANCHORS["a"]
#: The attributes of an anchor that make it more than a plain link.
_SPECIAL = LATE | {"rel", "style"}
#: The attributes by which an element of any name may have links.
_MARKS = LATE | {"style"}

#: How much is kept of what `meta` elements say to robots.
_MAX_ROBOTS = 16
_MAX_ROBOTS_CHARS = 1000

#: `<script src="x"/>` in XHTML is a whole element; to an HTML parser it swallows what follows. XML has no < in a value.
_SELF_CLOSED_RAW = re.compile(
    rb"""<(script|style|title|textarea|iframe)((?:\s(?:[^<>"'/]|/(?!>)|"[^"<]*+"|'[^'<]*+')*+)?)/>""", re.IGNORECASE
)


def read_html(
    body: bytes, content_type: str, url: str, options: ExtractOptions, resolver: LinkResolver | None = None
) -> Found:
    """What a page leads to, and what it says to robots.

    `content_type` is the header: its charset counts, and `application/xhtml+xml` has `<script/>` closed. `url` is the canonical
    URL of the page; the first `base[href]` is resolved against it and counts for all links, unless it is no http(s) URL
    (`javascript:`, `data:`). What stands in a `<template>` follows the rest. A `resolver` that is kept from page to page saves
    most of the URL parsing. No body is too broken: what can be read is read. Cost: about 15 µs per KB.
    """
    page = html_as_utf8(body, content_type)
    if media_type(content_type) == XHTML:
        page = _SELF_CLOSED_RAW.sub(rb"<\1\2></\1>", page)
    reading = _Reading(options)
    pieces = iter(tame(page, NEEDED))
    first = reading.references(next(pieces))
    base = (canonical(reading.base, url) or url) if reading.base else url
    references: Iterable[Reference] = chain(first, chain.from_iterable(map(reading.references, pieces)))
    if options.nofollow_links:
        references = (reference for reference in references if not reference[2].endswith(NOFOLLOW_MARK))
    links, dropped = gathered(references, base, options.max_outlinks, LinkResolver() if resolver is None else resolver)
    own_url = canonical(reading.own_url, base) if reading.own_url else None
    robots = tuple(reading.robots)
    return Found(links, dropped, nofollow=robots != () and _is_nofollow(robots), robots=robots, canonical=own_url)


@cache
def _names() -> dict[int, str]:
    """The names by lexbor's numbers, which are cheaper to ask for."""
    numbers = {create_tag(name).tag_id: name for name in _NAMED}
    return {number: name for number, name in numbers.items() if number < _KNOWN_TAGS}


class _Reading:
    """One page while it is read."""

    def __init__(self, options: ExtractOptions) -> None:
        self._options = options
        self._has_templates = False
        self._found: list[Reference] = []
        self.base: str | None = None  #: the `href` of the first base that has one
        self.robots: list[str] = []
        self.own_url: str | None = None

    def references(self, piece: bytes) -> list[Reference]:
        """The references of the page, or of a piece: in document order, then those in templates.

        In a template a base means nothing.
        """
        try:
            tree = LexborHTMLParser(piece, options=LexborDocumentOptions.WO_EVENTS)
        except SelectolaxError as error:  # no page is too broken: only memory can be lacking
            raise MemoryError from error
        found: list[Reference] = []
        self._found = found
        if (root := tree.root) is not None:
            self._walk(root)
        if self._has_templates:
            base = self.base
            for fragment in _templates(tree):
                self._walk(fragment)
            self.base = base
        return found

    def _walk(self, top: LexborNode) -> None:
        """Take all elements in document order."""
        found, names = self._found, _names()
        for node in top.traverse():
            number, attributes = node.tag_id, node.attributes
            tag = names.get(number)
            if tag is None:
                if attributes and (number >= _KNOWN_TAGS or not _MARKS.isdisjoint(attributes)):
                    self._take(node, node.tag or "", attributes)
            # Most links are plain: they are taken here, where it costs least.
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
            if tag in self._BY_TAG:
                self._BY_TAG[tag](self, node, attributes)
        if "style" in attributes and self._options.css:
            found += styled(attributes)
        if self._options.data_attributes and not LATE.isdisjoint(attributes):
            found += late(attributes)

    def _take_base(self, _: LexborNode, attributes: Attributes) -> None:
        if self.base is None and "href" in attributes:
            self.base = attributes["href"] or ""

    def _take_meta(self, _: LexborNode, attributes: Attributes) -> None:
        """What the page says of itself: to robots, and its URL."""
        content = attributes.get("content")
        if not content:
            return
        name = (attributes.get("name") or "").strip().lower()
        if name in ("robots", self._options.robot.lower()) and len(self.robots) < _MAX_ROBOTS:
            self.robots.append(content[:_MAX_ROBOTS_CHARS])
        elif (attributes.get("property") or "").strip().lower() == "og:url":
            self.own_url = self.own_url or content

    def _take_link(self, _: LexborNode, attributes: Attributes) -> None:
        if "canonical" in (attributes.get("rel") or "").lower().split():
            self.own_url = attributes.get("href") or self.own_url

    def _take_style(self, node: LexborNode, _: Attributes) -> None:
        if self._options.css:
            self._found += islice(css_links(node.text()), MAX_REFERENCES)

    def _take_script(self, node: LexborNode, attributes: Attributes) -> None:
        if self._options.speculative and "src" not in attributes:
            self._found += islice(speculative_links(node.text()), MAX_REFERENCES)

    def _take_template(self, _: LexborNode, __: Attributes) -> None:
        self._has_templates = True  # what they hold comes behind the rest

    _BY_TAG: ClassVar = MappingProxyType(
        {
            "base": _take_base,
            "meta": _take_meta,
            "link": _take_link,
            "style": _take_style,
            "script": _take_script,
            "template": _take_template,
        }
    )


def _templates(tree: LexborHTMLParser) -> Iterator[LexborNode]:
    """What templates hold, also templates in templates, in document order."""
    fragments = tree.template_fragments()[::-1]
    while fragments:
        fragment = fragments.pop()
        yield fragment
        fragments.extend(reversed(fragment.template_fragments()))


def _is_nofollow(robots: Iterable[str]) -> bool:
    words = {word.strip().lower() for content in robots for word in content.split(",")}
    return not words.isdisjoint(("nofollow", "none"))
