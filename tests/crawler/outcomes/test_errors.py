"""Exit codes, errors for the operator, and exhaustion."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from anabranch.crawler.outcomes import errors
from anabranch.crawler.outcomes.errors import ExitCode, exhausted, lacks_memory
from anabranch.crawler.outcomes.failures import Unfetchable
from tests.rows import each_row


def test_the_exit_codes_keep_their_numbers() -> None:
    """Scripts read them, so a number never changes its meaning."""
    assert {code.name: int(code) for code in ExitCode} == {
        "DONE": 0,
        "STORE_OR_JOB_IN_USE": 1,
        "USAGE": 2,
        "DISK_FULL": 3,
        "BAD_ORDER": 4,
        "NO_SEED_ANSWERED": 5,
        "MOSTLY_FAILED": 6,
        "SERVICE_AWAY": 7,
        "DRAINED": 11,
        "FORCED": 13,
        "INTERRUPTED": 130,
        "READER_GONE": 141,
    }


@each_row(
    ("number", "kind", "exit_code"),
    [
        (errno.ENOSPC, errors.DiskFull, ExitCode.DISK_FULL),
        (errno.EDQUOT, errors.DiskFull, ExitCode.DISK_FULL),
        (errno.EFBIG, errors.DiskFull, ExitCode.DISK_FULL),
        (errno.EROFS, errors.DiskReadOnly, ExitCode.DISK_FULL),
        (errno.EACCES, errors.NotPermitted, ExitCode.DISK_FULL),
        (errno.EPERM, errors.NotPermitted, ExitCode.DISK_FULL),
        (errno.ENOTDIR, errors.NoFolder, ExitCode.STORE_OR_JOB_IN_USE),
        (errno.EMFILE, errors.TooManyFiles, ExitCode.STORE_OR_JOB_IN_USE),
        (errno.ENFILE, errors.TooManyFiles, ExitCode.STORE_OR_JOB_IN_USE),
        (errno.EISDIR, errors.NotAFile, ExitCode.BAD_ORDER),
        (errno.EIO, errors.StorageError, ExitCode.STORE_OR_JOB_IN_USE),
    ],
)
def test_an_os_error_becomes_the_error_of_its_meaning(
    number: int, kind: type[errors.StorageError], exit_code: ExitCode
) -> None:
    """One table says what an errno means; the line names the file, the fault and what to do."""
    error = errors.storage_error(OSError(number, os.strerror(number)), Path("jobs/x"))
    assert type(error) is kind
    assert error.exit_code is exit_code
    assert str(error) == f"jobs/x: {os.strerror(number).lower()}; {kind.advice.format(other='job folder')}"


@pytest.mark.parametrize(
    ("number", "kind", "exit_code"),
    [
        (errno.ENOSPC, errors.JournalFull, ExitCode.DISK_FULL),
        (errno.EIO, errors.JournalFailed, ExitCode.STORE_OR_JOB_IN_USE),
    ],
)
def test_a_journal_on_a_full_disk_ends_with_the_code_of_a_full_disk(
    number: int, kind: type[errors.JournalFailed], exit_code: ExitCode
) -> None:
    """A failed journal is resumable, and its exit code tells a full disk from a broken one."""
    error = errors.journal_error(OSError(number, os.strerror(number)), Path("pages.jsonl"))
    assert type(error) is kind
    assert error.exit_code is exit_code
    assert str(error).startswith(f"pages.jsonl: {os.strerror(number).lower()}; ")


@pytest.mark.parametrize("name", ["gone/file", b"gone/file"])
def test_the_file_that_the_system_names_is_named(name: str | bytes) -> None:
    """It is nearer to the fault than the folder that was worked on."""
    with pytest.raises(errors.NoFolder, match=r"^gone/file: ") as raised, errors.storage_errors(Path("jobs/x")):
        os.open(name, os.O_RDONLY)
    assert isinstance(raised.value.__cause__, FileNotFoundError)


def test_an_os_error_without_number_or_words_is_still_told() -> None:
    """Libraries raise such ones."""
    with pytest.raises(errors.StorageError, match=r"^jobs/x: odd; "), errors.storage_errors(Path("jobs/x")):
        raise OSError("odd")


def test_every_error_has_an_exit_code() -> None:
    """The command needs no table of its own."""
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.CrawlerError)]
    assert all(isinstance(kind.exit_code, ExitCode) for kind in kinds)
    assert len(kinds) > 10


def test_a_job_in_use_names_the_process() -> None:
    """The operator can look for it, or end it."""
    error = errors.JobInUse(Path("jobs/x"), 42)
    assert error.pid == 42
    assert str(error) == "jobs/x: in use by process 42; wait until it ends, or name another job"
    assert "another process" in str(errors.JobInUse(Path("jobs/x"), None))


@each_row(
    ("error", "words", "is_memory"),
    [
        (MemoryError(), "not enough memory", True),
        (RuntimeError("can't start new thread"), "no thread can be started", True),
        (ImportError("x.so: failed to map segment from shared object"), "not enough memory", True),
        (OSError(errno.ENOMEM, "no"), "not enough memory", False),
        (OSError(errno.EMFILE, "no"), "too many open files", False),
    ],
)
def test_what_is_lacking_is_told_in_one_line(error: Exception, words: str, *, is_memory: bool) -> None:
    """Also if it is the cause of another error, or one of several."""
    caused = ValueError("odd")
    caused.__cause__ = error
    for raised in (error, caused, ExceptionGroup("some", [error])):
        assert (exhausted(raised) or "").startswith(words)
    assert lacks_memory(error) is is_memory


@pytest.mark.parametrize("error", [RuntimeError("odd"), BlockingIOError(errno.EAGAIN, "later"), Unfetchable("no host")])
def test_other_errors_are_not_explained(error: Exception) -> None:
    """They are defects, or somebody else's to tell."""
    assert exhausted(error) is None
    assert not lacks_memory(error)
