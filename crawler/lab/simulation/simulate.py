"""`anabranch lab simulate`: policies compared in virtual time, alone or with a live comparison.

The options come first, then the runs (each by `running.py`), then the deviation of simulated runs from live ones. Tables and
panels are those of `crawler.lab.policies`.
"""

from __future__ import annotations

import math
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from anabranch.crawler.job.frontier import frontier_order
from anabranch.crawler.lab.policies import saved
from anabranch.crawler.lab.policies.options import (
    DEFAULT_POLICIES,
    WEB_WORDS,
    PolicyOptions,
    delay_words,
    order_for,
    refuse_unused,
    rule_of,
    warn,
)
from anabranch.crawler.lab.policies.options import check as check_policies
from anabranch.crawler.lab.policies.report import report_of
from anabranch.crawler.lab.policies.series import (
    POLITE,
    PolicyComparison,
    Rate,
    RunResult,
    Setting,
    at,
    compared_s,
    mean_of_webs,
    rate,
)
from anabranch.crawler.lab.report import LabReport, OnProgress, Table, shown
from anabranch.crawler.lab.simulation.running import Model, SimulationProgress, simulate
from anabranch.crawler.lab.simulation.virtualtime import Speed
from anabranch.crawler.lab.web.model import Web, WebOptions
from anabranch.crawler.lab.web.replay import replayed_file
from anabranch.crawler.lab.web.shape import KINDS, make_web
from anabranch.crawler.outcomes.errors import UsageError
from anabranch.frontier import FrontierOrder

#: Times of real crawls: Heritrix's delays, and a median latency.
MIN_DELAY_S = 3.0
MAX_DELAY_S = 30.0
LATENCY_S = 1.0

#: The options that may be given with `--beside`; its file has the others.
_WITH_BESIDE = ("beside", "page_cost_s", "links")


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationOptions:
    """Options of `anabranch lab simulate`, with its defaults."""

    policies: tuple[str, ...] = DEFAULT_POLICIES
    workers: int = 1000
    politeness: str = POLITE
    connections: int = 1  #: slots of a host's gate
    delay_factor: float = 5.0
    min_delay_s: float | None = None  #: None: Heritrix's, divided by `scale`
    max_delay_s: float | None = None
    scale: float = 1.0  #: divides the default times; 60 gives those of the lab
    seconds: float | None = None  #: of virtual time, if a run is not drained before; None: until it is
    repeat: int = 1  #: runs of each policy, each on a web of the next seed
    kinds: tuple[str, ...] = ("hosts",)  #: of generated webs, one after the other
    pages: int = 1_000_000
    hosts: int = 100_000
    links: int = 2  #: mean random links of a page: most are known, and all take time
    latency_s: float | None = None  #: median; None: `LATENCY_S`, divided by `scale`
    seed: int = 1
    replay: Path | None = None  #: a crawl.log to crawl instead of a generated web
    page_cost_s: float | None = None  #: of the crawler's processor, a page; None: nothing, or what the live crawl took
    beside: Path | None = None  #: a file of `compare --json`: the same is simulated and compared


_DEFAULTS = SimulationOptions()


def check(options: SimulationOptions) -> None:
    """Raises: UsageError for the first invalid option, before anything is done."""
    if options.beside is not None:
        _check_beside(options)
    wrong = {
        "--scale must be above 0": not 0 < options.scale < math.inf,
        "--seconds must be above 0": options.seconds is not None and not 0 < options.seconds < math.inf,
        "--links must be from 0 to 1000": not 0 <= options.links <= 1000,
    }
    for words, is_wrong in wrong.items():
        if is_wrong:
            raise UsageError(words)
    _check_webs(options)
    check_policies(as_compared(options))
    if "ip" in options.policies:
        raise UsageError("--policies: ip cannot be simulated: the hosts of the web have no addresses")


def _check_beside(options: SimulationOptions) -> None:
    for each in fields(SimulationOptions):
        if each.name not in _WITH_BESIDE and getattr(options, each.name) != each.default:
            raise UsageError(f"--beside: its file sets all but --page-cost; leave out what sets {each.name}")


def _check_webs(options: SimulationOptions) -> None:
    for kind in options.kinds:
        if kind not in KINDS:
            raise UsageError(f"--kind {kind!r} is unknown; choose one of {', '.join(KINDS)}")
    if len(set(options.kinds)) < len(options.kinds):
        raise UsageError(f"--kind: {','.join(options.kinds)} names one of them twice")
    if options.replay is not None:
        refuse_unused("--replay", options, _DEFAULTS)


def as_compared(options: SimulationOptions) -> PolicyOptions:
    """Convert the options to those of a live comparison. Leaves the kind out: live webs never have very many hosts."""
    min_delay_s, max_delay_s, latency_s = times(options)
    compared = PolicyOptions(
        policies=options.policies,
        workers=options.workers,
        politeness=options.politeness,
        connections=options.connections,
        delay_factor=options.delay_factor,
        min_delay_s=min_delay_s,
        max_delay_s=max_delay_s,
        seconds=max(options.seconds or 1.0, 1.0),
        repeat=options.repeat,
        replay=options.replay,
    )
    if options.replay is not None:
        return compared
    return replace(compared, pages=options.pages, hosts=options.hosts, latency_s=latency_s, seed=options.seed)


def times(options: SimulationOptions) -> tuple[float, float, float]:
    """The shortest and longest rest of a gate and the median latency, in seconds."""
    scale = options.scale
    return (
        MIN_DELAY_S / scale if options.min_delay_s is None else options.min_delay_s,
        MAX_DELAY_S / scale if options.max_delay_s is None else options.max_delay_s,
        LATENCY_S / scale if options.latency_s is None else options.latency_s,
    )


def web_options(compared: PolicyOptions, kind: str, *, links: int | None = None, repeat: int = 0) -> WebOptions:
    """The generated web of a comparison; each repeat has the next seed. `links` None: as many as a live web."""
    return WebOptions(
        pages=compared.pages,
        kind=kind,
        hosts=compared.hosts,
        links=WebOptions().links if links is None else links,
        latency_s=compared.latency_s,
        seed=compared.seed + repeat,
    )


def order_of(compared: PolicyOptions, policy: str) -> FrontierOrder:
    """The Frontier's order in a live run of the policy. Raises: PolicyError, OrderError."""
    return frontier_order(order_for(compared, policy))


NAME = "simulate"

_WORDS = {**WEB_WORDS, "hosts": "many hosts"}


class SimulatedWeb(NamedTuple):
    """One kind of web that is simulated."""

    words: str
    repeats: list[Web]
    notes: tuple[str, ...]  #: what a replay left out, as text


def run(options: SimulationOptions, on_progress: OnProgress) -> LabReport:
    """Simulate. Raises: UsageError before anything is done; PolicyError."""
    check(options)
    return _alone(options, on_progress) if options.beside is None else _beside(options, options.beside, on_progress)


class _Progress:
    """The progress of all runs together, in URLs."""

    def __init__(self, on_progress: OnProgress, urls: int) -> None:
        self._on_progress = on_progress
        self._urls = urls
        self._before = 0

    def of_run(self, words: str, urls: int) -> Callable[[SimulationProgress], None]:
        """The callback for the progress of the next run."""
        start, self._before = self._before, self._before + urls

        def on_run(now: SimulationProgress) -> None:
            done = min(start + now.urls, self._urls)
            self._on_progress(done, self._urls, f"{words}: {now.active:,} active workers at {now.at_s:,.0f} s")

        self._on_progress(start, self._urls, f"{words} begins")
        return on_run


# Alone


def _alone(options: SimulationOptions, on_progress: OnProgress) -> LabReport:
    compared = as_compared(options)
    warn(compared.policies)
    webs = list(_webs(options, compared))
    urls = sum(web.urls for each in webs for web in each.repeats)
    progress = _Progress(on_progress, urls * len(options.policies))
    began_s = time.process_time()
    comparisons = [_simulated(options, compared, each, progress) for each in webs]
    cost = (
        f"simulated in {time.process_time() - began_s:.0f} s of processor time, with at most "
        f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10:,} MiB of memory"
    )
    done = [replace(each, setting=replace(each.setting, machine=cost)) for each in comparisons]
    return report_of(NAME, done, data=saved.saved(saved.SIMULATION, options, done))


def _webs(options: SimulationOptions, compared: PolicyOptions) -> Iterator[SimulatedWeb]:
    if options.replay is not None:
        replayed = replayed_file(options.replay)
        yield SimulatedWeb("replay", [replayed] * options.repeat, replayed.notes)
        return
    for kind in options.kinds:
        made = (web_options(compared, kind, links=options.links, repeat=number) for number in range(options.repeat))
        yield SimulatedWeb(_WORDS[kind], list(map(make_web, made)), ())


def _simulated(
    options: SimulationOptions, compared: PolicyOptions, simulated: SimulatedWeb, progress: _Progress
) -> PolicyComparison:
    webs = simulated.repeats
    runs: dict[str, list[RunResult]] = {policy: [] for policy in options.policies}
    for number, web in enumerate(webs, 1):
        for policy, done in runs.items():
            words = f"{simulated.words}, {policy}" + (f", repeat {number}" if len(webs) > 1 else "")
            model = _model(compared, policy, web, options.seconds, Speed(page_s=options.page_cost_s or 0.0))
            done.append(simulate(model, progress.of_run(words, web.urls)))
    setting = Setting(
        web=f"{simulated.words}, simulated",
        size="; ".join([f"{webs[0].urls:,} URLs on {len(webs[0].sites):,} hosts", *simulated.notes]),
        hosts=len(webs[0].sites),
        workers=options.workers,
        politeness=options.politeness,
        connections=options.connections,
        delays=f"{delay_words(compared)[:-1]}; {_speed_words(options.page_cost_s)}",
    )
    common_s = compared_s([run for done in runs.values() for run in done])
    return PolicyComparison(setting=setting, runs=tuple(mean_of_webs(done, common_s) for done in runs.values()))


def _speed_words(page_cost_s: float | None) -> str:
    if not page_cost_s:
        return "the crawler itself takes no time."
    return f"the crawler's one processor takes {page_cost_s * 1000:g} ms a page."


def _model(compared: PolicyOptions, policy: str, web: Web, seconds: float | None, speed: Speed) -> Model:
    return Model(
        web=web,
        order=order_of(compared, policy),
        rule=rule_of(compared),
        workers=compared.workers,
        seconds=math.inf if seconds is None else seconds,
        speed=speed,
    )


# With a live comparison


def _beside(options: SimulationOptions, file: Path, on_progress: OnProgress) -> LabReport:
    compared, live = saved.load(file)
    if "ip" in compared.policies:
        raise UsageError(f"{file}: it compares ip, which cannot be simulated: the hosts of the web have no addresses")
    warn(compared.policies)
    webs = list(_live_webs(compared))
    progress = _Progress(on_progress, sum(web.urls for web in webs) * len(compared.policies))
    comparisons = []
    for comparison, web in zip(live, webs, strict=True):
        simulated = []
        speed = speed_of(comparison.runs) if options.page_cost_s is None else Speed(page_s=options.page_cost_s)
        for run_ in comparison.runs:
            model = _model(compared, run_.policy, web, compared.seconds, speed)
            on_run = progress.of_run(f"{comparison.setting.web.partition(',')[0]}, {run_.policy}", web.urls)
            simulated.append(simulate(model, on_run))
        comparisons.append(replace(comparison, simulated=tuple(simulated)))
    return _compared_report(compared, comparisons)


def _live_webs(compared: PolicyOptions) -> Iterator[Web]:
    """The webs of a live comparison, in its order."""
    if compared.replay is not None:
        yield replayed_file(compared.replay)
        return
    for kind in compared.kinds:
        yield make_web(web_options(compared, kind))


def speed_of(runs: Sequence[RunResult]) -> Speed:
    """The speed of the crawler in these live runs; no time if it was not measured.

    The highest cost per page of any run is a page and a turn. The lowest cost, or the share of a page in the fastest five
    seconds, is a page alone. Both include the time in which the crawler was runnable but waited for the processor.
    """
    costs = [
        (run.crawler.share + run.crawler.waited) * run.duration_s / run.samples[-1].urls
        for run in runs
        if run.crawler is not None and run.samples and run.samples[-1].urls
    ]
    if not costs:
        return Speed()
    fastest = max(map(_fastest, runs))
    page_s = min(*costs, 1 / fastest) if fastest else min(costs)
    return Speed(page_s=page_s, turn_s=max(costs) - page_s)


def _fastest(run: RunResult) -> float:
    """URLs a second in the fastest `WINDOW_S` of a run."""
    starts = (sample.at_s for sample in run.samples if sample.at_s + WINDOW_S <= run.duration_s)
    return max((_between(run, start_s, start_s + WINDOW_S).urls_per_s for start_s in starts), default=0.0)


def _compared_report(compared: PolicyOptions, comparisons: list[PolicyComparison]) -> LabReport:
    report = report_of(NAME, comparisons, data=saved.saved(saved.COMPARISON, compared, comparisons))
    tables, closing = [], []
    for each in comparisons:
        found = [deviation(live, its) for live, its in zip(each.runs, each.simulated, strict=True)]
        tables.append(deviation_table(each.setting.web, found))
        closing.append(deviation_words(each.setting.web, found))
    return replace(report, tables=(*report.tables, *tables), closing=(*report.closing, *closing))


#: Curves are compared by their means over so many seconds, because single seconds vary.
WINDOW_S = 5
#: A deviation above this is reported by name.
LARGE = 0.2


class Deviation(NamedTuple):
    """The deviation of one policy, in windows of `WINDOW_S` over the longer of both runs: means and distances."""

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


def deviation_table(web: str, deviations: Sequence[Deviation]) -> Table:
    """One row for each policy."""
    return Table(
        title=f"{web}: simulated and live",
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


def deviation_words(web: str, deviations: Sequence[Deviation]) -> str:
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
