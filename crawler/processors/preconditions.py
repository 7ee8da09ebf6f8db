"""The conditions of a page's fetch: its host's addresses, and the host's robots.txt (RFC 9309).

The first lease on an origin fetches robots.txt in the page's place, under the slot that the lease holds, and goes back to the
queue deferred; other leases on the origin wait for the same answer and go on. So a robots.txt costs a slot and a rest like any
other fetch. A URL that goes back is judged by the rules at once, so it needs no rules when it comes again.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from anabranch.crawler.fetch.dns import Resolver
from anabranch.crawler.fetch.fetcher import Fetcher
from anabranch.crawler.outcomes.failures import (
    HOST_BUSY_TRIES,
    TROUBLES,
    BadHttp,
    BodyBroken,
    FetchError,
    NameNotFound,
    NameTimeout,
    RobotsUnavailable,
)
from anabranch.crawler.processors.disposition import Disposition
from anabranch.crawler.processors.recorder import Recorder
from anabranch.crawler.robots.cache import (
    LIFETIME_S,
    UNREACHABLE_LIFETIME_S,
    CrawlDelays,
    PendingVerdicts,
    RobotsCache,
    RobotsVerdict,
    describe_cached,
    verdict_of,
)
from anabranch.crawler.robots.retrieval import Followed, follow_redirects, robots_url, rules_of
from anabranch.crawler.robots.rules import ALLOW_UNREACHABLE, DISALLOW_ALL, MAX_ROBOTS_BYTES, UNREACHABLE, RobotsRules
from anabranch.crawler.urls.parsing import host_of
from anabranch.crawler.visit import ChainDecision, Step, Visit
from anabranch.frontier import AsyncFrontier
from anabranch.frontier.records import GateKey

#: Larger files are parsed in a thread: the worst one takes 300 ms.
LARGE_BYTES = 64 * 1024
#: Gates remembered as freed where robots.txt is ignored.
MAX_GATES = 10_000
#: Memory for the rules of other hosts that redirects led to.
MAX_REDIRECTED_BYTES = 8 << 20

OnSitemaps = Callable[[Visit, Sequence[str]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class DnsPrecondition:
    """Lets a visit pass if its host has an address, or if a proxy resolves it. `recorder` makes a lookup's log line durable."""

    resolver: Resolver
    recorder: Recorder
    fetcher: Fetcher
    clock: Callable[[], float]

    async def __call__(self, visit: Visit) -> Step:
        """Look the host up.

        Raises: NameNotFound and ServiceAway without times: the slot does not rest. NameTimeout with its times: the slot rests,
        so that the tries of a name obey its host's delay.
        """
        if self.fetcher.uses_proxy(visit.lease.url):
            return Step.PROCEED
        host, start_s = host_of(visit.lease.url), self.clock()
        try:
            await self.resolver.resolve(host)
        except NameTimeout as error:
            await self._record_lookup(visit, host)
            error.timed(start_s, self.clock())
            raise
        except NameNotFound:
            await self._record_lookup(visit, host)
            raise
        await self._record_lookup(visit, host)
        return Step.PROCEED

    async def _record_lookup(self, visit: Visit, host: str) -> None:
        lookup = self.resolver.take_lookup(host)
        if lookup is not None:
            await self.recorder.lookup(visit, lookup)


@dataclass(frozen=True, slots=True, kw_only=True)
class RobotsOptions:
    """How robots.txt is fetched and obeyed."""

    product: str  #: the product token that groups name
    max_crawl_delay_s: float = 300.0  #: a longer Crawl-delay is cut to this
    cache_s: float = LIFETIME_S  #: how long rules are valid
    unreachable_s: float = UNREACHABLE_LIFETIME_S  #: how long a host without available rules is given up
    timeout_s: float = 60.0  #: for one robots.txt including all redirects
    allow_tries: int = 0  #: failed tries after which all is allowed, if the first was `allow_after_s` ago; 0: never
    allow_after_s: float = 0.0


class IgnoreRobots:
    """Lets every visit pass, and removes Crawl-delays that an earlier run of the job has learnt."""

    def __init__(self, set_delay: Callable[[GateKey, float], None]) -> None:
        self._set_delay = set_delay
        self._freed: OrderedDict[GateKey, None] = OrderedDict()

    async def __call__(self, visit: Visit) -> Step:
        """Free the gate at its first visit, or again when `MAX_GATES` others came in between."""
        if visit.lease.gate not in self._freed:
            self._freed[visit.lease.gate] = None
            if len(self._freed) > MAX_GATES:
                self._freed.popitem(last=False)
            self._set_delay(visit.lease.gate, 0.0)
        return Step.PROCEED


class RobotsPrecondition:
    """Lets a visit pass if robots.txt allows its URL. One fetch per origin at a time; rules are cached.

    `disposition` makes the log line of a fetched robots.txt durable, `frontier` gets its Crawl-delay. `schedule_sitemaps` gets
    its sitemaps before the rules are cached: if that fails, the file is fetched again and they are scheduled again.
    """

    def __init__(
        self,
        fetcher: Fetcher,
        options: RobotsOptions,
        *,
        clock: Callable[[], float],
        frontier: AsyncFrontier,
        disposition: Disposition,
        schedule_sitemaps: OnSitemaps | None = None,
    ) -> None:
        self._fetcher = fetcher
        self._options = options
        self._clock = clock
        self._frontier = frontier
        self._disposition = disposition
        self._schedule_sitemaps = schedule_sitemaps
        self._cache = RobotsCache(options.cache_s, options.unreachable_s)
        self._redirected = RobotsCache(options.cache_s, options.unreachable_s, max_bytes=MAX_REDIRECTED_BYTES)
        self._verdicts = PendingVerdicts()
        self._parsing = asyncio.Lock()  #: large files are parsed one at a time: each may need 10 MB
        self._delays = CrawlDelays()
        self._in_flight: dict[str, asyncio.Future[RobotsRules | None]] = {}

    async def __call__(self, visit: Visit) -> Step:
        """Fetch the rules if they are not known, then judge the URL. Raises: FetchError."""
        url, now_s = visit.lease.url, self._clock()
        verdict = self._verdicts.take(url, now_s)
        rules = self._cache.get(url, now_s)
        if rules is not None:
            verdict = verdict_of(rules, url)
        if verdict is None:
            verdict = await self._wait_for_rules(robots_url(url), visit)
        if verdict is RobotsVerdict.UNKNOWN:
            raise RobotsUnavailable("robots.txt is not available, so nothing may be fetched yet")
        if verdict is RobotsVerdict.ALLOWED and self._options.allow_tries:
            visit.lack_robots(self._cache.tries(url))
        if verdict is RobotsVerdict.EXCLUDED:
            visit.decide(ChainDecision.EXCLUDED)
        return Step.PROCEED if verdict is RobotsVerdict.ALLOWED else Step.STOP

    def words(self, url: str, now_s: float) -> str:
        """The known facts of the robots.txt of this URL's origin, for the operator."""
        if robots_url(url) in self._in_flight:
            return "it is being fetched now"
        return describe_cached(self._cache.look(url), now_s)

    def verdict(self, url: str, now_s: float) -> str:
        """Judge the URL by these facts, and name the line of robots.txt that decides."""
        cached, words = self._cache.look(url), self.words(url, now_s)
        if cached is None or cached.until_s <= now_s:
            return words
        allowed, line, reason = cached.rules.decide(url)
        return f"{'allowed' if allowed else 'disallowed'}{f' by line {line}' if line else ''}: {reason} ({words})"

    async def _wait_for_rules(self, origin: str, visit: Visit) -> RobotsVerdict | None:
        """Fetch the rules, or wait for another visit's fetch; None: the visit's URL goes back to the queue."""
        if origin not in self._in_flight:
            await self._fetch_rules(origin, visit)
            return None
        try:
            rules = await asyncio.shield(self._in_flight[origin])
        except FetchError as error:  # an error of its own, without times: this visit fetched nothing
            raise type(error)(*error.args) from error
        if rules is None or rules.crawl_delay_s:
            visit.decide(ChainDecision.RELEASED)  # the host is busy or wants a delay: wait at its gate
            if rules is not None:
                self._keep_verdict(rules, visit)
            return None
        return verdict_of(rules, visit.lease.url)

    def _keep_verdict(self, rules: RobotsRules, visit: Visit) -> None:
        """Judge the URL for the next time it comes: the cache may have dropped the rules by then."""
        lifetime_s = self._options.unreachable_s if rules in UNREACHABLE else self._options.cache_s
        self._verdicts.keep(visit.lease.url, verdict_of(rules, visit.lease.url), self._clock() + lifetime_s)

    async def _fetch_rules(self, origin: str, visit: Visit) -> None:
        """Fetch robots.txt in the page's place; all visits that wait share the result."""
        waiters = self._in_flight[origin] = asyncio.get_running_loop().create_future()
        try:
            found = await follow_redirects(self._fetcher.get, origin, self._options.timeout_s, self._known)
            visit.received(found.response)
            await self._disposition.record_robots(visit, origin, found.response)
            rules = await self._rules_of(found)
            if self._schedule_sitemaps is not None and rules.sitemaps:
                await self._schedule_sitemaps(visit, rules.sitemaps)
            waiters.set_result(self._learn(origin, visit, rules))
        except FetchError as error:
            failure = error
            if isinstance(error, BadHttp):  # the page is tried again, as after an answer that broke off
                failure = BodyBroken(f"robots.txt: {error}").timed(error.start_s, error.end_s)
            # A host whose answers are bad HTTP is given up like one that refuses. An unknown name is no host.
            if isinstance(failure, (*TROUBLES, BodyBroken)):
                if self._is_allowed_without(origin):
                    self._cache.put(origin, ALLOW_UNREACHABLE, self._clock())
                elif self._cache.refused(origin) >= HOST_BUSY_TRIES:
                    self._cache.put(origin, DISALLOW_ALL, self._clock())
            waiters.set_exception(failure)
            waiters.exception()  # marks it as retrieved: it is raised here, too
            raise failure from error.__cause__
        finally:
            del self._in_flight[origin]
            if not waiters.done():
                waiters.set_result(None)  # cancelled or broken: those that wait go back to the gate and ask again

    def _is_allowed_without(self, origin: str) -> bool:
        """A try has failed: whether the order allows all by now."""
        if not self._options.allow_tries:
            return False
        now_s = self._clock()
        tries, since_s = self._cache.failed(origin, now_s)
        return tries >= self._options.allow_tries and now_s - since_s >= self._options.allow_after_s

    def _known(self, url: str) -> RobotsRules | None:
        """The cached rules at a URL, if it is a robots.txt: of its own host, or of one that redirects there."""
        if url != robots_url(url):
            return None
        now_s = self._clock()
        return self._cache.get(url, now_s) or self._redirected.get(url, now_s)

    async def _rules_of(self, found: Followed) -> RobotsRules:
        """The rules at the end of all redirects; another host's rules are cached for others that redirect there."""
        if found.is_lost:
            return DISALLOW_ALL
        if found.rules is not None:
            return found.rules
        response, product = found.response, self._options.product
        body, is_cut = response.content(MAX_ROBOTS_BYTES + 1)
        is_cut = is_cut or bool(response.cuts)
        if len(body) > LARGE_BYTES:
            async with self._parsing:
                rules = await asyncio.to_thread(rules_of, response.status, body, product, is_cut=is_cut)
        else:
            rules = rules_of(response.status, body, product, is_cut=is_cut)
        if found.is_redirected and found.url == robots_url(found.url) and rules is not DISALLOW_ALL:
            self._redirected.put(found.url, rules, self._clock())
        return rules

    def _learn(self, origin: str, visit: Visit, rules: RobotsRules) -> RobotsRules | None:
        """Cache the rules, set their Crawl-delay on the gate, keep the verdict; None if no rules were available this time.

        Without rules nothing may be fetched (RFC 9309): the host rests and is asked again. After `HOST_BUSY_TRIES` times it is
        given up for `unreachable_s`, and its URLs fail; or, if the order allows them after a time, they wait until then.
        """
        if rules is DISALLOW_ALL:
            if self._is_allowed_without(origin):
                rules = ALLOW_UNREACHABLE
            elif self._options.allow_tries or self._cache.refused(origin) < HOST_BUSY_TRIES:
                visit.decide(ChainDecision.NO_RULES)
                return None
        visit.decide(ChainDecision.DEFERRED)
        self._cache.put(origin, rules, self._clock())
        self._keep_verdict(rules, visit)
        delay_s = min(rules.crawl_delay_s or 0.0, self._options.max_crawl_delay_s)
        self._frontier.set_delay(visit.lease.gate, self._delays.learn(visit.lease.gate, origin, delay_s))
        return rules
