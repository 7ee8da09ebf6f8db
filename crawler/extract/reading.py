"""Reads the links of a response: of its header fields, and of its body by the reader of its kind. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from anabranch.crawler.extract.content_type import (
    GZIP,
    XHTML,
    DocumentKind,
    is_named,
    kind_named,
    kind_sniffed,
)
from anabranch.crawler.extract.css_js import css_links, manifest_links, speculative_links
from anabranch.crawler.extract.encoding import css_as_text, plain_as_text
from anabranch.crawler.extract.html import read_html
from anabranch.crawler.extract.links import (
    EMBED,
    INFERRED,
    REDIRECT,
    ExtractOptions,
    Found,
    Reference,
    hop_of_rel,
    refresh_url,
)
from anabranch.crawler.extract.nesting import is_light
from anabranch.crawler.extract.resolver import LinkResolver, gathered, merged
from anabranch.crawler.extract.sitemaps import (
    MAX_URLS,
    begins_like_sitemap,
    is_sitemap,
    is_sitemap_expected,
    sitemap_links,
    xml_document,
)
from anabranch.crawler.extract.xml_reader import PAGES, as_html
from anabranch.crawler.fetch.mime import mime_type

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


#: The kinds that `_read_xml` reads.
MARKUP = (DocumentKind.XML, DocumentKind.GZIP)


def may_be_read(essence: str, options: ExtractOptions, hops: str) -> bool:
    """Whether the beginning of a document of this MIME type, found by these hops, decides if it is read."""
    kind = kind_named(essence)
    if kind is DocumentKind.HTML or not is_named(essence) or _is_read(kind, options, hops):
        return True
    return options.sitemaps and (is_sitemap_expected(hops) or essence.startswith(("text/", "application/")))


class DocumentHead(NamedTuple):
    """The facts about a document before it is read."""

    content_type: str  #: the `Content-Type` fields, combined
    url: str  #: canonical
    hops: str  #: how it was found
    may_sniff: bool = True  #: the server does not forbid it


def kind_of(head: DocumentHead, start: bytes, options: ExtractOptions) -> DocumentKind | None:
    """The reader for a document that begins with `start`; None if it is not read.

    A named type is believed, as browsers do, with one exception: what was requested as a sitemap, or begins as only sitemaps
    and feeds do, is read as one. A document without a type is sniffed.
    """
    essence = mime_type(head.content_type).essence
    if is_named(essence):
        kind = kind_named(essence)
    else:
        path = head.url.partition("?")[0]
        kind = kind_sniffed(start, may_be_script=head.may_sniff, is_embedded=is_embedded(head.hops), path=path)
    if options.sitemaps and kind not in MARKUP and begins_like_sitemap(start, head.content_type, head.hops):
        return DocumentKind.GZIP if start.startswith(GZIP) else DocumentKind.XML
    return kind if _is_read(kind, options, head.hops) else None


def _is_read(kind: DocumentKind | None, options: ExtractOptions, hops: str) -> bool:
    """Whether the options have documents of this kind read."""
    if kind is DocumentKind.CSS:
        return options.css
    if kind is DocumentKind.SCRIPT:
        return options.speculative
    if kind is DocumentKind.GZIP:
        return options.sitemaps
    if kind is DocumentKind.JSON:
        return options.speculative or is_embedded(hops)
    if kind is DocumentKind.TEXT and is_embedded(hops):
        return True  # a manifest may have any type
    return kind is DocumentKind.HTML or kind is DocumentKind.XML


def is_embedded(hops: str) -> bool:
    """Whether a document found by these hops is part of a page: a JSON text may be its manifest then."""
    return hops.rstrip(REDIRECT).endswith(EMBED)


class Document(NamedTuple):
    """A body, and the facts that its reader needs."""

    kind: DocumentKind
    body: bytes  #: decoded
    url: str  #: canonical
    content_type: str = ""  #: the header fields, combined
    hops: str = ""  #: how it was found


def read(document: Document, options: ExtractOptions, resolver: LinkResolver | None = None) -> Found:
    """The links of the document, and its annotations."""
    kind, body, content_type = document.kind, document.body, document.content_type
    is_html = kind is DocumentKind.HTML
    if is_html and mime_type(content_type).essence != XHTML:
        return read_html(body, content_type, document.url, options, resolver)
    resolver = LinkResolver() if resolver is None else resolver
    if is_html or kind in MARKUP:
        return _read_xml(document, options, resolver)
    references: Iterable[Reference] = ()
    if kind is DocumentKind.CSS:
        references = css_links(css_as_text(body, content_type))
    elif kind is DocumentKind.SCRIPT:
        references = speculative_links(plain_as_text(body, content_type))
    else:
        text = plain_as_text(body, content_type)
        references = manifest_links(text) if is_embedded(document.hops) else ()
        if kind is DocumentKind.JSON and options.speculative:
            references = chain(references, speculative_links(text))
    links, dropped = gathered(references, document.url, options.max_outlinks, resolver)
    return Found(links, dropped)


def is_harmless_xml(document: Document) -> bool:
    """Whether an XML document of at most 64 KiB is read within 50 ms: not a packed one, nor a page with thousands of tags."""
    body = document.body
    return not body.startswith(GZIP) and (
        is_light(body) or xml_document(body, document.content_type).prolog.root not in PAGES
    )


def _read_xml(document: Document, options: ExtractOptions, resolver: LinkResolver) -> Found:
    """The links of an XML document: of a sitemap or feed, of a page in XHTML, SVG or MathML, and its style sheets."""
    url = document.url
    text = xml_document(document.body, document.content_type)
    found = Found([])
    if options.sitemaps and is_sitemap(text, document.hops):
        references, notes = sitemap_links(text, url)
        found = Found(*gathered(references, url, MAX_URLS, resolver), notes=notes)
    elif document.kind is DocumentKind.GZIP or document.body.startswith(GZIP):
        return found
    elif document.kind is DocumentKind.HTML or text.prolog.root in PAGES:
        found = read_html(as_html(text), f"{XHTML};charset=utf-8", url, options, resolver)
    if sheets := [(sheet, EMBED, "xml-stylesheet/@href") for sheet in text.prolog.stylesheets]:
        links, _ = gathered(sheets, url, options.max_outlinks, resolver)
        found = found._replace(links=merged(links, found.links))
    return found
