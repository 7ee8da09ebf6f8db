"""A real console in a process of its own, and a real browser that looks at it: Debian's Chromium, steered by Playwright.

A start of Chromium and Playwright costs a second of CPU time, so a test process starts both once, and each test has windows of
its own. They live in the event loop of the session: tests that use them are marked `ON_ONE_LOOP`, and their async fixtures are
made with `on_one_loop`.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from anabranch.crawler.operate.listing import listed_jobs
from tests.acceptance import blocking
from tests.acceptance.command import environment
from tests.patience import HANG_S
from tests.ports import free_port

if TYPE_CHECKING:
    from playwright.async_api import Browser, Locator, Page


def expect(shown: Page | Locator) -> Any:
    """Playwright's, which waits. (Its import takes 0.4 s, which every test process would pay at the top.)"""
    from playwright.async_api import expect as real

    real.set_options(timeout=HANG_S * 1000 / 4)
    return real(shown)


#: For tests that use the browser.
ON_ONE_LOOP = pytest.mark.asyncio(loop_scope="session")
#: For their async fixtures, as `pytest.fixture`.
on_one_loop = partial(pytest_asyncio.fixture, loop_scope="session")


class RunningConsole:
    """`anabranch console PLACE` on a free port, with a state folder of its own. Its methods block for a second or two."""

    def __init__(self, folder: Path, *options: str | Path, place: str = "") -> None:
        self.jobs = folder / "jobs"
        self._place = place or str(self.jobs)  #: a folder, or the URL of a database
        self.state = folder / "state"
        self.port = free_port()
        self.base = f"http://127.0.0.1:{self.port}"
        self.login = ""  #: the link that it printed
        self._options = options
        self._process: blocking.Process | None = None
        self.jobs.mkdir(exist_ok=True)

    def start(self) -> None:
        """Start it, and wait until it has said where it is: it listens by then."""
        options = ("--listen", f"127.0.0.1:{self.port}", "--state", str(self.state), *map(str, self._options))
        self._process = blocking.Process(
            ["-m", "anabranch", "console", self._place, *options],
            cwd=self.jobs.parent,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stderr=None,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        found = re.search(r"https?://\S+", line)
        assert found, line
        self.login = found[0]

    def end(self) -> None:
        """End it in order, or kill it if it hangs; its crawls go on."""
        if self._process is not None:
            with self._process:
                self._process.terminate()
                self._process.wait(HANG_S)

    @property
    def pid(self) -> int:
        """Its process."""
        assert self._process is not None
        return self._process.pid

    def crawls(self) -> list[int]:
        """The processes that crawl its jobs."""
        return [row["pid"] for row in listed_jobs(self.jobs) if row["pid"]]


@contextmanager
def running_console(folder: Path, *options: str | Path, place: str = "") -> Iterator[RunningConsole]:
    """A console of the jobs in `folder`/jobs, or of another place; no crawl of the folder is left when this ends."""
    made = RunningConsole(folder, *options, place=place)
    try:
        made.start()
        yield made
    finally:
        made.end()
        for pid in made.crawls():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """A browser without a window; without Chromium the test is skipped."""
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("no chromium on PATH; install Debian's package chromium")
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = await playwright.chromium.launch(executable_path=program, args=options)
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def reverse_proxy(console_port: int, port: int, base_path: str, *, strips: bool) -> AsyncIterator[None]:
    """A proxy at `base_path` that passes the Host on, and the path with or without `base_path`; WebSockets, too."""
    served: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        served.add(task)
        with closing(writer), suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            method, path, rest = head.split(" ", 2)
            if "upgrade: websocket" not in rest.lower():  # one request a connection
                rest = re.sub(r"(?im)^connection:.*$", "Connection: close\r", rest)
            inner = path.removeprefix(base_path) if strips and path.startswith(base_path) else path
            there, onward = await asyncio.open_connection("127.0.0.1", console_port)
            with closing(onward):
                onward.write(f"{method} {inner or '/'} {rest}".encode())
                await asyncio.wait(
                    [asyncio.create_task(_copied(reader, onward)), asyncio.create_task(_copied(there, writer))],
                    return_when=asyncio.FIRST_COMPLETED,
                )

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    async with server:
        yield
        for task in served:
            task.cancel()


async def _copied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while part := await reader.read(1 << 16):
            writer.write(part)
            await writer.drain()


async def logged_in(browser: Browser, console: RunningConsole) -> Page:
    """A window of a user of its own, logged in by the link that the console printed."""
    page = await (await browser.new_context()).new_page()
    await page.goto(console.login)
    await page.wait_for_url(f"{console.base}/")
    return page
