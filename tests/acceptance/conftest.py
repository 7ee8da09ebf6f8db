"""Fixtures for tests of the console: the console, a browser, and a window that is logged in; and a web of many hosts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from tests.acceptance.manyhosts import many_hosts
from tests.site.server import SmallWeb

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext, Page

    from tests.acceptance.browser import RunningConsole


@pytest.fixture
async def web() -> AsyncIterator[SmallWeb]:
    """Many hosts, with every answer late by 20 ms, so that a crawl can be caught in the middle; some files have another web."""
    async with SmallWeb(many_hosts(), delay_s=0.02) as served:
        yield served


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningConsole]:
    """A console in a process of its own, which the tests of a file share. Tests that change a job make one."""
    from tests.acceptance.browser import running_console

    with running_console(tmp_path_factory.mktemp("console")) as made:
        yield made


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def _chromium() -> AsyncIterator[Browser]:
    from tests.acceptance.browser import chromium

    async with chromium() as made:
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def browser(_chromium: Browser) -> AsyncIterator[Browser]:
    """Debian's Chromium, one for all tests of this process; what a test has opened in it is closed."""
    before = _chromium.contexts
    yield _chromium
    for context in _chromium.contexts:
        if context not in before:
            await context.close()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def _user(_chromium: Browser, console: RunningConsole) -> AsyncIterator[BrowserContext]:
    from tests.acceptance.browser import logged_in

    page = await logged_in(_chromium, console)
    yield page.context
    await page.context.close()


@pytest_asyncio.fixture(loop_scope="session")
async def window(_user: BrowserContext) -> AsyncIterator[Page]:
    """A new window of one user on the console: scripts of its pages are read once, as by a browser that is used."""
    page = await _user.new_page()
    yield page
    await page.close()
