"""The job folder: all that a crawl writes, in one place, held by one process at a time.

    order.toml  pages.jsonl  links.jsonl  warc/  logs/crawl.log  reports/  state/{format.json, lock, …}

A folder is a job if it has `state/format.json`. A new job has it before anything but its lock, and it outlives all else when a
job is started afresh; so a process may be killed at any point of either, and the next one knows what it finds.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from anabranch.crawler.jobs.durablefiles import UNFINISHED, replace_file, sync_folder
from anabranch.crawler.jobs.forgetting import FINISHED_MARK, forgets
from anabranch.crawler.jobs.holding import take_job_lock
from anabranch.crawler.jobs.migrating import migrate
from anabranch.crawler.jobs.orderfile import order_file, write_order
from anabranch.crawler.jobs.rounds import AGAIN_MARK, ordered_round, settle_round
from anabranch.crawler.jobs.seeds import STDIN, is_file
from anabranch.crawler.orders.order import JobSection
from anabranch.crawler.outcomes.errors import (
    ForeignJobFormat,
    HostsJob,
    JobUnfinished,
    NotAJobFolder,
    storage_errors,
)
from anabranch.crawler.urls.parsing import host_of, seed_url
from anabranch.frontier.embedding.folder import (
    FORMAT,
    FORMAT_FILE,
    LOCK_FILE,
    ORDER_FILE,
    VERSION,
    format_text,
    is_being_made,
    is_embedded,
    is_job,
    missing_folders,
    remove_made,
)

__all__ = [
    "ORDER_FILE",
    "JobFolder",
    "is_embedded",
    "is_job",
    "job_name",
    "order_to_go_on_by",
    "refuse_embedded",
]

_FRESH_MARK = "fresh"  # stands while the old job is being removed

#: What a job writes beside its state.
_WRITTEN = (ORDER_FILE, f"{ORDER_FILE}{UNFINISHED}", "pages.jsonl", "links.jsonl", "warc", "logs", "reports", "shares")

_UNFIT_FOR_NAMES = re.compile(r"[^A-Za-z0-9._-]+")


class JobFolder:
    """An open job folder. Its lock is held until `close`, or until the process ends, however it ends."""

    def __init__(
        self, directory: Path, lock: int, *, existed: bool, new_round: int | None, made: Sequence[Path] = ()
    ) -> None:
        self.directory = directory
        self.existed = existed  #: there was a job to go on with
        self.new_round = new_round  #: the number of the round that this run begins, if it does
        self.state = directory / "state"
        self.crawl_log = directory / "logs" / "crawl.log"
        self.errors = directory / "logs" / "errors.jsonl"
        self.pages = directory / "pages.jsonl"
        self.links = directory / "links.jsonl"
        self.warc = directory / "warc"
        self.has_own_warc = True  #: nobody else writes to `warc`
        self.reports = directory / "reports"
        self._made = made
        self._is_begun = False
        self._lock: int | None = lock

    @classmethod
    def open(
        cls, directory: Path, *, delete_old: bool = False, again: bool = False, even_unfinished: bool = True
    ) -> JobFolder:
        """Take the job of a folder, or make a new one; `delete_old` first removes what an old job wrote, nothing else, and
        `again` only its Frontier.

        Raises: JobInUse, HostsJob, NotAJobFolder (the folder holds other things), ForeignJobFormat (a newer version),
        JobUnfinished (`delete_old` or `again` without `even_unfinished`), RoundDamaged, StorageError (DiskFull and its kind if
        nothing can be written).
        """
        refuse_embedded(directory)
        with storage_errors(directory):
            _refuse_strangers(directory)
            made = missing_folders(directory)
            try:
                for folder in (directory, directory / "state"):
                    _make_folder(folder, 0o700)
                lock = take_job_lock(directory)
            except BaseException:
                remove_made(made)
                raise
            is_new = not os.path.lexists(directory / "state" / FORMAT_FILE)
            try:
                refuse_embedded(directory)  # a host may have made it before it was held
                if (delete_old or again) and not even_unfinished:
                    _refuse_unfinished(directory, delete_old=delete_old)
                existed = _settle(directory, delete_old=delete_old, again=again)
                new_round = ordered_round(directory / "state")
            except BaseException:
                if is_new:
                    _remove_new(directory, made)
                os.close(lock)
                raise
        return cls(directory, lock, existed=existed, new_round=new_round, made=made)

    def write_warc_to(self, folder: Path) -> None:
        """Archive into a folder that others write to, too; each has a prefix of its own."""
        self.warc, self.has_own_warc = folder, False

    def write_order(self, text: str) -> None:
        """Keep the order that this run works by in `order.toml`, and its copy in the state. Raises: StorageError."""
        write_order(self.directory, text)

    def mark_finished(self) -> None:
        """Keep that nothing is left to do, so that `again` needs no consent. Opening forgets it. Raises: StorageError."""
        with storage_errors(self.state / FINISHED_MARK):
            replace_file(self.state / FINISHED_MARK, b"")

    def begin(self) -> None:
        """The start did not fail: from now on nothing is taken back."""
        self._is_begun = True

    def undo_failed_start(self) -> None:
        """Remove a job that this opening made, with the folders made for it. One that existed or has begun stays as it is.

        The caller has closed all else in the folder. What the disk does not let go of stays.
        """
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
            with contextlib.suppress(OSError):  # the pid is for the eye; what counts is the lock
                os.ftruncate(lock, 0)
            os.close(lock)


def order_to_go_on_by(directory: Path) -> Path | None:
    """The order of the job in a folder; None if there is none, no job, or one that is being removed.

    Raises: ForeignJobFormat, whose order may have keys that nobody knows here; OrderDamaged; StorageError.
    """
    state = directory / "state"
    with storage_errors(directory):
        if not is_job(directory) or (state / _FRESH_MARK).exists():
            return None
        _check_version(directory, _version(state / FORMAT_FILE))
        return order_file(directory)


def job_name(job: JobSection, arguments: Sequence[str]) -> str:
    """The name of the job's folder: `[job] name`, else the first seed file's stem, else the first seed's host."""
    if job.name is not None:
        return job.name
    files = [Path(argument) for argument in arguments if argument != STDIN and is_file(argument)]
    files += job.seed_files
    if files:
        return _fit(files[0].stem)
    urls = filter(None, map(seed_url, (*arguments, *job.seeds)))
    return _fit(next((host_of(url) for url in urls), ""))


def _fit(name: str) -> str:
    return _UNFIT_FOR_NAMES.sub("-", name).strip("-.") or "crawl"


def _refuse_strangers(directory: Path) -> None:
    """Raises NotAJobFolder if the folder holds things and no job: nobody's files are to be mixed with a crawl's."""
    there = next((path for path in (directory, *directory.parents) if path.exists()), directory.parent)
    if not there.is_dir():
        raise NotAJobFolder(f"{there}: is not a folder; choose another --job")
    if there != directory:
        return
    entries = {entry.name for entry in directory.iterdir()}
    if not entries or (directory / "state" / FORMAT_FILE).is_file():
        return
    if entries == {"state"} and is_being_made(directory / "state"):
        return
    raise NotAJobFolder(f"{directory}: is not a job folder; choose another --job")


def refuse_embedded(directory: Path) -> None:
    """Raises: HostsJob if the job is a host program's, which nobody else goes on with."""
    if is_embedded(directory):
        raise HostsJob(
            f"{directory}: the job belongs to a program that embeds the Frontier; start that program to go on with it, "
            "or look at it with `anabranch frontier ls`"
        )


def _refuse_unfinished(directory: Path, *, delete_old: bool) -> None:
    state = directory / "state"
    marks = (FINISHED_MARK, _FRESH_MARK, *(() if delete_old else (AGAIN_MARK,)))
    if not (state / FORMAT_FILE).exists() or any((state / mark).exists() for mark in marks):
        return
    if delete_old:
        raise JobUnfinished(f"{directory}: the job is unfinished; leave out --delete-old to have it moved aside")
    raise JobUnfinished(
        f"{directory}: the job is unfinished; add --yes to throw away its queue, or leave out --again to go on with it"
    )


def _settle(directory: Path, *, delete_old: bool, again: bool) -> bool:
    """Under the lock: make the folder a job of this format, whatever it was; True if it was one to go on with."""
    state = directory / "state"
    version = _version(state / FORMAT_FILE)
    is_fresh = version is not None and (delete_old or (state / _FRESH_MARK).exists())
    if not is_fresh:
        _check_version(directory, version)
    if is_fresh:
        _remove_old(directory)
    elif version is not None:
        migrate(directory, version)
        settle_round(state, again=again, keep={LOCK_FILE, FORMAT_FILE, ORDER_FILE, FINISHED_MARK})
    if version != VERSION:
        replace_file(state / FORMAT_FILE, format_text())
    for folder in (directory / "logs", directory / "reports"):
        _make_folder(folder)
    (state / _FRESH_MARK).unlink(missing_ok=True)
    if not forgets(state):  # or nothing begins: the job stays as it ended
        (state / FINISHED_MARK).unlink(missing_ok=True)
    sync_folder(state)
    return version is not None and not is_fresh


def _check_version(directory: Path, version: int | None) -> None:
    if version is not None and version > VERSION:
        raise ForeignJobFormat(
            f"{directory}: written in job format {version} by a newer version, this one reads up to {VERSION}; "
            "go on with the newer version, or choose another --job"
        )


def _version(file: Path) -> int | None:
    """The format version that a folder says it has; None if it says nothing yet."""
    try:
        said = json.loads(file.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise ForeignJobFormat(f"{file}: cannot be read as a job's format; choose another --job") from error
    version = said.get("version") if isinstance(said, dict) and said.get("format") == FORMAT else None
    if not isinstance(version, int) or version < 1:
        raise ForeignJobFormat(f"{file}: is not the format of a job; choose another --job")
    return version


def _remove_old(directory: Path) -> None:
    """Remove what the old job wrote. The mark stands until the end, so that a broken-off removal is gone on with.

    The lock stays: a lock on a file that has no name would keep nobody out.
    """
    state = directory / "state"
    replace_file(state / _FRESH_MARK, b"")
    kept = {LOCK_FILE, FORMAT_FILE, _FRESH_MARK}
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
    """Make a folder of that mode (less the umask) and those above it, and make their names durable. One that exists stays."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    folder.mkdir(mode, exist_ok=True)
    sync_folder(folder.parent)
