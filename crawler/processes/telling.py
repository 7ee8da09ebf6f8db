"""The job's `progress-statistics.log`, as one process has it: the sums of what its shares are asked at each interval."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from anabranch.crawler.outcomes.endings import ending_text
from anabranch.crawler.processes.postoffice import PROGRESS
from anabranch.crawler.processes.shares import Shares
from anabranch.crawler.processes.status import JobStatus
from anabranch.crawler.report.progress_log import CrawlEvent, ProgressFacts, ProgressLog, memory_of_process
from anabranch.crawler.report.statistics import RateWindow
from anabranch.crawler.run.run_state import Phase
from anabranch.crawler.run.status import EVENTS
from anabranch.crawler.run.summing import summed_progress, summed_run


class JobTelling:
    """Writes the lines of one run."""

    def __init__(
        self, shares: Shares, status: JobStatus, log: ProgressLog, interval_s: float, clock: Callable[[], float]
    ) -> None:
        self._shares = shares
        self._status = status
        self._log = log
        self._interval_s = interval_s
        self._clock = clock
        self._started_s = clock()
        self._rates = RateWindow(interval_s)
        self._said: dict[int, Mapping[str, Any]] = {}  #: by each share, last
        self._told = Phase.STARTING

    async def write(self) -> None:
        """Write a line at each interval, until cancelled."""
        await self._log.run(self._facts, self._interval_s)

    def look(self) -> None:
        """The crawl as a whole may have changed: if so it is noted, and why."""
        phase, ending = self._status.phase, self._shares.ending
        if phase is self._told or phase not in EVENTS:
            return
        self._told = phase
        words = self._status.paused or phase.value if ending is None else ending_text(ending, lasts=True)
        self._log.write_event(EVENTS[phase], words)

    def end(self, words: str) -> None:
        """All shares have ended: a last line, and why."""
        self.look()
        self._said |= {share: ended["progress"] for share, ended in self._shares.ended.items()}
        run = summed_run(self._shares.ended.values(), self._started_s, self._status.died)
        self._log.write_statistics(self._summed(run.pages, run.fetched_bytes))
        self._log.write_event(CrawlEvent.ENDED, words)

    async def _facts(self) -> ProgressFacts:
        """One that does not answer now is as it was when it did."""
        replies = await self._shares.ask_all(PROGRESS)
        self._said |= {share: reply["facts"] for share, reply in replies.items() if "facts" in reply}
        now = self._status.snapshot()
        return self._summed(now.pages, now.fetched_bytes)

    def _summed(self, pages: int, fetched_bytes: int) -> ProgressFacts:
        now_s = self._clock()
        rates = self._rates.rates(now_s - self._started_s, pages, fetched_bytes)
        return summed_progress(self._said.values(), now_s, rates, memory_of_process())
