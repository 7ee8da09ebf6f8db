"""The rows of the memory of payloads: its two tables, the statements on them, and what an exchange adds."""

from __future__ import annotations

from http import HTTPStatus
from pathlib import Path
from sys import intern
from typing import NamedTuple

from sqlalchemy import Connection

from anabranch.crawler.archiving.exchanges import Exchange, Original, Place
from anabranch.crawler.fetching.options import Validators
from anabranch.crawler.outcomes.errors import StorageError
from anabranch.crawler.outcomes.exits import ExitCode

VERSION = 2

#: What is wrong with a file is mended by having none.
ADVICE = "remove it and what begins with its name: payloads that are archived already are then written again"

#: A longer value of a header field is not remembered.
_FIELD_CHARS = 1024

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
GET_PAYLOAD = "SELECT * FROM payload WHERE digest = ?"
SOME_PAYLOADS = "SELECT * FROM payload LIMIT ?"
SOME_FETCHED = "SELECT * FROM fetched LIMIT ?"
GET_FETCHED = "SELECT * FROM fetched WHERE url = ?"


class PayloadsDamaged(StorageError):
    """The file is not what was written to it, or is of another version."""

    exit_code = ExitCode.BAD_ORDER


class Fetched(NamedTuple):
    """The last fetch of a URL."""

    validators: Validators
    original: Original  #: the record with its payload
    place: Place  #: the record of the fetch, with its header: the same, or a revisit


class PayloadRow(NamedTuple):
    """A row of the table `payload`."""

    digest: bytes
    url: str
    date: str
    filename: str
    offset: int

    @property
    def original(self) -> Original:
        """The record that has the payload."""
        return Original(self.url, self.date, self.digest, Place(intern(self.filename), self.offset))


class FetchedRow(NamedTuple):
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
        """What is known of the URL."""
        written = Place(intern(self.original_filename), self.original_offset)
        original = Original(self.original, self.date, self.digest, written)
        return Fetched(Validators(self.etag, self.modified), original, Place(intern(self.filename), self.offset))

    @property
    def chars(self) -> int:
        """How much text it holds."""
        return len(self.url) + len(self.etag) + len(self.modified) + len(self.original)


class Rows(NamedTuple):
    """Rows of both tables."""

    payloads: list[PayloadRow]
    fetches: list[FetchedRow]

    def and_then(self, more: Rows) -> Rows:
        """These, and then more."""
        return Rows(self.payloads + more.payloads, self.fetches + more.fetches)

    def write(self, connection: Connection) -> None:
        """Add them to the tables."""
        for statement, rows in ((_ADD_PAYLOAD, self.payloads), (_ADD_FETCHED, self.fetches)):
            if rows:
                connection.exec_driver_sql(statement, list(rows))


def payload_row(exchange: Exchange, place: Place) -> PayloadRow | None:
    """What a later revisit may stand for: a whole payload that was written."""
    if exchange.revisit is not None or not exchange.may_be_original:
        return None
    return PayloadRow(exchange.response.body.digest, exchange.url, exchange.date, *place)


def fetched_row(exchange: Exchange, place: Place) -> FetchedRow | None:
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
    return FetchedRow(
        exchange.url, etag, modified, *place, original.url, original.date, original.digest, *original.place
    )


def _field(exchange: Exchange, wanted: bytes) -> str:
    """A field's first value, if it can be sent back as it is: printable ASCII; else nothing."""
    found = next((value for name, value in exchange.response.raw_headers if name.lower() == wanted), b"").strip()
    text = found.decode("ascii", "replace")
    return text if text.isprintable() and text.isascii() and len(text) <= _FIELD_CHARS else ""


def make_tables(connection: Connection, path: Path) -> None:
    """Make the tables. Raises: PayloadsDamaged for a file of another version."""
    with connection.begin():
        version = connection.exec_driver_sql("PRAGMA user_version").scalar_one()
        if version not in {0, VERSION}:
            raise PayloadsDamaged(f"{path}: written in version {version}, this one reads {VERSION}; {ADVICE}")
        for table in (_PAYLOAD, _FETCHED):
            connection.exec_driver_sql(table)
        connection.exec_driver_sql(f"PRAGMA user_version = {VERSION}")
