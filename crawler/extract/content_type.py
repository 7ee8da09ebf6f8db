"""The kind of a document, by media type or by its first bytes."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from functools import lru_cache, wraps
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
