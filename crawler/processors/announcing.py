"""The sitemaps that a robots.txt names: they go to the Frontier at once, before its rules are kept.

With the end of the page in whose place the file was fetched they could be lost, if that lease is; and the file is not asked
for again for a day. Nothing is lost by a crash: rules are in memory only, so it is asked for again.
"""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from crawler.extracting.links import MANIFEST, Link
from crawler.extracting.sitemaps import robots_links
from crawler.jobs.scheduling import schedule_all
from crawler.outcomes.ownfunctions import OwnFunctionFailed
from crawler.processors.candidates import Given
from crawler.robots.cache import robots_url
from crawler.scope.ruling import Scope
from crawler.urls.canonicalization import KeyOf
from crawler.visit import Visit
from frontier.aio import AsyncFrontier
from frontier.models import Candidate

log = structlog.get_logger(__name__)


class Announcer:
    """Schedules sitemaps in scope. `given` is told of those that were sent."""

    def __init__(self, scope: Scope, key: KeyOf, frontier: AsyncFrontier, given: Given | None = None) -> None:
        self._scope = scope
        self._key = key
        self._frontier = frontier
        self._given = given

    async def __call__(self, visit: Visit, lines: Sequence[str]) -> None:
        """Send the sitemaps that the robots.txt fetched in this visit names; its reader has bounded them.

        They are the host's: if it was asked for a sitemap when its robots.txt was fetched, they are not found behind that.
        Waits while the store is behind. Raises: StoreUnavailable.
        """
        if sent := self._in_scope(visit, robots_links(lines, robots_url(visit.lease.url))):
            await schedule_all(self._frontier, sent, visit.lease)
            if self._given is not None:
                await self._given(sent)

    def _in_scope(self, visit: Visit, links: Sequence[Link]) -> list[Candidate]:
        """Those that are taken; one for which the operator's own function fails costs no other."""
        found: list[Candidate] = []
        failures: list[OwnFunctionFailed] = []
        way = visit.lease.hops.rstrip(MANIFEST)
        for link in links:
            try:
                if self._scope.accepts(link.url, hops := way + link.hop, visit.lease.url):
                    found.append(Candidate(link.url, self._key(link.url), hops, visit.lease.payload))
            except OwnFunctionFailed as error:
                failures.append(error)
        if failures:
            log.warning(
                "sitemaps of a robots.txt are left out",
                url=visit.lease.url,
                left_out=len(failures),
                reason=str(failures[0]),
            )
        return found
