"""A pytest plugin for Crawlee's suite: the storage client is ours.

Every storage client that a test makes of Crawlee's file or memory kind, and the one that a crawler has that is given none. Of
the tests that run once with each of Crawlee's clients one run is kept, with ours in the place of its file storage.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from crawlee import _service_locator, storage_clients

from frontier.adapters.crawlee import FrontierStorageClient

#: Their tests measure no politeness, and their hosts fail on purpose.
_SETTINGS = {
    "min_delay": 0.0,
    "max_delay": 0.0,
    "delay_factor": 0.0,
    "max_connections": 100,
    "backoff_base": 0.0,
    "backoff_cap": 0.0,
}
_MADE: list[FrontierStorageClient] = []


class ForFiles(FrontierStorageClient):
    """In the place of FileSystemStorageClient."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**(_SETTINGS | settings))
        _MADE.append(self)


class ForMemory(ForFiles):
    """In the place of MemoryStorageClient; a type of its own, for tests ask which one they have."""


_SWAPS: dict[object, type] = {
    storage_clients.FileSystemStorageClient: ForFiles,
    storage_clients.MemoryStorageClient: ForMemory,
}


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Swap what modules and parameters name."""
    functions = [item for item in items if isinstance(item, pytest.Function)]
    for module in {item.module for item in functions} | set(config.pluginmanager.get_plugins()):
        for name, value in list(getattr(module, "__dict__", {}).items()):
            if isinstance(value, type) and value in _SWAPS:
                setattr(module, name, _SWAPS[value])
    repeated = [item for item in functions if _is_repeated(item)]
    config.hook.pytest_deselected(items=repeated)
    items[:] = [item for item in items if item not in repeated]


def _is_repeated(item: pytest.Function) -> bool:
    """The same test with another of Crawlee's clients."""
    parameters = getattr(item, "callspec", None)
    return parameters is not None and parameters.params.get("storage_client") in {"memory", "sql", "redis"}


@pytest.fixture(autouse=True)
async def _close() -> AsyncIterator[None]:
    yield
    while _MADE:
        await _MADE.pop().close()


vars(_service_locator)["FileSystemStorageClient"] = ForFiles
