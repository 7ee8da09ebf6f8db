"""Fixtures for tests of the console: the console, a browser, and a window that is logged in."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

    from tests.acceptance.browser import RunningConsole


@pytest.fixture
def console(tmp_path: Path) -> Iterator[RunningConsole]:
    """A console without jobs, in a process of its own."""
    from tests.acceptance.browser import running_console

    with running_console(tmp_path) as made:
        yield made


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    """Debian's Chromium."""
    from tests.acceptance.browser import chromium

    async with chromium() as made:
        yield made


@pytest.fixture
async def window(browser: Browser, console: RunningConsole) -> Page:
    """A window on the console, logged in."""
    from tests.acceptance.browser import logged_in

    return await logged_in(browser, console)
