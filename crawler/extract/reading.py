"""Reads the links of a response: of its header fields, and of its body by the reader of its kind. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from anabranch.crawler.extract.content_type import DocumentKind
from anabranch.crawler.extract.css_js import css_links, speculative_links
from anabranch.crawler.extract.encoding import css_as_text, plain_as_text
from anabranch.crawler.extract.html import read_html
from anabranch.crawler.extract.links import (
    INFERRED,
    REDIRECT,
    ExtractOptions,
    Found,
    Reference,
    hop_of_rel,
    refresh_url,
)
from anabranch.crawler.extract.resolver import LinkResolver, gathered
from anabranch.crawler.extract.sitemaps import MAX_URLS, is_sitemap, sitemap_links

if TYPE_CHECKING:
    from anabranch.crawler.fetch.response import Headers

#: The relations of the `Link` field that are followed; most others are for programs.
RELS = frozenset(
    ["alternate", "canonical", "icon", "modulepreload", "next", "prefetch", "preload", "prev", "stylesheet"]
)
#: How much of the `Link` fields is read.
_MAX_CHARS = 64 * 1024

_SPACE = r"[ \t]*+"
#: A link-value of RFC 8288 section 3, and one of its parameters. Commas and semicolons may be repeated.
_TARGET = re.compile(rf"[ \t,]*+<([^>]*+)>{_SPACE}")
_PARAMETER = re.compile(
    rf""";{_SPACE}(?:([^\s=;,"<>]++){_SPACE}(?:={_SPACE}(?:"((?:[^"\\]++|\\.)*+)"?|([^;,\s]*+)))?)?{_SPACE}""",
    re.DOTALL,
)
_NEXT = re.compile(r"""(?:[^,"]++|"(?:[^"\\]++|\\.)*+"?)*+""", re.DOTALL)
_QUOTED_PAIR = re.compile(r"\\(.)", re.DOTALL)


def header_links(headers: Headers, status: int) -> Iterator[Reference]:
    """The links of a header: `Location` of a 3xx or a 201; `Refresh`, `Content-Location` and `Link` of the others."""
    is_redirect = 300 <= status < 400
    if is_redirect or status == 201:
        for text in headers.getall("Location", [])[:1]:
            yield text, REDIRECT, "Location"
    if is_redirect:
        return
    for text in headers.getall("Refresh", [])[:1]:
        if (url := refresh_url(text)) is not None:
            yield url, REDIRECT, "Refresh"
    for text in headers.getall("Content-Location", [])[:1]:
        yield text, INFERRED, "Content-Location"
    if fields := headers.getall("Link", []):
        yield from link_links(", ".join(fields))


def link_links(text: str) -> Iterator[Reference]:
    """The links of a `Link` field (RFC 8288) without an `anchor`, with the hops of the element `link`. Cost: linear."""
    text = text[:_MAX_CHARS]
    position = 0
    while (target := _TARGET.match(text, position)) is not None:
        position = target.end()
        parameters: dict[str, str] = {}
        while (parameter := _PARAMETER.match(text, position)) is not None:
            position = parameter.end()
            name, quoted, bare = parameter.groups()
            if name:
                value = _QUOTED_PAIR.sub(r"\1", quoted) if quoted is not None else bare or ""
                parameters.setdefault(name.lower(), value)
        rel = " ".join(keyword for keyword in parameters.get("rel", "").lower().split() if keyword in RELS)
        hop = hop_of_rel(rel)
        if hop is not None and "anchor" not in parameters:
            yield target[1], hop, f"Link rel={rel}"
        rest = _NEXT.match(text, position)
        position = rest.end() if rest is not None else len(text)


def is_read(kind: DocumentKind | None, options: ExtractOptions, hops: str) -> bool:
    """Whether documents of this kind, found by these hops, are read."""
    if kind is DocumentKind.HTML:  # first: most documents are
        return True
    if kind is DocumentKind.CSS:
        return options.css
    if kind is DocumentKind.SCRIPT:
        return options.speculative
    return options.sitemaps and (kind is DocumentKind.XML or (kind is DocumentKind.TEXT and hops.endswith("M")))


class Document(NamedTuple):
    """A body, and the facts that its reader needs."""

    kind: DocumentKind
    body: bytes  #: decoded
    url: str  #: canonical
    content_type: str = ""  #: the header field
    hops: str = ""  #: how it was found


def read(document: Document, options: ExtractOptions, resolver: LinkResolver | None = None) -> Found:
    """The links of the document, and its annotations."""
    kind, body, content_type = document.kind, document.body, document.content_type
    if kind is DocumentKind.HTML:
        return read_html(body, content_type, document.url, options, resolver)
    notes: tuple[str, ...] = ()
    limit = options.max_outlinks
    references: Iterable[Reference] = ()
    if kind is DocumentKind.CSS:
        references = css_links(css_as_text(body, content_type))
    elif kind is DocumentKind.SCRIPT:
        references = speculative_links(plain_as_text(body, content_type))
    elif is_sitemap(body, document.hops):
        references, notes = sitemap_links(body)
        limit = MAX_URLS
    links, dropped = gathered(references, document.url, limit, LinkResolver() if resolver is None else resolver)
    return Found(links, dropped, notes=notes)
