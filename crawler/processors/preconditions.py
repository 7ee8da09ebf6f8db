"""What must be known before a page may be fetched: its host's robots.txt (RFC 9309).

The first lease on an origin fetches it under the slot that the lease holds, and goes back deferred to its old place; other
leases that are already out on that origin wait for the same answer and go on. So a robots.txt costs a slot and a rest like
any other fetch. Whoever goes back has been judged by the answer already, and needs no rules when it comes again.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from anabranch.crawler.chain import Step
from anabranch.crawler.fetching.fetcher import Fetcher
from anabranch.crawler.fetching.response import Response
from anabranch.crawler.outcomes.failures import HOST_BUSY_TRIES, TROUBLES, BadHttp, FetchError, RobotsUnavailable
from anabranch.crawler.robots.cache import LIFETIME_S, UNREACHABLE_LIFETIME_S, RobotsCache, robots_url, rules_of
from anabranch.crawler.robots.delays import CrawlDelays
from anabranch.crawler.robots.explaining import kept_words
from anabranch.crawler.robots.parsing import DISALLOW_ALL, MAX_ROBOTS_BYTES, RobotsRules
from anabranch.crawler.robots.redirects import Followed, follow_redirects
from anabranch.crawler.robots.verdicts import Verdict, Verdicts, verdict_of
from anabranch.crawler.visit import Ending, Visit
from anabranch.frontier.models import GateKey

#: Larger files are read in a thread of their own: the worst one takes 300 ms.
LARGE_BYTES = 64 * 1024
#: Gates that are remembered as freed where robots.txt is ignored.
MAX_GATES = 10_000
#: What the rules of other hosts, that redirects led to, may take in memory.
MAX_ELSEWHERE_BYTES = 8 << 20

NoteRobots = Callable[[Visit, str, Response], Awaitable[None]]
Announce = Callable[[Visit, Sequence[str]], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RobotsOptions:
    """How robots.txt is taken."""

    product: str  #: the product token, as groups name it
    max_crawl_delay_s: float = 300.0  #: a longer Crawl-delay is cut
    cache_s: float = LIFETIME_S  #: rules are asked for again after so long
    unreachable_s: float = UNREACHABLE_LIFETIME_S  #: a host whose rules cannot be had is given up for so long
    timeout_s: float = 60.0  #: for one robots.txt, all its redirects together


class NoRobots:
    """Lets every visit pass, and takes back the Crawl-delays that an earlier run of the job had learnt."""

    def __init__(self, set_delay: Callable[[GateKey, float], None]) -> None:
        self._set_delay = set_delay
        self._freed: OrderedDict[GateKey, None] = OrderedDict()

    async def __call__(self, visit: Visit) -> Step:
        """Free the gate at its first visit, or at a later one of a crawl of very many."""
        if visit.lease.gate not in self._freed:
            self._freed[visit.lease.gate] = None
            if len(self._freed) > MAX_GATES:
                self._freed.popitem(last=False)
            self._set_delay(visit.lease.gate, 0.0)
        return Step.PROCEED


class RobotsPrecondition:
    """Lets a visit pass if robots.txt allows its URL. Single flight per origin; answers are cached.

    `note` makes the line of a fetched robots.txt durable. `announce` is told the sitemaps that it names, before the rules are
    kept: if it fails, or the visit is broken off, the file is asked for again, and they are told again.
    """

    def __init__(
        self,
        fetcher: Fetcher,
        options: RobotsOptions,
        *,
        clock: Callable[[], float],
        set_delay: Callable[[GateKey, float], None],
        note: NoteRobots,
        announce: Announce | None = None,
    ) -> None:
        self._fetcher = fetcher
        self._options = options
        self._clock = clock
        self._set_delay = set_delay
        self._note = note
        self._announce = announce
        self._cache = RobotsCache(options.cache_s, options.unreachable_s)
        self._elsewhere = RobotsCache(options.cache_s, options.unreachable_s, max_bytes=MAX_ELSEWHERE_BYTES)
        self._verdicts = Verdicts()
        self._reading = asyncio.Lock()  #: large files are read one after the other: each may need 10 MB meanwhile
        self._delays = CrawlDelays()
        self._under_way: dict[str, asyncio.Future[RobotsRules | None]] = {}

    async def __call__(self, visit: Visit) -> Step:
        """Fetch the rules if they are not known, then judge the URL. Raises: FetchError."""
        url, now_s = visit.lease.url, self._clock()
        verdict = self._verdicts.take(url, now_s)
        rules = self._cache.get(url, now_s)
        if rules is not None:
            verdict = verdict_of(rules, url)
        if verdict is None:
            verdict = await self._wait_for_rules(robots_url(url), visit)
        return _ended(visit, verdict)

    def words(self, url: str, now_s: float) -> str:
        """What is known of the robots.txt of this URL's origin, for the operator."""
        if robots_url(url) in self._under_way:
            return "it is being fetched now"
        return kept_words(self._cache.look(url), now_s)

    async def _wait_for_rules(self, origin: str, visit: Visit) -> Verdict | None:
        """Fetch the rules, or have another visit's answer; None: the visit has to come again."""
        if origin not in self._under_way:
            await self._fetch_rules(origin, visit)
            return None
        rules = await _answer_of(self._under_way[origin])
        if rules is None or rules.crawl_delay_s:
            visit.ending = Ending.RELEASED  # the host is busy or wants its distance: wait at its gate
            if rules is not None:
                self._judge_ahead(rules, visit)
            return None
        return verdict_of(rules, visit.lease.url)

    def _judge_ahead(self, rules: RobotsRules, visit: Visit) -> None:
        """The visit's URL comes again, when these rules may have made room for others."""
        lifetime_s = self._options.unreachable_s if rules is DISALLOW_ALL else self._options.cache_s
        self._verdicts.keep(visit.lease.url, verdict_of(rules, visit.lease.url), self._clock() + lifetime_s)

    async def _fetch_rules(self, origin: str, visit: Visit) -> None:
        """Fetch robots.txt in the page's place; what comes of it is shared with all who wait."""
        waiters = self._under_way[origin] = asyncio.get_running_loop().create_future()
        try:
            found = await follow_redirects(self._fetcher.get, origin, self._options.timeout_s, self._known)
            visit.response = found.response
            await self._note(visit, origin, found.response)
            rules = await self._rules_of(found)
            if self._announce is not None and rules.sitemaps:
                await self._announce(visit, rules.sitemaps)
            waiters.set_result(self._learn(origin, visit, rules))
        except FetchError as error:
            self._count_failure(origin, error)
            waiters.set_exception(error)
            waiters.exception()  # it is raised here too, so nobody need have waited
            raise
        finally:
            del self._under_way[origin]
            if not waiters.done():
                waiters.set_result(None)  # cancelled or broken: who waits goes back to the gate and asks again

    def _known(self, url: str) -> RobotsRules | None:
        """The rules at a URL, if it is a robots.txt that was fetched lately: for its own host, or for one that leads there."""
        if url != robots_url(url):
            return None
        now_s = self._clock()
        return self._cache.get(url, now_s) or self._elsewhere.get(url, now_s)

    async def _rules_of(self, found: Followed) -> RobotsRules:
        """The rules at the end of all redirects; those of another host are remembered for others that lead there."""
        if found.is_lost:
            return DISALLOW_ALL
        if found.rules is not None:
            return found.rules
        rules = await self._read(found.response)
        if found.is_redirected and found.url == robots_url(found.url) and rules is not DISALLOW_ALL:
            self._elsewhere.put(found.url, rules, self._clock())
        return rules

    async def _read(self, response: Response) -> RobotsRules:
        """The rules out of an answer; a large one does not hold up the others."""
        product = self._options.product
        body, is_cut = response.content(MAX_ROBOTS_BYTES + 1)
        is_cut = is_cut or bool(response.cuts)
        if len(body) > LARGE_BYTES:
            async with self._reading:
                return await asyncio.to_thread(rules_of, response.status, body, product, is_cut=is_cut)
        return rules_of(response.status, body, product, is_cut=is_cut)

    def _learn(self, origin: str, visit: Visit, rules: RobotsRules) -> RobotsRules | None:
        """Take in what the fetch brought and end the visit; None if there were no rules to be had this time.

        Rules are kept, by origin and as the gate's Crawl-delay, and the visit goes back with the verdict on its URL. Without
        any, RFC 9309 lets nothing be fetched: the host rests and is asked again. After `HOST_BUSY_TRIES` such times in a row
        that is its answer for `unreachable_s`, and its URLs fail.
        """
        visit.ending = Ending.DEFERRED
        if rules is DISALLOW_ALL and self._cache.refused(origin) < HOST_BUSY_TRIES:
            visit.ending = Ending.UNRULED
            return None
        self._cache.put(origin, rules, self._clock())
        self._judge_ahead(rules, visit)
        delay_s = min(rules.crawl_delay_s or 0.0, self._options.max_crawl_delay_s)
        self._set_delay(visit.lease.gate, self._delays.learn(visit.lease.gate, origin, delay_s))
        return rules

    def _count_failure(self, origin: str, error: FetchError) -> None:
        """A host that gives no answer that can be read is given up like one that refuses; a name of no use is no host."""
        if isinstance(error, (*TROUBLES, BadHttp)) and self._cache.refused(origin) >= HOST_BUSY_TRIES:
            self._cache.put(origin, DISALLOW_ALL, self._clock())


def _ended(visit: Visit, verdict: Verdict | None) -> Step:
    """Go on if the URL may be fetched. Raises: RobotsUnavailable."""
    if verdict is Verdict.UNKNOWN:
        raise RobotsUnavailable("robots.txt cannot be had, so nothing may be fetched yet")
    if verdict is Verdict.EXCLUDED:
        visit.ending = Ending.EXCLUDED
    return Step.PROCEED if verdict is Verdict.ALLOWED else Step.STOP


async def _answer_of(under_way: asyncio.Future[RobotsRules | None]) -> RobotsRules | None:
    """What the fetch under way brings; its failure as an error of one's own, without times: nothing was fetched here."""
    try:
        return await asyncio.shield(under_way)
    except FetchError as error:
        raise type(error)(*error.args) from error
