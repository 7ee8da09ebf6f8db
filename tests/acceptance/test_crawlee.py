"""Real crawlers of Crawlee's, in processes of their own, against a server on loopback whose ledger is asked what came."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance import forkserver
from tests.acceptance.command import PATIENCE_S, Process, anabranch, environment
from tests.site.page import NOT_FOUND, Page, file, go
from tests.site.server import LoopbackServer

pytest.importorskip("crawlee")

PROGRAM = Path(__file__).with_name("crawlee_program.py")
POLICIES = ("host", "bkdr:64")
DELAY_S = 0.04
#: What the program imports, now or later.
LIBRARIES = (
    *("anabranch.frontier.hosts.crawlee.", "anabranch.frontier.stores.", "crawlee.crawlers", "crawlee.http_clients"),
    *("crawlee.storages", "anyio.streams.tls", "anyio.to_thread", "h11", "h2.connection", "httpcore2"),
)

TREE = {
    "/": Page(links=go("/a", "/b", "/c")),
    **{f"/{letter}": Page(links=go("/", *(f"/{letter}/{number}" for number in range(11)))) for letter in "abc"},
    **{f"/{letter}/{number}": Page(links=go(f"/{letter}")) for letter in "abc" for number in range(11)},
}


def a_site(pages: Mapping[str, Page] = TREE) -> LoopbackServer:
    return LoopbackServer(lambda host, target, earlier: pages.get(target, NOT_FOUND).at(earlier))


def a_task(site: LoopbackServer, folder: Path | None, **more: Any) -> dict[str, Any]:
    """A crawl of the site; `settings` are added to those of a polite Frontier."""
    settings = {"min_delay": DELAY_S, "backoff_base": 0.3, **more.pop("settings", {})}
    where = None if folder is None else str(folder)
    return {"start": [url(site, "/")], "folder": where, "settings": settings, **more}


def url(site: LoopbackServer, path: str) -> str:
    return f"http://127.0.0.1:{site.port}{path}"


async def started(task: dict[str, Any], cwd: Path) -> Process:
    variables = environment(CRAWLEE_STORAGE_DIR=str(cwd / "storage"))
    return await forkserver.start([str(PROGRAM), json.dumps(task)], cwd=cwd, env=variables, preload=LIBRARIES)


async def printed(process: Process) -> tuple[list[dict[str, Any]], str]:
    """Return the lines of its output, parsed, and its errors."""
    out, err = await printed_text(process)
    return [json.loads(line) for line in out.splitlines()], err


async def crawled(task: dict[str, Any], cwd: Path) -> list[dict[str, Any]]:
    """Run a crawl that must end with 0, and return the lines of its output."""
    process = await started(task, cwd)
    said, complaints = await printed(process)
    assert process.returncode == 0, complaints
    return said


def paths(said: list[dict[str, Any]]) -> list[str]:
    return ["/" + line["page"].split("/", 3)[3] for line in said if "page" in line]


def assert_polite(site: LoopbackServer, rest_s: float = DELAY_S) -> None:
    """One at a time, and a rest between two."""
    host = f"127.0.0.1:{site.port}"
    assert site.ledger.max_in_service(host) == 1
    visits = [visit for visit in site.ledger.visits if visit.path != "/robots.txt"]
    assert min((later.start_s - one.end_s for one, later in pairwise(visits)), default=rest_s) >= rest_s


@pytest.mark.parametrize("policy", POLICIES)
async def test_a_site_is_crawled_once_and_politely(tmp_path: Path, policy: str) -> None:
    """Twenty workers, one page at a time; a second run finds nothing to do, and does not begin anew."""
    async with a_site() as site:
        task = a_task(site, tmp_path / "job", settings={"policy": policy})
        said = await crawled(task, tmp_path)
        assert sorted(paths(said)) == sorted(TREE)
        assert said[-1] == {"finished": len(TREE), "failed": 0, "total": len(TREE)}
        assert_polite(site)
        assert await crawled(task, tmp_path) == [{"finished": 0, "failed": 0, "total": len(TREE)}]


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
async def test_a_crawler_that_is_killed_goes_on(tmp_path: Path, policy: str) -> None:
    """The handler has run for every page, twice only for those that were in flight, and nothing was asked impolitely."""
    async with a_site() as site:
        task = a_task(site, tmp_path / "job", settings={"policy": policy})
        killed = await started(task, tmp_path)
        while sum(site.ledger.counts().values()) < 15 and killed.returncode is None:
            await asyncio.sleep(0.005)
        killed.kill()
        before, _ = await printed(killed)
        assert 0 < len(paths(before)) < len(TREE)
        after = await crawled(task, tmp_path)
        handled = paths(before) + paths(after)
        assert set(handled) == set(TREE)
        # One lease at a time, for there is one slot; what was handled is durable before the next is fetched.
        assert len(handled) - len(TREE) <= 1
        assert after[-1]["total"] == len(TREE)
        assert_polite(site)


async def test_a_retry_keeps_its_count_over_a_kill(tmp_path: Path) -> None:
    """Crawlee's changes to a request are durable with it, so a page that always fails is given up once for all."""
    pages = {"/": Page(links=go("/bad")), "/bad": Page()}
    async with a_site(pages) as site:
        task = a_task(site, tmp_path / "job", failing=["/bad"], retries=6, settings={"min_delay": 0.3})
        killed = await started(task, tmp_path)
        while site.ledger.count(url(site, "/bad")) < 4 and killed.returncode is None:
            await asyncio.sleep(0.005)
        killed.kill()
        before, _ = await printed(killed)
        after = await crawled(task, tmp_path)
        retries = [line["retries"] for line in before + after if line.get("page", "").endswith("/bad")]
        assert sorted(set(retries)) == list(range(7))
        assert len(retries) <= 8
        assert after[-1] == {"finished": 0, "failed": 1, "total": 2}


async def test_429_closes_the_gate_for_as_long_as_it_asks(tmp_path: Path) -> None:
    """The request is deferred, which is no retry; the others of its host wait, too."""
    limited = Page(status=429, headers=(("Retry-After", "1"),))
    pages = {"/": Page(links=go("/a", "/b", "/c")), **{path: Page() for path in ("/a", "/b", "/c")}}
    pages["/a"] = Page(first=(limited, limited))
    async with a_site(pages) as site:
        said = await crawled(a_task(site, None, settings={"backoff_base": 0.05}, retries=0), tmp_path)
        assert sorted(paths(said)) == sorted(pages)
        assert {line["retries"] for line in said if "page" in line} == {0}
        visits = site.ledger.visits
        rests = [later.start_s - one.end_s for one, later in pairwise(visits) if one.status == 429]
        assert len(rests) == 2
        assert min(rests) >= 1.0


async def test_a_host_that_answers_nothing_but_429_is_given_up(tmp_path: Path) -> None:
    """The crawler raises, as with Crawlee's own manager, and the request stays queued."""
    pages = {"/": Page(status=429)}
    async with a_site(pages) as site:
        task = a_task(site, tmp_path / "job", settings={"backoff_base": 0.4}, stall_s=0.5)
        process = await started(task, tmp_path)
        _, complaints = await printed(process)
        assert process.returncode == 1
        assert "PersistentRateLimitError" in complaints
        assert "127.0.0.1" in complaints
        pages["/"] = Page()
        assert paths(await crawled(task, tmp_path)) == ["/"]


async def test_robots_are_obeyed_with_their_crawl_delay(tmp_path: Path) -> None:
    """Crawlee reads robots.txt; the delay it finds is the gate's."""
    robots = file("text/plain", b"User-agent: *\nDisallow: /secret\nCrawl-delay: 1\n")
    pages = {"/": Page(links=go("/a", "/secret")), "/a": Page(), "/secret": Page(), "/robots.txt": robots}
    async with a_site(pages) as site:
        said = await crawled(a_task(site, tmp_path / "job", robots=True), tmp_path)
        assert paths(said) == ["/", "/a"]
        first, second = [visit for visit in site.ledger.visits if visit.path != "/robots.txt"]
        assert second.start_s - first.start_s >= 1.0


async def test_a_folder_in_use_is_refused_in_one_line(tmp_path: Path) -> None:
    """Two crawlers of one folder would fetch twice and impolitely."""
    async with a_site() as site:
        task = a_task(site, tmp_path / "job", settings={"min_delay": 1.0})
        first = await started(task, tmp_path)
        while not site.ledger.counts() and first.returncode is None:
            await asyncio.sleep(0.005)
        second = await started(task, tmp_path)
        said, complaints = await printed(second)
        first.kill()
        await first.communicate()
        assert (second.returncode, said) == (1, [])
        assert f"StoreInUse: {tmp_path / 'job'}: process {first.pid} uses this job" in complaints.splitlines()[-1]


async def test_a_program_that_forgets_to_close_ends_and_loses_nothing(tmp_path: Path) -> None:
    """`max_requests_per_crawl` ends the first run; the next goes on with what is left, and repeats no page."""
    async with a_site() as site:
        task = a_task(site, tmp_path / "job", settings={"min_delay": 0}, most=10, workers=3, close=False)
        first = await crawled(task, tmp_path)
        second = await crawled({**task, "most": None}, tmp_path)
        assert 10 <= len(paths(first)) <= 13
        assert sorted(paths(first) + paths(second)) == sorted(TREE)


@pytest.mark.timeout(900)  # five processes, one after the other
async def test_storages_are_resumed_purged_and_kept_as_crawlees_own(tmp_path: Path) -> None:
    """A queue without a name is purged at the start, unless the configuration says otherwise; one with a name is kept."""
    pages = {"/": Page(links=go("/a")), "/a": Page()}
    async with a_site(pages) as site:
        task = a_task(site, None, storage=str(tmp_path / "kept"), settings={"min_delay": 0})
        assert paths(await crawled(task, tmp_path)) == ["/", "/a"]
        assert paths(await crawled(task, tmp_path)) == []
        assert paths(await crawled({**task, "purge": True}, tmp_path)) == ["/", "/a"]
        named = {**task, "purge": True, "name": "mine"}
        assert paths(await crawled(named, tmp_path)) == ["/", "/a"]
        assert paths(await crawled(named, tmp_path)) == []


async def test_the_folder_is_a_job_for_the_command(tmp_path: Path) -> None:
    """When the crawler has ended, `anabranch why` says what became of a URL."""
    async with a_site({"/": Page(links=go("/a")), "/a": Page()}) as site:
        await crawled(a_task(site, tmp_path / "job"), tmp_path)
        asked = await anabranch("why", str(tmp_path / "job"), url(site, "/a"), cwd=tmp_path)
        assert (asked.code, asked.err) == (0, "")
        assert "done" in asked.out


async def printed_text(process: Process) -> tuple[str, str]:
    out, err = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    return out.decode(), err.decode()
