"""From an answer to what it leads to: which reader, and whether on the event loop or beside it."""

from __future__ import annotations

from typing import Protocol

from anabranch.crawler.extracting.gathering import gathered, merged
from anabranch.crawler.extracting.headers import Headers, header_links
from anabranch.crawler.extracting.links import Found
from anabranch.crawler.extracting.mediatypes import Kind, is_known, kind_of
from anabranch.crawler.extracting.nesting import LIGHT_BYTES, is_light
from anabranch.crawler.extracting.options import ExtractOptions
from anabranch.crawler.extracting.reading import Document, is_read, read
from anabranch.crawler.extracting.resolving import LinkResolver
from anabranch.crawler.extracting.sandbox import Sandbox


class Answer(Protocol):
    """What an answer must tell to be read."""

    @property
    def status(self) -> int:
        """The HTTP status."""
        ...

    @property
    def headers(self) -> Headers:
        """The header fields."""
        ...

    def content(self, limit: int) -> tuple[bytes, bool]:
        """The decoded body, at most `limit` bytes; True if there was more."""
        ...


class Extractor:
    """Reads answers: small harmless documents at once, the others in the sandbox, which stays the caller's to close.

    One for a crawl: it remembers how links are resolved.
    """

    def __init__(self, options: ExtractOptions, sandbox: Sandbox) -> None:
        self._options = options
        self._sandbox = sandbox
        self._resolver = LinkResolver()

    async def __call__(self, response: Answer, base_url: str, hops: str = "") -> Found:
        """What the answer to the canonical URL `base_url`, found by `hops`, leads to: its header, and the body of a 2xx.

        Never more than 50 ms at a time on the event loop (measured, for the worst documents that were found).
        """
        found = Found([])
        if 200 <= response.status < 300:
            found = await self._body(response, base_url, hops)
        references = list(header_links(response.headers, response.status))
        if references:
            links, _ = gathered(references, base_url, self._options.max_outlinks, self._resolver)
            found = found._replace(links=merged(links, found.links))
        return found

    async def _body(self, response: Answer, url: str, hops: str) -> Found:
        content_type = _first(response.headers, "Content-Type")
        is_named = is_known(content_type)
        if is_named and not is_read(kind_of(content_type, b""), self._options, hops):
            return Found([])  # its bytes are not even looked at
        body, is_cut = response.content(min(LIGHT_BYTES, self._options.max_content_bytes))
        kind = kind_of(content_type, body, may_sniff=is_named or _may_sniff(response.headers))
        if kind is None or not is_read(kind, self._options, hops):
            return Found([])
        document = Document(kind, body, url=url, content_type=content_type, hops=hops)
        if (is_cut and len(body) < self._options.max_content_bytes) or not _is_light(document):
            document.body = b""
            limit = self._options.max_content_bytes
            return await self._sandbox.read(document, lambda: response.content(limit)[0], self._options)
        return read(document, self._options, self._resolver)


def _is_light(document: Document) -> bool:
    if document.kind is Kind.XML:
        return not document.body.startswith(b"\x1f\x8b")  # it may unpack to fifty megabytes
    return document.kind is not Kind.HTML or is_light(document.body)


def _may_sniff(headers: Headers) -> bool:
    return _first(headers, "X-Content-Type-Options").strip().lower() != "nosniff"


def _first(headers: Headers, name: str) -> str:
    values = headers.getall(name, [])
    return values[0] if values else ""
