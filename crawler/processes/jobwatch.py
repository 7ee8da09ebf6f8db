"""How a job of several processes is doing, by its rows: for the display and its progress log, and to find silent processes."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import structlog

from anabranch.crawler.order.sections import VERSION, ReportSection
from anabranch.crawler.outcomes.endings import WhyEnded, ending_text
from anabranch.crawler.processes.children import Child
from anabranch.crawler.report.logtail import PROGRESS_LOG_FILE
from anabranch.crawler.report.metrics import BUILD, PHASE, ProcessSums, of_running
from anabranch.crawler.report.progress_log import (
    CrawlEvent,
    ProcessMemory,
    ProgressFacts,
    ProgressLog,
    memory_of_process,
)
from anabranch.crawler.report.statistics import RateWindow
from anabranch.crawler.report.summary import RunFacts
from anabranch.crawler.run.job_rows import JobLook, JobRows
from anabranch.crawler.run.metrics import process_numbers
from anabranch.crawler.run.run_state import Phase
from anabranch.crawler.run.status import EVENTS
from anabranch.crawler.run.worker_lines import worker_numbers
from anabranch.frontier.errors import StoreUnavailable
from anabranch.frontier.times import steady_clock

log = structlog.get_logger(__name__)

#: Between two looks at the job's rows.
LOOK_S = 0.5


class JobWatch:
    """Watches one run."""

    def __init__(self, job: JobRows, before: JobLook, logs: Path, report: ReportSection) -> None:
        self.snapshot = job.snapshot(before)  #: of all workers together, at the last look
        self._job = job
        self._before = before
        self._look = before
        self._clock = steady_clock(epoch=lambda: before.now_s)
        self._log = ProgressLog(logs / PROGRESS_LOG_FILE, self._clock)
        self._interval_s = report.statistics_interval_s
        self._rates = RateWindow(self._interval_s)
        self._lease_s = job.order.frontier.worker_lease_s
        self._reported = Phase.STARTING
        self._sums = ProcessSums()

    @property
    def has_begun(self) -> bool:
        """A process has crawled in this run."""
        return self._reported is not Phase.STARTING

    async def run(self, find_ending: Callable[[], WhyEnded | None]) -> None:
        """Look again and again, until cancelled. `find_ending` says why the run ends, if it does."""
        while True:
            # A look that fails ends nothing: the workers report a file that is locked, full or damaged.
            with suppress(StoreUnavailable):
                self._look = await asyncio.to_thread(self._job.look)
                self._take(self._look, find_ending())
            await asyncio.sleep(LOOK_S)

    async def write(self) -> None:
        """Write a line of the progress log at each interval, until cancelled."""

        async def take() -> ProgressFacts:
            return self._progress(self.snapshot.pages, self.snapshot.fetched_bytes)

        await self._log.run(take, self._interval_s)

    def end(self, facts: RunFacts) -> None:
        """All workers have ended: a last line, and why."""
        self._report(Phase.DRAINING, facts.ended)
        self._look = self._look._replace(at_work=[])
        now = facts.frontier
        last = self._progress(facts.run.pages, facts.run.fetched_bytes)._replace(
            discovered=now.accepted, queued=now.pending, downloaded=now.done, failed=now.failed, queues=now.queues
        )
        self._log.write_statistics(last)
        self._log.write_event(CrawlEvent.ENDED, facts.ended)

    def _take(self, look: JobLook, ending: WhyEnded | None) -> None:
        """Pages are counted by rows: those of processes that have died count, too."""
        done, before = look.counts.counters, self._before.counts.counters
        now = self._job.snapshot(look)
        self.snapshot = now._replace(
            elapsed_s=look.now_s - self._before.now_s,
            pages=done.done - before.done,
            failed=done.failed + done.retried - before.failed - before.retried,
            excluded=done.disregarded - before.disregarded,
            fetched_bytes=look.used.fetched_bytes - self._before.used.fetched_bytes,
        )
        if ending is not None:
            self._report(Phase.DRAINING, ending_text(ending, lasts=True))
        elif now.paused:
            self._report(Phase.PAUSED, now.paused)
        elif now.awaits:
            self._report(Phase.WAITING, now.awaits)
        elif any(line.status is not None for line in look.at_work):
            self._report(Phase.RUNNING, Phase.RUNNING.value)

    def _report(self, phase: Phase, words: str) -> None:
        if phase is not self._reported:
            self._reported = phase
            self._log.write_event(EVENTS[phase], words)

    def _progress(self, pages: int, fetched_bytes: int) -> ProgressFacts:
        now, counters = self.snapshot, self._look.counts.counters
        statuses = [line.status for line in self._look.at_work if line.status is not None]
        memory = memory_of_process()
        for one in statuses:
            memory = ProcessMemory(*(has + more for has, more in zip(memory, one["memory"], strict=True)))
        now_s = self._clock()
        return ProgressFacts(
            now_s=now_s,
            discovered=counters.accepted + self._look.counts.links,
            queued=now.pending,
            downloaded=counters.done,
            failed=counters.failed,
            rates=self._rates.rates(now_s - self._before.now_s, pages, fetched_bytes),
            busy=now.active,
            queues={} if now.totals is None else now.totals["queues"],
            parked=now.parked,
            longest=max((one["longest"] for one in statuses), default=0),
            memory=memory,
        )

    def metrics(self) -> dict[str, Any]:
        """The metrics of all processes together, at the last look."""
        own = of_running({**process_numbers(), BUILD: VERSION, PHASE: self._reported.value})
        return self._sums.summed({"parent": own, **worker_numbers(self._look.at_work)})

    async def end_stopped(self, children: Mapping[int, Child]) -> None:
        """Kill processes that somebody has stopped for as long as a lease, again and again, until cancelled.

        A process that is stopped in a transaction keeps all others from theirs, and the looks at the rows, too.
        """
        looks: dict[int, int] = {}
        while True:
            stopped = {number: child for number, child in children.items() if child.is_stopped}
            looks = {child.pid: looks.get(child.pid, 0) + 1 for child in stopped.values()}
            for number, child in stopped.items():
                if looks[child.pid] * LOOK_S > self._lease_s:
                    log.warning("a process of the crawl does not answer; it is killed", worker=number, pid=child.pid)
                    child.signal(signal.SIGKILL)
            await asyncio.sleep(LOOK_S)
