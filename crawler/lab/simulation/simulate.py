"""Policies compared in virtual time, alone or beside a live comparison of the same: what `anabranch lab simulate` runs."""

from __future__ import annotations

import math
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from anabranch.crawler.lab.policies import saved
from anabranch.crawler.lab.policies.comparison import Comparison, Setting
from anabranch.crawler.lab.policies.options import WEB_WORDS, PolicyOptions, delay_words, rule_of
from anabranch.crawler.lab.policies.repeats import mean_of_webs
from anabranch.crawler.lab.policies.report import report_of
from anabranch.crawler.lab.policies.series import RunResult, at, rate
from anabranch.crawler.lab.report import Report, Tell
from anabranch.crawler.lab.simulation import deviation
from anabranch.crawler.lab.simulation.options import SimulationOptions, as_compared, check, order_of, web_options
from anabranch.crawler.lab.simulation.processor import Speed
from anabranch.crawler.lab.simulation.running import Course, Model, simulate
from anabranch.crawler.lab.web.model import Web
from anabranch.crawler.lab.web.replay import replayed_file
from anabranch.crawler.lab.web.shape import make_web
from anabranch.crawler.outcomes.errors import UsageError

NAME = "simulate"

_WORDS = {**WEB_WORDS, "hosts": "many hosts"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One web that is simulated."""

    words: str
    web: Callable[[int], Web]  #: of a repeat
    notes: tuple[str, ...] = ()  #: what a replay had to leave out, in words


def run(options: SimulationOptions, tell: Tell) -> Report:
    """Simulate. Raises: UsageError before anything is done, PolicyError."""
    check(options)
    return _alone(options, tell) if options.beside is None else _beside(options, options.beside, tell)


class _Course:
    """How far all runs together are, as URLs: what is shown while they go on."""

    def __init__(self, tell: Tell, urls: int) -> None:
        self._tell = tell
        self._urls = urls
        self._before = 0

    def of_run(self, words: str, urls: int) -> Callable[[Course], None]:
        """Whom the next run tells how far it is."""
        start, self._before = self._before, self._before + urls

        def heard(now: Course) -> None:
            done = min(start + now.urls, self._urls)
            self._tell(done, self._urls, f"{words}: {now.active:,} active workers at {now.at_s:,.0f} s")

        self._tell(start, self._urls, f"{words} begins")
        return heard


# Alone


def _alone(options: SimulationOptions, tell: Tell) -> Report:
    compared, places = as_compared(options), list(_places(options))
    webs = [(place, [place.web(repeat) for repeat in range(options.repeat)]) for place in places]
    course = _Course(tell, sum(web.urls for _, each in webs for web in each) * len(options.policies))
    began_s = time.process_time()
    comparisons = [_simulated(options, compared, place, each, course) for place, each in webs]
    cost = (
        f"simulated in {time.process_time() - began_s:.0f} s of processor time, with at most "
        f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10:,} MiB of memory"
    )
    done = [replace(each, setting=replace(each.setting, machine=cost)) for each in comparisons]
    return report_of(NAME, done, data=saved.saved(saved.SIMULATION, options, done))


def _places(options: SimulationOptions) -> Iterator[Place]:
    if options.replay is not None:
        replayed = replayed_file(options.replay)
        yield Place(words="replay", web=partial(_same, replayed), notes=replayed.notes)
        return
    for kind in options.kinds:
        yield Place(words=_WORDS[kind], web=partial(_made, options, kind))


def _same(web: Web, _repeat: int) -> Web:
    return web


def _made(options: SimulationOptions, kind: str, repeat: int) -> Web:
    return make_web(web_options(as_compared(options), kind, links=options.links, repeat=repeat))


def _simulated(
    options: SimulationOptions, compared: PolicyOptions, place: Place, webs: list[Web], course: _Course
) -> Comparison:
    runs: dict[str, list[RunResult]] = {policy: [] for policy in options.policies}
    for number, web in enumerate(webs, 1):
        for policy, done in runs.items():
            words = f"{place.words}, {policy}" + (f", repeat {number}" if len(webs) > 1 else "")
            model = _model(compared, policy, web, options.seconds, Speed(page_s=options.page_cost_s or 0.0))
            done.append(simulate(model, course.of_run(words, web.urls)))
    setting = Setting(
        web=f"{place.words}, simulated",
        size="; ".join([f"{webs[0].urls:,} URLs on {len(webs[0].sites):,} hosts", *place.notes]),
        hosts=len(webs[0].sites),
        workers=options.workers,
        politeness=options.politeness,
        connections=options.connections,
        delays=f"{delay_words(compared)[:-1]}; {_speed_words(options.page_cost_s)}",
    )
    return Comparison(setting=setting, runs=tuple(map(mean_of_webs, runs.values())))


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


# Beside a live comparison


def _beside(options: SimulationOptions, file: Path, tell: Tell) -> Report:
    compared, live = saved.load(file)
    if "ip" in compared.policies:
        raise UsageError(f"{file}: it compares ip, which cannot be simulated: the hosts of the web have no addresses")
    webs = list(_live_webs(compared))
    course = _Course(tell, sum(web.urls for web in webs) * len(compared.policies))
    comparisons = []
    for comparison, web in zip(live, webs, strict=True):
        simulated = []
        speed = speed_of(comparison.runs) if options.page_cost_s is None else Speed(page_s=options.page_cost_s)
        for run_ in comparison.runs:
            model = _model(compared, run_.policy, web, compared.seconds, speed)
            heard = course.of_run(f"{comparison.setting.web.partition(',')[0]}, {run_.policy}", web.urls)
            simulated.append(simulate(model, heard))
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
    """How fast the crawler of these live runs was; it took no time if that was not measured.

    A page and a turn of its own are what a page took of the processor where it took most, for there was time to spare. A page
    alone is what it took where it took least, or what the fastest five seconds of all leave to one. While it could have run and
    had no processor, it stood still: that is part of both.
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
    """URLs a second in the fastest `deviation.WINDOW_S` of a run."""
    span_s = deviation.WINDOW_S
    starts = (sample.at_s for sample in run.samples if sample.at_s + span_s <= run.duration_s)
    return max((rate(at(run, start_s), at(run, start_s + span_s)).urls_per_s for start_s in starts), default=0.0)


def _compared_report(compared: PolicyOptions, comparisons: list[Comparison]) -> Report:
    report = report_of(NAME, comparisons, data=saved.saved(saved.COMPARISON, compared, comparisons))
    tables, closing = [], []
    for each in comparisons:
        found = [deviation.deviation(live, its) for live, its in zip(each.runs, each.simulated, strict=True)]
        tables.append(deviation.table(each.setting.web, found))
        closing.append(deviation.words(each.setting.web, found))
    return replace(report, tables=(*report.tables, *tables), closing=(*report.closing, *closing))
