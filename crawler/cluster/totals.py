"""The totals of a job's workers as rows: what each has counted by host, media type, status, seed and processor.

    job_total(worker, kind, key, value)         kind: a table of the accounts; key and value: JSON lists of its columns
    job_counted(worker, epoch, place, value)    value: a JSON list of [kind, key, value], to be added to those rows
    job_folded(worker, epoch, place)            up to where job_total has what job_counted had

A worker writes its own rows of job_total, those that have changed, every few seconds and at its end; so reports of the whole
job need no worker. What it counts meanwhile goes with each transaction of its Frontier as one row of job_counted: all groups of
its journal until then, so those of every URL that the transaction ends, and robots.txt, look-ups and tries since the last one.
The totals of a worker that was killed and never returns lack the groups that no transaction followed: visits that were under
way. Others fold its rows into job_total. If it returns, its own rows of job_total replace everything that it left here.

A worker is named here with the token of its folder: one that returns with another folder counts from 0. Its epoch and the place
of its accounts' journal order what it has counted.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import Connection, inspect

from anabranch.crawler.accounts.accounts import Counted
from anabranch.crawler.accounts.database import ACCOUNTS_FILE, AccountsDatabase, AccountsView, CountedRow, sum_of
from anabranch.crawler.accounts.totals import Totals
from anabranch.crawler.job.database import COUNTED, execute, fetch
from anabranch.crawler.outcomes.errors import storage_errors
from anabranch.frontier.stores.sql import execution

#: The kind of rows that hold the times of runs.
_RUN = "run"
_WRITTEN_AT_ONCE = 1000

#: In the driver's own way: a worker does it in each transaction.
_PUT_COUNTED = "INSERT INTO job_counted VALUES (?, ?, ?, ?) ON CONFLICT (worker, epoch, place) DO NOTHING"
_PUT_TOTALS = """
INSERT INTO job_total VALUES (:worker, :kind, :key, :value)
ON CONFLICT (worker, kind, key) DO UPDATE SET value = excluded.value
"""
#: Of all workers, in one statement: what is folded meanwhile comes neither twice nor not at all.
_ALL = """
SELECT kind, key, value FROM job_total
UNION ALL
SELECT '', '', counted.value FROM job_counted AS counted LEFT JOIN job_folded AS folded ON folded.worker = counted.worker
WHERE folded.worker IS NULL OR (counted.epoch, counted.place) > (folded.epoch, folded.place)
"""
#: Workers that have left, or whose lease others have ended, and that left something; in one order, as they are locked.
_GONE = """
SELECT DISTINCT worker FROM job_counted
WHERE worker NOT IN (SELECT name || ' ' || token FROM worker WHERE until_s > 0)
ORDER BY worker
"""


class CountedTo(NamedTuple):
    """How far a worker has counted."""

    epoch: int
    place: int


#: What was counted before a job had several workers.
BEFORE = CountedTo(0, 0)


def counting_name(name: str, token: str) -> str:
    """The name of a worker in these tables: its own, and the token of its folder."""
    return f"{name} {token}"


def adopt_totals(connection: Connection, name: str, worker: str) -> None:
    """Rows of an earlier version, which named a worker without its folder, become this worker's instead of its own."""
    execute(
        connection,
        """DELETE FROM job_total
           WHERE worker = :worker AND EXISTS (SELECT 1 FROM job_total AS other WHERE other.worker = :name)""",
        worker=worker,
        name=name,
    )
    execute(connection, "UPDATE job_total SET worker = :worker WHERE worker = :name", worker=worker, name=name)


def put_counted(connection: Connection, worker: str, epoch: int, counted: Counted) -> None:
    """Write what a worker has counted since its last row, in the running transaction; a second time nothing. Cost: 0.2 ms."""
    execution.execute(connection, _PUT_COUNTED, (worker, epoch, counted.place, json.dumps(counted.rows)))


def put_totals(connection: Connection, worker: str, rows: Sequence[CountedRow], upto: CountedTo) -> bool:
    """Write rows of a worker in the place of those with the same key; they have all that it counted up to a moment.

    False: the tables have more already, so nothing is written; write all rows anew.
    """
    _lock(connection, worker)
    moment = upto._asdict()
    changed = execute(
        connection,
        """UPDATE job_folded SET epoch = :epoch, place = :place
           WHERE worker = :worker AND (epoch, place) <= (:epoch, :place)""",
        worker=worker,
        **moment,
    )
    if not changed:
        return False
    _write(connection, worker, rows)
    _forget(connection, worker, upto)
    return True


def put_left_over(connection: Connection, worker: str, counted: Counted) -> None:
    """Write all rows of a worker that was killed and does not join again, as its folder has them. A second time: no change."""
    _lock(connection, worker)
    ((epoch,),) = fetch(
        connection,
        """SELECT max(epoch) FROM (
               SELECT epoch FROM job_folded WHERE worker = :worker
               UNION ALL SELECT epoch FROM job_counted WHERE worker = :worker) AS known""",
        worker=worker,
    )
    put_totals(connection, worker, counted.rows, CountedTo(epoch, counted.place))


def fold_totals(connection: Connection) -> None:
    """Fold what workers that have gone left in job_counted into job_total. Cost: a few statements for each row that changes."""
    for (worker,) in fetch(connection, _GONE):
        _lock(connection, worker)
        ((epoch, place),) = fetch(
            connection, "SELECT epoch, place FROM job_folded WHERE worker = :worker", worker=worker
        )
        left = fetch(
            connection,
            "SELECT epoch, place, value FROM job_counted WHERE worker = :worker ORDER BY epoch, place",
            worker=worker,
        )
        sums: dict[tuple[str, str], CountedRow] = {}
        last = CountedTo(epoch, place)
        for *moment, value in left:
            if (now := CountedTo(*moment)) > last:
                last = now
                for row in _parsed(value):
                    key = row.kind, json.dumps(row.key)
                    sums[key] = sum_of(sums[key], row) if key in sums else row
        _write(connection, worker, [_added(connection, worker, row) for row in sums.values()])
        execute(
            connection,
            "UPDATE job_folded SET epoch = :epoch, place = :place WHERE worker = :worker",
            worker=worker,
            **last._asdict(),
        )
        _forget(connection, worker, last)


def _added(connection: Connection, worker: str, row: CountedRow) -> CountedRow:
    """The sum of a row and that of job_total."""
    before = fetch(
        connection,
        "SELECT value FROM job_total WHERE worker = :worker AND kind = :kind AND key = :key",
        worker=worker,
        kind=row.kind,
        key=json.dumps(row.key),
    )
    return sum_of(row, row._replace(value=json.loads(before[0][0]))) if before else row


def _lock(connection: Connection, worker: str) -> None:
    """Lock the totals of a worker until the transaction ends."""
    execute(
        connection,
        "INSERT INTO job_folded VALUES (:worker, 0, -1) ON CONFLICT (worker) DO UPDATE SET epoch = job_folded.epoch",
        worker=worker,
    )


def _write(connection: Connection, worker: str, rows: Sequence[CountedRow]) -> None:
    listed = [
        {"worker": worker, "kind": row.kind, "key": json.dumps(row.key), "value": json.dumps(row.value)} for row in rows
    ]
    for start in range(0, len(listed), _WRITTEN_AT_ONCE):
        execute(connection, _PUT_TOTALS, listed[start : start + _WRITTEN_AT_ONCE])


def _forget(connection: Connection, worker: str, upto: CountedTo) -> None:
    execute(
        connection,
        "DELETE FROM job_counted WHERE worker = :worker AND (epoch, place) <= (:epoch, :place)",
        worker=worker,
        **upto._asdict(),
    )


def totals_elsewhere(connection: Connection, worker: str, host: str) -> Totals:
    """Return the totals that other workers have counted for a host, as far as they are folded into `job_total`."""
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
    """The rows of all workers; several may have the same key, and are added."""
    is_old = not inspect(connection).has_table(COUNTED.name)  # no worker has joined since an earlier version
    rows: list[CountedRow] = []
    for kind, key, value in fetch(connection, "SELECT kind, key, value FROM job_total" if is_old else _ALL):
        rows += [CountedRow(kind, json.loads(key), json.loads(value))] if kind else _parsed(value)
    return rows


def _parsed(value: str) -> list[CountedRow]:
    """The rows of one transaction."""
    return [CountedRow(*row) for row in json.loads(value)]


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
        return AccountsView(folder, kept)


def _joined(runs: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """The times in which any worker ran."""
    joined: list[tuple[float, float]] = []
    for start_s, end_s in sorted(runs):
        if joined and start_s <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end_s, joined[-1][1]))
        else:
            joined.append((start_s, end_s))
    return joined
