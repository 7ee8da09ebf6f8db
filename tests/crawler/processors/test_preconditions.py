"""The preconditions: a host's addresses, then its robots.txt."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from anabranch.crawler.fetch import connections
from anabranch.crawler.fetch.addresses import Lookup
from anabranch.crawler.fetch.dns import Resolver
from anabranch.crawler.fetch.fetcher import Fetcher
from anabranch.crawler.fetch.options import FetchOptions
from anabranch.crawler.fetch.response import Cut, Scratch
from anabranch.crawler.outcomes.failures import (
    AddressRefused,
    BadHttp,
    BodyBroken,
    ConnectFailed,
    ConnectionLost,
    FetchTimeout,
    KeptConnectionClosed,
    NameNotFound,
    NameTimeout,
    RobotsUnavailable,
    ServiceAway,
)
from anabranch.crawler.processors import preconditions
from anabranch.crawler.processors.disposition import decide
from anabranch.crawler.processors.preconditions import (
    LARGE_BYTES,
    DnsPrecondition,
    IgnoreRobots,
    RobotsOptions,
    RobotsPrecondition,
)
from anabranch.crawler.processors.recorder import visit_annotations
from anabranch.crawler.robots.cache import LIFETIME_S, UNREACHABLE_LIFETIME_S, RobotsCache
from anabranch.crawler.robots.retrieval import MAX_REDIRECTS, rules_of
from anabranch.crawler.robots.rules import ALLOW_ALL
from anabranch.crawler.visit import ChainDecision, Step, Visit
from anabranch.frontier.errors import StoreUnavailable
from anabranch.frontier.records import GateKey, HostTrouble, OutcomeKind
from tests.crawler.builder import END_S, START_S, response, settle, visit
from tests.frontier.builder import FakeClock
from tests.site.dns_server import DnsServer
from tests.site.page import Fault, Host, Page, failure, file, redirect
from tests.site.server import SmallWeb


class Named:
    """The precondition over a real name server, what it records, and which URLs a proxy fetches."""

    def __init__(self, server: DnsServer, hosts: dict[str, str]) -> None:
        self.server = server
        self.clock = FakeClock(START_S)
        self.resolver = Resolver([server.address], hosts, clock=self.clock, timeout_s=0.2)
        self.notes: list[tuple[str, str, int]] = []
        self.by_proxy = ()
        self.process = DnsPrecondition(self.resolver, self, self, self.clock)

    def uses_proxy(self, url: str) -> bool:
        return url in self.by_proxy

    async def lookup(self, one: Visit, made: Lookup) -> None:
        await asyncio.sleep(0)
        self.notes.append((one.lease.url, made.url, made.status))


@asynccontextmanager
async def opened(table: dict[str, list[str]], hosts: dict[str, str] | None = None) -> AsyncIterator[Named]:
    async with DnsServer(table) as server:
        named = Named(server, hosts or {})
        yield named
        await named.resolver.close()


async def test_a_host_with_an_address_lets_its_pages_pass_and_is_noted_once() -> None:
    """All who wait for the same lookup go on; one of them has the line."""
    async with opened({"a.test": ["127.0.0.1"]}) as named:
        steps = await asyncio.gather(*(named.process(visit(url=f"http://a.test:81/{n}")) for n in range(5)))
        assert set(steps) == {Step.PROCEED}
        assert [note[1:] for note in named.notes] == [("dns:a.test", 1)]
        assert named.server.questions[("a.test", "A")] == 1


async def test_a_host_without_an_address_ends_the_visit_before_anything_is_fetched() -> None:
    """The failure is noted and raised; it has no times, so no slot rests, and the host is in no trouble."""
    async with opened({}) as named:
        one = visit(url="http://no.test/")
        with pytest.raises(NameNotFound) as raised:
            await named.process(one)
        one.failure = raised.value
        decided = decide(one, START_S)
        assert decided
        assert (decided.kind, decided.status, decided.trouble) == (OutcomeKind.FAILED, -1, HostTrouble.NONE)
        assert one.fetch_times is None
        assert named.notes == [("http://no.test/", "dns:no.test", -1)]


async def test_a_name_server_that_does_not_answer_is_a_failure_to_be_tried_again() -> None:
    """And has its line as well."""
    async with opened({"a.test": ["127.0.0.1"]}) as named:
        named.server.broken.add("a.test")
        one = visit()
        with pytest.raises(NameTimeout) as raised:
            await named.process(one)
        one.failure = raised.value
        decided = decide(one, START_S)
        assert decided
        assert decided.kind is OutcomeKind.RETRY
        assert (decided.start_s, decided.end_s) == (START_S, START_S)  # its tries obey the host's delay
        assert [status for _, _, status in named.notes] == [-1]


@pytest.mark.parametrize("url", ["http://a.test/", "http://127.0.0.1/", "http://[::1]:81/"])
async def test_what_need_not_be_looked_up_has_no_line(url: str) -> None:
    """Names of the order's table, and addresses."""
    async with opened({}, {"a.test": "127.0.0.1"}) as named:
        assert await named.process(visit(url=url)) is Step.PROCEED
        assert named.notes == []


async def test_an_answer_that_is_too_old_is_looked_up_and_noted_again() -> None:
    """The second line belongs to the visit that asked."""
    async with opened({"a.test": ["127.0.0.1"]}) as named:
        for later_s in (0.0, 59.0, 2.0):
            named.clock.advance(later_s)
            await named.process(visit(url=f"http://a.test/{later_s}"))
        assert [via for via, _, _ in named.notes] == ["http://a.test/0.0", "http://a.test/2.0"]


async def test_a_host_that_a_proxy_asks_for_is_not_looked_up() -> None:
    """The proxy does that; whatever we knew of the name would be of no use."""
    async with opened({}) as named:
        named.by_proxy = ("http://far.test/",)
        assert await named.process(visit(url="http://far.test/")) is Step.PROCEED
        with pytest.raises(NameNotFound):
            await named.process(visit(url="http://near.test/"))


RULES = b"User-agent: *\nDisallow: /private\n"
WITH_DELAY = b"User-agent: *\nCrawl-delay: 2\n"
DEFERRED = OutcomeKind.DEFERRED
OPEN, SHUT = "http://a.test/open", "http://a.test/private"


class Robots:
    """The precondition with what it is told and what it tells."""

    def __init__(self, fetcher, **options) -> None:
        self.clock = FakeClock(START_S)
        self.delays = []
        self.notes = []
        self.sitemaps = []
        self.failing = []  #: what announcing raises
        self.process = RobotsPrecondition(
            fetcher,
            RobotsOptions(product="anabranch", **options),
            clock=self.clock,
            frontier=self,
            disposition=self,
            schedule_sitemaps=self._announce,
        )

    async def _announce(self, one, urls) -> None:
        await asyncio.sleep(0)
        self.sitemaps.append((one, urls))
        if self.failing:
            raise self.failing.pop()

    def set_delay(self, gate, delay_s):
        self.delays.append((gate, delay_s))

    async def record_robots(self, one, url, answer) -> None:
        await asyncio.sleep(0)
        self.notes.append((one, url, answer.status))

    async def visit(self, url=OPEN, *, attempts=0):
        """The visit after the precondition, and what it answered or raised."""
        one = visit(url=url, attempts=attempts)
        try:
            return one, await self.process(one)
        except Exception as error:  # noqa: BLE001 - the test looks at it
            return one, error

    async def visits(self, *urls):
        """Visits that begin at the same moment."""
        return await asyncio.gather(*map(self.visit, urls))

    async def knows(self):
        """Have the rules fetched."""
        await self.visit()
        self.notes.clear()


def web_of(**robots):
    """A web in which a.test has this robots.txt."""
    return SmallWeb({"a.test": Host(pages={"/robots.txt": Page(**robots)}), "b.test": Host()})


def web_with(pages):
    return SmallWeb({"a.test": Host(pages=pages)})


class Opened:
    """A small web, and the precondition over a real fetcher."""

    def __init__(self, web, fetch=None, **options) -> None:
        self.web = web
        self._fetch = {"timeout_s": 10.0, "max_body_bytes": 1 << 20, "allow_private": True} | (fetch or {})
        self._options = options

    async def __aenter__(self):
        await self.web.__aenter__()
        clock = FakeClock(START_S)
        self._resolver = Resolver((), self.web.hosts, clock=clock)
        self._fetcher = Fetcher(
            FetchOptions(user_agent="anabranch", **self._fetch),
            resolver=self._resolver,
            scratch=Scratch(None),
            clock=self.web.now,
        )
        return Robots(self._fetcher, **self._options)

    async def __aexit__(self, *error):
        await self._fetcher.close()
        await self._resolver.close()
        await self.web.__aexit__(*error)


class HeldFetcher:
    """Answers when the test says so, with what the test says: a response, or an error to raise."""

    def __init__(self) -> None:
        self.asked = []
        self.answers = asyncio.Queue()

    async def get(self, url, **_):
        self.asked.append(url)
        answer = await self.answers.get()
        if isinstance(answer, BaseException):
            raise answer
        return answer


def rules(body=RULES):
    return response(200, body)


# Known rules


async def test_the_first_visit_fetches_the_rules_and_goes_back_deferred() -> None:
    """It keeps the answer and its times, since its slot was used; robots.txt gets its own line."""
    web = web_of(body=RULES, content_type="text/plain")
    async with Opened(web) as robots:
        one, step = await robots.visit()
        assert (step, one.decision, one.response.body.read()) == (Step.STOP, ChainDecision.DEFERRED, RULES)
        assert robots.notes == [(one, "http://a.test/robots.txt", 200)]
        assert decide(one, START_S).kind is DEFERRED
        assert decide(one, START_S).end_s == one.response.end_s


async def test_known_rules_let_a_page_pass_or_exclude_it_without_a_fetch() -> None:
    """One robots.txt for all pages of an origin."""
    web = web_of(body=RULES, content_type="text/plain")
    async with Opened(web) as robots:
        await robots.knows()
        one, step = await robots.visit(OPEN)
        assert (step, one.decision, one.response) == (Step.PROCEED, ChainDecision.NONE, None)
        one, step = await robots.visit(SHUT)
        assert (step, one.decision, one.response) == (Step.STOP, ChainDecision.EXCLUDED, None)
        assert web.ledger.counts() == {"http://a.test/robots.txt": 1}
        assert robots.notes == []


async def test_each_origin_has_its_own_rules() -> None:
    """Another host, another port or another scheme is asked by itself."""
    fetcher = HeldFetcher()
    robots = Robots(fetcher)
    for _ in range(3):
        fetcher.answers.put_nowait(rules())
    await robots.visits("http://a.test/", "http://a.test:81/", "https://a.test/")
    assert fetcher.asked == [
        "http://a.test/robots.txt",
        "http://a.test:81/robots.txt",
        "https://a.test/robots.txt",
    ]


async def test_a_missing_robots_txt_allows_everything() -> None:
    """404: the site has nothing to say."""
    async with Opened(SmallWeb({"a.test": Host()})) as robots:
        await robots.knows()
        assert (await robots.visit(SHUT))[1] is Step.PROCEED


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (200, RULES, (ChainDecision.NONE, ChainDecision.EXCLUDED)),
        (200, b"\x1f\x8b\0no gzip", (ChainDecision.NO_RULES, ChainDecision.NO_RULES)),
        (404, b"\x1f\x8b\0no gzip", (ChainDecision.NONE, ChainDecision.NONE)),
    ],
)
async def test_a_robots_txt_that_is_labelled_gzip_is_read_if_it_is_text(status, body, expected) -> None:
    """If a body cannot be decoded, the rules are unavailable, not empty, which would allow all; a 404 stays a 404."""
    fetcher = HeldFetcher()
    robots = Robots(fetcher)
    for _ in range(3):
        fetcher.answers.put_nowait(response(status, body, Content_Encoding="gzip"))
    await robots.knows()
    assert ((await robots.visit(OPEN))[0].decision, (await robots.visit(SHUT))[0].decision) == expected


# Single flight


async def test_others_on_the_origin_wait_for_the_same_answer_and_go_on() -> None:
    """One fetch; the first goes back, the others are judged by the rules and hold no answer."""
    web = web_of(body=RULES, content_type="text/plain")
    async with Opened(web) as robots:
        (first, stop), (second, go), (third, out) = await robots.visits(OPEN, OPEN, SHUT)
        assert (first.decision, second.decision, third.decision) == (
            ChainDecision.DEFERRED,
            ChainDecision.NONE,
            ChainDecision.EXCLUDED,
        )
        assert (stop, go, out) == (Step.STOP, Step.PROCEED, Step.STOP)
        assert (second.response, third.response) == (None, None)
        assert web.ledger.counts() == {"http://a.test/robots.txt": 1}


async def test_those_who_wait_are_released_when_the_host_wants_its_distance() -> None:
    """They are out on the host already, and closer together than the Crawl-delay that it asks for."""
    web = web_of(body=WITH_DELAY, content_type="text/plain")
    async with Opened(web) as robots:
        (first, _), (second, step) = await robots.visits(OPEN, OPEN)
        assert (first.decision, second.decision, step) == (ChainDecision.DEFERRED, ChainDecision.RELEASED, Step.STOP)
        assert robots.delays == [("a.test", 2.0)]
        assert (await robots.visit())[1] is Step.PROCEED, "at the gate's pace they go on"


async def test_a_crawl_delay_is_cut_at_the_orders_longest() -> None:
    """A host may not park a crawl for a year."""
    web = web_of(body=WITH_DELAY, content_type="text/plain")
    async with Opened(web, max_crawl_delay_s=1.5) as robots:
        await robots.visit()
        assert robots.delays == [("a.test", 1.5)]


def delay_of(seconds):
    """A robots.txt that asks for so much distance."""
    return rules(b"User-agent: *\nCrawl-delay: %d\n" % seconds)


@pytest.mark.parametrize(("http_s", "https_s"), [(9, 2), (2, 9), (9, 0), (0, 9)])
async def test_a_gate_keeps_the_longest_crawl_delay_of_its_origins(http_s, https_s) -> None:
    """The origins of http and https share a gate: whichever is asked last, the stricter holds."""
    fetcher = HeldFetcher()
    robots = Robots(fetcher)
    for url, delay_s in (("http://a.test/", http_s), ("https://a.test/", https_s)):
        fetcher.answers.put_nowait(delay_of(delay_s))
        await robots.visit(url)
    assert robots.delays == [("a.test", http_s), ("a.test", 9)]


async def test_a_crawl_delay_that_is_gone_is_taken_back() -> None:
    """When the rules are asked for again the gate is freed, but not from what its other origin still wants."""
    fetcher = HeldFetcher()
    robots = Robots(fetcher)
    for url, delay_s in (("http://a.test/", 9), ("https://a.test/", 2), ("http://a.test/", 0), ("https://a.test/", 0)):
        fetcher.answers.put_nowait(delay_of(delay_s))
        await robots.visit(url)
        robots.clock.advance(LIFETIME_S)
    assert [delay_s for _, delay_s in robots.delays] == [9.0, 9.0, 2.0, 0.0]
    assert not robots.process._delays, "what is taken back takes no memory"


async def test_rules_without_a_crawl_delay_free_the_gate_of_an_earlier_runs() -> None:
    """The gate's delay outlives a run; this run has learnt that there is none."""
    fetcher = HeldFetcher()
    fetcher.answers.put_nowait(rules())
    robots = Robots(fetcher)
    await robots.visit()
    assert robots.delays == [("a.test", 0.0)]


# No rules at all


async def test_who_ignores_robots_txt_passes_and_frees_each_gate_once() -> None:
    """Crawl-delays that an earlier run of the job had learnt are taken back at the gate's first visit."""
    freed = []
    process = IgnoreRobots(lambda gate, delay_s: freed.append((gate, delay_s)))
    first = visit(url=OPEN)
    assert await process(first) is Step.PROCEED
    assert await process(visit(url=SHUT)) is Step.PROCEED
    assert freed == [("a.test", 0.0)]
    assert (first.decision, first.response) == (ChainDecision.NONE, None)
    other = visit(url="http://b.test/")
    other.lease = other.lease._replace(gate=GateKey("b.test"))
    assert await process(other) is Step.PROCEED
    assert freed == [("a.test", 0.0), ("b.test", 0.0)]


# Rules that cannot be had

UNAVAILABLE = [429, 500, 502, 503, 504]


@pytest.mark.parametrize("status", UNAVAILABLE)
async def test_a_robots_txt_that_cannot_be_had_closes_its_gate_and_is_asked_for_again(status) -> None:
    """Nothing is decided and no attempt counted: the first and those who waited go back, the next asks again."""
    web = web_of(first=(failure(status, ("Retry-After", "9")),), body=RULES, content_type="text/plain")
    async with Opened(web) as robots:
        (first, stop), (second, step) = await robots.visits(OPEN, OPEN)
        decided = decide(first, START_S)
        assert (stop, first.decision) == (Step.STOP, ChainDecision.NO_RULES)
        assert (decided.kind, decided.retry_after_s, decided.end_s) == (DEFERRED, 9.0, first.response.end_s)
        assert decided.trouble is (HostTrouble.THROTTLED if status == 429 else HostTrouble.UNAVAILABLE)
        assert (step, second.decision) == (Step.STOP, ChainDecision.RELEASED)
        assert robots.delays == [], "a refusal says nothing of the Crawl-delay"
        third, _ = await robots.visit()
        assert third.decision is ChainDecision.DEFERRED
        assert web.ledger.statuses("http://a.test/robots.txt") == [status, 200]
        assert [status for _, _, status in robots.notes] == [status, 200]


@pytest.mark.parametrize("status", UNAVAILABLE)
async def test_after_five_refusals_in_a_row_the_urls_fail_at_once_for_an_hour(status) -> None:
    """Those who waited and those who come fail without a fetch; the gate is not closed, or they would outlast the hour."""
    web = web_of(first=(failure(status, ("Retry-After", "9")),) * 5, body=RULES, content_type="text/plain")
    async with Opened(web) as robots:
        endings = [(await robots.visit())[0].decision for _ in range(4)]
        (last, stop), (second, waited) = await robots.visits(OPEN, OPEN)
        third, came = await robots.visit()
        assert [*endings, last.decision] == [ChainDecision.NO_RULES] * 4 + [ChainDecision.DEFERRED]
        decided = decide(last, START_S)
        assert (stop, decided.kind, decided.trouble, decided.retry_after_s) == (
            Step.STOP,
            DEFERRED,
            HostTrouble.NONE,
            0.0,
        )
        assert isinstance(waited, RobotsUnavailable)
        assert isinstance(came, RobotsUnavailable)
        assert waited is not came
        assert (second.response, third.response) == (None, None)
        robots.clock.advance(3599.0)
        assert isinstance((await robots.visit())[1], RobotsUnavailable)
        assert web.ledger.count("http://a.test/robots.txt") == 5
        robots.clock.advance(1.0)
        await robots.knows()
        assert (await robots.visit())[1] is Step.PROCEED


def answers(*statuses, **options):
    """A fetcher that gives these answers, and the precondition over it."""
    fetcher = HeldFetcher()
    for status in statuses:
        fetcher.answers.put_nowait(response(status, RULES))
    return fetcher, Robots(fetcher, **options)


HOUR_S = 3600.0


@pytest.mark.parametrize("status", [500, 503, 429])
async def test_after_so_many_tries_over_so_much_time_all_is_allowed(status) -> None:
    """Both must hold; until then the URLs wait, and none fails. Their lines have the number of tries."""
    _, robots = answers(*[status] * 9, 200, allow_tries=3, allow_after_s=12 * HOUR_S)
    for _ in range(6):  # many tries, but within an hour
        assert (await robots.visit())[0].decision is ChainDecision.NO_RULES
        robots.clock.advance(HOUR_S / 6)
    robots.clock.advance(10 * HOUR_S)
    assert (await robots.visit())[0].decision is ChainDecision.NO_RULES
    robots.clock.advance(HOUR_S)
    assert (await robots.visit())[0].decision is ChainDecision.DEFERRED
    one, step = await robots.visit(SHUT)
    assert (step, one.decision, visit_annotations(one)) == (Step.PROCEED, ChainDecision.NONE, ("robotsUnreachable:8",))
    assert "without success for as long as the order waits" in robots.process.words(OPEN, robots.clock())
    robots.clock.advance(HOUR_S)  # it is requested again, and still counts
    assert (await robots.visit())[0].decision is ChainDecision.DEFERRED
    assert visit_annotations((await robots.visit())[0]) == ("robotsUnreachable:9",)
    robots.clock.advance(HOUR_S)
    assert (await robots.visit())[0].decision is ChainDecision.DEFERRED
    one, step = await robots.visit(SHUT)
    assert (step, one.decision, one.robots_tries) == (Step.STOP, ChainDecision.EXCLUDED, 0)


async def test_a_long_time_with_few_tries_frees_nothing() -> None:
    """A crawl that asked twice in a month does not know."""
    _, robots = answers(*[500] * 3, allow_tries=3, allow_after_s=12 * HOUR_S)
    assert (await robots.visit())[0].decision is ChainDecision.NO_RULES
    robots.clock.advance(1000 * HOUR_S)
    assert (await robots.visit())[0].decision is ChainDecision.NO_RULES
    assert (await robots.visit())[0].decision is ChainDecision.DEFERRED


async def test_a_host_that_does_not_answer_is_given_up_and_counts() -> None:
    """Its URLs fail as ever, or dead hosts would keep a crawl; if it is back for pages alone, these are allowed."""
    fetcher, robots = answers(allow_tries=6, allow_after_s=HOUR_S)
    for _ in range(5):
        fetcher.answers.put_nowait(ConnectFailed("refused").timed(START_S, END_S))
        assert isinstance((await robots.visit())[1], ConnectFailed)
    assert isinstance((await robots.visit())[1], RobotsUnavailable)
    robots.clock.advance(UNREACHABLE_LIFETIME_S)
    fetcher.answers.put_nowait(ConnectFailed("refused").timed(START_S, END_S))
    assert isinstance((await robots.visit())[1], ConnectFailed)
    one, step = await robots.visit()
    assert (step, one.robots_tries) == (Step.PROCEED, 6)


async def test_rules_in_between_begin_the_count_anew() -> None:
    """The host was reachable."""
    _, robots = answers(500, 200, 500, 500, allow_tries=2, allow_after_s=0.0)
    assert (await robots.visit())[0].decision is ChainDecision.NO_RULES
    assert (await robots.visit())[0].decision is ChainDecision.DEFERRED
    robots.clock.advance(LIFETIME_S)
    assert (await robots.visit())[0].decision is ChainDecision.NO_RULES
    assert (await robots.visit())[0].decision is ChainDecision.DEFERRED


async def test_an_answer_ends_the_row_of_refusals() -> None:
    """Rules that were had once are not given up for the refusals before them."""
    _, robots = answers(500, 500, 500, 500, 200, 500)
    for _ in range(5):
        await robots.visit()
    robots.clock.advance(LIFETIME_S)
    assert (await robots.visit())[0].decision is ChainDecision.NO_RULES


async def test_after_the_hour_the_refusals_are_counted_anew() -> None:
    """A host that was given up is asked five times again."""
    _, robots = answers(*[503] * 10)
    for _ in range(2):
        endings = [(await robots.visit())[0].decision for _ in range(5)]
        assert endings == [ChainDecision.NO_RULES] * 4 + [ChainDecision.DEFERRED]
        robots.clock.advance(UNREACHABLE_LIFETIME_S)


async def test_refusals_are_counted_by_origin() -> None:
    """Four of http and one of https are not five."""
    _, robots = answers(*[503] * 5)
    for _ in range(4):
        await robots.visit()
    assert (await robots.visit("https://a.test/"))[0].decision is ChainDecision.NO_RULES


async def test_a_fetch_that_fails_is_the_first_visits_failure_and_nobody_elses_slot_rests() -> None:
    """Each who waited fails by an error of its own, without times; the first one's has the times of the fetch."""
    web = web_of(fault=Fault.CLOSE)
    async with Opened(web) as robots:
        (_, first), (_, second), (_, third) = await robots.visits(OPEN, OPEN, OPEN)
        assert {type(error) for error in (first, second, third)} == {ConnectionLost}
        assert len({id(error) for error in (first, second, third)}) == 3
        assert first.end_s >= first.start_s > 0
        assert [(error.start_s, error.end_s, str(error)) for error in (second, third)] == [(0.0, 0.0, str(first))] * 2
        assert robots.notes == []
        await robots.visit()
        assert web.ledger.count("http://a.test/robots.txt") == 2, "a failure is not kept"


async def test_a_failure_that_was_not_waited_for_makes_no_noise() -> None:
    """The single visit has raised it; nobody else need hear of it."""
    noises = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: noises.append(context))
    fetcher = HeldFetcher()
    fetcher.answers.put_nowait(ConnectFailed("refused").timed(START_S, END_S))
    _, error = await Robots(fetcher).visit()
    assert isinstance(error, ConnectFailed)
    del error  # its traceback holds what would complain
    gc.collect()
    assert noises == []


@pytest.mark.parametrize(
    ("kind", "failure"),
    [
        (ConnectFailed, ConnectFailed),
        (ConnectionLost, ConnectionLost),
        (BadHttp, BodyBroken),
        (FetchTimeout, FetchTimeout),
    ],
)
async def test_a_host_that_gives_no_answer_five_times_in_a_row_is_given_up_for_an_hour(kind, failure) -> None:
    """Each time it is the visit's own failure; then the host's URLs fail without a fetch.

    A page is not given up because its robots.txt is no HTTP once.
    """
    fetcher = HeldFetcher()
    robots = Robots(fetcher)
    for _ in range(5):
        fetcher.answers.put_nowait(kind("no answer").timed(START_S, END_S))
        assert isinstance((await robots.visit())[1], failure)
    assert isinstance((await robots.visit())[1], RobotsUnavailable)
    robots.clock.advance(UNREACHABLE_LIFETIME_S)
    fetcher.answers.put_nowait(rules())
    assert (await robots.visit())[0].decision is ChainDecision.DEFERRED
    assert len(fetcher.asked) == 6


@pytest.mark.parametrize("kind", [NameNotFound, AddressRefused])
async def test_a_name_or_address_of_no_use_is_each_urls_own_failure(kind) -> None:
    """It says nothing of a host, so no host is given up for it."""
    fetcher = HeldFetcher()
    robots = Robots(fetcher)
    for _ in range(7):
        fetcher.answers.put_nowait(kind("no"))
        assert isinstance((await robots.visit())[1], kind)


async def test_refusals_and_failures_make_one_row() -> None:
    """Four 503 and a time-out are five times without rules."""
    fetcher, robots = answers(*[503] * 4)
    for _ in range(4):
        await robots.visit()
    fetcher.answers.put_nowait(FetchTimeout("slow"))
    assert isinstance((await robots.visit())[1], FetchTimeout)
    assert isinstance((await robots.visit())[1], RobotsUnavailable)


# Large and cut files, sitemaps, times


async def test_a_large_file_is_read_beside_the_loop(monkeypatch) -> None:
    """In a thread, so that it holds up nobody; what stands in it counts."""
    threads = []
    read = preconditions.rules_of
    monkeypatch.setattr(
        preconditions, "rules_of", lambda *a, **k: threads.append(threading.current_thread()) or read(*a, **k)
    )
    fetcher = HeldFetcher()
    robots = Robots(fetcher)
    for url, body in (("http://a.test/", RULES), ("http://b.test/", RULES + b"#" * 70_000)):
        fetcher.answers.put_nowait(rules(body))
        await robots.visit(url)
    assert [thread is threading.main_thread() for thread in threads] == [True, False]
    assert (await robots.visit("http://b.test/private"))[0].decision is ChainDecision.EXCLUDED


async def test_the_last_line_of_a_body_that_was_cut_does_not_count() -> None:
    """Half a rule is another rule."""
    fetcher = HeldFetcher()
    robots = Robots(fetcher)
    fetcher.answers.put_nowait(response(200, b"User-agent: *\nDisallow: /private\nDisallow: /", cuts=(Cut.LENGTH,)))
    await robots.visit()
    assert (await robots.visit(OPEN))[1] is Step.PROCEED
    assert (await robots.visit(SHUT))[0].decision is ChainDecision.EXCLUDED


async def test_sitemaps_are_announced_once_with_the_visit_that_fetched_them() -> None:
    """Whoever wants them schedules them; a file without any announces nothing."""
    fetcher = HeldFetcher()
    robots = Robots(fetcher)
    fetcher.answers.put_nowait(rules(RULES + b"Sitemap: http://a.test/map.xml\n"))
    one, _ = await robots.visit()
    await robots.visit()
    fetcher.answers.put_nowait(rules())
    await robots.visit("https://a.test/")
    assert robots.sitemaps == [(one, ("http://a.test/map.xml",))]


async def test_sitemaps_that_could_not_be_announced_are_announced_when_the_file_is_fetched_again() -> None:
    """The rules are kept only then: nobody would ask for the file for a day. Those who waited go back meanwhile."""
    fetcher = HeldFetcher()
    robots = Robots(fetcher)
    robots.failing.append(StoreUnavailable("gone"))
    for _ in range(2):
        fetcher.answers.put_nowait(rules(RULES + b"Sitemap: http://a.test/map.xml\n"))
    (first, failure), (second, _) = await robots.visits(OPEN, OPEN)
    assert (type(failure), first.decision, second.decision) == (
        StoreUnavailable,
        ChainDecision.NONE,
        ChainDecision.RELEASED,
    )
    third, _ = await robots.visit()
    assert third.decision is ChainDecision.DEFERRED
    assert [(one, urls) for one, urls in robots.sitemaps if one is not first] == [(third, ("http://a.test/map.xml",))]
    assert len(fetcher.asked) == 2


async def test_a_visit_that_is_cancelled_while_it_announces_keeps_no_rules() -> None:
    """A hurried stop, or a lease that is lost: the next one announces again."""
    fetcher = HeldFetcher()
    robots = Robots(fetcher)
    robots.failing.append(asyncio.CancelledError())
    for _ in range(2):
        fetcher.answers.put_nowait(rules(RULES + b"Sitemap: http://a.test/map.xml\n"))
    with pytest.raises(asyncio.CancelledError):
        await robots.visit()
    await robots.visit()
    assert len(robots.sitemaps) == 2


async def test_the_order_says_how_long_rules_and_refusals_hold() -> None:
    """Then they are asked for again."""
    fetcher = HeldFetcher()
    robots = Robots(fetcher, cache_s=60.0, unreachable_s=10.0)
    for answer in (rules(), *[response(503)] * 5, rules()):
        fetcher.answers.put_nowait(answer)
    await robots.visit()
    robots.clock.advance(59.0)
    assert (await robots.visit())[1] is Step.PROCEED
    robots.clock.advance(1.0)
    for _ in range(5):
        await robots.visit()
    robots.clock.advance(9.0)
    assert isinstance((await robots.visit())[1], RobotsUnavailable)
    robots.clock.advance(1.0)
    assert (await robots.visit())[0].decision is ChainDecision.DEFERRED


async def test_a_deferred_url_is_judged_by_the_answer_it_waited_for() -> None:
    """When it comes back the rules may have made room for others: then they are not asked for again, but for the next URL."""
    fetcher = HeldFetcher()
    robots = Robots(fetcher)
    robots.process._cache = RobotsCache(max_origins=1)
    for url in (OPEN, SHUT, "http://b.test/open"):
        fetcher.answers.put_nowait(rules())
        assert (await robots.visit(url))[0].decision is ChainDecision.DEFERRED
        robots.process._cache.put("http://other.test/", ALLOW_ALL, 0.0)
    asked = list(fetcher.asked)
    assert (await robots.visit(OPEN))[1] is Step.PROCEED
    assert (await robots.visit(SHUT))[0].decision is ChainDecision.EXCLUDED
    assert (await robots.visit("http://b.test/open"))[1] is Step.PROCEED
    assert fetcher.asked == asked
    fetcher.answers.put_nowait(rules())
    assert (await robots.visit(OPEN))[0].decision is ChainDecision.DEFERRED


async def test_urls_that_wait_for_their_gate_are_judged_by_the_answer_too() -> None:
    """A host that wants its distance sends those back that waited for its answer; they need no rules either."""
    fetcher = HeldFetcher()
    robots = Robots(fetcher)
    first, second = await started(robots, OPEN, "http://a.test/other")
    fetcher.answers.put_nowait(rules(WITH_DELAY))
    await asyncio.gather(first, second)
    robots.process._cache = RobotsCache()
    assert (await robots.visit("http://a.test/other"))[1] is Step.PROCEED
    assert fetcher.asked == ["http://a.test/robots.txt"]


async def test_a_url_whose_host_was_given_up_fails_without_the_cache() -> None:
    """Not to know the rules is a verdict, too."""
    fetcher = HeldFetcher()
    robots = Robots(fetcher)
    for _ in range(5):
        fetcher.answers.put_nowait(response(500))
        await robots.visit()
    robots.process._cache = RobotsCache()
    assert isinstance((await robots.visit())[1], RobotsUnavailable)


async def test_one_large_file_is_read_at_a_time(monkeypatch) -> None:
    """Reading one takes 10 MB for a moment: a hundred hosts with large files do not take them all at once."""
    reading, most = 0, 0

    def read(*args, **cut):
        nonlocal reading, most
        reading += 1
        most = max(most, reading)
        time.sleep(0.02)
        reading -= 1
        return rules_of(*args, **cut)

    monkeypatch.setattr(preconditions, "rules_of", read)
    fetcher = HeldFetcher()
    robots = Robots(fetcher)
    visits = await started(robots, *(f"http://{name}.test/" for name in "abc"))
    for _ in visits:
        fetcher.answers.put_nowait(rules(RULES + b"#" * LARGE_BYTES))
    await asyncio.gather(*visits)
    assert most == 1


async def test_what_is_remembered_of_gates_is_bounded(monkeypatch) -> None:
    """The gate freed first is forgotten first."""
    monkeypatch.setattr(preconditions, "MAX_GATES", 2)
    freed = []
    free = IgnoreRobots(lambda gate, delay_s: freed.append(gate))
    for name in "abca":
        one = visit(url=f"http://{name}.test/")
        one.lease = one.lease._replace(gate=GateKey(name))
        await free(one)
    assert freed == ["a", "b", "c", "a"]


# Redirects


def chain_of(redirects):
    """robots.txt after so many redirects."""
    steps = ["/robots.txt", *(f"/{number}" for number in range(1, redirects + 1))]
    pages = {here: redirect(301, there, there) for here, there in pairwise(steps)}
    return web_with({**pages, steps[-1]: file("text/plain", RULES)})


async def test_redirects_are_followed_up_to_five() -> None:
    """RFC 9309, 2.3.1.2; the times are those of the whole, the line names the URL that was asked for first."""
    web = chain_of(MAX_REDIRECTS)
    async with Opened(web) as robots:
        one, _ = await robots.visit()
        assert robots.notes == [(one, "http://a.test/robots.txt", 200)]
        first, last = web.ledger.visits[0], web.ledger.visits[-1]
        assert one.response.start_s <= first.start_s
        assert one.response.end_s >= last.end_s
        assert (await robots.visit(SHUT))[0].decision is ChainDecision.EXCLUDED


async def test_after_more_redirects_than_five_there_are_no_rules() -> None:
    """The sixth is not followed; the host has no robots.txt then (RFC 9309, 2.3.1.2), so all is allowed."""
    web = chain_of(MAX_REDIRECTS + 1)
    async with Opened(web) as robots:
        assert (await robots.visit())[0].decision is ChainDecision.DEFERRED
        assert len(web.ledger.visits) == MAX_REDIRECTS + 1
        assert (await robots.visit(SHUT))[1] is Step.PROCEED


@pytest.mark.parametrize("kind", [ServiceAway, KeptConnectionClosed])
async def test_a_redirect_that_fails_without_the_hosts_fault_is_no_refusal(kind) -> None:
    """A service that is away, or a kept connection that was closed; the redirect's body is given back."""
    fetcher = HeldFetcher()
    robots = Robots(fetcher)
    moved = response(301, b"moved")._replace(headers=CIMultiDictProxy(CIMultiDict(Location="/next")))
    for answer in (moved, kind("x")):
        fetcher.answers.put_nowait(answer)
    assert isinstance((await robots.visit())[1], kind)
    assert moved.body.read() == b""
    assert robots.process._cache.refused("http://a.test/") == 1


async def test_a_robots_txt_that_many_hosts_lead_to_is_asked_for_once() -> None:
    """Its host's gate is not asked for that, so it is left alone as long as the answer holds."""
    there = "http://c.test/robots.txt"
    hosts = {f"{name}.test": Host(pages={"/robots.txt": redirect(302, there, None)}) for name in "ab"}
    web = SmallWeb(hosts | {"c.test": Host(pages={"/robots.txt": Page(body=RULES)})})
    async with Opened(web) as robots:
        for url in ("http://a.test/private", "http://b.test/private"):
            await robots.visit(url)
            assert (await robots.visit(url))[0].decision is ChainDecision.EXCLUDED
        await robots.visit("http://c.test/private")
    assert web.ledger.count(there) == 2  # once for all who lead there, once for itself, which sets its Crawl-delay
    assert robots.notes[1][1:] == ("http://b.test/robots.txt", 302)


async def test_rules_that_are_known_of_a_host_hold_for_those_that_lead_there() -> None:
    """www.a.test leads to a.test, which was crawled before."""
    there = "http://a.test/robots.txt"
    web = SmallWeb(
        {
            "a.test": Host(pages={"/robots.txt": Page(body=RULES)}),
            "b.test": Host(pages={"/robots.txt": redirect(301, there, None)}),
        }
    )
    async with Opened(web) as robots:
        for url in ("http://a.test/private", "http://b.test/private"):
            await robots.visit(url)
        assert (await robots.visit("http://b.test/private"))[0].decision is ChainDecision.EXCLUDED
    assert web.ledger.count(there) == 1


async def test_a_robots_txt_elsewhere_that_cannot_be_had_is_asked_for_again() -> None:
    """One bad moment of that host must not shut all who lead there."""
    there = "http://c.test/robots.txt"
    web = SmallWeb(
        {
            "a.test": Host(pages={"/robots.txt": redirect(302, there, None)}),
            "c.test": Host(pages={"/robots.txt": failure(503)}),
        }
    )
    async with Opened(web) as robots:
        for _ in range(2):
            assert (await robots.visit())[0].decision is ChainDecision.NO_RULES
    assert web.ledger.count(there) == 2


async def test_a_redirect_to_a_private_address_is_not_followed(monkeypatch) -> None:
    """The addresses of its host are judged as for any other fetch."""
    monkeypatch.setattr(connections, "is_public", lambda address: address == "127.0.0.1")
    web = web_with({"/robots.txt": redirect(302, "http://127.0.0.2/robots.txt", None)})
    async with Opened(web, fetch={"allow_private": False}) as robots:
        one, _ = await robots.visit()
    assert (one.decision, one.response.status) == (ChainDecision.NO_RULES, 302)


async def test_rules_may_lie_on_another_host() -> None:
    """They hold for the origin that was asked."""
    pages = {"/robots.txt": redirect(302, "http://b.test/rules", None)}
    web = SmallWeb({"a.test": Host(pages=pages), "b.test": Host(pages={"/rules": file("text/plain", RULES)})})
    async with Opened(web) as robots:
        await robots.knows()
        assert (await robots.visit(SHUT))[0].decision is ChainDecision.EXCLUDED


@pytest.mark.parametrize(
    "page", [failure(302), redirect(302, "http://[::1", None), redirect(302, "file:///etc/passwd", None)]
)
async def test_a_redirect_that_leads_nowhere_is_an_answer_without_rules(page) -> None:
    """The host counts as one without a robots.txt."""
    async with Opened(web_with({"/robots.txt": page})) as robots:
        assert (await robots.visit())[0].decision is ChainDecision.DEFERRED
        assert (await robots.visit(SHUT))[1] is Step.PROCEED


@pytest.mark.parametrize("error", [AddressRefused("private"), NameNotFound("no"), ConnectFailed("refused")])
async def test_a_redirect_to_a_host_that_gives_no_answer_is_a_refusal(error) -> None:
    """The rules are not known, and the failure is not the page's: it would end it, or be told of its own host."""
    fetcher = HeldFetcher()
    robots = Robots(fetcher)
    for _ in range(5):
        fetcher.answers.put_nowait(response(301, Location="http://127.0.0.1/robots.txt"))
        fetcher.answers.put_nowait(error)
    endings = [(await robots.visit())[0] for _ in range(5)]
    assert [one.decision for one in endings] == [ChainDecision.NO_RULES] * 4 + [ChainDecision.DEFERRED]
    assert decide(endings[0], START_S).trouble is HostTrouble.UNAVAILABLE
    assert endings[0].failure is None
    assert isinstance((await robots.visit())[1], RobotsUnavailable)


# What goes wrong on our side


async def started(robots, *urls):
    """Tasks of visits that wait: the first for the fetch, the others for the first."""
    tasks = [asyncio.create_task(robots.visit(url)) for url in urls]
    await settle()
    return tasks


async def test_a_cancelled_fetch_releases_those_who_wait_and_the_next_asks_again() -> None:
    """They are not cancelled with it, nor do they wait for ever."""
    fetcher = HeldFetcher()
    robots = Robots(fetcher)
    first, second = await started(robots, OPEN, OPEN)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    one, step = await second
    assert (one.decision, step) == (ChainDecision.RELEASED, Step.STOP)
    fetcher.answers.put_nowait(rules())
    assert (await robots.visit())[0].decision is ChainDecision.DEFERRED


async def test_a_fetch_that_breaks_releases_those_who_wait() -> None:
    """A fault of ours ends one visit, not the workers that waited for it."""
    fetcher = HeldFetcher()
    robots = Robots(fetcher)
    first, second = await started(robots, OPEN, OPEN)
    fetcher.answers.put_nowait(KeyError("odd"))
    assert isinstance((await first)[1], KeyError)
    assert (await second)[0].decision is ChainDecision.RELEASED


async def test_one_who_is_cancelled_while_it_waits_disturbs_nobody() -> None:
    """The fetch goes on, and the others get their answer."""
    fetcher = HeldFetcher()
    robots = Robots(fetcher)
    first, second, third = await started(robots, OPEN, OPEN, OPEN)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    fetcher.answers.put_nowait(rules())
    assert (await first)[0].decision is ChainDecision.DEFERRED
    assert (await third)[1] is Step.PROCEED
    assert fetcher.asked == ["http://a.test/robots.txt"]


async def test_rules_are_shared_only_when_their_line_is_durable() -> None:
    """Nobody goes on as long as it is not noted; then all do."""
    fetcher = HeldFetcher()
    robots = Robots(fetcher)
    may_note = asyncio.Event()

    async def note(*_):
        await may_note.wait()

    robots.record_robots = note
    fetcher.answers.put_nowait(rules())
    first, second = await started(robots, OPEN, OPEN)
    assert not first.done()
    assert not second.done()
    may_note.set()
    assert (await first)[0].decision is ChainDecision.DEFERRED
    assert (await second)[1] is Step.PROCEED


async def test_what_is_known_of_a_robots_txt_can_be_asked_for() -> None:
    """Before it is fetched, meanwhile, and when it is known."""
    fetcher = HeldFetcher()
    robots = Robots(fetcher)
    url = "http://a.test/robots.txt"
    assert "are unknown" in robots.process.words(url, START_S)
    asking = asyncio.create_task(robots.visit())
    await settle()
    assert robots.process.words(url, START_S) == "it is being fetched now"
    fetcher.answers.put_nowait(rules())
    await asking
    assert robots.process.words(url, START_S + 60).startswith("requested 1m ago: its rules for * apply")


async def test_what_a_robots_txt_decides_can_be_asked_for() -> None:
    """With the line that decides, and how old the rules are; without rules only that they are unknown."""
    fetcher = HeldFetcher()
    robots = Robots(fetcher)
    assert "are unknown" in robots.process.verdict(SHUT, START_S)
    fetcher.answers.put_nowait(rules())
    await robots.visit()
    told = robots.process.verdict(SHUT, START_S + 60)
    assert told.startswith(
        "disallowed by line 2: this rule has the most octets (requested 1m ago: its rules for * apply"
    )
    assert robots.process.verdict(OPEN, START_S).startswith("allowed: no rule matches (")
