"""What is known of a run of one policy, second by second, and what follows from it. Pure.

An active worker holds a URL. Time starts when the workers do. A run that is drained has no active worker from then on.
"""

from __future__ import annotations

import statistics
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

from anabranch.crawler.lab.web.ledger import Ledger
from anabranch.frontier.policies.balance import Balance


class Sample(NamedTuple):
    """One moment of a run."""

    at_s: float  #: since the workers started
    held_s: float  #: for which workers held a URL, of all workers together, since the start
    peak: float  #: most active workers since the sample before
    ready: float  #: queues that may be served
    parked: float  #: of these, those whose gates are all closed
    snoozed: float  #: queues all of whose URLs wait for a retry
    urls: float  #: that have ended, since the start
    bytes: float  #: of bodies, since the start


#: The sample of a start.
NOTHING_YET = Sample(0.0, 0, 0, 0, 0, 0, 0, 0)


class HostSeen(NamedTuple):
    """What the server saw of one host during a run."""

    host: str
    requests: int
    most_at_once: int  #: requests that were being answered at the same moment
    shortest_gap_s: float | None  #: from the end of an answer to the next start in its place; None if there was none
    starts_per_s: float | None  #: None with one request
    crawl_delay_s: float | None = None  #: that its robots.txt asks for
    shortest_start_gap_s: float | None = None  #: between starts of two pages


class Busy(NamedTuple):
    """How busy the processor kept a process during a run."""

    share: float  #: CPU seconds a second
    longest_lag_s: float  #: the most that its event loop was late
    waited: float = 0.0  #: seconds a second that its loop's thread could have run and had no processor


class Repeat(NamedTuple):
    """One of several runs, over the time of the shortest of them."""

    active: float  #: mean of active workers
    urls_per_s: float
    duration_s: float  #: its own
    is_kept: bool  #: it is part of the mean


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """One run of one policy, or the mean of several."""

    policy: str
    samples: tuple[Sample, ...]  #: by time; the first at 0 s
    duration_s: float  #: until it was drained or ended
    shortest_s: float | None = None  #: of a mean of several runs: the shortest one's duration
    is_drained: bool
    queue_lengths: Balance  #: how many URLs came to how many queues
    hosts: tuple[HostSeen, ...] = ()  #: as the server saw them, the largest first; empty if nobody looked
    verdict: str = ""  #: of the server's ledger, in words; empty if nobody looked
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
    """Queues by what they could do, as means of samples."""

    ready: float
    parked: float  #: of the ready ones
    snoozed: float


class Rate(NamedTuple):
    """What a run did in the time before a moment, as means of that time."""

    at_s: float
    active: float  #: workers that held a URL
    urls_per_s: float
    bytes_per_s: float


def at(run: RunResult, time_s: float) -> Sample:
    """The run at any moment: between two samples by a straight line; after its end nobody is active. O(log samples)."""
    samples = run.samples
    place = bisect_left(samples, time_s, key=_time)
    if place == len(samples):
        last = samples[-1] if samples else NOTHING_YET
        return last._replace(at_s=time_s) if time_s <= run.duration_s else _ended(last, time_s)
    after = samples[place]
    if after.at_s == time_s or not place:
        return after._replace(at_s=time_s)
    before = samples[place - 1]
    part = (time_s - before.at_s) / (after.at_s - before.at_s)
    between = Sample(*(a + (b - a) * part for a, b in zip(before, after, strict=True)))
    return between._replace(peak=after.peak)


def _time(sample: Sample) -> float:
    return sample.at_s


def _ended(last: Sample, time_s: float) -> Sample:
    return Sample(time_s, last.held_s, 0, 0, 0, 0, last.urls, last.bytes)


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
    """What it did between each two samples; nothing at the start."""
    pairs = [(before, after) for before, after in pairwise(run.samples) if after.at_s > before.at_s]
    return [Rate(0.0, 0.0, 0.0, 0.0), *(rate(before, after) for before, after in pairs)]


def rate(before: Sample, after: Sample) -> Rate:
    """What a run did between two samples. Raises: ZeroDivisionError if no time lies between them."""
    span_s = after.at_s - before.at_s
    held_s, urls, size = after.held_s - before.held_s, after.urls - before.urls, after.bytes - before.bytes
    return Rate(after.at_s, held_s / span_s, urls / span_s, size / span_s)


def with_ledger(run: RunResult, ledger: Ledger) -> RunResult:
    """The run with what the server saw of it."""
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
