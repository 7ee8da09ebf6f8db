"""Scrapy crawls on the small web, started, killed and read by tests."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.acceptance import forkserver
from tests.acceptance.command import PATIENCE_S, REPOSITORY, Process, environment

ADDON = {"ADDONS": {"anabranch.frontier.hosts.scrapy.FrontierAddon": 100}}
#: What a crawl imports, but for a reactor.
LIBRARIES = (
    *("anabranch.frontier.hosts.scrapy.", "anabranch.frontier.stores.", "aiohttp.web", "scrapy.crawler", "tldextract"),
    *("scrapy.core.downloader.handlers.http11", "scrapy.downloadermiddlewares.", "scrapy.extensions."),
    *("scrapy.spidermiddlewares.", "scrapy.statscollectors", "twisted.conch.telnet"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Crawl:
    """The exit code and the output of a crawl that has ended."""

    code: int
    lines: list[list[str]]
    err: str

    def called(self, word: str = "CALLED") -> Counter[str]:
        """URL -> how often its callback was called."""
        return Counter(words[1] for words in self.lines if words[0] == word)

    @property
    def order(self) -> list[str]:
        """The URLs of the callbacks, as they came."""
        return [words[1] for words in self.lines if words[0] == "CALLED"]

    @property
    def stats(self) -> dict[str, Any]:
        """Scrapy's own."""
        (line,) = (words for words in self.lines if words[0] == "STATS")
        return json.loads(" ".join(line[1:]))


def frontier(**settings: object) -> dict[str, object]:
    """The addon's settings, quick ones unless they say otherwise."""
    return {**ADDON, "FRONTIER": {"max_connections": 4, "min_delay": 0, "backoff_base": 0, **settings}}


async def start(
    starts: list[str],
    settings: Mapping[str, object],
    *,
    job: Path | None = None,
    spider: str = "everything",
    options: Mapping[str, object] | None = None,
) -> Process:
    """Start a crawl in a process of its own."""
    order = {
        "starts": starts,
        "settings": {**settings, **({} if job is None else {"JOBDIR": str(job)})},
        "spider": spider,
        "options": options or {},
    }
    program = REPOSITORY / "tests" / "acceptance" / "scrapy_spider.py"
    return await forkserver.start(
        [str(program), json.dumps(order)], cwd=REPOSITORY, env=environment(), preload=LIBRARIES
    )


async def ended(process: Process) -> Crawl:
    """Wait for the end of a crawl and return its output; kill it after PATIENCE_S. Raises: AssertionError if it hangs."""
    try:
        out, err = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    except TimeoutError:
        process.kill()
        out, err = await process.communicate()
        raise AssertionError(f"the crawl hangs: {out.decode()} {err.decode()}") from None
    lines = [line.split(" ") for line in out.decode().splitlines(keepends=True) if line.endswith("\n")]
    stripped = [[*words[:-1], words[-1].rstrip("\n")] for words in lines]
    assert process.returncode is not None
    return Crawl(code=process.returncode, lines=stripped, err=err.decode())


async def crawl(starts: list[str], settings: Mapping[str, object], **more: Any) -> Crawl:
    """A crawl from its start to its end."""
    return await ended(await start(starts, settings, **more))
