"""Scrapy itself, with the Frontier in the place of its scheduler, on the small web."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.acceptance.command import anabranch
from tests.acceptance.scrapycrawl import Crawl, crawl, ended, frontier, start
from tests.site.page import Fault, Host, Page, failure, file, go, redirect
from tests.site.pages import BLOG_PAGES
from tests.site.server import SmallWeb

scrapy = pytest.importorskip("scrapy")

POLICIES = ["host", "bkdr:64"]
REACTORS: dict[str, dict[str, object]] = {
    "asyncio": {},
    "none": {"TWISTED_REACTOR_ENABLED": False},
    "select": {"TWISTED_REACTOR": "twisted.internet.selectreactor.SelectReactor"},
}
CONCURRENCY = 4

HOST = "one.test"
#: One page for each thing that may happen to a request.
ODD = {
    "/": Page(links=go("/a", "/old", "/busy", "/dead", "/made", "/ignored", "/gone", "/a")),
    "/a": Page(links=go("/", "/b")),
    "/b": Page(),
    "/old": redirect(301, "/new", "/new"),
    "/new": Page(links=go("/b")),
    "/busy": Page(first=(failure(503), failure(429))),
    "/dead": Page(fault=Fault.CLOSE),
    "/gone": failure(404),
}


@pytest.fixture
async def slow_blog() -> AsyncIterator[SmallWeb]:
    """The blog of 88 pages, with every answer late by 20 ms."""
    async with SmallWeb(delay_s=0.02) as web:
        yield web


def site(pages: dict[str, Page], *names: str) -> SmallWeb:
    """Return a web with these pages on each of the hosts."""
    return SmallWeb({name: Host(pages=pages) for name in names or (HOST,)})


def at(web: SmallWeb, path: str, host: str = HOST) -> str:
    """A URL as a crawl spells it that knows no other port."""
    return f"http://{host}:{web.port}{path}"


def blog(web: SmallWeb) -> tuple[list[str], dict[str, object]]:
    """The blog's start, and that a spider stays there."""
    return [at(web, "/", "blog.alpha.test")], {"allow": at(web, "/", "blog.alpha.test")}


def all_of_blog(web: SmallWeb) -> set[str]:
    """Its pages, all of which are linked."""
    return {at(web, path, "blog.alpha.test") for path in BLOG_PAGES}


@pytest.mark.timeout(900)
async def test_a_site_is_crawled_completely_at_every_policy_and_reactor(slow_blog: SmallWeb) -> None:
    """Each page once, whatever runs the loop; no host has more at once than its gate has slots."""
    starts, options = blog(slow_blog)
    for policy, reactor in [("host", "asyncio"), ("bkdr:64", "asyncio"), ("bkdr:64", "none"), ("bkdr:64", "select")]:
        before = slow_blog.ledger.counts()
        run = await crawl(starts, {**frontier(policy=policy), **REACTORS[reactor]}, options=options)
        assert run.code == 0, run.err
        assert run.called() == dict.fromkeys(all_of_blog(slow_blog), 1), (policy, reactor, run.err)
        assert run.stats["finish_reason"] == "finished"
        assert "Traceback" not in run.err
        asked = slow_blog.ledger.counts() - before
        assert set(asked.values()) == {1}
    assert slow_blog.ledger.max_in_service("blog.alpha.test") <= 4


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
async def test_a_crawl_that_is_killed_misses_nothing(tmp_path: Path, slow_blog: SmallWeb, policy: str) -> None:
    """After three `kill -9` every callback has run, twice only for those in flight; the gate was kept throughout."""
    starts, options = blog(slow_blog)
    settings = {**frontier(policy=policy), "CONCURRENT_REQUESTS": CONCURRENCY}
    runs: list[Crawl] = []
    for kill in range(1, 4):
        process = await start(starts, settings, job=tmp_path / "job", options=options)
        while sum(slow_blog.ledger.counts().values()) < kill * 20 and process.returncode is None:
            await asyncio.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        runs.append(await ended(process))
    runs.append(await crawl(starts, settings, job=tmp_path / "job", options=options))
    assert runs[-1].code == 0, runs[-1].err
    called = sum((run.called() for run in runs[1:]), runs[0].called())
    assert set(called) == all_of_blog(slow_blog)
    assert called.total() - len(called) <= 3 * 2 * CONCURRENCY, "what is out, and as many whose end is not durable yet"
    assert slow_blog.ledger.max_in_service("blog.alpha.test") <= 4 + 4, "a dead process's end by themselves"
    listed = await anabranch("frontier", "ls", tmp_path / "job" / "frontier", cwd=tmp_path)
    assert listed.code == 0, listed.err


async def test_a_delay_is_what_was_asked_for() -> None:
    """0.7 s is 0.7 s on two hosts at once, whatever makes the loop turn: Scrapy alone looks every five seconds."""
    pages = {"/": Page(links=go("/a", "/b")), "/a": Page(), "/b": Page()}
    async with site(pages, "one.test", "two.test") as web:
        starts = [at(web, "/", "one.test"), at(web, "/", "two.test")]
        run = await crawl(starts, {**frontier(min_delay=0.7, max_connections=1), "DOWNLOAD_DELAY": 9})
        assert run.code == 0, run.err
        assert run.called().total() == 6
        for host in ("one.test", "two.test"):
            visits = [visit.start_s for visit in web.ledger.visits if visit.host == host]
            assert web.ledger.shortest_gap(host) >= 0.7
            assert visits[-1] - visits[0] < 2 * 2.5


async def test_what_may_happen_to_a_request_happens(tmp_path: Path) -> None:
    """Redirects, retries, time-outs, middlewares that answer or ignore: each page comes to its callback or errback once."""
    for job in (None, tmp_path / "job"):
        settings = {
            **frontier(policy="bkdr:7"),
            "DOWNLOADER_MIDDLEWARES": {"tests.acceptance.scrapy_spider.Middleware": 100},
        }
        async with site(ODD) as web:
            run = await crawl([at(web, "/")], settings, job=job)
        assert run.code == 0, run.err
        called = {url.rpartition("/")[2]: count for url, count in run.called().items()}
        assert called == dict.fromkeys(["", "a", "b", "new", "busy", "made"], 1), run.err
        failed = {url.rpartition("/")[2]: count for url, count in run.called("FAILED").items()}
        assert failed == dict.fromkeys(["dead", "ignored", "gone"], 1)
        assert run.stats["retry/count"] == 4
        assert run.stats["scheduler/enqueued"] == run.stats["scheduler/dequeued"]
        assert run.stats["dupefilter/filtered"] >= 3
        assert "Traceback" not in run.err


async def test_an_errback_finds_pages_as_a_callback_does() -> None:
    """A copy of the failed request with another URL is a new request, not a retry."""
    async with site({"/": Page(links=go("/gone")), "/gone?again": Page(), "/gone?other": Page()}) as web:
        run = await crawl([at(web, "/")], frontier(), spider="recovering")
        assert set(run.called()) == {at(web, "/"), at(web, "/gone?again"), at(web, "/gone?other")}, run.err


async def test_what_a_middleware_asks_for_beside_a_page_waits_for_its_gate() -> None:
    """It has copied the page's meta, and the page is still fetched."""
    pages = {f"/{number}{query}": Page(delay_s=0.05) for number in range(4) for query in ("", "?beside")}
    async with site(pages) as web:
        settings = {
            **frontier(policy="bkdr:7", max_connections=1),
            "DOWNLOADER_MIDDLEWARES": {"tests.acceptance.scrapy_spider.Beside": 100},
        }
        run = await crawl([at(web, f"/{number}") for number in range(4)], settings)
        assert run.called() == {at(web, path): 1 for path in pages}, run.err
        assert web.ledger.max_in_service(HOST) == 1


async def test_a_request_whose_callback_is_gone_is_dropped(tmp_path: Path) -> None:
    """The next version of the spider has no such method; one line names the URL and the reason, and the crawl ends."""
    async with site({"/": Page(links=go("/old", "/new")), "/old": Page(), "/new": Page()}) as web:
        options = {"until": at(web, "/")}
        first = await crawl([at(web, "/")], frontier(), job=tmp_path / "job", spider="older", options=options)
        assert first.stats["finish_reason"] == "enough", first.err
        second = await crawl([at(web, "/")], frontier(), job=tmp_path / "job")
        assert second.called() == {at(web, "/"): 1, at(web, "/new"): 1}, second.err
    assert (second.stats["finish_reason"], second.stats["scheduler/dropped"]) == ("finished", 1)
    (line,) = (line for line in second.err.splitlines() if " ERROR: " in line)
    assert f"{at(web, '/old')} is dropped, no request can be made of it: Method 'old' not found" in line
    assert "Traceback" not in second.err


@pytest.mark.parametrize("job", [None, "job"])
async def test_dont_filter_asks_again(tmp_path: Path, job: str | None) -> None:
    """A copy of a request, with all its meta, and the request itself."""
    async with site({"/": Page()}) as web:
        run = await crawl([at(web, "/")], frontier(), spider="repeating", job=job and tmp_path / job)
        assert run.called() == {at(web, "/"): 5}, run.err
        assert run.stats["finish_reason"] == "finished"


async def test_the_higher_priority_goes_first_and_starts_go_last() -> None:
    """Within a work queue, one at a time."""
    async with site(
        {"/": Page(links=go("/3", "/1", "/5", "/0")), **{f"/{number}": Page() for number in range(8)}}
    ) as web:
        starts = [at(web, "/"), at(web, "/7")]
        run = await crawl(starts, {**frontier(policy="host"), "CONCURRENT_REQUESTS": 1}, spider="priorities")
        order = [url.rpartition("/")[2] for url in run.order]
        assert order in (
            ["", "5", "3", "1", "0", "7"],
            ["", "7", "5", "3", "1", "0"],
        ), run.err


async def test_a_callback_that_closes_the_spider_comes_again(tmp_path: Path, slow_blog: SmallWeb) -> None:
    """Queued URLs stay queued; only the page of the interrupted callback is fetched again."""
    starts, options = blog(slow_blog)
    until = at(slow_blog, "/tree/2/", "blog.alpha.test")
    first = await crawl(starts, frontier(), job=tmp_path / "job", spider="closing", options={**options, "until": until})
    assert first.stats["finish_reason"] == "enough", first.err
    second = await crawl(starts, frontier(), job=tmp_path / "job", options=options)
    called = first.called() + second.called()
    assert set(called) == all_of_blog(slow_blog)
    assert {url for url, count in called.items() if count > 1} == {until}


async def test_limits_end_a_crawl_that_goes_on_later(tmp_path: Path, slow_blog: SmallWeb) -> None:
    """CLOSESPIDER_PAGECOUNT and Ctrl-C: what is out ends, and nothing is fetched twice."""
    starts, options = blog(slow_blog)
    job = tmp_path / "job"
    limited = await crawl(starts, {**frontier(), "CLOSESPIDER_PAGECOUNT": 30}, job=job, options=options)
    assert limited.stats["finish_reason"] == "closespider_pagecount", limited.err
    process = await start(starts, frontier(), job=job, options=options)
    before = sum(slow_blog.ledger.counts().values())
    while sum(slow_blog.ledger.counts().values()) < before + 30:
        await asyncio.sleep(0.005)
    process.send_signal(signal.SIGINT)
    broken = await ended(process)
    assert broken.stats["finish_reason"] == "shutdown", broken.err
    last = await crawl(starts, frontier(), job=job, options=options)
    called = limited.called() + broken.called() + last.called()
    assert called == dict.fromkeys(all_of_blog(slow_blog), 1)
    assert "Resuming crawl" in last.err


async def test_an_idle_spider_may_ask_for_more() -> None:
    """By DontCloseSpider, as often as it likes."""
    async with site({"/": Page(), "/?more=1": Page(), "/?more=2": Page()}) as web:
        run = await crawl([at(web, "/")], frontier(), spider="patient")
        assert run.called().total() == 3, run.err


@pytest.mark.parametrize("spider", ["asynchronous", "raising", pytest.param("lambdas", marks=pytest.mark.slow)])
async def test_any_callback_will_do(tmp_path: Path, slow_blog: SmallWeb, spider: str) -> None:
    """One that waits, one that fails, one that cannot be serialised."""
    starts, options = blog(slow_blog)
    run = await crawl(starts, frontier(), job=tmp_path / "job", spider=spider, options=options)
    assert run.called() == dict.fromkeys(all_of_blog(slow_blog), 1), run.err
    if spider == "lambdas":
        assert run.stats["scheduler/unserializable"] == run.stats["scheduler/enqueued/memory"]
        assert run.stats["scheduler/enqueued"] == run.stats["scheduler/dequeued"]
    if spider == "raising":
        assert run.stats["spider_exceptions/count"] == len(all_of_blog(slow_blog))


async def test_lost_lambdas_are_told_of(tmp_path: Path, slow_blog: SmallWeb) -> None:
    """After a kill the next run says once that it misses them, and ends."""
    starts, options = blog(slow_blog)
    process = await start(starts, frontier(), job=tmp_path / "job", spider="lambdas", options=options)
    while sum(slow_blog.ledger.counts().values()) < 30:
        await asyncio.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    await ended(process)
    run = await crawl(starts, frontier(), job=tmp_path / "job", spider="lambdas", options=options)
    assert run.stats["scheduler/unserializable/lost"] > 0, run.err
    assert run.err.count("requests that could not be serialised were lost") == 1


async def test_a_slow_pipeline_is_waited_for(tmp_path: Path) -> None:
    """A page is not done before its items are: killed in the pipeline, it comes again."""
    pages = {
        "/": Page(links=go(*(f"/{number}" for number in range(20)))),
        **{f"/{number}": Page() for number in range(20)},
    }
    settings = {**frontier(), "ITEM_PIPELINES": {"tests.acceptance.scrapy_spider.SlowPipeline": 1}}
    async with site(pages) as web:
        process = await start([at(web, "/")], settings, job=tmp_path / "job", spider="items")
        while sum(web.ledger.counts().values()) < 8:
            await asyncio.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        killed = await ended(process)
        run = await crawl([at(web, "/")], settings, job=tmp_path / "job", spider="items")
        items = killed.called("ITEM") + run.called("ITEM")
        assert set(items) == {at(web, path) for path in pages}, run.err


async def test_what_has_no_host_is_asked_for_at_once() -> None:
    """`data:` URLs pass no gate, and are filtered like all others."""
    async with site({"/": Page(links=go("data:text/plain,x", "data:text/plain,x", "data:text/plain,y"))}) as web:
        run = await crawl([at(web, "/")], frontier(), options={"allow": ""})
        assert run.called() == {at(web, "/"): 1, "data:text/plain,x": 1, "data:text/plain,y": 1}, run.err


async def test_a_cache_answers_without_a_rest(tmp_path: Path) -> None:
    """A page from HTTPCACHE costs its host nothing: a crawl of 88 pages does not take 88 delays."""
    async with SmallWeb() as web:
        starts, options = blog(web)
        settings = {"HTTPCACHE_ENABLED": True, "HTTPCACHE_DIR": str(tmp_path / "cache")}
        first = await crawl(starts, {**frontier(), **settings}, options=options)
        asked = web.ledger.counts()
        second = await crawl(starts, {**frontier(min_delay=1), **settings}, options=options)
        assert first.called() == second.called() == dict.fromkeys(all_of_blog(web), 1), second.err
        assert web.ledger.counts() == asked


@pytest.mark.parametrize(
    "kind", ["scrapy.dupefilters.BaseDupeFilter", "anabranch.frontier.hosts.scrapy.FrontierDupeFilter"]
)
async def test_a_dupe_filter_of_the_project_decides(kind: str) -> None:
    """One that calls nothing a duplicate lets a page come again; ours is the Frontier's own filter."""
    async with site({"/": Page(links=go("/a", "/a", "/b")), "/a": Page(), "/b": Page()}) as web:
        run = await crawl([at(web, "/")], {**frontier(), "DUPEFILTER_CLASS": kind})
        assert run.called()[at(web, "/a")] == (2 if "Base" in kind else 1), run.err


async def test_the_scheduler_alone_will_do(tmp_path: Path, slow_blog: SmallWeb) -> None:
    """Without addon and middleware it crawls and resumes; the downloader's delays are the gates', too."""
    starts, options = blog(slow_blog)
    settings = {
        "SCHEDULER": "anabranch.frontier.hosts.scrapy.FrontierScheduler",
        "CONCURRENT_REQUESTS_PER_DOMAIN": 4,
    }
    first = await crawl(starts, {**settings, "CLOSESPIDER_PAGECOUNT": 30}, job=tmp_path / "job", options=options)
    second = await crawl(starts, settings, job=tmp_path / "job", options=options)
    assert first.called() + second.called() == dict.fromkeys(all_of_blog(slow_blog), 1), second.err
    assert slow_blog.ledger.max_in_service("blog.alpha.test") <= 4


@pytest.mark.parametrize("name", ["FrontierDupeFilter", "FrontierPriorityQueue"])
async def test_parts_of_it_serve_scrapys_own_scheduler(tmp_path: Path, slow_blog: SmallWeb, name: str) -> None:
    """With JOBDIR, over a stop."""
    starts, options = blog(slow_blog)
    setting = "DUPEFILTER_CLASS" if name == "FrontierDupeFilter" else "SCHEDULER_PRIORITY_QUEUE"
    settings = {setting: f"anabranch.frontier.hosts.scrapy.{name}", "FRONTIER": {"policy": "bkdr:7"}}
    job = tmp_path / "job"
    first = await crawl(starts, {**settings, "CLOSESPIDER_PAGECOUNT": 30}, job=job, options=options)
    second = await crawl(starts, settings, job=job, options=options)
    assert first.called() + second.called() == dict.fromkeys(all_of_blog(slow_blog), 1), second.err
    assert "Traceback" not in first.err + second.err


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"polite": 1}, "'polite' is no setting of the Frontier"),
        ({"min_delay": "soon"}, "min_delay 'soon': give a number"),
        ({"policy": "nonsense"}, "nonsense"),
        ("nonsense", "FRONTIER 'nonsense': give a dictionary"),
    ],
)
async def test_a_bad_setting_is_one_line(settings: object, words: str) -> None:
    """The spider is closed before it asks for anything."""
    async with site({"/": Page()}) as web:
        run = await crawl([at(web, "/")], {**frontier(), "FRONTIER": settings})
        (line,) = (line for line in run.err.splitlines() if "ERROR" in line)
        assert words in line
        assert run.stats["finish_reason"] == "frontier_unavailable"
        assert "Traceback" not in run.err
        assert not web.ledger.counts()


async def test_a_job_that_another_process_holds_is_left_alone(tmp_path: Path) -> None:
    """One line says so; the one that holds it goes on."""
    async with site({"/": Page(links=go("/a"), delay_s=60), "/a": Page()}) as web:
        first = await start([at(web, "/")], frontier(), job=tmp_path / "job")
        while not web.ledger.counts():
            await asyncio.sleep(0.005)
        second = await crawl([at(web, "/")], frontier(), job=tmp_path / "job")
        assert second.stats["finish_reason"] == "frontier_unavailable"
        assert f"process {first.pid} uses this job" in second.err
        assert "Traceback" not in second.err
        first.kill()
        assert (await ended(first)).code == -signal.SIGKILL


async def test_hosts_that_ask_for_a_rest_get_it() -> None:
    """Crawl-delay of robots.txt and Retry-After, which Scrapy itself does not heed. Before 2.18 it tells of no robots.txt."""
    pages = {
        "/robots.txt": file("text/plain", b"User-agent: *\nCrawl-delay: 0.5\n"),
        "/": Page(links=go("/a", "/b")),
        "/a": Page(first=(failure(429, ("Retry-After", "2")),)),
        "/b": Page(),
    }
    async with site(pages) as web:
        run = await crawl([at(web, "/")], {**frontier(max_connections=1), "ROBOTSTXT_OBEY": True})
        assert run.called().total() == 3, run.err
        visits = [visit for visit in web.ledger.visits if visit.path != "/robots.txt"]
        gaps = {later.path: later.start_s - earlier.start_s for earlier, later in pairwise(visits)}
        refused = next(index for index, visit in enumerate(visits) if visit.status == 429)
        assert visits[refused + 1].start_s - visits[refused].start_s >= 2
        assert min(gaps.values()) >= 0.5 or not hasattr(scrapy.signals, "robots_parsed")
