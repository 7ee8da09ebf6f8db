"""The two steps every page takes: fetch it, read its links."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from crawler.chain import Step
from crawler.processors.extract import extract_links
from crawler.processors.fetch import Response
from crawler.visit import Visit


class FetchPage:
    """Fetch the URL of the visit."""

    def __init__(self, get: Callable[[str], Awaitable[Response]]) -> None:
        self._get = get

    async def __call__(self, visit: Visit) -> Step:
        """Keep the answer, whatever its status. Raises: FetchError."""
        visit.response = await self._get(visit.lease.url)
        return Step.PROCEED


async def extract_page(visit: Visit) -> Step:
    """Read the links of a page that was answered with 2xx; other answers have none of interest."""
    response = visit.response
    if response is not None and 200 <= response.status < 300:
        content_type = response.headers.get("Content-Type", "")
        visit.links, visit.dropped_links = extract_links(response.body, content_type, visit.lease.url)
    return Step.PROCEED
