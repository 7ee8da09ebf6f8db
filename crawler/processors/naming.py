"""The first thing that must be known of a page's host: its addresses. A host without any is not asked for its robots.txt."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from anabranch.crawler.chain import Step
from anabranch.crawler.network.dns import Resolver
from anabranch.crawler.network.lookups import Lookup
from anabranch.crawler.outcomes.failures import NameNotFound, NameTimeout
from anabranch.crawler.urls.parsing import host_of
from anabranch.crawler.visit import Visit

NoteLookup = Callable[[Visit, Lookup], Awaitable[None]]


class NamePrecondition:
    """Lets a visit pass if its host has an address, or a proxy fetches its URL (`uses_proxy`), which looks names up itself.

    `note` makes the line of a lookup durable that was made for the visit (hop P, as Heritrix's `dns:` URLs); what stands in
    the cache or in the order's table, or is an address by itself, was not looked up.
    """

    def __init__(
        self, resolver: Resolver, note: NoteLookup, uses_proxy: Callable[[str], bool] = lambda _: False
    ) -> None:
        self._resolver = resolver
        self._note = note
        self._uses_proxy = uses_proxy

    async def __call__(self, visit: Visit) -> Step:
        """Look the host up. Raises: NameNotFound, NameTimeout, without times: no slot of the host was used."""
        if self._uses_proxy(visit.lease.url):
            return Step.PROCEED
        host = host_of(visit.lease.url)
        try:
            await self._resolver.resolve(host)
        except (NameNotFound, NameTimeout):
            await self._note_lookup(visit, host)
            raise
        await self._note_lookup(visit, host)
        return Step.PROCEED

    async def _note_lookup(self, visit: Visit, host: str) -> None:
        made = self._resolver.take_lookup(host)
        if made is not None:
            await self._note(visit, made)
