"""Moves an old job aside so that a new one can begin in its place (`crawl --fresh`). Nothing is deleted or copied."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

from anabranch.crawler.jobs.durablefiles import sync_folder
from anabranch.crawler.jobs.forgetting import forgets
from anabranch.crawler.jobs.holding import take_job_lock
from anabranch.crawler.jobs.job import refuse_embedded
from anabranch.crawler.jobs.opening import has_seeds
from anabranch.crawler.jobs.orderfile import last_order_file
from anabranch.crawler.orders.frontier import MEMORY
from anabranch.crawler.orders.order import CrawlOrder
from anabranch.crawler.orders.sources import file_layer, order_of
from anabranch.crawler.outcomes.errors import OrderDamaged, OrderError, UsageError, storage_errors
from anabranch.frontier.composition import has_store
from anabranch.frontier.embedding.folder import ORDER_FILE, is_job


class MovedAside(NamedTuple):
    """What became of the old job."""

    place: Path  #: its folder now
    leaves: tuple[str, ...]  #: servers of its shared filter, which keep what they know


def move_aside(directory: Path, now_s: float) -> MovedAside | None:
    """Rename a job's folder to `JOB.previous-TIMESTAMP` (UTC), beside it; None if there is no job.

    One rename, made durable. The lock moves with the folder: a run that waits for it finds that out. A process that is killed
    leaves the old job or the moved one; the same command goes on from either.

    Raises: JobInUse, HostsJob; UsageError if the job cannot be moved, OrderDamaged if nothing tells where its queue is, with
    nothing changed; StorageError.
    """
    refuse_embedded(directory)
    if not is_job(directory):
        return None
    order = _order_of(directory)
    store = "" if order is None else order.frontier.store
    if store not in {"", MEMORY}:
        raise UsageError(
            f"{directory}: the queue of the job is in a database, which does not move with the folder; name another job "
            "and another database or schema (--name OTHER --store URL), or delete its folder and drop its tables yourself"
        )
    if directory.resolve() in {Path.cwd(), *Path.cwd().parents}:
        raise UsageError(f"{directory}: the job's folder is the current folder, or holds it; run the command elsewhere")
    with storage_errors(directory):
        lock = take_job_lock(directory)
        try:
            place = _free_name(directory, now_s)
            try:
                directory.rename(place)
            except OSError as error:
                raise UsageError(
                    f"{directory}: cannot be moved aside to {place.name}: {os.strerror(error.errno or 0)}; "
                    "choose another --job or --name"
                ) from error
            sync_folder(place.parent)
        finally:
            os.close(lock)
    return MovedAside(place, () if order is None else tuple(order.dedup.leaves))


def move_back(place: Path, directory: Path) -> bool:
    """Give a job that was moved aside its name again, durably; False if something has that name, or the disk refuses."""
    try:
        if not os.path.lexists(directory):
            place.rename(directory)
            sync_folder(directory.parent)
            return True
    except OSError:
        pass  # it stays aside: where that is has been said
    return False


def _order_of(directory: Path) -> CrawlOrder | None:
    """The order that the job was run by last; None if none can be read here, and the queue moves with the folder."""
    try:
        file = last_order_file(directory)
        if file is not None:
            return order_of([file_layer(file)])
    except OrderError:  # one that people have broken, or a newer version wrote
        pass
    state = directory / "state"
    if has_seeds(directory) and not (has_store(state) or forgets(state) or (directory / "shares").is_dir()):
        raise OrderDamaged(
            f"{directory / ORDER_FILE}: cannot be read, and may say that the queue is in a database, which does not move "
            "with the folder; restore it from a copy, or move the folder yourself and drop the tables that the job may have"
        )
    return None


def _free_name(directory: Path, now_s: float) -> Path:
    """A name beside the folder that nothing has."""
    stem = f"{directory.name}.previous-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(now_s))}"
    place, number = directory.with_name(stem), 2
    while os.path.lexists(place):
        place, number = directory.with_name(f"{stem}-{number}"), number + 1
    return place
