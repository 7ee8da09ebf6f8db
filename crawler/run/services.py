"""The services that many hosts share, while a run crawls: notices that one is away, waits for it, and goes on.

    a visit meets it -> its gate shuts: the Frontier holds what needs it -> probes -> it answers: all that was held comes back

`service_gates` decides when to probe and when to give up. Known services have a probe of their own: name servers, proxies, the
network, open files. A service that a user function names has none, so one visit is let through from time to time.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import structlog

from anabranch.crawler.fetch.addresses import ip_literal
from anabranch.crawler.fetch.dns import Resolver, lacks_files
from anabranch.crawler.outcomes.endings import WhyEnded
from anabranch.crawler.outcomes.failures import (
    NAME_SERVERS,
    NETWORK,
    OPEN_FILES,
    FetchError,
    LoginRefused,
    NameTimeout,
    ProxyRefused,
    ServiceAway,
    proxy_service,
)
from anabranch.crawler.run.run_state import RunState
from anabranch.crawler.run.service_gates import ServiceGates
from anabranch.crawler.run.verbs import QUEUE_GATE
from anabranch.crawler.urls.parsing import host_of
from anabranch.frontier import AsyncFrontier
from anabranch.frontier.errors import PolicyError
from anabranch.frontier.records import GateKey, Lease, OutcomeKind, UrlState
from anabranch.frontier.times import counted, duration_words

if TYPE_CHECKING:
    from anabranch.crawler.fetch.fetcher import Fetcher
    from anabranch.crawler.fetch.proxy import Proxy
    from anabranch.crawler.report.statistics import CrawlStatistics
    from anabranch.crawler.visit import Visit

log = structlog.get_logger(__name__)

#: The most URLs of names without an answer that are remembered.
MOST_NAMES = 100_000


class Service(ABC):
    """A service that many hosts share, as the run knows it. All hosts need this one, and it has no probe."""

    def needs(self, gate: GateKey) -> bool:
        """Whether the URLs behind a gate need it."""
        del gate
        return True

    @abstractmethod
    def has_worked(self) -> bool:
        """In this run."""

    async def probe(self) -> str | None:
        """Why it is still away, empty if it is back; None: a visit finds out."""
        return None


class _UserService(Service):
    """A service that a user function names."""

    def __init__(self, statistics: CrawlStatistics) -> None:
        self._statistics = statistics

    def has_worked(self) -> bool:
        return self._statistics.pages > 0


class Services:
    """The services of one run. Used on the event loop only."""

    def __init__(
        self,
        gates: ServiceGates,
        frontier: AsyncFrontier,
        run_state: RunState,
        known: Mapping[str, Service],
        statistics: CrawlStatistics,
        prepare: Callable[[Visit], None] | None = None,
        earlier_names: Callable[[], list[tuple[str, bytes]]] = list,
    ) -> None:
        """`known` are the services with a probe, by name; `statistics` count the pages of this run.

        `prepare` asks the queue policies what they say of a visit's end; None: none is a user function. `earlier_names`
        (blocks): the URLs, with their keys, whose name only timed out in an earlier run.
        """
        self.gates = gates
        self._frontier = frontier
        self._run_state = run_state
        self._clock = frontier.core.now_s
        self._known = known
        self._user_service = _UserService(statistics)
        self._prepare = prepare
        self._earlier_names = earlier_names
        self._changed = asyncio.Event()
        self._passed: set[str] = set()  #: services that a visit finds out about
        self._names: dict[int, GateKey] = {}  #: URLs that wait because their name only times out -> their gates
        self.names_waiting = 0  #: names, if only such URLs are left

    # Visits

    def begun(self, lease: Lease) -> None:
        """A visit begins."""
        if self._names:
            self._names.pop(lease.ordinal, None)
            if self.names_waiting:
                self.names_waiting = 0
                self._report()

    def prepare(self, visit: Visit) -> None:
        """Ask the queue policies that are user functions, before anything of the visit is written. Raises: PolicyError."""
        if self._prepare is not None:
            self._prepare(visit)

    def judge(self, lease: Lease, error: FetchError) -> FetchError:
        """The failure of a visit, after the gate of a service that it met is shut. Call it before the lease is ended."""
        if isinstance(error, ProxyRefused):
            return self._judge_refusal(error)
        if isinstance(error, LoginRefused):
            self._run_state.stop(WhyEnded.LOGIN_REFUSED, detail=str(error))
            return ServiceAway(f"login {error.page}", error.reason)
        if isinstance(error, ServiceAway):
            self._met(lease, error)
        return error

    def ended(self, visit: Visit, kind: OutcomeKind | None) -> None:
        """A visit was disposed of."""
        if self._passed and not isinstance(visit.failure, ServiceAway):
            self._found_out(is_page=kind is OutcomeKind.DONE)
        if kind is OutcomeKind.RETRY and isinstance(visit.failure, NameTimeout) and len(self._names) < MOST_NAMES:
            self._names[visit.lease.ordinal] = visit.lease.gate
        if self._names:
            self._look_at_names()

    # The run

    async def watch(self) -> None:
        """Probe services that are away, and end the run if one is away for too long; until cancelled."""
        await self._recall_names()
        while not self._run_state.stopped.is_set():
            self._changed.clear()
            now_s = self._clock()
            over = [service for service in self.gates.away if self._given_up_s(service) <= now_s]
            due = {*self.gates.due(now_s), *over}  # a last probe when the time is over
            if due:
                await asyncio.gather(*(self._probe(service) for service in due))
                self._give_up(over)
                continue
            times = [away.next_s for away in self.gates.away.values()]
            times += map(self._given_up_s, self.gates.away)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), max(min(times) - now_s, 0.0) if times else None)

    def facts(self) -> list[dict[str, Any]]:
        """The services that are away, as JSON holds them."""
        away = self.gates.away.items()
        return [{"service": name, "since_s": one.since_s, "reason": one.reason, "worker": ""} for name, one in away]

    def up(self) -> dict[str, int]:
        """1 for each service that is there and 0 for each that is away, by name."""
        return {**dict.fromkeys(self._known, 1), **dict.fromkeys(self.gates.away, 0)}

    # Inside

    def _of(self, service: str) -> Service:
        return self._known.get(service) or self._user_service

    def _met(self, lease: Lease, error: ServiceAway) -> None:
        service, now_s = error.service, self._clock()
        if self.gates.shut(service, error.reason, now_s):
            self._frontier.core.holds.add(service, self._of(service).needs)
            log.warning("a service is away; what needs it waits", service=service, reason=error.reason)
        self._passed.discard(service)
        self._frontier.core.holds.refuse(service, lease.gate)
        self._report()
        self._changed.set()

    async def _probe(self, service: str) -> None:
        fault = await self._of(service).probe()
        if fault is None:
            self._passed.add(service)
            self.gates.failed(service, self._clock())  # until a visit has found out that it is back
            self._frontier.let_pass(service)
            return
        if fault:
            self.gates.shut(service, fault, self._clock())
            self.gates.failed(service, self._clock())
        else:
            self._open(service)

    def _found_out(self, *, is_page: bool) -> None:
        """A visit passed the gates of user-defined services: with its page they are back, else another visit finds out."""
        for service in list(self._passed):
            if is_page:
                self._open(service)
            else:
                self._frontier.let_pass(service)

    def _open(self, service: str) -> None:
        self._passed.discard(service)
        away = self.gates.open(service, self._clock())
        if away is not None:
            log.warning(
                "the service is back; the crawl goes on", service=service, away_s=round(self._clock() - away.since_s)
            )
        self._frontier.lift(service)
        self._report()

    def _given_up_s(self, service: str) -> float:
        return self.gates.given_up_s(service, has_worked=self._of(service).has_worked())

    def _give_up(self, over: Sequence[str]) -> None:
        """End the run if one of these services, for which the order waits no longer, is still away."""
        for service in over:
            if service in self.gates.away:
                has_worked = self._of(service).has_worked()
                why = WhyEnded.SERVICE_AWAY if has_worked else WhyEnded.SERVICE_NEVER_THERE
                self._run_state.stop(why, detail=f"{service} ({self.gates.away[service].reason or 'away'})")
                return

    def _judge_refusal(self, error: ProxyRefused) -> FetchError:
        """Without credentials, or before a proxy has let anything through, its refusal ends the run; else it is the URL's."""
        service = self._known.get(proxy_service(error.proxy))
        if error.is_rule and service is not None and service.has_worked():
            return error
        self._run_state.stop(WhyEnded.PROXY_REFUSED, detail=str(error))
        return ServiceAway(proxy_service(error.proxy), error.reason)

    async def _recall_names(self) -> None:
        """Learn which queued URLs wait because their name only timed out in an earlier run."""
        if not self._frontier.core.counts().waiting:
            return
        urls = await asyncio.to_thread(self._earlier_names)
        # If a user function fails for their queues, the crawl waits without saying for what.
        with suppress(PolicyError):
            for record in await self._frontier.look(self._frontier.core.operations.views.records(urls)):
                if record is not None and record.state is UrlState.WAITING:
                    self._names.setdefault(record.ordinal, GateKey(host_of(record.url)))
        self._look_at_names()

    def _look_at_names(self) -> None:
        """Whether nothing is left but URLs of names that only time out."""
        counts, hosting = self._frontier.core.counts(), self._frontier.core.hosting
        others = 0 if hosting is None else hosting.others.waiting
        waiting = counts.waiting - others
        is_only = not counts.in_flight and self._frontier.core.pending <= waiting <= len(self._names)
        names = len({*self._names.values()}) if is_only else 0
        if names != self.names_waiting:
            self.names_waiting = names
            self._report()

    def _report(self) -> None:
        """Tell the run why it waits."""
        reasons = [
            f"waits for {name} since {_clock_time(away.since_s)}: {away.reason or 'away'}"
            for name, away in self.gates.away.items()
        ]
        if self.names_waiting:
            at_s = self._frontier.core.wake().at_s
            when = "" if at_s is None else f", the next in {duration_words(max(at_s - self._clock(), 0.0))}"
            reasons.append(f"waits to try {counted(self.names_waiting, 'name')} without an answer again{when}")
        self._run_state.wait("; ".join(reasons))


def _clock_time(at_s: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at_s))


def known_services(resolver: Resolver, fetcher: Fetcher) -> dict[str, Service]:
    """The services that each crawl has, and its proxies."""
    return {
        NAME_SERVERS: _NameServers(resolver, fetcher),
        NETWORK: _Network(fetcher),
        OPEN_FILES: _OpenFiles(fetcher),
        **{name: _ProxyServer(fetcher, proxy) for name, proxy in fetcher.proxies.items()},
    }


class _NameServers(Service):
    def __init__(self, resolver: Resolver, fetcher: Fetcher) -> None:
        self._resolver = resolver
        self._fetcher = fetcher

    def needs(self, gate: GateKey) -> bool:
        if gate.startswith(QUEUE_GATE) or ip_literal(gate) is not None:  # a queue of many hosts: its URLs find out
            return False
        uses_proxy = any(self._fetcher.may_use(gate, proxy) for proxy in self._fetcher.proxies.values())
        return not (uses_proxy or self._resolver.has_address(gate))

    def has_worked(self) -> bool:
        return self._resolver.has_answered

    async def probe(self) -> str:
        return "" if await self._resolver.answers() else "they do not answer"


class _Network(Service):
    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher

    def has_worked(self) -> bool:
        return self._fetcher.has_worked(None)

    async def probe(self) -> str:
        return "" if await self._fetcher.has_network() else "nothing can be reached"


class _OpenFiles(_Network):
    async def probe(self) -> str:
        return "too many files are open; raise the limit (ulimit -n) or lower [crawl] workers" if lacks_files() else ""


class _ProxyServer(Service):
    def __init__(self, fetcher: Fetcher, proxy: Proxy) -> None:
        self._fetcher = fetcher
        self._proxy = proxy

    def needs(self, gate: GateKey) -> bool:
        return self._fetcher.may_use(gate, self._proxy)

    def has_worked(self) -> bool:
        return self._fetcher.has_worked(self._proxy)

    async def probe(self) -> str:
        return await self._fetcher.fault_of(self._proxy)
