"""A crawl in a PostgreSQL database: how to connect and execute, the lock, what its errors mean.

The owner holds a session's advisory lock, named by database and schema. The server releases it when the session ends, however
that happens, so nothing is left to clean up. As long as a lost session may still be at its COMMIT on the server, a new one does
not get the lock, so it reads only commits that are decided. Workers that share a job take no such lock (see `worker`).
`synchronous_commit` is on: a commit that has returned is on the server's disk.

Any number of rows goes in one step: columns as arrays in PostgreSQL's binary format, or by COPY. A row of `url` costs 0.6 µs of
CPU by COPY, 1.5 by arrays and 8 by a list of values. The texts never change, so each is prepared once.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    URL,
    BigInteger,
    Connection,
    Double,
    Engine,
    LargeBinary,
    NullPool,
    String,
    create_engine,
    event,
    make_url,
    text,
)
from sqlalchemy.dialects.postgresql import dml
from sqlalchemy.dialects.postgresql.psycopg import dialect
from sqlalchemy.dialects.sqlite.dml import OnConflictDoNothing, OnConflictDoUpdate
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.pool import ConnectionPoolEntry
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.types import TypeEngine

from anabranch.extras import install_command
from anabranch.frontier.errors import (
    FormatMismatch,
    FrontierError,
    PolicyError,
    StoreFull,
    StoreInUse,
    StoreUnavailable,
    caused_by,
)
from anabranch.frontier.records import name_id
from anabranch.frontier.stores.sql import METADATA, statements
from anabranch.frontier.stores.sql.execution import (
    RUNNER,
    WITH_VALUES,
    GivenRows,
    ManyRows,
    ServerTime,
    Statement,
    Types,
    Values,
    fetch,
    write,
)

if TYPE_CHECKING:
    import psycopg

_DRIVERS = frozenset({"postgresql", "postgresql+psycopg"})

#: Seconds until a server that does not answer counts as gone.
_CONNECT_S = 5
#: How long to wait for another session's lock: long enough for the server to notice that its owner is dead.
_LOCK_S = 1
_NOT_IN_TIME = "55P03"
_OWNER = "owner"  # name in `crawl`
_DATABASES = """
SELECT datname FROM pg_database
WHERE datallowconn AND NOT datistemplate AND has_database_privilege(datname, 'CONNECT') ORDER BY datname
"""
_SCHEMAS = """
SELECT schemaname FROM pg_tables
WHERE tablename IN ('crawl', 'job_fact') AND has_schema_privilege(schemaname, 'USAGE')
GROUP BY schemaname ORDER BY schemaname
"""
_SESSION = "SELECT pid, backend_start::text FROM pg_stat_activity WHERE pid = pg_backend_pid()"

#: Either side notices within 25 s that the other is gone, and the server releases the lock: by keepalives on an idle
#: connection, by `tcp_user_timeout` (milliseconds) on a busy one. Without the latter TCP sends again for 15 minutes.
_GONE_MS = 25_000
#: A plan is made once for each statement and any number of rows: all are seeks, whatever the server knows of sizes.
_OPTIONS = (
    "-c synchronous_commit=on -c plan_cache_mode=force_generic_plan -c tcp_keepalives_idle=10"
    f" -c tcp_keepalives_interval=5 -c tcp_keepalives_count=3 -c tcp_user_timeout={_GONE_MS}"
)
#: Of one of several sessions (milliseconds): how long it waits for locks, and how long a process that is stopped keeps its own.
_SHARED_OPTIONS = "-c lock_timeout={} -c idle_in_transaction_session_timeout={}"
_KEEPALIVES = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": _GONE_MS}

#: COPY takes one round trip more than a statement, which pays from so many rows on.
_LEAST_COPIED = 50

#: The meaning of an SQLSTATE by its first characters, the longest first, and whether the cause may pass
#: (https://www.postgresql.org/docs/current/errcodes-appendix.html).
_MEANINGS: tuple[tuple[str, type[FrontierError], str, bool], ...] = (
    ("25006", StoreFull, "it is read-only; make it writable and run again", True),
    ("3D000", StoreUnavailable, "there is no such database; create it first", False),
    ("3F000", StoreUnavailable, "there is no such schema; create it first", False),
    ("42501", StoreUnavailable, "the user may not do that; grant it the rights and run again", False),
    ("53100", StoreFull, "the server's disk is full; make room and run again", True),
    ("08", StoreUnavailable, "the connection to the server was lost", True),
    ("28", StoreUnavailable, "the server does not accept the user or the password", False),
    ("40", StoreUnavailable, "the server took the transaction back", True),
    ("53", StoreUnavailable, "the server lacks memory or connections", True),
    ("55P03", StoreUnavailable, "another session has locked the tables", True),
    ("57", StoreUnavailable, "the server ended the session; look at it and run again", True),
    ("58", StoreUnavailable, "I/O error on the server; look at its disk and run again", True),
    ("XX001", StoreUnavailable, "it is damaged; restore it from a copy", False),
    ("XX002", StoreUnavailable, "it is damaged; restore it from a copy", False),
)
#: Why a server has refused a connection: SQLSTATE by its words.
_REFUSALS = (
    ("28", re.compile(r"authentication failed|no password supplied|no pg_hba.conf entry|role .* does not exist")),
    ("3D000", re.compile(r"database .* does not exist")),
    ("42501", re.compile(r"permission denied")),
    ("53", re.compile(r"too many (clients|connections)|connection slots are reserved")),
)
#: Errors of the driver that no server sent, and that are no defect of a statement.
_LOST = frozenset({"OperationalError", "ConnectionTimeout"})
_GONE = (StoreUnavailable, "the server cannot be reached; start it and run again", True)
_DEFECT = (StoreUnavailable, "", False)


class PostgresDatabase:
    """A crawl in the first schema of a PostgreSQL connection's search path."""

    def __init__(self, address: str, *, lock_s: float | None = None) -> None:
        """`lock_s`: several workers have it open, and none waits for locks of another for longer; None: a sole owner.

        Raises: PolicyError for a malformed URL or one of another kind.
        """
        try:
            url = make_url(address)
        except ArgumentError as error:
            raise PolicyError(f"{address!r} is no URL of a database; postgresql://user@host/database is one") from error
        if url.drivername not in _DRIVERS:
            raise PolicyError(
                f"{url.drivername} cannot hold a crawl; "
                "name a file of SQLite by its path, or postgresql://user@host/database"
            )
        self._url = url.set(drivername="postgresql+psycopg")
        self._lock_s = lock_s
        #: (process id, start) of our session on the server.
        self._session: tuple[int, str] | None = None

    @property
    def place(self) -> str:
        """The URL; a password is left out."""
        shown = self._url.set(drivername="postgresql").difference_update_query(["password", "sslpassword"])
        return shown.render_as_string(hide_password=True)

    @contextmanager
    def connected(self) -> Iterator[Connection]:
        """The one connection, with the lock. Raises: StoreInUse naming the owner, FormatMismatch for foreign tables."""
        engine = self.engine()
        try:
            with engine.connect() as connection:
                self._prepare(connection)
                yield connection
        finally:
            engine.dispose()

    def is_lost(self, connection: Connection) -> bool:
        """It was closed, or the server is gone."""
        return connection.closed or connection.invalidated or _driver_of(connection).closed

    def announce(self, connection: Connection, owner: str) -> None:
        """Write it into `crawl`."""
        with connection.begin():
            write(connection, statements.PUT_FACTS, [(_OWNER, owner)])

    def let_go(self, connection: Connection, *, clean: bool) -> None:
        """Nothing: the lock ends with the session, and a stale owner's line is harmless."""

    def session_of(self, connection: Connection) -> str:
        """Process id and start of the session."""
        return " ".join(map(str, connection.execute(text(_SESSION)).one()))

    def end_session(self, connection: Connection, session: str) -> None:
        """By `pg_terminate_backend`, which a role may use on its own sessions. The locks go when its transaction has ended."""
        process, _, start = session.partition(" ")
        _end_session(connection, int(process), start)

    def translated(self, error: Exception) -> FrontierError:
        """The error as one of this room; its one line names the place and what to do."""
        if isinstance(error, FrontierError):
            return error
        cause = error.orig if isinstance(error, DBAPIError) else error
        words = str(cause).strip().partition("\n")[0]
        kind, meaning, _ = _meaning(error)
        return caused_by(kind(f"{self.place}: {meaning or type(cause).__name__} ({words})"), error)

    def is_of_driver(self, error: Exception) -> bool:
        """It came from the server or the connection, through SQLAlchemy or from psycopg itself."""
        return isinstance(error, DBAPIError) or type(error).__module__.partition(".")[0] == "psycopg"

    def is_passing(self, error: Exception) -> bool:
        """A server may come back, a disk may get room; a wrong statement stays wrong."""
        return isinstance(error, _StillHeld) or _meaning(error)[2]

    def engine(self) -> Engine:
        """Return an engine whose connections each have a session of their own. Raises: PolicyError without the driver."""
        locks = (
            ""
            if self._lock_s is None
            else _SHARED_OPTIONS.format(max(int(1000 * self._lock_s), 1), int(3000 * self._lock_s))
        )
        options = " ".join(filter(None, (str(self._url.query.get("options", "")), _OPTIONS, locks)))
        arguments = {"application_name": "anabranch", "connect_timeout": _CONNECT_S, **_KEEPALIVES}
        given = {name: value for name, value in arguments.items() if name not in self._url.query}
        try:
            engine = create_engine(self._url, poolclass=NullPool, connect_args={**given, "options": options})
        except ModuleNotFoundError as error:
            raise PolicyError(f"{self.place}: PostgreSQL needs {error.name}; {install_command('postgres')}") from error
        event.listen(engine, "connect", _adapt)
        return engine

    @contextmanager
    def reader(self) -> Iterator[Connection]:
        """A read-only connection without the lock; a transaction sees the tables as of one moment."""
        engine = self.engine()
        options: dict[str, Any] = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        try:
            with engine.connect().execution_options(**options) as connection:
                yield connection
        finally:
            engine.dispose()

    def jobs(self) -> list[str]:
        """The URL of each schema that has the tables of a crawl, of the database that the URL names; without one, of each
        database of the server to which the user may connect. Blocks. Raises: StoreUnavailable.
        """
        names = (
            [self._url.database]
            if self._url.database
            else self._answers(self._url.set(database="postgres"), _DATABASES)
        )
        found = []
        for url in (self._url.set(drivername="postgresql", database=name) for name in names):
            (first,) = self._answers(url, "SELECT current_schema()")
            asked = "options" in url.query  # it may name a schema
            for schema in self._answers(url, _SCHEMAS):
                if schema == first:
                    found.append(url.render_as_string())
                elif not asked:
                    found.append(url.update_query_dict({"options": f"-csearch_path={schema}"}).render_as_string())
        return found

    def _answers(self, url: URL, question: str) -> list[Any]:
        """The first column of an answer, from a session of its own."""
        there = PostgresDatabase(url.render_as_string(hide_password=False))
        engine = there.engine()
        try:
            with engine.connect() as connection:
                return [*connection.execute(text(question)).scalars()]
        except Exception as error:
            if not there.is_of_driver(error):
                raise
            raise there.translated(error) from error
        finally:
            engine.dispose()

    def _prepare(self, connection: Connection) -> None:
        """Take the lock, then make sure that the tables are ours if there are any."""
        where = "SELECT current_database(), current_schema(), getdatabaseencoding()"
        with connection.begin():
            database, schema, encoding = connection.execute(text(where)).one()
        if schema is None:
            raise StoreUnavailable(f"{self.place}: no schema of the search path exists; create one first")
        if encoding != "UTF8":
            raise FormatMismatch(f"{self.place}: the database's encoding is {encoding}, UTF8 is needed")
        if self._lock_s is None and not _lock(connection, name_id(f"anabranch {database} {schema}")):
            with connection.begin():
                raise self._refusal(connection)
        with connection.begin():
            self._check_tables(connection, schema)
            process, start = connection.execute(text(_SESSION)).one()
        self._session = (process, start)

    def _refusal(self, connection: Connection) -> StoreUnavailable:
        """Why the lock is not ours."""
        if self._session is not None and _end_session(connection, *self._session):
            return _StillHeld(f"{self.place}: the server has not noticed yet that our former session is gone")
        owner = None
        if connection.execute(text("SELECT to_regclass('crawl')")).scalar_one() is not None:
            owner = next((line for (line,) in fetch(connection, statements.FACT, (_OWNER,))), None)
        return StoreInUse(f"{self.place}: {owner or 'another process'} holds it; end that one first")

    def _check_tables(self, connection: Connection, schema: str) -> None:
        columns = text(
            "SELECT table_name, column_name FROM information_schema.columns"
            " WHERE table_schema = :schema AND table_name = ANY(:names)"
        )
        names = [table.name for table in METADATA.sorted_tables]
        found = connection.execute(columns, {"schema": schema, "names": names}).all()
        facts = {column for table, column in found if table == "crawl"}
        if facts == {"name", "value"} and fetch(connection, statements.FACT, ("format",)):
            return
        if found:
            tables = ", ".join(sorted({table for table, _ in found}))
            raise FormatMismatch(f"{self.place}: it has tables of another program ({tables}); name another schema")


class _StillHeld(StoreUnavailable):
    """The lock is held by a former session of ours."""


def _driver_of(connection: Connection) -> psycopg.Connection[Values]:
    """Psycopg's own connection below SQLAlchemy's."""
    driver: psycopg.Connection[Values] = connection.connection.driver_connection  # type: ignore[assignment]
    return driver


def _adapt(driver: psycopg.Connection[Any], record: ConnectionPoolEntry) -> None:
    """Have every number sent as a bigint, or one statement would have a plan for each mix of sizes; and arrays as they are."""
    from psycopg.adapt import Dumper  # noqa: PLC0415  the driver is an extra
    from psycopg.pq import Format  # noqa: PLC0415
    from psycopg.types.numeric import Int8BinaryDumper, Int8Dumper  # noqa: PLC0415

    class ArrayDumper(Dumper):
        format = Format.BINARY

        def dump(self, obj: bytes) -> bytes:
            return obj

    for dumper in (Int8Dumper, Int8BinaryDumper):
        driver.adapters.register_dumper(int, dumper)
    driver.adapters.register_dumper(_BinaryArray, ArrayDumper)
    record.info[RUNNER] = PostgresRunner(driver)


class _BinaryArray(bytes):
    """A parameter that is sent as it is: an array in PostgreSQL's binary format. Its type is the one that it is cast to."""

    __slots__ = ()


#: By a column's type: the name of PostgreSQL's, its number (pg_type.oid), and, if its length is fixed, the format of one value
#: with its length before it.
_TYPES: dict[type[TypeEngine[Any]], tuple[str, int, str]] = {
    BigInteger: ("int8", 20, "iq"),
    Double: ("float8", 701, "id"),
    String: ("text", 25, ""),
    LargeBinary: ("bytea", 17, ""),
}
_NULL = b"\xff\xff\xff\xff"
_DIALECT = dialect(paramstyle="format")  # type: ignore[no-untyped-call]


@compiles(GivenRows, "postgresql")
def _unnested(element: GivenRows, _compiler: object, **_: object) -> str:
    """An array for each column."""
    arrays = ", ".join(f"%b::{name}[]" for name in _names_of(element.types))
    names = ", ".join(f"column{number}" for number in range(1, len(element.types) + 1))
    return f"(SELECT * FROM unnest({arrays}) AS arrays({names}))"  # noqa: S608  names of types and columns


@compiles(ServerTime, "postgresql")
def _clock(_element: ServerTime, _compiler: object, **_: object) -> str:
    return "CAST(extract(epoch FROM clock_timestamp()) AS float8)"


# `statements` has SQLite's ON CONFLICT, which was modelled on PostgreSQL's.


@compiles(OnConflictDoNothing, "postgresql")
def _ignored(clause: OnConflictDoNothing, compiler: SQLCompiler, **options: Any) -> str:
    return compiler.process(dml.OnConflictDoNothing(index_elements=clause.inferred_target_elements), **options)


@compiles(OnConflictDoUpdate, "postgresql")
def _updated(clause: OnConflictDoUpdate, compiler: SQLCompiler, **options: Any) -> str:
    changed = dict(clause.update_values_to_set)
    same = dml.OnConflictDoUpdate(index_elements=clause.inferred_target_elements, set_=changed)
    return compiler.process(same, **options)


@lru_cache(maxsize=1024)
def text_of(statement: Statement) -> bytes:
    """Its text, with the driver's marks for parameters."""
    if isinstance(statement, str):
        return statement.replace("?", "%s").encode()
    return str(statement.compile(dialect=_DIALECT, compile_kwargs=WITH_VALUES)).encode()


class PostgresRunner:
    """Executes statements on a connection of psycopg. Answers come in its binary format."""

    def __init__(self, driver: psycopg.Connection[Values]) -> None:
        self._driver = driver

    def execute(self, statement: Statement, parameters: Sequence[Any] = ()) -> int:
        """Execute one; the result counts the changed rows."""
        return self._driver.execute(text_of(statement), parameters).rowcount

    def fetch(self, statement: Statement, parameters: Sequence[Any] = ()) -> list[Values]:
        """All rows of an answer."""
        return self._driver.execute(text_of(statement), parameters, binary=True).fetchall()

    def fetch_for(self, statement: ManyRows, rows: Sequence[Values]) -> list[Values]:
        """All rows of the answer for these rows."""
        return self._with_arrays(statement, rows).fetchall()

    def write(self, statement: ManyRows, rows: Sequence[Values]) -> int:
        """Execute it for all these rows; the result counts the changed rows."""
        if statement.copied_to and len(rows) >= _LEAST_COPIED:
            return self._copied(statement, rows)
        return self._with_arrays(statement, rows).rowcount

    def stream(self, statement: Statement, most: int) -> Iterator[list[Values]]:
        """An answer's rows, so many at a time, from a cursor of the server."""
        with self._driver.cursor("stream") as cursor:
            cursor.execute(text_of(statement), ())
            while rows := cursor.fetchmany(most):
                yield rows

    def _with_arrays(self, statement: ManyRows, rows: Sequence[Values]) -> psycopg.Cursor[Values]:
        columns = zip(*rows, strict=True)
        parameters = [_array(type_, column) for type_, column in zip(statement.types, columns, strict=True)]
        return self._driver.execute(text_of(statement.statement), parameters, binary=True)

    def _copied(self, statement: ManyRows, rows: Sequence[Values]) -> int:
        with self._driver.cursor().copy(f"COPY {statement.copied_to} FROM STDIN (FORMAT BINARY)") as copy:
            copy.set_types(_names_of(statement.types))
            for row in rows:
                copy.write_row(row)
        return len(rows)


def _names_of(types: Types) -> list[str]:
    return [_TYPES[type(type_)][0] for type_ in types]


def _array(type_: TypeEngine[Any], values: Sequence[Any]) -> _BinaryArray:
    """The array of these values: dimensions, a flag for NULLs, type, length, first index; then each value after its length.

    (`array_recv` in src/backend/utils/adt/arrayfuncs.c; psycopg's own, which looks at the type of each value, takes 6 times
    as long.)
    """
    name, number, format_ = _TYPES[type(type_)]
    has_null = None in values
    header = struct.pack(">iiIii", 1, has_null, number, len(values), 1)
    if format_ and not has_null:
        pairs: list[Any] = [8] * (2 * len(values))
        pairs[1::2] = values
        return _BinaryArray(header + struct.pack(">" + format_ * len(values), *pairs))
    parts = [header]
    for value in values:
        if value is None:
            parts.append(_NULL)
        elif format_:
            parts.append(struct.pack(f">{format_}", 8, value))
        else:
            encoded = value.encode() if name == "text" else value
            parts += (len(encoded).to_bytes(4, "big"), encoded)
    return _BinaryArray(b"".join(parts))


def _lock(connection: Connection, key: int) -> bool:
    """Take the lock for this session; False if another one does not release it in time."""
    try:
        with connection.begin():
            connection.execute(text(f"SET LOCAL lock_timeout = '{_LOCK_S}s'"))
            connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": key})
    except DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) == _NOT_IN_TIME:
            return False
        raise
    return True


def _end_session(connection: Connection, process: int, start: str) -> bool:
    """Have the server end a session of ours after its connection was lost; False: it has ended already."""
    ending = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = :pid AND backend_start::text = :start"
    return connection.execute(text(ending), {"pid": process, "start": start}).first() is not None


def _meaning(error: Exception) -> tuple[type[FrontierError], str, bool]:
    """The meaning of an error of the driver, and whether the cause may pass; `_DEFECT` for any other error."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    state = getattr(cause, "sqlstate", None)
    if state is None:  # of a refused connection psycopg tells the server's words alone
        words = str(cause)
        state = next((state for state, said in _REFUSALS if said.search(words)), None)
    if state is None:  # it is not from the server
        lost = isinstance(error, DBAPIError) and error.connection_invalidated
        return _GONE if lost or type(cause).__name__ in _LOST else _DEFECT
    for prefix, kind, meaning, passes in _MEANINGS:
        if state.startswith(prefix):
            return kind, meaning, passes
    return _DEFECT
