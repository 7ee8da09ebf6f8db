"""One document, read by the reader of its kind. It runs on the event loop or in a helper process, and knows neither."""

from __future__ import annotations

from collections.abc import Iterable

from anabranch.crawler.extracting.charsets import css_as_text, plain_as_text
from anabranch.crawler.extracting.css import css_links
from anabranch.crawler.extracting.gathering import gathered
from anabranch.crawler.extracting.html import read_html
from anabranch.crawler.extracting.links import Found, Reference
from anabranch.crawler.extracting.mediatypes import Kind
from anabranch.crawler.extracting.options import ExtractOptions
from anabranch.crawler.extracting.resolving import LinkResolver
from anabranch.crawler.extracting.sitemaps import MAX_URLS, is_sitemap, sitemap_links
from anabranch.crawler.extracting.speculative import speculative_links


def is_read(kind: Kind | None, options: ExtractOptions, hops: str) -> bool:
    """Whether documents of this kind, found by these hops, are read at all."""
    match kind:
        case Kind.HTML:
            return True
        case Kind.CSS:
            return options.css
        case Kind.SCRIPT:
            return options.speculative
        case Kind.XML:
            return options.sitemaps
        case Kind.TEXT:
            return options.sitemaps and hops.endswith("M")
    return False


class Document:
    """One body, and what must be known to read it."""

    __slots__ = ("body", "content_type", "hops", "kind", "url")

    def __init__(self, kind: Kind, body: bytes, *, url: str, content_type: str = "", hops: str = "") -> None:
        self.kind = kind
        self.body = body  #: decoded
        self.url = url  #: canonical
        self.content_type = content_type  #: the header
        self.hops = hops  #: how it was found


def read(document: Document, options: ExtractOptions, resolver: LinkResolver | None = None) -> Found:
    """What the document leads to."""
    kind, body, content_type = document.kind, document.body, document.content_type
    if kind is Kind.HTML:
        return read_html(body, content_type, document.url, options, resolver)
    notes: tuple[str, ...] = ()
    limit = options.max_outlinks
    references: Iterable[Reference] = ()
    if kind is Kind.CSS:
        references = css_links(css_as_text(body, content_type))
    elif kind is Kind.SCRIPT:
        references = speculative_links(plain_as_text(body, content_type))
    elif is_sitemap(body, document.hops):
        references, notes = sitemap_links(body)
        limit = MAX_URLS
    links, dropped = gathered(references, document.url, limit, LinkResolver() if resolver is None else resolver)
    return Found(links, dropped, notes=notes)
