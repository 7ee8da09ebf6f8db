"""Fixtures of the tests of fetching."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.crawler.fetch.servers import LIMIT_S, Web

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def site() -> AsyncIterator[Web]:
    """Servers and fetchers, closed at the end; no task may be left then."""
    before = asyncio.all_tasks()
    site = Web()
    yield site
    await site.close()
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    if left:  # the servers' own connection tasks end with their sockets
        await asyncio.wait(left, timeout=LIMIT_S)
    assert not [task for task in left if not task.done()]
