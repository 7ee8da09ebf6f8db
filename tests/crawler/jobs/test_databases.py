"""What errors of a job's databases are to the system."""

import errno
import os
import sqlite3
from pathlib import Path
from types import SimpleNamespace

import pytest

from crawler.jobs.databases import as_system_errors
from frontier.errors import StoreFull
from frontier.stores.sqlite import translated


def test_a_database_that_may_not_be_written_lacks_a_permission(tmp_path: Path) -> None:
    """SQLite calls it read-only; the disk that it is on is not."""
    file = tmp_path / "accounts.sqlite"
    sqlite3.connect(file).execute("CREATE TABLE t (x)").connection.close()
    reader = sqlite3.connect(f"file:{file}?mode=ro", uri=True)
    with pytest.raises(PermissionError) as failed, as_system_errors(file):
        reader.execute("INSERT INTO t VALUES (1)")
    assert failed.value.filename == str(file)
    reader.close()


def io_error() -> sqlite3.Error:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR
    return error


@pytest.mark.parametrize(("free", "number"), [(0, errno.ENOSPC), (1000, errno.EIO)])
def test_an_io_error_on_a_full_disk_is_the_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, number: int
) -> None:
    """SQLite's log found no room, and it does not say so."""
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=free, f_frsize=4096, f_flag=0))
    with pytest.raises(OSError, match=os.strerror(number)) as failed, as_system_errors(tmp_path / "accounts.sqlite"):
        raise io_error()
    assert failed.value.errno == number
    assert isinstance(translated(tmp_path / "frontier.db", io_error()), StoreFull) is (number == errno.ENOSPC)
