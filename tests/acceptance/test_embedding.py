"""The program with asyncio of docs/how-to/embed.md, run as it stands there."""

from __future__ import annotations

import asyncio
import signal
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from tests.acceptance.command import PATIENCE_S, environment
from tests.acceptance.embedding_docs import PROGRAMS
from tests.site.page import NOT_FOUND, Page, file, go, redirect
from tests.site.server import LoopbackServer

PROGRAM = PROGRAMS["spider.py"]

#: A tree of 40 pages, three links deep, with a page that is forbidden, one that is gone and one that has moved.
PAGES = {
    "/": Page(links=go("/a", "/b", "/c", "/secret/x", "/old", "/gone")),
    **{f"/{letter}": Page(links=go("/", *(f"/{letter}/{number}" for number in range(11)))) for letter in "abc"},
    **{f"/{letter}/{number}": Page(links=go(f"/{letter}")) for letter in "abc" for number in range(11)},
    "/old": redirect(301, "/new", "/new"),
    "/new": Page(),
    "/secret/x": Page(),
    "/robots.txt": file("text/plain", b"User-agent: *\nDisallow: /secret/\n"),
}
#: Every path with the status that must be printed for it.
EXPECTED = {path: 301 if path == "/old" else 200 for path in PAGES if path not in {"/robots.txt", "/secret/x"}} | {
    "/gone": 404
}
DELAY_S = 0.04


def a_site() -> LoopbackServer:
    return LoopbackServer(lambda host, target, earlier: PAGES.get(target, NOT_FOUND))


async def started(folder: Path, site: LoopbackServer) -> asyncio.subprocess.Process:
    """The program, crawling the site."""
    (folder / "spider.py").write_text(PROGRAM)
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *("spider.py", f"http://127.0.0.1:{site.port}/", "state", str(DELAY_S)),
        cwd=folder,
        env=environment(),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def printed(process: asyncio.subprocess.Process) -> tuple[list[tuple[str, int]], str]:
    """Path and status of each page that the program printed until its end, and what it complained of.

    A line that the kill tore does not count: its page was not finished, and is fetched again.
    """
    out, err = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    whole, _, torn = out.decode().rpartition("\n")
    assert not torn or process.returncode == -signal.SIGKILL
    lines = [line.split(" ") for line in whole.splitlines()]
    assert all(kind == "done" for kind, _, _ in lines)
    return [("/" + url.split("/", 3)[3], int(status)) for _, status, url in lines], err.decode()


def test_the_program_has_at_most_fifty_lines() -> None:
    """It is an example, not a second crawler."""
    assert len(PROGRAM.splitlines()) <= 50


@pytest.mark.slow
async def test_the_program_crawls_a_site_politely(tmp_path: Path) -> None:
    """Each page once, one at a time, with a rest between two, nothing that is forbidden; a second run finds nothing to do."""
    async with a_site() as site:
        process = await started(tmp_path, site)
        pages, complaints = await printed(process)
        assert (process.returncode, complaints) == (0, "")
        assert sorted(pages) == sorted(EXPECTED.items())
        host = f"127.0.0.1:{site.port}"
        assert site.ledger.max_in_service(host) == 1
        assert site.ledger.count(f"http://{host}/secret/x") == 0
        visits = [visit for visit in site.ledger.visits if visit.path != "/robots.txt"]
        assert min(later.start_s - earlier.end_s for earlier, later in pairwise(visits)) >= DELAY_S
        again = await started(tmp_path, site)
        assert (await printed(again), again.returncode) == (([], ""), 0)


@pytest.mark.slow
async def test_the_program_may_be_killed_and_misses_nothing(tmp_path: Path) -> None:
    """After `kill -9` in the middle the same command goes on; only what was under way is fetched again."""
    async with a_site() as site:
        host = f"127.0.0.1:{site.port}"
        killed = await started(tmp_path, site)
        while sum(site.ledger.counts().values()) < 15 and killed.returncode is None:
            await asyncio.sleep(0.005)
        killed.kill()
        before, _ = await printed(killed)
        assert 0 < len(before) < len(EXPECTED)
        process = await started(tmp_path, site)
        after, complaints = await printed(process)
        assert (process.returncode, complaints) == (0, "")
        assert dict(before + after) == EXPECTED
        fetched = {url: count for url, count in site.ledger.counts().items() if not url.endswith("/robots.txt")}
        # One lease at a time, for there is one slot; and pages that were finished, but not yet durable.
        assert sum(count - 1 for count in fetched.values()) <= 4
        assert site.ledger.max_in_service(host) == 1


async def test_the_loop_without_asyncio_ends(tmp_path: Path) -> None:
    """It leases its only page, finishes it, and nothing is left; a second start finds the job done."""
    (tmp_path / "loop.py").write_text(PROGRAMS["loop.py"])
    for _ in range(2):
        program = await asyncio.create_subprocess_exec(sys.executable, "loop.py", cwd=tmp_path, env=environment())
        async with asyncio.timeout(PATIENCE_S):
            assert await program.wait() == 0
