"""How many files and sockets the process may have open, and for whom they are.

Connections that only wait for their host's next fetch must leave room for the job's files: a log that cannot be opened ends a
crawl, a connection that is not kept costs a few packets.
"""

from __future__ import annotations

import resource
from contextlib import suppress
from typing import NamedTuple

import structlog

log = structlog.get_logger(__name__)

#: Wanted limits of open files, the best first. macOS takes no more than 10,240, whatever it says it would.
_WANTED = (65_536, 10_240)
#: For the job: its store, logs, archives, filter, helper processes, name servers.
_OWN = 96
#: For each worker: a connection, and one that races it to another address (RFC 8305) or a large body's file.
_PER_WORKER = 2
#: More connections are not kept: each takes some 10 KiB, with TLS 50 KiB and more, whoever is at its other end.
MAX_IDLE = 1000


class Connections(NamedTuple):
    """How many there may be."""

    busy: int = 0  #: with a fetch under way; 0 = as many as there are workers
    idle: int = MAX_IDLE  #: kept for their host's next fetch


def raise_file_limit() -> int:
    """Raise this process's limit of open files as far as it may go; answers the limit that now holds. It never lowers it."""
    for wanted in _WANTED:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)  # noqa: PLW2901 - as far as it may go
        if soft == resource.RLIM_INFINITY or soft >= wanted:
            break
        with suppress(ValueError, OSError):  # the system has a bound of its own: the next one
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _WANTED[0] if soft == resource.RLIM_INFINITY else soft


def files_for(workers: int) -> int:
    """The open files with which no worker waits for another's connection."""
    return _OWN + _PER_WORKER * workers


def connections_within(files: int, workers: int) -> Connections:
    """The connections for so many workers when so many files may be open; at least one.

    If there are too few for the workers, none is kept, fetches wait for each other, and the log says so.
    """
    left = files - files_for(workers)
    if left >= 0:
        return Connections(idle=min(left, MAX_IDLE))
    busy = max((files - _OWN) // _PER_WORKER, 1)
    log.warning(
        "few files may be open: fetches wait for each other; raise the limit (ulimit -n) or lower [crawl] workers",
        open_files=files,
        workers=workers,
        fetches_at_once=busy,
    )
    return Connections(busy, 0)
