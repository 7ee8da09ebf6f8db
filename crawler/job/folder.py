"""The job folder: all that a crawl writes, in one place, held by one process at a time.

    order.toml  pages.jsonl  links.jsonl  warc/  logs/crawl.log  reports/  state/{format.json, lock, …}

A folder is a job if it has `state/format.json`. A new job gets that file right after its lock, and it is removed last, so the
next process knows what a killed one left. Older formats are migrated under the lock, by one repeatable step for each; the new
number is written when all are done. To change the format: raise `VERSION` in `frontier.jobfolder`, add a step to `_MIGRATIONS`,
and keep jobs of the old format (`tests/formats`). The tables of the queue have a format of their own (`frontier.stores`).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, count
from pathlib import Path
from shlex import quote
from threading import Event
from typing import NamedTuple, Self

from anabranch.crawler.job.orderfile import CHANGES_FILE, last_order_file, order_file, write_order
from anabranch.crawler.job.seeds import STDIN, has_old_seeds, has_seeds, is_file
from anabranch.crawler.job.state import (
    AGAIN_MARK,
    ARRIVES_FROM,
    COOKIES,
    FINISHED_MARK,
    FRESH_MARK,
    MOVED_TO,
    PAYLOADS,
    SINKS,
    SKIPPED,
    WORKERS,
    has_queue_in_memory,
    is_finished,
    no_longer_wanted,
    note_place,
    noted_place,
    ordered_round,
    settle_round,
)
from anabranch.crawler.order.frontier import DATABASES, MEMORY
from anabranch.crawler.order.loading import order_of
from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.order.sections import JobSection
from anabranch.crawler.order.sources import job_layer
from anabranch.crawler.outcomes.errors import (
    ForeignJobFormat,
    HostsJob,
    JobInUse,
    JobMoved,
    JobUnfinished,
    NotAJobFolder,
    OrderDamaged,
    OrderError,
    UsageError,
    storage_errors,
)
from anabranch.crawler.urls.parsing import host_of, seed_url
from anabranch.dedup.files.durable import UNFINISHED, descriptor, replace_file, sync_folder
from anabranch.dedup.files.locks import LockHeld, lock_holder, try_lock, wait_lock
from anabranch.frontier.jobfolder import (
    FORMAT,
    FORMAT_FILE,
    LOCK_FILE,
    ORDER_FILE,
    STATE,
    VERSION,
    format_text,
    has_store,
    is_being_made,
    is_embedded,
    is_job,
    missing_folders,
    remove_made,
    take_lock,
)

#: The entries of a job folder apart from its state.
_WRITTEN = (
    ORDER_FILE,
    f"{ORDER_FILE}{UNFINISHED}",
    "pages.jsonl",
    "links.jsonl",
    "warc",
    "logs",
    "reports",
    WORKERS,
    "shares",
)

#: What stays in the state of a job that was moved to a database when its folder becomes that of a worker.
_KEPT_BY_WORKERS = (LOCK_FILE, FORMAT_FILE, ORDER_FILE, MOVED_TO, PAYLOADS, SINKS, SKIPPED, COOKIES)

#: The end of a name as `move_aside` and its earlier versions give it.
_LIKE_MOVED = re.compile(r"\.previous-[0-9][0-9TZ-]*$")
_UNFIT_FOR_NAMES = re.compile(r"[^A-Za-z0-9._-]+")

#: A command or a page that looks at a stopped job holds it for a moment; others wait this long for their turn.
LOOKING_S = 5.0
_LOOK_S = 0.02


class JobFolder:
    """An open job folder. Its lock is held until `close`, or until the process ends, however it ends."""

    def __init__(
        self,
        directory: Path,
        lock: int,
        *,
        existed: bool,
        new_round: int | None,
        made: Sequence[Path] = (),
        was_finished: bool = False,
    ) -> None:
        self.directory = directory
        self.was_finished = was_finished  #: before this opening
        self.existed = existed  #: the folder had a job to continue
        self.new_round = new_round  #: the number of the round that this run begins, if it begins one
        self.state = directory / "state"
        self.crawl_log = directory / "logs" / "crawl.log"
        self.errors = directory / "logs" / "errors.jsonl"
        self.pages = directory / "pages.jsonl"
        self.links = directory / "links.jsonl"
        self.warc = directory / "warc"
        self.has_own_warc = True  #: no other process writes to `warc`
        self.reports = directory / "reports"
        self._made = made
        self._is_begun = False
        self._lock: int | None = lock

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        delete_old: bool = False,
        again: bool = False,
        even_unfinished: bool = True,
        patience_s: float = 0.0,
        store: str = "",
    ) -> JobFolder:
        """Take the job of a folder, or make one; `delete_old` first removes an old job, `again` only its Frontier.

        If another process holds it, this waits for `patience_s`. A folder whose job was moved to the database `store` becomes
        that of a worker there, with what workers keep for themselves.

        Raises: JobInUse, HostsJob, JobMoved, NotAJobFolder (the folder holds other things), ForeignJobFormat (a newer version),
        JobUnfinished (`delete_old` or `again` without `even_unfinished`), RoundDamaged, StorageError; UsageError for the name
        of a new job, as `check_new_name`.
        """
        refuse_embedded(directory)
        if not is_job(directory):
            check_new_name(directory.absolute().name)
        with storage_errors(directory):
            _refuse_strangers(directory)
            made = missing_folders(directory)
            try:
                for folder in (directory, directory / "state"):
                    _make_folder(folder, 0o700)
                lock = take_job_lock(directory, patience_s)
            except BaseException:
                remove_made(made)
                raise
            is_new = not os.path.lexists(directory / "state" / FORMAT_FILE)
            try:
                refuse_embedded(directory)  # a host may have made it before we held it
                if (delete_old or again) and not even_unfinished:
                    _refuse_unfinished(directory, delete_old=delete_old)
                if not (is_new or delete_old):
                    refuse_moved(directory, store)
                    if noted_place(directory / "state", MOVED_TO):
                        _become_worker_folder(directory)
                was_finished = is_finished(directory / "state")
                existed = _settle(directory, delete_old=delete_old, again=again)
                new_round = ordered_round(directory / "state")
            except BaseException:
                if is_new:
                    _remove_new(directory, made)
                os.close(lock)
                raise
        return cls(directory, lock, existed=existed, new_round=new_round, made=made, was_finished=was_finished)

    def write_warc_to(self, folder: Path) -> None:
        """Archive into a folder shared with other processes, each with its own prefix."""
        self.warc, self.has_own_warc = folder, False

    def write_order(self, text: str) -> None:
        """Save the order of this run in `order.toml`, and its copy in the state. Raises: StorageError."""
        write_order(self.directory, text)

    def mark_finished(self) -> None:
        """Record that nothing is left to do, so that `again` needs no consent. Opening clears it. Raises: StorageError."""
        with storage_errors(self.state / FINISHED_MARK):
            replace_file(self.state / FINISHED_MARK, b"")

    def left_as_found(self, *, had_work: bool, is_done: bool) -> None:
        """The job was looked at or changed: it is finished if it was, or if all that was left is gone. Raises: StorageError.

        One whose URLs have mostly failed stays unfinished.
        """
        if is_done and (had_work or self.was_finished):
            self.mark_finished()

    def begin(self) -> None:
        """The start succeeded: `undo_failed_start` does nothing from now on."""
        self._is_begun = True

    def undo_failed_start(self) -> None:
        """Remove a job that this opening made, as far as possible. The caller has closed all else in the folder."""
        if not (self.existed or self._is_begun):
            _remove_new(self.directory, self._made)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the lock back. A second call does nothing."""
        lock, self._lock = self._lock, None
        if lock is not None:
            with contextlib.suppress(OSError):  # the pid only informs; the lock counts
                os.ftruncate(lock, 0)
            os.close(lock)


def _refuse_strangers(directory: Path) -> None:
    """Raises: NotAJobFolder if the folder has files and no job: a crawl does not mix its files with others."""
    there = next((path for path in (directory, *directory.parents) if path.exists()), directory.parent)
    if not there.is_dir():
        raise NotAJobFolder(f"{there}: is not a folder; name another job")
    if there != directory:
        return
    entries = {entry.name for entry in directory.iterdir()}
    is_new = not entries or (entries == {"state"} and is_being_made(directory / "state"))
    if not (is_new or (directory / "state" / FORMAT_FILE).is_file()):
        raise NotAJobFolder(f"{directory}: is not a job folder; name another job")


def refuse_embedded(directory: Path) -> None:
    """Raises: HostsJob if the job is a host program's; only that program continues it."""
    if is_embedded(directory):
        raise HostsJob(
            f"{directory}: the job belongs to a program that embeds the Frontier; start that program to go on with it, "
            "or look at it with `anabranch frontier ls`"
        )


def refuse_moved(directory: Path, store: str = "") -> None:
    """Raises: JobMoved if the job is elsewhere now, but for the database `store`, or if this is a copy, not to be crawled."""
    state = directory / "state"
    place = noted_place(state, MOVED_TO)
    if place and place != store:
        begins = f"--store {quote(place)} --job {quote(str(directory))}"
        how = f"`anabranch crawl {begins}`" if place.startswith(DATABASES) else f"name {place}"
        raise JobMoved(f"{directory}: the job was moved to {place}; {how} to go on with it")
    if source := noted_place(state, ARRIVES_FROM):
        raise JobMoved(
            f"{directory}: is a copy of {source}, whose move did not end; "
            f"`anabranch move {quote(source)} {quote(str(directory))}` ends it"
        )


def _become_worker_folder(directory: Path) -> None:
    """The folder's job is in a database now: remove from the state what the database has. The mark goes last."""
    from anabranch.crawler.accounts.database import ACCOUNTS_FILE, AccountsDatabase  # noqa: PLC0415 - few jobs move

    state = directory / "state"
    for entry in state.iterdir():
        if not entry.name.startswith(_KEPT_BY_WORKERS):  # with the further files of SQLite
            _remove(entry)
    with contextlib.closing(AccountsDatabase(state / ACCOUNTS_FILE)) as accounts:
        accounts.cover(directory / "logs" / "crawl.log")  # the job's totals have these lines
    sync_folder(state)
    note_place(state, MOVED_TO, "")


def _refuse_unfinished(directory: Path, *, delete_old: bool) -> None:
    state = directory / "state"
    marks = (FINISHED_MARK, FRESH_MARK, *(() if delete_old else (AGAIN_MARK,)))
    if not (state / FORMAT_FILE).exists() or any((state / mark).exists() for mark in marks):
        return
    advice = "add --yes to throw away its queue, or leave out --again to go on with it"
    if delete_old:
        advice = "leave out --delete-old to have it moved aside"
    raise JobUnfinished(f"{directory}: the job is unfinished; {advice}")


def _settle(directory: Path, *, delete_old: bool, again: bool) -> bool:
    """Under the lock: make the folder a job of this format, whatever it was; True if it was a job to continue."""
    state = directory / "state"
    version = _version(state / FORMAT_FILE)
    is_fresh = version is not None and (delete_old or (state / FRESH_MARK).exists())
    if is_fresh:
        _remove_old(directory)
    elif version is not None:
        _check_version(directory, version)
        for step in _MIGRATIONS[version - 1 :]:
            step(directory)
        settle_round(state, again=again, keep={LOCK_FILE, FORMAT_FILE, ORDER_FILE, CHANGES_FILE, FINISHED_MARK})
    if version != VERSION:
        replace_file(state / FORMAT_FILE, format_text())
    for folder in (directory / "logs", directory / "reports"):
        _make_folder(folder)
    (state / FRESH_MARK).unlink(missing_ok=True)
    if not has_queue_in_memory(state):  # else the job cannot be continued and stays as it ended
        (state / FINISHED_MARK).unlink(missing_ok=True)
    sync_folder(state)
    return version is not None and not is_fresh


def refuse_foreign(directory: Path) -> None:
    """Raises: ForeignJobFormat if a newer version, or something else, wrote the job."""
    with storage_errors(directory):
        version = _version(directory / "state" / FORMAT_FILE)
    if version is not None:
        _check_version(directory, version)


def _check_version(directory: Path, version: int) -> None:
    if version > VERSION:
        raise ForeignJobFormat(
            f"{directory}: written in job format {version} by a newer version, this one reads up to {VERSION}; "
            "go on with the newer version, or name another job"
        )


def _version(file: Path) -> int | None:
    """The format version in a folder's format file; None without a file."""
    try:
        match json.loads(file.read_bytes()):
            case {"format": str(name), "version": int(version)} if name == FORMAT and version >= 1:
                return version
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise ForeignJobFormat(f"{file}: cannot be read as a job's format; name another job") from error
    raise ForeignJobFormat(f"{file}: is not the format of a job; name another job")


def _remove_old(directory: Path) -> None:
    """Remove what the old job wrote, but for the lock. The mark stays, so that the next run completes a broken-off removal."""
    state = directory / "state"
    replace_file(state / FRESH_MARK, b"")
    kept = {LOCK_FILE, FORMAT_FILE, FRESH_MARK}
    doomed = [entry for entry in state.iterdir() if entry.name not in kept]
    for path in (*doomed, *(directory / name for name in _WRITTEN)):
        _remove(path)
    sync_folder(directory)
    sync_folder(state)


def _remove_new(directory: Path, made: Sequence[Path]) -> None:
    """Remove what a failed start wrote, the lock last."""
    state = directory / "state"
    with contextlib.suppress(OSError):
        for name in _WRITTEN:
            _remove(directory / name)
        for path in sorted(state.iterdir(), key=lambda path: (path.name == FORMAT_FILE, path.name == LOCK_FILE)):
            _remove(path)
        state.rmdir()
    remove_made(made)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _make_folder(folder: Path, mode: int = 0o777) -> None:
    """Make a folder with that mode (less the umask) and its parents, durably. An existing folder stays as it is."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    folder.mkdir(mode, exist_ok=True)
    sync_folder(folder.parent)


def _copy_order(directory: Path) -> None:
    """1 to 2: the state has a copy of the order. A damaged order gets no copy; reading it raises the error."""
    with contextlib.suppress(OrderDamaged):
        order = order_file(directory)
        if order is not None:
            write_order(directory, order.read_text("utf-8-sig"))


def _adopt_seeds(directory: Path) -> None:
    """2 to 3: seeds are rows."""
    state = directory / "state"
    if has_old_seeds(state):
        from anabranch.crawler.job.seedtable import adopt_old_seeds  # noqa: PLC0415 - most jobs have rows

        adopt_old_seeds(state)


#: The step from format 1 to 2, from 2 to 3, …
_MIGRATIONS: Sequence[Callable[[Path], None]] = (_copy_order, _adopt_seeds)


def order_to_resume(directory: Path) -> Path | None:
    """The order of the job in a folder, if it has a job to continue. Raises: ForeignJobFormat, OrderDamaged, StorageError."""
    state = directory / "state"
    with storage_errors(directory):
        if not is_job(directory) or (state / FRESH_MARK).exists():
            return None
        _check_version(directory, _version(state / FORMAT_FILE) or VERSION)
        return order_file(directory)


def job_name(job: JobSection, arguments: Sequence[str]) -> str:
    """The name of the job's folder: `[job] name`, else the first seed file's stem, else the first seed's host."""
    if job.name is not None:
        return job.name
    files = [Path(argument) for argument in arguments if argument != STDIN and is_file(argument)]
    files += job.seed_files
    urls = filter(None, map(seed_url, (*arguments, *job.seeds)))
    name = files[0].stem if files else next(map(host_of, urls), "")
    return _UNFIT_FOR_NAMES.sub("-", name).strip("-.") or "crawl"


def check_new_name(name: str) -> None:
    """Raises: UsageError for the name of a new job that a shell takes for an option, or that jobs have that were moved aside.

    Jobs that have such a name already keep it.
    """
    if name.startswith("-"):
        raise UsageError(f"{name!r}: a shell takes this name for an option; choose one that does not begin with a dash")
    if _LIKE_MOVED.search(name):
        raise UsageError(
            f"{name!r}: jobs that were moved aside have such names; choose one that does not end like that"
        )


def who_holds(directory: Path) -> tuple[bool, int | None]:
    """Whether a process holds the job now, and its id if it is known. Takes no lock, changes nothing."""
    with open_lock(directory) as lock:
        return (False, None) if try_lock(lock, shared=True) else (True, lock_holder(lock))


def wait_until_free(directory: Path) -> None:
    """Wait until no process holds the job (blocks, woken by the system)."""
    with open_lock(directory) as lock:
        wait_lock(lock, shared=True)


@contextlib.contextmanager
def open_lock(directory: Path) -> Iterator[int]:
    """A descriptor of the lock file, for reading."""
    with storage_errors(directory), descriptor(directory / "state" / LOCK_FILE, os.O_RDONLY) as lock:
        yield lock


def take_job_lock(directory: Path, patience_s: float = 0.0) -> int:
    """Lock the job; the lock is held until the descriptor is closed. Raises: JobInUse if it is held for longer; OSError."""
    latest_s = time.monotonic() + patience_s
    while True:
        try:
            return take_lock(directory)
        except LockHeld as held:
            if time.monotonic() >= latest_s:
                raise JobInUse(directory, held.process) from held
        Event().wait(_LOOK_S)


@contextlib.contextmanager
def held_folder(directory: Path) -> Iterator[None]:
    """Hold the job while entered. Raises: JobInUse, StorageError."""
    with storage_errors(directory):
        lock = take_job_lock(directory)
    try:
        yield
    finally:
        os.close(lock)


def end_wish(directory: Path) -> bool:
    """Record that a job is not to run any more; False if its last run was neither killed nor failed. Raises: JobInUse."""
    with held_folder(directory), storage_errors(directory):
        return no_longer_wanted(directory / STATE)


class MovedAside(NamedTuple):
    """The place of a job that was moved aside, and the servers that its filter's keys stay on."""

    place: Path  #: its folder
    leaves: tuple[str, ...]  #: servers of its shared filter, which keep their keys


def move_aside(directory: Path, now_s: float) -> MovedAside | None:
    """Rename a job's folder to `JOB.previous-TIMESTAMP` (UTC), in the same folder; None if there is no job.

    One durable rename, with the lock; the same command continues from the old or the moved job after a kill. Raises: JobInUse,
    HostsJob, UsageError if it cannot be moved, OrderDamaged if the queue's place is unknown (nothing is changed); StorageError.
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
            stem = f"{directory.name}.previous-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(now_s))}"
            names = chain((stem,), (f"{stem}-{number}" for number in count(2)))
            place = next(place for place in map(directory.with_name, names) if not os.path.lexists(place))
            try:
                directory.rename(place)
            except OSError as error:
                raise UsageError(
                    f"{directory}: cannot be moved aside to {place.name}: {os.strerror(error.errno or 0)}; "
                    "name another job"
                ) from error
            sync_folder(place.parent)
        finally:
            os.close(lock)
    return MovedAside(place, () if order is None else tuple(order.dedup.leaves))


def move_back(place: Path, directory: Path) -> bool:
    """Give a job that was moved aside its name again, durably; False if something has that name, or the disk refuses."""
    with contextlib.suppress(OSError):  # it stays aside; the operator knows its name
        if not os.path.lexists(directory):
            place.rename(directory)
            sync_folder(directory.parent)
            return True
    return False


def _order_of(directory: Path) -> CrawlOrder | None:
    """The order of the last run; None if it cannot be read and the queue moves with the folder."""
    with contextlib.suppress(OrderError):  # broken by an edit, or written by a newer version
        file = last_order_file(directory)
        if file is not None:
            return order_of([job_layer(file)])
    state = directory / "state"
    if has_seeds(directory) and not (has_store(state) or has_queue_in_memory(state) or (directory / "shares").is_dir()):
        raise OrderDamaged(
            f"{directory / ORDER_FILE}: cannot be read, and may say that the queue is in a database, which does not move "
            "with the folder; restore it from a copy, or move the folder yourself and drop the tables that the job may have"
        )
    return None
