"""How a run is doing at this moment: for the display, for whoever asks through the control socket, for SIGUSR1."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import structlog

from crawler.operating.course import Course
from crawler.operating.limits import DiskWatch
from crawler.orders.order import CrawlOrder
from crawler.reporting.progress import CrawlSnapshot, progress_line
from crawler.reporting.statistics import CrawlStatistics
from frontier.core import Frontier
from frontier.operating.statistics import FrontierStatistics
from frontier.scheduling.lifecycle import QueueState

#: Of a filter in common with other crawls: links left to them, URLs that one of them took, too.
SHARED_COUNTS = ("shared_left", "shared_twice")

log = structlog.get_logger(__name__)


class Status:
    """Takes snapshots of a run; each costs a look at counters, O(1)."""

    def __init__(
        self,
        course: Course,
        statistics: CrawlStatistics,
        disk: DiskWatch,
        order: CrawlOrder,
        job: str,
        clock: Callable[[], float],
    ) -> None:
        self._course = course
        self._statistics = statistics
        self._disk = disk
        self._workers = order.crawl.workers
        self._job = job
        self._clock = clock
        self._frontier: Frontier | None = None
        self._looked: Callable[[], FrontierStatistics | None] = lambda: None

    def look_at(self, frontier: Frontier, looked: Callable[[], FrontierStatistics | None]) -> None:
        """From now on there is a Frontier, and snapshots can be taken; `looked` has the last closer look at it."""
        self._frontier = frontier
        self._looked = looked
        frontier.tell_troubles(_log_trouble)

    def snapshot(self) -> CrawlSnapshot:
        """Take one; there must be a Frontier."""
        assert self._frontier is not None
        now, run, wake = self._frontier.counts(), self._statistics, self._frontier.wake()
        looked = self._looked()
        return CrawlSnapshot(
            elapsed_s=self._clock() - run.started_s,
            pages=run.pages,
            failed=run.failed,
            excluded=run.excluded,
            retries=run.retries,
            fetched_bytes=run.fetched_bytes,
            active=run.active,
            workers=self._workers,
            pending=now.pending,
            waiting=now.waiting,
            gates=now.gates,
            queues=now.queues["all"],
            wakes_in_s=None if wake.at_s is None else max(wake.at_s - self._clock(), 0.0),
            waits_for=wake.waits_for,
            job=self._job,
            ready=(now if looked is None else looked).queues[QueueState.READY.value],
            parked=0 if looked is None else looked.parked,
            snoozed=0 if looked is None else looked.queues[QueueState.SNOOZED.value],
            gates_open=0 if looked is None else looked.gates_open,
            broken=run.broken,
            free_bytes=self._disk.free_bytes,
            trouble=self._frontier.trouble(),
            paused=self._course.words,
        )

    def facts(self) -> dict[str, Any]:
        """The same as JSON holds it: the phase, why it is paused, the process; the snapshot and its line if there is one."""
        facts = {"phase": self._course.phase.value, "paused": self._course.words, "pid": os.getpid()}
        if self._frontier is None:
            return facts
        now = self.snapshot()
        beside = {"waits_for": now.waits_for.name or "", "free_disk_bytes": self._disk.free_bytes}
        if (looked := self._looked()) is not None:
            beside |= {name: int(looked.seen[name]) for name in SHARED_COUNTS if name in looked.seen}
        return {**facts, **now._asdict(), **beside, "line": progress_line(now)}

    def log(self) -> None:
        """Say it in the log: somebody asks by a signal."""
        facts = self.facts()
        log.warning("status", **{name: facts[name] for name in ("phase", "paused", "pid", "line") if name in facts})


def _log_trouble(what: str) -> None:
    """The store or the filter cannot write and tries again, or has written."""
    if what:
        log.warning("the crawl waits", waits_for=what)
    else:
        log.warning("the crawl waits no more")
