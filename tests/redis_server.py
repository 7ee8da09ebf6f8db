"""Real Redis servers for tests: on free ports of 127.0.0.1, with their data in the test's folder."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from anabranch.crawler.lab.filters.redis_servers import RedisServer
from anabranch.crawler.outcomes.errors import UsageError


@contextmanager
def redis_servers(folder: Path, number: int, **settings: str) -> Iterator[list[RedisServer]]:
    """So many running servers. Without a redis-server the test is skipped, and in CI it fails."""
    append_only = settings.pop("appendonly", "no") == "yes"
    with ExitStack() as running:
        servers = []
        for place in range(number):
            try:
                server = RedisServer(folder / f"redis-{place}", append_only=append_only, settings=settings)
            except UsageError as error:
                if os.environ.get("CI"):
                    raise
                pytest.skip(str(error))
            servers.append(running.enter_context(server))
        yield servers
