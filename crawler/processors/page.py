"""The two steps every page takes: fetch it, read its links."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from crawler.chain import Step
from crawler.extracting.html import extract_links
from crawler.fetching.fetcher import Response
from crawler.urls.links import LinkResolver
from crawler.visit import Visit

#: Larger bodies are read in a thread of their own: they could hold the loop for seconds.
LARGE_BYTES = 1 << 20


class FetchPage:
    """Fetch the URL of the visit."""

    def __init__(self, get: Callable[[str], Awaitable[Response]]) -> None:
        self._get = get

    async def __call__(self, visit: Visit) -> Step:
        """Keep the answer, whatever its status. Raises: FetchError."""
        visit.response = await self._get(visit.lease.url)
        return Step.PROCEED


class ExtractPage:
    """Read the links of pages that were answered with 2xx; other answers have none of interest."""

    def __init__(self) -> None:
        self._resolver = LinkResolver()

    async def __call__(self, visit: Visit) -> Step:
        """Fill `visit.links`."""
        response = visit.response
        if response is None or not 200 <= response.status < 300:
            return Step.PROCEED
        content_type = response.headers.get("Content-Type", "")
        body, url = response.body, visit.lease.url
        if len(body) <= LARGE_BYTES:
            found = extract_links(body, content_type, url, resolver=self._resolver)
        else:
            found = await asyncio.to_thread(extract_links, body, content_type, url)
        visit.links, visit.dropped_links = found
        return Step.PROCEED
