"""Jobs of host programs that embed the Frontier: they have queues, gates and an order, and neither seeds nor a scope.

Only the host goes on with such a job. While it does, others look at a snapshot; else the job's Frontier is opened, as the host
opens it, and the folder keeps what it has.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

from anabranch.crawler.jobs.copying import copying_errors, scratch_of, to_be_read, told_of
from anabranch.crawler.jobs.holding import take_job_lock, who_holds
from anabranch.crawler.jobs.job import ORDER_FILE
from anabranch.crawler.jobs.opening import frontier_order, open_job
from anabranch.crawler.orders.order import CrawlOrder
from anabranch.crawler.orders.sources import load_order
from anabranch.crawler.outcomes.errors import JobInUse, UsageError
from anabranch.frontier.composition import STORE_FILE, has_store, open_frontier
from anabranch.frontier.core import Frontier
from anabranch.frontier.embedding.folder import LEASES_FILE, STATE
from anabranch.frontier.embedding.leaseboard import OutElsewhere, read_board
from anabranch.frontier.stores.livecopy import StoreDecides, copy_live


class Snapshot(NamedTuple):
    """What the host had said when the copy was made."""

    process: int | None  #: that holds the job; None if it has not said so yet
    taken_s: float  #: epoch seconds
    in_flight: OutElsewhere | None  #: None = not known


class Opened(NamedTuple):
    """A host's job, open."""

    frontier: Frontier
    order: CrawlOrder
    snapshot: Snapshot | None  #: None: nobody holds the job, and this is the job itself


@contextmanager
def opened_embedded(directory: Path, *, reads: bool) -> Iterator[Opened]:
    """The job's Frontier; if the host holds it and it is only read, that of a snapshot, which is gone at the end.

    A snapshot takes as much room and time as the store's file. Raises: JobInUse if it is to be changed and the host holds it;
    UsageError if nothing was ever queued; as a crawl does.
    """
    held, process = who_holds(directory)
    if not held:
        to_be_opened = to_be_read(directory) if reads else nullcontext(directory)  # what is changed is never a copy
        with to_be_opened as place, _itself(place) as opened:
            yield opened
    elif reads:
        with _snapshot(directory, process) as opened:
            yield opened
    else:
        raise JobInUse(directory, process)


@contextmanager
def _itself(directory: Path) -> Iterator[Opened]:
    lock = take_job_lock(directory)
    try:
        order = _order(directory)
        with open_job(directory / STATE, order) as frontier:
            yield Opened(frontier, order, None)
    finally:
        os.close(lock)


@contextmanager
def _snapshot(directory: Path, process: int | None) -> Iterator[Opened]:
    order = _order(directory)
    with scratch_of(directory) as copy:
        # First what is in flight: a row that has ended meanwhile is told as ended, one that was leased later as it was.
        snapshot = Snapshot(process, time.time(), read_board(directory / STATE / LEASES_FILE))
        with copying_errors(copy):
            (copy / STATE).mkdir(parents=True)
            copy_live(directory / STATE / STORE_FILE, copy / STATE / STORE_FILE)
        asked = frontier_order(order)
        with told_of(directory, copy), open_frontier(copy / STATE, asked, seen=StoreDecides()) as frontier:
            if snapshot.in_flight is not None:
                frontier.operations.looking.beside(*snapshot.in_flight)
            yield Opened(frontier, order, snapshot)


def _order(directory: Path) -> CrawlOrder:
    """What the host asks of its Frontier. Raises: UsageError, OrderError."""
    if not has_store(directory / STATE):
        raise UsageError(f"{directory}: the job has no queue yet; its program begins it")
    return load_order(directory / ORDER_FILE, {})
