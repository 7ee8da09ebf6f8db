"""What must be known before a page may be fetched: its host's robots.txt (RFC 9309).

The first lease on an origin fetches it under the slot that the lease holds, and goes back deferred to its old place; other
leases that are already out on that origin wait for the same answer and go on. So a robots.txt costs a slot and a rest like
any other fetch.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable

from crawler.chain import Step
from crawler.fetching.fetcher import Fetcher
from crawler.fetching.response import Response
from crawler.outcomes.failures import HOST_BUSY, HOST_BUSY_TRIES, FetchError, RobotsUnavailable
from crawler.robots.rules import DISALLOW_ALL, MAX_ROBOTS_BYTES, RobotsCache, RobotsRules, parse_robots, robots_url
from crawler.urls.parsing import canonical
from crawler.visit import Ending, Visit
from frontier.models import GateKey

#: Redirects of a robots.txt that are followed (RFC 9309, 2.3.1.2).
MAX_REDIRECTS = 5

NoteRobots = Callable[[Visit, str, Response], Awaitable[None]]


class NoRobots:
    """Lets every visit pass, and takes back the Crawl-delays that an earlier run of the job had learnt."""

    def __init__(self, set_delay: Callable[[GateKey, float], None]) -> None:
        self._set_delay = set_delay
        self._freed: set[GateKey] = set()

    async def __call__(self, visit: Visit) -> Step:
        """Free the gate at its first visit."""
        if visit.lease.gate not in self._freed:
            self._freed.add(visit.lease.gate)
            self._set_delay(visit.lease.gate, 0.0)
        return Step.PROCEED


class RobotsPrecondition:
    """Lets a visit pass if robots.txt allows its URL. Single flight per origin; answers are cached."""

    def __init__(
        self,
        fetcher: Fetcher,
        *,
        product: str,
        max_crawl_delay_s: float,
        clock: Callable[[], float],
        set_delay: Callable[[GateKey, float], None],
        note: NoteRobots,
    ) -> None:
        self._fetcher = fetcher
        self._product = product
        self._max_crawl_delay_s = max_crawl_delay_s
        self._clock = clock
        self._set_delay = set_delay
        self._note = note
        self._cache = RobotsCache()
        self._refusals: Counter[str] = Counter()  #: origin -> how often in a row its robots.txt could not be had
        self._delays: defaultdict[GateKey, dict[str, float]] = defaultdict(dict)  #: Crawl-delays by gate and origin
        self._under_way: dict[str, asyncio.Future[RobotsRules | None]] = {}

    async def __call__(self, visit: Visit) -> Step:
        """Fetch the rules if they are not known, then judge the URL. Raises: FetchError."""
        url = visit.lease.url
        rules = self._cache.get(url, self._clock())
        if rules is None:
            origin = robots_url(url)
            if origin not in self._under_way:
                await self._fetch_rules(origin, visit)
                return Step.STOP
            rules = await _answer_of(self._under_way[origin])
            if rules is None or rules.crawl_delay_s:
                visit.ending = Ending.RELEASED  # the host is busy or wants its distance: wait at its gate
                return Step.STOP
        return self._judge(rules, visit)

    def _judge(self, rules: RobotsRules, visit: Visit) -> Step:
        if rules is DISALLOW_ALL:
            raise RobotsUnavailable("robots.txt cannot be had, so nothing may be fetched yet")
        if rules.allows(visit.lease.url):
            return Step.PROCEED
        visit.ending = Ending.EXCLUDED
        return Step.STOP

    async def _fetch_rules(self, origin: str, visit: Visit) -> None:
        """Fetch robots.txt in the page's place; what comes of it is shared with all who wait."""
        waiters = self._under_way[origin] = asyncio.get_running_loop().create_future()
        try:
            response = await self._follow(origin)
            visit.response = response
            await self._note(visit, origin, response)
            waiters.set_result(self._learn(origin, visit, response))
        except FetchError as error:
            waiters.set_exception(error)
            waiters.exception()  # it is raised here too, so nobody need have waited
            raise
        finally:
            del self._under_way[origin]
            if not waiters.done():
                waiters.set_result(None)  # cancelled or broken: who waits goes back to the gate and asks again

    def _learn(self, origin: str, visit: Visit, response: Response) -> RobotsRules | None:
        """Keep the rules; None if they could not be had and must be asked for again when the host has rested.

        RFC 9309 lets nothing be fetched meanwhile. After `HOST_BUSY_TRIES` in a row that stands for as long as the cache
        keeps it, and the host's URLs fail.
        """
        visit.ending = Ending.DEFERRED
        content, _ = response.content(MAX_ROBOTS_BYTES)
        rules = parse_robots(response.status, content, self._product)
        if response.status in HOST_BUSY or rules is DISALLOW_ALL:
            self._refusals[origin] += 1
            if self._refusals[origin] < HOST_BUSY_TRIES:
                visit.ending = Ending.UNRULED
                return None
            rules = DISALLOW_ALL
        del self._refusals[origin]
        self._cache.put(visit.lease.url, rules, self._clock())
        self._keep_distance(origin, visit.lease.gate, rules.crawl_delay_s or 0.0)
        return rules

    def _keep_distance(self, origin: str, gate: GateKey, delay_s: float) -> None:
        """A gate keeps the longest Crawl-delay of its origins; one that was taken back is forgotten."""
        delays = self._delays[gate]
        delays[origin] = min(delay_s, self._max_crawl_delay_s)
        self._set_delay(gate, max(delays.values()))
        if not delays[origin]:
            del delays[origin]
        if not delays:
            del self._delays[gate]

    async def _follow(self, url: str) -> Response:
        """The answer at the end of at most five redirects, with the times of the whole."""
        first = response = await self._fetcher.get(url)
        for _ in range(MAX_REDIRECTS):
            target = None if response.location is None else canonical(response.location, url)
            if target is None:
                break
            url = target
            response.body.close()
            response = await self._fetcher.get(url)
        return response if response is first else response.beginning(first.start_s)


async def _answer_of(under_way: asyncio.Future[RobotsRules | None]) -> RobotsRules | None:
    """What the fetch under way brings; its failure as an error of one's own, without times: nothing was fetched here."""
    try:
        return await asyncio.shield(under_way)
    except FetchError as error:
        raise type(error)(*error.args) from error
