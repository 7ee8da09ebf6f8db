"""Services over a real Frontier in virtual time: outages of minutes and hours cost milliseconds."""

from __future__ import annotations

import asyncio
import selectors
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest

from anabranch.crawler.order.sections import LimitsSection, UsedLimits
from anabranch.crawler.outcomes.endings import WhyEnded
from anabranch.crawler.outcomes.failures import NAME_SERVERS, FetchError, NameTimeout, ProxyRefused, ServiceAway
from anabranch.crawler.processors.disposition import decide
from anabranch.crawler.report.statistics import CrawlStatistics, WorkerBoard
from anabranch.crawler.run.limits import RunLimits
from anabranch.crawler.run.run_state import Phase, RunState
from anabranch.crawler.run.service_gates import LONGEST_S, ServiceGates
from anabranch.crawler.run.services import Service, Services
from anabranch.crawler.run.workers import WorkerPool
from anabranch.crawler.visit import Step, Visit
from anabranch.frontier.aio import AsyncFrontier
from anabranch.frontier.composition import FrontierOrder, open_frontier
from anabranch.frontier.frontier import Frontier
from anabranch.frontier.records import Candidate, GateKey, Outcome, OutcomeKind
from anabranch.frontier.scheduling.gates import Politeness
from tests.crawler.builder import memory_frontier, response
from tests.frontier.builder import START_S

HOSTS = [f"h{number}.test" for number in range(20)]
URLS = [f"http://{host}/{page}" for host in HOSTS for page in range(30)]
REST_S = 1.0
FETCH_S = 0.25


class _Idle(selectors.SelectSelector):
    """Waits for nothing: the time of the loop moves on instead."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout:
            self.now_s += max(timeout, 1e-6)  # less is lost in epoch seconds
        return super().select(0 if timeout is not None else None)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time jumps to the next timer."""

    def __init__(self) -> None:
        self.idle = _Idle()
        super().__init__(self.idle)

    def time(self) -> float:
        return self.idle.now_s


def in_virtual_time(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main())


def now_s() -> float:
    return START_S + asyncio.get_running_loop().time()


@dataclass
class World:
    """The world of a crawl: outages by the seconds since its beginning, names without an answer, and a log of visits."""

    outages: dict[str, tuple[float, float]]  #: service -> from when to when it is away
    cached: frozenset[str] = frozenset()  #: hosts whose addresses are known without a name server
    silent: frozenset[str] = frozenset()  #: hosts whose names only time out
    visits: list[tuple[str, float]] = field(default_factory=list)  #: URL and time of each fetch
    tries: list[tuple[str, float]] = field(default_factory=list)  #: of names without an answer
    probes: list[float] = field(default_factory=list)

    def is_away(self, service: str) -> bool:
        since_s, until_s = self.outages.get(service, (0.0, 0.0))
        return since_s <= asyncio.get_running_loop().time() < until_s

    async def fetch(self, visit: Visit) -> Step:
        host = visit.lease.gate
        for service in self.outages:
            if service == NAME_SERVERS and host in self.cached:
                continue
            await asyncio.sleep(0.01)
            if self.is_away(service):
                raise ServiceAway(service, "no answer")
        begun_s = now_s()
        await asyncio.sleep(FETCH_S)
        if host in self.silent:
            self.tries.append((visit.lease.url, now_s() - START_S))
            raise NameTimeout("no answer").timed(begun_s, now_s())
        if any(self.is_away(service) for service in self.outages if service != NAME_SERVERS):
            raise ServiceAway(next(filter(self.is_away, self.outages)), "under way").timed(begun_s, now_s())
        self.visits.append((visit.lease.url, now_s() - START_S))
        visit.received(response()._replace(start_s=begun_s, end_s=now_s()))
        return Step.PROCEED

    @property
    def pages(self) -> int:
        return len(self.visits)


class OfWorld(Service):
    """A service in a world; its probe takes half a second."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name

    def needs(self, gate: GateKey) -> bool:
        return not (self.name == NAME_SERVERS and gate in self.world.cached)

    def has_worked(self) -> bool:
        return bool(self.world.visits)

    async def probe(self) -> str:
        self.world.probes.append(asyncio.get_running_loop().time())
        await asyncio.sleep(0.5)
        return "no answer" if self.world.is_away(self.name) else ""


class Proxied(Service):
    """A proxy that has let something through, or not yet."""

    def __init__(self, *, has_worked: bool) -> None:
        self._has_worked = has_worked

    def has_worked(self) -> bool:
        return self._has_worked


class Crawl:
    """Four workers over a Frontier in memory whose hosts rest for a second, in this world."""

    def __init__(self, world: World, frontier: AsyncFrontier, first_s: float = 60.0, most_s: float = 86_400.0) -> None:
        self.world = world
        self.frontier = frontier
        self.phases: list[tuple[float, Phase, str]] = []
        self.ended: Counter[str] = Counter()
        self.run_state = RunState(lambda _: None, self._phase)
        known = {name: OfWorld(world, name) for name in world.outages}
        gates = ServiceGates(first_s, most_s)
        self.services = Services(gates, frontier, self.run_state, known, world)
        board, statistics = WorkerBoard(), CrawlStatistics(started_s=now_s())
        limits = RunLimits(LimitsSection(), self.run_state, statistics, UsedLimits(0, 0), lambda: None)
        chain = (("fetch", world.fetch),)
        self.pool = WorkerPool(frontier, chain, self._dispose, statistics, limits, board, services=self.services)

    def _phase(self, phase: Phase, reason: str) -> None:
        self.phases.append((now_s() - START_S, phase, reason))

    async def _dispose(self, visit: Visit) -> OutcomeKind | None:
        outcome = decide(visit, now_s())
        if outcome is None:
            outcome = Outcome(OutcomeKind.DEFERRED)
        self.frontier.finish(visit.lease, outcome)
        self.ended[outcome.kind.value] += 1
        return outcome.kind

    async def run(self, workers: int = 4) -> None:
        self.run_state.begin(self.frontier)
        watching = asyncio.create_task(self.services.watch())
        stopping = asyncio.create_task(self._stop())
        async with asyncio.TaskGroup() as group:
            for number in range(workers):
                group.create_task(self.pool.work(number))
        for task in (watching, stopping):
            task.cancel()

    async def _stop(self) -> None:
        await self.run_state.stopped.wait()
        self.frontier.stop_leasing()


async def crawled(world: World, urls: list[str] = URLS, **bounds: float) -> Crawl:
    order = FrontierOrder(
        policy="host", politeness=Politeness(delay_factor=0.0, min_delay_s=REST_S, max_delay_s=REST_S)
    )

    def open_core(on_change: Callable[[], None]) -> Frontier:
        return open_frontier(None, order, clock=clock, on_change=on_change)

    loop = asyncio.get_running_loop()

    def clock() -> float:
        return START_S + loop.time()

    async with AsyncFrontier(open_core) as frontier:
        frontier.schedule([Candidate(url=url) for url in urls])
        crawl = Crawl(world, frontier, **bounds)
        await crawl.run()
        return crawl


def polite(visits: list[tuple[str, float]]) -> bool:
    """No host was asked again before it had rested."""
    last: dict[str, float] = {}
    for url, at_s in visits:
        host = url.split("/")[2]
        if at_s - last.get(host, -REST_S - FETCH_S) < REST_S + FETCH_S - 0.001:
            return False
        last[host] = at_s
    return True


@pytest.mark.parametrize("service", [NAME_SERVERS, "network", "proxy http://127.0.0.1:3128"])
@pytest.mark.parametrize(("since_s", "away_s"), [(0.0, 45.0), (10.0, 45.0), (10.0, 600.0), (10.0, 7200.0)])
def test_a_service_that_is_away_costs_no_url_and_no_try(service: str, since_s: float, away_s: float) -> None:
    """45 seconds, ten minutes, two hours: every page once, hosts rest as always, the crawl waits and says so."""

    async def main() -> None:
        world = World({service: (since_s, since_s + away_s)})
        crawl = await crawled(world)
        assert Counter(url for url, _ in world.visits) == Counter(URLS)
        assert crawl.ended["done"] == len(URLS)
        assert set(crawl.ended) <= {"done", "deferred"}
        assert crawl.ended["deferred"] <= 2 * len(HOSTS)
        assert polite(world.visits)
        assert not [at_s for _, at_s in world.visits if since_s + FETCH_S < at_s < since_s + away_s]
        back_s = min(at_s for _, at_s in world.visits if at_s >= since_s + away_s)
        assert back_s - since_s - away_s <= min(away_s, LONGEST_S) * 1.1 + 2.0
        assert [phase for _, phase, _ in crawl.phases][:3] == [Phase.RUNNING, Phase.WAITING, Phase.RUNNING]
        assert f"waits for {service} since " in crawl.phases[1][2]
        assert crawl.frontier.core.is_done

    in_virtual_time(main)


def test_hosts_with_known_addresses_go_on_while_the_name_servers_are_away() -> None:
    """At the rate they have alone."""

    async def main() -> None:
        known = frozenset(HOSTS[:10])
        world = World({NAME_SERVERS: (5.0, 605.0)}, cached=known)
        await crawled(world)
        assert Counter(url for url, _ in world.visits) == Counter(URLS)
        last_s = max(at_s for url, at_s in world.visits if url.split("/")[2] in known)
        assert last_s < 200.0

    in_virtual_time(main)


def test_probes_grow_apart_and_never_come_more_often_than_a_minute() -> None:
    """Ten minutes cost about fifteen questions."""

    async def main() -> None:
        world = World({"network": (10.0, 610.0)})
        await crawled(world)
        gaps = [later - earlier for earlier, later in pairwise(world.probes)]
        assert gaps == sorted(gaps) or max(gaps) <= LONGEST_S * 1.1 + 1.0
        assert len(world.probes) <= 17

    in_virtual_time(main)


@pytest.mark.parametrize(
    ("since_s", "bounds", "waited_s", "why"),
    [
        (0.0, {}, 60.0, WhyEnded.SERVICE_NEVER_THERE),
        (30.0, {"most_s": 600.0}, 600.0, WhyEnded.SERVICE_AWAY),
        (30.0, {}, 86_400.0, WhyEnded.SERVICE_AWAY),
    ],
)
def test_the_run_ends_when_a_service_was_away_for_too_long(
    since_s: float, bounds: dict[str, float], waited_s: float, why: WhyEnded
) -> None:
    """Nothing has failed, and the URLs are still queued."""

    async def main() -> None:
        world = World({"network": (since_s, 1e9)})
        crawl = await crawled(world, **bounds)
        assert crawl.run_state.ending is why
        assert abs(asyncio.get_running_loop().time() - since_s - waited_s) < 5.0
        assert crawl.ended["done"] + crawl.frontier.core.pending == len(URLS)
        assert "network (no answer)" in crawl.run_state.end_reason

    in_virtual_time(main)


def test_without_a_bound_a_service_is_waited_for_for_days() -> None:
    """`outage_max` = 0."""

    async def main() -> None:
        world = World({"network": (10.0, 3 * 86_400.0)})
        crawl = await crawled(world, most_s=0.0)
        assert crawl.ended["done"] == len(URLS)

    in_virtual_time(main)


def test_two_services_are_waited_for_together() -> None:
    """URLs that need both services are fetched only after both are back."""

    async def main() -> None:
        world = World({NAME_SERVERS: (10.0, 300.0), "network": (20.0, 900.0)}, cached=frozenset(HOSTS[:5]))
        await crawled(world)
        assert Counter(url for url, _ in world.visits) == Counter(URLS)
        assert not [at_s for _, at_s in world.visits if 21.0 < at_s < 900.0]

    in_virtual_time(main)


def test_a_service_without_a_probe_is_found_out_by_one_visit_at_a_time() -> None:
    """A service that a user function names has no probe of its own, so each probe costs one visit."""

    async def main() -> None:
        world = World({"model": (10.0, 610.0)})
        crawl = await crawled_with_unknown(world)
        assert Counter(url for url, _ in world.visits) == Counter(URLS)
        assert crawl.ended["deferred"] <= 4 + 20

    in_virtual_time(main)


async def crawled_with_unknown(world: World) -> Crawl:
    """Crawl as `crawled` does, but the run has no probe for the service `model`."""
    since_s, until_s = world.outages.pop("model")

    async def fetch(visit: Visit) -> Step:
        begun_s = now_s()
        await asyncio.sleep(FETCH_S)
        if since_s <= asyncio.get_running_loop().time() < until_s:
            raise ServiceAway("model", "busy")
        world.visits.append((visit.lease.url, now_s() - START_S))
        visit.received(response()._replace(start_s=begun_s, end_s=now_s()))
        return Step.PROCEED

    world.fetch = fetch  # type: ignore[method-assign]
    return await crawled(world)


def test_names_that_only_time_out_are_tried_for_hours_and_obey_their_hosts_rest() -> None:
    """10 s, 30 s, 10 min, 1 h, 4 h; then they have failed. When only they are left the phase says so, with the next time."""

    async def main() -> None:
        world = World({}, silent=frozenset(HOSTS[:2]))
        urls = URLS[:90]  # three hosts, two of them silent
        crawl = await crawled(world, urls)
        assert (crawl.ended["done"], crawl.ended["failed"]) == (30, 60)
        assert Counter(url for url, _ in world.tries) == Counter(dict.fromkeys(urls[:60], 6))
        assert polite(world.tries)
        of_one = [at_s for url, at_s in world.tries if url == urls[0]]
        gaps = [later - earlier for earlier, later in pairwise(of_one)]
        assert all(gap >= wait for gap, wait in zip(gaps, (10.0, 30.0, 600.0, 3600.0, 14_400.0), strict=True))
        waiting = [reason for _, phase, reason in crawl.phases if phase is Phase.WAITING]
        assert any("waits to try 2 names without an answer again, the next in " in reason for reason in waiting)

    in_virtual_time(main)


@pytest.mark.parametrize("has_worked", [False, True])
def test_a_rule_of_a_proxy_ends_the_run_only_before_it_has_let_anything_through(has_worked: bool) -> None:
    """Else a page could end the crawl with one link to a port that the proxy does not allow."""

    async def main() -> None:
        async with memory_frontier("http://a.test/") as frontier:
            state = RunState(lambda _: None)
            known = {"proxy http://p:1": Proxied(has_worked=has_worked)}
            services = Services(ServiceGates(60.0, 0.0), frontier, state, known, CrawlStatistics(0.0))
            lease = await frontier.lease()
            refused = ProxyRefused("http://p:1", "does not connect", is_rule=True)
            judged: FetchError = services.judge(lease, refused)
            assert (judged is refused, state.stopped.is_set()) == (has_worked, not has_worked)
            assert services.judge(lease, ProxyRefused("http://p:1", "wants a password")) is not refused
            assert state.ending is WhyEnded.PROXY_REFUSED
            frontier.release(lease)

    in_virtual_time(main)
