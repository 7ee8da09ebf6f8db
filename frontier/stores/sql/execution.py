"""How statements reach the driver: a spelling for both databases, many rows by few steps.

SQLAlchemy connects and ends transactions; the statements go to the driver itself, because SQLAlchemy's 15 µs for each are as
much as a short read.

SQLite's driver releases Python's lock at each step of a statement, and next to a busy thread each time costs up to its
switch interval (5 ms). So rows are written by statements of many rows, not one by one: 10,000 rows are 42 steps. The
sizes are powers of two, so that a kind of statement has few texts and the driver keeps all of them prepared.

PostgreSQL takes any number of rows in one step: columns as arrays in its binary format, or by COPY. A row of `url` costs
0.6 µs of CPU by COPY, 1.5 by arrays and 8 by a list of values. Its texts never change, so each is prepared once.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection

from anabranch.frontier.stores.sql.statements import ManyRows

if TYPE_CHECKING:
    import psycopg

#: SQLite's bound of parameters in one statement (https://www.sqlite.org/limits.html).
_MAX_PARAMETERS = 32766
#: Larger statements save little and take long to bind: 1,024 rows of `url` cost three times as much a row.
_MAX_ROWS = 256
#: COPY takes one round trip more than a statement, which pays from so many rows on.
_LEAST_COPIED = 50

Values = tuple[Any, ...]


def execute(connection: Connection, statement: str, parameters: Sequence[Any] = ()) -> int:
    """Execute one rare statement; the result counts the changed rows."""
    if connection.dialect.name == "sqlite":
        return driver_of(connection).execute(_timed(statement), parameters).rowcount
    return postgres_of(connection).execute(_spelled(statement), parameters).rowcount


def fetch(connection: Connection, statement: str, parameters: Sequence[Any] = ()) -> list[Values]:
    """All rows of an answer."""
    if connection.dialect.name == "sqlite":
        rows: list[Values] = driver_of(connection).execute(_timed(statement), parameters).fetchall()
        return rows
    return postgres_of(connection).execute(_spelled(statement), parameters, binary=True).fetchall()


def fetch_for(connection: Connection, statement: ManyRows, rows: Sequence[Values]) -> list[Values]:
    """All rows of the answers for these rows."""
    answers: list[Values] = []
    if connection.dialect.name != "sqlite":
        return _with_arrays(connection, statement, rows).fetchall() if rows else answers
    for text, parameters in _statements(statement, rows):
        answers += driver_of(connection).execute(text, parameters).fetchall()
    return answers


def fetch_locked(connection: Connection, statement: str, parameters: Sequence[Any], lock: str) -> list[Values]:
    """The rows of an answer, locked until the transaction ends: FOR `lock`. SQLite's transactions exclude each other anyway."""
    if connection.dialect.name != "sqlite":
        statement = f"{statement} FOR {lock}"
    return fetch(connection, statement, parameters)


def write(connection: Connection, statement: ManyRows, rows: Sequence[Values]) -> int:
    """Execute it for all these rows; the result counts the changed rows. Cost: 1 to 4 µs a row."""
    if not rows:
        return 0
    if connection.dialect.name == "sqlite":
        driver = driver_of(connection)
        texts = _statements(statement, rows, pads=statement.may_repeat)
        return sum([driver.execute(text, parameters).rowcount for text, parameters in texts])
    if statement.is_plain and len(rows) >= _LEAST_COPIED:
        return _copied(connection, statement, rows)
    return _with_arrays(connection, statement, rows).rowcount


# SQLite


def driver_of(connection: Connection) -> sqlite3.Connection:
    """SQLite's own connection below SQLAlchemy's."""
    driver: sqlite3.Connection = connection.connection.driver_connection  # type: ignore[assignment]
    return driver


def _statements(statement: ManyRows, rows: Sequence[Values], *, pads: bool = False) -> Iterable[tuple[str, list[Any]]]:
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
        yield _text(statement, size), list(chain.from_iterable(rows[start : start + size]))
        start += size


@lru_cache(maxsize=1024)
def _text(statement: ManyRows, rows: int) -> str:
    marks = "(" + ", ".join("?" * len(statement.types)) + ")"
    return statement.before + ", ".join([marks] * rows) + statement.after


#: The clock of whoever keeps the store: epoch seconds. SQLite's is the machine's, in milliseconds.
_SERVER_TIME = "SERVER_TIME"


@lru_cache(maxsize=1024)
def _timed(statement: str) -> str:
    """With SQLite's clock; its transactions exclude each other, so no row needs a lock."""
    statement = statement.replace(" FOR UPDATE", "")
    return statement.replace(_SERVER_TIME, "((julianday('now') - 2440587.5) * 86400.0)")


# PostgreSQL


def postgres_of(connection: Connection) -> psycopg.Connection[Values]:
    """Psycopg's own connection below SQLAlchemy's."""
    driver: psycopg.Connection[Values] = connection.connection.driver_connection  # type: ignore[assignment]
    return driver


class BinaryArray(bytes):
    """A parameter that is sent as it is: an array in PostgreSQL's binary format. Its type is the one that it is cast to."""

    __slots__ = ()


def _with_arrays(connection: Connection, statement: ManyRows, rows: Sequence[Values]) -> psycopg.Cursor[Values]:
    """One step for all rows: an array for each column."""
    columns = zip(*rows, strict=True)
    parameters = [_array(name, column) for name, column in zip(statement.types, columns, strict=True)]
    return postgres_of(connection).execute(_unnested(statement), parameters, binary=True)


def _copied(connection: Connection, statement: ManyRows, rows: Sequence[Values]) -> int:
    table = statement.before.split()[2]
    with postgres_of(connection).cursor().copy(f"COPY {table} FROM STDIN (FORMAT BINARY)") as copy:
        copy.set_types(statement.types)
        for row in rows:
            copy.write_row(row)
    return len(rows)


@lru_cache(maxsize=1024)
def _spelled(statement: str) -> bytes:
    """With the driver's marks for parameters. No statement of ours has a `?` or `%` in a literal."""
    statement = statement.replace(_SERVER_TIME, "CAST(extract(epoch FROM clock_timestamp()) AS float8)")
    return statement.replace("?", "%s").encode()


@lru_cache
def _unnested(statement: ManyRows) -> bytes:
    """With arrays for the list of values; its columns keep their names."""
    arrays = ", ".join(f"%b::{name}[]" for name in statement.types)
    names = ", ".join(f"column{number}" for number in range(1, len(statement.types) + 1))
    values = statement.before.rpartition("VALUES ")[0]
    return f"{values}SELECT * FROM unnest({arrays}) AS given({names}){statement.after}".encode()  # noqa: S608  texts of `statements`


#: Type number (pg_type.oid), and the format of one value with its length before it, of those of fixed length.
_ARRAYS = {"int8": (20, "iq"), "float8": (701, "id"), "text": (25, ""), "bytea": (17, "")}
_NULL = b"\xff\xff\xff\xff"


def _array(name: str, values: Sequence[Any]) -> BinaryArray:
    """The array of these values: dimensions, a flag for NULLs, type, length, first index; then each value after its length.

    (`array_recv` in src/backend/utils/adt/arrayfuncs.c; psycopg's own, which looks at the type of each value, takes 6 times
    as long.)
    """
    number, format_ = _ARRAYS[name]
    has_null = None in values
    header = struct.pack(">iiIii", 1, has_null, number, len(values), 1)
    if format_ and not has_null:
        pairs: list[Any] = [8] * (2 * len(values))
        pairs[1::2] = values
        return BinaryArray(header + struct.pack(">" + format_ * len(values), *pairs))
    parts = [header]
    for value in values:
        if value is None:
            parts.append(_NULL)
        elif format_:
            parts.append(struct.pack(f">{format_}", 8, value))
        else:
            encoded = value.encode() if name == "text" else value
            parts += (len(encoded).to_bytes(4, "big"), encoded)
    return BinaryArray(b"".join(parts))
