"""One run for the repeats of a policy: which of them count, and their mean. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import replace

from anabranch.crawler.lab.policies.series import Busy, HostSeen, Repeat, RunResult, Sample, at, compared_s, means

#: A repeat is dropped if it is farther from the median than so many median deviations.
MOST_DEVIATIONS = 3.0
#: Seconds between two points of an averaged curve, and how many points it has at most.
STEP_S = 1.0
MOST_POINTS = 2000


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
    return _summed_up(repeats, kept([means(run, until_s).active for run in repeats]))


def mean_of_webs(repeats: Sequence[RunResult]) -> RunResult:
    """One run for those of a policy on several webs: nothing disturbed any of them, so all of them count."""
    return _summed_up(repeats, [True] * len(repeats))


def _summed_up(repeats: Sequence[RunResult], kept_ones: Sequence[bool]) -> RunResult:
    until_s = compared_s(repeats)
    good = [run for run, is_kept in zip(repeats, kept_ones, strict=True) if is_kept]
    worst = min(repeats, key=lambda run: run.is_polite)
    return replace(
        averaged(good),
        hosts=_worst_hosts(repeats),
        verdict=worst.verdict,
        is_polite=worst.is_polite,
        dropped=len(repeats) - len(good),
        repeats=tuple(_repeat(run, until_s, is_kept) for run, is_kept in zip(repeats, kept_ones, strict=True)),
    )


def _repeat(run: RunResult, until_s: float, is_kept: bool) -> Repeat:
    its = means(run, until_s)
    return Repeat(its.active, its.urls_per_s, run.duration_s, is_kept)


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
    """The one with the largest share, and the longest lag of all; None if nobody looked."""
    seen = [look for look in looks if look is not None]
    if not seen:
        return None
    return max(seen)._replace(longest_lag_s=max(look.longest_lag_s for look in seen))
