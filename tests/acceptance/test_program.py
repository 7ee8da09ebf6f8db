"""A program that crawls and is killed, again and again: no page is skipped."""

import json

import pytest

from tests.acceptance import forkserver
from tests.acceptance.command import ended, environment
from tests.acceptance.manyhosts import SEEDS, many_hosts
from tests.site.oracle import expected
from tests.site.page import Host, Page, file, go
from tests.site.server import SmallWeb

WEB = many_hosts()
#: Pages that wait, and fetches at once.
BUFFER, WORKERS = 4, 8

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PROGRAM = """
import asyncio, json, os, signal, sys
import anabranch

async def main(given):
    limit = given.pop("die_after")
    async with anabranch.crawl(**given) as crawl:
        count = 0
        async for page in crawl:
            with open("pages.txt", "a") as file:
                print(page.status, page.url, file=file)
            count += 1
            if count == limit:
                os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main(json.loads(sys.argv[1])))
"""


@pytest.fixture
async def web():
    async with SmallWeb(WEB, delay_s=0.005) as served:
        yield served


async def test_a_program_that_is_killed_skips_no_page(tmp_path, web):
    """It sees each page at least once; again those whose end was not on the disk yet."""
    given = {
        "seeds": list(SEEDS), "job": "job", "buffer": BUFFER, "dns": {"hosts": dict(web.hosts)}, "allow_private": True,
        "politeness": {"min_delay": 0, "max_delay": 0, "backoff_base": 0, "backoff_cap": 0}, "crawl": {"workers": WORKERS},
        "contact": "https://example.org/bot", "scope": {"max_path_repeats": 3},
    }  # fmt: skip
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    kills = 0
    while True:
        arguments = [str(program), json.dumps({**given, "die_after": 40})]
        process = await forkserver.start(arguments, cwd=tmp_path, env=environment())
        run = await ended(process)
        if run.code == 0:
            break
        kills += 1
        assert kills < 40, run.err
    seen = [line.split() for line in (tmp_path / "pages.txt").read_text().splitlines()]
    assert kills
    assert {url: int(status) for status, url in seen} == {
        url: status for url, status in expected(SEEDS, table=WEB).items() if status > 0
    }


SLOW = """
import asyncio, json, resource, sys
import anabranch

async def main(given):
    first = None
    async with anabranch.crawl(**given) as crawl:
        async for page in crawl:
            await asyncio.sleep(0.002)
            assert len(page.content) == 200_000 or page.depth == 0
            if first is None:
                first = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(crawl.result.pages, (most - first) * (1 if sys.platform == "darwin" else 1024))

asyncio.run(main(json.loads(sys.argv[1])))
"""
SLOW_PAGES = 1_200
#: The page of each of the 100 workers, and what the logs and the Frontier need.
MOST_BYTES = (20 << 20) + (32 << 20)


async def test_pages_that_are_done_leave_the_memory(tmp_path):
    """A slow program reads 240 MB of pages; each worker has one of them in memory. (How many wait is a test of the API.)"""
    body = file("text/plain", b"x" * 200_000)
    paths = [f"/{number}" for number in range(SLOW_PAGES - 1)]
    pages = {"/": Page(links=go(*paths)), **dict.fromkeys(paths, body)}
    async with SmallWeb({"a.test": Host(pages=pages)}) as web:
        given = {
            "seeds": "http://a.test/", "dns": {"hosts": dict(web.hosts)}, "allow_private": True, "min_delay": 0, "max_delay": 0,
            "max_connections": 32, "contact": "https://example.org/bot",
        }  # fmt: skip
        program = tmp_path / "program.py"
        program.write_text(SLOW)
        run = await ended(await forkserver.start([str(program), json.dumps(given)], cwd=tmp_path, env=environment()))
        assert run.code == 0, run.err
    crawled, grown = map(int, run.out.split())
    assert crawled == SLOW_PAGES
    assert grown < MOST_BYTES
