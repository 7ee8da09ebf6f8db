"""The two steps every page takes: fetch it, read its links."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from crawler.chain import Step
from crawler.extracting.dispatch import Extractor
from crawler.fetching.options import Validators
from crawler.fetching.response import Response
from crawler.visit import Visit


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

    def __init__(self, get: Get, known: Callable[[str], Awaitable[Validators | None]] | None = None) -> None:
        self._get = get
        self._known = known

    async def __call__(self, visit: Visit) -> Step:
        """Keep the answer, whatever its status. Raises: FetchError."""
        url = visit.lease.url
        validators = None if self._known is None else await self._known(url)
        visit.response = await self._get(url, conditional=validators, via=visit.lease.via)
        return Step.PROCEED


class ExtractPage:
    """Read the links of pages that were answered with 2xx; other answers have none of interest."""

    def __init__(self, extract: Extractor) -> None:
        self._extract = extract

    async def __call__(self, visit: Visit) -> Step:
        """Fill `visit.links`, `visit.dropped_links` and `visit.notes`."""
        response = visit.response
        if response is None or not response.is_success:
            return Step.PROCEED
        found = await self._extract(response, visit.lease.url, visit.lease.hops)
        visit.links, visit.dropped_links, visit.notes = found.links, found.dropped, found.notes
        return Step.PROCEED
