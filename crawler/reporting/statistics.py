"""Counts of one run of the crawler, and what its workers do; snapshots of them feed progress and reports."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter
from typing import NamedTuple

from anabranch.crawler.reporting.accounting import type_counted
from anabranch.crawler.reporting.crawl_log import NO_TYPE
from anabranch.crawler.reporting.troubles import Troubles
from anabranch.crawler.visit import Visit
from anabranch.frontier.models import OutcomeKind

#: How much of why a seed failed is kept: a server's words may stand in it.
_MAX_REASON_CHARS = 500


@dataclass(slots=True)
class CrawlStatistics:
    """What this run has done so far (earlier runs of the job are in the Frontier's totals)."""

    started_s: float  #: epoch seconds
    pages: int = 0  #: URLs that were answered
    failed: int = 0  #: URLs given up
    excluded: int = 0  #: URLs that were not fetched on purpose
    retries: int = 0  #: tries that will be repeated
    robots: int = 0  #: robots.txt fetched
    fetched_bytes: int = 0  #: bodies, as they came
    broken: int = 0  #: tries in which a processor of ours broke
    active: int = 0  #: workers that hold a URL
    by_status: Counter[int] = field(default_factory=Counter)
    by_mime: Counter[str] = field(default_factory=Counter)
    seed_failures: dict[str, str] = field(default_factory=dict)  #: seed -> why its last try failed
    troubles: Troubles = field(default_factory=Troubles, compare=False)  #: why tries failed

    def count(self, visit: Visit, kind: OutcomeKind) -> None:
        """Count one ended visit."""
        if visit.response is not None:
            self.fetched_bytes += visit.response.body.size
        self.broken += visit.broken is not None
        if visit.failure is None:
            self.seed_failures.pop(visit.lease.url, None)
        elif not visit.lease.hops:
            self.seed_failures[visit.lease.url] = str(visit.failure)[:_MAX_REASON_CHARS]
        match kind:
            case OutcomeKind.RETRY:
                self.retries += 1
                return
            case OutcomeKind.DEFERRED | OutcomeKind.RETIRE:
                return
            case OutcomeKind.DONE:
                self.pages += 1
                self.by_mime[type_counted(visit.mime or NO_TYPE, self.by_mime)] += 1
            case OutcomeKind.FAILED:
                self.failed += 1
            case OutcomeKind.DISREGARDED:
                self.excluded += 1
        self.by_status[visit.status] += 1


@dataclass(slots=True)
class StepTime:
    """How long the visits of this run were in one processor."""

    visits: int = 0
    total_s: float = 0.0
    longest_s: float = 0.0

    @property
    def mean_s(self) -> float:
        """Seconds a visit; 0 if there was none."""
        return self.total_s / self.visits if self.visits else 0.0


class WorkerFact(NamedTuple):
    """What one worker does at the moment."""

    number: int
    url: str
    attempts: int  #: tries that counted before this one
    step: str  #: the processor it is in
    in_step_s: float
    since_lease_s: float


@dataclass(slots=True)
class _AtWork:
    url: str
    attempts: int
    leased: float
    step: str
    entered: float


class WorkerBoard:
    """Who is in which processor, and how long processors take. Cost: 1 µs a step; memory: a row a worker."""

    def __init__(self, timer: Callable[[], float] = perf_counter) -> None:
        self._timer = timer
        self._at_work: dict[int, _AtWork] = {}
        self.times: dict[str, StepTime] = {}  #: by processor, in the order of the chain

    def begin(self, worker: int, url: str, attempts: int) -> None:
        """The worker has a URL."""
        now = self._timer()
        self._at_work[worker] = _AtWork(url, attempts, now, "", now)

    def enter(self, worker: int, step: str) -> None:
        """The worker's visit is in the next processor."""
        row = self._at_work[worker]
        now = self._timer()
        if row.step:
            self._leave(row, now)
        row.step, row.entered = step, now

    def end(self, worker: int) -> None:
        """The worker has no URL any more."""
        row = self._at_work.pop(worker)
        if row.step:
            self._leave(row, self._timer())

    def facts(self) -> list[WorkerFact]:
        """The workers that have a URL, by number."""
        now = self._timer()
        return [
            WorkerFact(number, row.url, row.attempts, row.step, now - row.entered, now - row.leased)
            for number, row in sorted(self._at_work.items())
        ]

    def _leave(self, row: _AtWork, now: float) -> None:
        time = self.times.get(row.step)
        if time is None:
            time = self.times[row.step] = StepTime()
        taken = now - row.entered
        time.visits += 1
        time.total_s += taken
        if taken > time.longest_s:  # noqa: PLR1730  `max` is a call, and this runs some eight times a page
            time.longest_s = taken


#: What a processor is called in reports, by its class.
_STEP_NAMES = {
    "RobotsPrecondition": "preconditions",
    "NoRobots": "preconditions",
    "Unlike": "similar",
    "FetchPage": "fetch",
    "ExtractPage": "extract",
    "NamePrecondition": "names",
}


def step_name(processor: object) -> str:
    """What a processor is called in reports: an own one by the name of its function or class."""
    name = getattr(processor, "__name__", None) or type(processor).__name__
    return _STEP_NAMES.get(name, name.lower())


class Rates(NamedTuple):
    """How fast a crawl is: now, and since it began."""

    pages_now: float  #: a second
    pages_mean: float
    bytes_now: float
    bytes_mean: float


class RateWindow:
    """Rates over the last seconds of a run, or since it was last asked if that is longer ago.

    A bounded number of samples, no more than one each `step_s`.
    """

    def __init__(self, window_s: float, step_s: float = 1.0) -> None:
        self._window_s, self._step_s = window_s, step_s
        self._samples: deque[tuple[float, int, int]] = deque([(0.0, 0, 0)], maxlen=max(int(window_s / step_s), 1) + 1)

    def rates(self, elapsed_s: float, pages: int, fetched_bytes: int) -> Rates:
        """Note how far the run is, and answer its rates; 0 where no time has passed."""
        if elapsed_s - self._samples[-1][0] >= self._step_s:
            self._samples.append((elapsed_s, pages, fetched_bytes))
        while len(self._samples) > 1 and elapsed_s - self._samples[1][0] >= self._window_s:
            self._samples.popleft()
        then_s, pages_then, bytes_then = self._samples[0]
        span_s = elapsed_s - then_s
        return Rates(
            _rate(pages - pages_then, span_s),
            _rate(pages, elapsed_s),
            _rate(fetched_bytes - bytes_then, span_s),
            _rate(fetched_bytes, elapsed_s),
        )


def _rate(number: int, span_s: float) -> float:
    return number / span_s if span_s > 0 else 0.0
