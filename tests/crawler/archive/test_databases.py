"""Errors of a job's databases are raised as errors of the system."""

from __future__ import annotations

import errno
import os
import resource
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from sqlalchemy.exc import DBAPIError

from anabranch.crawler.archive.databases import as_system_errors, engine_for
from anabranch.frontier.errors import StoreFull
from anabranch.frontier.stores.sql.sqlite import connected, translated


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


@contextmanager
def files_limited(most_bytes: int) -> Iterator[None]:
    """No file of this process may become longer, as after `ulimit -f`."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("most_kib", [1, 8, 40, 160])
def test_a_limit_of_the_file_size_is_a_full_disk(tmp_path: Path, most_kib: int) -> None:
    """It is reached by the file or by its log, and SQLite calls it an I/O error."""
    file, queue = tmp_path / "accounts.sqlite", tmp_path / "frontier.db"
    fill = "INSERT INTO t SELECT randomblob(40000) FROM (VALUES (1), (2), (3), (4), (5))"
    with engine_for(file).connect() as writer, connected(queue, None) as store:
        for connection in (writer, store):
            with connection.begin():
                connection.exec_driver_sql("CREATE TABLE t (x)")
        with files_limited(most_kib << 10):
            with pytest.raises(OSError, match=os.strerror(errno.EFBIG)), as_system_errors(file), writer.begin():
                writer.exec_driver_sql(fill)
            with pytest.raises(DBAPIError, match="disk I/O error") as failed, store.begin():
                store.exec_driver_sql(fill)
            assert isinstance(translated(queue, failed.value), StoreFull)
