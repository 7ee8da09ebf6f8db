"""Which jobs are due, and what is started."""

import os
from socket import AF_UNIX, socket

import pytest

from anabranch.crawler.job.folder import JobFolder
from anabranch.crawler.job.scheduledruns import RunOutcome, ScheduledRun, opened_runs, take_schedule_lock
from anabranch.crawler.job.state import RunRecord, keep_record
from anabranch.crawler.operate.due import schedule_facts, scheduled, start_due
from anabranch.crawler.order.order import CrawlOrder, dump_order
from anabranch.crawler.order.schedule import JobSchedule
from anabranch.crawler.outcomes.errors import CrawlerError
from tests.facts_schema import checked
from tests.rows import each_row

HOUR_S, BEGAN_S = 3600.0, 1e9


def job_of(tmp_path, **section):
    """A job that was seen first at `BEGAN_S`, and is due each hour."""
    with JobFolder.open(tmp_path / "news") as job:
        job.write_order(dump_order(CrawlOrder.model_validate({"job": {"schedule": "every 1h", **section}})))
    assert start_due(job.directory, BEGAN_S, no_start, "test") is None
    return job.directory


def no_start(*_: object) -> None:
    raise AssertionError("started")


class Starts:
    """Takes note of what is started."""

    def __init__(self, fault: str = "") -> None:
        self.options: list[list[str]] = []
        self._fault = fault

    def __call__(self, _directory, options, lock) -> None:
        assert not os.get_inheritable(lock)
        self.options.append([*options])
        if self._fault:
            raise CrawlerError(self._fault)


def look(job, hours: float, start=no_start) -> ScheduledRun | None:
    return start_due(job, BEGAN_S + hours * HOUR_S, start, "test")


def test_a_job_is_started_when_it_is_due_and_once(tmp_path) -> None:
    """Before, and afterwards, nothing is done."""
    job, starts = job_of(tmp_path), Starts()
    assert look(job, 0.9) is None
    found = look(job, 1.1, starts)
    assert found is not None
    assert (found.due_s, found.outcome, found.missed) == (BEGAN_S + HOUR_S, RunOutcome.STARTED, 0)
    assert look(job, 1.2) is None
    assert look(job, 2.0, starts) is not None
    assert len(starts.options) == 2


def test_missed_runs_are_one_run_and_said(tmp_path) -> None:
    """No process was there for a while: the last one is started, the others are counted."""
    job = job_of(tmp_path)
    facts = schedule_facts(job, BEGAN_S + 5.5 * HOUR_S)
    assert facts is not None
    assert (facts["overdue"], facts["next_s"]) == (5, BEGAN_S + HOUR_S)
    found = look(job, 5.5, Starts())
    assert found is not None
    assert (found.due_s, found.missed) == (BEGAN_S + 5 * HOUR_S, 4)
    facts = schedule_facts(job, BEGAN_S + 5.6 * HOUR_S)
    assert facts is not None
    checked(facts, "Schedule")
    assert (facts["overdue"], facts["missed"], facts["next_s"]) == (0, 4, BEGAN_S + 6 * HOUR_S)


def test_a_run_that_still_goes_is_left_alone_and_said(tmp_path) -> None:
    """A crawl answers on its socket."""
    job = job_of(tmp_path)
    with socket(AF_UNIX) as listening:
        listening.bind(str(job / "state" / "control"))
        listening.listen()
        found = look(job, 1)
        assert found is not None
        assert found.outcome is RunOutcome.STILL_RUNNING
        assert look(job, 1.5) is None
    assert look(job, 1.6) is None


def test_a_start_that_fails_is_said_and_not_repeated(tmp_path) -> None:
    """Until the next time."""
    job = job_of(tmp_path)
    found = look(job, 1, Starts("no contact"))
    assert found is not None
    assert (found.outcome, found.words) == (RunOutcome.FAILED, "no contact")
    assert look(job, 1.5) is None
    assert look(job, 2, Starts()) is not None


def test_a_run_whose_starter_was_killed_is_started_again(tmp_path) -> None:
    """No run has begun since: it is the same run, with what it had missed."""
    job, starts = job_of(tmp_path), Starts()
    with opened_runs(job) as runs:
        runs.add(ScheduledRun(BEGAN_S + HOUR_S, BEGAN_S + HOUR_S, "killed", RunOutcome.STARTING, missed=3))
    facts = schedule_facts(job, BEGAN_S + 1.1 * HOUR_S)
    assert facts is not None
    assert facts["next_s"] == BEGAN_S + HOUR_S
    lock = take_schedule_lock(job)
    assert lock is not None
    assert look(job, 1.1) is None  # somebody starts it just now
    os.close(lock)
    found = look(job, 1.1, starts)
    assert found is not None
    assert (found.due_s, found.outcome, found.missed) == (BEGAN_S + HOUR_S, RunOutcome.STARTED, 3)
    assert look(job, 1.2) is None


def test_a_run_that_began_before_its_starter_was_killed_is_not_started_again(tmp_path) -> None:
    """Whatever became of it."""
    job = job_of(tmp_path)
    with opened_runs(job) as runs:
        runs.add(ScheduledRun(BEGAN_S + HOUR_S, BEGAN_S + HOUR_S, "killed", RunOutcome.STARTING))
    keep_record(job / "state", RunRecord(BEGAN_S + HOUR_S + 1))
    assert look(job, 1.1) is None
    facts = schedule_facts(job, BEGAN_S + 1.1 * HOUR_S)
    assert facts is not None
    assert facts["runs"][0]["outcome"] == "started"


AGAIN = ["--again", "--yes"]


@each_row(
    ("why", "starts", "options"),
    [
        ("finished", "again", AGAIN),
        ("page_limit", "again", AGAIN),
        ("operator", "again", []),
        ("signal", "again", []),
        ("failed", "again", []),
        ("", "again", []),  # killed
        (None, "again", []),  # it was never crawled
        ("finished", "resume", []),
        ("page_limit", "resume", []),
    ],
)
def test_what_a_run_begins_follows_from_how_the_last_one_ended(tmp_path, why, starts, options) -> None:
    """Another round if the last one is over; one that was interrupted goes on. Or always what is queued, by the order."""
    job, made = job_of(tmp_path / f"{why}-{starts}", schedule_starts=starts), Starts()
    if why is not None:
        keep_record(job / "state", RunRecord(BEGAN_S, ended_s=BEGAN_S + 1 if why else None, why=why))
    look(job, 1, made)
    assert made.options == [options]


def test_a_job_without_a_schedule_is_not_looked_at(tmp_path) -> None:
    """Nor one that has no order yet. Nothing is written."""
    JobFolder.open(tmp_path / "new").close()
    assert scheduled(tmp_path / "new") is None
    job = job_of(tmp_path, schedule="")
    assert (scheduled(job), schedule_facts(job, BEGAN_S)) == (None, None)
    assert not (job / "state" / "job.db").exists()


def test_a_changed_schedule_misses_nothing(tmp_path) -> None:
    """Its times count from the first look at it."""
    job = job_of(tmp_path)
    with JobFolder.open(job) as opened:
        opened.write_order(dump_order(CrawlOrder.model_validate({"job": {"schedule": "every 1m"}})))
    found = scheduled(job)
    assert found is not None
    assert (found.schedule, found.is_new) == (JobSchedule("every 1m", "UTC"), True)
    assert look(job, 10) is None
    assert look(job, 10.1, Starts()) is not None


@pytest.mark.parametrize("store", ["postgresql://db.test/x"])
def test_a_job_in_a_database_is_not_started_from_here(tmp_path, store) -> None:
    """Its workers are started on their machines."""
    with JobFolder.open(tmp_path / "news") as job:
        order = CrawlOrder.model_validate({"job": {"schedule": "every 1h"}, "frontier": {"store": store}})
        job.write_order(dump_order(order))
    assert scheduled(tmp_path / "news") is None
