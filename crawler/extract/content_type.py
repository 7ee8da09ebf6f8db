"""The kind of a document, by its MIME type or by its first bytes."""

from __future__ import annotations

import re
from enum import Enum

from anabranch.crawler.fetch.mime import BINARY_BYTE, SNIFFED_BYTES


class DocumentKind(Enum):
    """The reader of a document. A helper process receives the value."""

    HTML = "html"
    CSS = "css"
    SCRIPT = "script"
    JSON = "json"  #: a script without code, or a web app manifest
    XML = "xml"  #: by its root: a sitemap or feed, a page, or only its style sheets
    TEXT = "text"  #: a list of URLs, or nothing
    GZIP = "gzip"  #: a packed sitemap, or nothing


XHTML = "application/xhtml+xml"
_SCRIPTS = frozenset(
    f"{top}/{name}"
    for top in ("application", "text")
    for name in ("javascript", "x-javascript", "ecmascript", "x-ecmascript")
) | {"text/jscript", "text/livescript", *(f"text/javascript1.{minor}" for minor in range(6))}
_JSON = ("application/json", "text/json", "application/x-web-app-manifest+json")
_BY_TYPE = {
    "text/html": DocumentKind.HTML,
    XHTML: DocumentKind.HTML,
    "text/css": DocumentKind.CSS,
    "text/plain": DocumentKind.TEXT,
    **dict.fromkeys(["text/xml", "application/xml"], DocumentKind.XML),
    **dict.fromkeys(["application/gzip", "application/x-gzip"], DocumentKind.GZIP),
    **dict.fromkeys(_SCRIPTS, DocumentKind.SCRIPT),
    **dict.fromkeys(_JSON, DocumentKind.JSON),
}
#: By the end of the type.
_BY_SUFFIX = (("+xml", DocumentKind.XML), ("+json", DocumentKind.JSON))
#: Types without a meaning. Browsers sniff only the first three; servers send the others for unknown types.
_UNKNOWN = frozenset({"", "unknown/unknown", "application/unknown", "application/octet-stream", "binary/octet-stream"})

#: How HTML begins (https://mimesniff.spec.whatwg.org/#identifying-a-resource-with-an-unknown-mime-type).
_HTML_START = re.compile(
    rb"\s*+(?:<!--|<(?:!doctype\s+html|html|head|script|iframe|h1|div|font|table|a|style|title|b|body|br|p)[\s>])",
    re.IGNORECASE,
)
#: Marks of texts in UTF-16, which have binary bytes.
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
#: How a gzipped document begins, which may unpack to fifty megabytes.
GZIP = b"\x1f\x8b"
_STARTS = ((b"<?xml", DocumentKind.XML), (GZIP, DocumentKind.GZIP), (b"{", DocumentKind.JSON))
#: PDF and PostScript begin as texts, and are not read.
_PRINTED = (b"%PDF-", b"%!PS-Adobe-")
#: How a style sheet begins, behind its comments: with an at-rule, or a selector and its first declaration.
_CSS_START = re.compile(
    rb"(?:\s++|/\*.*?\*/)*+(?:@[a-z-]++[\s\"'({]|[^\s{}<;=()\"'`@][^{}<;=()\"'`]{0,500}\{\s*+(?:/\*.*?\*/\s*+)*+(?:--)?[a-z_-][\w-]*+\s*+:)",
    re.IGNORECASE | re.DOTALL,
)


def is_named(essence: str) -> bool:
    """Whether a MIME type says how to read a document."""
    return essence not in _UNKNOWN


def kind_named(essence: str) -> DocumentKind | None:
    """The reader for a MIME type; None if its documents are not read. A named type is believed, as in browsers."""
    return _BY_TYPE.get(essence) or next((kind for suffix, kind in _BY_SUFFIX if essence.endswith(suffix)), None)


def _begun(start: bytes) -> DocumentKind | None:
    """The kind of a document that begins as only its kind does."""
    if _HTML_START.match(start):
        return DocumentKind.HTML
    return next((kind for mark, kind in _STARTS if start.lstrip().startswith(mark)), None)


def kind_sniffed(
    start: bytes, *, may_be_script: bool = True, is_embedded: bool = False, path: str = ""
) -> DocumentKind | None:
    """The reader for a document without a type, by its beginning; None if it is not read.

    `may_be_script` is False if the server forbids sniffing (`X-Content-Type-Options: nosniff`). A text that a page embeds
    (`is_embedded`) is a style sheet if its `path` says so or if it begins like one: that is the default type of the link to it.
    """
    start = start[:SNIFFED_BYTES].removeprefix(b"\xef\xbb\xbf")
    if may_be_script and (begun := _begun(start)) is not None:
        return begun
    if start.startswith(_PRINTED) or (not start.startswith(_UTF_16) and BINARY_BYTE.search(start)):
        return None
    if may_be_script and is_embedded and (path.lower().endswith(".css") or _CSS_START.match(start)):
        return DocumentKind.CSS
    return DocumentKind.TEXT
