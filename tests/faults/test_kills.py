"""A crawl with WARC files is killed at every call that writes to its files; the next run finishes it, and all files agree."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.acceptance import forkserver
from tests.acceptance.command import Ended, ended, environment, write_order
from tests.faults import shim
from tests.faults.agreement import disagreements, urls_of
from tests.site.page import Host, Page, go, redirect
from tests.site.server import SmallWeb

needs_compiler = pytest.mark.skipif(shim.COMPILER is None, reason="needs cc")
#: Two hosts with a redirect, a payload that comes twice, and one that fills a WARC file.
LARGE = Page(body=random.Random(1).randbytes(1_100_000), content_type="application/octet-stream")
TWICE = Page(body=b"the same" * 20, content_type="image/png")
SITE = {
    "a.test": Host(
        pages={
            "/": Page(links=go("/1", "/2", "http://b.test/", "/same.png")),
            "/1": Page(links=go("/2", "/gone"), filler_bytes=3000),
            "/2": redirect(302, "/3", "/3"),
            "/3": LARGE,
            "/same.png": TWICE,
        }
    ),
    "b.test": Host(pages={"/": Page(links=go("/1", "/same.png")), "/1": Page(links=go("/")), "/same.png": TWICE}),
}
SEED = "http://a.test/"
URLS = {f"http://a.test{path}" for path in ("/", "/1", "/2", "/3", "/gone", "/same.png")} | {
    f"http://b.test{path}" for path in ("/", "/1", "/same.png")
}
#: Calls that write. That the queue and the filter survive kills is tested elsewhere.
KINDS = "wrt"
WITHOUT = ("frontier.db", "/seen/", "/reports/", "progress-statistics")


class Job:
    """A crawl of the site in a folder, run again and again."""

    def __init__(self, folder: Path, web: SmallWeb) -> None:
        folder.mkdir()
        self.folder, self.path = folder, folder / "job"
        order = write_order(
            folder, web.hosts, crawl={"workers": 3}, write={"warc": True, "warc_size": "1MiB"}, scope={"scope": "any"}
        )
        self._command = ("-m", "anabranch", "crawl", SEED, "-c", str(order), "--job", str(self.path), "-q")

    async def run(self, **more: str) -> Ended:
        """With variables for the shim, if it is to do something."""
        process = await forkserver.start(
            self._command, cwd=self.folder, env=environment(**more), preload=shim.PRELOAD if more else forkserver.ROOMS
        )
        return await ended(process)

    def watched(self, **more: str) -> dict[str, str]:
        return shim.variables(self.path, kinds=KINDS, without=WITHOUT) | more


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with TemporaryDirectory(dir=sys.prefix) as beside_installed_code:
        yield shim.compiled(tmp_path_factory.mktemp("shim"), Path(beside_installed_code))


async def calls_of(folder: Path, web: SmallWeb) -> int:
    """The number of calls that a crawl makes; it differs little from crawl to crawl."""
    job = Job(folder / "counted", web)
    log = folder / "calls"
    done = await job.run(**job.watched(FAULT_LOG=str(log)))
    assert done.code == 0, done.err
    assert disagreements(job.path) == []
    return len(shim.calls_in(log))


async def problems_of_kills(folder: Path, web: SmallWeb, numbers: Sequence[int], how: str) -> list[str]:
    """Kill a crawl at each of these calls and finish it."""

    async def problems(number: int) -> list[str]:
        job = Job(folder / f"{how}{number}", web)
        killed = await job.run(**job.watched(**shim.fault(number, how)))
        done = await job.run()
        found = [f"exit code {done.code}: {done.err[-400:]}"] if done.code else disagreements(job.path)
        if not done.code and urls_of(job.path) != URLS:
            found.append(f"URLs: {sorted(urls_of(job.path) ^ URLS)}")
        if killed.code not in {0, -9}:
            found.append(f"the killed run ended with {killed.code}: {killed.err[-400:]}")
        return [f"{how} at call {number}: {problem}" for problem in found]

    return [problem for number in numbers for problem in await problems(number)]


@needs_compiler
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("how", ["KILL", "TEAR"])
async def test_after_a_kill_at_every_call_all_files_agree(tmp_path: Path, library: Path, how: str) -> None:
    """Before the call, and in the middle of what it writes."""
    with shim.preloaded(library):
        async with SmallWeb(SITE) as web:
            calls = await calls_of(tmp_path, web)
            found = await asyncio.gather(
                *(problems_of_kills(tmp_path, web, range(first, calls, 2), how) for first in range(2))
            )
            assert [problem for problems in found for problem in problems] == []
