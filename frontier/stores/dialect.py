"""How statements reach the driver: one spelling (`?`, tuples) for SQLite and PostgreSQL, many rows in one statement.

SQLite's driver lets go of Python's lock at each step of a statement, and beside a busy thread each time costs up to its
switch interval (5 ms). So rows are written by statements of many rows, not one by one: 10,000 rows are 42 steps. The
sizes are powers of two, so that a kind of statement has few texts and the driver keeps all of them prepared.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

from sqlalchemy import Connection, CursorResult

#: SQLite's bound of parameters in one statement (https://www.sqlite.org/limits.html); PostgreSQL's is twice as high.
_MAX_PARAMETERS = 32766
#: Larger statements save little and take long to bind: 1,024 rows of `url` cost three times as much a row.
_MAX_ROWS = 256

Values = tuple[Any, ...]


class ManyRows(NamedTuple):
    """A statement that takes rows: `before` (?, ?), (?, ?), … `after`."""

    before: str
    columns: int
    after: str = ""
    may_repeat: bool = True  #: a row that is given twice changes nothing more


def execute(connection: Connection, statement: str, parameters: Sequence[Any] = ()) -> CursorResult[Any]:
    """Execute one statement through SQLAlchemy, about 15 µs: for what is rare."""
    return connection.exec_driver_sql(_spelled(connection, statement), tuple(parameters))


def fetch(connection: Connection, statement: str, parameters: Sequence[Any] = ()) -> list[Values]:
    """All rows of an answer. On SQLite past SQLAlchemy, which would cost as much as a short read itself."""
    if connection.dialect.name == "sqlite":
        rows: list[Values] = _driver(connection).execute(statement, parameters).fetchall()
        return rows
    return [tuple(row) for row in execute(connection, statement, parameters)]


def fetch_for(connection: Connection, statement: ManyRows, rows: Sequence[Values]) -> list[Values]:
    """All rows of the answers for these rows."""
    answers: list[Values] = []
    for text, parameters in _statements(statement, rows):
        answers += fetch(connection, text, parameters)
    return answers


def fetch_locked(connection: Connection, statement: str, parameters: Sequence[Any], lock: str) -> list[Values]:
    """The rows of an answer, locked until the transaction ends: FOR `lock`. SQLite's transactions exclude each other anyway."""
    return fetch(
        connection, statement if connection.dialect.name == "sqlite" else f"{statement} FOR {lock}", parameters
    )


def write(connection: Connection, statement: ManyRows, rows: Sequence[Values]) -> int:
    """Execute it for all these rows; answers how many rows were changed. Cost: 1 to 4 µs a row."""
    changed = 0
    if connection.dialect.name == "sqlite":
        driver = _driver(connection)
        for text, parameters in _statements(statement, rows, pads=statement.may_repeat):
            changed += driver.execute(text, parameters).rowcount
    else:
        for text, parameters in _statements(statement, rows):
            changed += execute(connection, text, parameters).rowcount
    return changed


def _statements(statement: ManyRows, rows: Sequence[Values], *, pads: bool = False) -> Iterable[tuple[str, list[Any]]]:
    """The texts that take all rows, the largest first, with their parameters.

    With `pads` the last row may come several times, which fills a statement: few large steps are better than many. (In
    PostgreSQL an upsert may not meet a row twice.)
    """
    start = 0
    size = min(_MAX_ROWS, 1 << (_MAX_PARAMETERS // statement.columns).bit_length() - 1)
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
    marks = "(" + ", ".join("?" * statement.columns) + ")"
    return statement.before + ", ".join([marks] * rows) + statement.after


def _spelled(connection: Connection, statement: str) -> str:
    return statement if connection.dialect.paramstyle == "qmark" else _with_format_marks(statement)


@lru_cache(maxsize=1024)
def _with_format_marks(statement: str) -> str:
    """For drivers that follow the paramstyle `format`. No statement of ours has a `?` or `%` in a literal."""
    return statement.replace("?", "%s")


def _driver(connection: Connection) -> sqlite3.Connection:
    driver: sqlite3.Connection = connection.connection.driver_connection  # type: ignore[assignment]
    return driver
