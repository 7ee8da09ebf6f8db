"""Moves a job: from a folder to a PostgreSQL database or back, between folders, and from one worker to several.

A job of one worker becomes one of several first: the URLs of its queue are loaded into a new file, in which seeds, order,
totals, and the settings of queues and hosts are rows. These rows are what a move copies. The copy is whole at one moment (a
commit, a rename), and says where it comes from; then the source notes that it has moved, and the copy forgets its note. Whoever
is killed leaves one job that is crawled: until the source has its note it is the source, from then on the copy.

`divide` does the first step alone, in the job's own folder: a mark says that the new file is complete; then it takes the place
of the old one. A process that is killed before the mark leaves the job as it was, one that is killed after it leaves steps that
the next one repeats.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from anabranch.crawler.accounts.accounts import Accounts
from anabranch.crawler.accounts.database import ACCOUNTS_FILE
from anabranch.crawler.archive.files import finish_left_over
from anabranch.crawler.cluster.agreement import Applicant, Wanted, join, put_changes
from anabranch.crawler.cluster.database import JobDatabase, put_fact
from anabranch.crawler.cluster.totals import BEFORE, put_totals
from anabranch.crawler.job.changes import lasting_changes
from anabranch.crawler.job.checking import division_faults
from anabranch.crawler.job.choosing import SHARES_OF_PROCESSES
from anabranch.crawler.job.folder import JobFolder, refuse_embedded, take_job_lock
from anabranch.crawler.job.frontier import frontier_order, refuse_lost_queue
from anabranch.crawler.job.journal import roll_back
from anabranch.crawler.job.orderfile import order_file
from anabranch.crawler.job.seeds import SEED_BOOK, Seed, SeedBook
from anabranch.crawler.job.state import current_round
from anabranch.crawler.job.workerfolders import COMPLETE, OLD_NUMBER, SCRATCH, is_old_division, shared_file
from anabranch.crawler.order.code import refuse_withheld
from anabranch.crawler.order.loading import BY_VARIABLES, Caller
from anabranch.crawler.order.order import CrawlOrder, dump_order
from anabranch.crawler.order.sources import job_layer
from anabranch.crawler.outcomes.errors import OrderError, StoreLost, UsageError, storage_errors
from anabranch.crawler.processes.gathering import begin_anew, gather
from anabranch.crawler.run.shared_job import SharedJob
from anabranch.crawler.run.stopped_verbs import held_whole
from anabranch.dedup.files.durable import replace_file, sync_folder
from anabranch.frontier.composition import assignment_of, clear_filter, share_rule_of
from anabranch.frontier.inspect.dump import URI_PRECEDENCE, dump_lines, load_dump
from anabranch.frontier.jobfolder import STORE_FILE, has_store
from anabranch.frontier.records import FRONT, NORMAL
from anabranch.frontier.stores.sql.settings import copy_settings
from anabranch.frontier.stores.sql.sqlite import connected, identity_of, log_of, seal_of
from anabranch.frontier.stores.sql.store import SqlStore
from anabranch.frontier.times import counted

#: Where an earlier version had the shares of a job of several processes.
_OLD_SHARES = "shares"
#: Rows of links that are read at a time, some 128 KB each.
_PARCELS_AT_ONCE = 4


class AlreadyDivided(UsageError):
    """The job has several shares."""


class Divided(NamedTuple):
    """The counts of a job after it was divided or moved."""

    shares: int
    queued: int
    ended: int


def divided_line(divided: Divided) -> str:
    """What was done."""
    queued, ended = counted(divided.queued, "queued URL"), f"{divided.ended:,} ended ones"
    return f"divided among {divided.shares} shares: {queued}, {ended}"


def divide(directory: Path, shares: int = SHARES_OF_PROCESSES, caller: Caller = BY_VARIABLES) -> Divided:
    """Divide a job among so many shares (blocks). Cost: 0.2 ms and 1 KB a URL, beside the old queue.

    Raises: UsageError, CodeWithheld, OrderError if it cannot be divided; JobInUse; StoreLost; as a crawl does.
    """
    refuse_embedded(directory)
    if shared_file(directory) is not None and not is_old_division(directory):
        raise AlreadyDivided(f"{directory}: the job has several shares already; their number is fixed for a job")
    with JobFolder.open(directory) as job:
        scratch = job.state / SCRATCH
        if not (scratch / COMPLETE).exists():
            order = _order(directory, shares, caller)
            with storage_errors(scratch):
                shutil.rmtree(scratch, ignore_errors=True)
                scratch.mkdir()
            made = _made(job, order, scratch)
            with storage_errors(scratch):
                if log_of(scratch / STORE_FILE).exists():
                    raise OSError(errno.ENOSPC, "its log could not be folded", str(scratch / STORE_FILE))
                replace_file(scratch / COMPLETE, json.dumps([made, dump_order(order)]).encode())
        with storage_errors(scratch):
            counts, text = json.loads((scratch / COMPLETE).read_bytes())
            divided = Divided(*counts)
            _put_in_place(job, scratch, text)
        job.left_as_found(had_work=False, is_done=not divided.queued)
    return divided


def _order(directory: Path, shares: int, caller: Caller) -> CrawlOrder:
    """The job's order with so many shares. Raises: UsageError, OrderError."""
    kept = order_file(directory)
    if kept is None:
        raise UsageError(f"{directory}: the job has not begun; `anabranch crawl --processes N` begins it")
    order = caller.order_of(job_layer(kept))
    refuse_withheld(order.code.withheld, directory, "dividing it")
    if order.frontier.store:
        raise UsageError(f"{directory}: the queue is not in the job's folder, and cannot be divided")
    refuse_lost_queue(directory / "state")
    return _with(order, directory, shares=shares)


def _with(order: CrawlOrder, place: object, **frontier: object) -> CrawlOrder:
    """The order with other keys of its section `frontier`. Raises: OrderError if several workers cannot crawl by it."""
    order = order.model_copy(update={"frontier": order.frontier.model_copy(update=frontier)})
    if order.frontier.is_in_database:  # each start of the command is a worker more
        order = order.model_copy(update={"crawl": order.crawl.model_copy(update={"processes": 1})})
    for fault in division_faults(order):
        raise OrderError(f"{place}: {fault}")
    return order


def _made(job: JobFolder, order: CrawlOrder, scratch: Path) -> Divided:
    """Make the new file."""
    old = _old_shares(job.directory)
    parts = old or [job.directory]
    if old:
        gather(job.directory, old)
    with closing(JobDatabase(scratch / STORE_FILE)) as database:
        join(database, Wanted(order, _seeds(job.state)), Applicant("", "", is_named=True))
        for number, part in enumerate(parts):
            rows = _totals(part)
            database.do(partial(put_totals, worker=f"before-{number}", rows=rows, upto=BEFORE))
        database.do(lambda connection: put_fact(connection, "round", str(current_round(job.state).number)))
        database.do(lambda connection: put_changes(connection, lasting_changes(job.directory)))
        with held_whole(SharedJob(database, order)) as whole:
            for part in parts:
                _copy_settings(part, database, order)
            for lines in chain((_lines(part) for part in parts), (_under_way(part) for part in old)):
                load_dump(lines, whole.frontier.operations.loading)
            whole.frontier.flush()
            counts = whole.frontier.counts()
    return Divided(order.frontier.shares, counts.pending, counts.done + counts.failed + counts.disregarded)


def _old_shares(directory: Path) -> list[Path]:
    """The shares that have begun. Raises: StoreLost if one has no queue."""
    folders = sorted(directory.glob(f"{_OLD_SHARES}/*"), key=lambda folder: folder.name.zfill(3))
    begun = [folder for folder in folders if (folder / "order.toml").exists()]
    lost = [folder for folder in begun if not has_store(folder / "state")]
    if lost:
        raise StoreLost(
            f"{lost[0] / 'state'}: the share's queue is missing or empty; restore it from a copy, "
            "or start over with `anabranch crawl --fresh`, which moves the job aside"
        )
    return begun


def _seeds(state: Path) -> Sequence[Seed]:
    with SeedBook(state / SEED_BOOK) as book:
        return list(book)


def _totals(part: Path) -> list[Any]:
    state = part / "state"
    if not (state / ACCOUNTS_FILE).exists():
        return []
    now_s = (state / ACCOUNTS_FILE).stat().st_mtime  # this is no run of the crawl
    with closing(Accounts(state, part / "logs" / "crawl.log", lambda: now_s)) as accounts:
        # A group of a killed run that does not count must leave the files before the record of it does.
        roll_back(part, accounts.files)
        if (part / "warc").is_dir():
            finish_left_over(part / "warc", recorded=accounts.files)
        return accounts.changed(all_rows=True).rows


def _copy_settings(part: Path, database: JobDatabase, order: CrawlOrder) -> None:
    """Of the queues and hosts of a job of one worker, or of an old share."""
    asked = frontier_order(order)
    with connected(part / "state" / STORE_FILE, None) as source, source.begin():
        database.do(
            lambda target: copy_settings(
                source, target, share_rule_of(asked), assignment_of(asked), order.frontier.total_budget
            )
        )


@contextmanager
def _opened(part: Path) -> Iterator[SqlStore]:
    """The rows of a job, whose lock the caller has, or of one of its old shares."""
    lock = take_job_lock(part) if part.parent.name == _OLD_SHARES else None
    file = part / "state" / STORE_FILE
    try:
        store = SqlStore(file)
        store.open(identity_of(file), 0.0, lambda: None)
        try:
            yield store
        finally:
            store.close(clean=True)
    finally:
        if lock is not None:
            os.close(lock)


def _lines(part: Path) -> Iterator[str]:
    with _opened(part) as store:
        yield from dump_lines(store)


def _under_way(part: Path) -> Iterator[str]:
    """Links that an old share had for others, as lines of a dump: for each page a list, its URL first, then its links."""
    yield json.dumps({"anabranch": "frontier", "version": 1}) + "\n"
    with _opened(part) as store:
        after = (-1, 0)
        while parcels := store.parcels(after, _PARCELS_AT_ONCE):
            for share, number, content in parcels:
                after = (share, number)
                for line in content.splitlines():
                    page, *links = json.loads(line)
                    yield from (f"{json.dumps(_link(page, *link))}\n" for link in links)
    yield json.dumps({"end": True}) + "\n"


def _link(page: str | None, url: str, *given: Any) -> Mapping[str, Any]:
    """A line of a dump. `given`: hops, payload, key, front, force, precedence, up to the last that is not None."""
    whole: tuple[Any, ...] = given + (None,) * (6 - len(given))
    hops, payload, key, front, force, precedence = whole
    directive = (FRONT if front else NORMAL) & ~URI_PRECEDENCE
    fields = {
        "url": url,
        "via": page,
        "hops": hops or None,
        "payload": None if payload is None else b64encode(payload.encode("latin-1")).decode(),
        "key": None if key is None else b64encode(key.encode("latin-1")).decode(),
        "front": (front and precedence is None) or None,
        "force": force or None,
        "precedence": None if precedence is None else directive | precedence,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _put_in_place(job: JobFolder, scratch: Path, order: str) -> None:
    """Each step may be done again, until the mark is removed. Raises: OSError, StorageError."""
    state, new = job.state, scratch / STORE_FILE
    old = state / STORE_FILE
    if new.exists():
        for file in (log_of(old), log_of(old).with_name(f"{old.name}-shm"), seal_of(old)):
            file.unlink(missing_ok=True)
        new.replace(old)
        sync_folder(state)
    clear_filter(state)
    begin_anew(job.directory)
    job.write_order(order)
    shutil.rmtree(job.directory / _OLD_SHARES, ignore_errors=True)
    for name in (OLD_NUMBER, SEED_BOOK):
        (state / name).unlink(missing_ok=True)
    for file in state.glob("accounts.*"):
        file.unlink()
    (scratch / COMPLETE).unlink()
    sync_folder(scratch)
    sync_folder(state)
    shutil.rmtree(scratch)
