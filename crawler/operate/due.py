"""Starts the jobs of a folder that are due by their schedules; of several processes that do so at once, one starts a run.

    order: [job] schedule -> due? -> lock and row (`job.scheduledruns`) -> a process that crawls -> row

If several times have passed, one run is started for the last of them, and the others are counted as missed. A job whose last
run still goes is left alone. Both are noted with the run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from anabranch.crawler.job.folder import refuse_moved, who_holds
from anabranch.crawler.job.orderfile import CHANGES_FILE
from anabranch.crawler.job.scheduledruns import (
    KeptRuns,
    RunOutcome,
    ScheduledRun,
    ScheduledRuns,
    kept_runs,
    opened_runs,
    take_schedule_lock,
)
from anabranch.crawler.job.state import JOB_FILE, RunRecord, is_finished, run_record
from anabranch.crawler.job.workerfolders import last_order, shared_file
from anabranch.crawler.operate.finding import operated_folder
from anabranch.crawler.order.schedule import Due, JobSchedule
from anabranch.crawler.order.sections import JobSection
from anabranch.crawler.outcomes.endings import OF_ROUNDS
from anabranch.crawler.outcomes.errors import CrawlerError, storage_errors
from anabranch.crawler.run.control import has_crawl
from anabranch.crawler.run.verbs import Facts
from anabranch.frontier.jobfolder import ORDER_FILE, STATE, is_embedded

#: Has a process crawl the job of a folder, with these options of `anabranch crawl`; it inherits the descriptor. Returns when it
#: crawls, or has ended in order. Raises: CrawlerError with what it said.
StartCrawl = Callable[[Path, Sequence[str], int], object]

_ROUND_OVER = frozenset(ending.name.lower() for ending in OF_ROUNDS)
#: Runs that `schedule_facts` lists.
_SHOWN_RUNS = 20


class Scheduled(NamedTuple):
    """The schedule of a job, and its runs."""

    job: JobSection
    schedule: JobSchedule
    kept: KeptRuns

    @property
    def is_new(self) -> bool:
        """No process has noted this schedule yet: its times count from then on."""
        return self.kept.schedule != self.schedule

    def next_s(self, now_s: float) -> float | None:
        """The next time at which the job is due; it has passed if the job is due now. None: there is none."""
        last = self.kept.runs[0] if self.kept.runs else None
        if last is not None and last.outcome is RunOutcome.STARTING:
            return last.due_s  # another process starts it, or was killed while it did
        return self.schedule.next_after(now_s if self.is_new else self.kept.handled_s)


def scheduled(directory: Path) -> Scheduled | None:
    """The schedule of the job in a folder; None without one, and for jobs that are not started from here.

    Those are jobs in a database, and those of host programs. Raises: CrawlerError, FrontierError.
    """
    order = None if is_embedded(directory) else last_order(directory)
    if order is None or order.frontier.is_in_database:
        return None
    refuse_moved(directory)
    job = operated_folder(directory).order().job
    return None if job.when is None else Scheduled(job, job.when, kept_runs(directory))


class Schedules:
    """The schedules of jobs, read again when a file of the job has changed. Cost of a look: three calls of `stat`."""

    def __init__(self) -> None:
        self._found: dict[Path, tuple[object, Scheduled | None]] = {}

    def of(self, directory: Path) -> Scheduled | None:
        """The schedule of a job. Raises: as `scheduled`."""
        stamp = _stamp(directory)
        if directory not in self._found or self._found[directory][0] != stamp:
            self._found[directory] = (stamp, scheduled(directory))
        return self._found[directory][1]


def _stamp(directory: Path) -> object:
    """Differs when the job's order or its runs may have changed; always where several processes have the order in rows."""
    files = (directory / ORDER_FILE, directory / STATE / JOB_FILE, directory / STATE / CHANGES_FILE)
    stamp: list[object] = [object()] if shared_file(directory) is not None else []
    for file in files:
        try:
            found = file.stat()
            stamp.append((found.st_mtime_ns, found.st_size, found.st_ino))
        except FileNotFoundError:
            stamp.append(None)
    return stamp


def start_due(directory: Path, now_s: float, start: StartCrawl, who: str) -> ScheduledRun | None:
    """Start a run of the job if one is due, and return what came of it. None: none is due, or another process starts it.

    Blocks until the crawl answers. Raises: CrawlerError, FrontierError if the job cannot be read.
    """
    found = scheduled(directory)
    if found is None or not (found.is_new or (found.next_s(now_s) or now_s) <= now_s):
        return None
    lock = take_schedule_lock(directory)
    try:
        with storage_errors(directory / STATE):
            record = run_record(directory / STATE)
        with opened_runs(directory) as runs:
            moment = _Moment(now_s, who, record, is_ours=lock is not None, is_crawled=_is_crawled(directory))
            run = _claimed(runs, found.schedule, moment)
            if run is None or lock is None or run.outcome is not RunOutcome.STARTING:
                return run
            options = _options(found.job, record, is_over=is_finished(directory / STATE))
            outcome, words = RunOutcome.STARTED, ""
            try:
                start(directory, options, lock)
            except CrawlerError as error:
                outcome, words = RunOutcome.FAILED, str(error)
            runs.settle(run.due_s, outcome, words)
            return run._replace(outcome=outcome, words=words)
    finally:
        if lock is not None:
            os.close(lock)  # the crawl keeps its own descriptor, and so the lock


class _Moment(NamedTuple):
    """The facts of a job while somebody looks whether it is due."""

    now_s: float
    who: str
    record: RunRecord | None  #: of its last run
    is_ours: bool  #: the lock on its scheduled runs
    is_crawled: bool


def _claimed(runs: ScheduledRuns, schedule: JobSchedule, moment: _Moment) -> ScheduledRun | None:
    """Note a run that is due, to be started or left out; None if there is none, or another process starts it."""
    began_s = 0.0 if moment.record is None else moment.record.began_s
    due = schedule.due(runs.handled_until(schedule, moment.now_s), moment.now_s)
    last = runs.last()
    if last is not None and last.outcome is RunOutcome.STARTING:
        due = _unsettled(runs, last, due, moment, has_begun=began_s != last.before_s)
    if due is None or not (moment.is_ours or moment.is_crawled):
        return None
    outcome = RunOutcome.STILL_RUNNING if moment.is_crawled else RunOutcome.STARTING
    run = ScheduledRun(due.due_s, moment.now_s, moment.who, outcome, missed=due.missed, before_s=began_s)
    return run if runs.add(run) else None


def _unsettled(
    runs: ScheduledRuns, last: ScheduledRun, due: Due | None, moment: _Moment, *, has_begun: bool
) -> Due | None:
    """What is due where the last run was claimed and nobody has noted what came of it: that one, unless a later one is due."""
    if has_begun:
        runs.settle(last.due_s, RunOutcome.STARTED)
    elif moment.is_ours and not moment.is_crawled:
        if due is None:
            return Due(last.due_s, last.missed)
        runs.settle(last.due_s, RunOutcome.FAILED, "the process that was to start it was killed")
    return due


def _is_crawled(directory: Path) -> bool:
    """Whether a process crawls the job. A command that looks at it is none."""
    return has_crawl(directory / STATE) or (shared_file(directory) is not None and who_holds(directory)[0])


def _options(job: JobSection, record: RunRecord | None, *, is_over: bool) -> list[str]:
    """The options of `anabranch crawl` for a scheduled run, after the last one. Pure."""
    has_ended = record is not None and record.ended_s is not None and record.why in _ROUND_OVER
    return ["--again", "--yes"] if job.schedule_starts == "again" and (is_over or has_ended) else []


def schedule_facts(directory: Path, now_s: float) -> Facts | None:
    """The facts of a job's schedule, as facts.schema.json has them; None without one. Raises: as `scheduled`."""
    found = scheduled(directory)
    if found is None:
        return None
    overdue = None if found.is_new else found.schedule.due(found.kept.handled_s, now_s)
    return {
        "schedule": found.schedule.text,
        "zone": found.schedule.zone,
        "starts": found.job.schedule_starts,
        "next_s": found.next_s(now_s),
        "overdue": 0 if overdue is None else overdue.missed + 1,
        "missed": sum(run.missed for run in found.kept.runs),
        "runs": [
            {"due_s": run.due_s, "at_s": run.at_s, "who": run.who, "outcome": run.outcome.value, "words": run.words}
            | {"missed": run.missed}
            for run in found.kept.runs[:_SHOWN_RUNS]
        ],
    }
