"""Bounds on connections: how many the process's open files allow, and which idle ones are kept.

An idle connection must leave room for the job's files: a log that cannot be opened ends a crawl, a new connection costs a few
packets.
"""

from __future__ import annotations

import resource
from collections import OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from anabranch.crawler.fetch.bandwidth import Bandwidth

#: Limits of open files to ask for, the best first. macOS accepts at most 10,240, whatever it reports.
_WANTED = (65_536, 10_240)
#: Files of the job: its store, logs, archives, filter, helper processes, name servers.
_JOB_FILES = 96
#: Files of each worker: a connection, and one that races it to another address (RFC 8305) or a large body's file.
_FILES_PER_WORKER = 2
#: Most idle connections: each takes some 10 KiB, with TLS 50 KiB and more.
MAX_IDLE = 1000


class ConnectionLimits(NamedTuple):
    """The most connections that may be open, and how fast they may be read."""

    busy: int = 0  #: with a fetch under way; 0 = no limit but the number of workers
    idle: int = MAX_IDLE  #: kept for their host's next fetch
    bandwidth: Bandwidth | None = None  #: caps what they read; None: nothing does


def raise_file_limit() -> int:
    """Raise the process's limit of open files as far as the system allows, and return it. Never lowers it."""
    for wanted in _WANTED:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)  # noqa: PLW2901 - up to the hard limit
        if soft == resource.RLIM_INFINITY or soft >= wanted:
            break
        with suppress(ValueError, OSError):  # the system has a lower bound of its own: try the next value
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _WANTED[0] if soft == resource.RLIM_INFINITY else soft


def files_for(workers: int) -> int:
    """The open files that so many workers need so that none waits for another's connection."""
    return _JOB_FILES + _FILES_PER_WORKER * workers


def connection_limits_for(files: int, workers: int) -> ConnectionLimits:
    """The limits for so many open files and workers. Too few files: no idle connections, fetches wait, and a warning."""
    left = files - files_for(workers)
    if left >= 0:
        return ConnectionLimits(idle=min(left, MAX_IDLE))
    busy = max((files - _JOB_FILES) // _FILES_PER_WORKER, 1)
    import structlog  # noqa: PLC0415 - half of what the server of a web imports, which needs `raise_file_limit` alone

    structlog.get_logger(__name__).warning(
        "few files may be open: fetches wait for each other; raise the limit (ulimit -n) or lower [crawl] workers",
        open_files=files,
        workers=workers,
        fetches_at_once=busy,
    )
    return ConnectionLimits(busy, 0)


class IdleConnections:
    """The idle connections of all connectors, least recently used first; one too many closes the first. All calls O(1)."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._closers: OrderedDict[asyncio.BaseProtocol, Callable[[], None]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._closers)

    def add(self, connection: asyncio.BaseProtocol, close: Callable[[], None]) -> None:
        """A connection becomes idle; `close` closes it and removes it from its connector."""
        self._closers[connection] = close
        if len(self._closers) > self._most:
            _, close_oldest = self._closers.popitem(last=False)
            close_oldest()

    def discard(self, connection: asyncio.BaseProtocol) -> None:
        """The connection is used again, or closed."""
        self._closers.pop(connection, None)
