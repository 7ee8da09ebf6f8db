"""What is to be simulated. Pure, but for the files that are looked at."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from pathlib import Path

from anabranch.crawler.jobs.opening import frontier_order
from anabranch.crawler.lab.policies.comparison import POLITE
from anabranch.crawler.lab.policies.options import DEFAULT_POLICIES, PolicyOptions, order_for, refuse_unused
from anabranch.crawler.lab.policies.options import check as check_policies
from anabranch.crawler.lab.web.hosts import KINDS
from anabranch.crawler.lab.web.model import WebOptions
from anabranch.crawler.outcomes.errors import UsageError
from anabranch.frontier.order import FrontierOrder

#: Times of real crawls: Heritrix's delays, and a median latency.
MIN_DELAY_S = 3.0
MAX_DELAY_S = 30.0
LATENCY_S = 1.0

#: What `--beside` takes from its file is not asked for; the rest may be given with it.
_WITH_BESIDE = ("beside", "page_cost_s", "links")


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationOptions:
    """What stands on the command line; the defaults are those of `anabranch lab simulate`."""

    policies: tuple[str, ...] = DEFAULT_POLICIES
    workers: int = 1000
    politeness: str = POLITE
    connections: int = 1  #: slots of a host's gate
    delay_factor: float = 5.0
    min_delay_s: float | None = None  #: None: Heritrix's, divided by `scale`
    max_delay_s: float | None = None
    scale: float = 1.0  #: the times that are not given are divided by it; 60 is the lab's
    seconds: float | None = None  #: of virtual time, if a run is not drained before; None: until it is
    repeat: int = 1  #: runs of each policy, each on a web of the next seed
    kinds: tuple[str, ...] = ("hosts",)  #: of made webs, one after the other
    pages: int = 1_000_000
    hosts: int = 100_000
    links: int = 2  #: of a page beside those that make every page reachable, mean: most are known, and all take time
    latency_s: float | None = None  #: median; None: `LATENCY_S`, divided by `scale`
    seed: int = 1
    replay: Path | None = None  #: a crawl.log whose web is crawled, in the place of a made one
    page_cost_s: float | None = None  #: of the crawler's processor, a page; None: nothing, or what the live crawl took
    beside: Path | None = None  #: what `compare --json` wrote: the same is simulated, and drawn on it


_DEFAULTS = SimulationOptions()


def check(options: SimulationOptions) -> None:
    """Raises: UsageError for the first thing that makes no sense; nothing was done then."""
    if options.beside is not None:
        _check_beside(options)
    _check_numbers(options)
    _check_webs(options)
    check_policies(as_compared(options))
    if "ip" in options.policies:
        raise UsageError("--policies: ip cannot be simulated: the hosts of the web have no addresses")


def _check_beside(options: SimulationOptions) -> None:
    for each in fields(SimulationOptions):
        if each.name not in _WITH_BESIDE and getattr(options, each.name) != each.default:
            raise UsageError(f"--beside: its file says all but --page-cost; leave out what sets {each.name}")


def _check_numbers(options: SimulationOptions) -> None:
    wrong = {
        "--scale must be above 0": not 0 < options.scale < math.inf,
        "--seconds must be above 0": options.seconds is not None and not 0 < options.seconds < math.inf,
        "--links must be from 0 to 1000": not 0 <= options.links <= 1000,
    }
    for words, is_wrong in wrong.items():
        if is_wrong:
            raise UsageError(words)


def _check_webs(options: SimulationOptions) -> None:
    for kind in options.kinds:
        if kind not in KINDS:
            raise UsageError(f"--kind {kind!r} is unknown; choose one of {', '.join(KINDS)}")
    if len(set(options.kinds)) < len(options.kinds):
        raise UsageError(f"--kind: {','.join(options.kinds)} names one of them twice")
    if options.replay is not None:
        refuse_unused("--replay", options, _DEFAULTS)


def as_compared(options: SimulationOptions) -> PolicyOptions:
    """The same as a comparison of live crawls has it. (The kind stands for any: live webs are never of very many hosts.)"""
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
    """The made web of a comparison; each repeat has the next seed. Without `links` it has as many as a live one."""
    return WebOptions(
        pages=compared.pages,
        kind=kind,
        hosts=compared.hosts,
        links=WebOptions().links if links is None else links,
        latency_s=compared.latency_s,
        seed=compared.seed + repeat,
    )


def order_of(compared: PolicyOptions, policy: str) -> FrontierOrder:
    """What a live run of the policy asks of the Frontier. Raises: PolicyError, OrderError."""
    return frontier_order(order_for(compared, policy))
