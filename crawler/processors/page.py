"""The two steps every page takes: fetch it, read its links."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from crawler.chain import Step
from crawler.extracting.html import HTML_TYPES, Link, extract_links
from crawler.fetching.options import Validators
from crawler.fetching.response import Response
from crawler.urls.parsing import LinkResolver
from crawler.visit import Visit

#: Larger bodies are read in a thread of their own: they could hold the loop for seconds.
LARGE_BYTES = 1 << 20
#: So much of a page is decoded and read.
MAX_CONTENT_BYTES = 16 << 20


class Get(Protocol):
    """A fetch, as `Fetcher.get`."""

    def __call__(
        self, url: str, *, conditional: Validators | None = None, via: str | None = None
    ) -> Awaitable[Response]:
        """The answer."""


class FetchPage:
    """Fetch the URL of the visit.

    `known` tells what an earlier record of the job said of the URL's version; then it is asked for only if it has changed.
    """

    def __init__(self, get: Get, known: Callable[[str], Validators | None] = lambda _: None) -> None:
        self._get = get
        self._known = known

    async def __call__(self, visit: Visit) -> Step:
        """Keep the answer, whatever its status. Raises: FetchError."""
        url = visit.lease.url
        visit.response = await self._get(url, conditional=self._known(url), via=visit.lease.via)
        return Step.PROCEED


class ExtractPage:
    """Read the links of pages that were answered with 2xx; other answers have none of interest."""

    def __init__(self) -> None:
        self._resolver = LinkResolver()

    async def __call__(self, visit: Visit) -> Step:
        """Fill `visit.links`."""
        response = visit.response
        if response is None or not response.is_success or response.media_type not in HTML_TYPES:
            return Step.PROCEED
        content, is_large = b"", response.body.size > LARGE_BYTES
        if not is_large:
            content, is_large = response.content(LARGE_BYTES)
        if is_large:
            found = await asyncio.to_thread(_links_of_all, response)
        else:
            found = extract_links(content, response.headers["Content-Type"], response.url, resolver=self._resolver)
        visit.links, visit.dropped_links = found
        return Step.PROCEED


def _links_of_all(response: Response) -> tuple[list[Link], int]:
    content, _ = response.content(MAX_CONTENT_BYTES)
    return extract_links(content, response.headers["Content-Type"], response.url)
