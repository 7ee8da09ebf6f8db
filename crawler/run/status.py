"""The status of a run: snapshots for the display, the control socket and SIGUSR1, and the lines of progress-statistics.log.

Counters are read at each snapshot. Figures that need a look at all queues come from `ProgressReporter`'s last look.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from anabranch.crawler.report.jobstatus import CrawlSnapshot, status_facts
from anabranch.crawler.report.progress import progress_line
from anabranch.crawler.report.progress_log import (
    CrawlEvent,
    DeepestQueue,
    ProgressFacts,
    ProgressLog,
    memory_of_process,
)
from anabranch.crawler.report.statistics import CrawlStatistics, RateWindow
from anabranch.crawler.run.limits import DiskWatch, RunLimits
from anabranch.crawler.run.run_state import Phase
from anabranch.crawler.run.verbs import Facts, totals_facts, totals_of_counts
from anabranch.frontier import AsyncFrontier, Frontier, FrontierStatistics, QueueState

if TYPE_CHECKING:  # commands on a job need none of it
    from anabranch.crawler.run.composition import RunContext
    from anabranch.crawler.run.services import Services

#: Counts that a look at all queues replaces, or that are no totals.
_LOOKED_UP = frozenset({"queues", "gates", "on_slow_hosts", "trouble"})

#: Seconds between two looks at all queues, at least; and the share of the time that they take at most.
LOOK_S = 2.0
SHARE = 0.02
#: Hosts that the display names.
BUSIEST = 3

#: The events of progress-statistics.log for phases.
EVENTS = {
    Phase.PAUSED: CrawlEvent.PAUSED,
    Phase.WAITING: CrawlEvent.WAITING,
    Phase.RUNNING: CrawlEvent.RUNNING,
    Phase.DRAINING: CrawlEvent.ENDING,
}

log = structlog.get_logger(__name__)


class ProgressReporter:
    """Looks at all queues of one run now and then, and writes progress-statistics.log."""

    def __init__(
        self,
        frontier: AsyncFrontier,
        statistics: CrawlStatistics,
        log: ProgressLog,
        interval_s: float,
        clock: Callable[[], float],
    ) -> None:
        self.latest: FrontierStatistics | None = None  #: at the last look at all queues
        self.busiest: tuple[tuple[str, str], ...] = ()  #: hosts at that time, and what each waits for
        self._frontier = frontier
        self._statistics = statistics
        self._log = log
        self._interval_s = interval_s
        self._clock = clock
        self._rates = RateWindow(interval_s)
        self._deepest = DeepestQueue(self._longest, clock)
        self._last: ProgressFacts | None = None

    async def refresh(self) -> None:
        """Look at all queues again and again, until cancelled."""
        while True:
            begun_s = self._clock()
            self.latest = await self._frontier.statistics()
            views = self._frontier.core.operations.views
            self.busiest = tuple(views.busiest(BUSIEST))
            await asyncio.sleep(max(LOOK_S, (self._clock() - begun_s) / SHARE))

    async def write(self) -> None:
        """Write a line of the log at each interval, until cancelled."""
        await self._log.run(self._facts, self._interval_s)

    def phase_changed(self, phase: Phase, reason: str) -> None:
        """Write the line of a new phase."""
        if phase in EVENTS:
            self._log.write_event(EVENTS[phase], reason)

    async def end(self, reason: str) -> None:
        """The crawl has ended: write a last line, and why."""
        self._log.write_statistics(await self._facts())
        self._log.write_event(CrawlEvent.ENDED, reason)

    def last(self) -> ProgressFacts | None:
        """Return the facts of the log's last line; None before the first."""
        return self._last

    async def _facts(self) -> ProgressFacts:
        run, now = self._statistics, await self._frontier.statistics()
        self.latest = now
        now_s = self._clock()
        self._last = ProgressFacts(
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
        return self._last

    async def _longest(self) -> int:
        views = await self._frontier.look(self._frontier.core.operations.views.longest(1))
        return views[0].urls if views else 0


@dataclass(frozen=True, slots=True)
class RunStatus:
    """Takes snapshots of an open run; each costs a look at counters, O(1)."""

    context: RunContext
    disk: DiskWatch
    frontier: Frontier
    progress: ProgressReporter
    services: Services
    limits: RunLimits
    find_trouble: Callable[[], str] = lambda: ""  #: what the journal waits for; empty if it can write

    def snapshot(self) -> CrawlSnapshot:
        """Take one."""
        context, run, latest = self.context, self.context.statistics, self.progress.latest
        now, wake, now_s = self.frontier.counts(), self.frontier.wake(), context.clock()
        seen = {} if latest is None else latest.seen
        totals = totals_of_counts(now)
        if latest is not None:
            totals = {**totals_facts(latest), **{k: v for k, v in now._asdict().items() if k not in _LOOKED_UP}}
        left = now.pending + now.in_flight + now.retired
        return CrawlSnapshot(
            elapsed_s=now_s - run.started_s,
            pages=run.pages,
            failed=run.failed,
            excluded=run.excluded,
            skipped=run.skipped,
            cdx_unanswered=run.cdx_unanswered,
            retries=run.retries,
            fetched_bytes=run.fetched_bytes,
            active=run.active,
            workers=context.order.crawl.workers,
            on_slow_hosts=now.on_slow_hosts,
            pending=now.pending,
            waiting=now.waiting,
            gates=now.gates,
            queues=now.queues["all"],
            wakes_in_s=None if wake.at_s is None else max(wake.at_s - now_s, 0.0),
            waits_for=wake.waits_for,
            job=context.job.directory.name,
            ready=(now if latest is None else latest).queues[QueueState.READY.value],
            parked=0 if latest is None else latest.parked,
            snoozed=0 if latest is None else latest.queues[QueueState.SNOOZED.value],
            gates_open=0 if latest is None else latest.gates_open,
            broken=run.broken,
            free_bytes=self.disk.free_bytes,
            trouble=now.trouble or self.find_trouble(),
            paused=context.run_state.pause_reason,
            awaits=context.run_state.wait_reason,
            services=tuple(self.services.facts()),
            names_waiting=self.services.names_waiting,
            failing=run.troubles.failing,
            untried=max(left - run.troubles.failing, 0),
            answered=now.done,
            last_trouble=run.troubles.last(now_s),
            shared_left=_whole(seen.get("shared_left")),
            shared_twice=_whole(seen.get("shared_twice")),
            filter=seen or None,
            totals=totals,
            page_limit=self.limits.pages,
            busiest=self.progress.busiest,
            memory_bytes=memory_of_process().in_bytes(),
        )

    def last_line(self) -> ProgressFacts | None:
        """The facts of the progress log's last line; None before the first."""
        return self.progress.last()

    def facts(self) -> Facts:
        """A snapshot as `status --json` shows it."""
        now = self.snapshot()
        return status_facts(now, self.context.run_state.phase.value, progress_line(now), pid=os.getpid())


def opening_facts(context: RunContext) -> Facts:
    """Return the facts of `status --json` while the job is being opened: nothing is counted yet."""
    name, state = context.job.directory.name, context.run_state
    now = CrawlSnapshot(job=name, workers=context.order.crawl.workers, paused=state.pause_reason)
    return status_facts(now, state.phase.value, "", pid=os.getpid())


def log_status(facts: Facts) -> None:
    """Write the status to the program's log: a signal asks for it."""
    log.warning("status", **{name: facts[name] for name in ("phase", "paused", "awaits", "pid", "line")})


def log_frontier_trouble(what: str) -> None:
    """The store or the filter cannot write and tries again; an empty text: it has written."""
    if what:
        log.warning("the crawl waits", waits_for=what)
    else:
        log.warning("the crawl goes on")


def _whole(figure: float | str | None) -> int | None:
    return None if figure is None else int(figure)
