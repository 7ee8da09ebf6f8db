"""The kind of a document, by media type or by its first bytes, and its encoding.

The encoding is that of the byte order mark, else of the header, else of the document itself, else UTF-8, without guessing
(https://html.spec.whatwg.org/#determining-the-character-encoding).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from functools import lru_cache, wraps
from types import MappingProxyType
from typing import TypeVar

T = TypeVar("T")

#: The longest text that is cached: sites choose what they send.
SHORT_CHARS = 256


def remembered(entries: int) -> Callable[[Callable[[str], T]], Callable[[str], T]]:
    """Cache the results of a pure function for the `entries` short texts that were used last; not for longer texts."""

    def decorated(function: Callable[[str], T]) -> Callable[[str], T]:
        cached = lru_cache(entries)(function)

        @wraps(function)
        def result(text: str) -> T:
            return cached(text) if len(text) <= SHORT_CHARS else function(text)

        return result

    return decorated


class DocumentKind(Enum):
    """How a document is read. A helper process receives the value."""

    HTML = "html"
    CSS = "css"
    SCRIPT = "script"
    XML = "xml"  #: a sitemap or a feed, or nothing
    TEXT = "text"  #: a list of URLs, or nothing


XHTML = "application/xhtml+xml"
_BY_TYPE = {
    "text/html": DocumentKind.HTML,
    XHTML: DocumentKind.HTML,
    "text/css": DocumentKind.CSS,
    "text/plain": DocumentKind.TEXT,
    "text/xml": DocumentKind.XML,
    "text/javascript": DocumentKind.SCRIPT,
    **{f"application/{name}": DocumentKind.XML for name in ["xml", "rss+xml", "atom+xml", "rdf+xml", "gzip", "x-gzip"]},
    **{
        f"application/{name}": DocumentKind.SCRIPT
        for name in ["javascript", "x-javascript", "ecmascript", "json", "ld+json", "manifest+json"]
    },
}
#: Types without a meaning. Browsers sniff only the first four; servers send the last for unknown types.
_UNKNOWN = frozenset({"", "unknown/unknown", "application/unknown", "*/*", "application/octet-stream"})

#: How HTML begins (https://mimesniff.spec.whatwg.org/#identifying-a-resource-with-an-unknown-mime-type).
_HTML_START = re.compile(
    rb"\s*+(?:<!--|<(?:!doctype\s+html|html|head|script|iframe|h1|div|font|table|a|style|title|b|body|br|p)[\s>])",
    re.IGNORECASE,
)
_STARTS = ((b"<?xml", DocumentKind.XML), (b"\x1f\x8b", DocumentKind.XML))
_SNIFFED_BYTES = 1445


@remembered(32)  # most sites send one or two
def media_type(content_type: str) -> str:
    """The type and subtype of a `Content-Type` field, in lower case."""
    return content_type.partition(";")[0].strip().lower()


def is_known(content_type: str) -> bool:
    """Whether the field names a type of document."""
    return media_type(content_type) not in _UNKNOWN


def kind_of(content_type: str, start: bytes, *, may_sniff: bool = True) -> DocumentKind | None:
    """How to read a document; None if it is not read.

    A named type is believed, as browsers do. `start`, the beginning of the body, is sniffed if the type is unknown and
    `may_sniff` (`X-Content-Type-Options: nosniff` forbids it).
    """
    named = media_type(content_type)
    if named not in _UNKNOWN:
        return _BY_TYPE.get(named)
    if not may_sniff:
        return None
    start = start[:_SNIFFED_BYTES].removeprefix(b"\xef\xbb\xbf")
    if _HTML_START.match(start):
        return DocumentKind.HTML
    return next((kind for mark, kind in _STARTS if start.lstrip().startswith(mark)), None)


UTF_8 = "utf-8"

_CHARSET = re.compile(r";\s*charset\s*=\s*[\"']?\s*([^\s;\"']+)", re.IGNORECASE)
_META_CHARSET = re.compile(rb"<meta[\s/][^>]*?charset\s*=\s*[\"']?\s*([^\s;\"'/>]+)", re.IGNORECASE)
_COMMENT = re.compile(rb"<!--.*?(?:-->|\Z)", re.DOTALL)
_CSS_CHARSET = re.compile(rb'\A@charset "([^"]{1,100})";')
#: How far the standard searches for a `meta` that names the encoding.
_PRESCAN_BYTES = 1024
_BOMS = MappingProxyType({b"\xef\xbb\xbf": UTF_8, b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"})
#: Usual labels by their codec on the web (https://encoding.spec.whatwg.org/#names-and-labels). Python knows dangerous others.
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


def html_as_utf8(body: bytes, content_type: str) -> bytes:
    """The document in UTF-8, without its mark. Undecodable bytes become U+FFFD."""
    return _in_utf8(body, content_type, _META_CHARSET)


def css_as_text(body: bytes, content_type: str) -> str:
    """The style sheet as text (https://www.w3.org/TR/css-syntax-3/#input-byte-stream)."""
    return _in_utf8(body, content_type, _CSS_CHARSET).decode(UTF_8, "replace")


def plain_as_text(body: bytes, content_type: str) -> str:
    """The text of a document without a declaration of its encoding."""
    return _in_utf8(body, content_type, None).decode(UTF_8, "replace")


def _in_utf8(body: bytes, content_type: str, declared_inside: re.Pattern[bytes] | None) -> bytes:
    """The body in UTF-8, without its mark. `declared_inside` finds the label of an encoding inside the document."""
    mark = next((mark for mark in _BOMS if body.startswith(mark)), b"")
    codec = _BOMS.get(mark) or _codec_of(content_type)
    if codec is None:
        inside = declared_inside and declared_inside.search(_COMMENT.sub(b"", body[:_PRESCAN_BYTES]))
        codec = _CODECS.get(inside[1].decode("latin1").lower(), UTF_8) if inside else UTF_8
        if codec.startswith("utf-16"):  # it was readable as ASCII
            codec = UTF_8
    body = body[len(mark) :]
    return body if codec == UTF_8 else body.decode(codec, "replace").encode(UTF_8, "replace")


@remembered(32)  # most sites send one or two
def _codec_of(content_type: str) -> str | None:
    """The codec of the charset in a `Content-Type` field; None without a known charset."""
    label = _CHARSET.search(content_type)
    return None if label is None else _CODECS.get(label[1].lower())
