"""Looks at a running crawl once a second, and tells a sample each time."""

from __future__ import annotations

import asyncio
import math
import resource
from collections.abc import Callable
from time import monotonic

from crawler.lab.policies.series import Busy, Sample
from crawler.reporting.statistics import CrawlStatistics
from frontier.aio import AsyncFrontier
from frontier.scheduling.lifecycle import QueueState

#: Between two samples.
EACH_S = 1.0


class Sampler:
    """The samples of one crawl, the first when its workers start.

    A look costs the Frontier a pass over the queues in memory and the store a count of its queues: 1 to 3 ms a second with
    1,000 queues. Workers, URLs and bytes are those of the whole second, to the millisecond; the queues' states are asked for at
    that moment and answered when the store has written what was said before.
    """

    def __init__(self, tell: Callable[[Sample], None], clock: Callable[[], float] = monotonic) -> None:
        self.ended_s = 0.0  #: when the workers ended
        self.is_drained = False  #: nothing was left for them
        self._tell = tell
        self._clock = clock
        self._start_s: float | None = None
        self._cpu_s = 0.0  #: that the process had used at the start
        self._lag_s = 0.0

    async def watch(self, frontier: AsyncFrontier, counts: CrawlStatistics) -> None:
        """Sample each second until cancelled; as `Outside.watch`. Called again, it goes on."""
        if self._start_s is None:
            self._start_s, self._cpu_s = self._clock(), _cpu_s()
        try:
            while True:
                await self._sample(frontier, counts)
                await self._until_next()
        finally:
            self.ended_s, self.is_drained = self._now_s(), frontier.core.is_done
            self._tell(_sample(self.ended_s, counts, (0, 0, 0)))

    def busy(self) -> Busy:
        """How busy the process was from the first sample to now; how late its event loop was at a sample."""
        elapsed_s = self._now_s()
        return Busy((_cpu_s() - self._cpu_s) / elapsed_s if elapsed_s > 0 else 0.0, self._lag_s)

    def _now_s(self) -> float:
        return 0.0 if self._start_s is None else self._clock() - self._start_s

    async def _sample(self, frontier: AsyncFrontier, counts: CrawlStatistics) -> None:
        taken = _sample(self._now_s(), counts, (0, 0, 0))  # before anything is waited for
        looked = await frontier.statistics()
        queues = looked.queues
        self._tell(
            taken._replace(
                ready=queues[QueueState.READY.value], parked=looked.parked, snoozed=queues[QueueState.SNOOZED.value]
            )
        )

    async def _until_next(self) -> None:
        """Sleep until the next whole second."""
        due_s = (math.floor(self._now_s() / EACH_S) + 1) * EACH_S
        await asyncio.sleep(due_s - self._now_s())
        self._lag_s = max(self._lag_s, self._now_s() - due_s)


def _sample(at_s: float, counts: CrawlStatistics, queues: tuple[int, int, int]) -> Sample:
    urls = counts.pages + counts.failed + counts.excluded
    return Sample(at_s, counts.active, *queues, urls, counts.fetched_bytes)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
