"""What an error says and which exit code it has."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from anabranch.crawler.outcomes import errors
from anabranch.crawler.outcomes.exits import ExitCode


@pytest.mark.parametrize(
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
    assert str(error) == f"jobs/x: {os.strerror(number).lower()}; {kind.advice.format(other='--job')}"


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
    assert str(error) == "jobs/x: in use by process 42; wait until it ends, or choose another --job"
    assert "another process" in str(errors.JobInUse(Path("jobs/x"), None))
