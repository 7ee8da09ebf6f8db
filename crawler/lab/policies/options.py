"""The options of a comparison, and the crawl order of each run. Pure, except that it checks files."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import structlog

from anabranch.crawler.fetch.connection_limits import files_for, raise_file_limit
from anabranch.crawler.job.frontier import frontier_order
from anabranch.crawler.job.seeds import read_seeds
from anabranch.crawler.lab.policies.series import OFF, PAPER, POLITE, POLITENESSES
from anabranch.crawler.lab.web.ledger import PolitenessRule
from anabranch.crawler.order.loading import load_order
from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.order.quantities import exact_duration
from anabranch.crawler.outcomes.errors import UsageError
from anabranch.crawler.urls.parsing import host_of, seed_url
from anabranch.frontier.errors import PolicyError
from anabranch.frontier.policies.assignment import PolitenessScope, policy_warning
from anabranch.frontier.policies.hosts import is_address

log = structlog.get_logger(__name__)

#: One queue per host, and three policies with more queues.
DEFAULT_POLICIES = ("host", "parallel:8", "elf:997", "bkdr:997")
#: The names of the generated webs in reports.
WEB_WORDS = {"portals": "five portals", "subdomains": "one portal"}
KINDS = tuple(WEB_WORDS)

#: The lab's times are a sixtieth of a real crawl's: 3 s, 30 s and about 6 s.
SCALE = 60
MIN_DELAY_S = 0.05
MAX_DELAY_S = 0.5
LATENCY_S = 0.1

_MOST_WORKERS = 10_000
#: Options of generated webs only.
_OF_MADE_WEBS = {
    "--kind": "kinds",
    "--pages": "pages",
    "--hosts": "hosts",
    "--latency": "latency_s",
    "--seed": "seed",
    "--links": "links",  # of a simulation
}
#: The scope of the delays.
_SCOPES = {PAPER: PolitenessScope.QUEUE, POLITE: PolitenessScope.HOST, OFF: PolitenessScope.OFF}
#: Hops from the seeds to the last page: trees of any depth are crawled completely.
_ANY_DEPTH = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyOptions:
    """Options of `anabranch compare`, with its defaults."""

    policies: tuple[str, ...] = DEFAULT_POLICIES
    workers: int = 1000
    politeness: str = POLITE
    connections: int = 1  #: slots of a host's gate
    delay_factor: float = 5.0
    min_delay_s: float | None = None  #: None: the lab's, or the order's for a real crawl
    max_delay_s: float | None = None
    seconds: float = 60.0  #: of a run, if it is not drained before
    repeat: int = 1
    kinds: tuple[str, ...] = ("portals",)  #: of generated webs, one after the other
    pages: int = 20_000
    hosts: int = 40
    latency_s: float = LATENCY_S
    seed: int = 1
    replay: Path | None = None  #: a crawl.log to crawl instead of a generated web
    seeds: Path | None = None  #: a file of real seeds, instead of a generated web
    allow_private: bool = False  #: of real seeds: fetch private and loopback addresses
    own_hosts: tuple[str, ...] = ()  #: of real seeds: the user's own hosts, which the crawl does not leave
    live: Path | None = None  #: a file that gets a line of JSON a second, so that others see the runs as they go on

    @property
    def steps(self) -> int:
        """Seconds of all runs, if none is drained before."""
        return round(self.webs * len(self.policies) * self.repeat * self.seconds)

    @property
    def webs(self) -> int:
        """Webs that are crawled."""
        return 1 if self.replay or self.seeds else len(self.kinds)


_DEFAULTS = PolicyOptions()


def check(options: PolicyOptions) -> None:
    """Raises: UsageError for the first invalid option, before anything is started."""
    _check_numbers(options)
    _check_choices(options)
    _check_webs(options)
    _check_files(options)
    _check_descriptors(options)
    for policy in options.policies:
        try:
            frontier_order(order_for(options, policy))
        except PolicyError as error:
            raise UsageError(f"--policies: {error}") from error


def warn(policies: Sequence[str]) -> None:
    """Log one line if one of the policies is a poor choice. The command goes on without a reader."""
    if warning := policy_warning(policies):
        with suppress(OSError):
            log.warning(warning)


def _check_numbers(options: PolicyOptions) -> None:
    most = _MOST_WORKERS
    wrong = {
        f"--workers must be from 1 to {most:,}": not 1 <= options.workers <= most,
        f"--connections must be from 1 to {most:,}": not 1 <= options.connections <= most,
        "--repeat must be 1 or more": options.repeat < 1,
        "--seconds must be 1 or more: a run is looked at once a second": options.seconds < 1,
        "--delay-factor must be 0 or more": not 0 <= options.delay_factor < float("inf"),
    }
    for words, is_wrong in wrong.items():
        if is_wrong:
            raise UsageError(words)
    least_s, most_s = delays(options)
    if least_s > most_s:
        least, longest = exact_duration(least_s), exact_duration(most_s)
        raise UsageError(
            f"--max-delay ({longest}) is less than --min-delay ({least}); raise the one or lower the other"
        )


def _check_choices(options: PolicyOptions) -> None:
    _one_of("--politeness", [options.politeness], POLITENESSES)
    _one_of("--kind", options.kinds, KINDS)
    if not options.policies:
        raise UsageError("--policies: name some, as in host,bkdr:997")
    for option, named in (("--policies", options.policies), ("--kind", options.kinds)):
        if len(set(named)) < len(named):
            raise UsageError(f"{option}: {','.join(named)} names one of them twice")
    if options.politeness != POLITE and options.connections != _DEFAULTS.connections:
        raise UsageError(f"--connections: slots of a host's gate, which --politeness {options.politeness} has none of")


def _check_webs(options: PolicyOptions) -> None:
    if options.seeds and options.replay:
        raise UsageError("--seeds is a real crawl, --replay one of a web in a box; leave one of them out")
    for option, given in (("--seeds", options.seeds), ("--replay", options.replay)):
        if given is not None:
            refuse_unused(option, options, _DEFAULTS)
    if options.seeds:
        _check_real_sites(options)
    for option, is_given in (("--allow-private", options.allow_private), ("--own-host", bool(options.own_hosts))):
        if is_given and not options.seeds:
            raise UsageError(f"{option} is for real sites; name a file of their URLs with --seeds")


def _check_real_sites(options: PolicyOptions) -> None:
    if options.politeness != POLITE and not options.own_hosts:
        raise UsageError(
            f"--seeds: real sites are crawled with --politeness polite; {options.politeness} is for your own: name each of "
            "their hosts with --own-host HOST"
        )
    if "ip" in options.policies:
        raise UsageError("--policies: ip cannot be compared on real sites: their addresses are not known beforehand")


def refuse_unused(option: str, options: object, defaults: object) -> None:
    """Raises: UsageError if this option, which names another web, is combined with options of a generated web."""
    unused = [
        each for each, name in _OF_MADE_WEBS.items() if getattr(options, name, None) != getattr(defaults, name, None)
    ]
    if unused:
        raise UsageError(f"{option}: {', '.join(unused)} would make another web; leave it out")


def _check_files(options: PolicyOptions) -> None:
    for option, file in (("--replay", options.replay), ("--seeds", options.seeds)):
        try:
            if file is not None:
                file.open("rb").close()
        except OSError as error:
            raise UsageError(f"{option}: {file}: {(error.strerror or str(error)).lower()}") from error
    if options.seeds is not None:
        found = read_seeds([str(options.seeds.absolute())], io.BytesIO())
        if not found.seeds:
            raise UsageError(f"--seeds: {options.seeds}: no seed in it; give a URL a line")
        own = {*map(_own_host, options.own_hosts)}
        if own and (other := next((seed for seed in found.seeds if host_of(seed.url) not in own), None)):
            raise UsageError(
                f"--seeds: {other.source}: {host_of(other.url)} is not named by --own-host; name it if it is your own, "
                "or remove the seed"
            )


def _own_host(text: str) -> str:
    """The host as canonical URLs write it. Raises: UsageError."""
    url = seed_url(text)
    if url is None or url != f"http://{host_of(url)}/":
        raise UsageError(
            f"--own-host {text!r}: give a host alone, as in www.example.org; it covers all ports of the host"
        )
    return host_of(url)


def _check_descriptors(options: PolicyOptions) -> None:
    """Workers that wait for each other's connections would be active and idle."""
    allowed, needed = raise_file_limit(), files_for(options.workers)
    if allowed < needed:
        raise UsageError(
            f"--workers {options.workers:,} need {needed:,} open files, the limit is {allowed:,}: "
            "raise it (ulimit -Hn) or lower --workers"
        )


def _one_of(option: str, named: Sequence[str], known: Sequence[str]) -> None:
    for name in named:
        if name not in known:
            raise UsageError(f"{option} {name!r} is unknown; choose one of {', '.join(known)}")


def delays(options: PolicyOptions) -> tuple[float, float]:
    """The shortest and the longest rest of a gate, in seconds."""
    politeness = CrawlOrder().politeness
    least_s, most_s = (politeness.min_delay_s, politeness.max_delay_s) if options.seeds else (MIN_DELAY_S, MAX_DELAY_S)
    return (
        least_s if options.min_delay_s is None else options.min_delay_s,
        most_s if options.max_delay_s is None else options.max_delay_s,
    )


def rule_of(options: PolicyOptions) -> PolitenessRule:
    """The rule for the ledger. It is also used in the other set-ups, to show how much they break it."""
    least_s, most_s = delays(options)
    return PolitenessRule(
        slots=options.connections, delay_factor=options.delay_factor, min_delay_s=least_s, max_delay_s=most_s
    )


def delay_words(options: PolicyOptions) -> str:
    """The delays and their scale in one sentence."""
    if options.politeness == OFF:
        return "no delays."
    least_s, most_s = delays(options)
    owner = "queue" if options.politeness == PAPER else "host"
    words = (
        f"delays: a {owner} rests {options.delay_factor:g} x the fetch time, within {_time(least_s)} and "
        f"{_time(most_s)}"
    )
    if options.seeds:
        return f"{words}."
    is_scaled = (least_s, most_s) == (MIN_DELAY_S, MAX_DELAY_S)
    scaled = f" (Heritrix's 3 s and 30 s divided by {SCALE})" if is_scaled else ""
    latency = "" if options.replay else f"; median latency {_time(options.latency_s)}"
    return f"{words}{scaled}{latency}; a 503 closes no gate for longer than that."


def _time(seconds: float) -> str:
    return exact_duration(float(f"{seconds:.3g}"))


#: Policies are compared without limits of workers, which would hold some of them idle.
_NO_LIMITS: Mapping[str, float] = MappingProxyType({"domain_workers": 1.0, "slow_workers": 1.0})


def order_for(
    options: PolicyOptions, policy: str, *, seeds: Sequence[str] = (), addresses: Mapping[str, str] | None = None
) -> CrawlOrder:
    """The order of a run: the durable store, robots.txt obeyed, and other defaults of a crawl.

    `addresses` has the hosts of a generated web, which are the crawl's scope. Without them the order is that of a real crawl,
    with the environment. Raises: OrderError; UsageError if a host is an address: it is not looked up, so the crawl would go to
    the real one.
    """
    return _real_order(options, policy) if options.seeds else _boxed_order(options, policy, seeds, addresses or {})


def _boxed_order(options: PolicyOptions, policy: str, seeds: Sequence[str], addresses: Mapping[str, str]) -> CrawlOrder:
    if found := next(filter(is_address, addresses), None):
        raise UsageError(
            f"{options.replay or 'the web'}: {found} is an address, which no crawl looks up, so it cannot be served in a box; "
            "leave its lines out, or take `anabranch lab simulate`"
        )
    least_s, most_s = delays(options)
    return CrawlOrder.model_validate(
        {
            "job": {"seeds": list(seeds)},
            "scope": {"accept": list(addresses), "max_hops": _ANY_DEPTH},
            "frontier": {"policy": policy, "politeness": _SCOPES[options.politeness].value, **_NO_LIMITS},
            "politeness": {
                "delay_factor": options.delay_factor,
                "min_delay": least_s,
                "max_delay": most_s,
                "max_connections": options.connections,
                "backoff_base": 0,  # Heritrix has no backoff, and its minutes would dominate a run of one minute
                "backoff_cap": 0,
            },
            "crawl": {"workers": options.workers},
            "limits": {"min_free_disk": 0},
            "fetch": {"allow_private": True},
            "dns": {"hosts": dict(addresses)},
            "report": {"progress": "none", "reports": False},
        }
    )


def _real_order(options: PolicyOptions, policy: str) -> CrawlOrder:
    order, (least_s, most_s) = load_order(None, {}), delays(options)
    assert options.seeds is not None
    scope, fetch = order.scope, order.fetch
    if options.own_hosts:
        own = "|".join(re.escape(_own_host(host)) for host in options.own_hosts)
        others = f"^(?!https?://(?:{own})(?::[0-9]+)?/)"
        # `exclude` keeps links to other hosts out of the queue; `block` also holds against [scope] rules.
        scope = scope.model_copy(update={"exclude": (*scope.exclude, others), "block": (*scope.block, others)})
    if options.allow_private:
        fetch = fetch.model_copy(update={"allow_private": True})
    politeness = {
        "delay_factor": options.delay_factor,
        "min_delay_s": least_s,
        "max_delay_s": most_s,
        "max_connections": options.connections,
    }
    return order.model_copy(
        update={
            "job": order.job.model_copy(update={"seeds": (), "seed_files": (options.seeds.absolute(),)}),
            "scope": scope,
            "fetch": fetch,
            "frontier": order.frontier.model_copy(
                update={"policy": policy, "politeness": _SCOPES[options.politeness].value, **_NO_LIMITS}
            ),
            "politeness": order.politeness.model_copy(update=politeness),
            "crawl": order.crawl.model_copy(update={"workers": options.workers}),
            "report": order.report.model_copy(update={"progress": "none", "reports": False}),
        }
    )
