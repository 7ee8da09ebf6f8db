"""The payloads of earlier archives, by digest: those of their CDXJ files, taken into a table of the job once.

The table is a SQLite file in the job's state, which a later run, and the job's other processes, read as it is: a file of an
index is known by its name, size and time of change. If one of them has changed, or is no longer in the order, the table is made
anew, so that no revisit refers to what the archives no longer say that they have. Lines are taken in pieces, as they come, and
at the end sorted by digest into the table in one statement: a table by digest that grew piece by piece would write each of its
pages again and again. A kill before that costs the reading. A Bloom filter in memory answers for digests that no archive has;
the others are a read in a thread, of 60 µs or more.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from struct import Struct
from time import monotonic
from typing import BinaryIO, NamedTuple

import numpy as np
import structlog
from sqlalchemy import Connection

from anabranch.crawler.archive.cdxj import IndexFile, index_files, original_in
from anabranch.crawler.archive.databases import DATABASE_ERRORS, as_system_errors, connected, is_damaged, reason
from anabranch.crawler.archive.records import Original
from anabranch.crawler.outcomes.errors import StorageError, storage_errors
from anabranch.dedup.files.durable import descriptor
from anabranch.dedup.files.locks import wait_lock
from anabranch.frontier.cancellation import to_the_end

log = structlog.get_logger(__name__)

#: The version of the table's format; a table of another one is made anew.
VERSION = 1
#: Lines of an index that are in memory at once, and the longest line.
LINES_AT_ONCE = 20_000
_LINE_BYTES = 1 << 16
#: Between two lines about an index that takes long.
_PROGRESS_S = 10.0

#: Bits of the filter for each digest, and at most in all (128 MiB): beyond that it says yes more often.
_BITS = 16
_MOST_BITS = 1 << 30
_PLACES = Struct(">5I")

_TABLES = (
    "CREATE TABLE IF NOT EXISTS payload (digest BLOB PRIMARY KEY, url TEXT NOT NULL, date TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS taken (digest BLOB NOT NULL, url TEXT NOT NULL, date TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS source (name TEXT PRIMARY KEY, size INTEGER, changed INTEGER, payloads INTEGER NOT NULL)",
    f"PRAGMA user_version = {VERSION}",
)
#: Of records with the same payload the first counts that was read.
_KEEP = "INSERT OR IGNORE INTO payload SELECT digest, url, date FROM taken ORDER BY digest, rowid"
_CACHE = "PRAGMA cache_size = -16384"


async def open_earlier(table: Path, places: Sequence[str]) -> EarlierPayloads:
    """Open the table of these archives; read first what it lacks, with a line in the log each 10 s.

    Other processes of the job wait meanwhile. Memory: `LINES_AT_ONCE` lines, and the filter. Cost: 15 µs a line, once.
    Raises: OrderError, StorageError. A cancellation ends the reading at the next piece.
    """
    files = await asyncio.to_thread(index_files, places)
    with _table_errors(table), descriptor(table.with_name(f"{table.name}.lock"), os.O_RDWR | os.O_CREAT, 0o666) as lock:
        await to_the_end(asyncio.to_thread(wait_lock, lock))
        earlier = await to_the_end(asyncio.to_thread(EarlierPayloads, table, files))
        try:
            taken = {file: await _read(earlier, file) for file in earlier.lacking}
            await to_the_end(asyncio.to_thread(earlier.keep, taken))
        except BaseException:
            earlier.close()
            raise
    return earlier


async def _read(earlier: EarlierPayloads, file: IndexFile) -> int:
    """Take an index, piece by piece; returns the number of its payloads."""
    due_s, taken, unread, is_more = monotonic() + _PROGRESS_S, 0, 0, True
    with await asyncio.to_thread(Path(file.name).open, "rb") as lines:
        while is_more:
            piece = await to_the_end(asyncio.to_thread(earlier.take, lines))
            taken, unread, is_more = taken + piece.payloads, unread + piece.unread, piece.is_more
            if monotonic() >= due_s:
                due_s = monotonic() + _PROGRESS_S
                part = f"{lines.tell() / max(file.size, 1):.0%}"
                log.info("reading the index of an earlier archive", index=file.name, payloads=taken, read=part)
    log.info("the index of an earlier archive was read", index=file.name, payloads=taken)
    if unread:
        log.warning("lines of this index are not those of a CDXJ, and are left out", index=file.name, lines=unread)
    return taken


class Piece(NamedTuple):
    """A part of an index that was read."""

    payloads: int  #: lines of records that a revisit may refer to
    unread: int  #: lines that are not CDXJ
    is_more: bool


class EarlierPayloads:
    """The table, open. Raises: as SQLite, on opening."""

    def __init__(self, path: Path, files: Sequence[IndexFile]) -> None:
        """Keep of the table what these files are for; see `lacking`."""
        self._path = path
        self._using = threading.Lock()
        self._connection = connected(path, pragmas=(_CACHE,), begin=self._make_tables)
        with self._connection.begin():
            known = {
                IndexFile(*row) for row in self._connection.exec_driver_sql("SELECT name, size, changed FROM source")
            }
            if not known.issubset(files):
                self._remake(self._connection)
                known.clear()
        self.lacking = [file for file in files if file not in known]  #: files that are to be taken
        self._filter = DigestFilter(0)

    async def original(self, digest: bytes) -> Original | None:
        """The record that has this payload, if an archive has it. Cost: 1 µs, or a read in a thread if one may have it."""
        return await asyncio.to_thread(self._read, digest) if digest in self._filter else None

    def take(self, lines: BinaryIO) -> Piece:
        """Take the next lines of an index (blocks). Raises: as SQLite; OSError."""
        rows, unread, piece = [], 0, list(islice(_lines(lines), LINES_AT_ONCE))
        for line in piece:
            try:
                original = None if line.startswith(b"!") else original_in(line)
            except ValueError:
                unread += 1
                continue
            if original is not None:
                rows.append((original.digest, original.url, original.date))
        if rows:
            with self._connection.begin():
                self._connection.exec_driver_sql("INSERT INTO taken VALUES (?, ?, ?)", rows)
        return Piece(len(rows), unread, len(piece) == LINES_AT_ONCE)

    def keep(self, taken: Mapping[IndexFile, int]) -> None:
        """Keep what was taken of these files, with the number of their payloads, and make the filter (blocks).

        Cost: 0.5 µs a payload, 3 µs one that was taken.
        """
        with self._connection.begin():
            if taken:
                self._connection.exec_driver_sql(_KEEP)
                self._connection.exec_driver_sql("DROP TABLE taken")
                sources = [(*file, payloads) for file, payloads in taken.items()]
                self._connection.exec_driver_sql("INSERT INTO source VALUES (?, ?, ?, ?)", sources)
            keys = self._connection.exec_driver_sql("SELECT total(payloads) FROM source").scalar_one()
            self._filter = DigestFilter(int(keys))
            digests = self._connection.exec_driver_sql("SELECT digest FROM payload")
            while rows := digests.fetchmany(LINES_AT_ONCE):
                self._filter.add([row[0] for row in rows])

    def close(self) -> None:
        """Close the file. A second call does nothing."""
        with suppress(*DATABASE_ERRORS), self._using:
            self._connection.close()

    def _make_tables(self, connection: Connection) -> None:
        if connection.exec_driver_sql("PRAGMA user_version").scalar_one() not in {0, VERSION}:
            self._remake(connection)
        for statement in ("DROP TABLE IF EXISTS taken", *_TABLES):
            connection.exec_driver_sql(statement)

    @staticmethod
    def _remake(connection: Connection) -> None:
        for statement in (*(f"DROP TABLE IF EXISTS {table}" for table in ("payload", "source", "taken")), *_TABLES):
            connection.exec_driver_sql(statement)

    def _read(self, digest: bytes) -> Original | None:
        """None also if the file cannot be read: then the payload is written again."""
        try:
            with self._using, self._connection.begin():
                found = self._connection.exec_driver_sql("SELECT url, date FROM payload WHERE digest = ?", (digest,))
                row = found.fetchone()
        except DATABASE_ERRORS as error:
            log.warning("the payloads of earlier archives cannot be looked up", reason=reason(error))
            return None
        return None if row is None else Original(row[0], row[1], digest)


class DigestFilter:
    """A Bloom filter of SHA-1 digests. They are random, so their own bits are the five places of each: no other hash is needed.

    It says yes for one of 2,000 other digests, or fewer; for more than 64 M keys more often. Memory: 2 to 4 bytes a key.
    """

    def __init__(self, keys: int) -> None:
        bits = min(1 << max(_BITS * keys - 1, 7).bit_length(), _MOST_BITS)
        self._mask = bits - 1
        self._bits = np.zeros(bits // 8, dtype=np.uint8)

    def add(self, digests: Sequence[bytes]) -> None:
        """Add digests of 20 bytes."""
        places = np.frombuffer(b"".join(digests), dtype=">u4") & self._mask
        np.bitwise_or.at(self._bits, places >> 3, np.left_shift(1, places & 7).astype(np.uint8))

    def __contains__(self, digest: bytes) -> bool:
        for word in _PLACES.unpack(digest):
            place = word & self._mask
            if not self._bits[place >> 3] >> (place & 7) & 1:
                return False
        return True


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """The lines, those that are too long in pieces, which are no lines of a CDXJ."""
    while line := file.readline(_LINE_BYTES):
        yield line


@contextmanager
def _table_errors(path: Path) -> Iterator[None]:
    with storage_errors(path):
        try:
            with as_system_errors(path):
                yield
        except OSError as error:
            if is_damaged(error) and error.__cause__ is not None:
                advice = "remove it: it is made anew of the archives' indexes"
                raise StorageError(f"{path}: {reason(error.__cause__).lower()}; {advice}") from error
            raise
