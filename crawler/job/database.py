"""The tables of a job beside those of its Frontier, and a connection to them. A job of one worker has the first three.

    job_seed      its seeds, numbered in the order in which they came
    job_fact      what holds for the whole job: its id, its order, what the operator wants of it
    job_run       by the time at which it was due, each run of its schedule
    job_worker    by its epoch, each time that a worker has joined: its tickets, its bytes, its last status
    job_command   verbs that one worker is to answer, and its answers
    job_total     what each worker has counted, by host, media type, status, seed and processor
    job_counted   what it has counted since, transaction by transaction
    job_folded    by worker, up to where job_total has all that it counted
    job_output    the files of each worker that were copied elsewhere
    job_payload   the payloads that each worker has archived, by digest

They are in the database of the Frontier; of a job of one worker, whose store no other process opens, in a file beside it.
A worker's lease is in the Frontier's table `worker` (`frontier.stores.sql.worker`), by the same epoch. All methods block, and
any thread may call them: the connection serves one at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import lru_cache, partial
from pathlib import Path
from threading import Event, Lock
from time import monotonic
from typing import Any, Self, TypeVar

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Double,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    TextClause,
    inspect,
    select,
    text,
)
from sqlalchemy.exc import IntegrityError, ProgrammingError

from anabranch.frontier import CRAWL, RETRY_S, SERVER_TIME, PostgresDatabase, copy_live, end_all_workers, renew_shared
from anabranch.frontier import METADATA as SCHEMA
from anabranch.frontier.errors import StoreUnavailable
from anabranch.frontier.stores.sql import execution
from anabranch.frontier.stores.sql.sqlite import SqliteFile, seal_of

METADATA = MetaData()

_Int = BigInteger().with_variant(Integer, "sqlite")


def _key(name: str, kind: Any = _Int) -> Column[Any]:
    return Column(name, kind, primary_key=True, autoincrement=False)


def _texts(*names: str) -> list[Column[str]]:
    return [Column(name, String, nullable=False) for name in names]


FACT = Table("job_fact", METADATA, _key("name", String), *_texts("value"))
SEED = Table(
    "job_seed",
    METADATA,
    _key("number"),
    Column("url", String, nullable=False, unique=True),
    *_texts("source"),
    Column("via", String),
)
RUN = Table(
    "job_run",
    METADATA,
    _key("due_s", Double),
    Column("at_s", Double, nullable=False),  # when it was claimed
    *_texts("who", "outcome", "words"),
    Column("missed", _Int, nullable=False),  # earlier times without a run
    Column("before_s", Double, nullable=False),  # when the run before it began; 0: there was none
)
WORKER = Table(
    "job_worker",
    METADATA,
    _key("epoch"),
    *_texts("name"),
    Column("tickets", _Int, nullable=False),  # pages that it may finish in all
    Column("bytes", _Int, nullable=False),  # that it has fetched
    Column("obeyed", _Int, nullable=False),  # number of the last wish of the operator that it has followed
    Column("drains", _Int, nullable=False),  # 1: it is to end
    Column("status", String),  # JSON, as `status` shows it; NULL before the first
    Column("status_s", Double, nullable=False),  # when that was, by the server's clock
)
COMMAND = Table(
    "job_command",
    METADATA,
    _key("number"),
    Column("epoch", _Int, nullable=False),
    *_texts("verb", "arguments"),
    Column("answer", String),  # NULL: none yet
    Column("asked_s", Double, nullable=False),
)

TOTAL = Table(
    "job_total",
    METADATA,
    *[_key(name, String) for name in ("worker", "kind", "key")],
    *_texts("value"),
)
COUNTED = Table("job_counted", METADATA, _key("worker", String), _key("epoch"), _key("place"), *_texts("value"))
FOLDED = Table(
    "job_folded", METADATA, _key("worker", String), *[Column(name, _Int, nullable=False) for name in ("epoch", "place")]
)
OUTPUT = Table(
    "job_output",
    METADATA,
    *[_key(name, String) for name in ("worker", "file")],
    Column("address", String, nullable=False),  # where it was copied to
    Column("round", _Int, nullable=False),  # of the job
    Column("size", _Int, nullable=False),
    Column("pages", LargeBinary, nullable=False),  # ordinals of the pages in it
)
PAYLOAD = Table(
    "job_payload", METADATA, _key("digest", LargeBinary(20)), _key("worker", String), *_texts("url", "date")
)

T = TypeVar("T")
Row = tuple[Any, ...]

#: How long a statement waits for the locks of a worker before it fails, to be tried again.
_LOCK_S = 5.0
#: Rows that are copied at a time.
_COPIED = 10_000
#: Between two tries while the server is away.
_AGAIN_S = 0.5


class JobDatabase:
    """The database of one job. Raises: StoreUnavailable if it cannot be reached, as the Frontier's store does."""

    def __init__(self, address: str | Path, *, is_sole: bool = False) -> None:
        """Connects when first used: to a PostgreSQL server by a URL, or to a file. Raises: PolicyError for a malformed URL.

        `is_sole`: of a job of one worker, beside the file of its store. It changes seldom, and nothing waits after an error.
        """
        self.address = address  #: of the job's store
        self._database: PostgresDatabase | SqliteFile
        if isinstance(address, Path):
            self._database = SqliteFile(address, None, is_shared=True, has_log=not is_sole)
        else:
            self._database = PostgresDatabase(address, lock_s=_LOCK_S)
        self._connected = ExitStack()
        self._connection: Connection | None = None
        self._using = Lock()
        self._closed = Event()
        self._patient_until_s = 0.0 if is_sole else math.inf  #: by the monotonic clock

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def place(self) -> str:
        """The database's URL without its password, or the file's path."""
        return self._database.place

    @property
    def name(self) -> str:
        """The name of the database, or of the job's folder, for a job that has no other name."""
        if isinstance(self.address, Path):
            return self.address.resolve().parent.parent.name
        return self.place.rpartition("/")[2].partition("?")[0]

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A transaction, committed at the end of the block. A lost connection is made anew by the next one."""
        with self._using:
            try:
                if self._connection is None or self._database.is_lost(self._connection):
                    self._disconnect()
                    self._connection = self._connected.enter_context(self._database.connected())
                    with self._connection.begin(), _unsealing(self.address, self._connection):
                        renew_shared(self._connection)
                with self._connection.begin(), _unsealing(self.address, self._connection):
                    yield self._connection
            except Exception as error:
                if not self._database.is_of_driver(error):
                    raise
                self._disconnect()
                raise self._database.translated(error) from error

    def is_passing(self, error: Exception) -> bool:
        """Whether a later try may succeed: the server is away, or busy."""
        return self._database.is_passing(error.__cause__ if isinstance(error.__cause__, Exception) else error)

    def do(self, step: Callable[[Connection], T]) -> T:
        """Run a step in a transaction of its own."""
        with self.transaction() as connection:
            return step(connection)

    def do_patiently(self, step: Callable[[Connection], T]) -> T:
        """Run a step as `do` does, again and again while the server is away: until `close`, or as `limit_retries` says.

        Raises: StoreUnavailable.
        """
        while True:
            try:
                return self.do(step)
            except StoreUnavailable as error:
                if not self.may_try_again(error):
                    raise

    def may_try_again(self, error: Exception) -> bool:
        """Wait for the next try (blocks); False if none can help, or as `limit_retries` says."""
        return self.is_passing(error) and monotonic() < self._patient_until_s and self.wait(_AGAIN_S)

    def wait(self, seconds: float) -> bool:
        """Wait so long (blocks); False if the database was closed meanwhile."""
        return not self._closed.wait(seconds)

    def limit_retries(self) -> None:
        """The crawl ends: wait no longer than `RETRY_S` seconds from now for a server that is away (any thread)."""
        self._patient_until_s = min(self._patient_until_s, monotonic() + RETRY_S)

    def close(self) -> None:
        """Disconnect, and let nothing wait any longer. A second call does nothing."""
        self._closed.set()
        self.disconnect()

    def disconnect(self) -> None:
        """Disconnect until the next use."""
        with self._using:
            self._disconnect()

    def _disconnect(self) -> None:
        self._connection = None
        self._connected.close()


@contextmanager
def _unsealing(address: Path | str, connection: Connection) -> Iterator[None]:
    """Remove the seal of a file if anything is written to it while this is entered."""
    driver = execution.driver_of(connection) if isinstance(address, Path) else None
    before = 0 if driver is None else driver.total_changes
    yield
    if isinstance(address, Path) and driver is not None and driver.total_changes > before:
        seal_of(address).unlink(missing_ok=True)


def make_tables(database: JobDatabase, tables: Sequence[Table] | None = None) -> None:
    """Make these, or all, if they are missing; of several workers that begin at once, one does. Raises: StoreUnavailable."""
    try:
        with database.transaction() as connection:
            METADATA.create_all(connection, tables)
    except StoreUnavailable as error:
        if not isinstance(error.__cause__, IntegrityError | ProgrammingError) or not database.do(has_job):
            raise


def copy_rows(database: JobDatabase, file: Path) -> None:
    """Copy all rows of a job at one moment to a new file, which can be opened as that of a job of several processes (blocks).

    Cost: room and time for the rows, in chunks of 10,000. Raises: StoreUnavailable; OSError.
    """
    if isinstance(database.address, Path):
        copy_live(database.address, file)
        return
    with JobDatabase(file) as copy:
        copy.do(partial(copy_tables, source=database))


def copy_tables(target: Connection, source: JobDatabase) -> None:
    """Make the tables of a job and copy all rows of another one, as they are at one moment, in the running transaction."""
    SCHEMA.create_all(target)
    METADATA.create_all(target)
    with source.transaction() as connection:
        if not isinstance(source.address, Path):
            connection.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
        there = {*inspect(connection).get_table_names()}
        for table in (*SCHEMA.sorted_tables, *METADATA.sorted_tables):
            if table.name in there:
                rows = connection.execute(select(table), execution_options={"yield_per": _COPIED})
                for chunk in rows.mappings().partitions():
                    target.execute(table.insert(), [dict(row) for row in chunk])


def drop_tables(connection: Connection) -> None:
    """Remove a job, in the running transaction."""
    METADATA.drop_all(connection)
    SCHEMA.drop_all(connection)


def has_tables(connection: Connection) -> bool:
    """Whether there are tables of a job, of one worker or of several."""
    return has_job(connection) or inspect(connection).has_table(CRAWL.name)


def has_job(connection: Connection) -> bool:
    """Whether there is a job of several workers."""
    return inspect(connection).has_table(FACT.name)


def has_workers(connection: Connection) -> bool:
    """Whether a worker has ever joined."""
    return inspect(connection).has_table("worker")


def free_all_shares(connection: Connection) -> None:
    """Take the leases of all workers away, for a caller that knows that their processes have gone, maybe before they joined."""
    if has_workers(connection):
        end_all_workers(connection)


def lock_job(connection: Connection) -> None:
    """Lock the job until the transaction ends; others that do so wait."""
    execute(connection, "UPDATE job_fact SET value = value WHERE name = 'id'")


@lru_cache(maxsize=256)
def _text(statement: str) -> TextClause:
    return text(statement)


def fetch(connection: Connection, statement: str, **values: object) -> Sequence[Row]:
    """All rows of an answer."""
    return [tuple(row) for row in connection.execute(_text(statement), values)]


def execute(connection: Connection, statement: str, rows: Sequence[Mapping[str, object]] = (), **values: object) -> int:
    """Execute a statement, once or for each of the rows; how many rows it changed."""
    return connection.execute(_text(statement), list(rows) or values).rowcount


def fact(connection: Connection, name: str) -> str | None:
    """A fact of the job; None if it is not there."""
    found = fetch(connection, "SELECT value FROM job_fact WHERE name = :name", name=name)
    return found[0][0] if found else None


def drop_fact(connection: Connection, name: str) -> None:
    """Remove a fact of the job."""
    execute(connection, "DELETE FROM job_fact WHERE name = :name", name=name)


def put_fact(connection: Connection, name: str, value: str) -> None:
    """Set a fact of the job."""
    execute(
        connection,
        "INSERT INTO job_fact VALUES (:name, :value) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        name=name,
        value=value,
    )


def server_time(connection: Connection) -> float:
    """The server's clock, or the machine's for a file; epoch seconds."""
    ((now_s,),) = execution.fetch(connection, SERVER_TIME)
    return float(now_s)
