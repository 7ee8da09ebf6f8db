"""The table URL_DB: every URL that the similarity filter let through, in an SQLite file of its own.

WAL mode with `synchronous=FULL`: a transaction that has returned is on the disk. `locking_mode=EXCLUSIVE` refuses a
second opener until the process ends. A second table, FORMAT, holds one record: magic, version and the parameters that
the URLs were compared with.
"""

from __future__ import annotations

import errno
import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from sqlalchemy import (
    URL,
    Column,
    Connection,
    Integer,
    LargeBinary,
    MetaData,
    NullPool,
    String,
    Table,
    create_engine,
    event,
    func,
    insert,
    inspect,
    select,
)
from sqlalchemy.exc import DBAPIError

from anabranch.dedup.errors import FilterClosed, FilterInUse, FormatMismatch, StoreFull
from anabranch.dedup.files import Closing
from anabranch.dedup.files.formatfile import Format, Parameters

MAGIC = "anabranch URL_DB"
VERSION = 1

#: How long to wait for another holder's lock: only long enough for one that is letting go just now.
BUSY_S = 0.1

_EMPTIED = "is empty, but held tables before: it is damaged; restore it from a copy, or start over"
_READ_AT_ONCE = 10_000  # rows

_METADATA = MetaData()

URL_DB = Table(
    "URL_DB",
    _METADATA,
    Column("ordinal", Integer, primary_key=True),  # from 1, in the order of storing
    Column("url", LargeBinary, nullable=False),  # bytes as they came: a URL need not be UTF-8
    Column("features", String, nullable=False),  # names of the features it was compared by, with spaces between
)
_FORMAT = Table("FORMAT", _METADATA, Column("record", String, nullable=False))

_SETTINGS = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA fullfsync = ON",  # macOS: fsync alone leaves data in the drive's cache
    "PRAGMA mmap_size = 0",
)


class UrlDb(Closing):
    """The stored URLs in the order of storing; `UrlDb.open` makes or opens the file. It belongs to one thread."""

    def __init__(self, path: Path, connection: Connection, rows: int) -> None:
        self._path = path
        self._connection = connection
        self._rows = rows

    @classmethod
    def open(cls, path: Path, parameters: Parameters, *, may_be_new: bool = True) -> Self:
        """Open the file, or make it if it `may_be_new` and is missing or empty. Raises: as `UniqFilter.open`."""
        # Without an isolation level the driver begins no transaction of its own.
        engine = create_engine(
            URL.create("sqlite", database=str(path)),
            poolclass=NullPool,
            connect_args={"timeout": BUSY_S, "isolation_level": None},
        )
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
        wanted = Format(magic=MAGIC, version=VERSION, parameters=parameters)
        with _translating(path):
            connection = engine.connect()
            try:
                rows = _prepare(connection, path, wanted, may_be_new=may_be_new)
            except BaseException:
                connection.close()
                raise
        return cls(path, connection, rows)

    def append(self, urls: Sequence[bytes], features: str) -> None:
        """Store the URLs durably in one transaction. Raises: StoreFull with nothing stored, OSError, FilterClosed."""
        if not urls:
            return
        rows = [{"url": url, "features": features} for url in urls]
        with self._transaction() as connection:
            connection.execute(insert(URL_DB), rows)
        self._rows += len(urls)

    def __iter__(self) -> Iterator[bytes]:
        """The URLs in the order of storing, read in pages of rows; storing meanwhile is allowed. Raises: OSError."""
        last = 0
        page = select(URL_DB.c.ordinal, URL_DB.c.url).order_by(URL_DB.c.ordinal).limit(_READ_AT_ONCE)
        while True:
            with self._transaction() as connection:
                rows = connection.execute(page.where(URL_DB.c.ordinal > last)).all()
            if not rows:
                return
            yield from (row.url for row in rows)
            last = rows[-1].ordinal

    def __len__(self) -> int:
        return self._rows

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        with _translating(self._path):
            self._connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        if self._connection.closed:
            raise FilterClosed(f"{self._path} was closed; open it again")
        with _translating(self._path), self._connection.begin():
            yield self._connection


@contextmanager
def _translating(path: Path) -> Iterator[None]:
    """Turn the database's errors into those of this room, or OSError."""
    try:
        yield
    except (DBAPIError, sqlite3.Error) as error:
        cause = error.orig if isinstance(error, DBAPIError) else error
        code = getattr(cause, "sqlite_errorcode", sqlite3.SQLITE_IOERR) & 0xFF
        raise _error_of(code, path) from error


def _error_of(code: int, path: Path) -> Exception:
    """The error for a primary result code (https://www.sqlite.org/rescode.html)."""
    number, what = errno.EIO, "cannot be read or written; look at the disk, quota and limits"
    match code:
        case sqlite3.SQLITE_FULL:
            return StoreFull(errno.ENOSPC, "no room to write the URLs; free space and repeat", str(path))
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return FilterInUse(f"{path} is open elsewhere; end the process that uses it first")
        case sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_ERROR:  # our statements are right
            return _foreign(path)
        case sqlite3.SQLITE_READONLY:
            number, what = errno.EROFS, "cannot be written; make it writable"
        case sqlite3.SQLITE_CANTOPEN:
            number, what = errno.EACCES, "cannot be opened; look at its folder"
    return OSError(number, f"the file of the URLs {what}", str(path))


def _foreign(path: Path) -> FormatMismatch:
    return FormatMismatch(f"{path} is damaged, or not the file of an {MAGIC}; name another, or restore it from a copy")


def _prepare(connection: Connection, path: Path, wanted: Format, *, may_be_new: bool) -> int:
    """Take the lock, make sure that the file is ours or empty, then set it up; the number of URLs in it."""
    _set(connection, "PRAGMA locking_mode = EXCLUSIVE")
    with connection.begin():
        is_new = not inspect(connection).get_table_names()
        if is_new and not may_be_new:
            raise FormatMismatch(f"{path} {_EMPTIED}")
        if not is_new:
            wanted.require(path, _recorded(connection, path))
    for setting in _SETTINGS:
        _set(connection, setting)
    with connection.begin():
        if is_new:
            _METADATA.create_all(connection)
            connection.execute(insert(_FORMAT), {"record": json.dumps(wanted.record())})
        return connection.execute(select(func.count()).select_from(URL_DB)).scalar_one()


def _set(connection: Connection, pragma: str) -> None:
    """Run a PRAGMA outside of a transaction: in one, these have no effect."""
    driver = connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    driver.execute(pragma)


def _recorded(connection: Connection, path: Path) -> dict[str, object]:
    """The record of FORMAT. Raises: FormatMismatch if it is no JSON object; DBAPIError if there is no such table."""
    records = connection.execute(select(_FORMAT.c.record)).scalars().all()
    try:
        (text,) = records
        found = json.loads(text)
    except (TypeError, ValueError) as error:
        raise _foreign(path) from error
    if not isinstance(found, dict):
        raise _foreign(path)
    return found
