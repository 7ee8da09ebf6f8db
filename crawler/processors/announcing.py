"""The sitemaps that a robots.txt names: they go to the Frontier at once, before its rules are kept.

With the end of the page in whose place the file was fetched they could be lost, if that lease is; and the file is not asked
for again for a day. Nothing is lost by a crash: rules are in memory only, so it is asked for again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from anabranch.crawler.jobs.scheduling import schedule_all
from anabranch.crawler.processors.candidates import Given
from anabranch.crawler.visit import Visit
from anabranch.frontier.aio import AsyncFrontier

#: Puts the candidates of `Sitemap` lines into `visit.discovered`.
Find = Callable[[Visit, Sequence[str]], None]


class Announcer:
    """Schedules the sitemaps that are found. `given` is told of those that were sent."""

    def __init__(self, find: Find, frontier: AsyncFrontier, given: Given | None = None) -> None:
        self._find = find
        self._frontier = frontier
        self._given = given

    async def __call__(self, visit: Visit, lines: Sequence[str]) -> None:
        """Send the sitemaps that the robots.txt fetched in this visit names: nothing is left to the page's end.

        Waits while the store is behind. Raises: StoreUnavailable.
        """
        self._find(visit, lines)
        sent, visit.discovered = visit.discovered, []
        if sent:
            await schedule_all(self._frontier, sent, visit.lease)
            if self._given is not None:
                await self._given(sent)
