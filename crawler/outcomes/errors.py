"""What ends a crawl or keeps it from starting; the docstring of a class is its meaning.

Each message is one line for the operator: the thing, what is wrong with it, what to do. What a site does wrong is no error of
this kind (see `failures.py`). An `OSError` of a file becomes one of these by the table `STORAGE_ERRORS`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

from anabranch.crawler.outcomes.exits import ExitCode


class CrawlerError(Exception):
    """Root of all errors of this room that are for the operator."""

    exit_code: ExitCode = ExitCode.STORE_OR_JOB_IN_USE


class UsageError(CrawlerError):
    """The command line makes no sense."""

    exit_code = ExitCode.USAGE


class OrderError(CrawlerError):
    """The crawl order cannot be read, has an unknown key, or asks for what makes no sense."""

    exit_code = ExitCode.BAD_ORDER


class BadArgument(OrderError):
    """The same of what stands on the command line."""

    exit_code = ExitCode.USAGE


class NoSeeds(CrawlerError):
    """Nothing that was named is a seed."""

    exit_code: ExitCode = ExitCode.NO_SEED_ANSWERED


class StoreLost(CrawlerError):
    """The job has seeds but its store is gone: going on would silently crawl nothing."""

    exit_code = ExitCode.BAD_ORDER


class QueueForgotten(StoreLost):
    """The job's queue was in memory, and ended with its process: there is nothing to go on with."""

    exit_code = ExitCode.STORE_OR_JOB_IN_USE


class NotAJobFolder(CrawlerError):
    """The folder holds other things than a job; nothing in it was touched."""

    exit_code = ExitCode.BAD_ORDER


class HostsJob(CrawlerError):
    """The job is that of a program that embeds the Frontier: it can be looked at, and no crawl goes on with it."""

    exit_code = ExitCode.USAGE


class OrderDamaged(CrawlerError):
    """The job's own order is missing, cut or cannot be read; its state has a copy."""

    exit_code = ExitCode.BAD_ORDER


class ForeignJobFormat(CrawlerError):
    """The job folder was written in the format of a newer version."""

    exit_code = ExitCode.BAD_ORDER


class JobUnfinished(UsageError):
    """An unfinished job is to be thrown away, and nobody said that this is meant."""


class JobInUse(CrawlerError):
    """Another process works on the job."""

    def __init__(
        self, directory: Path, pid: int | None, advice: str = "wait until it ends, or choose another --job"
    ) -> None:
        holder = "another process" if pid is None else f"process {pid}"
        super().__init__(f"{directory}: in use by {holder}; {advice}")
        self.pid = pid  #: who holds it; None if it had no time yet to say so


class StorageError(CrawlerError):
    """A file cannot be read or written; what was acknowledged before is safe."""

    #: What to do; `{other}` is what else could be named on the command line.
    advice: ClassVar[str] = "see to the disk, then run the same command again"


class DiskFull(StorageError):
    """The disk takes no more: full, over quota, or at a limit of the file size."""

    exit_code = ExitCode.DISK_FULL
    advice = "free some space, then run the same command again"


class DiskReadOnly(DiskFull):
    """The disk takes nothing at all: it is mounted read-only."""

    advice = "mount it writable or choose another {other}"


class NotPermitted(DiskFull):
    """The disk takes nothing from this user."""

    advice = "change the permissions or choose another {other}"


class TooManyFiles(StorageError):
    """The process, or the whole system, has as many files and sockets open as it may."""

    advice = "raise the limit of open files (ulimit -n) or lower [crawl] workers, then run the same command again"


class NoFolder(StorageError):
    """A part of the path is missing or is a file."""

    advice = "choose another {other}"


class NotAFile(StorageError):
    """A folder has the name of a file."""

    exit_code = ExitCode.BAD_ORDER
    advice = "a file belongs there; move the folder away or choose another {other}"


class OutOfMemory(StorageError):
    """The process, or the whole system, has no more memory to map a file."""

    advice = "raise the limit of memory (ulimit -v), or free some, then run the same command again"


class NameTooLong(StorageError):
    """A part of the path has more bytes than a name may have, or the path has."""

    exit_code = ExitCode.USAGE
    advice = "a name has 255 bytes at most; choose another {other}"


class JournalFailed(CrawlerError):
    """A log line could not be made durable; no line is acknowledged after that."""


class JournalFull(JournalFailed, DiskFull):
    """The journal failed because the disk takes no more."""


#: What the system says when no more files and sockets may be opened: by the process, by all of them.
TOO_MANY_FILES = frozenset({errno.EMFILE, errno.ENFILE})

#: What an `OSError` of a file means; all others are a plain `StorageError`.
STORAGE_ERRORS: Mapping[int, type[StorageError]] = MappingProxyType(
    {
        errno.ENOSPC: DiskFull,
        errno.EDQUOT: DiskFull,
        errno.EFBIG: DiskFull,
        errno.EROFS: DiskReadOnly,
        errno.EACCES: NotPermitted,
        errno.EPERM: NotPermitted,
        errno.ENOTDIR: NoFolder,
        errno.ENOENT: NoFolder,
        errno.EISDIR: NotAFile,
        errno.ENAMETOOLONG: NameTooLong,
        errno.ENOMEM: OutOfMemory,
        **dict.fromkeys(TOO_MANY_FILES, TooManyFiles),
    }
)


def storage_error(error: OSError, path: Path, other: str = "--job") -> StorageError:
    """The error that tells the operator what happened to `path`; to be raised `from` the `OSError`.

    `other` is the option or argument that says where `path` is.
    """
    kind = STORAGE_ERRORS.get(error.errno or 0, StorageError)
    return kind(f"{path}: {_words(error)}; {kind.advice.format(other=other)}")


def journal_error(error: OSError, path: Path) -> JournalFailed:
    """The same for a file of the journal."""
    kind = STORAGE_ERRORS.get(error.errno or 0, StorageError)
    failed = JournalFull if issubclass(kind, DiskFull) else JournalFailed
    return failed(f"{path}: {_words(error)}; {kind.advice.format(other='--job')}")


@contextmanager
def storage_errors(path: Path, other: str = "--job") -> Iterator[None]:
    """Inside, an `OSError` becomes a `StorageError` that names the file it is about, or else `path`; see `storage_error`."""
    try:
        yield
    except OSError as error:
        named = Path(os.fsdecode(error.filename)) if isinstance(error.filename, str | bytes) else path
        raise storage_error(error, named, other) from error


def _words(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
