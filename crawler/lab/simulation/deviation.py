"""How far a simulated run is from a live one of the same web and policy. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import NamedTuple

from crawler.lab.policies.series import Rate, RunResult, at, rate
from crawler.lab.report import Table, shown

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
    windows = range(max(1, math.ceil(max(live.duration_s, simulated.duration_s) / WINDOW_S)))
    return Deviation(
        live.policy, *_compared(live, simulated, windows, _active), *_compared(live, simulated, windows, _urls)
    )


def _active(run: RunResult, window: int) -> float:
    return _rate(run, window).active


def _urls(run: RunResult, window: int) -> float:
    return _rate(run, window).urls_per_s


def _rate(run: RunResult, window: int) -> Rate:
    return rate(at(run, window * WINDOW_S), at(run, (window + 1) * WINDOW_S))


def _compared(
    live: RunResult, simulated: RunResult, windows: range, value: Callable[[RunResult, int], float]
) -> tuple[float, float, float]:
    """Both means, and the mean distance as a share of the first; infinite if that is 0 and they differ."""
    pairs = [(value(live, window), value(simulated, window)) for window in windows]
    mean, distance = fmean(a for a, _ in pairs), fmean(abs(b - a) for a, b in pairs)
    share = distance / mean if mean else math.inf if distance else 0.0
    return mean, fmean(b for _, b in pairs), share


def table(web: str, deviations: Sequence[Deviation]) -> Table:
    """One row for each policy."""
    return Table(
        title=f"{web}: simulated beside live",
        columns=(
            "policy",
            "active workers, live",
            "simulated",
            "deviation (%)",
            "URLs/s, live",
            "simulated ",
            "deviation (%) ",
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
            f"Means over the longer of both runs. Deviation: how far the means over {WINDOW_S} s each are apart, on average, "
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
