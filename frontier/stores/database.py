"""What differs between databases beside their SQL: connecting, the lock, the owner's line, what errors mean."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Protocol

from sqlalchemy import Connection, inspect
from sqlalchemy.exc import DBAPIError

from anabranch.frontier.errors import FrontierError, InvariantBroken, StoreDamaged, StoreInUse
from anabranch.frontier.stores import sqlite, statements
from anabranch.frontier.stores.dialect import fetch
from anabranch.frontier.stores.opening import FORMAT, counters_of
from anabranch.frontier.stores.owner import OwnerFile
from anabranch.frontier.stores.recounting import recount
from anabranch.frontier.stores.seal import Seal, read_seal, seal_of, write_seal
from anabranch.frontier.stores.tables import CRAWL


class Database(Protocol):
    """One database that holds one crawl. All but `place` belongs to the store thread."""

    @property
    def place(self) -> str:
        """What errors call it; no password is in it."""
        ...

    def connected(self) -> AbstractContextManager[Connection]:
        """The one connection, with the lock that keeps others out until it ends. Raises: what `translated` understands."""
        ...

    def is_lost(self, connection: Connection) -> bool:
        """The connection is of no more use, and the lock is gone with it."""
        ...

    def announce(self, connection: Connection, owner: str) -> None:
        """Leave the owner's line where whoever is refused finds it."""
        ...

    def let_go(self, connection: Connection, *, clean: bool) -> None:
        """Tidy up at the end: outside of a transaction, nothing is written after it."""
        ...

    def translated(self, error: Exception) -> FrontierError:
        """The error of this room that another stands for; one line that names the place and what to do."""
        ...

    def is_passing(self, error: Exception) -> bool:
        """It may go by itself (a full disk, a server that is gone), so that the transaction is worth another try."""
        ...


#: Rows that are counted when a file was not closed in order: five seconds at most.
CHECKED_ROWS = 1_000_000

#: Primary result codes of SQLite that may go by themselves.
_PASSING = frozenset({
    sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOMEM
})  # fmt: skip


class SqliteFile:
    """A crawl in a file of SQLite. Its connection is never lost: there is nobody on its other side."""

    def __init__(self, path: Path, max_pages: int | None) -> None:
        self._path = path
        self._max_pages = max_pages
        self._owner = OwnerFile(path)
        self._closed: int | None = None  # the epoch of an owner that let go in order

    @property
    def place(self) -> str:
        """The path."""
        return str(self._path)

    @contextmanager
    def connected(self) -> Iterator[Connection]:
        """The one connection to the file, which is made if there is none.

        A file that was closed in order is compared with its seal, 1.3 s a GB; of another one the rows are counted, 5 µs each,
        if they are at most `CHECKED_ROWS`. Raises: StoreDamaged.
        """
        self._closed = None
        seal = read_seal(self._path)  # before the lock is taken: the epoch tells if somebody has the file meanwhile
        with sqlite.connected(self._path, self._max_pages) as connection:
            self._check(connection, seal)
            connection.rollback()
            yield connection
        self._seal()

    def _seal(self) -> None:
        """Seal the file if its owner let go in order. One that cannot be sealed has its rows counted at the next opening."""
        if self._closed is not None:
            with suppress(OSError):
                write_seal(self._path, self._closed)

    def _check(self, connection: Connection, seal: Seal | None) -> None:
        if not inspect(connection).has_table(CRAWL.name):
            return
        facts: dict[str, str] = dict(fetch(connection, statements.FACTS))
        if seal is not None and str(seal.epoch) == facts.get("epoch"):
            if not seal.is_whole:
                raise StoreDamaged(
                    f"{self._path}: it is not what was written to it; restore it from a copy, and remove "
                    f"{seal_of(self._path).name} if that copy was made while the crawl ran: its rows are counted then"
                )
            return
        if facts.get("format") != FORMAT:
            return
        try:
            counters = counters_of(facts)
            if counters.accepted <= CHECKED_ROWS:
                recount(connection)
        except (InvariantBroken, ValueError, KeyError) as error:
            raise StoreDamaged(f"{self._path}: it is damaged ({error}); restore it from a copy") from error

    def is_lost(self, connection: Connection) -> bool:
        """Only if it was closed."""
        return connection.closed

    def announce(self, connection: Connection, owner: str) -> None:  # noqa: ARG002  a file needs no connection
        """Write it into a file beside the database."""
        self._owner.write(owner)

    def let_go(self, connection: Connection, *, clean: bool) -> None:
        """Fold the log into the file, if the end is clean; remove the owner's line."""
        if clean:
            sqlite.fold_log(connection)
            self._closed = int(fetch(connection, statements.FACT, ("epoch",))[0][0])
        self._owner.remove()

    def translated(self, error: Exception) -> FrontierError:
        """As `sqlite.translated`; who holds the file is said, if that is known."""
        failure = sqlite.translated(self._path, error)
        owner = self._owner.read() if isinstance(failure, StoreInUse) and failure is not error else None
        if owner is None:
            return failure
        named = StoreInUse(f"{self._path}: {owner} holds it; end that one first")
        named.__cause__ = error
        return named

    def is_passing(self, error: Exception) -> bool:
        """A full, read-only or failing disk may be mended meanwhile."""
        cause = error.orig if isinstance(error, DBAPIError) else error
        return getattr(cause, "sqlite_errorcode", 0) & 0xFF in _PASSING
