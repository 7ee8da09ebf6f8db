"""SQLite files of a job's state: how they are opened, and what their errors are to the system."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, Engine, NullPool, create_engine, event
from sqlalchemy.exc import DBAPIError

from anabranch.frontier.stores.sql.sqlite import lacking_room, primary_code, to_wal_mode, twice

#: What a statement, a connection or a transaction raises.
DATABASE_ERRORS = (DBAPIError, sqlite3.Error)

#: NORMAL, not FULL: a row that a power cut removes can be written again.
_WRITER = ("PRAGMA synchronous = NORMAL",)
_READER = ("PRAGMA query_only = 1",)
#: What SQLite's primary result codes are to the system (https://www.sqlite.org/rescode.html).
_SYSTEM_ERRORS = {sqlite3.SQLITE_FULL: errno.ENOSPC, sqlite3.SQLITE_NOMEM: errno.ENOMEM}
#: Descriptors of a database: the file, its log, its index, a folder.
_DESCRIPTORS = 4
#: A file that is no database of ours, or is broken.
_DAMAGED = frozenset({sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT})


def connected(
    file: Path,
    *,
    is_reader: bool = False,
    pragmas: Sequence[str] = (),
    begin: Callable[[Connection], None] | None = None,
) -> Connection:
    """Open a connection of `engine_for` and call `begin`, which may make tables, in its first transaction.

    If the disk fails, everything is tried a second time, because the failure may have passed. Raises: `DATABASE_ERRORS`; what
    `begin` does.
    """
    engine = engine_for(file, is_reader=is_reader, pragmas=pragmas)

    def connect() -> Connection:
        connection = engine.connect()
        try:
            if begin is not None:
                with connection.begin():
                    begin(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    return twice(connect)


def engine_for(file: Path, *, is_reader: bool = False, pragmas: Sequence[str] = ()) -> Engine:
    """Connections to the file, for any thread, one at a time each. A reader changes nothing. `pragmas`: further settings."""
    engine = create_engine(
        "sqlite://",
        creator=lambda: sqlite3.connect(file, timeout=30.0, check_same_thread=False, isolation_level=None),
        poolclass=NullPool,
    )
    settings = (*(_READER if is_reader else _WRITER), *pragmas)

    def prepare(connection: sqlite3.Connection, _: object) -> None:
        if not is_reader:
            to_wal_mode(connection)  # on a file system without it writing is only slower
            connection.execute("SELECT count(*) FROM sqlite_schema").close()  # opens the log and its index
        for setting in settings:
            connection.execute(setting).close()

    event.listen(engine, "connect", prepare)
    # The driver begins none by itself then, so that making a table belongs to its transaction, too.
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
    return engine


@contextmanager
def as_system_errors(file: Path) -> Iterator[None]:
    """Raise an error of the database as the OSError that it means."""
    try:
        yield
    except DATABASE_ERRORS as error:
        raise _system_error(primary_code(error), file) from error


def _system_error(code: int, file: Path) -> OSError:
    """SQLite reports "read-only" for a disk and for a permission alike, so the disk is asked."""
    if file.is_dir():
        number = errno.EISDIR
    elif code == sqlite3.SQLITE_READONLY:
        disk_is = os.statvfs(file if file.exists() else file.parent).f_flag & os.ST_RDONLY
        number = errno.EROFS if disk_is else errno.EACCES
    elif code == sqlite3.SQLITE_CANTOPEN:
        number = _why_not_opened(file)
    else:
        number = _SYSTEM_ERRORS.get(code, errno.EIO)
    if number in {errno.EIO, errno.EACCES}:
        number = lacking_room(file) or number  # its log or its index found none
    return OSError(number, os.strerror(number), str(file))


def _why_not_opened(file: Path) -> int:
    """SQLite reports the same for a permission, for too many open files and for a failing disk, so opening is tried."""
    opened: list[int] = []
    try:
        opened += (os.open(os.devnull, os.O_RDONLY) for _ in range(_DESCRIPTORS))
    except OSError as error:
        return error.errno or errno.EMFILE
    finally:
        for descriptor in opened:
            os.close(descriptor)
    places = (place for place in (file.parent, file) if place.exists())
    return errno.EIO if all(os.access(place, os.R_OK | os.W_OK) for place in places) else errno.EACCES


def is_damaged(error: OSError) -> bool:
    """Whether the file is no database, or is broken: it must be made anew."""
    cause = error.__cause__
    return isinstance(cause, DATABASE_ERRORS) and (error.errno == errno.EISDIR or primary_code(cause) in _DAMAGED)


def reason(error: BaseException) -> str:
    """The database's message, in one line."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    return str(cause).partition("\n")[0]
