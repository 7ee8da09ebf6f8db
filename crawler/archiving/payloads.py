"""What was fetched before: payloads by digest, for revisits, and the last fetch of a URL, for conditional requests.

A file of the job's state, written by the journal's thread after the records it speaks of are durable, once a second or with
many. After a crash it may miss the last ones: that costs a payload written twice, never a revisit of a record that is not
there. Most questions are answered from memory: the newest entries are kept, and as long as these are all, the file is not
asked.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from time import monotonic
from typing import Any, Generic, TypeVar

import structlog

from anabranch.crawler.archiving.exchanges import Original
from anabranch.crawler.archiving.payload_rows import (
    ADVICE,
    GET_FETCHED,
    GET_PAYLOAD,
    SOME_FETCHED,
    SOME_PAYLOADS,
    Fetched,
    FetchedRow,
    PayloadRow,
    PayloadsDamaged,
    Rows,
    fetched_row,
    make_tables,
    payload_row,
)
from anabranch.crawler.jobs.databases import DATABASE_ERRORS, as_system_errors, engine_for, is_damaged, reason
from anabranch.crawler.jobs.journal import Entry
from anabranch.crawler.outcomes.errors import storage_error

log = structlog.get_logger(__name__)

#: Entries held in memory; one of long texts is not held.
PAYLOADS_HELD = 30_000
FETCHES_HELD = 15_000
_HELD_CHARS = 1024
#: The file is written when so many rows wait for it, or so long after the last time.
WRITTEN_ROWS = 256
WRITTEN_S = 1.0
#: Rows that may wait while the file cannot be written; beyond, the oldest are forgotten.
_MAX_PENDING = 20_000


#: More pages in memory than SQLite takes by itself: digests come in no order.
_CACHE = "PRAGMA cache_size = -4096"

_Key = TypeVar("_Key", bytes, str)
_Value = TypeVar("_Value")


class Payloads:
    """The job's memory of payloads; a sink of the journal, behind the WARC files. Raises: StorageError from opening."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._payloads: _Newest[bytes, Original] = _Newest(PAYLOADS_HELD)
        self._fetches: _Newest[str, Fetched] = _Newest(FETCHES_HELD)
        self._appended = Rows([], [])  # of this group
        self._pending = Rows([], [])  # what is kept and not yet written
        self._is_failing = False
        self._due_s = 0.0  # what is kept then is written with the next group
        self._reading = threading.Lock()
        with _storage_errors(path):
            self._writer = engine_for(path, pragmas=(_CACHE,)).connect()
            try:
                make_tables(self._writer, path)
                self._hold_newest()
                self._reader = engine_for(path, is_reader=True, pragmas=(_CACHE,)).connect()
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
        row = await asyncio.to_thread(self._read, GET_PAYLOAD, digest)
        return None if row is None else PayloadRow(*row).original

    async def fetched(self, url: str) -> Fetched | None:
        """The last fetch of the URL that can be asked about, if one is known. Cost: as `original`."""
        known = self._fetches.get(url)
        if known is not None or self._fetches.has_all:
            return known
        row = await asyncio.to_thread(self._read, GET_FETCHED, url)
        return None if row is None else FetchedRow(*row).fetched

    def append(self, entries: Sequence[Entry]) -> None:
        """Note the exchanges that were written; nothing is written here before all sinks have theirs."""
        written = [(entry.exchange, entry.place) for entry in entries if entry.exchange and entry.place]
        payloads = (payload_row(exchange, place) for exchange, place in written)
        fetches = (fetched_row(exchange, place) for exchange, place in written)
        self._appended = Rows([row for row in payloads if row], [row for row in fetches if row])

    def keep(self) -> None:
        """Remember the exchanges: in memory at once, in the file soon. If it cannot be written now, they wait longer."""
        appended, self._appended = self._appended, Rows([], [])
        self._pending = self._pending.and_then(appended)
        are_held = self._hold(appended)
        if not are_held or max(len(rows) for rows in self._pending) >= WRITTEN_ROWS or monotonic() >= self._due_s:
            self._write()

    def take_back(self) -> None:
        """Forget what was appended."""
        self._appended = Rows([], [])

    def close(self) -> None:
        """Write what waits, and close the file. A second call does nothing."""
        if not self._writer.closed:
            self._write()
        with suppress(*DATABASE_ERRORS), self._reading:
            self._reader.close()
            self._writer.close()

    def _write(self) -> None:
        rows = self._pending
        try:
            with self._writer.begin() if any(rows) else nullcontext():
                rows.write(self._writer)
        except DATABASE_ERRORS as error:
            self._wait(error)
            return
        self._is_failing = False
        self._pending = Rows([], [])
        self._due_s = monotonic() + WRITTEN_S

    def _hold(self, rows: Rows) -> bool:
        """Take them into memory; False if one is too long for it."""
        held = [self._payloads.put(row.digest, row.original, len(row.url)) for row in rows.payloads]
        held += [self._fetches.put(row.url, row.fetched, row.chars) for row in rows.fetches]
        return all(held)

    def _wait(self, error: Exception) -> None:
        if not self._is_failing:
            log.warning("payloads cannot be remembered now; some may be written twice", reason=reason(error))
        self._is_failing = True
        for rows in self._pending:
            del rows[:-_MAX_PENDING]

    def _read(self, statement: str, key: bytes | str) -> Sequence[Any] | None:
        """One row; None also if the file cannot be read: then the payload is written again."""
        try:
            with self._reading, self._reader.begin():
                return self._reader.exec_driver_sql(statement, (key,)).fetchone()
        except DATABASE_ERRORS as error:
            log.warning("a payload's record cannot be looked up", reason=reason(error))
            return None

    def _hold_newest(self) -> None:
        """Take into memory what is in the file, if it fits."""
        with self._writer.begin():
            payloads = self._writer.exec_driver_sql(SOME_PAYLOADS, (PAYLOADS_HELD + 1,)).fetchall()
            fetches = self._writer.exec_driver_sql(SOME_FETCHED, (FETCHES_HELD + 1,)).fetchall()
        self._hold(Rows([PayloadRow(*row) for row in payloads], [FetchedRow(*row) for row in fetches]))


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

    def put(self, key: _Key, value: _Value, chars: int) -> bool:
        with self._lock:
            self._entries.pop(key, None)
            if chars > _HELD_CHARS:
                self.has_all = False
                return False
            self._entries[key] = value
            if len(self._entries) > self._capacity:
                self._entries.popitem(last=False)
                self.has_all = False
        return True


@contextmanager
def _storage_errors(path: Path) -> Iterator[None]:
    try:
        with as_system_errors(path):
            yield
    except OSError as error:
        if is_damaged(error) and error.__cause__ is not None:
            raise PayloadsDamaged(f"{path}: {reason(error.__cause__).lower()}; {ADVICE}") from error
        raise storage_error(error, path) from error
