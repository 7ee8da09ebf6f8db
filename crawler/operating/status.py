"""How a run is doing at this moment: for the display, for whoever asks through the control socket, for SIGUSR1."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from types import MappingProxyType

import structlog

from anabranch.crawler.operating.arguments import Facts
from anabranch.crawler.operating.course import Course
from anabranch.crawler.operating.limits import DiskWatch
from anabranch.crawler.operating.verbs import totals_facts, totals_of_counts
from anabranch.crawler.orders.order import CrawlOrder
from anabranch.crawler.reporting.progress import CrawlSnapshot, progress_line
from anabranch.crawler.reporting.statistics import CrawlStatistics
from anabranch.crawler.reporting.troubles import Trouble
from anabranch.frontier.core import Frontier
from anabranch.frontier.models import WaitsFor
from anabranch.frontier.operating.statistics import FrontierCounts, FrontierStatistics
from anabranch.frontier.scheduling.lifecycle import QueueState

#: The phase of a job that nobody crawls.
STOPPED = "stopped"
#: What of a snapshot is not shown by its name.
_INSIDE = frozenset({"failing", "untried", "answered", "free_bytes"})

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
        looked, now_s = self._looked(), self._clock()
        seen = {} if looked is None else looked.seen
        totals = totals_of_counts(now) if looked is None else {**totals_facts(looked), **_fresh(now)}
        left = now.pending + now.in_flight + now.retired
        return CrawlSnapshot(
            elapsed_s=now_s - run.started_s,
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
            wakes_in_s=None if wake.at_s is None else max(wake.at_s - now_s, 0.0),
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
            failing=run.troubles.failing,
            untried=max(left - run.troubles.failing, 0),
            answered=now.done,
            last_trouble=run.troubles.last(now_s),
            shared_left=_whole(seen.get("shared_left")),
            shared_twice=_whole(seen.get("shared_twice")),
            totals=totals,
        )

    def facts(self) -> Facts:
        """The same as `status --json` shows it; while the job is being opened there is nothing to count yet."""
        now = CrawlSnapshot(job=self._job, workers=self._workers) if self._frontier is None else self.snapshot()
        line = "" if self._frontier is None else progress_line(now)
        now = now._replace(paused=self._course.words, free_bytes=self._disk.free_bytes)
        return status_facts(now, self._course.phase.value, line, pid=os.getpid())

    def log(self) -> None:
        """Say it in the log: somebody asks by a signal."""
        facts = self.facts()
        log.warning("status", **{name: facts[name] for name in ("phase", "paused", "pid", "line")})


def status_facts(
    now: CrawlSnapshot,
    phase: str,
    line: str,
    *,
    pid: int | None = None,
    processes: Mapping[str, int] = MappingProxyType({}),
    is_finished: bool = False,
    share: Facts | None = None,
) -> Facts:
    """What `status --json` shows: one shape for every job, running or not, which docs/status.schema.json documents. Pure."""
    facts = {name: value for name, value in now._asdict().items() if name not in _INSIDE}
    return {
        "phase": phase,
        "is_finished": is_finished,
        "pid": pid,
        "processes": dict(processes),
        "share": share,
        **facts,
        "waits_for": now.waits_for.name or WaitsFor.NOTHING.name,
        "free_disk_bytes": now.free_bytes,
        "last_trouble": None if now.last_trouble is None else now.last_trouble._asdict(),
        "no_seed_answered": now.is_unanswered,
        "line": line,
    }


def stopped_facts(
    job: str, totals: Facts, trouble: Trouble | None, *, is_done: bool, share: Facts | None = None
) -> Facts:
    """The same of a job that nobody crawls: its totals, and nothing that a run would count. Pure."""
    queues: Mapping[str, int] = totals["queues"]
    is_finished = is_done and not totals["retired"]
    goes_on = "with its job" if share is not None else "with it"
    now = CrawlSnapshot(
        job=job,
        pending=totals["pending"],
        waiting=totals["waiting"],
        queues=sum(queues.values()),
        ready=queues.get(QueueState.READY.value, 0),
        snoozed=queues.get(QueueState.SNOOZED.value, 0),
        gates_open=totals["gates_open"],
        last_trouble=trouble,
        totals=totals,
    )
    line = "finished: nothing is queued" if is_finished else f"not running; `anabranch crawl` goes on {goes_on}"
    return status_facts(now, STOPPED, line, is_finished=is_finished, share=share)


def _fresh(counts: FrontierCounts) -> Facts:
    """What of the totals is counted all the time."""
    return {name: getattr(counts, name) for name in FrontierCounts._fields if name not in {"queues", "gates"}}


def _whole(figure: float | None) -> int | None:
    return None if figure is None else int(figure)


def _log_trouble(what: str) -> None:
    """The store or the filter cannot write and tries again, or has written."""
    if what:
        log.warning("the crawl waits", waits_for=what)
    else:
        log.warning("the crawl waits no more")
