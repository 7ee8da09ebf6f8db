"""A crawl in a file of SQLite: how to connect and execute, what its errors mean, its seal and its owner's line.

The file is in WAL mode with `synchronous=FULL`: a commit that has returned is on the disk. It is held with
`locking_mode=EXCLUSIVE`. So a second opener, in this process or another, is refused at its first statement. The kernel drops
the lock with the process, however it dies, so nothing is left to clean up. And the WAL's index lives in the heap: mapped pages
of a `-shm` file would kill the process with SIGBUS on a full disk. The price: no other program can open the file while a crawl
runs. It can be copied (`livecopy`) as long as the log is not restarted. Whoever copies holds a shared `flock` on the log, which
SQLite itself never locks, and the log is restarted later meanwhile.

SQLite's driver releases Python's lock at each step of a statement, and next to a busy thread each time costs up to its
switch interval (5 ms). So rows are written by statements of many rows, not one by one: 10,000 rows are 42 steps. The
sizes are powers of two, so that a kind of statement has few texts and the driver keeps all of them prepared.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import resource
import socket
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, NullPool, create_engine, event, inspect
from sqlalchemy.dialects.sqlite import dialect
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.pool import ConnectionPoolEntry

from anabranch.dedup.files.durable import size_and_crc, write_file
from anabranch.dedup.files.locks import folder_turn
from anabranch.frontier.errors import (
    FormatMismatch,
    FrontierError,
    InvariantBroken,
    StoreDamaged,
    StoreFull,
    StoreInUse,
    StoreUnavailable,
    caused_by,
    unwritable,
)
from anabranch.frontier.stores.sql import CRAWL, statements
from anabranch.frontier.stores.sql.execution import (
    RUNNER,
    WITH_VALUES,
    AllRows,
    GivenRows,
    ManyRows,
    ServerTime,
    Statement,
    Values,
    driver_of,
    fetch,
)
from anabranch.frontier.stores.sql.reading import recount
from anabranch.frontier.stores.totals import FORMAT, IDENTITY, counters_of

T = TypeVar("T")

#: Marks a database as ours: the letters "Anab" in the file's header.
APPLICATION_ID = 0x416E6162
#: How long to wait for another holder's lock: only long enough for one that is letting go just now.
BUSY_S = 0.1
#: How long a worker waits for the transactions of the others: as long as they may take.
SHARED_BUSY_S = 30.0

_CACHE_KIB = 64 * 1024
#: Statements that stay prepared: each kind that takes rows has one text per power of two.
_STATEMENTS = 512
#: SQLite's bound of parameters in one statement (https://www.sqlite.org/limits.html).
_MAX_PARAMETERS = 32766
#: Larger statements save little and take long to bind: 1,024 rows of `url` cost three times as much a row.
_MAX_ROWS = 256
#: SQLite's default size of a page.
_PAGE_BYTES = 4096
#: Pages in the log before they are folded into the file. 64 MiB: a page that changes in many commits is written once, and a
#: log of this length is read in a second after a crash.
LOG_PAGES = 16_384
#: On a small or filling disk the log takes at most this part of the room, and is folded at no less than so many pages.
LOG_PART = 4
LEAST_LOG_PAGES = 1024
#: The same while the file and its log are copied, so that both fit together: 256 MiB.
COPIED_LOG_PAGES = 4 * LOG_PAGES

_SETTINGS = (
    "PRAGMA synchronous = FULL",
    "PRAGMA fullfsync = ON",  # macOS: fsync alone leaves data in the drive's cache
    f"PRAGMA cache_size = -{_CACHE_KIB}",
    f"PRAGMA journal_size_limit = {2 * LOG_PAGES * _PAGE_BYTES}",  # what it grew beyond during a copy is given back
    "PRAGMA mmap_size = 0",
    "PRAGMA secure_delete = OFF",  # some builds write zeros over deleted rows
    "PRAGMA temp_store = MEMORY",  # lists of rows inside a statement
)

#: The journal of a commit is truncated at its end, which costs half of its deletion.
_WITHOUT_LOG = ("PRAGMA journal_mode = TRUNCATE",)

_IO_ERROR = "disk I/O error; look at the disk and run again"
_NO_MEMORY = "not enough memory; raise the limit (ulimit -v), or free some, and run again"
#: What a primary result code means, and what to do (https://www.sqlite.org/rescode.html).
_MEANINGS: dict[int, tuple[type[FrontierError], str]] = {
    sqlite3.SQLITE_FULL: (StoreFull, "the disk (or the file's bound) is full; make room and run again"),
    sqlite3.SQLITE_READONLY: (StoreFull, "it is read-only; make it writable and run again"),
    sqlite3.SQLITE_IOERR: (StoreUnavailable, _IO_ERROR),
    sqlite3.SQLITE_NOMEM: (StoreUnavailable, _NO_MEMORY),
    sqlite3.SQLITE_CANTOPEN: (StoreUnavailable, "it cannot be opened; look at the folder and run again"),
    sqlite3.SQLITE_NOTADB: (StoreDamaged, "it is no database; restore it from a copy"),
    sqlite3.SQLITE_CORRUPT: (StoreDamaged, "it is damaged; restore it from a copy"),
}

_LOCKS = Path("/proc/locks")

#: Codes of tables or rows that the program did not write so: a table is missing, a key is there twice.
_CONTRADICTIONS = frozenset({
    sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_RANGE
})  # fmt: skip

#: Primary result codes of SQLite for failures that may pass by themselves.
_PASSING = frozenset({
    sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOMEM
})  # fmt: skip

#: With less room SQLite's log may not grow, which SQLite calls an I/O error.
_LEAST_ROOM_BYTES = 64 << 10
_NO_FILES = "too many open files; raise the limit (ulimit -n) and run again"
_NOT_WRITABLE = "it cannot be written: a read-only disk or no permission; change that and run again"
#: What the reasons of `lacking_room` mean.
_NO_ROOM: dict[int, tuple[type[StoreUnavailable], str]] = {
    errno.EIO: (StoreUnavailable, _IO_ERROR),
    errno.ENOSPC: (StoreFull, "the disk is full; make room and run again"),
    errno.EDQUOT: (StoreFull, "the disk's quota is used up; make room and run again"),
    **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), (StoreFull, _NOT_WRITABLE)),
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), (StoreUnavailable, _NO_FILES)),
    errno.EFBIG: (StoreFull, "files may not become longer (ulimit -f); raise the limit and run again"),
}
#: Codes that SQLite gives for several reasons, a read-only disk among them.
_VAGUE = frozenset({sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY})


@contextmanager
def connected(
    path: Path, max_pages: int | None, *, is_shared: bool = False, has_log: bool = True
) -> Iterator[Connection]:
    """The one connection to the file at `path`, made if it is new; `is_shared`: one of several, each waits for the others.

    Without a log all that was committed is in the one file, and any process reads it; a commit costs some syncs more.

    `connection.begin()` sends BEGIN IMMEDIATE: the driver opens no transaction by itself. Raises what `translated` makes.
    """
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        poolclass=NullPool,
        connect_args={"timeout": SHARED_BUSY_S if is_shared else BUSY_S, "cached_statements": _STATEMENTS},
    )
    event.listen(engine, "connect", _prepare_driver)
    event.listen(engine, "begin", _Transactions(log_of(path)).begin)
    try:
        with engine.connect() as connection:
            # To WAL mode a file goes without waiting for the others' locks: one after the other.
            with folder_turn(path.parent) if is_shared and has_log else nullcontext():
                _prepare(connection, path, max_pages, is_shared=is_shared, has_log=has_log)
            yield connection
    finally:
        engine.dispose()


@contextmanager
def reader(copy: Path) -> Iterator[Connection]:
    """A read-only connection to a file that nobody writes. Raises what `translated` makes."""
    place = copy.absolute().as_uri()
    engine = create_engine(f"sqlite:///{place}?mode=ro&immutable=1&uri=true", poolclass=NullPool)
    event.listen(engine, "connect", _prepare_driver)
    try:
        with engine.connect() as connection:
            yield connection
    finally:
        engine.dispose()


def log_of(file: Path) -> Path:
    """The log of a file in WAL mode."""
    return file.with_name(f"{file.name}-wal")


def fold_log(connection: Connection) -> None:
    """Write the log into the file and truncate it, outside of a transaction."""
    driver_of(connection).execute("PRAGMA wal_checkpoint(TRUNCATE)")


def translated(path: Path, error: Exception) -> FrontierError:
    """The error as one of this room; its one line names the file and what to do."""
    if isinstance(error, FrontierError):
        return error
    if isinstance(error, OSError) and error.errno == errno.EIO:
        return caused_by(StoreDamaged(f"{path}: cannot be read: {error.strerror}; restore it from a copy"), error)
    if isinstance(error, OSError):
        return unwritable(str(path), error)
    cause, code = error.orig if isinstance(error, DBAPIError) else error, primary_code(error)
    kind, meaning = _MEANINGS.get(code, (StoreUnavailable, f"{type(cause).__name__}: {cause}"))
    if code in _CONTRADICTIONS:
        kind, meaning = StoreDamaged, f"it is damaged ({cause}); restore it from a copy"
    if code in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
        kind, meaning = StoreInUse, f"{_holder(path)} holds it; end that one first"
    if code in _VAGUE:
        kind, meaning = _why_not(path) or (kind, meaning)
    return caused_by(kind(f"{path}: {meaning}"), error)


def _holder(path: Path) -> str:
    """Name the process that keeps others from writing, which may be stopped or hang; where the system does not tell, none.

    Source: Linux, proc_locks(5): the fields of a line are number, kind, mode, access, pid, major:minor:inode, start, end.
    """
    with suppress(OSError, ValueError, IndexError):  # another system writes the file otherwise
        found = [file.stat() for file in (path, path.with_name(f"{path.name}-shm")) if file.exists()]
        files = {f"{os.major(file.st_dev):02x}:{os.minor(file.st_dev):02x}:{file.st_ino}" for file in found}
        for line in _LOCKS.read_text().splitlines():
            fields = line.split()
            is_held = fields[1] != "->" and fields[3] == "WRITE" and fields[5] in files
            if is_held and int(fields[4]) not in {-1, 0, os.getpid()}:  # of another container
                return f"process {fields[4]}"
    return "another process"


def _prepare_driver(driver: sqlite3.Connection, record: ConnectionPoolEntry) -> None:
    """Leave transactions to us."""
    driver.isolation_level = None
    record.info[RUNNER] = SqliteRunner(driver)


#: Where the text of a `ManyRows` gets its rows.
_ROWS = "/* rows */"
_DIALECT = dialect(paramstyle="qmark")


@compiles(GivenRows, "sqlite")
def _listed(_element: GivenRows, _compiler: object, **_: object) -> str:
    return f"(VALUES {_ROWS})"


@compiles(AllRows, "sqlite")
def _added(_element: AllRows, _compiler: object, **_: object) -> str:
    return f"VALUES {_ROWS}"  # SELECT costs up to 0.1 µs more a row


@compiles(ServerTime, "sqlite")
def _machine_time(_element: ServerTime, _compiler: object, **_: object) -> str:
    return "((julianday('now') - 2440587.5) * 86400.0)"  # in milliseconds


@lru_cache(maxsize=1024)
def text_of(statement: Statement) -> str:
    """Its text. SQLite's transactions exclude each other: no row is locked, so FOR UPDATE is left out."""
    if isinstance(statement, str):
        return statement
    return str(statement.compile(dialect=_DIALECT, compile_kwargs=WITH_VALUES))


@lru_cache(maxsize=1024)
def text_of_rows(statement: ManyRows, rows: int) -> str:
    """Its text for so many rows."""
    marks = "(" + ", ".join("?" * len(statement.types)) + ")"
    return text_of(statement.statement).replace(_ROWS, ", ".join([marks] * rows))


class SqliteRunner:
    """Executes statements on a connection of SQLite."""

    def __init__(self, driver: sqlite3.Connection) -> None:
        self._driver = driver

    def execute(self, statement: Statement, parameters: Sequence[Any] = ()) -> int:
        """Execute one; the result counts the changed rows."""
        return self._driver.execute(text_of(statement), parameters).rowcount

    def fetch(self, statement: Statement, parameters: Sequence[Any] = ()) -> list[Values]:
        """All rows of an answer."""
        return self._driver.execute(text_of(statement), parameters).fetchall()

    def fetch_for(self, statement: ManyRows, rows: Sequence[Values]) -> list[Values]:
        """All rows of the answers, which come from several statements."""
        answers: list[Values] = []
        for text, parameters in _texts(statement, rows):
            answers += self._driver.execute(text, parameters).fetchall()
        return answers

    def write(self, statement: ManyRows, rows: Sequence[Values]) -> int:
        """Execute it for all these rows; the result is the sum over several statements."""
        execute, texts = self._driver.execute, _texts(statement, rows, pads=statement.may_repeat)
        return sum([execute(text, parameters).rowcount for text, parameters in texts])

    def stream(self, statement: Statement, most: int) -> Iterator[list[Values]]:
        """An answer's rows, so many at a time."""
        cursor = self._driver.execute(text_of(statement))
        while rows := cursor.fetchmany(most):
            yield rows
        cursor.close()


def _texts(statement: ManyRows, rows: Sequence[Values], *, pads: bool = False) -> Iterable[tuple[str, list[Any]]]:
    """The texts that take all rows, the largest first, with their parameters.

    With `pads` the last row may come several times, which fills a statement: few large steps are better than many.
    """
    start = 0
    size = min(_MAX_ROWS, 1 << (_MAX_PARAMETERS // len(statement.types)).bit_length() - 1)
    while (left := len(rows) - start) > 0:
        while size > left:
            if pads and 4 * left > 3 * size:
                rows = [*rows, *[rows[-1]] * (size - left)]
                break
            size >>= 1
        yield text_of_rows(statement, size), list(chain.from_iterable(rows[start : start + size]))
        start += size


class _Transactions:
    """Begins them, after it has set how long the log may become. Cost: five system calls, 7 to 25 microseconds."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._pages: int | None = None

    def begin(self, connection: Connection) -> None:
        pages = COPIED_LOG_PAGES if _is_being_copied(self._log) else log_pages(_room_of(self._log))
        if pages != self._pages:
            connection.exec_driver_sql(f"PRAGMA wal_autocheckpoint = {pages:d}")
            self._pages = pages
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def log_pages(room_bytes: int) -> int:
    """How many pages the log may have, a power of two, by what it has and may still take of its disk. Pure."""
    pages = max(room_bytes // LOG_PART // _PAGE_BYTES, 1)
    return min(max(1 << (pages.bit_length() - 1), LEAST_LOG_PAGES), LOG_PAGES)


def _room_of(log: Path) -> int:
    """The bytes of a log and those that are free on its disk; if that is not known, there is plenty."""
    try:
        disk, has = os.statvfs(log.parent), log.stat().st_size if log.exists() else 0
    except OSError:
        return LOG_PART * LOG_PAGES * _PAGE_BYTES
    return disk.f_bavail * disk.f_frsize + has


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


def _prepare(connection: Connection, path: Path, max_pages: int | None, *, is_shared: bool, has_log: bool) -> None:
    """Take the lock, make sure that the file is ours, then set it up; a foreign file is left as it was."""
    driver = driver_of(connection)
    if not is_shared:
        driver.execute("PRAGMA locking_mode = EXCLUSIVE")
    driver.execute("BEGIN IMMEDIATE")
    (application,) = driver.execute("PRAGMA application_id").fetchone()
    tables = names_of_tables(driver)
    driver.execute("ROLLBACK")
    if tables and application != APPLICATION_ID:
        raise FormatMismatch(f"{path}: it is a database of another program; name another folder")
    if has_log and not to_wal_mode(driver):
        kind, meaning = _why_not(path) or _MEANINGS[sqlite3.SQLITE_IOERR]
        raise kind(f"{path}: {meaning}")
    for setting in _SETTINGS if has_log else (*_SETTINGS, *_WITHOUT_LOG):
        driver.execute(setting)
    if max_pages is not None:
        driver.execute(f"PRAGMA max_page_count = {max_pages:d}")
    if not application:
        driver.execute(f"PRAGMA application_id = {APPLICATION_ID:d}")


def names_of_tables(driver: sqlite3.Connection) -> set[str]:
    """The names of all tables and indices in the file."""
    return {name for (name,) in driver.execute("SELECT name FROM sqlite_schema")}


def twice(do: Callable[[], T]) -> T:
    """Try a second time, at once, if SQLite reports a failure of the disk: it may pass. Raises: what the second try does."""
    try:
        return do()
    except (DBAPIError, sqlite3.Error) as error:
        if primary_code(error) not in _PASSING:
            raise
    return do()


def primary_code(error: BaseException) -> int:
    """The primary result code of an error of SQLite, raised by SQLAlchemy or by the driver; 0 for any other error.

    The driver makes a `MemoryError` of NOMEM; Python's own is the same trouble.
    """
    cause = error.orig if isinstance(error, DBAPIError) else error
    if isinstance(cause, MemoryError):
        return sqlite3.SQLITE_NOMEM
    code: int = getattr(cause, "sqlite_errorcode", 0)
    return code & 0xFF


def to_wal_mode(driver: sqlite3.Connection) -> bool:
    """Switch the file to WAL mode; False if it stays in another one. Raises: sqlite3.Error.

    Close the connection after an error: SQLite then reports WAL mode although the file is not in it, and the process would
    block itself later.
    """
    (mode,) = driver.execute("PRAGMA journal_mode = WAL").fetchone()
    return bool(mode == "wal")


def _why_not(path: Path) -> tuple[type[FrontierError], str] | None:
    """The fault of the file's place, if it has one."""
    if not path.parent.is_dir():
        return StoreUnavailable, f"there is no folder {path.parent}; make it first"
    if path.is_dir():
        return StoreUnavailable, "it is a folder; a file is needed"
    places = [place for place in (path.parent, path) if place.exists()]
    if not all(os.access(place, os.R_OK | os.W_OK) for place in places):
        return StoreFull, _NOT_WRITABLE
    return _NO_ROOM.get(lacking_room(path) or 0)


def lacking_room(file: Path) -> int | None:
    """Why nothing can be written to the file or its log, as an errno; None if it can.

    SQLite reports a full disk as such only if a write fails; if another call does, it is an I/O error. So the disk is asked,
    and a small file is written next to it: a quota is seen by that alone.
    """
    disk = os.statvfs(file.parent)
    if disk.f_bavail * disk.f_frsize < _LEAST_ROOM_BYTES:
        return errno.ENOSPC
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    longest = max((one.stat().st_size for one in (file, log_of(file)) if one.exists()), default=0)
    if limit != resource.RLIM_INFINITY and limit - longest < _LEAST_ROOM_BYTES:
        return errno.EFBIG
    return _refused(file.with_name(f"{file.name}.tried"))


def _refused(file: Path) -> int | None:
    """Why a new file cannot be written and synced; None if it can. Removes it again."""
    try:
        write_file(file, bytes(_LEAST_ROOM_BYTES))
    except OSError as error:
        return error.errno
    with suppress(OSError):
        file.unlink()
    return None


def identity_of(file: Path) -> dict[str, str]:
    """Return the identity with which the file must be opened. No process may have it open. Raises: StoreUnavailable."""
    return {name.removeprefix(IDENTITY): value for name, value in _facts(file).items() if name.startswith(IDENTITY)}


def _facts(file: Path) -> dict[str, str]:
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True, timeout=0)) as connection:
            return dict(SqliteRunner(connection).fetch(statements.FACTS))
    except sqlite3.Error as error:
        raise translated(file, error) from error


_TEXT = re.compile(rb"anabranch seal 1\nepoch ([0-9]+)\nbytes ([0-9]+)\ncrc32 ([0-9a-f]{8})\n")

Seal = tuple[int, bool]  #: (epoch, whether the file is unchanged)


def seal_of(database: Path) -> Path:
    """The file with the seal of a database."""
    return database.with_name(f"{database.name}.seal")


def read_seal(database: Path) -> Seal | None:
    """The seal, compared with the file; None if there is no readable one. Cost: reads the file, 1.3 s a GB.

    Not while this process has the database open: closing any descriptor of a file drops all locks that the process has on it.
    Raises: OSError.
    """
    try:
        seal = _TEXT.fullmatch(seal_of(database).read_bytes())
        return None if seal is None else (int(seal[1]), (int(seal[2]), int(seal[3], 16)) == size_and_crc(database))
    except FileNotFoundError:
        return None


def write_seal(database: Path, epoch: int) -> None:
    """Seal a file that the owner of this epoch has closed. Cost: as `read_seal`. Raises: OSError.

    It need not be durable: a seal that a power cut damages does not count.
    """
    seal = seal_of(database)
    unfinished = seal.with_name(f"{seal.name}.new")
    unfinished.write_bytes(b"anabranch seal 1\nepoch %d\nbytes %d\ncrc32 %08x\n" % (epoch, *size_and_crc(database)))
    unfinished.replace(seal)


@contextmanager
def sealed(database: Path) -> Iterator[None]:
    """While inside, this process and those that it starts are alone with a shared file; afterwards it has a seal.

    At both ends no process may have it open. Cost: reads the file twice. Raises: StoreDamaged if it is not as its seal says.
    """
    seal = read_seal(database)
    if seal is not None and not seal[1]:
        raise StoreDamaged(
            f"{database}: it is not what was written to it; restore it from a copy, and remove {seal_of(database).name} "
            "if that copy was made while the crawl ran"
        )
    seal_of(database).unlink(missing_ok=True)
    yield
    if database.exists() and not log_of(database).exists():  # the last connection has folded and removed it
        with suppress(OSError):
            write_seal(database, 0)


_HEADER = "anabranch owner 1"  # first line of the owner's file: its kind and version
_LONGEST = 1000  #: characters; a longer file is not ours


def owner_line(now_s: float) -> str:
    """The owner's line of this process: `process 4711 on host crawler-1 since 2026-11-21 21:03:02 UTC`."""
    since = datetime.fromtimestamp(now_s, UTC)
    return f"process {os.getpid()} on host {socket.gethostname()} since {since:%Y-%m-%d %H:%M:%S} UTC"


class OwnerFile:
    """The line in a small text file next to a database."""

    def __init__(self, database: Path) -> None:
        self._path = database.with_name(f"{database.name}.owner")

    def write(self, line: str) -> None:
        """Write it, with the lock held. Raises: OSError."""
        self._path.write_text(f"{_HEADER}\n{line}\n", encoding="utf-8")

    def read(self) -> str | None:
        """The line; None if there is no readable one."""
        try:
            with self._path.open(encoding="utf-8") as file:
                header, line, *_ = file.read(_LONGEST).split("\n")
        except (OSError, ValueError):
            return None
        return line if header == _HEADER and line else None

    def remove(self) -> None:
        """Remove it, with the lock held. A file that cannot be removed stays."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)


#: Rows that are counted when a file was not closed in order: five seconds at most.
CHECKED_ROWS = 1_000_000


class SqliteFile:
    """A crawl in a file of SQLite. Its connection has no other side, so it is never lost."""

    def __init__(self, path: Path, max_pages: int | None, *, is_shared: bool = False, has_log: bool = True) -> None:
        """`is_shared`: several processes of this machine have it open; `has_log`: as of `connected`."""
        self._path = path
        self._max_pages = max_pages
        self._is_shared = is_shared
        self._has_log = has_log
        self._owner = OwnerFile(path)
        self._closed: int | None = None  # the epoch of an owner that let go in order

    @property
    def place(self) -> str:
        """The path."""
        return str(self._path)

    @contextmanager
    def connected(self) -> Iterator[Connection]:
        """The one connection to the file, made if it is new.

        A file that was closed in order is compared with its seal, 1.3 s a GB; the rows of any other are counted, 5 µs each,
        if they are at most `CHECKED_ROWS`. Raises: StoreDamaged.
        """
        self._closed = None
        if self._is_shared:
            with connected(self._path, self._max_pages, is_shared=True, has_log=self._has_log) as connection:
                connection.rollback()
                yield connection
            return
        seal = read_seal(self._path)  # before the lock is taken: a changed epoch shows another owner
        with connected(self._path, self._max_pages) as connection:
            self._check(connection, seal)
            connection.rollback()
            yield connection
        self._seal()

    def _seal(self) -> None:
        if self._closed is not None:
            with suppress(OSError):  # without a seal the rows are counted at the next opening
                write_seal(self._path, self._closed)

    def _check(self, connection: Connection, seal: Seal | None) -> None:
        if not inspect(connection).has_table(CRAWL.name):
            return
        facts: dict[str, str] = dict(fetch(connection, statements.FACTS))
        if seal is not None and str(seal[0]) == facts.get("epoch"):
            if not seal[1]:
                raise StoreDamaged(
                    f"{self._path}: it is not what was written to it; restore it from a copy, and remove "
                    f"{seal_of(self._path).name} if that copy was made while the crawl ran: its rows are counted then"
                )
            return
        if facts.get("format") != FORMAT:
            return
        try:
            counters = counters_of(facts)
            if counters.accepted <= CHECKED_ROWS:
                recount(connection)
        except (InvariantBroken, ValueError, KeyError) as error:
            raise StoreDamaged(f"{self._path}: it is damaged ({error}); restore it from a copy") from error

    def is_lost(self, connection: Connection) -> bool:
        """Only if it was closed."""
        return connection.closed

    def announce(self, connection: Connection, owner: str) -> None:  # noqa: ARG002  a file needs no connection
        """Write it into a file next to the database. Workers have rows instead."""
        if not self._is_shared:
            try:
                self._owner.write(owner)
            except OSError as error:
                raise unwritable(self.place, error) from error

    def let_go(self, connection: Connection, *, clean: bool) -> None:
        """Fold the log into the file, if the end is clean; remove the owner's line."""
        if self._is_shared:
            return
        if clean:
            twice(lambda: fold_log(connection))
            self._closed = int(fetch(connection, statements.FACT, ("epoch",))[0][0])
        self._owner.remove()

    def session_of(self, connection: Connection) -> str:  # noqa: ARG002  a process has one
        """The process."""
        return str(os.getpid())

    def end_session(self, connection: Connection, session: str) -> None:
        """Nothing: a stopped process is ended by whoever started it."""

    def is_of_driver(self, error: Exception) -> bool:
        """It came from SQLite, through SQLAlchemy or by itself."""
        return isinstance(error, DBAPIError | sqlite3.Error)

    def translated(self, error: Exception) -> FrontierError:
        """Call the function `translated`; if the file is in use, the error names its owner, if that is known."""
        failure = translated(self._path, error)
        owner = self._owner.read() if isinstance(failure, StoreInUse) and failure is not error else None
        if owner is None:
            return failure
        return caused_by(StoreInUse(f"{self._path}: {owner} holds it; end that one first"), error)

    def is_passing(self, error: Exception) -> bool:
        """A full, read-only or failing disk may be repaired meanwhile; another worker ends its transaction."""
        code = primary_code(error)
        return code in _PASSING or (self._is_shared and code == sqlite3.SQLITE_BUSY)
