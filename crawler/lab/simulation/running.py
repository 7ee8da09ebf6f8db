"""One simulated crawl of one policy, and its series of samples.

`virtualtime.py` has the engine and the visits; `simulate.py` runs a crawl for each policy and compares them.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from anabranch.crawler.lab.policies.series import NOTHING_YET, Balance, Busy, RunResult, Sample, with_ledger
from anabranch.crawler.lab.simulation.virtualtime import Speed, VirtualClock, VirtualCrawl, Visits
from anabranch.crawler.lab.web.ledger import HostAccounts, PolitenessRule
from anabranch.crawler.lab.web.model import Web
from anabranch.frontier import Candidate, Frontier, FrontierOrder, QueueState, open_frontier
from anabranch.frontier.stores.memory.store import MemoryStore

#: When every simulated crawl begins, epoch seconds: the same results for the same options.
START_S = 1_000_000_000.0
#: Leases between two progress reports.
PROGRESS_EACH = 2000

_LISTED = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """The parts of a simulated crawl."""

    web: Web
    order: FrontierOrder
    rule: PolitenessRule  #: checked by the ledger of virtual time
    workers: int
    seconds: float = math.inf  #: of virtual time, if it is not drained before
    speed: Speed = field(default_factory=Speed)  #: of the crawler itself; a page takes no time by default


class SimulationProgress(NamedTuple):
    """The progress of a run."""

    at_s: float  #: of virtual time, since the start
    active: int  #: workers that hold a URL
    urls: int  #: that have ended


def simulate(model: Model, on_progress: Callable[[SimulationProgress], None]) -> RunResult:
    """Crawl the model's web in virtual time; `on_progress` is called now and then. Raises: PolicyError."""
    clock, store = VirtualClock(START_S), MemoryStore()
    accounts = HostAccounts({site.host: site.crawl_delay_s for site in model.web.sites}, model.rule, clock)
    with _collecting_nothing(), open_frontier(None, model.order, store=store, clock=clock.time_s) as core:
        visits = Visits(model.web, accounts, model.speed, core=core, clock=clock, workers=model.workers)
        crawl = visits.crawl
        core.schedule([Candidate(url) for url in model.web.seeds])
        series = Series(lambda passed: _sample(passed, clock, crawl, visits))
        ended_s = _run(
            crawl, series, model.seconds, lambda at_s: on_progress(SimulationProgress(at_s, crawl.active, visits.urls))
        )
        samples, is_drained = series.close(), core.is_done
        lengths = _lengths(visits, store)
    result = RunResult(
        policy=model.order.policy,
        samples=samples,
        duration_s=ended_s,
        is_drained=is_drained,
        queue_lengths=lengths,
        crawler=Busy(visits.processor.busy_s / ended_s, 0.0) if model.speed.page_s and ended_s else None,
    )
    return with_ledger(result, accounts.ledger())


@contextmanager
def _collecting_nothing() -> Iterator[None]:
    """No garbage collection: there are no cycles among millions of records, and it takes a thirtieth of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _run(crawl: VirtualCrawl, series: Series, seconds: float, on_progress: Callable[[float], None]) -> float:
    """Run until nothing more happens or the time is over; returns the time."""
    clock, end_s, next_report = crawl.clock, START_S + seconds, PROGRESS_EACH
    while True:
        crawl.lease_all()
        if crawl.leases >= next_report:
            next_report += PROGRESS_EACH
            on_progress(clock.now_s - START_S)
        next_s = crawl.next_s()
        if next_s is None or next_s > end_s:
            break
        series.go_on(next_s - START_S, crawl.active)
        crawl.go_on(next_s)
    if next_s is not None:
        series.go_on(seconds, crawl.active)
        clock.advance_to(end_s)
    return clock.now_s - START_S


def _sample(passed: Sample, clock: VirtualClock, crawl: VirtualCrawl, visits: Visits) -> Sample:
    clock.advance_to(START_S + passed.at_s)  # gates open by it
    return Sample(passed.at_s, passed.held_s, passed.peak, *_queues(crawl.core), visits.urls, visits.bytes)


def _queues(core: Frontier) -> tuple[int, int, int]:
    """Ready, parked and snoozed queues. A queue snoozes only if a URL waits for a retry."""
    ready, parked = core.operations.views.ready()
    snoozed = core.operations.statistics().queues[QueueState.SNOOZED.value] if core.counts().waiting else 0
    return ready, parked, snoozed


def _lengths(visits: Visits, store: MemoryStore) -> Balance:
    """Return the balance of the queues by the URLs found: those that ended, and those still queued."""
    lengths = visits.queues.copy()
    for key, count in _left(store):
        lengths[key] += count
    return Balance(lengths.total(), len(lengths), max(lengths.values(), default=0))


def _left(store: MemoryStore) -> Iterator[tuple[str, int]]:
    after: int | None = None
    while facts := store.queues(None, after, _LISTED):
        yield from ((each.row.key, each.count) for each in facts if each.count)
        after = facts[-1].row.id


#: Samples that are kept at most (even). When there are more, every other one is left out, and the rest is sampled half as
#: often.
MOST_SAMPLES = 600


class Series:
    """Samples at the multiples of an interval that begins with `each_s` and is doubled when there are too many.

    Active workers are counted, not sampled: their means and peaks are exact for any interval. `look` completes a sample that
    has the time and the workers.
    """

    def __init__(self, look: Callable[[Sample], Sample], each_s: float = 1.0, most: int = MOST_SAMPLES) -> None:
        self.each_s = each_s
        self.samples: list[Sample] = []
        self._look = look
        self._most = most
        # The sample that is being made, taken apart: time goes on with every event.
        self._now_s = self._held_s = 0.0
        self._peak = 0
        self._due_s = 0.0  # when it is taken
        self._take()

    def go_on(self, at_s: float, active: int) -> None:
        """`active` workers are active until `at_s`; takes the samples that are due before."""
        while True:
            until_s = self._due_s if self._due_s < at_s else at_s  # noqa: FURB136 - a call costs four times as much
            passed_s = until_s - self._now_s
            if passed_s > 0:
                self._now_s = until_s
                self._held_s += active * passed_s
                self._peak = max(self._peak, active)
            if until_s == at_s:
                return
            self._take()

    def close(self) -> tuple[Sample, ...]:
        """All samples, and one of the end."""
        if self.samples[-1].at_s < self._now_s:
            self._take()
        return tuple(self.samples)

    def _take(self) -> None:
        samples = self.samples
        samples.append(self._look(NOTHING_YET._replace(at_s=self._now_s, held_s=self._held_s, peak=self._peak)))
        self._peak = 0
        if len(samples) > self._most:
            samples[2::2] = map(_with_peak_of, samples[2::2], samples[1::2])
            del samples[1::2]
            self.each_s *= 2
        self._due_s = len(samples) * self.each_s


def _with_peak_of(sample: Sample, before: Sample) -> Sample:
    """The sample with the peak of the one before, which is dropped."""
    return sample._replace(peak=max(sample.peak, before.peak))
