"""Real crawls with the real crawler, one after the other on the same web: the comparison that `anabranch compare` runs.

Within a repeat the policies take turns, so that what becomes slower or faster on the machine becomes so for all of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from anabranch.crawler.lab.miniweb import Served, serving
from anabranch.crawler.lab.policies.comparison import Comparison, Setting
from anabranch.crawler.lab.policies.options import (
    WEB_WORDS,
    PolicyOptions,
    check,
    delay_words,
    order_for,
    rule_of,
    with_delays,
)
from anabranch.crawler.lab.policies.repeats import settled
from anabranch.crawler.lab.policies.report import report_of
from anabranch.crawler.lab.policies.running import run_once
from anabranch.crawler.lab.policies.saved import COMPARISON, saved
from anabranch.crawler.lab.policies.series import Busy, RunResult, Sample, rate, with_ledger
from anabranch.crawler.lab.report import Report, Tell
from anabranch.crawler.lab.web.model import WebOptions
from anabranch.crawler.orders.order import CrawlOrder

NAME = "policies"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the runs of one comparison crawl."""

    web: str  #: in two or three words
    size: str  #: in words
    hosts: int  #: 0: nobody knows
    order: Callable[[str], CrawlOrder]  #: of a policy
    served: Served | None = None  #: None: the sites are others'


def run(options: PolicyOptions, tell: Tell) -> Report:
    """Compare. Raises: UsageError before anything is started, CrawlerError if a run breaks, OSError."""
    check(options)
    load, course = os.getloadavg()[0], _Course(options, tell)
    comparisons = []
    for open_place in _places(options):
        with open_place() as place:
            comparisons.append(_compared(options, place, course))
    machine = f"load {load:.1f} before the first run, {os.getloadavg()[0]:.1f} after the last, {os.cpu_count()} cores"
    done = [replace(each, setting=replace(each.setting, machine=machine)) for each in comparisons]
    return report_of(NAME, done, data=saved(COMPARISON, with_delays(options), done))


class _Course:
    """How far all runs together are, as seconds of crawling: what is shown while they go on."""

    def __init__(self, options: PolicyOptions, tell: Tell) -> None:
        self._seconds = options.seconds
        self._steps = options.steps
        self._tell = tell
        self._runs = 0

    @contextmanager
    def of_run(self, words: str) -> Iterator[Callable[[Sample], None]]:
        """While inside, a run goes on; what it gives is to be told of each sample."""
        before: list[Sample] = []

        def heard(sample: Sample) -> None:
            if before and sample.at_s > before[-1].at_s:
                pace = rate(before[-1], sample)
                done = round(self._runs * self._seconds + min(sample.at_s, self._seconds))
                facts = f"{pace.active:,.0f} active workers, {pace.urls_per_s:,.0f} URLs/s"
                self._tell(done, self._steps, f"{words}: {facts}")
            before[:] = [sample]

        self._tell(round(self._runs * self._seconds), self._steps, f"{words} begins")
        yield heard
        self._runs += 1


def _places(options: PolicyOptions) -> Iterator[Callable[[], AbstractContextManager[Place]]]:
    """How each web is opened, one after the other."""
    if options.seeds is not None:
        yield partial(_real, options)
    elif options.replay is not None:
        yield partial(_boxed, options, "replayed web", options.replay)
    else:
        for kind in options.kinds:
            made = WebOptions(
                pages=options.pages, kind=kind, hosts=options.hosts, latency_s=options.latency_s, seed=options.seed
            )
            yield partial(_boxed, options, WEB_WORDS[kind], made)


@contextmanager
def _real(options: PolicyOptions) -> Iterator[Place]:
    """Sites of others."""
    yield Place(web="real sites", size=f"from the seeds of {options.seeds}", hosts=0, order=partial(order_for, options))


@contextmanager
def _boxed(options: PolicyOptions, words: str, web: WebOptions | Path) -> Iterator[Place]:
    """A web in a box, served while inside."""
    with serving(web) as served:
        order = partial(order_for, options, seeds=served.seeds, addresses=served.hosts)
        size = "; ".join([f"{served.urls:,} URLs on {len(served.hosts):,} hosts", *served.notes])
        yield Place(web=words, size=size, hosts=len(served.hosts), order=order, served=served)


def _compared(options: PolicyOptions, place: Place, course: _Course) -> Comparison:
    runs: dict[str, list[RunResult]] = {policy: [] for policy in options.policies}
    for repeat in range(1, options.repeat + 1):
        for policy, done in runs.items():
            which = f"{place.web}, {policy}" + (f", repeat {repeat}" if options.repeat > 1 else "")
            with course.of_run(which) as heard:
                done.append(_watched(options, place, policy, heard))
    setting = Setting(
        web=place.web,
        size=place.size,
        hosts=place.hosts,
        workers=options.workers,
        politeness=options.politeness,
        connections=options.connections,
        delays=delay_words(options),
        latency_s=0.0 if options.seeds or options.replay else options.latency_s,
    )
    return Comparison(setting=setting, runs=tuple(map(settled, runs.values())))


def _watched(options: PolicyOptions, place: Place, policy: str, heard: Callable[[Sample], None]) -> RunResult:
    """A run, with what the server saw of it."""
    if place.served is None:
        return run_once(place.order(policy), options.seconds, heard)
    place.served.begin(rule_of(options))
    result = run_once(place.order(policy), options.seconds, heard, place.served)
    ledger = place.served.ledger()
    return replace(with_ledger(result, ledger), server=Busy(ledger.busy, ledger.longest_lag_s))
