"""How far a simulated run is from a live one of the same web and policy. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

from anabranch.crawler.lab.policies.series import Rate, RunResult, at, rate
from anabranch.crawler.lab.report import Table, shown

#: Curves are compared by their means over so many seconds: a handful of active workers is another handful a second later.
WINDOW_S = 5
#: A deviation above this is told as one that needs a reason.
LARGE = 0.2


class Deviation(NamedTuple):
    """Of one policy: means over the longer of both runs, and what lies between their curves, `WINDOW_S` at a time."""

    policy: str
    live_active: float
    simulated_active: float
    active: float  #: mean of |simulated - live|, as a share of the live mean
    live_urls: float  #: a second
    simulated_urls: float
    urls: float  #: mean of |simulated - live|, as a share of the live mean


def deviation(live: RunResult, simulated: RunResult) -> Deviation:
    """Compare them window by window, from the start to the end of the longer one."""
    end_s = max(live.duration_s, simulated.duration_s)
    edges = [*(number * WINDOW_S for number in range(math.ceil(end_s / WINDOW_S))), end_s]
    pairs = [
        (later - sooner, _between(live, sooner, later), _between(simulated, sooner, later))
        for sooner, later in pairwise(edges)
    ]
    return Deviation(
        live.policy, *_compared(pairs, lambda rate: rate.active), *_compared(pairs, lambda rate: rate.urls_per_s)
    )


def _between(run: RunResult, sooner_s: float, later_s: float) -> Rate:
    return rate(at(run, sooner_s), at(run, later_s))


def _compared(pairs: Sequence[tuple[float, Rate, Rate]], value: Callable[[Rate], float]) -> tuple[float, float, float]:
    """Both means, and the mean distance as a share of the first; infinite if that is 0 and they differ."""
    total_s = sum(span_s for span_s, _, _ in pairs)
    if not total_s:
        return 0.0, 0.0, 0.0
    mean = sum(span_s * value(live) for span_s, live, _ in pairs) / total_s
    simulated_mean = sum(span_s * value(its) for span_s, _, its in pairs) / total_s
    distance = sum(span_s * abs(value(its) - value(live)) for span_s, live, its in pairs) / total_s
    return mean, simulated_mean, distance / mean if mean else math.inf if distance else 0.0


def table(web: str, deviations: Sequence[Deviation]) -> Table:
    """One row for each policy."""
    return Table(
        title=f"{web}: simulated beside live",
        columns=(
            "policy",
            "active workers, live",
            "simulated",
            "off by (%)",
            "URLs/s, live",
            "URLs/s, simulated",
            "URLs/s off by (%)",
        ),
        rows=tuple(
            (
                each.policy,
                *(each.live_active, each.simulated_active, 100 * each.active),
                *(each.live_urls, each.simulated_urls, 100 * each.urls),
            )
            for each in deviations
        ),
        note=(
            f"Means over the longer of both runs. Off by: how far the means over {WINDOW_S} s each are apart, on average, "
            "as a share of the live mean; so two runs with equal means may differ."
        ),
    )


def words(web: str, deviations: Sequence[Deviation]) -> str:
    """One sentence."""
    far = [each for each in deviations if max(each.active, each.urls) > LARGE]
    worst = [
        f"{each.policy} {_percent(each.active)} in active workers and {_percent(each.urls)} in URLs/s" for each in far
    ]
    if not far:
        return f"{web}: the simulation is within {LARGE:.0%} of the live run under every policy."
    which = f"{len(far)} of {len(deviations)} policies"
    return f"{web}: the simulation is more than {LARGE:.0%} off under {which}: {'; '.join(worst)}."


def _percent(share: float) -> str:
    return f"{shown(round(100 * share, 1))} %" if math.isfinite(share) else "beyond measure"
