"""The two steps every page takes: fetch it, read its links."""

from __future__ import annotations

from collections.abc import Awaitable
from http import HTTPStatus
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


class Earlier(Protocol):
    """What the job has of earlier fetches; see `archiving.recalling.Archive`."""

    async def validators(self, url: str) -> Validators | None:
        """What to ask with, if the earlier answer is at hand."""

    async def answer(self, url: str) -> Response | None:
        """The earlier answer, if it can be read after all."""


class FetchPage:
    """Fetch the URL of the visit; with `earlier`, one that the job has an answer of only if it has changed."""

    def __init__(self, get: Get, earlier: Earlier | None = None) -> None:
        self._get = get
        self._earlier = earlier

    async def __call__(self, visit: Visit) -> Step:
        """Keep the answer, whatever its status. Raises: FetchError."""
        url, via = visit.lease.url, visit.lease.via
        validators = None if self._earlier is None else await self._earlier.validators(url)
        visit.response = await self._get(url, conditional=validators, via=via)
        if self._earlier is None or validators is None or visit.response.status != HTTPStatus.NOT_MODIFIED:
            return Step.PROCEED
        visit.earlier = await self._earlier.answer(url)
        if visit.earlier is None:  # nobody has the page: ask for it, since it must not be lost
            visit.response.body.close()
            visit.response = None
            visit.response = await self._get(url, via=via)
        return Step.PROCEED


class ExtractPage:
    """Read the links of pages that were answered with 2xx, now or before a 304; other answers have none of interest."""

    def __init__(self, extract: Extractor) -> None:
        self._extract = extract

    async def __call__(self, visit: Visit) -> Step:
        """Fill `visit.links`, `visit.dropped_links` and `visit.notes`."""
        response = visit.earlier or visit.response
        if response is None or not response.is_success:
            return Step.PROCEED
        found = await self._extract(response, visit.lease.url, visit.lease.hops)
        visit.links, visit.dropped_links, visit.notes = found.links, found.dropped, found.notes
        return Step.PROCEED
