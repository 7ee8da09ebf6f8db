"""The two steps every page takes: fetch it, read its links."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from crawler.chain import Step
from crawler.extracting.dispatch import Extractor
from crawler.extracting.headers import Headers
from crawler.fetching.fetcher import Response
from crawler.visit import Visit


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

    def __init__(self, extract: Extractor) -> None:
        self._extract = extract

    async def __call__(self, visit: Visit) -> Step:
        """Fill `visit.links`, `visit.dropped_links` and `visit.notes`."""
        response = visit.response
        if response is None or not 200 <= response.status < 300:
            return Step.PROCEED
        found = await self._extract(DecodedAnswer(response), visit.lease.url, visit.lease.hops)
        visit.links, visit.dropped_links, visit.notes = found.links, found.dropped, found.notes
        return Step.PROCEED


class DecodedAnswer:
    """A response whose body was decoded when it came, as an extractor takes it."""

    def __init__(self, response: Response) -> None:
        self.status = response.status
        self.headers: Headers = response.headers
        self._body = response.body

    def content(self, limit: int) -> tuple[bytes, bool]:
        """Its first `limit` bytes, and whether there are more."""
        return self._body[:limit], len(self._body) > limit
