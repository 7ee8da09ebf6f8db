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
import secrets
import shutil
import tempfile
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from functools import partial
from itertools import chain
from pathlib import Path
from threading import Event, Thread
from typing import Any, NamedTuple

from anabranch.crawler.accounts.accounts import Accounts
from anabranch.crawler.accounts.database import ACCOUNTS_FILE
from anabranch.crawler.archive.files import finish_left_over
from anabranch.crawler.cluster.agreement import Applicant, Wanted, changes_in, copy_job, join, put_changes
from anabranch.crawler.cluster.commands import (
    MOVING_S,
    DesiredState,
    arrival_in,
    has_moved,
    hold_for_move,
    let_go,
    put_arrival,
    put_desired_state,
    put_moved,
)
from anabranch.crawler.cluster.totals import BEFORE, put_totals
from anabranch.crawler.job.checking import division_faults
from anabranch.crawler.job.choosing import SHARES_OF_DATABASE, SHARES_OF_PROCESSES
from anabranch.crawler.job.database import JobDatabase, drop_tables, free_all_shares, has_tables, put_fact
from anabranch.crawler.job.folder import JobFolder, refuse_embedded, take_job_lock
from anabranch.crawler.job.frontier import frontier_order, refuse_lost_queue
from anabranch.crawler.job.journal import roll_back
from anabranch.crawler.job.orderfile import begun_order, keep_changes, lasting_changes
from anabranch.crawler.job.seedtable import opened_seeds
from anabranch.crawler.job.state import (
    ARRIVES_FROM,
    CAME_FROM,
    JOB_FILE,
    MOVED_TO,
    OLD_NUMBER,
    SCRATCH,
    current_round,
    note_place,
    noted_place,
)
from anabranch.crawler.job.workerfolders import (
    COMPLETE,
    await_orphans,
    is_old_division,
    refuse_old_division,
    refuse_worker,
    shared_file,
    worker_folders,
)
from anabranch.crawler.operate.finding import find_job, refuse_password
from anabranch.crawler.order.code import refuse_withheld
from anabranch.crawler.order.frontier import DATABASES
from anabranch.crawler.order.loading import BY_VARIABLES, Caller
from anabranch.crawler.order.order import CrawlOrder, dump_order
from anabranch.crawler.outcomes.errors import CrawlerError, JobMoving, OrderError, StoreLost, UsageError, storage_errors
from anabranch.crawler.processes.gathering import begin_anew, gather
from anabranch.crawler.run.job_rows import JobRows
from anabranch.crawler.run.shared_worker import count_left_over
from anabranch.crawler.run.stopped_verbs import held_whole
from anabranch.dedup.files.durable import replace_file, sync_folder
from anabranch.frontier import (
    URI_PRECEDENCE,
    Counters,
    PostgresDatabase,
    SqlStore,
    assignment_of,
    clear_filter,
    copy_settings,
    dump_lines,
    kept_identity,
    load_dump,
    share_rule_of,
    wake_nobody,
)
from anabranch.frontier.errors import FrontierError
from anabranch.frontier.jobfolder import JOBS, STATE, STORE_FILE, has_store, is_job
from anabranch.frontier.records import FRONT, NORMAL
from anabranch.frontier.stores.sql.sqlite import connected, identity_of, log_of, seal_of, sealed
from anabranch.frontier.times import counted

#: Where an earlier version had the shares of a job of several processes.
_OLD_SHARES = "shares"
#: Rows of links that are read at a time, some 128 KB each.
_PARCELS_AT_ONCE = 4
#: Between two looks whether a move that was killed holds the job no more.
_LOOK_S = 0.2


class AlreadyDivided(UsageError):
    """The job has several shares."""


class Divided(NamedTuple):
    """The counts of a job after it was divided or moved."""

    shares: int
    queued: int
    ended: int


def divided_line(divided: Divided) -> str:
    """Return the line about a job that was divided."""
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


class MovedJob(NamedTuple):
    """A job that was moved."""

    place: str  #: where it is now
    counts: Divided | None  #: None: it was moved as it is


def move(source: str, target: str, shares: int = 0, caller: Caller = BY_VARIABLES) -> MovedJob:
    """Move a job (blocks): each is a folder, or the URL of a database. In a database it has several workers.

    `shares`: of a job that had one worker; 0: the usual number. Logs and archive stay where they are, unless both are folders.
    If it was killed, the same call does it again, or ends it. Cost: as `divide` for a job of one worker, and 20 µs a URL.

    Raises: UsageError, CodeWithheld, OrderError if it cannot be moved; JobInUse, JobMoved, JobMoving, StoreLost; as a crawl.
    """
    source, target = _place(source), _place(target)
    if source == target:
        raise UsageError(f"{source}: is the same place; `anabranch divide` makes a job of several workers there")
    if has_moved(source, target):  # all but its arrival was done
        _end_arrival(target)
        return MovedJob(target, None)
    if not _is_database(source) and not is_job(Path(source)):
        if noted_place(Path(target) / STATE, CAME_FROM) == source:  # it was renamed before
            return MovedJob(target, None)
        raise UsageError(f"{source}: there is no such job")
    _refuse_odd(source, target)
    _make_room(source, target)
    if not _is_database(source) and not _is_database(target):
        _move_folder(Path(source), Path(target))
        return MovedJob(target, None)
    if _is_database(source):
        if shares:
            raise UsageError(f"{source}: --shares: the job has several shares already; their number is fixed for a job")
        held = _rows_in_database(source, target, caller)
    else:
        usual = SHARES_OF_DATABASE if _is_database(target) else SHARES_OF_PROCESSES
        held = _rows_in_folder(Path(source), shares, usual, caller)
    with held as rows:
        counts = (
            _fill_database(target, source, rows) if _is_database(target) else _fill_folder(Path(target), source, rows)
        )
        rows.note(target)
    _end_arrival(target)
    return MovedJob(target, counts)


def _refuse_odd(source: str, target: str) -> None:
    """Raises: UsageError for a link, whose folder would stay, and for a target inside the source."""
    if _is_database(source):
        return
    if Path(source).is_symlink():
        raise UsageError(f"{source}: is a link; name the folder that it leads to, {Path(source).resolve()}")
    if not _is_database(target) and Path(target).resolve().is_relative_to(Path(source).resolve()):
        raise UsageError(f"{target}: is in the folder that is to be moved; name another place")


class _Rows(NamedTuple):
    """A job that is held for a move."""

    database: JobDatabase  #: its rows, as those of several workers
    order: CrawlOrder
    note: Callable[[str], None]  #: record that it is at this place now
    is_finished: bool  #: nothing was left


def _is_database(place: str) -> bool:
    return place.startswith(DATABASES)


def _place(typed: str) -> str:
    """The place in the one form by which two are compared. Raises: UsageError."""
    if "://" in typed and not _is_database(typed):
        raise UsageError(f"{typed!r}: the URL of a job's database begins with postgresql://")
    if not _is_database(typed):
        return str((find_job(typed) if not Path(typed).exists() and is_job(JOBS / typed) else Path(typed)).absolute())
    refuse_password(typed)
    place = PostgresDatabase(typed).place
    if len(place.split()) != 1:
        raise UsageError(f"{place!r}: a job's database has a name without spaces; name another one")
    return place


def settle_arrival(directory: Path) -> None:
    """If the folder has a copy, and the job that it is a copy of notes that it has moved here, the copy is the job now.

    Raises: StorageError, FrontierError.
    """
    source, target = noted_place(directory / STATE, ARRIVES_FROM), str(directory.absolute())
    if source and has_moved(source, target):
        _end_arrival(target)


def _end_arrival(target: str) -> None:
    """The source notes that it has moved, so the copy is the job."""
    if _is_database(target):
        with JobDatabase(target) as database:
            database.do(partial(put_arrival, source=""))
    else:
        note_place(Path(target) / STATE, ARRIVES_FROM, "")


def _make_room(source: str, target: str) -> None:
    """Remove what a killed move has left at the target. Raises: UsageError if something else is there."""
    if _is_database(target):
        with JobDatabase(target) as database, database.transaction() as connection:
            if arrival_in(connection) == source:
                drop_tables(connection)
            elif has_tables(connection):
                raise UsageError(f"{target}: there is a job; name another database or schema")
        return
    folder = Path(target)
    shutil.rmtree(_unfinished(folder), ignore_errors=True)
    if is_job(folder) and noted_place(folder / STATE, ARRIVES_FROM) == source:
        shutil.rmtree(folder)
    if os.path.lexists(folder):
        raise UsageError(f"{target}: is there already; name another folder")


def _unfinished(folder: Path) -> Path:
    """The folder that becomes this one when it is complete."""
    return folder.with_name(f".{folder.name}.moving")


def _move_folder(source: Path, target: Path) -> None:
    """Rename the folder; to another file system copy it."""
    with JobFolder.open(source) as job, storage_errors(target):
        job.left_as_found(had_work=False, is_done=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        if not _renamed(source, target):
            copy = _unfinished(target)
            _copy_folder(source, copy)
            note_place(copy / STATE, ARRIVES_FROM, str(source))
            copy.rename(target)
            sync_folder(target.parent)
            note_place(job.state, MOVED_TO, str(target))
            _end_arrival(str(target))


class _NotCopied(Exception):
    """A file could not be copied."""

    def __init__(self, error: OSError) -> None:
        super().__init__()
        self.error = error


def _copy_folder(source: Path, copy: Path) -> None:
    """Copy all but sockets, durably. Raises: OSError of the first file that cannot be copied; nothing is left then."""

    def copied(file: str, there: str) -> object:
        try:
            return shutil.copy2(file, there, follow_symlinks=False)
        except OSError as error:
            raise _NotCopied(error) from error  # an OSError would be collected, and the copy go on

    try:
        shutil.copytree(source, copy, symlinks=True, ignore=_sockets, copy_function=copied)
        os.sync()
    except _NotCopied as error:
        shutil.rmtree(copy, ignore_errors=True)
        raise error.error from None


def _renamed(source: Path, target: Path) -> bool:
    """Rename a folder, durably; False if the target is on another file system."""
    note_place(source / STATE, CAME_FROM, str(source))
    try:
        source.rename(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        return False
    sync_folder(target.parent)
    return True


def _sockets(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if (Path(folder) / name).is_socket()]


@contextmanager
def _rows_in_folder(directory: Path, shares: int, usual: int, caller: Caller) -> Iterator[_Rows]:
    """The rows of a job in a folder, which is held meanwhile. A job of one worker gets them in a file of its own."""
    refuse_embedded(directory)
    refuse_worker(directory)
    refuse_old_division(directory)
    file = shared_file(directory)
    if file is not None and shares:
        raise UsageError(f"{directory}: --shares: the job has several shares already; their number is fixed for a job")
    with JobFolder.open(directory) as job:
        order = begun_order(directory, caller)
        refuse_withheld(order.code.withheld, directory, "moving it")
        note = partial(note_place, job.state, MOVED_TO)
        try:
            if file is not None:
                with sealed(file), closing(JobDatabase(file)) as database:
                    _settle_workers(directory, database)
                    database.do(lambda connection: put_changes(connection, lasting_changes(directory)))
                    yield _Rows(database, order, note, job.was_finished)
                return
            if order.frontier.is_shared:
                raise UsageError(f"{directory}: is the folder of a worker; name the URL of its job's database")
            refuse_lost_queue(job.state)
            with storage_errors(job.state), tempfile.TemporaryDirectory(prefix="moving-", dir=job.state) as scratch:
                store, order = order.frontier.store, _with(order, directory, shares=shares or usual, store="")
                _made(job, order, Path(scratch), store)
                with closing(JobDatabase(Path(scratch) / STORE_FILE)) as database:
                    yield _Rows(database, order, note, job.was_finished)
        finally:
            job.left_as_found(had_work=False, is_done=True)


def _settle_workers(directory: Path, database: JobDatabase) -> None:
    """Count and collect what killed processes have left."""
    await_orphans(directory)
    database.do(free_all_shares)
    folders = worker_folders(directory)
    for folder in filter(is_job, folders):
        with JobFolder.open(folder) as worker:
            count_left_over(database, worker, time.time)
    gather(directory, folders)


@contextmanager
def _rows_in_database(url: str, target: str, caller: Caller) -> Iterator[_Rows]:
    """The rows of a job in a database, from which workers are kept away meanwhile."""
    token, ended = secrets.token_hex(8), Event()
    with JobDatabase(url) as database:
        job = JobRows(database, caller=caller)
        order, is_done = job.order, job.desired() is DesiredState.FINISHED
        refuse_withheld(order.code.withheld, url, "moving it")
        hold = partial(hold_for_move, place=url, token=token, target=target)
        _hold(database, hold)

        def keep() -> None:
            with JobDatabase(url) as holder:
                while not ended.wait(MOVING_S / 5):
                    with suppress(FrontierError, CrawlerError):  # if it lasts, `note` finds that others may have come
                        holder.do(hold)

        holding = Thread(target=keep, name="hold")
        holding.start()
        try:
            yield _Rows(
                database,
                order,
                lambda place: database.do(partial(put_moved, place=url, token=token, target=place)),
                is_done,
            )
        finally:
            ended.set()
            holding.join()
            with suppress(FrontierError):
                database.do(partial(let_go, token=token))


def _hold(database: JobDatabase, hold: Callable[..., None]) -> None:
    """Begin to hold the job; a move that was killed still holds it for a moment. Raises: as `hold_for_move`."""
    latest_s = time.monotonic() + 2 * MOVING_S
    while True:
        try:
            return database.do(hold)
        except JobMoving:
            if time.monotonic() > latest_s or not database.wait(_LOOK_S):
                raise


def _fill_database(url: str, source: str, rows: _Rows) -> Divided:
    """Copy the rows in one transaction."""
    order = _with(rows.order, source, store=url)
    with JobDatabase(url) as database, database.transaction() as connection:
        counts = _divided(order, copy_job(connection, rows.database, order))
        put_arrival(connection, source)
        put_desired_state(connection, DesiredState.FINISHED if rows.is_finished else DesiredState.RUN)
    return counts


def _fill_folder(folder: Path, source: str, rows: _Rows) -> Divided:
    """Copy the rows into a new folder, which gets its name when it is complete."""
    copy = _unfinished(folder)
    order = _with(rows.order, source, store="")
    with storage_errors(folder):
        with JobFolder.open(copy) as job, sealed(file := job.state / STORE_FILE):
            with JobDatabase(file) as database, database.transaction() as connection:
                counts = _divided(order, copy_job(connection, rows.database, order))
                changes = changes_in(connection)
            keep_changes(copy, order, changes)
            note_place(job.state, ARRIVES_FROM, source)
            if rows.is_finished:
                job.mark_finished()
        copy.rename(folder)
        sync_folder(folder.parent)
    return counts


def _divided(order: CrawlOrder, counters: Counters) -> Divided:
    return Divided(order.frontier.shares, counters.queued, counters.done + counters.failed + counters.disregarded)


def _order(directory: Path, shares: int, caller: Caller) -> CrawlOrder:
    """The job's order with so many shares. Raises: UsageError, OrderError."""
    order = begun_order(directory, caller)
    refuse_withheld(order.code.withheld, directory, "dividing it")
    if order.frontier.store:
        raise UsageError(
            f"{directory}: the queue is not in the job's folder, and cannot be divided; `anabranch move` moves it"
        )
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


def _made(job: JobFolder, order: CrawlOrder, scratch: Path, store: str = "") -> Divided:
    """Make the new file. `store`: the database that has the queue, if it is not in the folder."""
    old = _old_shares(job.directory)
    parts = old or [job.directory]
    if old:
        gather(job.directory, old)
    with closing(JobDatabase(scratch / STORE_FILE)) as database:
        with opened_seeds(job.state) as seeds:
            join(database, Wanted(order, list(seeds)), Applicant("", "", is_named=True))
        for number, part in enumerate(parts):
            rows = _totals(part)
            database.do(partial(put_totals, worker=f"before-{number}", rows=rows, upto=BEFORE))
        database.do(lambda connection: put_fact(connection, "round", str(current_round(job.state).number)))
        database.do(lambda connection: put_changes(connection, lasting_changes(job.directory)))
        with held_whole(JobRows(database, order)) as whole:
            for part in parts:
                with _opened(part, store):
                    pass  # it has the present format now
                _copy_settings(store or part / "state" / STORE_FILE, database, order)
            for lines in chain((_lines(part, store) for part in parts), (_under_way(part) for part in old)):
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


def _copy_settings(store: Path | str, database: JobDatabase, order: CrawlOrder) -> None:
    """Copy the settings of queues and hosts from the store of a job of one worker, or from that of an old share."""
    asked = frontier_order(order)
    opened = connected(store, None) if isinstance(store, Path) else PostgresDatabase(store).connected()
    with opened as source, source.begin():
        database.do(
            lambda target: copy_settings(
                source, target, share_rule_of(asked), assignment_of(asked), order.frontier.total_budget
            )
        )


@contextmanager
def _opened(part: Path, address: str = "") -> Iterator[SqlStore]:
    """The rows of a job, whose lock the caller has, or of one of its old shares; `address`: in this database."""
    lock = take_job_lock(part) if part.parent.name == _OLD_SHARES else None
    file = part / "state" / STORE_FILE
    try:
        store = SqlStore(address or file)
        store.open(_identity(address) if address else identity_of(file), time.time(), wake_nobody)
        try:
            yield store
        finally:
            store.close(clean=True)
    finally:
        if lock is not None:
            os.close(lock)


def _identity(address: str) -> dict[str, str]:
    """Return the identity that the store in a database was last opened with."""
    with PostgresDatabase(address).connected() as connection, connection.begin():
        return kept_identity(connection)


def _lines(part: Path, address: str = "") -> Iterator[str]:
    with _opened(part, address) as store:
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
    for name in (OLD_NUMBER, JOB_FILE):
        (state / name).unlink(missing_ok=True)
    for file in state.glob("accounts.*"):
        file.unlink()
    (scratch / COMPLETE).unlink()
    sync_folder(scratch)
    sync_folder(state)
    shutil.rmtree(scratch)
