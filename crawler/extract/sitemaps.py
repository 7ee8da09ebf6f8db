"""Reads sitemaps (https://www.sitemaps.org/protocol.html) and feeds, as streams.

XML is read by expat, which loads nothing from outside. A document that declares entities is abandoned there. The limits are the
protocol's: 50,000 URLs, 50 MiB unpacked. All URLs in a sitemap have the hop `M`, and a response after such a hop is read as a
sitemap if it looks like one; so only the hops have to be remembered, which also limit the depth of an index.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain
from xml.parsers import expat

from anabranch.crawler.extract.links import EMBED, MANIFEST, Link, Reference
from anabranch.crawler.fetch.decoding import BrokenCoding, gunzipped
from anabranch.crawler.urls.parsing import MAX_URL_CHARS, canonical

CONTEXT = "sitemap"
MAX_URLS = 50_000
MAX_BYTES = 50 << 20
#: Hops `M` in a row after which nothing is read as a sitemap: robots.txt → index → sitemap → page, and one more index.
MAX_DEPTH = 4

_CHUNK_BYTES = 64 * 1024
_GZIP = b"\x1f\x8b"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
#: The beginning of XML, with the mark of UTF-16 or without.
_XML = (b"<", b"\xff\xfe<\0", b"\xfe\xff\0<")
#: Byte order mark of UTF-16, or none -> the skipped beginning: white space and marks.
_IGNORED = {
    b"": re.compile(rb"\A(?:[ \t\r\n\f\v]|\xef\xbb\xbf)++"),
    b"\xff\xfe": re.compile(rb"\A(?:[ \t\r\n]\0|\xff\xfe)++"),
    b"\xfe\xff": re.compile(rb"\A(?:\0[ \t\r\n]|\xfe\xff)++"),
}
#: Enough bytes for a whole mark and a whole character of UTF-16.
_ENOUGH_BYTES = 4
#: Roots of the XML documents that are read, in lower case.
_ROOTS = frozenset({"urlset", "sitemapindex", "rss", "feed", "rdf"})
_SNIFFED_BYTES = 2048
_URL_LINE = re.compile(rb"\s*+https?://[^\s<>]++[ \t]*+(?:[\r\n]|\Z)", re.IGNORECASE)

#: (parent, element) with a URL as text.
_TEXTS = frozenset({("url", "loc"), ("sitemap", "loc"), ("item", "link"), ("channel", "link")})
#: (parent, element) -> the attribute that is a URL, and its hop.
_ATTRIBUTES = {
    ("url", "link"): ("href", MANIFEST),  # xhtml:link, the page in other languages
    ("feed", "link"): ("href", MANIFEST),
    ("entry", "link"): ("href", MANIFEST),
    ("item", "enclosure"): ("url", EMBED),
}
_MAX_NESTING = 64
#: The parser's errors; the latter two for the encoding that a document names.
_UNREADABLE = (expat.ExpatError, LookupError, ValueError)


class _Refused(Exception):
    """The rest of the document is not read: it declares entities, or is nested too deeply, or its root is known."""


def is_sitemap(body: bytes, hops: str) -> bool:
    """Whether a document that was found by these hops is a sitemap or feed: XML by its root, a list of URLs after an `M`."""
    depth = len(hops) - len(hops.rstrip(MANIFEST))
    if depth >= MAX_DEPTH:
        return False
    chunks = unpacked(body, MAX_BYTES)
    start = _beginning(chunks)
    if start.startswith(_XML):
        return _root(start, chunks).lower() in _ROOTS
    start = start[:_SNIFFED_BYTES]
    if start.startswith(_UTF_16):
        start = start[2:].replace(b"\0", b"")  # near enough
    return depth > 0 and _URL_LINE.match(start) is not None


def _root(first: bytes, rest: Iterable[bytes]) -> str:
    """The name of an XML document's root; empty without one."""
    names: list[str] = []

    def stop(name: str, _: object) -> None:
        names.append(name.rpartition(" ")[2])
        raise _Refused

    parser = expat.ParserCreate(namespace_separator=" ")
    parser.StartElementHandler = stop
    with suppress(*_UNREADABLE, _Refused):
        for chunk in chain((first,), rest):
            parser.Parse(chunk)
    return names[0] if names else ""


def robots_links(urls: Iterable[str], base: str) -> list[Link]:
    """Links to the sitemaps that a robots.txt names; `base` is its own URL."""
    found = (canonical(url, base) for url in urls)
    return [Link(url, MANIFEST, "robots.txt") for url in dict.fromkeys(found) if url is not None]


def sitemap_links(body: bytes) -> tuple[list[Reference], tuple[str, ...]]:
    """The URLs in a sitemap or feed, perhaps gzipped, and annotations: `sitemapCut` by a limit, `sitemapBroken` by an error.

    URLs before an error count. Cost: linear, about 50 ms a MB; memory: the URLs.
    """
    chunks = unpacked(body, MAX_BYTES)
    first = _beginning(chunks)
    if first.startswith(_XML):
        return _XmlReader().read(first, chunks)
    text = (first + b"".join(chunks))[:MAX_BYTES]
    if text.startswith(_UTF_16):
        text = text.decode("utf-16", "replace").encode()
    lines = text.removeprefix(b"\xef\xbb\xbf").split()
    urls = [line.decode("utf-8", "replace") for line in lines if line[:4].lower() == b"http"]
    return [(url, MANIFEST, CONTEXT) for url in urls[:MAX_URLS]], ("sitemapCut",) if len(urls) > MAX_URLS else ()


def _beginning(chunks: Iterator[bytes]) -> bytes:
    """The first chunks, without white space and marks before the first character; UTF-16 keeps one mark for the parser."""
    start = b""
    for chunk in chunks:
        start += chunk
        mark = start[:2] if start.startswith(_UTF_16) else b""
        start = mark + _IGNORED[mark].sub(b"", start, count=1)
        if len(start) >= _ENOUGH_BYTES:
            break
    return start


def unpacked(body: bytes, limit: int) -> Iterator[bytes]:
    """The body in chunks, gzip members unpacked, at most `limit` bytes (and a chunk more). A broken member ends it."""
    chunks = (body[start : start + _CHUNK_BYTES] for start in range(0, len(body), _CHUNK_BYTES))
    with suppress(BrokenCoding):
        for chunk in gunzipped(chunks) if body.startswith(_GZIP) else chunks:
            yield chunk
            limit -= len(chunk)
            if limit <= 0:
                return


class _XmlReader:
    """Reads one XML document into references."""

    def __init__(self) -> None:
        self._references: list[Reference] = []
        self._path: list[str] = []
        self._text: list[str] | None = None  # of the element that holds a URL
        self._chars = 0
        parser = expat.ParserCreate(namespace_separator=" ")
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        parser.EntityDeclHandler = self._refuse
        self._parser = parser

    def read(self, first: bytes, rest: Iterable[bytes]) -> tuple[list[Reference], tuple[str, ...]]:
        """All references, and annotations."""
        left = MAX_BYTES - len(first)
        try:
            self._parser.Parse(first)
            for chunk in rest:
                left -= len(chunk)
                if left <= 0 or len(self._references) > MAX_URLS:
                    break
                self._parser.Parse(chunk)
            else:
                self._parser.Parse(b"", True)
        except (*_UNREADABLE, _Refused):
            return self._references[:MAX_URLS], ("sitemapBroken",)
        is_cut = left <= 0 or len(self._references) > MAX_URLS
        return self._references[:MAX_URLS], ("sitemapCut",) if is_cut else ()

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if len(self._path) >= _MAX_NESTING:
            raise _Refused
        element = name.rpartition(" ")[2]
        place = (self._path[-1] if self._path else "", element)
        self._path.append(element)
        if place in _TEXTS:
            self._text, self._chars = [], 0
        elif place in _ATTRIBUTES:
            attribute, hop = _ATTRIBUTES[place]
            if url := attributes.get(attribute):
                self._references.append((url, hop, CONTEXT))

    def _end(self, _: str) -> None:
        self._path.pop()
        if self._text is not None:
            if url := "".join(self._text).strip():
                self._references.append((url, MANIFEST, CONTEXT))
            self._text = None

    def _characters(self, text: str) -> None:
        if self._text is not None and self._chars <= MAX_URL_CHARS:
            self._text.append(text)
            self._chars += len(text)

    def _refuse(self, *_: object) -> None:
        raise _Refused
