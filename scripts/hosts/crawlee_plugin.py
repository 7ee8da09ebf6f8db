"""A pytest plugin for Crawlee's suite: replaces the class under test by ours. `ANABRANCH_SUITE` names it.

crawlee-storage       every storage client that a test makes of Crawlee's file or memory kind, and the default one
crawlee-manager       the request manager of a crawler that is given none

Of the tests that run once with each of Crawlee's clients one run is kept, with ours in the place of its file storage.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from typing import Any

import pytest
from crawlee import _service_locator, storage_clients
from crawlee.crawlers import BasicCrawler

from anabranch.frontier.hosts.crawlee import FrontierRequestManager, FrontierStorageClient
from scripts.hosts.selection import SUITE

#: The tests measure no politeness, and their hosts fail on purpose.
_SETTINGS = {
    "policy": "host",  # what is put in front is in front of its work queue
    "per_queue": 100,
    "min_delay": 0.0,
    "max_delay": 0.0,
    "delay_factor": 0.0,
    "max_connections": 100,
    "backoff_base": 0.0,
    "backoff_cap": 0.0,
}
_IS_MANAGER = os.environ[SUITE].startswith("crawlee-manager")
_MADE: list[FrontierStorageClient | FrontierRequestManager] = []


class ForFiles(FrontierStorageClient):
    """Replaces FileSystemStorageClient."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**(_SETTINGS | settings))
        _MADE.append(self)


class ForMemory(ForFiles):
    """Replaces MemoryStorageClient; a separate type, because tests check it."""


_SWAPS: dict[object, type] = {
    storage_clients.FileSystemStorageClient: ForFiles,
    storage_clients.MemoryStorageClient: ForMemory,
}


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Replace the names in modules."""
    if _IS_MANAGER:
        return
    functions = [item for item in items if isinstance(item, pytest.Function)]
    for module in {item.module for item in functions} | set(config.pluginmanager.get_plugins()):
        for name, value in list(getattr(module, "__dict__", {}).items()):
            if isinstance(value, type) and value in _SWAPS:
                setattr(module, name, _SWAPS[value])
    repeated = [item for item in functions if _is_repeated(item)]
    config.hook.pytest_deselected(items=repeated)
    items[:] = [item for item in items if item not in repeated]


def _is_repeated(item: pytest.Function) -> bool:
    """True if this run of a test repeats it with another of Crawlee's storage clients."""
    parameters = getattr(item, "callspec", None)
    return parameters is not None and parameters.params.get("storage_client") in {"memory", "sql", "redis"}


@pytest.fixture(autouse=True)
async def _close() -> AsyncIterator[None]:
    yield
    while _MADE:
        await _MADE.pop().close()


async def _manager(crawler: Any) -> Any:
    """Replaces `BasicCrawler.get_request_manager`."""
    if not crawler._request_manager:  # noqa: SLF001
        crawler._request_manager = await FrontierRequestManager.open(None, **_SETTINGS)  # noqa: SLF001
        _MADE.append(crawler._request_manager)  # noqa: SLF001
    return crawler._request_manager  # noqa: SLF001


if _IS_MANAGER:
    BasicCrawler.get_request_manager = _manager  # type: ignore[method-assign]
else:
    vars(_service_locator)["FileSystemStorageClient"] = ForFiles
