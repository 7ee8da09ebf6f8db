"""The runs of a schedule, as rows of the job."""

import os

import pytest

from anabranch.crawler.job.folder import JobFolder
from anabranch.crawler.job.scheduledruns import (
    MOST_RUNS,
    KeptRuns,
    RunOutcome,
    ScheduledRun,
    kept_runs,
    opened_runs,
    take_schedule_lock,
)
from anabranch.crawler.job.seeds import has_seeds
from anabranch.crawler.order.schedule import JobSchedule

HOURLY = JobSchedule("every 1h", "UTC")


@pytest.fixture
def job(tmp_path):
    """A job that was created and has not begun."""
    JobFolder.open(tmp_path / "news").close()
    return tmp_path / "news"


def run(due_s: float, outcome=RunOutcome.STARTING, **more) -> ScheduledRun:
    return ScheduledRun(due_s, due_s + 1, "test", outcome, **more)


def test_a_schedule_counts_from_when_it_is_seen_first(job) -> None:
    """Also one that was changed; the same one counts on."""
    with opened_runs(job) as runs:
        assert [runs.handled_until(HOURLY, now_s) for now_s in (100.0, 200.0)] == [100.0, 100.0]
        assert runs.handled_until(JobSchedule("every 2h", "UTC"), 300.0) == 300.0
        assert runs.handled_until(JobSchedule("every 2h", "Europe/Berlin"), 400.0) == 400.0


def test_the_last_run_counts_unless_it_is_in_the_future(job) -> None:
    """A clock that was wrong for a while does not stop the schedule for ever."""
    with opened_runs(job) as runs:
        runs.handled_until(HOURLY, 100.0)
        assert runs.add(run(3700.0))
        assert runs.add(run(9e9))
        assert runs.handled_until(HOURLY, 5000.0) == 3700.0


def test_a_run_is_noted_once(job) -> None:
    """One that is being started replaces one that was left out, since only the holder of the lock starts any."""
    with opened_runs(job) as runs:
        assert runs.add(run(1.0, RunOutcome.STILL_RUNNING))
        assert not runs.add(run(1.0, RunOutcome.STILL_RUNNING))
        assert runs.add(run(1.0))
        runs.settle(1.0, RunOutcome.STARTED)
        assert not runs.add(run(1.0))
        last = runs.last()
    assert last is not None
    assert last.outcome is RunOutcome.STARTED


def test_what_is_kept_is_read_without_a_change(job) -> None:
    """The last run comes first; a job without runs has none, and its folder stays as it is."""
    before = {*(job / "state").iterdir()}
    assert kept_runs(job) == KeptRuns()
    assert {*(job / "state").iterdir()} == before
    with opened_runs(job) as runs:
        runs.handled_until(HOURLY, 0.0)
        runs.add(run(1.0, missed=2))
        runs.settle(1.0, RunOutcome.FAILED, "no disk")
        runs.add(run(2.0))
    kept = kept_runs(job)
    assert (kept.schedule, kept.handled_s) == (HOURLY, 2.0)
    assert [one.due_s for one in kept.runs] == [2.0, 1.0]
    assert (kept.runs[1].missed, kept.runs[1].words) == (2, "no disk")


def test_runs_are_bounded_and_no_seeds(job) -> None:
    """The oldest go; the job has not begun, although it has the file of its seeds."""
    with opened_runs(job) as runs:
        runs.handled_until(HOURLY, 0.0)
        for number in range(MOST_RUNS + 5):
            runs.add(run(float(number)))
    assert [kept_runs(job).runs[place].due_s for place in (0, -1)] == [MOST_RUNS + 4.0, 5.0]
    assert not has_seeds(job)
    assert (job / "state" / "job.db").stat().st_mode & 0o077 == 0


def test_the_lock_is_held_by_all_who_inherit_it(job) -> None:
    """It is free when the last of them has closed it."""
    lock = take_schedule_lock(job)
    assert lock is not None
    inherited = os.dup(lock)
    assert take_schedule_lock(job) is None
    os.close(lock)
    assert take_schedule_lock(job) is None
    os.close(inherited)
    again = take_schedule_lock(job)
    assert again is not None
    os.close(again)
