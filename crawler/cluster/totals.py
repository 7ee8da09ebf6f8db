"""The totals of a job's workers as rows: what each has counted by host, media type, status, seed and processor.

    job_total(worker, kind, key, value)    kind: a table of the accounts; key and value: JSON lists of its columns

A worker writes its own rows, those that have changed, every few seconds and at its end; so reports of the whole job need no
worker. One that dies leaves out what it counted since.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from sqlalchemy import Connection

from anabranch.crawler.accounts.database import ACCOUNTS_FILE, AccountsDatabase, AccountsView, CountedRow
from anabranch.crawler.accounts.totals import Totals
from anabranch.crawler.cluster.database import execute, fetch
from anabranch.crawler.outcomes.errors import storage_errors

#: The kind of rows that hold the times of runs.
_RUN = "run"
_WRITTEN_AT_ONCE = 1000


def put_totals(connection: Connection, worker: str, rows: Sequence[CountedRow]) -> None:
    """Write rows of a worker in the place of those with the same key."""
    listed = [
        {"worker": worker, "kind": row.kind, "key": json.dumps(row.key), "value": json.dumps(row.value)} for row in rows
    ]
    for start in range(0, len(listed), _WRITTEN_AT_ONCE):
        execute(
            connection,
            """INSERT INTO job_total VALUES (:worker, :kind, :key, :value)
               ON CONFLICT (worker, kind, key) DO UPDATE SET value = excluded.value""",
            listed[start : start + _WRITTEN_AT_ONCE],
        )


def totals_elsewhere(connection: Connection, worker: str, host: str) -> Totals:
    """What other workers have counted for a host."""
    total = Totals()
    rows = fetch(
        connection,
        "SELECT value FROM job_total WHERE kind = 'host' AND key = :key AND worker <> :worker",
        key=json.dumps([host]),
        worker=worker,
    )
    for (value,) in rows:
        total.add(Totals(*json.loads(value)))
    return total


def all_totals(connection: Connection) -> list[CountedRow]:
    """The rows of all workers."""
    rows = fetch(connection, "SELECT kind, key, value FROM job_total")
    return [CountedRow(kind, json.loads(key), json.loads(value)) for kind, key, value in rows]


def view_of(rows: Iterable[CountedRow]) -> AccountsView:
    """A view of the sums of these rows, in a temporary folder until it is closed. Raises: StorageError."""
    runs: list[tuple[float, float]] = []
    counted: list[CountedRow] = []
    for row in rows:
        if row.kind == _RUN:
            runs.append((row.key[0], row.value[0]))
        else:
            counted.append(row)
    kept = tempfile.TemporaryDirectory(prefix="anabranch-totals-")
    folder = Path(kept.name)
    with storage_errors(folder, "TMPDIR"):
        database = AccountsDatabase(folder / ACCOUNTS_FILE)
        try:
            database.add_rows(counted, _joined(runs))
        finally:
            database.close()
        return AccountsView(folder, kept.cleanup)


def _joined(runs: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """The times in which any worker ran."""
    joined: list[tuple[float, float]] = []
    for start_s, end_s in sorted(runs):
        if joined and start_s <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end_s, joined[-1][1]))
        else:
            joined.append((start_s, end_s))
    return joined
