"""Links out of HTML: seven elements, one parse, one pass.

The tree is lexbor's, which builds what a browser builds with scripting off (so `<noscript>` is read). Documents that would
make it build for hours are flattened before (`nesting.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import MappingProxyType
from typing import NamedTuple

from selectolax.lexbor import LexborDocumentOptions, LexborHTMLParser, LexborNode

from crawler.extracting.nesting import tame
from crawler.urls.links import LinkResolver
from crawler.urls.parsing import canonical

#: Heritrix: maxOutlinks.
MAX_LINKS = 6000
HTML_TYPES = frozenset({"text/html", "application/xhtml+xml"})
UTF_8 = "utf-8"
NAVIGATION = "L"
EMBED = "E"

#: Where each element has its link, and the hop that following it is; `link` has its own rule.
_PLACES = MappingProxyType(
    {
        "a": ("href", NAVIGATION),
        "area": ("href", NAVIGATION),
        "iframe": ("src", NAVIGATION),
        "frame": ("src", NAVIGATION),
        "img": ("src", EMBED),
        "script": ("src", EMBED),
    }
)
_SELECTOR = "base[href],link[href]," + ",".join(f"{tag}[{place}]" for tag, (place, _) in _PLACES.items())

#: The tags to keep of a document that is flattened.
_NEEDED = frozenset([b"base", b"link", *(tag.encode() for tag in _PLACES)])

#: What `link[rel]` means, keyword by keyword (Heritrix ExtractorHTML.processLinkTagWithRel); others are navigation.
_EMBED_RELS = frozenset({"icon", "stylesheet", "modulepreload", "prefetch", "prerender"})
_HINT_RELS = frozenset({"dns-prefetch", "preconnect"})
_PINGBACK = "pingback"

_CHARSET = re.compile(r";\s*charset\s*=\s*[\"']?\s*([^\s;\"']+)", re.IGNORECASE)
_META_CHARSET = re.compile(rb"<meta[\s/][^>]*?charset\s*=\s*[\"']?\s*([^\s;\"'/>]+)", re.IGNORECASE)
_COMMENT = re.compile(rb"<!--.*?(?:-->|\Z)", re.DOTALL)
#: How far the standard looks for a `meta` that names the encoding.
_PRESCAN_BYTES = 1024
_BOMS = MappingProxyType({b"\xef\xbb\xbf": UTF_8, b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"})
#: Labels by the codec they mean on the web (https://encoding.spec.whatwg.org/#names-and-labels), those that are seen. Only
#: these can be chosen by a page: Python's registry, which lexbor's own detection asks, has codecs that hide the page or
#: take the square of its length (punycode, unicode_escape, utf-7 …).
_CODECS = MappingProxyType(
    {
        label: codec
        for codec, labels in {
            UTF_8: "utf-8 utf8 unicode-1-1-utf-8",
            "utf-16-le": "utf-16 utf-16le unicode ucs-2",
            "utf-16-be": "utf-16be unicodefffe",
            "cp1252": "windows-1252 cp1252 iso-8859-1 iso8859-1 iso_8859-1 latin1 l1 us-ascii ascii",
            "gb18030": "gb2312 gbk gb18030 x-gbk chinese gb_2312-80",
            "big5hkscs": "big5 big5-hkscs x-x-big5 cn-big5",
            "cp932": "shift_jis shift-jis sjis x-sjis ms_kanji windows-31j",
            "euc_jp": "euc-jp x-euc-jp",
            "iso2022_jp": "iso-2022-jp",
            "cp949": "euc-kr ks_c_5601-1987 ksc5601 windows-949 korean",
            "cp866": "ibm866 cp866 866",
            "koi8_r": "koi8-r koi8 koi",
            "koi8_u": "koi8-u koi8-ru",
            "cp874": "windows-874 tis-620 iso-8859-11",
            "cp1250": "windows-1250 cp1250",
            "cp1251": "windows-1251 cp1251",
            "cp1253": "windows-1253 cp1253",
            "cp1254": "windows-1254 cp1254 iso-8859-9 latin5",
            "cp1255": "windows-1255 cp1255",
            "cp1256": "windows-1256 cp1256",
            "cp1257": "windows-1257 cp1257",
            "cp1258": "windows-1258 cp1258",
            "iso8859_2": "iso-8859-2 iso8859-2 latin2",
            "iso8859_5": "iso-8859-5 iso8859-5 cyrillic",
            "iso8859_7": "iso-8859-7 iso8859-7 greek",
            "iso8859_8": "iso-8859-8 iso-8859-8-i hebrew",
            "iso8859_15": "iso-8859-15 iso8859-15 latin9",
        }.items()
        for label in labels.split()
    }
)

#: `<script src="x"/>` in XHTML is a whole element; to an HTML parser it swallows what follows. XML has no < in a value.
_SELF_CLOSED_RAW = re.compile(
    rb"""<(script|style|title|textarea|iframe)((?:\s(?:[^<>"'/]|/(?!>)|"[^"<]*+"|'[^'<]*+')*+)?)/>""", re.IGNORECASE
)


class Link(NamedTuple):
    """A link of a page. (A tuple: thousands are made a second.)"""

    url: str  #: absolute and canonical
    hop: str  #: L = navigation, E = embedded, R = redirect


def extract_links(
    body: bytes,
    content_type: str,
    base_url: str,
    max_links: int = MAX_LINKS,
    resolver: LinkResolver | None = None,
) -> tuple[list[Link], int]:
    """The links of an HTML page in document order, each URL once; and how many more there were than `max_links`.

    Other media types have no links. `base_url` is the canonical URL of the page; the first `base[href]` is resolved against
    it and counts for all links, unless it is no http(s) URL (`javascript:`, `data:`). What stands in a `<template>` follows
    the rest. A link found as two kinds has the hop of the first. A `resolver` that is kept from page to page saves most of
    the URL parsing. No body is
    too broken: what can be read is read. Cost: about 15 µs per KB.
    """
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type not in HTML_TYPES:
        return [], 0
    base, found = _read(_parsed(body, content_type, is_xml=media_type != "text/html"), base_url)
    urls = (LinkResolver() if resolver is None else resolver).resolve(base, [text for text, _ in found])
    hops: dict[str, str] = {}
    for url, (_, hop) in zip(urls, found, strict=True):
        if url is not None:
            hops.setdefault(url, hop)
    links = [Link(url, hop) for url, hop in hops.items()]
    return links[:max_links], max(len(links) - max_links, 0)


def _read(tree: LexborHTMLParser, base_url: str) -> tuple[str, list[tuple[str, str]]]:
    """The base URL that counts, and the links as they are written, each with its hop."""
    base: str | None = None
    found = []
    for node in _nodes(tree):
        tag = node.tag or ""
        if tag == "base":
            base = base or canonical(node.attrs.get("href") or "", base_url) or base_url
            continue
        if (link := _link_of(node, tag)) is not None:
            found.append(link)
    return base or base_url, found


def _link_of(node: LexborNode, tag: str) -> tuple[str, str] | None:
    """What an element links to, as it is written, and its hop; None if it is no link to follow."""
    place, hop = _PLACES.get(tag) or ("href", _hop_of_rel(node.attrs.get("rel")))
    text = node.attrs.get(place)
    if hop is None or text is None:
        return None
    return (text, hop) if text or hop == NAVIGATION else None  # an empty src is never fetched


def _nodes(tree: LexborHTMLParser) -> Iterator[LexborNode]:
    """The elements with links in document order, then those in templates (in which a base means nothing)."""
    yield from tree.css(_SELECTOR)
    fragments = tree.template_fragments()[::-1]
    while fragments:
        fragment = fragments.pop()
        yield from (node for node in fragment.css(_SELECTOR) if node.tag != "base")
        fragments.extend(reversed(fragment.template_fragments()))


def _hop_of_rel(rel: str | None) -> str | None:
    """The hop of a `link` element with this `rel`; None if it is not to be followed."""
    hop = None
    for keyword in (rel or "").lower().split():
        if keyword in _EMBED_RELS:
            return EMBED
        if keyword == _PINGBACK:
            return None
        if keyword not in _HINT_RELS:
            hop = NAVIGATION
    return hop


def _parsed(body: bytes, content_type: str, *, is_xml: bool) -> LexborHTMLParser:
    """The tree of a body in whatever encoding."""
    codec, mark_bytes = _encoding(body, content_type)
    body = body[mark_bytes:]
    if codec != UTF_8:
        body = body.decode(codec, "replace").encode()
    if is_xml:
        body = _SELF_CLOSED_RAW.sub(rb"<\1\2></\1>", body)
    return LexborHTMLParser(tame(body, _NEEDED), options=LexborDocumentOptions.WO_EVENTS)


def _encoding(body: bytes, content_type: str) -> tuple[str, int]:
    """The codec, and the length of the byte order mark. First of: mark, header, `meta`, UTF-8 (HTML Standard)."""
    for mark, codec in _BOMS.items():
        if body.startswith(mark):
            return codec, len(mark)
    if (in_header := _CHARSET.search(content_type)) and (known := _CODECS.get(in_header[1].lower())):
        return known, 0
    in_meta = _META_CHARSET.search(_COMMENT.sub(b"", body[:_PRESCAN_BYTES]))
    codec = _CODECS.get(in_meta[1].decode("latin1").lower(), UTF_8) if in_meta else UTF_8
    return UTF_8 if codec.startswith("utf-16") else codec, 0  # a readable `meta` is not in UTF-16
