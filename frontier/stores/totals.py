"""The totals that a store keeps as facts, and how they are read from a file that no process has open.

This needs neither SQLAlchemy nor the core, so a command that shows the totals of a stopped job is fast. A transaction changes
the facts together with the rows that they count: after a kill they are those of the last transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from anabranch.frontier.errors import StoreUnavailable
from anabranch.frontier.stores.contract import Counters

#: Version of the tables; raise it with every change that an older program would misread, and convert older ones when opened.
FORMAT = "8"
#: First part of the names of the facts that may not change.
IDENTITY = "identity:"
#: Name of the share rule among these.
SHARES = "shares"

_FACTS = "SELECT name, value FROM crawl"
_FAILURES = "SELECT status, count(*) FROM done WHERE outcome = 'failed' GROUP BY status"


class KeptTotals(NamedTuple):
    """The totals of a store, as of its last transaction."""

    counters: Counters
    failures: Mapping[int, int]  #: how many URLs have failed, by status


def kept_totals(file: Path) -> KeptTotals | None:
    """The totals of a store that no process has open, or opens meanwhile. Cost: a seek for each failure.

    None if it cannot be read, if several workers share it, or if it has another format, which may count in another way.
    """
    counters = kept_counters(file)
    try:
        return None if counters is None else KeptTotals(counters, dict(closed_rows(file, _FAILURES)))
    except StoreUnavailable:
        return None


def kept_counters(file: Path) -> Counters | None:
    """Like `kept_totals`, but only the counters, at the cost of a few rows."""
    try:
        facts: dict[str, str] = dict(closed_rows(file, _FACTS))
        return None if is_shared(facts) or facts.get("format") != FORMAT else counters_of(facts)
    except (StoreUnavailable, ValueError):
        return None


def is_shared(facts: Mapping[str, str]) -> bool:
    """The facts are those of a job of several workers."""
    return f"{IDENTITY}{SHARES}" in facts


def counters_of(facts: Mapping[str, str]) -> Counters:
    """The totals among the facts."""
    return Counters(**{name: int(facts.get(name, 0)) for name in Counters._fields})  # an older format has no `retried`


def closed_rows(file: Path, statement: str) -> list[tuple[Any, ...]]:
    """The rows of a query to a SQLite file that no process has open, or opens meanwhile. Leaves no file behind.

    A file without a log is read where nothing can be written, too; SQLite reads the log that a killed process has left only
    in a folder that can be written. Raises: StoreUnavailable, at once.
    """
    log, index, journal = (file.with_name(f"{file.name}-{name}") for name in ("wal", "shm", "journal"))
    if not journal.exists() and not (log.exists() and log.stat().st_size):
        return _rows(f"{file.absolute().as_uri()}?mode=ro&immutable=1", statement)
    had_index = index.exists()
    try:
        return _rows(f"{file.absolute().as_uri()}?mode=ro", statement)
    finally:
        if not had_index and index.exists():  # on a read-only disk it is not, and cannot be removed
            index.unlink()


def _rows(uri: str, statement: str) -> list[tuple[Any, ...]]:
    try:
        with closing(sqlite3.connect(uri, uri=True, timeout=0)) as connection:
            return connection.execute(statement).fetchall()
    except sqlite3.Error as error:
        raise StoreUnavailable(f"{uri}: {error}") from error
