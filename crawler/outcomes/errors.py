"""Exit codes, the errors for the operator that lead to them, and other ends of a process: exhaustion and signals.

The message of an error is one line: the thing, what is wrong with it, what to do. `failures` has the errors of sites.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import IntEnum
from pathlib import Path
from typing import ClassVar


class ExitCode(IntEnum):
    """How a command ended. The numbers are promised: they never change their meaning."""

    DONE = 0  #: all is done, or a limit that the operator set was reached
    STORE_OR_JOB_IN_USE = 1  #: a store or file failed, or another process holds the job
    USAGE = 2  #: the command line makes no sense
    DISK_FULL = 3  #: nothing more can be written; the job can be resumed
    BAD_ORDER = 4  #: the crawl order is wrong, or the folder has another format
    #: No seed got an HTTP answer, nothing named is a seed, or a service that the crawl needs was never reached; `add`,
    #: `frontier load`: something was left out, not all.
    NO_SEED_ANSWERED = 5
    #: The run would have ended with 0, but most URLs failed, or every seed refused access.
    MOSTLY_FAILED = 6
    SERVICE_AWAY = 7  #: a service was away for longer than `[fetch] outage_max`; the job can be resumed
    DRAINED = 11  #: stopped by the first signal or by `stop`; the job can be resumed
    FORCED = 13  #: stopped at once, by the second signal or `stop --now`; the job can be resumed
    INTERRUPTED = 130  #: Ctrl-C where there is nothing to resume; a shell reports a program that SIGINT ended like this
    READER_GONE = 141  #: the reader of the output is gone; a shell reports a program that SIGPIPE ended like this


class CrawlerError(Exception):
    """Root of all errors of a crawl that its user can do something about. The message is one line."""

    exit_code: ExitCode = ExitCode.STORE_OR_JOB_IN_USE


class UsageError(CrawlerError):
    """The command line, or a call of a program, makes no sense."""

    exit_code = ExitCode.USAGE


class StaysAway(CrawlerError):
    """A worker does not join, because its job is stopped or finished, or the worker is drained.

    It is no failure: a supervisor must not start the worker again.
    """

    exit_code = ExitCode.DONE


class OrderError(CrawlerError):
    """The crawl order cannot be read, has an unknown key, or asks for what makes no sense."""

    exit_code = ExitCode.BAD_ORDER


class BadArgument(OrderError):
    """A key or value on the command line, or in a keyword of a program, makes no sense."""

    exit_code = ExitCode.USAGE


class NoSeeds(CrawlerError):
    """None of the named texts is a seed."""

    exit_code: ExitCode = ExitCode.NO_SEED_ANSWERED


class JobMoved(CrawlerError):
    """The job is at another place now, or comes from one and has not arrived."""

    exit_code = ExitCode.USAGE


class JobMoving(CrawlerError):
    """The job is being moved at this moment."""

    exit_code = ExitCode.STORE_OR_JOB_IN_USE


class StoreLost(CrawlerError):
    """The job has seeds but its store is gone: continuing would silently crawl nothing."""

    exit_code = ExitCode.BAD_ORDER


class QueueLost(StoreLost):
    """The job's queue was in memory and ended with its process: it cannot be continued."""

    exit_code = ExitCode.STORE_OR_JOB_IN_USE


class NotAJobFolder(CrawlerError):
    """The folder has other contents than a job; nothing in it was changed."""

    exit_code = ExitCode.BAD_ORDER


class HostsJob(CrawlerError):
    """The job belongs to a program that embeds the Frontier: it can be inspected, but no crawl continues it."""

    exit_code = ExitCode.USAGE


class OrderDamaged(CrawlerError):
    """The job's own order is missing, cut or cannot be read; its state has a copy."""

    exit_code = ExitCode.BAD_ORDER


class ForeignJobFormat(CrawlerError):
    """The job folder was written in the format of a newer version."""

    exit_code = ExitCode.BAD_ORDER


class JobUnfinished(UsageError):
    """An unfinished job would be thrown away without the operator's consent."""


class JobInUse(CrawlerError):
    """Another process holds the job."""

    def __init__(
        self, directory: Path, pid: int | None, advice: str = "wait until it ends, or name another job"
    ) -> None:
        holder = "another process" if pid is None else f"process {pid}"
        super().__init__(f"{directory}: in use by {holder}; {advice}")
        self.pid = pid  #: the process that holds it; None if it is not known yet


class StorageError(CrawlerError):
    """A file cannot be read or written; what was acknowledged before is safe."""

    #: What to do; `{other}` is the option or argument that could name another path.
    advice: ClassVar[str] = "see to the disk, then run the same command again"


class DiskFull(StorageError):
    """The disk takes no more: full, over quota, or at a limit of the file size."""

    exit_code = ExitCode.DISK_FULL
    advice = "free some space, then run the same command again"


class DiskReadOnly(DiskFull):
    """The disk is mounted read-only."""

    advice = "mount it writable or choose another {other}"


class NotPermitted(DiskFull):
    """The user may not write there."""

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

    reason: str = ""  #: without the advice, if it is the disk


class JournalFull(JournalFailed, DiskFull):
    """The journal failed because the disk takes no more."""


#: Errors when no more files and sockets may be opened: by the process, by the whole system.
TOO_MANY_FILES = frozenset({errno.EMFILE, errno.ENFILE})

#: Errors of a disk that may take more later; no permission, or a limit of the process, does not pass by itself.
ROOM_MAY_COME = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})

#: The error for an `OSError` of a file; all others are a plain `StorageError`.
STORAGE_ERRORS: Mapping[int, type[StorageError]] = {
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


def storage_error(error: OSError, path: Path, other: str = "job folder") -> StorageError:
    """The operator's error for an `OSError` of `path`; `other` is the option or argument that names the path."""
    kind = STORAGE_ERRORS.get(error.errno or 0, StorageError)
    return kind(f"{path}: {_words(error)}; {kind.advice.format(other=other)}")


def journal_error(error: OSError, path: Path) -> JournalFailed:
    """The error for a file of the journal: the one that `error` names, or else `path`."""
    path = _named(error, path)
    kind = STORAGE_ERRORS.get(error.errno or 0, StorageError)
    failed = JournalFull if issubclass(kind, DiskFull) else JournalFailed
    made = failed(f"{path}: {_words(error)}; {kind.advice.format(other='job folder')}")
    made.reason = f"{path}: {_words(error)}"
    return made


@contextmanager
def storage_errors(path: Path, other: str = "job folder") -> Iterator[None]:
    """Inside, an `OSError` becomes a `StorageError` that names the file it is about, or else `path`; see `storage_error`."""
    try:
        yield
    except OSError as error:
        raise storage_error(error, _named(error, path), other) from error


def _named(error: OSError, path: Path) -> Path:
    return Path(os.fsdecode(error.filename)) if isinstance(error.filename, str | bytes) else path


def _words(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


#: Error of the system for an exhausted resource -> what to do.
_ADVICE = {
    errno.EMFILE: "too many open files; raise the limit (ulimit -n) and run the same command again",
    errno.ENFILE: "the system has too many open files; end what needs them and run the same command again",
    errno.ENOMEM: "not enough memory; raise the limit (ulimit -v), or free some, and run the same command again",
    errno.EAGAIN: "no thread can be started; raise the limit of memory (ulimit -v) or of threads (ulimit -u) and run "
    "the same command again",
}
#: Messages of the loader for a library without enough memory.
_NO_ROOM = ("failed to map segment", "Cannot allocate memory")
#: Python's message for a thread without enough memory.
_NO_THREAD = "can't start new thread"


def exhausted(error: BaseException | None) -> str | None:
    """The message for an exhausted resource, also among the causes of the error; else None. Imports nothing."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if (number := _number(error)) in _ADVICE:
            return _ADVICE[number]
        error = error.__cause__ or error.__context__
    return None


def lacks_memory(error: BaseException) -> bool:
    """Whether the process has no memory for an object or a thread, so that anything else would fail, too."""
    return _number(error) in {errno.ENOMEM, errno.EAGAIN} and not isinstance(error, OSError)


def _number(error: BaseException) -> int:
    if isinstance(error, MemoryError) or (
        isinstance(error, ImportError) and any(words in str(error) for words in _NO_ROOM)
    ):
        return errno.ENOMEM
    if isinstance(error, RuntimeError) and str(error) == _NO_THREAD:
        return errno.EAGAIN
    number = getattr(error, "errno", None)
    return number if isinstance(number, int) and number != errno.EAGAIN else 0


#: Signals that end a process.
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def decided() -> None:
    """Ignore signals from now on, since the exit code is known. Does nothing outside the main thread."""
    with suppress(ValueError):
        for number in _ENDING:
            signal.signal(number, signal.SIG_IGN)


@contextmanager
def deciding() -> Iterator[None]:
    """The block decides the exit code, whether it returns or fails; see `decided`."""
    try:
        yield
    finally:
        decided()
