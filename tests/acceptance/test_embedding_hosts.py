"""The programs with Scrapy and Crawlee of docs/how-to/embed.md, run as they stand there."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from tests.acceptance.command import PATIENCE_S, environment
from tests.acceptance.embedding_docs import PROGRAMS
from tests.site.page import NOT_FOUND, Page, go, trap
from tests.site.server import LoopbackServer

#: Page 0 links to all others, and these back to it; before them, links that no crawler can follow.
PAGES = {
    "/": Page(links=(trap("mailto:a@b.test"), trap("javascript:void(0)"), *go(*(f"/{number}" for number in range(12)))))
} | {f"/{number}": Page(links=(trap("tel:+1"), *go("/"))) for number in range(12)}
#: What the programs ask for.
DELAY_S = 0.1
#: file name -> (the host's package, the command that the file's first line says)
COMMANDS = {
    "portal.py": ("scrapy", ["-m", "scrapy", "runspider", "portal.py", "-a", "seed={seed}"]),
    "portal_crawler.py": ("crawlee", ["portal_crawler.py", "{seed}"]),
}


async def started(program: str, folder: Path, seed: str) -> asyncio.subprocess.Process:
    package, arguments = COMMANDS[program]
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    (folder / program).write_text(PROGRAMS[program])
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *(argument.format(seed=seed) for argument in arguments),
        cwd=folder,
        env=environment(),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )


async def printed(process: asyncio.subprocess.Process) -> list[str]:
    """The paths of the pages that it printed, until its end."""
    out, _ = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    lines = [line.split(" ") for line in out.decode().splitlines() if line.startswith("page ")]
    assert all(status == "200" for _, status, _ in lines)
    return ["/" + url.split("/", 3)[3] for _, _, url in lines]


@pytest.mark.slow
@pytest.mark.parametrize("program", COMMANDS)
async def test_the_program_crawls_politely_survives_a_kill_and_goes_on(tmp_path: Path, program: str) -> None:
    """Every page's callback has run, the rest between two fetches is kept, and a third run finds nothing to do."""
    async with LoopbackServer(lambda host, target, earlier: PAGES.get(target, NOT_FOUND)) as site:
        seed = f"http://127.0.0.1:{site.port}/"
        killed = await started(program, tmp_path, seed)
        while sum(site.ledger.counts().values()) < 5 and killed.returncode is None:
            await asyncio.sleep(0.005)
        killed.kill()
        before = await printed(killed)
        process = await started(program, tmp_path, seed)
        after = await printed(process)
        assert process.returncode == 0
        assert set(before) | set(after) == set(PAGES)
        assert len(before) + len(after) <= len(PAGES) + 1  # the one in flight
        assert site.ledger.max_in_service(f"127.0.0.1:{site.port}") == 1
        visits = [visit for visit in site.ledger.visits if visit.path in after]
        assert min(later.start_s - earlier.end_s for earlier, later in pairwise(visits[-len(after) :])) >= DELAY_S
        again = await started(program, tmp_path, seed)
        assert (await printed(again), again.returncode) == ([], 0)
