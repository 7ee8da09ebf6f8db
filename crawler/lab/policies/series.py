"""Runs of queue policies, second by second: samples, means, averages of repeats, and comparisons. Pure.

An active worker holds a URL. Time starts when the workers do. A run that is drained has no active worker from then on.
`compare.py` and the simulation produce the runs; `report.py` shows them.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

from anabranch.crawler.lab.web.ledger import PolitenessLedger
from anabranch.frontier.records import QueueKey


class Balance(NamedTuple):
    """How many URLs came to how many queues."""

    urls: int
    queues: int  #: queues that got any
    longest: int  #: URLs of the longest

    @property
    def mean(self) -> float:
        """URLs per queue that got any; 0 if there are none."""
        return self.urls / self.queues if self.queues else 0.0

    @property
    def max_over_mean(self) -> float:
        """The longest queue in shares: 1 is perfect; the number of queues, if one has nearly all. 0 if there are none."""
        return self.longest / self.mean if self.queues else 0.0


def balance(keys: Iterable[QueueKey]) -> Balance:
    """The balance of an assignment, from the key of each URL. Cost: O(URLs)."""
    lengths = Counter(keys)
    return Balance(lengths.total(), len(lengths), max(lengths.values(), default=0))


class Sample(NamedTuple):
    """One moment of a run."""

    at_s: float  #: since the workers started
    held_s: float  #: total time for which workers held a URL, since the start
    peak: float  #: most active workers since the sample before
    ready: float  #: queues that may be served
    parked: float  #: ready queues with all gates closed
    snoozed: float  #: queues with nothing but URLs that wait for a retry
    urls: float  #: that have ended, since the start
    bytes: float  #: of bodies, since the start


#: The sample of a start.
NOTHING_YET = Sample(0.0, 0, 0, 0, 0, 0, 0, 0)


class HostSeen(NamedTuple):
    """The requests to one host during a run, as the server saw them."""

    host: str
    requests: int
    most_at_once: int  #: requests that were being answered at the same moment
    shortest_gap_s: float | None  #: from the end of an answer to the next start in its place; None if there was none
    starts_per_s: float | None  #: None with one request
    crawl_delay_s: float | None = None  #: that its robots.txt asks for
    shortest_start_gap_s: float | None = None  #: between starts of two pages


class Busy(NamedTuple):
    """How busy a process was during a run."""

    share: float  #: CPU seconds a second
    longest_lag_s: float  #: the most that its event loop was late
    waited: float = 0.0  #: seconds a second that its main thread was runnable but waited for the processor


class Repeat(NamedTuple):
    """One of several runs, over the time of the shortest of them."""

    active: float  #: mean of active workers
    urls_per_s: float
    duration_s: float  #: its own
    is_kept: bool  #: it is part of the mean
    compared_active: float | None = None  #: `active` over the time of the shortest run of any policy; None: unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """One run of one policy, or the mean of several."""

    policy: str
    samples: tuple[Sample, ...]  #: by time; the first at 0 s
    duration_s: float  #: until it was drained or ended
    shortest_s: float | None = None  #: of a mean of several runs: the shortest one's duration
    is_drained: bool
    queue_lengths: Balance  #: how many URLs came to how many queues
    hosts: tuple[HostSeen, ...] = ()  #: as the server saw them, the largest first; empty if unknown
    verdict: str = ""  #: of the server's ledger, as text; empty if unknown
    is_polite: bool = True  #: the ledger is clean
    server: Busy | None = None
    crawler: Busy | None = None
    runs: int = 1  #: repeats that it is the mean of
    dropped: int = 0  #: repeats that were too far off
    repeats: tuple[Repeat, ...] = ()  #: each by itself, the dropped ones, too


class Means(NamedTuple):
    """A run over an interval from its start."""

    active: float  #: mean of active workers
    peak: float  #: most active workers
    urls_per_s: float
    bytes_per_s: float


class MeanQueues(NamedTuple):
    """Numbers of queues by state, as means of samples."""

    ready: float
    parked: float  #: of the ready ones
    snoozed: float


class Rate(NamedTuple):
    """The rates of a run in an interval, by its end."""

    at_s: float
    active: float  #: workers that held a URL
    urls_per_s: float
    bytes_per_s: float


def at(run: RunResult, time_s: float) -> Sample:
    """The run at any moment, interpolated between samples; after its end no worker is active. O(log samples)."""
    samples = run.samples
    place = bisect_left(samples, time_s, key=lambda sample: sample.at_s)
    if place == len(samples):
        last = (samples[-1] if samples else NOTHING_YET)._replace(at_s=time_s)
        return last if time_s <= run.duration_s else last._replace(peak=0, ready=0, parked=0, snoozed=0)
    after = samples[place]
    if after.at_s == time_s or not place:
        return after._replace(at_s=time_s)
    before = samples[place - 1]
    part = (time_s - before.at_s) / (after.at_s - before.at_s)
    between = Sample(*(a + (b - a) * part for a, b in zip(before, after, strict=True)))
    return between._replace(peak=after.peak)


def compared_s(runs: Sequence[RunResult]) -> float:
    """The interval over which runs are compared: that of the shortest, in which all of them had work. 0 without runs."""
    return min((run.duration_s if run.shortest_s is None else run.shortest_s for run in runs), default=0.0)


def means(run: RunResult, until_s: float) -> Means:
    """Means from the start to `until_s`, weighted by time."""
    if until_s <= 0:
        return Means(0.0, 0.0, 0.0, 0.0)
    last = at(run, until_s)
    peak = max(last.peak, *(sample.peak for sample in run.samples if sample.at_s < until_s), 0)
    return Means(last.held_s / until_s, peak, last.urls / until_s, last.bytes / until_s)


def mean_queues(run: RunResult, until_s: float) -> MeanQueues:
    """Means of the samples from the start to `until_s`; 0 without samples."""
    inside = [sample for sample in run.samples if sample.at_s <= until_s]
    if not inside:
        return MeanQueues(0.0, 0.0, 0.0)
    return MeanQueues(
        *map(statistics.fmean, zip(*((each.ready, each.parked, each.snoozed) for each in inside), strict=True))
    )


def rates(run: RunResult) -> list[Rate]:
    """The rates between each two samples, and 0 at the start."""
    pairs = [(before, after) for before, after in pairwise(run.samples) if after.at_s > before.at_s]
    return [Rate(0.0, 0.0, 0.0, 0.0), *(rate(before, after) for before, after in pairs)]


def rate(before: Sample, after: Sample) -> Rate:
    """The rates between two samples. Raises: ZeroDivisionError if they have the same time."""
    span_s = after.at_s - before.at_s
    held_s, urls, size = after.held_s - before.held_s, after.urls - before.urls, after.bytes - before.bytes
    return Rate(after.at_s, held_s / span_s, urls / span_s, size / span_s)


def with_ledger(run: RunResult, ledger: PolitenessLedger) -> RunResult:
    """The run with the server's ledger."""
    hosts = (
        HostSeen(
            host=each.host,
            requests=each.requests,
            most_at_once=each.most_at_once,
            shortest_gap_s=each.shortest_gap_s,
            starts_per_s=each.starts_per_s,
            crawl_delay_s=each.crawl_delay_s,
            shortest_start_gap_s=each.shortest_start_gap_s,
        )
        for each in ledger.hosts
    )
    return replace(run, hosts=tuple(hosts), verdict=ledger.verdict(), is_polite=ledger.is_kept)


#: A repeat is dropped if it is farther from the median than so many median deviations.
MOST_DEVIATIONS = 3.0
#: Seconds between two points of an averaged curve, and how many points it has at most.
STEP_S = 1.0
MOST_POINTS = 2000


def kept(values: Sequence[float]) -> list[bool]:
    """Which of repeated measurements count: not farther from their median than `MOST_DEVIATIONS` median deviations.

    Fewer than three all count; if more than half agree exactly, the others are dropped.
    """
    if len(values) < 3:
        return [True] * len(values)
    middle = statistics.median(values)
    deviation = statistics.median(abs(value - middle) for value in values)
    return [abs(value - middle) <= MOST_DEVIATIONS * deviation for value in values]


def settled(repeats: Sequence[RunResult], common_s: float | None = None) -> RunResult:
    """One run for the repeats of a policy: outliers in mean active workers are dropped and counted, the rest averaged.

    `common_s`: the time in which all policies had work, over which repeats of several policies compare. Verdict, most
    connections and shortest gap are the worst of all repeats, the dropped ones too. Raises: ValueError without repeats.
    """
    if not repeats:
        raise ValueError("there is no run")
    until_s = compared_s(repeats)
    return _summed_up(repeats, kept([means(run, until_s).active for run in repeats]), common_s)


def mean_of_webs(repeats: Sequence[RunResult], common_s: float | None = None) -> RunResult:
    """One run for those of a policy on several simulated webs, which all count; `common_s` as for `settled`."""
    return _summed_up(repeats, [True] * len(repeats), common_s)


def _summed_up(repeats: Sequence[RunResult], kept_ones: Sequence[bool], common_s: float | None) -> RunResult:
    until_s = compared_s(repeats)
    good = [run for run, is_kept in zip(repeats, kept_ones, strict=True) if is_kept]
    worst = min(repeats, key=lambda run: run.is_polite)
    return replace(
        averaged(good),
        hosts=_worst_hosts(repeats),
        verdict=worst.verdict,
        is_polite=worst.is_polite,
        dropped=len(repeats) - len(good),
        repeats=tuple(
            Repeat(
                its.active,
                its.urls_per_s,
                run.duration_s,
                is_kept,
                None if common_s is None else means(run, common_s).active,
            )
            for run, is_kept in zip(repeats, kept_ones, strict=True)
            for its in (means(run, until_s),)
        ),
    )


def averaged(runs: Sequence[RunResult]) -> RunResult:
    """The mean of runs, on points one `STEP_S` (of a very long run: more) apart up to the end of the longest.

    One run stays as it is.
    """
    first = runs[0]
    if len(runs) == 1:
        return first
    end_s = max(run.duration_s for run in runs)
    step_s = max(STEP_S, end_s / MOST_POINTS)
    points = [number * step_s for number in range(math.ceil(end_s / step_s))] + [end_s]
    peaks = _peaks(runs, step_s)
    samples = (
        _mean_sample([at(run, point) for run in runs])._replace(peak=peaks.get(math.ceil(point / step_s), 0))
        for point in points
    )
    return replace(
        first,
        samples=tuple(samples),
        duration_s=statistics.fmean(run.duration_s for run in runs),
        shortest_s=compared_s(runs),
        is_drained=all(run.is_drained for run in runs),
        queue_lengths=statistics.median_low(run.queue_lengths for run in runs),
        server=_busiest(run.server for run in runs),
        crawler=_busiest(run.crawler for run in runs),
        runs=len(runs),
    )


def _mean_sample(samples: Sequence[Sample]) -> Sample:
    return Sample(*(statistics.fmean(values) for values in zip(*samples, strict=True)))


def _peaks(runs: Sequence[RunResult], step_s: float) -> dict[int, float]:
    """The most active workers of any run in each step, by the number of its end."""
    peaks: dict[int, float] = {}
    for sample in (sample for run in runs for sample in run.samples):
        step = math.ceil(sample.at_s / step_s)
        peaks[step] = max(sample.peak, peaks.get(step, 0))
    return peaks


def _worst_hosts(runs: Sequence[RunResult]) -> tuple[HostSeen, ...]:
    """Each host with its mean requests and the worst that any run did to it, the largest first."""
    seen: dict[str, list[HostSeen]] = {}
    for host in (host for run in runs for host in run.hosts):
        seen.setdefault(host.host, []).append(host)
    worst = (_worst_of(looks, len(runs)) for looks in seen.values())
    return tuple(sorted(worst, key=lambda host: (-host.requests, host.host)))


def _worst_of(looks: Sequence[HostSeen], runs: int) -> HostSeen:
    return looks[0]._replace(
        requests=round(sum(host.requests for host in looks) / runs),
        most_at_once=max(host.most_at_once for host in looks),
        shortest_gap_s=_least(host.shortest_gap_s for host in looks),
        starts_per_s=max((host.starts_per_s for host in looks if host.starts_per_s is not None), default=None),
        shortest_start_gap_s=_least(host.shortest_start_gap_s for host in looks),
    )


def _least(gaps: Iterable[float | None]) -> float | None:
    return min((gap_s for gap_s in gaps if gap_s is not None), default=None)


def _busiest(looks: Iterable[Busy | None]) -> Busy | None:
    """The largest share, and the longest lag; None if unknown."""
    seen = [look for look in looks if look is not None]
    if not seen:
        return None
    return max(seen)._replace(longest_lag_s=max(look.longest_lag_s for look in seen))


#: The set-ups: that of the published experiment; ours; no delays.
PAPER, POLITE, OFF = "paper", "polite", "off"
POLITENESSES = (PAPER, POLITE, OFF)


#: A process that takes more than this share of a core has no time to spare.
MOST_BUSY = 0.8
#: The same holds for a crawler that was once later than this, or than the median latency, when a second began.
LATE_CRAWLER_S = 0.1
#: The same holds for a server that was once later than this with one of about ten thousand answers.
LATE_SERVER_S = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The common conditions of all runs of a comparison."""

    web: str  #: what was crawled, in two or three words
    size: str  #: of the web, in words
    hosts: int  #: 0: unknown
    workers: int
    politeness: str  #: one of `POLITENESSES`
    connections: int  #: slots of a host's gate, under `polite`
    delays: str  #: in words, with how they are scaled
    machine: str = ""  #: the other load of the machine, as text
    latency_s: float = 0.0  #: median, of a generated web; 0: unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyComparison:
    """Policies on one web."""

    setting: Setting
    runs: tuple[RunResult, ...]  #: one for each policy, in the order in which they were named
    simulated: tuple[RunResult, ...] = ()  #: of the same policies, drawn dashed


class Bound(NamedTuple):
    """The maximum of concurrent fetches, if nothing has to rest."""

    fetches: int
    words: str  #: the cause of the bound


def bound(setting: Setting, run: RunResult) -> Bound:
    """A worker fetches one URL, a queue has one in flight, and under `polite` a host has as many as its gate has slots.

    Unknown hosts set no bound.
    """
    bounds = [
        Bound(setting.workers, _many(setting.workers, "worker")),
        Bound(run.queue_lengths.queues, _many(run.queue_lengths.queues, "queue")),
    ]
    if setting.politeness == POLITE and setting.hosts:
        slots = _many(setting.connections, "slot")
        bounds.append(Bound(setting.hosts * setting.connections, f"{_many(setting.hosts, 'host')} with {slots} each"))
    return min(bounds)


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' if count != 1 else ''}"


def is_crawler_limit(setting: Setting, run: RunResult) -> bool:
    """Whether the crawler itself was the limit: its workers waited for the processor, too."""
    return _has_no_time(run.crawler, max(LATE_CRAWLER_S, setting.latency_s))


def is_server_limit(run: RunResult) -> bool:
    """Whether the server may have been the limit."""
    return _has_no_time(run.server, LATE_SERVER_S)


def _has_no_time(process: Busy | None, late_s: float) -> bool:
    return process is not None and (process.share > MOST_BUSY or process.longest_lag_s > late_s)


def ranked(runs: Sequence[RunResult]) -> list[tuple[RunResult, Means]]:
    """The runs with their means over the interval that they are compared over, most active workers first."""
    until_s = compared_s(runs)
    return sorted(((run, means(run, until_s)) for run in runs), key=lambda ranked: -ranked[1].active)
