"""What a running crawl tells by itself: `progress-statistics.log`, and closer looks at its Frontier for the display."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from anabranch.crawler.operating.course import Phase
from anabranch.crawler.reporting.progress_log import (
    CrawlEvent,
    DeepestQueue,
    ProgressFacts,
    ProgressLog,
    memory_of_process,
)
from anabranch.crawler.reporting.statistics import CrawlStatistics, RateWindow
from anabranch.frontier.aio import AsyncFrontier
from anabranch.frontier.operating.statistics import FrontierStatistics

#: Between two closer looks, at least; and they take at most this share of the time, however many queues there are.
LOOK_S = 2.0
SHARE = 0.02

#: What the log calls a phase.
EVENTS = {Phase.PAUSED: CrawlEvent.PAUSED, Phase.RUNNING: CrawlEvent.RUNNING, Phase.DRAINING: CrawlEvent.ENDING}


class Telling:
    """Looks at one run until its tasks are cancelled."""

    def __init__(
        self,
        frontier: AsyncFrontier,
        statistics: CrawlStatistics,
        log: ProgressLog,
        interval_s: float,
        clock: Callable[[], float],
    ) -> None:
        self.looked: FrontierStatistics | None = None  #: at the last closer look
        self._frontier = frontier
        self._statistics = statistics
        self._log = log
        self._interval_s = interval_s
        self._clock = clock
        self._rates = RateWindow(interval_s)
        self._deepest = DeepestQueue(self._longest, clock)
        self._last: ProgressFacts | None = None  #: how the run was when it ended

    async def look(self) -> None:
        """Look at the Frontier again and again, until cancelled."""
        while True:
            begun_s = self._clock()
            self.looked = await self._frontier.statistics()
            await asyncio.sleep(max(LOOK_S, (self._clock() - begun_s) / SHARE))

    async def write(self) -> None:
        """Write a line of the log at each interval, until cancelled."""
        await self._log.run(self.facts, self._interval_s)

    def phase(self, phase: Phase, words: str) -> None:
        """The crawl as a whole has changed."""
        if phase in EVENTS:
            self._log.note(EVENTS[phase], words)

    async def end(self, words: str) -> None:
        """The crawl has ended: a last line, and why."""
        self._last = await self.facts()
        self._log.tell(self._last)
        self._log.note(CrawlEvent.ENDED, words)

    async def facts(self) -> ProgressFacts:
        """How the run is now, or was when it ended."""
        if self._last is not None:
            return self._last
        run, now = self._statistics, await self._frontier.statistics()
        self.looked = now
        now_s = self._clock()
        return ProgressFacts(
            now_s=now_s,
            discovered=now.accepted,
            queued=now.pending,
            downloaded=now.done,
            failed=now.failed,
            rates=self._rates.rates(now_s - run.started_s, run.pages, run.fetched_bytes),
            busy=run.active,
            queues=now.queues,
            parked=now.parked,
            longest=await self._deepest.length(),
            memory=memory_of_process(),
        )

    async def _longest(self) -> int:
        views = await self._frontier.look(self._frontier.core.operations.looking.longest(1))
        return views[0].urls if views else 0
