"""What was fetched before: payloads by digest, for revisits, and the last fetch of a URL, for conditional requests.

A file of the job's state, written by the journal's thread after the records it speaks of are durable. After a crash it may miss
the last ones: that costs a payload written twice, never a revisit of a record that is not there. Most questions are answered
from memory: the newest entries are kept, and as long as these are all, the file is not asked.
"""

from __future__ import annotations

import asyncio
import errno
import os
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from http import HTTPStatus
from pathlib import Path
from sys import intern
from typing import Any, Generic, NamedTuple, TypeVar

import structlog
from sqlalchemy import URL, Connection, Engine, NullPool, create_engine, event
from sqlalchemy.exc import DBAPIError

from crawler.archiving.records import Exchange, Original, Place
from crawler.fetching.options import Validators
from crawler.jobs.journal import Entry
from crawler.outcomes.errors import StorageError, storage_error

log = structlog.get_logger(__name__)

VERSION = 2

#: Entries held in memory; one of long texts is not held.
PAYLOADS_HELD = 30_000
FETCHES_HELD = 15_000
_HELD_CHARS = 1024
#: Rows that may wait while the file cannot be written; beyond, the oldest are forgotten.
_MAX_PENDING = 20_000

_PAYLOAD = """
    CREATE TABLE IF NOT EXISTS payload (
        digest BLOB PRIMARY KEY, url TEXT NOT NULL, date TEXT NOT NULL, filename TEXT NOT NULL, offset INTEGER NOT NULL
    ) WITHOUT ROWID
"""
_FETCHED = """
    CREATE TABLE IF NOT EXISTS fetched (
        url TEXT PRIMARY KEY, etag TEXT NOT NULL, modified TEXT NOT NULL, filename TEXT NOT NULL, offset INTEGER NOT NULL,
        original TEXT NOT NULL, date TEXT NOT NULL, digest BLOB NOT NULL,
        original_filename TEXT NOT NULL, original_offset INTEGER NOT NULL
    ) WITHOUT ROWID
"""
#: Not FULL: what a power failure takes back is only forgotten.
_SETTINGS = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = NORMAL",
    "PRAGMA mmap_size = 0",
    "PRAGMA cache_size = -4096",
)

_ADD_PAYLOAD = "INSERT OR IGNORE INTO payload VALUES (?, ?, ?, ?, ?)"
_ADD_FETCHED = "INSERT OR REPLACE INTO fetched VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_GET_PAYLOAD = "SELECT * FROM payload WHERE digest = ?"
_SOME_PAYLOADS = "SELECT * FROM payload LIMIT ?"
_SOME_FETCHED = "SELECT * FROM fetched LIMIT ?"
_GET_FETCHED = "SELECT * FROM fetched WHERE url = ?"

_ADVICE = "remove it and what begins with its name: payloads that are archived already are then written again"
_ERRNOS = {
    sqlite3.SQLITE_FULL: errno.ENOSPC,
    sqlite3.SQLITE_READONLY: errno.EROFS,
    sqlite3.SQLITE_CANTOPEN: errno.EACCES,
}

_Key = TypeVar("_Key", bytes, str)
_Value = TypeVar("_Value")


class Fetched(NamedTuple):
    """The last fetch of a URL."""

    validators: Validators
    original: Original  #: the record with its payload
    place: Place  #: the record of the fetch, with its header: the same, or a revisit


class Payloads:
    """The job's memory of payloads; a sink of the journal, behind the WARC files. Raises: StorageError from opening."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._payloads: _Newest[bytes, Original] = _Newest(PAYLOADS_HELD)
        self._fetches: _Newest[str, Fetched] = _Newest(FETCHES_HELD)
        self._appended = _Rows([], [])  # of this group
        self._pending = _Rows([], [])  # what is kept and not yet written
        self._is_failing = False
        self._reading = threading.Lock()
        self._engine = _engine(path)
        with _storage_errors(path):
            self._writer = self._engine.connect()
            try:
                _prepare(self._writer, path)
                self._hold_newest()
                self._reader = self._engine.connect()
            except BaseException:
                self._writer.close()
                raise

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

    async def original(self, digest: bytes) -> Original | None:
        """The record that has this payload, if one is known. Cost: O(1), or a read off the loop if not all is in memory."""
        known = self._payloads.get(digest)
        if known is not None or self._payloads.has_all:
            return known
        row = await asyncio.to_thread(self._read, _GET_PAYLOAD, digest)
        return None if row is None else _PayloadRow(*row).original

    async def fetched(self, url: str) -> Fetched | None:
        """The last fetch of the URL that can be asked about, if one is known. Cost: as `original`."""
        known = self._fetches.get(url)
        if known is not None or self._fetches.has_all:
            return known
        row = await asyncio.to_thread(self._read, _GET_FETCHED, url)
        return None if row is None else _FetchedRow(*row).fetched

    def append(self, entries: Sequence[Entry]) -> None:
        """Note the exchanges that were written; nothing is written here before all sinks have theirs."""
        written = [(entry.exchange, entry.place) for entry in entries if entry.exchange and entry.place]
        payloads = (_payload_row(exchange, place) for exchange, place in written)
        fetches = (_fetched_row(exchange, place) for exchange, place in written)
        self._appended = _Rows([row for row in payloads if row], [row for row in fetches if row])

    def keep(self) -> None:
        """Remember the exchanges. If the file cannot be written now, they wait for the next group."""
        self._pending = rows = self._pending.and_then(self._appended)
        self._appended = _Rows([], [])
        try:
            with self._writer.begin() if any(rows) else nullcontext():
                _insert(self._writer, _ADD_PAYLOAD, rows.payloads)
                _insert(self._writer, _ADD_FETCHED, rows.fetches)
        except (DBAPIError, sqlite3.Error) as error:
            self._wait(error)
            return
        self._is_failing = False
        self._pending = _Rows([], [])
        self._hold(rows)

    def take_back(self) -> None:
        """Forget what was appended."""
        self._appended = _Rows([], [])

    def close(self) -> None:
        """Close the file. A second call does nothing."""
        with suppress(DBAPIError, sqlite3.Error), self._reading:
            self._reader.close()
            self._writer.close()

    def _hold(self, rows: _Rows) -> None:
        for payload in rows.payloads:
            self._payloads.put(payload.digest, payload.original, len(payload.url))
        for fetch in rows.fetches:
            self._fetches.put(fetch.url, fetch.fetched, fetch.chars)

    def _wait(self, error: Exception) -> None:
        if not self._is_failing:
            log.warning("payloads cannot be remembered now; some may be written twice", reason=_first_line(error))
        self._is_failing = True
        for rows in self._pending:
            del rows[:-_MAX_PENDING]

    def _read(self, statement: str, key: bytes | str) -> Sequence[Any] | None:
        """One row; None also if the file cannot be read: then the payload is written again."""
        try:
            with self._reading, self._reader.begin():
                return self._reader.exec_driver_sql(statement, (key,)).fetchone()
        except (DBAPIError, sqlite3.Error) as error:
            log.warning("a payload's record cannot be looked up", reason=_first_line(error))
            return None

    def _hold_newest(self) -> None:
        """Take into memory what is in the file, if it fits."""
        with self._writer.begin():
            payloads = self._writer.exec_driver_sql(_SOME_PAYLOADS, (PAYLOADS_HELD + 1,)).fetchall()
            fetches = self._writer.exec_driver_sql(_SOME_FETCHED, (FETCHES_HELD + 1,)).fetchall()
        self._hold(_Rows([_PayloadRow(*row) for row in payloads], [_FetchedRow(*row) for row in fetches]))


class _PayloadRow(NamedTuple):
    """A row of the table `payload`."""

    digest: bytes
    url: str
    date: str
    filename: str
    offset: int

    @property
    def original(self) -> Original:
        return Original(self.url, self.date, self.digest, Place(intern(self.filename), self.offset))


class _FetchedRow(NamedTuple):
    """A row of the table `fetched`."""

    url: str
    etag: str
    modified: str
    filename: str
    offset: int
    original: str
    date: str
    digest: bytes
    original_filename: str
    original_offset: int

    @property
    def fetched(self) -> Fetched:
        written = Place(intern(self.original_filename), self.original_offset)
        original = Original(self.original, self.date, self.digest, written)
        return Fetched(Validators(self.etag, self.modified), original, Place(intern(self.filename), self.offset))

    @property
    def chars(self) -> int:
        return len(self.url) + len(self.etag) + len(self.modified) + len(self.original)


class _Rows(NamedTuple):
    """Rows of both tables."""

    payloads: list[_PayloadRow]
    fetches: list[_FetchedRow]

    def and_then(self, more: _Rows) -> _Rows:
        return _Rows(self.payloads + more.payloads, self.fetches + more.fetches)


class _Newest(Generic[_Key, _Value]):
    """The entries put last, up to a number; used from two threads."""

    def __init__(self, capacity: int) -> None:
        self.has_all = True  #: nothing that was put is missing
        self._capacity = capacity
        self._entries: OrderedDict[_Key, _Value] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: _Key) -> _Value | None:
        with self._lock:
            return self._entries.get(key)

    def put(self, key: _Key, value: _Value, chars: int) -> None:
        with self._lock:
            self._entries.pop(key, None)
            if chars > _HELD_CHARS:
                self.has_all = False
                return
            self._entries[key] = value
            if len(self._entries) > self._capacity:
                self._entries.popitem(last=False)
                self.has_all = False


def _payload_row(exchange: Exchange, place: Place) -> _PayloadRow | None:
    """What a later revisit may stand for: a whole payload that was written."""
    if exchange.revisit is not None or not exchange.may_be_original:
        return None
    return _PayloadRow(exchange.response.body.digest, exchange.url, exchange.date, *place)


def _fetched_row(exchange: Exchange, place: Place) -> _FetchedRow | None:
    """What may be asked about later: a whole representation that has a validator, and whose payload can be found."""
    answer, revisit = exchange.response, exchange.revisit
    if answer.status != HTTPStatus.OK or not exchange.may_be_original:
        return None
    etag, modified = _field(exchange, b"etag"), _field(exchange, b"last-modified")
    if not etag and not modified:
        return None
    original = Original(exchange.url, exchange.date, answer.body.digest, place) if revisit is None else revisit.original
    if original.place is None:
        return None
    return _FetchedRow(
        exchange.url, etag, modified, *place, original.url, original.date, original.digest, *original.place
    )


def _field(exchange: Exchange, wanted: bytes) -> str:
    """A field's first value, if it can be sent back as it is: printable ASCII; else nothing."""
    found = next((value for name, value in exchange.response.raw_headers if name.lower() == wanted), b"").strip()
    text = found.decode("ascii", "replace")
    return text if text.isprintable() and text.isascii() and len(text) <= _HELD_CHARS else ""


def _insert(connection: Connection, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
    if rows:
        connection.exec_driver_sql(statement, list(rows))


def _first_line(error: Exception) -> str:
    return str(error).split("\n")[0]


def _engine(path: Path) -> Engine:
    # Reader and writer are each used by one thread at a time, but not always the same.
    engine = create_engine(
        URL.create("sqlite", database=str(path)), poolclass=NullPool, connect_args={"check_same_thread": False}
    )
    event.listen(engine, "connect", _leave_transactions_to_us)
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
    return engine


def _leave_transactions_to_us(driver: sqlite3.Connection, _record: object) -> None:
    driver.isolation_level = None
    for setting in _SETTINGS:
        driver.execute(setting)


def _prepare(connection: Connection, path: Path) -> None:
    """Make the tables. Raises: StorageError for a file of another version."""
    with connection.begin():
        version = connection.exec_driver_sql("PRAGMA user_version").scalar_one()
        if version not in {0, VERSION}:
            raise StorageError(f"{path}: written in version {version}, this one reads {VERSION}; {_ADVICE}")
        for table in (_PAYLOAD, _FETCHED):
            connection.exec_driver_sql(table)
        connection.exec_driver_sql(f"PRAGMA user_version = {VERSION}")


@contextmanager
def _storage_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (DBAPIError, sqlite3.Error) as error:
        cause = error.orig if isinstance(error, DBAPIError) else error
        raise _error_of(path, cause) from error


def _error_of(path: Path, cause: BaseException | None) -> StorageError:
    """What SQLite's primary result code means (https://www.sqlite.org/rescode.html)."""
    code = getattr(cause, "sqlite_errorcode", sqlite3.SQLITE_IOERR) & 0xFF
    if code in _ERRNOS:
        return storage_error(OSError(_ERRNOS[code], os.strerror(_ERRNOS[code])), path)
    return StorageError(f"{path}: {str(cause).lower()}; {_ADVICE}")
