"""All that is SQLite's own: how to connect, what its errors mean, how to fold the log into the file.

The file is in WAL mode with `synchronous=FULL`: a commit that has returned is on the disk. It is held with
`locking_mode=EXCLUSIVE`, which does three things at once. A second opener, in this process or another, is refused
at its first statement. The kernel drops the lock with the process, however it dies, so nothing is left to clean up. And
the WAL's index lives in the heap: there is no `-shm` file, whose mapped pages would kill the process with SIGBUS on a full
disk. The price: no other program can open the file while a crawl runs. One can copy it (`livecopy`), as long as the log is
not begun anew: so that comes later while somebody copies, who says so by a shared `flock` on the log. SQLite itself never
locks that file.
"""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import URL, Connection, NullPool, create_engine, event
from sqlalchemy.exc import DBAPIError

from anabranch.frontier.errors import (
    FormatMismatch,
    FrontierError,
    StoreDamaged,
    StoreFull,
    StoreInUse,
    StoreUnavailable,
    unwritable,
)

#: Says that a database is ours: the letters "Anab" in the file's header.
APPLICATION_ID = 0x416E6162
#: How long to wait for another holder's lock: only long enough for one that is letting go just now.
BUSY_S = 0.1

_CACHE_KIB = 64 * 1024
#: Statements that stay prepared: each kind that takes rows has one text per power of two (`dialect`).
_STATEMENTS = 512
#: Pages in the log before they are folded into the file. 64 MiB: a page that changes in many commits is written once, and a
#: log of this length is read in a second after a crash.
LOG_PAGES = 16_384
#: The same while somebody copies the file and its log, so that both fit together: 256 MiB.
COPIED_LOG_PAGES = 4 * LOG_PAGES

_SETTINGS = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA fullfsync = ON",  # macOS: fsync alone leaves data in the drive's cache
    f"PRAGMA cache_size = -{_CACHE_KIB}",
    f"PRAGMA journal_size_limit = {2 * LOG_PAGES * 4096}",  # what it grew beyond during a copy is given back
    "PRAGMA mmap_size = 0",
    "PRAGMA secure_delete = OFF",  # some builds write zeros over what is deleted
    "PRAGMA temp_store = MEMORY",  # lists of rows inside a statement
)

#: What a primary result code means, and what to do (https://www.sqlite.org/rescode.html).
_MEANINGS: dict[int, tuple[type[FrontierError], str]] = {
    sqlite3.SQLITE_FULL: (StoreFull, "the disk (or the file's bound) is full; make room and run again"),
    sqlite3.SQLITE_READONLY: (StoreFull, "it is read-only; make it writable and run again"),
    sqlite3.SQLITE_IOERR: (StoreUnavailable, "disk I/O error; look at the disk and run again"),
    sqlite3.SQLITE_CANTOPEN: (StoreUnavailable, "it cannot be opened; look at the folder and run again"),
    sqlite3.SQLITE_BUSY: (StoreInUse, "another process holds it; end that one first"),
    sqlite3.SQLITE_LOCKED: (StoreInUse, "another process holds it; end that one first"),
    sqlite3.SQLITE_NOTADB: (StoreDamaged, "it is no database; restore it from a copy"),
    sqlite3.SQLITE_CORRUPT: (StoreDamaged, "it is damaged; restore it from a copy"),
}

#: Codes that say that tables or rows are not what the program wrote: a table is missing, a key is there twice.
_CONTRADICTIONS = frozenset({
    sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_RANGE
})  # fmt: skip

#: With less, SQLite's log and its index may find no room: it calls that an I/O error.
_LEAST_ROOM_BYTES = 64 << 10
_NO_ROOM = {
    errno.ENOSPC: (StoreFull, "the disk is full; make room and run again"),
    errno.EFBIG: (StoreFull, "files may not become longer (ulimit -f); raise the limit and run again"),
}
#: Codes that SQLite gives for several reasons, a read-only disk among them.
_VAGUE = frozenset({sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR})


@contextmanager
def connected(path: Path, max_pages: int | None) -> Iterator[Connection]:
    """The one connection to the file at `path`, which is made if there is none.

    `connection.begin()` says BEGIN IMMEDIATE: the driver opens no transaction by itself. Raises what `translated` makes.
    """
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        poolclass=NullPool,
        connect_args={"timeout": BUSY_S, "cached_statements": _STATEMENTS},
    )
    event.listen(engine, "connect", _leave_transactions_to_us)
    event.listen(engine, "begin", _Transactions(log_of(path)).begin)
    try:
        with engine.connect() as connection:
            _prepare(connection, path, max_pages)
            yield connection
    finally:
        engine.dispose()


def log_of(file: Path) -> Path:
    """The log beside a file in WAL mode."""
    return file.with_name(f"{file.name}-wal")


def fold_log(connection: Connection) -> None:
    """Write the log into the file and cut it to nothing, outside of a transaction."""
    _driver(connection).execute("PRAGMA wal_checkpoint(TRUNCATE)")


def translated(path: Path, error: Exception) -> FrontierError:
    """The error of this room that another stands for; one line that names the file and what to do."""
    if isinstance(error, FrontierError):
        return error
    if isinstance(error, OSError):
        return _unreadable(path, error) if error.errno == errno.EIO else unwritable(str(path), error)
    cause = error.orig if isinstance(error, DBAPIError) else error
    code = getattr(cause, "sqlite_errorcode", 0) & 0xFF
    kind, meaning = _MEANINGS.get(code, (StoreUnavailable, f"{type(cause).__name__}: {cause}"))
    if code in _CONTRADICTIONS:
        kind, meaning = StoreDamaged, f"it is damaged ({cause}); restore it from a copy"
    if code in _VAGUE:
        kind, meaning = _why_not(path) or (kind, meaning)
    failure = kind(f"{path}: {meaning}")
    failure.__cause__ = error
    return failure


def _unreadable(path: Path, error: OSError) -> StoreDamaged:
    """The error of a file that the disk cannot read. (What SQLite reads and writes itself has SQLite's errors.)"""
    failure = StoreDamaged(f"{path}: cannot be read: {error.strerror}; restore it from a copy")
    failure.__cause__ = error
    return failure


def _leave_transactions_to_us(driver: sqlite3.Connection, _record: object) -> None:
    driver.isolation_level = None


class _Transactions:
    """Begins them, and says how long the log may become first. Cost: three system calls, 5 to 20 microseconds."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._pages: int | None = None

    def begin(self, connection: Connection) -> None:
        pages = COPIED_LOG_PAGES if _is_being_copied(self._log) else LOG_PAGES
        if pages != self._pages:
            connection.exec_driver_sql(f"PRAGMA wal_autocheckpoint = {pages:d}")
            self._pages = pages
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def _is_being_copied(log: Path) -> bool:
    try:
        descriptor = os.open(log, os.O_RDWR)
    except OSError:  # there is no log yet
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without such locks
        return False
    finally:
        os.close(descriptor)
    return False


def _driver(connection: Connection) -> sqlite3.Connection:
    driver = connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    return driver


def _prepare(connection: Connection, path: Path, max_pages: int | None) -> None:
    """Take the lock, make sure that the file is ours, then set it up; a foreign file is left as it was."""
    driver = _driver(connection)
    driver.execute("PRAGMA locking_mode = EXCLUSIVE")
    driver.execute("BEGIN IMMEDIATE")
    (application,) = driver.execute("PRAGMA application_id").fetchone()
    (tables,) = driver.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    driver.execute("ROLLBACK")
    if tables and application != APPLICATION_ID:
        raise FormatMismatch(f"{path}: it is a database of another program; name another folder")
    for setting in _SETTINGS:
        driver.execute(setting)
    if max_pages is not None:
        driver.execute(f"PRAGMA max_page_count = {max_pages:d}")
    if not application:
        driver.execute(f"PRAGMA application_id = {APPLICATION_ID:d}")


def _why_not(path: Path) -> tuple[type[FrontierError], str] | None:
    """What is wrong with the place of the file, if anything is."""
    if not path.parent.is_dir():
        return StoreUnavailable, f"there is no folder {path.parent}; make it first"
    if path.is_dir():
        return StoreUnavailable, "it is a folder; a file is needed"
    places = [place for place in (path.parent, path) if place.exists()]
    if not all(os.access(place, os.R_OK | os.W_OK) for place in places):
        return StoreFull, "it cannot be written: a read-only disk or no permission; change that and run again"
    lacking = lacking_room(path)
    return None if lacking is None else _NO_ROOM[lacking]


def lacking_room(file: Path) -> int | None:
    """Why the file or its log has no room to grow: ENOSPC of the disk, EFBIG of the process; None if both have."""
    disk = os.statvfs(file.parent)
    if disk.f_bavail * disk.f_frsize < _LEAST_ROOM_BYTES:
        return errno.ENOSPC
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    longest = max((one.stat().st_size for one in (file, log_of(file)) if one.exists()), default=0)
    return errno.EFBIG if limit != resource.RLIM_INFINITY and limit - longest < _LEAST_ROOM_BYTES else None
