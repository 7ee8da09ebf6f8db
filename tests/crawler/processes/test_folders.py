"""How many processes a job has is the job's for good."""

from pathlib import Path

import pytest

from anabranch.crawler.job.seeds import SEED_BOOK
from anabranch.crawler.job.state import (
    FINISHED_MARK,
    has_queue_in_memory,
    is_finished,
    mark_queue_in_memory,
    note_division,
)
from anabranch.crawler.outcomes.errors import OrderError, QueueLost, StoreLost, UsageError
from anabranch.crawler.processes.folders import processes_of, refuse_share, settle_processes, shares_of, unfinish_job_of
from anabranch.frontier.division.ownership import Division


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "state").mkdir()
    return tmp_path


def begin(job: Path) -> None:
    (job / "state" / SEED_BOOK).write_text('{"url": "http://a.test/", "source": "x", "via": null}\n')


def test_a_new_job_takes_the_number_of_its_order(job: Path) -> None:
    """And keeps it."""
    settle_processes(job, 3)
    begin(job)
    settle_processes(job, 3)
    assert processes_of(job) == 3
    assert shares_of(job) == [job / "shares" / str(share) for share in range(3)]


def test_a_job_of_one_process_has_no_shares(job: Path) -> None:
    """Nothing is written, nothing is divided."""
    settle_processes(job, 1)
    assert shares_of(job) == []
    assert list((job / "state").iterdir()) == []


@pytest.mark.parametrize(("first", "then"), [(2, 1), (2, 3), (1, 2)])
def test_another_number_is_refused(job: Path, first: int, then: int) -> None:
    """One line that names the job's own."""
    settle_processes(job, first)
    begin(job)
    with pytest.raises(OrderError, match=f"--processes {first}"):
        settle_processes(job, then)


def test_a_job_that_begins_in_several_processes_after_all_has_a_queue_that_lasts(job: Path) -> None:
    """A mark of a queue in memory that never had a seed would have a later run call the job finished, and leave it."""
    mark_queue_in_memory(job / "state")
    settle_processes(job, 2)
    assert not has_queue_in_memory(job / "state")


def test_a_job_whose_queue_was_in_memory_goes_on_in_no_number_of_processes(job: Path) -> None:
    """To name its own number would send the operator to the next refusal."""
    mark_queue_in_memory(job / "state")
    begin(job)
    with pytest.raises(QueueLost, match="start over with --fresh"):
        settle_processes(job, 2)
    assert has_queue_in_memory(job / "state")


def test_a_share_without_its_queue_is_told(job: Path) -> None:
    """To go on would silently crawl nothing of it."""
    settle_processes(job, 2)
    begin(job)
    (job / "shares/1/state").mkdir(parents=True)
    (job / "shares/1/order.toml").write_text("")
    with pytest.raises(StoreLost, match="shares/1"):
        settle_processes(job, 2)


def test_a_share_is_refused_where_its_job_is_meant(job: Path) -> None:
    """Crawled alone it would fetch hosts of others: the line names the job."""
    share = job / "shares" / "1"
    (share / "state").mkdir(parents=True)
    refuse_share(share)
    note_division(share / "state", Division(shares=2, share=1))
    with pytest.raises(UsageError, match=rf"is share 1 of a job of 2 processes; name the job, {job}$"):
        refuse_share(share)
    refuse_share(job)


def test_a_share_that_is_changed_by_itself_makes_its_job_one_with_work_left(job: Path) -> None:
    """Once and for all; a folder that was only copied to some place is no share of what it finds there."""
    settle_processes(job, 2)
    for share in ("1", "2"):
        (job / "shares" / share / "state").mkdir(parents=True)
        note_division(job / "shares" / share / "state", Division(shares=3, share=int(share)))
    (job / "state" / FINISHED_MARK).touch()
    unfinish_job_of(job)
    unfinish_job_of(job / "shares/2")
    assert is_finished(job / "state")
    for _ in range(2):
        unfinish_job_of(job / "shares/1")
        assert not is_finished(job / "state")
