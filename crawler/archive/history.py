"""The fetch history of a job: payloads by digest, for revisits, and the last fetch of a URL, for conditional requests.

A SQLite file. The journal's thread writes it, once a second or every few hundred rows, when the groups of visits with the
records that it refers to count. After a crash the last rows may be missing: then a payload is written twice, but no revisit
refers to a missing record. The newest entries are in memory. A Bloom filter holds the keys of evicted entries; only those are
looked up in the file, which is a read in a thread, of 60 µs or more. A file that did not fit into memory when it was opened is
always asked.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from http import HTTPStatus
from pathlib import Path
from sys import intern
from time import monotonic
from typing import Any, Generic, NamedTuple, TypeVar

import structlog
from sqlalchemy import Connection

from anabranch.crawler.archive.databases import DATABASE_ERRORS, as_system_errors, connected, is_damaged, reason
from anabranch.crawler.archive.records import Exchange, Original, RecordLocation
from anabranch.crawler.archive.sink import JournalEntry, JournalSink
from anabranch.crawler.fetch.options import Validators
from anabranch.crawler.outcomes.errors import ExitCode, StorageError, storage_error

log = structlog.get_logger(__name__)

#: The version of the file's format.
VERSION = 2
#: Entries held in memory, and the longest text of an entry that is held.
PAYLOADS_HELD = 30_000
FETCHES_HELD = 15_000
_HELD_CHARS = 1024
#: The number of evicted keys for which the first Bloom filter is made; bits and places of each key.
_EVICTED_FIRST = 1 << 16
_EVICTED_BITS = 12
_EVICTED_PLACES = 5
#: The file is written when so many rows are pending, or so long after the last time.
WRITTEN_ROWS = 256
WRITTEN_S = 1.0
#: Rows that may be pending while the file cannot be written; beyond that the oldest are dropped.
_MAX_PENDING = 20_000
#: A longer value of a header field is not remembered.
_FIELD_CHARS = 1024

#: Advice for a damaged file.
ADVICE = "remove it and what begins with its name: payloads that are archived already are then written again"

#: More pages in memory than SQLite's default: digests arrive in random order.
_CACHE = "PRAGMA cache_size = -4096"
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

_ADD_PAYLOAD = "INSERT OR IGNORE INTO payload VALUES (?, ?, ?, ?, ?)"
_ADD_FETCHED = "INSERT OR REPLACE INTO fetched VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_GET_PAYLOAD = "SELECT * FROM payload WHERE digest = ?"
_GET_FETCHED = "SELECT * FROM fetched WHERE url = ?"
_SOME_PAYLOADS = "SELECT * FROM payload LIMIT ?"
_SOME_FETCHED = "SELECT * FROM fetched LIMIT ?"

_Key = TypeVar("_Key", bytes, str)
_Value = TypeVar("_Value")


class PayloadsDamaged(StorageError):
    """The file is not what was written to it, or has another version."""

    exit_code = ExitCode.BAD_ORDER


class Fetched(NamedTuple):
    """The last fetch of a URL."""

    validators: Validators
    original: Original  #: the record with its payload
    place: RecordLocation  #: the record of the fetch, with its header: the same, or a revisit


class FetchHistory(JournalSink):
    """The history of the job's fetches. A sink of the journal, after the WARC files. Opening raises: StorageError."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._payloads: _Newest[bytes, Original] = _Newest(PAYLOADS_HELD)
        self._fetches: _Newest[str, Fetched] = _Newest(FETCHES_HELD)
        self._appended: tuple[list[_PayloadRow], list[_FetchedRow]] = [], []  # of this group
        self._pending: tuple[list[_PayloadRow], list[_FetchedRow]] = [], []  # kept and not yet written
        self._shared: JournalSink | None = None
        self._is_failing = False
        self._due_s = 0.0  # rows that are kept after this time are written with the next group
        self._reading = threading.Lock()
        with _storage_errors(path):
            self._writer = connected(path, pragmas=(_CACHE,), begin=self._make_tables)
            try:
                # The file's entries are held in memory, if they fit.
                with self._writer.begin():
                    payloads = self._writer.exec_driver_sql(_SOME_PAYLOADS, (PAYLOADS_HELD + 1,)).fetchall()
                    fetches = self._writer.exec_driver_sql(_SOME_FETCHED, (FETCHES_HELD + 1,)).fetchall()
                self._hold([_PayloadRow(*row) for row in payloads], [_FetchedRow(*row) for row in fetches])
                if len(payloads) > PAYLOADS_HELD:
                    self._payloads.expect_more()
                if len(fetches) > FETCHES_HELD:
                    self._fetches.expect_more()
                self._reader = connected(path, is_reader=True, pragmas=(_CACHE,))
            except BaseException:
                self._writer.close()
                raise

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

    def share(self, others: JournalSink) -> None:
        """Give each group to this sink, too, from now on: with the groups that count, others learn of the payloads."""
        self._shared = others

    async def original(self, digest: bytes) -> Original | None:
        """The record that has this payload, if known. Cost: O(1), or a read in a thread if only the file may have it."""
        known = self._payloads.get(digest)
        if known is not None or not self._payloads.may_be_evicted(digest):
            return known
        row = await asyncio.to_thread(self._read, _GET_PAYLOAD, digest)
        return None if row is None else _PayloadRow(*row).original

    async def fetched(self, url: str) -> Fetched | None:
        """The last fetch of the URL that has validators, if known. Cost: as `original`."""
        known = self._fetches.get(url)
        if known is not None or not self._fetches.may_be_evicted(url):
            return known
        row = await asyncio.to_thread(self._read, _GET_FETCHED, url)
        return None if row is None else _FetchedRow(*row).fetched

    def append(self, entries: Sequence[JournalEntry]) -> None:
        """Note the exchanges that were written. Nothing is written here before all sinks have the group."""
        if self._shared is not None:
            self._shared.append(entries)
        payloads, fetches = self._appended = [], []
        for entry in entries:
            if entry.exchange is not None and entry.place is not None:
                payload, fetch = _rows_of(entry.exchange, entry.place)
                if payload is not None:
                    payloads.append(payload)
                if fetch is not None:
                    fetches.append(fetch)

    def keep(self) -> None:
        """Remember the exchanges, in memory at once, in the file soon. If that cannot be written now, the rows wait."""
        if self._shared is not None:
            self._shared.keep()
        are_held = self._hold(*self._appended)
        self._pending[0].extend(self._appended[0])
        self._pending[1].extend(self._appended[1])
        self._appended = [], []
        if not are_held or max(len(rows) for rows in self._pending) >= WRITTEN_ROWS or monotonic() >= self._due_s:
            self._write()

    def take_back(self) -> None:
        """Forget what was appended."""
        if self._shared is not None:
            self._shared.take_back()
        self._appended = [], []

    def close(self) -> None:
        """Write pending rows and close the file. A second call does nothing."""
        if not self._writer.closed:
            self._write()
        with suppress(*DATABASE_ERRORS), self._reading:
            self._reader.close()
            self._writer.close()

    def _make_tables(self, writer: Connection) -> None:
        """Raises: PayloadsDamaged for a file of another version."""
        version = writer.exec_driver_sql("PRAGMA user_version").scalar_one()
        if version not in {0, VERSION}:
            raise PayloadsDamaged(f"{self._path}: written in version {version}, this one reads {VERSION}; {ADVICE}")
        for statement in (_PAYLOAD, _FETCHED, f"PRAGMA user_version = {VERSION}"):
            writer.exec_driver_sql(statement)

    def _hold(self, payloads: Sequence[_PayloadRow], fetches: Sequence[_FetchedRow]) -> bool:
        """Hold them in memory; False if one is too long for it."""
        held = [self._payloads.put(row.digest, row.original, len(row.url)) for row in payloads]
        held += [self._fetches.put(row.url, row.fetched, row.chars) for row in fetches]
        return all(held)

    def _write(self) -> None:
        """Write the pending rows. While that fails they stay pending, up to a number."""
        try:
            with self._writer.begin() if any(self._pending) else nullcontext():
                for statement, rows in ((_ADD_PAYLOAD, self._pending[0]), (_ADD_FETCHED, self._pending[1])):
                    if rows:
                        self._writer.exec_driver_sql(statement, list(rows))
        except DATABASE_ERRORS as error:
            if not self._is_failing:
                log.warning("payloads cannot be remembered now; some may be written twice", reason=reason(error))
            self._is_failing = True
            for rows in self._pending:
                del rows[:-_MAX_PENDING]
            return
        self._is_failing = False
        self._pending = [], []
        self._due_s = monotonic() + WRITTEN_S

    def _read(self, statement: str, key: bytes | str) -> Sequence[Any] | None:
        """One row. None also if the file cannot be read: then the payload is written again."""
        try:
            with self._reading, self._reader.begin():
                return self._reader.exec_driver_sql(statement, (key,)).fetchone()
        except DATABASE_ERRORS as error:
            log.warning("a payload's record cannot be looked up", reason=reason(error))
            return None


class _PayloadRow(NamedTuple):
    """A row of the table `payload`."""

    digest: bytes
    url: str
    date: str
    filename: str
    offset: int

    @property
    def original(self) -> Original:
        return Original(self.url, self.date, self.digest, RecordLocation(intern(self.filename), self.offset))


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
        place = RecordLocation(intern(self.original_filename), self.original_offset)
        original = Original(self.original, self.date, self.digest, place)
        return Fetched(
            Validators(self.etag, self.modified), original, RecordLocation(intern(self.filename), self.offset)
        )

    @property
    def chars(self) -> int:
        return len(self.url) + len(self.etag) + len(self.modified) + len(self.original)


def _rows_of(exchange: Exchange, place: RecordLocation) -> tuple[_PayloadRow | None, _FetchedRow | None]:
    """The rows that a later revisit and a later request may refer to: of a whole payload that was written or can be found."""
    if not exchange.may_be_original:
        return None, None
    response, revisit, date = exchange.response, exchange.revisit, exchange.date
    payload = None if revisit else _PayloadRow(response.body.digest, exchange.url, date, *place)
    if response.status != HTTPStatus.OK:
        return payload, None
    etag, modified = _field(exchange, b"etag"), _field(exchange, b"last-modified")
    original = revisit.original if revisit else Original(exchange.url, date, response.body.digest, place)
    if original.place is None or not (etag or modified):
        return payload, None
    fetched = _FetchedRow(
        exchange.url, etag, modified, *place, original.url, original.date, original.digest, *original.place
    )
    return payload, fetched


def _field(exchange: Exchange, wanted: bytes) -> str:
    """A field's first value if it can be sent back unchanged (printable ASCII), else the empty text."""
    found = next((value for name, value in exchange.response.raw_headers if name.lower() == wanted), b"").strip()
    text = found.decode("ascii", "replace")
    return text if text.isprintable() and text.isascii() and len(text) <= _FIELD_CHARS else ""


class _Newest(Generic[_Key, _Value]):
    """The newest entries, up to a number. Two threads use it."""

    def __init__(self, capacity: int) -> None:
        self._is_partial = False  # the file has entries that were never put here
        self._evicted = _EvictedKeys()
        self._capacity = capacity
        self._entries: OrderedDict[_Key, _Value] = OrderedDict()
        self._lock = threading.Lock()

    def expect_more(self) -> None:
        """The file has entries that are not put here: any key may be evicted."""
        self._is_partial = True

    def get(self, key: _Key) -> _Value | None:
        with self._lock:
            return self._entries.get(key)

    def may_be_evicted(self, key: _Key) -> bool:
        """An entry of this key may be in the file and not here."""
        with self._lock:
            return self._is_partial or key in self._evicted

    def put(self, key: _Key, value: _Value, chars: int) -> bool:
        """Hold an entry; False if it is too long, so that the file alone has it."""
        with self._lock:
            self._entries.pop(key, None)
            if chars > _HELD_CHARS:
                self._evicted.add(key)
                return False
            self._entries[key] = value
            if len(self._entries) > self._capacity:
                self._evicted.add(self._entries.popitem(last=False)[0])
        return True


class _EvictedKeys:
    """A set of keys; each of its filters says yes for up to 0.5 % of other keys, too. Memory: 1.5 to 3 bytes a key.

    Bloom filters, each for twice as many keys as the one before (Almeida et al. 2007). The places of a key come from one hash
    of 64 bits (Kirsch and Mitzenmacher 2006): that of Python, so nothing here outlives the process. O(1) a key and filter.
    The filters of `dedup` have a folder and are made for many keys at once.
    """

    def __init__(self) -> None:
        self._filters: list[bytearray] = []
        self._room = 0  #: keys that the last filter can still take

    def add(self, key: bytes | str) -> None:
        if key in self:
            return
        if not self._room:
            self._room = _EVICTED_FIRST << len(self._filters)
            self._filters.append(bytearray(self._room * _EVICTED_BITS // 8))
        self._room -= 1
        bits = self._filters[-1]
        for place in _places(key, 8 * len(bits)):
            bits[place >> 3] |= 1 << (place & 7)

    def __contains__(self, key: bytes | str) -> bool:
        return any(
            all(bits[place >> 3] & 1 << (place & 7) for place in _places(key, 8 * len(bits))) for bits in self._filters
        )


def _places(key: bytes | str, size: int) -> list[int]:
    found = hash(key)
    step = found >> 32 | 1
    return [(found + number * step) % size for number in range(_EVICTED_PLACES)]


@contextmanager
def _storage_errors(path: Path) -> Iterator[None]:
    try:
        with as_system_errors(path):
            yield
    except OSError as error:
        if is_damaged(error) and error.__cause__ is not None:
            raise PayloadsDamaged(f"{path}: {reason(error.__cause__).lower()}; {ADVICE}") from error
        raise storage_error(error, path) from error
