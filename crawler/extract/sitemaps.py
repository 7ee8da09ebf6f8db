"""Reads sitemaps (https://www.sitemaps.org/protocol.html) and feeds, broken ones as far as possible.

`xml_reader` finds the elements; the tables here say which of them name a URL. No entity is expanded and nothing is loaded from
outside. The limits are the protocol's: 50,000 URLs, 50 MiB unpacked. All URLs in a sitemap have the hop `M`, and a response
after such a hop is read as a sitemap if it begins like one, whatever its type; so only the hops have to be remembered, which
also limit the depth of an index.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import NamedTuple

from anabranch.crawler.extract.content_type import GZIP
from anabranch.crawler.extract.links import EMBED, MANIFEST, REDIRECT, SITEMAP_BROKEN, Link, Reference
from anabranch.crawler.extract.xml_reader import SITEMAPS, Element, Place, XmlReader, XmlText, decoded, xml_text
from anabranch.crawler.fetch.decoding import BrokenCoding, gunzipped
from anabranch.crawler.urls.parsing import MAX_URL_CHARS, canonical

CONTEXT = "sitemap"
MAX_URLS = 50_000
MAX_BYTES = 50 << 20
#: Hops `M` after which nothing is read as a sitemap: robots.txt → index → sitemap → page, and one more index. Redirects
#: between them do not count.
MAX_DEPTH = 4
#: The annotation of a sitemap that exceeds a limit.
CUT = "sitemapCut"

_CHUNK_BYTES = 64 * 1024
_SNIFFED_BYTES = 2048
_URL_IN_LIST = re.compile(rb"(?<!\S)http\S*+", re.IGNORECASE)
#: The first URL of a list, behind lines that begin with a number sign.
_URL_LINE = re.compile(rb"(?:\s++|#[^\r\n]*+)*+https?://[^\s<>]++[ \t]*+(?:[\r\n]|\Z)", re.IGNORECASE)
_PAGE = re.compile(rb"(?:\s|\xef\xbb\xbf)*+<(?:!doctype\s++html|html)[\s>]", re.IGNORECASE)
#: How a feed or sitemap begins that is sent as HTML, behind comments, declarations and white space
#: (https://mimesniff.spec.whatwg.org/#rules-for-distinguishing-if-a-resource-is-a-feed-or-html, which has no sitemaps).
_BEGINNING = re.compile(
    rb"(?:\s++|\xef\xbb\xbf|<!--.*?-->|<\?[^>]*+>|<![^->][^>\[]*+(?:\[[^\]]*+\]\s*+)?>)*+<(?:rss|feed|rdf:rdf|urlset|sitemapindex)[\s>:]",
    re.IGNORECASE | re.DOTALL,
)


class _Naming(NamedTuple):
    """One way in which an element names a URL."""

    hop: str
    attribute: bytes = b""  #: empty: by its text


#: The places of URLs. (The namespaces of images and videos are marked by a colon: see `xml_reader`.)
_NAMINGS: Mapping[Place, tuple[_Naming, ...]] = {
    ("url", "loc"): (_Naming(MANIFEST),),
    ("sitemap", "loc"): (_Naming(MANIFEST),),
    ("url", "link"): (_Naming(MANIFEST, b"href"),),  # xhtml:link, the page in other languages
    ("image:", "loc"): (_Naming(EMBED),),
    **{("video:", name): (_Naming(EMBED),) for name in ("thumbnail_loc", "content_loc", "player_loc")},
    ("item", "link"): (_Naming(MANIFEST), _Naming(MANIFEST, b"href")),  # the latter is Atom's
    ("channel", "link"): (_Naming(MANIFEST), _Naming(MANIFEST, b"href")),
    ("item", "guid"): (_Naming(MANIFEST),),
    ("item", "enclosure"): (_Naming(EMBED, b"url"),),
    ("image", "url"): (_Naming(EMBED),),
    **{(parent, "image:"): (_Naming(EMBED, b"href"),) for parent in ("channel", "item")},
    **{
        (parent, name): (_Naming(EMBED, b"url"),)
        for parent in ("item", "entry", "group")
        for name in ("content", "thumbnail")
    },
    ("content", "thumbnail"): (_Naming(EMBED, b"url"),),
    ("feed", "link"): (_Naming(MANIFEST, b"href"),),
    ("entry", "link"): (_Naming(MANIFEST, b"href"),),
    ("entry", "content"): (_Naming(EMBED, b"src"), _Naming(EMBED, b"url")),
    ("feed", "logo"): (_Naming(EMBED),),
    ("feed", "icon"): (_Naming(EMBED),),
}
_WANTED = {place: any(not naming.attribute for naming in namings) for place, namings in _NAMINGS.items()}
_RECORDS = frozenset({"url", "sitemap", "item", "entry"})
_GUID = ("item", "guid")
_ENTITY = re.compile(r"&[A-Za-z_][\w.-]*;")
_WEB = ("http://", "https://")


def is_sitemap_expected(hops: str) -> bool:
    """Whether a document that was found by these hops was requested as a sitemap, and may still be one."""
    return 0 < _depth(hops) < MAX_DEPTH


def _depth(hops: str) -> int:
    """The hops `M` at the end, redirects between and behind them left out."""
    return hops[len(hops.rstrip(MANIFEST + REDIRECT)) :].count(MANIFEST)


def begins_like_sitemap(start: bytes, content_type: str, hops: str) -> bool:
    """Whether a document of another type is a sitemap or feed, by its beginning.

    One that was requested as a sitemap may be packed, a list, or have a text before it; another one begins with its root.
    """
    if _PAGE.match(start):  # most are
        return False
    if not is_sitemap_expected(hops):
        return _depth(hops) < MAX_DEPTH and _BEGINNING.match(start) is not None
    return start.startswith(GZIP) or is_sitemap(xml_text((start,), content_type, MAX_BYTES), hops)


def xml_document(body: bytes, content_type: str) -> XmlText:
    """The text of a document, perhaps gzipped, of at most 50 MiB."""
    return xml_text(unpacked(body) if body.startswith(GZIP) else (body,), content_type, MAX_BYTES)


def is_sitemap(text: XmlText, hops: str) -> bool:
    """Whether a document that was found by these hops is a sitemap or feed: XML by its root, a list of URLs after an `M`."""
    if _depth(hops) >= MAX_DEPTH:
        return False
    return text.prolog.root in SITEMAPS or (is_sitemap_expected(hops) and _is_list(text))


def _is_list(text: XmlText) -> bool:
    return not text.prolog.root and _URL_LINE.match(text.data[:_SNIFFED_BYTES]) is not None


def robots_links(urls: Iterable[str], base: str) -> list[Link]:
    """Links to the sitemaps that a robots.txt names; `base` is its own URL."""
    found = (canonical(url, base) for url in urls)
    return [Link(url, MANIFEST, "robots.txt") for url in dict.fromkeys(found) if url is not None]


def sitemap_links(text: XmlText, url: str) -> tuple[list[Reference], tuple[str, ...]]:
    """The URLs in a sitemap or feed, and its annotations, `CUT` and `SITEMAP_BROKEN`. `url` is its own.

    Cost: linear, 25 ms a MB of a plain sitemap, 60 of a feed; memory: the document and the URLs.
    """
    if _is_list(text):
        lines = list(islice(_URL_IN_LIST.finditer(text.data), MAX_URLS + 1))
        references: list[Reference] = [
            (decoded(line[0], Counter(), is_literal=True), MANIFEST, CONTEXT) for line in lines[:MAX_URLS]
        ]
        return references, (CUT,) if text.is_cut or len(lines) > MAX_URLS else ()
    reader = XmlReader(text, url, _WANTED, _RECORDS)
    references = list(islice(_references(reader, has_entities=text.declares), MAX_URLS + 1))
    is_cut = text.is_cut or len(references) > MAX_URLS
    return references[:MAX_URLS], (*((CUT,) if is_cut else ()), *_notes_of(reader.faults, text))


def _notes_of(faults: Counter[str], text: XmlText) -> tuple[str, ...]:
    """The annotation of a document with faults: `sitemapBroken:1references+2tags`."""
    faults["before"] += text.prolog.before > 0
    faults["entities"] += text.declares
    faults["encoding"] += not text.has_known_encoding
    faults["tags"] -= text.is_cut  # what the cut left open
    named = "+".join(f"{number}{kind}" for kind, number in sorted(faults.items()) if number > 0)
    return (SITEMAP_BROKEN + named,) if named else ()


def _references(reader: XmlReader, *, has_entities: bool) -> Iterator[Reference]:
    """The URLs that the elements name. One that may hold an entity of the document's own is left out."""
    faults, left_chars = reader.faults, MAX_BYTES
    for element in reader:
        for naming in _NAMINGS[element.place]:
            url = _url_of(element, naming, faults)
            if not url:
                continue
            if element.base is not None:
                url = canonical(url, element.base) or url
                left_chars -= len(url)  # a long base makes many long URLs of a short document
            if len(url) > MAX_URL_CHARS or left_chars < 0 or (has_entities and _ENTITY.search(url)):
                faults["urls"] += 1
                continue
            yield url, naming.hop, CONTEXT
        if element.text is None:
            faults["urls"] += 1


def _url_of(element: Element, naming: _Naming, faults: Counter[str]) -> str:
    """The URL that an element names in one way; empty without one."""
    if naming.attribute:
        return decoded(element.attributes.get(naming.attribute, b""), faults).strip()
    url = (element.text or "").strip()
    return "" if element.place == _GUID and not _is_permalink(url, element.attributes) else url


def _is_permalink(guid: str, attributes: Mapping[bytes, bytes]) -> bool:
    """Whether a guid is a URL: as the feed declares, else by its text. By default it is one, but many are not."""
    declared = attributes.get(b"ispermalink", b"").strip().lower()
    return declared == b"true" or (declared != b"false" and guid.lower().startswith(_WEB))


def unpacked(body: bytes) -> Iterator[bytes]:
    """A gzipped body in chunks, as far as the caller takes them. A broken member ends it."""
    chunks = (body[start : start + _CHUNK_BYTES] for start in range(0, len(body), _CHUNK_BYTES))
    with suppress(BrokenCoding):
        yield from gunzipped(chunks)
