"""Opens jobs that no crawl runs; those that are only looked at in temporary copies where the job itself cannot be opened.

Opening a job's queue writes to it, so `readable_job` copies a job that cannot be written (read-only medium, full disk, another
user's). A job of a host program that embeds the Frontier has neither seeds nor a scope: `open_embedded` opens it as the host
does, or takes a snapshot while the host holds it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import NamedTuple

from anabranch.crawler.job.folder import LOOKING_S, JobFolder, open_lock, take_job_lock, who_holds
from anabranch.crawler.job.orderfile import begun_order
from anabranch.crawler.job.state import EARLIER, PAYLOADS
from anabranch.crawler.order.frontier import MEMORY
from anabranch.crawler.order.loading import BY_VARIABLES, Caller
from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.order.sources import job_layer
from anabranch.crawler.outcomes.endings import FORESEEABLE
from anabranch.crawler.outcomes.errors import (
    STORAGE_ERRORS,
    DiskFull,
    JobInUse,
    NotPermitted,
    UsageError,
    storage_error,
)
from anabranch.dedup.files.locks import lock_holder, try_lock
from anabranch.frontier import Frontier, OutElsewhere, read_board
from anabranch.frontier.jobfolder import LEASES_FILE, ORDER_FILE, STATE, STORE_FILE, has_store

#: Bytes that opening a job's queue and filter may write.
_ROOM_BYTES = 8 << 20


def can_be_written(directory: Path) -> bool:
    """Whether this user may lock the job, and so crawl or change it."""
    state = directory / "state"
    return os.access(state, os.W_OK | os.X_OK) and (not (state / "lock").exists() or os.access(state / "lock", os.W_OK))


def has_room(directory: Path) -> bool:
    """Whether space, quota and limits of the file size allow what opening the job writes. Tried with a temporary file."""
    try:
        with tempfile.TemporaryFile(dir=directory / "state") as probe:
            os.posix_fallocate(probe.fileno(), 0, _ROOM_BYTES)
    except OSError as error:
        return STORAGE_ERRORS.get(error.errno or 0) is not DiskFull
    return True


def refuse_unwritable(directory: Path) -> None:
    """Raises: NotPermitted if this user cannot change the job."""
    if not can_be_written(directory):
        raise NotPermitted(
            f"{directory}: the job cannot be written, so nothing can be changed in it; "
            "change the permissions, or copy the folder to where it can be written"
        )


@contextmanager
def opened(
    directory: Path, caller: Caller = BY_VARIABLES, *, reads: bool = False
) -> Iterator[tuple[Frontier, CrawlOrder]]:
    """The Frontier and the order of a stopped job.

    A Frontier that would run code that only the job names is opened in a temporary copy without it if it is only read
    (`reads`), and else refused. Raises: UsageError if nothing was ever queued; CodeWithheld; as a crawl does.
    """
    from anabranch.crawler.job.frontier import has_begun, open_job, refuse_lost_queue  # noqa: PLC0415 - commands on a running crawl do not need it

    with JobFolder.open(directory, patience_s=LOOKING_S) as job:
        order = begun_order(directory, caller)
        refuse_lost_queue(job.state)
        if order.frontier.store in {"", MEMORY} and not has_begun(job.state) and not has_store(job.state):
            raise UsageError(f"{directory}: the job has no queue yet; start its crawl first")
        if reads and order.code.of_frontier and has_store(job.state):
            job.left_as_found(had_work=False, is_done=True)  # if it was finished
            with _viewed(directory, order) as frontier:
                yield frontier, order
            return
        with open_job(job.state, order) as frontier:
            had_work = not frontier.is_done
            try:
                yield frontier, order
            finally:  # also of what the caller refuses
                job.left_as_found(had_work=had_work, is_done=frontier.is_done)


@contextmanager
def readable_job(directory: Path) -> Iterator[Path]:
    """The job's folder; or, if that cannot be written or its disk is full, a copy below the folder for temporary files.

    The copy has the order and the state, and takes as much room and time as these. It is removed at the end, with all changes
    to it. Foreseeable errors of the block name the job's own folder. Raises: JobInUse, StorageError.
    """
    if can_be_written(directory) and has_room(directory):
        yield directory
        return
    with scratch_copy(str(directory), partial(_copy, directory)) as copy:
        yield copy


@contextmanager
def scratch_copy(place: str, make: Callable[[Path], None]) -> Iterator[Path]:
    """A temporary copy, made by `make`. Foreseeable errors of the block name the job's place. Raises: StorageError."""
    with tempfile.TemporaryDirectory(prefix="anabranch-") as scratch:
        copy = Path(scratch).resolve() / (Path(place).resolve().name or "job")
        try:
            make(copy)
        except OSError as error:
            is_full = STORAGE_ERRORS.get(error.errno or 0) is DiskFull  # of the copy, whatever file the system names
            raise storage_error(error, copy if is_full else Path(error.filename or copy), "TMPDIR") from error
        try:
            yield copy
        except FORESEEABLE as error:
            error.args = (str(error).replace(str(copy), place),)
            raise


def _copy(directory: Path, copy: Path) -> None:
    """Copy the order, the state and links to the logs of a job and of its workers, while no other process can crawl it."""
    with open_lock(directory) as lock:
        if not try_lock(lock, shared=True):
            raise JobInUse(directory, lock_holder(lock))
        (copy / "state").mkdir(parents=True)
        for path in (directory / ORDER_FILE, *(directory / "state").rglob("*")):
            if path.is_dir():
                (copy / path.relative_to(directory)).mkdir()
            elif path.is_file() and not path.name.startswith((PAYLOADS, EARLIER)):  # large, and only a crawl reads it
                shutil.copyfile(path, copy / path.relative_to(directory))
        for logs in (directory / "logs", *directory.glob("workers/*/logs")):
            if logs.is_dir():
                link = copy / logs.relative_to(directory)
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(logs.resolve())


class Snapshot(NamedTuple):
    """The state that the host had published when the copy was made."""

    process: int | None  #: that holds the job; None if it is not known yet
    taken_s: float  #: epoch seconds
    in_flight: OutElsewhere | None  #: None = not known


class ReadableEmbeddedJob(NamedTuple):
    """An open job of a host program."""

    frontier: Frontier
    order: CrawlOrder
    snapshot: Snapshot | None  #: None: no process holds the job, and this is the job itself


@contextmanager
def open_embedded(directory: Path, *, reads: bool, caller: Caller = BY_VARIABLES) -> Iterator[ReadableEmbeddedJob]:
    """The job's Frontier; that of a temporary copy if it is only read and the host holds the job, or code is withheld.

    Raises: JobInUse if the host holds the job and it is to be changed; UsageError if nothing was ever queued; as a crawl does.
    """
    from anabranch.crawler.job.frontier import open_job  # noqa: PLC0415 - commands on a running crawl do not need it

    held, process = who_holds(directory)
    if held:
        if not reads:
            raise JobInUse(directory, process)
        order = _order(directory, caller)
        # In flight before the copy: a row that ends meanwhile is shown as ended, a row that is leased later as it was.
        snapshot = Snapshot(process, time.time(), read_board(directory / STATE / LEASES_FILE))
        with _viewed(directory, order) as frontier:
            if snapshot.in_flight is not None:
                frontier.operations.views.show_elsewhere(*snapshot.in_flight)
            yield ReadableEmbeddedJob(frontier, order, snapshot)
        return
    with readable_job(directory) if reads else nullcontext(directory) as place:  # a change is never made to a copy
        lock = take_job_lock(place)
        try:
            order = _order(place, caller)
            is_viewed = reads and bool(order.code.of_frontier)
            with _viewed(place, order) if is_viewed else open_job(place / STATE, order) as frontier:
                yield ReadableEmbeddedJob(frontier, order, None)
        finally:
            os.close(lock)


@contextmanager
def _viewed(directory: Path, order: CrawlOrder) -> Iterator[Frontier]:
    """The Frontier of a temporary copy of the job's rows, without its filter and without the functions that are withheld.

    Cost: room and time for a copy of the store.
    """
    from anabranch.crawler.job.frontier import frontier_order  # noqa: PLC0415 - commands on a running crawl do not need it
    from anabranch.frontier import (  # noqa: PLC0415
        StoreDecides,
        copy_live,
        open_frontier,
    )

    def make(copy: Path) -> None:
        (copy / STATE).mkdir(parents=True)
        copy_live(directory / STATE / STORE_FILE, copy / STATE / STORE_FILE)

    asked = frontier_order(order, is_view=True)
    with (
        scratch_copy(str(directory), make) as copy,
        open_frontier(copy / STATE, asked, seen=StoreDecides()) as frontier,
    ):
        yield frontier


def _order(directory: Path, caller: Caller) -> CrawlOrder:
    """The order that the host wrote for its Frontier. Raises: UsageError, OrderError."""
    if not has_store(directory / STATE):
        raise UsageError(f"{directory}: the job has no queue yet; its program begins it")
    return caller.order_of(job_layer(directory / ORDER_FILE))
