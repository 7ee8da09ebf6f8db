"""What an answer is: by its media type, and by its first bytes where it names none."""

from __future__ import annotations

import re
from enum import Enum

from anabranch.crawler.remembering import remembered


class Kind(Enum):
    """How a document is read; the value is what a helper process is told."""

    HTML = "html"
    CSS = "css"
    SCRIPT = "script"
    XML = "xml"  #: a sitemap or a feed, or nothing
    TEXT = "text"  #: a list of URLs, or nothing


XHTML = "application/xhtml+xml"
_BY_TYPE = {
    "text/html": Kind.HTML,
    XHTML: Kind.HTML,
    "text/css": Kind.CSS,
    "text/xml": Kind.XML,
    "application/xml": Kind.XML,
    "application/rss+xml": Kind.XML,
    "application/atom+xml": Kind.XML,
    "application/rdf+xml": Kind.XML,
    "application/gzip": Kind.XML,
    "application/x-gzip": Kind.XML,
    "text/plain": Kind.TEXT,
    "text/javascript": Kind.SCRIPT,
    "application/javascript": Kind.SCRIPT,
    "application/x-javascript": Kind.SCRIPT,
    "application/ecmascript": Kind.SCRIPT,
    "application/json": Kind.SCRIPT,
    "application/ld+json": Kind.SCRIPT,
    "application/manifest+json": Kind.SCRIPT,
}
#: Types that say nothing. Browsers look into the first four alone; servers write the last for whatever they do not know.
_UNKNOWN = frozenset({"", "unknown/unknown", "application/unknown", "*/*", "application/octet-stream"})

#: How HTML begins (https://mimesniff.spec.whatwg.org/#identifying-a-resource-with-an-unknown-mime-type).
_HTML_START = re.compile(
    rb"\s*+(?:<!--|<(?:!doctype\s+html|html|head|script|iframe|h1|div|font|table|a|style|title|b|body|br|p)[\s>])",
    re.IGNORECASE,
)
_STARTS = ((b"<?xml", Kind.XML), (b"\x1f\x8b", Kind.XML))
_SNIFFED_BYTES = 1445


@remembered(32)  # most sites send one or two
def media_type(content_type: str) -> str:
    """The type and subtype of a `Content-Type` field, in lower case. Asked several times for each answer."""
    return content_type.partition(";")[0].strip().lower()


def is_known(content_type: str) -> bool:
    """Whether the type says what the body is."""
    return media_type(content_type) not in _UNKNOWN


def kind_of(content_type: str, start: bytes, *, may_sniff: bool = True) -> Kind | None:
    """How to read a document; None if nothing is read in it.

    What is named is believed, as browsers do: HTML as `text/plain` is plain text. `start` is the beginning of the body, looked
    at if the type says nothing and `may_sniff` (`X-Content-Type-Options: nosniff` forbids it).
    """
    named = media_type(content_type)
    if named not in _UNKNOWN:
        return _BY_TYPE.get(named)
    if not may_sniff:
        return None
    start = start[:_SNIFFED_BYTES].removeprefix(b"\xef\xbb\xbf")
    if _HTML_START.match(start):
        return Kind.HTML
    return next((kind for mark, kind in _STARTS if start.lstrip().startswith(mark)), None)
