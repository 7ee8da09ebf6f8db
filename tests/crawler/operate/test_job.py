"""An operator changes a job of one process while nothing crawls it."""

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from anabranch.crawler.job.folder import JobFolder, held_folder
from anabranch.crawler.job.frontier import open_job
from anabranch.crawler.job.orderfile import begun_order
from anabranch.crawler.operate import job as operated_job
from anabranch.crawler.operate.job import Job
from anabranch.crawler.order.order import CrawlOrder, dump_order
from anabranch.crawler.outcomes.errors import JobInUse, UsageError
from anabranch.crawler.run.control import Control


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A job with an order, and no queue yet."""
    with JobFolder.open(tmp_path / "job") as folder:
        folder.write_order(dump_order(CrawlOrder()))
    return tmp_path / "job"


def test_changes_at_the_same_time_are_all_kept(job: Path) -> None:
    """Each waits for its turn."""
    count = 6
    start = Barrier(count)

    def change(number: int) -> None:
        start.wait()
        Job(job).change_order([f"scope.exclude+=/{number}"])

    with ThreadPoolExecutor(count) as pool:
        list(pool.map(change, range(count)))
    assert sorted(begun_order(job).scope.exclude) == [f"/{number}" for number in range(count)]


def test_a_job_that_stays_held_is_not_changed(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line names the process that has it."""
    monkeypatch.setattr(operated_job, "PATIENCE_S", 0.0)
    with held_folder(job), pytest.raises(JobInUse, match=r"in use by .*; ask again in a moment"):
        Job(job).change_order(["limits.pages=5"])
    assert begun_order(job).limits.pages == 0


def test_a_job_that_was_never_begun_is_changed_only_if_it_has_an_order(job: Path, tmp_path: Path) -> None:
    """One that a console has made can be changed before its first run."""
    facts = Job(job).change_order(["limits.pages=5"])
    assert ([change["line"] for change in facts["changes"]], facts["note"]) == (["limits.pages: 0 -> 5"], "")
    with JobFolder.open(tmp_path / "new"):
        pass
    with pytest.raises(UsageError, match="the job has not begun; `anabranch crawl` begins it"):
        Job(tmp_path / "new").change_order(["limits.pages=5"])


def test_a_key_that_the_job_is_built_by_is_refused_with_all_others(job: Path) -> None:
    """It needs another job; nothing is changed."""
    with pytest.raises(
        UsageError, match=r"frontier\.policy: cannot be changed after a job has begun; these keys can: \[limits\]"
    ):
        Job(job).change_order(["limits.pages=5", "frontier.policy=host"])
    assert begun_order(job).limits.pages == 0


async def test_a_queue_in_memory_is_asked_for_and_one_in_a_file_is_read(job: Path) -> None:
    """Who looks at all queues asks the crawl of the first, and reads the file of the second."""

    async def answered(verb, given):
        return {"verb": verb, **given}

    found = Job(job)
    assert (found.holder(), found.store, found.queues(7)) == ((False, None), None, None)
    with held_folder(job):
        async with Control(job / "state", answered):
            assert found.holder() == (True, os.getpid())
            assert await asyncio.to_thread(found.queues, 7) == {"verb": "ls", "limit": 7}
    (job / "state" / "frontier.db").write_bytes(b"rows")
    assert found.store == job / "state" / "frontier.db"


async def test_a_job_of_one_process_has_fetches_but_no_list_of_workers(job: Path) -> None:
    """Its fetches are the rows of its report."""

    async def answered(verb, given):
        return {"rows": [{"verb": verb, **given}]}

    found = Job(job)
    assert (found.workers(), found.worker_metrics()) == (None, None)
    with held_folder(job):
        async with Control(job / "state", answered):
            fetches = await asyncio.to_thread(found.fetches, 9)
    assert fetches == [{"verb": "report", "name": "workers", "limit": 9}]


def test_what_only_several_workers_have_is_refused(job: Path) -> None:
    """By the name of the job."""
    for call in (lambda: Job(job).drain("a"), lambda: Job(job).requeue("a")):
        with pytest.raises(UsageError, match=f"{job}: this needs a job with several workers"):
            call()


def test_a_job_that_was_killed_before_its_seeds_were_queued_is_not_finished(job: Path) -> None:
    """Nothing is queued, and nothing was ever done."""
    with JobFolder.open(job) as folder:
        open_job(folder.state, begun_order(job)).close()
    facts = Job(job).status()
    assert (facts["is_finished"], facts["line"]) == (False, "not running; `anabranch crawl` resumes it")
