"""The counts of one run, in memory: visits, the steps of workers, times of processors, speed. `accounts` counts all runs."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate
from time import perf_counter
from typing import NamedTuple

from anabranch.crawler.accounts.crawl_log import NO_TYPE
from anabranch.crawler.accounts.totals import type_counted
from anabranch.crawler.extract.links import faults_in
from anabranch.crawler.outcomes.status import FetchStatus
from anabranch.crawler.report.troubles import Troubles
from anabranch.crawler.visit import Visit
from anabranch.frontier.records import OutcomeKind

#: How much of the reason of a seed's failure is kept: it may quote a server.
_MAX_REASON_CHARS = 500


@dataclass(slots=True)
class CrawlStatistics:
    """The counts of this run (the Frontier's totals include earlier runs of the job)."""

    started_s: float  #: epoch seconds
    pages: int = 0  #: URLs that were answered
    failed: int = 0  #: URLs given up
    excluded: int = 0  #: URLs excluded by robots.txt, scope or limits, or skipped
    skipped: int = 0  #: of these, URLs of which a parameter changes nothing
    retries: int = 0  #: tries that are repeated later
    robots: int = 0  #: robots.txt fetched
    fetched_bytes: int = 0  #: of bodies, as they were sent
    broken: int = 0  #: tries in which a processor raised an error
    cdx_unanswered: int = 0  #: pages that were archived without the answer of a CDX server
    active: int = 0  #: workers that hold a URL
    by_status: Counter[int] = field(default_factory=Counter)
    by_mime: Counter[str] = field(default_factory=Counter)
    sitemap_faults: Counter[str] = field(default_factory=Counter)  #: by kind; `sitemaps`: the documents with faults
    seed_failures: dict[str, str] = field(default_factory=dict)  #: seed -> why its last try failed
    troubles: Troubles = field(default_factory=Troubles, compare=False)  #: why tries failed

    def begin_visit(self) -> None:
        """A worker has a URL."""
        self.active += 1

    def end_visit(self) -> None:
        """It has none any more."""
        self.active -= 1

    def count_robots(self) -> None:
        """A robots.txt was fetched."""
        self.robots += 1

    def count_cdx_unanswered(self) -> None:
        """A page is archived without the answer of a CDX server."""
        self.cdx_unanswered += 1

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
                for note in visit.notes:
                    if faults := faults_in(note):
                        self.sitemap_faults.update(faults, sitemaps=1)
            case OutcomeKind.FAILED:
                self.failed += 1
            case OutcomeKind.DISREGARDED:
                self.excluded += 1
                self.skipped += visit.status == FetchStatus.SKIPPED
        self.by_status[visit.status] += 1


@dataclass(slots=True)
class StepTime:
    """How long the visits of this run took in one processor."""

    visits: int = 0
    total_s: float = 0.0
    longest_s: float = 0.0

    @property
    def mean_s(self) -> float:
        """Seconds a visit; 0 if there was none."""
        return self.total_s / self.visits if self.visits else 0.0

    def add(self, taken_s: float) -> None:
        """Add one visit."""
        self.visits += 1
        self.total_s += taken_s
        self.longest_s = max(self.longest_s, taken_s)


#: The upper bounds of the buckets of `LeaseTimes`, in seconds.
LEASE_BOUNDS_S = (0.0001, 0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)


class LeaseTimes:
    """How long workers waited for a lease, in buckets. Cost: 200 ns a lease, with both looks at the clock."""

    def __init__(self) -> None:
        self.total_s = 0.0
        self._counts = [0] * (len(LEASE_BOUNDS_S) + 1)  # the last: longer than every bound

    def add(self, waited_s: float) -> None:
        """Add one lease."""
        self._counts[bisect_left(LEASE_BOUNDS_S, waited_s)] += 1
        self.total_s += waited_s

    def numbers(self) -> dict[str, float]:
        """Leases that took at most so long, by bound, and the `sum` of all times."""
        bounds = (*map(str, LEASE_BOUNDS_S), "+Inf")
        return {**dict(zip(bounds, accumulate(self._counts), strict=True)), "sum": self.total_s}


class WorkerFact(NamedTuple):
    """The URL and the processor of one worker at the moment."""

    number: int
    url: str
    attempts: int  #: tries that counted before this one
    step: str  #: the processor it is in
    in_step_s: float
    since_lease_s: float


@dataclass(slots=True)
class _Position:
    """The position of a worker's visit in the chain. Times are the timer's."""

    url: str
    attempts: int
    leased: float
    entered: float
    step: str = ""  #: empty before the first


class WorkerBoard:
    """The processor in which each worker is, and how long processors take. Cost: 1 µs a step; memory: a row a worker."""

    def __init__(self, timer: Callable[[], float] = perf_counter) -> None:
        self._timer = timer
        self._positions: dict[int, _Position] = {}  # by the worker's number
        self.leases = LeaseTimes()
        self.times: dict[str, StepTime] = defaultdict(StepTime)  #: by processor, in the order of the chain

    def begin(self, worker: int, url: str, attempts: int) -> None:
        """The worker has a URL."""
        now = self._timer()
        self._positions[worker] = _Position(url, attempts, now, now)

    def enter(self, worker: int, step: str) -> None:
        """The worker's visit is in the next processor."""
        position, now = self._positions[worker], self._timer()
        if position.step:
            self.times[position.step].add(now - position.entered)
        position.step, position.entered = step, now

    def end(self, worker: int) -> None:
        """The worker has no URL any more."""
        left, now = self._positions.pop(worker), self._timer()
        if left.step:
            self.times[left.step].add(now - left.entered)

    def facts(self) -> list[WorkerFact]:
        """The workers that have a URL, by number."""
        now = self._timer()
        return [
            WorkerFact(number, at.url, at.attempts, at.step, now - at.entered, now - at.leased)
            for number, at in sorted(self._positions.items())
        ]


class Rates(NamedTuple):
    """The speed of a crawl: now, and on average since it began."""

    pages_now: float  #: a second
    pages_mean: float
    bytes_now: float
    bytes_mean: float


class RateWindow:
    """Rates over the last seconds of a run, from a bounded number of samples, at most one each `step_s`."""

    def __init__(self, window_s: float, step_s: float = 1.0) -> None:
        self._window_s, self._step_s = window_s, step_s
        self._samples: deque[tuple[float, int, int]] = deque([(0.0, 0, 0)], maxlen=max(int(window_s / step_s), 1) + 1)

    def rates(self, elapsed_s: float, pages: int, fetched_bytes: int) -> Rates:
        """Record how far the run is, and return its rates; 0 if no time has passed."""
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
