"""How statements reach the driver: Core expressions, compiled once for each engine, and many rows by few steps.

SQLAlchemy connects, ends transactions and compiles; the texts go to the driver itself, because SQLAlchemy's 15 µs for each
execution are as much as a short read. Parameters are tuples, in the order in which the text has them. A value in an
expression becomes part of the text: a partial index serves only a statement that has the index's condition in it.

A connection has the `Runner` of its engine, `sqlite.SqliteRunner` or `postgres.PostgresRunner`, from the moment it is made.
These two files also spell what the engines have different words for: `GivenRows` and `ServerTime`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sqlalchemy import BindParameter, ClauseElement, Connection, Double, Select, TableValuedAlias, column
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeEngine

#: A Core expression, or a text with a `?` for each parameter.
Statement = ClauseElement | str
Values = tuple[Any, ...]
Types = tuple[TypeEngine[Any], ...]

#: The runner's name in `Connection.info`.
RUNNER = "runner"
#: For `ClauseElement.compile`: values become part of the text; a `Parameter` does not.
WITH_VALUES = {"literal_binds": True}


class Parameter(BindParameter[Any]):
    """A parameter of a statement. The name is for readers; executions go by the order."""

    inherit_cache = False

    def __init__(self, name: str, type_: TypeEngine[Any] | None = None) -> None:
        """`type_`: where it does not follow from the column that it is compared with."""
        super().__init__(name, type_=type_, unique=True)


@compiles(Parameter)
def _marked(element: Parameter, compiler: SQLCompiler, **options: Any) -> str:
    text: str = compiler.visit_bindparam(element, **{**options, "literal_binds": False})  # type: ignore[no-untyped-call]
    return text


class ServerTime(FunctionElement[float]):
    """The clock of whoever keeps the store: epoch seconds."""

    inherit_cache = True
    name = "server_time"
    type = Double()


class GivenRows(FunctionElement[Any]):
    """The rows that a `ManyRows` is executed with, as a table with the columns `column1`, `column2`, …"""

    inherit_cache = False
    name = "given_rows"

    def __init__(self, types: Types) -> None:
        super().__init__()
        self.types = types


def given_rows(types: Types, name: str = "given") -> TableValuedAlias:
    """Return them under a name that no table has."""
    columns: list[Any] = [column(f"column{number}", type_) for number, type_ in enumerate(types, 1)]
    return GivenRows(types).table_valued(*columns, name=name)


class AllRows(Select[Any]):
    """The `GivenRows` of these types in their order, for INSERT; an engine may have a shorter way than to select them."""

    inherit_cache = False

    def __init__(self, types: Types) -> None:
        super().__init__(given_rows(types))


@dataclass(frozen=True, slots=True, eq=False)
class ManyRows:
    """A statement that takes rows: it has `GivenRows` of these types once, and no `Parameter`."""

    statement: ClauseElement
    types: Types
    may_repeat: bool = True  #: a row that is given twice changes nothing more
    copied_to: str = ""  #: it only adds the rows to this table, with values for all its columns: COPY can do it


class Runner(Protocol):
    """Executes statements on one connection."""

    def execute(self, statement: Statement, parameters: Sequence[Any] = ()) -> int:
        """Call the function `execute`."""
        ...

    def fetch(self, statement: Statement, parameters: Sequence[Any] = ()) -> list[Values]:
        """Call the function `fetch`."""
        ...

    def fetch_for(self, statement: ManyRows, rows: Sequence[Values]) -> list[Values]:
        """Call the function `fetch_for`."""
        ...

    def write(self, statement: ManyRows, rows: Sequence[Values]) -> int:
        """Call the function `write`."""
        ...

    def stream(self, statement: Statement, most: int) -> Iterator[list[Values]]:
        """Call the function `stream`."""
        ...


def execute(connection: Connection, statement: Statement, parameters: Sequence[Any] = ()) -> int:
    """Execute one rare statement; the result counts the changed rows."""
    return _runner(connection).execute(statement, parameters)


def fetch(connection: Connection, statement: Statement, parameters: Sequence[Any] = ()) -> list[Values]:
    """All rows of an answer."""
    return _runner(connection).fetch(statement, parameters)


def fetch_for(connection: Connection, statement: ManyRows, rows: Sequence[Values]) -> list[Values]:
    """All rows of the answers for these rows."""
    return _runner(connection).fetch_for(statement, rows) if rows else []


def write(connection: Connection, statement: ManyRows, rows: Sequence[Values]) -> int:
    """Execute it for all these rows; the result counts the changed rows. Cost: 1 to 4 µs a row."""
    return _runner(connection).write(statement, rows) if rows else 0


def stream(connection: Connection, statement: Statement, most: int) -> Iterator[list[Values]]:
    """The rows of a large answer, so many at a time at most."""
    return _runner(connection).stream(statement, most)


def _runner(connection: Connection) -> Runner:
    runner: Runner = connection.info[RUNNER]
    return runner


def driver_of(connection: Connection) -> sqlite3.Connection:
    """SQLite's own connection below SQLAlchemy's."""
    driver: sqlite3.Connection = connection.connection.driver_connection  # type: ignore[assignment]
    return driver
