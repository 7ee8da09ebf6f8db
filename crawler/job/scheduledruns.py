"""The runs of a job's schedule, as rows in `state/job.db`: when each was due, who claimed it, and what came of it.

A process claims a run by the lock on `state/schedule.lock` and then by a row. The crawl that it starts inherits the lock and
holds it until it ends. So a row that says `starting` while nobody has the lock was left by a process that was killed: if a run
has begun since the claim, that was this one; else the run is started again. Files of a folder: one machine starts them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import Connection

from anabranch.crawler.job.database import FACT, RUN, JobDatabase, execute, fact, fetch, make_tables, put_fact
from anabranch.crawler.job.state import JOB_FILE, SCHEDULE_LOCK
from anabranch.crawler.order.schedule import JobSchedule
from anabranch.crawler.outcomes.errors import storage_errors
from anabranch.dedup.files.locks import try_lock
from anabranch.frontier import closed_rows
from anabranch.frontier.errors import StoreUnavailable
from anabranch.frontier.jobfolder import STATE

#: Runs that are kept of each job.
MOST_RUNS = 100
#: The fact that has the schedule by which runs are due, and since when.
_SCHEDULE = "schedule"
_FACT = "SELECT value FROM job_fact WHERE name = 'schedule'"
_LAST_FIRST = "SELECT due_s, at_s, who, outcome, words, missed, before_s FROM job_run ORDER BY due_s DESC"
_INSERT = (
    "INSERT INTO job_run VALUES (:due_s, :at_s, :who, :outcome, :words, :missed, :before_s) ON CONFLICT (due_s) DO "
)
_NOTHING = "NOTHING"
_UPDATE = (
    "UPDATE SET at_s = excluded.at_s, who = excluded.who, outcome = excluded.outcome, before_s = excluded.before_s "
    "WHERE job_run.outcome IN ('still running', 'starting')"
)


class RunOutcome(StrEnum):
    """The outcome of a run that was due."""

    STARTING = "starting"
    STARTED = "started"
    FAILED = "failed"
    STILL_RUNNING = "still running"  #: the run before it had not ended, so it was left out


class ScheduledRun(NamedTuple):
    """A run that was due."""

    due_s: float  #: epoch seconds
    at_s: float  #: when it was claimed
    who: str  #: the process that claimed it
    outcome: RunOutcome
    words: str = ""  #: why it failed
    missed: int = 0  #: times before it at which no process was there to start a run
    before_s: float = 0.0  #: when the last run before the claim had begun; 0: there was none


class ScheduledRuns:
    """The runs of one job. Its methods are transactions, and block. Raises: StoreUnavailable."""

    def __init__(self, database: JobDatabase) -> None:
        self._database = database

    def handled_until(self, schedule: JobSchedule, now_s: float) -> float:
        """The last time that was handled. A schedule that is new, or was changed, counts from now on."""

        def step(connection: Connection) -> float:
            known = json.loads(fact(connection, _SCHEDULE) or "[]")
            if known[:2] != [*schedule]:
                known = [*schedule, now_s]
                put_fact(connection, _SCHEDULE, json.dumps(known))
            ((last_s,),) = fetch(connection, "SELECT max(due_s) FROM job_run WHERE due_s <= :now_s", now_s=now_s)
            return max(float(known[2]), float(last_s or 0.0))

        return self._database.do(step)

    def last(self) -> ScheduledRun | None:
        """The last run that was due."""
        found = self._database.do(lambda connection: fetch(connection, f"{_LAST_FIRST} LIMIT 1"))
        return _run(found[0]) if found else None

    def add(self, run: ScheduledRun) -> bool:
        """Note a run; False if it is noted already. One that is being started replaces one that was left out."""

        def step(connection: Connection) -> bool:
            instead = _UPDATE if run.outcome is RunOutcome.STARTING else _NOTHING
            is_new = execute(connection, _INSERT + instead, **{**run._asdict(), "outcome": run.outcome.value})
            execute(
                connection,
                "DELETE FROM job_run WHERE due_s NOT IN (SELECT due_s FROM job_run ORDER BY due_s DESC LIMIT :most)",
                most=MOST_RUNS,
            )
            return bool(is_new)

        return self._database.do(step)

    def settle(self, due_s: float, outcome: RunOutcome, words: str = "") -> None:
        """Note what came of a run."""
        text = "UPDATE job_run SET outcome = :outcome, words = :words WHERE due_s = :due_s"
        self._database.do(lambda connection: execute(connection, text, outcome=outcome.value, words=words, due_s=due_s))


def _run(row: tuple[object, ...]) -> ScheduledRun:
    fields = dict(zip(ScheduledRun._fields, row, strict=True))
    return ScheduledRun(**{**fields, "outcome": RunOutcome(str(fields["outcome"]))})  # type: ignore[arg-type]


@contextmanager
def opened_runs(directory: Path) -> Iterator[ScheduledRuns]:
    """The runs of a job in a folder, which another process may crawl. Raises: StorageError, StoreUnavailable."""
    file = directory / STATE / JOB_FILE
    with storage_errors(file):
        if not file.exists():
            file.touch(0o600)  # it gets the seeds, and one may hold a password
    with JobDatabase(file, is_sole=True) as database:
        make_tables(database, [FACT, RUN])
        yield ScheduledRuns(database)


class KeptRuns(NamedTuple):
    """The schedule of a job as it was when it was looked at last, and its runs."""

    schedule: JobSchedule | None = None  #: None: there was none
    handled_s: float = 0.0  #: the last time that was handled
    runs: tuple[ScheduledRun, ...] = ()  #: the last one first


def kept_runs(directory: Path) -> KeptRuns:
    """Read the runs of a job; changes nothing. It waits while another process writes. Raises: StoreUnavailable."""
    file = directory / STATE / JOB_FILE
    if not file.is_file():
        return KeptRuns()
    try:
        try:
            facts, rows = closed_rows(file, _FACT), closed_rows(file, _LAST_FIRST)
        except StoreUnavailable as error:
            if _has_no_table(error):
                raise
            with JobDatabase(file, is_sole=True) as database:
                facts, rows = database.do(
                    lambda connection: ([*fetch(connection, _FACT)], [*fetch(connection, _LAST_FIRST)])
                )
    except StoreUnavailable as error:
        if _has_no_table(error):
            return KeptRuns()
        raise
    if not facts:
        return KeptRuns()
    text, zone, since_s = json.loads(facts[0][0])
    runs = tuple(map(_run, rows))
    return KeptRuns(JobSchedule(text, zone), max([since_s, *(run.due_s for run in runs[:1])]), runs)


def _has_no_table(error: StoreUnavailable) -> bool:
    return "no such table" in str(error.__cause__)


def take_schedule_lock(directory: Path) -> int | None:
    """Lock the scheduled runs of a job, to start one; the descriptor, or None if another process does. Raises: StorageError.

    Whoever inherits the descriptor holds the lock, too.
    """
    file = directory / STATE / SCHEDULE_LOCK
    with storage_errors(file):
        lock = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if try_lock(lock):
                return lock
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)
        return None
