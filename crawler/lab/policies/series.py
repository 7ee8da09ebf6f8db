"""What is known of a run of one policy, second by second, and what follows from it. Pure.

An active worker holds a URL. Time starts when the workers do. A run that is drained has no active worker from then on.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

from frontier.policies.balance import Balance

#: A repeat is dropped if it is farther from the median than so many median deviations.
MOST_DEVIATIONS = 3.0
#: Seconds between two points of an averaged curve, and how many points it has at most.
STEP_S = 1.0
MOST_POINTS = 2000


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


class Busy(NamedTuple):
    """How busy the processor kept a process during a run."""

    share: float  #: CPU seconds a second
    longest_lag_s: float  #: the most that its event loop was late
    waited: float = 0.0  #: seconds a second that its loop's thread could have run and had no processor
    turns: float = 0.0  #: times a second that this thread was given a processor; 0 if nobody looked


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """One run of one policy, or the mean of several."""

    policy: str
    samples: tuple[Sample, ...]  #: by time; the first at 0 s
    duration_s: float  #: until it was drained or ended
    is_drained: bool
    queue_lengths: Balance  #: how many URLs came to how many queues
    hosts: tuple[HostSeen, ...] = ()  #: as the server saw them, the largest first; empty if nobody looked
    verdict: str = ""  #: of the server's ledger, in words; empty if nobody looked
    is_polite: bool = True  #: the ledger is clean
    server: Busy | None = None
    crawler: Busy | None = None
    runs: int = 1  #: repeats that it is the mean of
    dropped: int = 0  #: repeats that were too far off


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
    return min((run.duration_s for run in runs), default=0.0)


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


def kept(values: Sequence[float]) -> list[bool]:
    """Which of repeated measurements count: not farther from their median than `MOST_DEVIATIONS` median deviations.

    With fewer than three nothing can be told and all count; where more than half agree exactly, what differs is dropped.
    """
    if len(values) < 3:
        return [True] * len(values)
    middle = statistics.median(values)
    deviation = statistics.median(abs(value - middle) for value in values)
    return [abs(value - middle) <= MOST_DEVIATIONS * deviation for value in values]


def settled(repeats: Sequence[RunResult]) -> RunResult:
    """One run for the repeats of a policy: those too far off in mean active workers dropped and counted, the rest averaged.

    What must hold for each (the ledger's verdict, the most connections, the shortest gap) is that of the worst of all
    repeats, the dropped ones too. Raises: ValueError without repeats.
    """
    if not repeats:
        raise ValueError("there is no run")
    until_s = compared_s(repeats)
    counts = kept([means(run, until_s).active for run in repeats])
    good = [run for run, counted in zip(repeats, counts, strict=True) if counted]
    worst = min(repeats, key=lambda run: run.is_polite)
    return replace(
        averaged(good),
        hosts=_worst_hosts(repeats),
        verdict=worst.verdict,
        is_polite=worst.is_polite,
        dropped=len(repeats) - len(good),
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
    samples = (_mean_sample([at(run, point) for run in runs]) for point in points)
    return replace(
        first,
        samples=tuple(samples),
        duration_s=statistics.fmean(run.duration_s for run in runs),
        is_drained=all(run.is_drained for run in runs),
        queue_lengths=statistics.median_low(run.queue_lengths for run in runs),
        server=_busiest(run.server for run in runs),
        crawler=_busiest(run.crawler for run in runs),
        runs=len(runs),
    )


def _mean_sample(samples: Sequence[Sample]) -> Sample:
    return Sample(*(statistics.fmean(values) for values in zip(*samples, strict=True)))


def _worst_hosts(runs: Sequence[RunResult]) -> tuple[HostSeen, ...]:
    """Each host as the run saw it in which it was hit hardest, the largest first."""
    seen: dict[str, list[HostSeen]] = {}
    for host in (host for run in runs for host in run.hosts):
        seen.setdefault(host.host, []).append(host)
    worst = (
        HostSeen(
            name,
            max(host.requests for host in looks),
            max(host.most_at_once for host in looks),
            min((host.shortest_gap_s for host in looks if host.shortest_gap_s is not None), default=None),
            max((host.starts_per_s for host in looks if host.starts_per_s is not None), default=None),
        )
        for name, looks in seen.items()
    )
    return tuple(sorted(worst, key=lambda host: (-host.requests, host.host)))


def _busiest(looks: Iterable[Busy | None]) -> Busy | None:
    """The largest share and the longest lag of all; None if nobody looked."""
    seen = [look for look in looks if look is not None]
    return Busy(*map(max, zip(*seen, strict=True))) if seen else None
