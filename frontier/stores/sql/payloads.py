"""The payloads of queued and failed rows in a file that nobody has open: finds those of an old form, and writes a new one."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from operator import eq
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import ColumnElement, Table, and_, func, select, tuple_, update

from anabranch.frontier.stores import sql
from anabranch.frontier.stores.sql.execution import Parameter
from anabranch.frontier.stores.sql.sqlite import (
    SqliteRunner,
    log_of,
    names_of_tables,
    read_seal,
    seal_of,
    text_of,
    translated,
    write_seal,
)

#: Rows that are read, and written in one transaction.
_CHUNK = 1000

#: Tables with payloads. A failed row that is queued again gets its payload from `failure`.
_TABLES = (sql.URL, sql.FAILURE)


class Rewritten(NamedTuple):
    """The numbers of rows that were rewritten and that keep the old form."""

    done: int
    left: int  #: for which no new form was found


def has_payload(file: Path, first: bytes) -> bool:
    """Whether a queued or failed row has a payload that begins with this byte.

    Blocks: half a second a million rows that are in memory. Raises: StoreInUse, StoreUnavailable.
    """
    # Without a log nothing is missing from the file, and SQLite need not make one.
    is_whole = "" if log_of(file).exists() else "&immutable=1"
    with _opened(f"{file.absolute().as_uri()}?mode=ro{is_whole}", file) as connection:
        tables, fetch = _tables_of(connection), SqliteRunner(connection).fetch
        return any(fetch(select(table.c.ordinal).where(_is_old(table)).limit(1), (first,)) for table in tables)


def rewrite(file: Path, old: bytes, make: Callable[[bytes], bytes | None]) -> Rewritten:
    """Write the payloads that begin with the byte `old` as `make` gives them; None leaves one as it is (blocks).

    It may be killed at any moment and done again. Raises: StoreInUse, StoreUnavailable, StoreFull.
    """
    done = left = 0
    with _unsealed(file), _opened(file.absolute().as_uri(), file) as connection:
        for table in _tables_of(connection):
            for found, new in _rewritten(connection, table, old, make):
                done, left = done + new, left + found - new
    return Rewritten(done, left)


def _tables_of(connection: sqlite3.Connection) -> list[Table]:
    """Those of `_TABLES` that the file has; older formats have fewer."""
    there = names_of_tables(connection)
    return [table for table in _TABLES if table.name in there]


def _is_old(table: Table) -> ColumnElement[bool]:
    return func.substr(table.c.payload, 1, 1) == Parameter("first", table.c.payload.type)


def _rewritten(
    connection: sqlite3.Connection, table: Table, old: bytes, make: Callable[[bytes], bytes | None]
) -> Iterator[tuple[int, int]]:
    """Rewrite a table's payloads, one transaction a chunk; yields how many rows were found and how many were written."""
    keys, payload = [*table.primary_key], Parameter("payload", table.c.payload.type)
    place = [Parameter(key.name, key.type) for key in keys]
    read = select(*keys, table.c.payload).where(tuple_(*keys) > tuple_(*place), _is_old(table)).order_by(*keys)
    read = read.limit(Parameter("limit"))
    write = update(table).values(payload=payload).where(and_(*map(eq, keys, place)))
    after: tuple[int, ...] = (-(1 << 63),) * len(keys)
    while rows := SqliteRunner(connection).fetch(read, (*after, old, _CHUNK)):
        after = rows[-1][: len(keys)]
        made = [(make(payload), *place) for *place, payload in rows]
        new = [row for row in made if row[0] is not None]
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(text_of(write), new)
        connection.execute("COMMIT")
        yield len(rows), len(new)


@contextmanager
def _unsealed(file: Path) -> Iterator[None]:
    """Remove the seal while the file changes; afterwards it has one again."""
    seal = read_seal(file)
    if seal is None or not seal[1]:
        yield  # the opening counts the rows, or says that the file is damaged
        return
    seal_of(file).unlink()
    yield
    if not log_of(file).exists():
        with suppress(OSError):
            write_seal(file, seal[0])


@contextmanager
def _opened(address: str, file: Path) -> Iterator[sqlite3.Connection]:
    try:
        with closing(sqlite3.connect(address, uri=True, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous = FULL")
            yield connection
    except sqlite3.Error as error:
        raise translated(file, error) from error
