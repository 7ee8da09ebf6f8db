"""A real console in a process of its own, and a real browser that looks at it: Debian's Chromium, steered by Playwright."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, async_playwright, expect

from anabranch.crawler.operate.listing import listed_jobs
from tests.acceptance.command import environment
from tests.patience import HANG_S

expect.set_options(timeout=HANG_S * 1000 / 4)


class RunningConsole:
    """`anabranch console FOLDER` on a free port, with a state folder of its own. The crawls that it starts end with it."""

    def __init__(self, folder: Path, *options: str | Path) -> None:
        self.jobs = folder / "jobs"
        self.state = folder / "state"
        self.base = f"http://127.0.0.1:{free_port()}"
        self.login = ""  #: the link that it printed
        self._options = options
        self._process: asyncio.subprocess.Process | None = None
        self.jobs.mkdir(exist_ok=True)

    async def start(self) -> None:
        """Start it, and wait until it has said where it is."""
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "anabranch", "console", str(self.jobs)),
            *("--listen", self.base.removeprefix("http://"), "--state", str(self.state), *map(str, self._options)),
            stdout=asyncio.subprocess.PIPE,
            env=environment(),
        )
        assert self._process.stdout is not None
        line = (await asyncio.wait_for(self._process.stdout.readline(), HANG_S)).decode()
        found = re.search(r"https?://\S+", line)
        assert found, line
        self.login = found[0]

    async def end(self) -> None:
        """End it in order; its crawls go on."""
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
            await asyncio.wait_for(self._process.communicate(), HANG_S)

    def crawls(self) -> list[int]:
        """The processes that crawl its jobs."""
        return [row["pid"] for row in listed_jobs(self.jobs) if row["pid"]]


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@asynccontextmanager
async def running_console(folder: Path, *options: str | Path) -> AsyncIterator[RunningConsole]:
    """A console of the jobs in `folder`/jobs; nothing of it is left when this ends."""
    made = RunningConsole(folder, *options)
    await made.start()
    try:
        yield made
    finally:
        await made.end()
        for pid in made.crawls():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """A browser without a window; without Chromium the test is skipped."""
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("no chromium on PATH; install Debian's package chromium")
    async with async_playwright() as playwright:
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = await playwright.chromium.launch(executable_path=program, args=options)
        try:
            yield browser
        finally:
            await browser.close()


async def logged_in(browser: Browser, console: RunningConsole) -> Page:
    """A window of a user of its own, logged in by the link that the console printed."""
    page = await (await browser.new_context()).new_page()
    await page.goto(console.login)
    await page.wait_for_url(f"{console.base}/")
    return page
