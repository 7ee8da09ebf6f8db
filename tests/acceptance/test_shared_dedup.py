"""Crawls in processes of their own that share a filter in Redis: together they miss nothing; what two fetched is counted."""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from anabranch.crawler.lab.filters.redis_servers import RedisServer
from anabranch.dedup.bloom.redis import _HASHES
from tests.acceptance.command import REPOSITORY, Ended, anabranch, crawl_log, ended, kill_after, start, write_order
from tests.redis_server import redis_servers
from tests.site.oracle import expected
from tests.site.page import Host, Page, Web, go
from tests.site.server import SmallWeb

#: Two ends of the small web's blog; from the one everything is found, from the other, too.
SEEDS = ("http://blog.alpha.test/", "http://blog.alpha.test/tree/4/4/4/")

ROOT_HOST = "http://pair.test"
HUB = [f"{ROOT_HOST}/hub/{number}" for number in range(40)]
LEAVES = [f"{ROOT_HOST}/leaf/{number}" for number in range(120)]
#: Two seeds with the same forty links, each of which leads to sixty more; the forty have some of them in common.
PAIR: Web = {
    "pair.test": Host(pages={
        "/one": Page(links=go(*HUB)),
        "/two": Page(links=go(*HUB)),
        **{f"/hub/{number}": Page(links=go(*LEAVES[number * 3 : number * 3 + 60])) for number in range(40)},
        **{f"/leaf/{number}": Page() for number in range(120)},
    })
}  # fmt: skip


#: Where an operator reads of it.
DOCS = (
    (REPOSITORY / "docs" / "how-to" / "dedup.md")
    .read_text(encoding="utf-8")
    .partition("## Shared by several crawls")[2]
)


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    """A server of one's own, which keeps its data."""
    with redis_servers(tmp_path, 1, appendonly="yes") as (server,):
        yield server


def crawl_of(tmp_path: Path, web: SmallWeb, name: str, seed: str, leaf: str, **sections: dict[str, object]) -> tuple:
    """The command of one crawl: a job of its own, whatever it shares."""
    folder = tmp_path / name
    folder.mkdir(exist_ok=True)
    order = write_order(
        folder,
        web.hosts,
        politeness={"max_connections": 8},
        crawl={"workers": 8},
        dedup={"leaves": [leaf], "expect": 20_000},
        **sections,
    )
    return ("crawl", seed, "-c", order, "--job", folder / "job")


def counted_twice(run: Ended) -> int:
    """Return the number of URLs that, by the report, another crawl took, too."""
    found = re.search(r"^shared dedup +\d+ links? left to other crawls, (\d+) URLs? taken by", run.out, re.MULTILINE)
    assert found is not None, run.out
    return int(found[1])


def fetched_twice(web: SmallWeb) -> int:
    """Pages that the server's ledger has more than once; robots.txt is every crawl's own."""
    counts = {url: times for url, times in web.ledger.counts().items() if not url.endswith("/robots.txt")}
    assert max(counts.values()) <= 2
    return sum(times == 2 for times in counts.values())


async def test_two_crawls_at_once_are_complete_together_and_count_what_both_fetched(
    tmp_path: Path, redis: RedisServer
) -> None:
    """The union is the whole site; the counts of both add up to the pages that the server was asked for twice."""
    async with SmallWeb() as web:
        commands = [crawl_of(tmp_path, web, name, seed, redis.url) for name, seed in zip("ab", SEEDS, strict=True)]
        runs = await asyncio.gather(*(anabranch(*command, cwd=tmp_path) for command in commands))
        assert [run.code for run in runs] == [0, 0], runs
        assert crawl_log(tmp_path / "a" / "job") | crawl_log(tmp_path / "b" / "job") == expected([SEEDS[0]])
        assert sum(map(counted_twice, runs)) == fetched_twice(web)


class Gate:
    """Lets nobody ask a shared filter any more until so many have asked."""

    def __init__(self, parties: int) -> None:
        self._barrier = asyncio.Barrier(parties)
        self.is_shut = False

    async def pass_by(self, asked: bytes) -> None:
        """Wait at the first question after it was shut; go on with all others."""
        if self.is_shut and _HASHES["test"].encode() in asked:
            await self._barrier.wait()
            self.is_shut = False


@asynccontextmanager
async def way_to(redis: RedisServer, gate: Gate) -> AsyncIterator[str]:
    """A way to the server, for one crawl, on which every question passes the gate."""

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_asking: bool) -> None:
        while data := await reader.read(1 << 20):
            if is_asking:
                await gate.pass_by(data)
            writer.write(data)
            await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", redis.port)
        await asyncio.gather(relay(reader, back, is_asking=True), relay(there, writer, is_asking=False))

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"


class Pair(SmallWeb):
    """Serves the two seeds when both are asked for, and the gate is shut: the next question is about their links."""

    def __init__(self, gate: Gate) -> None:
        super().__init__(PAIR)
        self._gate = gate
        self._both = asyncio.Barrier(2)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        if request.path in ("/one", "/two"):
            await self._both.wait()
            self._gate.is_shut = True
        return await super()._serve(request)


async def test_what_both_asked_for_before_either_had_marked_is_fetched_by_both_and_counted(
    tmp_path: Path, redis: RedisServer
) -> None:
    """Both find the same forty links and are held until both have asked: forty pages are fetched twice, no more is lost."""
    gate = Gate(2)
    async with Pair(gate) as small_web, way_to(redis, gate) as first, way_to(redis, gate) as second:
        commands = [
            crawl_of(tmp_path, small_web, name, f"{ROOT_HOST}/{name}", leaf)
            for name, leaf in (("one", first), ("two", second))
        ]
        runs = await asyncio.gather(*(anabranch(*command, cwd=tmp_path) for command in commands))
        assert [run.code for run in runs] == [0, 0], runs
        logs = [crawl_log(tmp_path / name / "job") for name in ("one", "two")]
        assert set(logs[0] | logs[1]) == {f"{ROOT_HOST}/one", f"{ROOT_HOST}/two", *HUB, *LEAVES}
        twice = {url for url in logs[0] if url in logs[1]}
        assert twice >= set(HUB)
        assert sum(map(counted_twice, runs)) == fetched_twice(small_web) == len(twice)


async def test_a_crawl_that_is_killed_owns_its_urls_and_fetches_them_when_it_goes_on(
    tmp_path: Path, redis: RedisServer
) -> None:
    """Kill -9, twice: the other leaves its URLs alone, and when it has ended no page is missing."""
    async with SmallWeb(delay_s=0.02) as web:
        one, two = (crawl_of(tmp_path, web, name, seed, redis.url) for name, seed in zip("ab", SEEDS, strict=True))
        other = await start(*two, cwd=tmp_path)
        for served in (20, 50):
            await kill_after(await start(*one, cwd=tmp_path), web, served)
        second = await ended(other)
        assert second.code == 0, second.err
        first = await anabranch(*one, cwd=tmp_path)
        assert first.code == 0, first.err
        assert crawl_log(tmp_path / "a" / "job") | crawl_log(tmp_path / "b" / "job") == expected([SEEDS[0]])


async def test_servers_that_go_away_in_the_middle_hold_the_crawl_until_they_are_back(
    tmp_path: Path, redis: RedisServer
) -> None:
    """Nothing is accepted meanwhile, nothing is lost, and the crawl ends as if nothing had been."""
    async with SmallWeb(delay_s=0.02) as web:
        process = await start(*crawl_of(tmp_path, web, "a", SEEDS[0], redis.url), cwd=tmp_path)
        while sum(web.ledger.counts().values()) < 20:
            await asyncio.sleep(0.005)
        redis.kill()
        redis.start()
        run = await ended(process)
        assert run.code == 0, run.err
        assert crawl_log(tmp_path / "a" / "job") == expected([SEEDS[0]])


async def test_leaves_that_cannot_be_used_end_the_command_with_a_line_that_names_them(
    tmp_path: Path, redis: RedisServer
) -> None:
    """A server that is not there: 1; what is no URL of a server, on the command line: 2; another filter's numbers: 4."""
    async with SmallWeb() as web:
        used = await anabranch(*crawl_of(tmp_path, web, "a", SEEDS[1], redis.url), cwd=tmp_path)
        assert used.code == 0, used.err
        other = crawl_of(tmp_path, web, "b", SEEDS[1], redis.url)
        for more, code, words in (
            ("dedup.expect=30_000_000", 4, f"127.0.0.1:{redis.port}"),
            ('dedup.leaves=["http://127.0.0.1"]', 2, "-s dedup.leaves must be URLs of Redis servers"),
            ('dedup.leaves=["redis://127.0.0.1:1"]', 1, "the Redis server 127.0.0.1:1 does not answer"),
        ):
            run = await anabranch(*other, "-s", more, cwd=tmp_path)
            assert (run.code, run.err.count("\n")) == (code, 1), run.err
            assert words in run.err


async def test_the_documents_example_runs_as_it_stands(tmp_path: Path, redis: RedisServer) -> None:
    """Its order and its commands, but for the server's port, the sites' addresses and the delays between fetches."""
    (order,) = re.findall(r"^```toml\n# share.toml\n(.*?)^```$", DOCS, re.MULTILINE | re.DOTALL)
    (tmp_path / "share.toml").write_text(order.replace(":6379/", f":{redis.port}/"))
    commands = [
        shlex.split(line, comments=True)[1:] for line in DOCS.splitlines() if line.startswith("anabranch crawl")
    ]
    assert len(commands) == 2
    pages = {"/": Page(links=go("http://one.example/both", "http://two.example/both")), "/both": Page()}
    hosts: Web = {"one.example": Host(pages=pages), "two.example": Host(pages=pages)}
    async with SmallWeb(hosts) as small_web:
        addresses = " ".join(f"{name}={address}" for name, address in small_web.hosts.items())
        quick = ("-s", f"dns.hosts={addresses}", "--allow-private", "--min-delay", "0", "--max-delay", "0")
        for command in commands:
            run = await anabranch(*command, "--scope", "any", *quick, cwd=tmp_path)
            assert run.code == 0, run.err
        counts = {url: times for url, times in small_web.ledger.counts().items() if "robots" not in url}
    assert counts == {f"http://{name}.example{path}": 1 for name in ("one", "two") for path in pages}
