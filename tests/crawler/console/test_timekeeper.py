"""A console starts jobs that are due, and notices ends."""

from contextlib import closing
from queue import SimpleQueue

import pytest

from anabranch.crawler.console.jobs import ConsoleJobs
from anabranch.crawler.console.outbox import KnownEnds, NoticeOutbox
from anabranch.crawler.console.timekeeper import Timekeeper
from anabranch.crawler.job.folder import JobFolder
from anabranch.crawler.job.scheduledruns import opened_runs
from anabranch.crawler.job.state import RunRecord, keep_record
from anabranch.crawler.operate import NoticeTargets
from anabranch.crawler.order.order import CrawlOrder, dump_order
from anabranch.crawler.order.schedule import JobSchedule
from tests.patience import HANG_S

HOURLY = JobSchedule("every 1h", "UTC")


def made_job(folder, name: str, schedule: str):
    with JobFolder.open(folder / name) as job:
        job.write_order(dump_order(CrawlOrder.model_validate({"job": {"schedule": schedule}})))
    return job.directory


@pytest.fixture
def started(monkeypatch):
    """The names of the jobs that a console starts."""
    found: SimpleQueue[str] = SimpleQueue()
    monkeypatch.setattr(ConsoleJobs, "start_scheduled", lambda _, directory, *__: found.put(directory.name))
    return found


def test_what_is_due_is_started_and_a_job_that_cannot_be_read_holds_up_no_other(tmp_path, started) -> None:
    """Without a look in between: it wakes at the time."""
    bad = made_job(tmp_path, "bad", "every 1h")
    (bad / "order.toml").write_text("[job]\nschedule = 'nonsense'\n")
    with opened_runs(made_job(tmp_path, "news", "every 1h")) as runs:
        runs.handled_until(HOURLY, 1e9)
    jobs, box = ConsoleJobs(str(tmp_path)), NoticeOutbox(tmp_path, NoticeTargets())
    with Timekeeper(jobs, box, None) as keeper:
        assert started.get(timeout=HANG_S) == "news"
        keeper.wake()
    assert started.empty()


def test_the_end_of_a_run_is_noticed_when_its_process_lets_go(tmp_path, monkeypatch) -> None:
    """And told once; one that ended before is no news."""
    old, news = made_job(tmp_path, "old", ""), made_job(tmp_path, "news", "")
    keep_record(old / "state", RunRecord(1e9, ended_s=1e9 + 1, why="finished"))
    box, told = NoticeOutbox(tmp_path, NoticeTargets(("true",))), SimpleQueue()
    monkeypatch.setattr(NoticeOutbox, "add", lambda _, notice: told.put(notice.job))
    monkeypatch.setattr(ConsoleJobs, "job", lambda _, name: _Left(name))
    with closing(JobFolder.open(news)):
        keep_record(news / "state", RunRecord(3e9))
        keeper = Timekeeper(ConsoleJobs(str(tmp_path)), box, KnownEnds(tmp_path, 2e9))
        keeper.__enter__()
    assert told.get(timeout=HANG_S) == "news"
    keeper.wake()
    keeper.__exit__()
    assert told.empty()


class _Left:
    """A job as it was left."""

    def __init__(self, name: str) -> None:
        self._name = name

    def status(self) -> dict[str, str]:
        return {"job": self._name}


def test_the_numbers_of_a_job_are_those_of_its_schedule(tmp_path) -> None:
    """A job without one has only that of its notices."""
    with opened_runs(made_job(tmp_path, "news", "every 1h")) as runs:
        runs.handled_until(HOURLY, 1e9)
    made_job(tmp_path, "plain", "")
    keeper = Timekeeper(ConsoleJobs(str(tmp_path)), NoticeOutbox(tmp_path, NoticeTargets()), None, lambda: 1e9 + 60)
    assert keeper.numbers({"news": None, "plain": None}) == {
        "news": {
            "anabranch_job_undelivered_notices": 0,
            "anabranch_job_missed_runs": 0,
            "anabranch_job_next_run_seconds": 1e9 + 3600,
        },
        "plain": {"anabranch_job_undelivered_notices": 0},
    }
    assert keeper.schedule("plain") is None
