"""One simulated crawl of one policy."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from anabranch.crawler.lab.policies.series import Busy, RunResult, Sample, with_ledger
from anabranch.crawler.lab.simulation.processor import Speed
from anabranch.crawler.lab.simulation.sampling import Series
from anabranch.crawler.lab.simulation.virtualtime import VirtualClock, VirtualCrawl
from anabranch.crawler.lab.simulation.visits import Visits
from anabranch.crawler.lab.web.ledger import Books, Rule
from anabranch.crawler.lab.web.model import Web
from anabranch.frontier.composition import open_frontier
from anabranch.frontier.core import Frontier
from anabranch.frontier.models import Candidate
from anabranch.frontier.order import FrontierOrder
from anabranch.frontier.policies.balance import Balance
from anabranch.frontier.scheduling.lifecycle import QueueState
from anabranch.frontier.stores.memory import MemoryStore

#: When every simulated crawl begins, epoch seconds: the same results for the same options.
START_S = 1_000_000_000.0
#: Leases between two words of progress.
TOLD_EACH = 2000

_LISTED = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """What a simulated crawl is made of."""

    web: Web
    order: FrontierOrder
    rule: Rule  #: what a host is owed: the ledger of virtual time is held against it
    workers: int
    seconds: float = math.inf  #: of virtual time, if it is not drained before
    speed: Speed = field(default_factory=Speed)  #: of the crawler itself; a page takes no time by default


class Course(NamedTuple):
    """How far a run is."""

    at_s: float  #: of virtual time, since the start
    active: int  #: workers that hold a URL
    urls: int  #: that have ended


def simulate(model: Model, tell: Callable[[Course], None]) -> RunResult:
    """Crawl the model's web in virtual time; `tell` hears now and then how far it is. Raises: PolicyError."""
    clock, store = VirtualClock(START_S), MemoryStore()
    books = Books({site.host: site.crawl_delay_s for site in model.web.sites}, model.rule, clock)
    visits = Visits(model.web, books, model.speed)
    with _collecting_nothing(), open_frontier(None, model.order, store=store, clock=clock.time_s) as core:
        crawl = visits.crawl = VirtualCrawl(core, clock, model.workers, visits.begin)
        core.schedule([Candidate(url) for url in model.web.seeds])
        series = Series(lambda passed: _sample(passed, clock, crawl, visits))
        ended_s = _run(crawl, series, model.seconds, lambda at_s: tell(Course(at_s, crawl.active, visits.urls)))
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
    return with_ledger(result, books.ledger())


@contextmanager
def _collecting_nothing() -> Iterator[None]:
    """No look for garbage with cycles: there is none among millions of records, and looking takes a thirtieth of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _run(crawl: VirtualCrawl, series: Series, seconds: float, tell: Callable[[float], None]) -> float:
    """Until nothing happens any more, or so late; answers how late it is then."""
    clock, end_s, told = crawl.clock, START_S + seconds, TOLD_EACH
    while True:
        crawl.lease_all()
        if crawl.leases >= told:
            told += TOLD_EACH
            tell(clock.now_s - START_S)
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
    ready, parked = core.operations.looking.ready()
    snoozed = core.statistics().queues[QueueState.SNOOZED.value] if core.counts().waiting else 0
    return ready, parked, snoozed


def _lengths(visits: Visits, store: MemoryStore) -> Balance:
    """Of all URLs that were found: those that ended, and those that still stand in their queues."""
    lengths = visits.queues.copy()
    for key, count in _left(store):
        lengths[key] += count
    return Balance(lengths.total(), len(lengths), max(lengths.values(), default=0))


def _left(store: MemoryStore) -> Iterator[tuple[str, int]]:
    after: int | None = None
    while facts := store.queues(None, after, _LISTED):
        yield from ((each.row.key, each.count) for each in facts if each.count)
        after = facts[-1].row.id
