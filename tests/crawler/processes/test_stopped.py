"""What an operator asks of a job of several processes that nobody crawls."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from anabranch.crawler.job.folder import JobFolder
from anabranch.crawler.job.frontier import open_job
from anabranch.crawler.job.seeds import SEED_BOOK, Seed, SeedBook
from anabranch.crawler.job.state import is_finished, note_division
from anabranch.crawler.order.order import CrawlOrder, dump_order
from anabranch.crawler.outcomes.errors import OrderError, StoreLost, UsageError
from anabranch.crawler.processes.folders import settle_processes
from anabranch.crawler.processes.reopening import opened_shares
from anabranch.crawler.processes.stopped import StoppedJob, opened_job
from anabranch.frontier.division.ownership import Division
from anabranch.frontier.errors import UnknownQueue
from anabranch.frontier.records import Candidate, Outcome, OutcomeKind

ORDER = CrawlOrder.model_validate({"crawl": {"processes": 2}, "frontier": {"policy": "bkdr:1"}})


def host_of(share: int) -> str:
    """A host that the share owns."""
    division = Division(shares=2, share=0)
    return next(host for host in (f"h{number}.test" for number in range(100)) if division.owner_of(host) == share)


SEEDS = [Seed(url=f"http://{host_of(share)}/{page}", source="command line") for page in "ab" for share in (1, 0)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A job that has begun, with two empty shares."""
    directory = tmp_path / "job"
    with JobFolder.open(directory) as job:
        settle_processes(directory, 2)
        job.write_order(dump_order(ORDER))
        for share in range(2):
            with JobFolder.open(directory / "shares" / str(share)) as part:
                part.write_order(dump_order(ORDER))
                note_division(part.state, Division(shares=2, share=share))
                open_job(part.state, ORDER).close()
    return directory


@pytest.fixture
def job(folder: Path) -> Iterator[StoppedJob]:
    with opened_job(folder) as opened:
        yield opened


def test_a_seed_is_queued_by_the_share_that_owns_it(job: StoppedJob) -> None:
    """The answers stand in the order in which the seeds were named, and so does the book."""
    answer = job.add(SEEDS)
    assert [seed["url"] for seed in answer["seeds"]] == [seed.url for seed in SEEDS]
    assert {seed["verdict"] for seed in answer["seeds"]} == {"new"}
    assert [share.pending for share in job.shares] == [2, 2]
    with SeedBook(job.directory / "state" / SEED_BOOK) as book:
        assert list(book) == SEEDS


def no_key(url: str) -> str:
    """A function of the operator's own that fails."""
    raise ValueError(url)


def test_a_seed_that_has_no_key_is_not_in_the_book(job: StoppedJob) -> None:
    """Every later run takes its seeds from there."""
    order = CrawlOrder.model_validate({"urls": {"canonicalization": [f"{__name__}:no_key"]}})
    with pytest.raises(OrderError, match="a seed cannot be taken"):
        replace(job, order=order).add(SEEDS)
    assert not (job.directory / "state" / SEED_BOOK).exists()


def test_queues_of_one_name_are_listed_as_one(job: StoppedJob) -> None:
    """A policy by hash gives each share a part of the same queue."""
    job.add(SEEDS)
    listed = job.answer("ls", {"limit": 10})
    assert [queue["urls"] for queue in listed["queues"]] == [4]
    assert listed["totals"]["pending"] == 4


def test_a_seed_is_reported_by_its_key_for_dedup(job: StoppedJob) -> None:
    """Which is not the URL that was given, if the order's rules take something away."""
    seed = Seed(url=f"{SEEDS[0].url};jsessionid=0123456789abcdef", source="command line")
    job.add([seed])
    share = job.shares[1]
    while (lease := share.lease()) is None:
        share.flush()
    now_s = share.now_s()
    share.finish(lease, Outcome(OutcomeKind.DONE, 200, now_s, now_s))
    share.flush()
    (row,) = job.report({"name": "seeds"})["rows"]
    assert (row["code"], row["status"], row["seed"]) == (200, "CRAWLED", seed.url)


def test_a_question_about_a_url_goes_to_its_owner(job: StoppedJob) -> None:
    """No other share ever hears of it."""
    job.add(SEEDS)
    for seed in SEEDS:
        assert "queued" in str(job.answer("why", {"url": seed.url}))


def test_a_queue_that_no_share_knows_is_told(job: StoppedJob) -> None:
    """As of a job of one process."""
    with pytest.raises(UnknownQueue):
        job.answer("show", {"subject": "nowhere"})


def test_what_needs_a_frontier_for_itself_is_refused(job: StoppedJob) -> None:
    """The operator hears where it can be done."""
    with pytest.raises(UsageError, match="shares/0"):
        job.answer("dump", {})


def test_a_job_is_finished_only_if_every_share_is(folder: Path) -> None:
    """To look at it changes nothing about that."""
    with opened_job(folder) as job:
        assert job.is_done
    assert is_finished(folder / "state")
    with opened_job(folder) as job:
        job.add(SEEDS[:1])
        assert not job.is_done
    assert not is_finished(folder / "state")


def test_a_job_is_not_finished_while_a_share_has_something_for_another(folder: Path) -> None:
    """It is queued nowhere yet; the next run brings it to its owner."""
    with opened_job(folder) as job:
        job.shares[0].schedule([Candidate(SEEDS[0].url)])
        job.shares[0].flush()
        assert not any(share.pending for share in job.shares)
        assert not job.is_done
    assert not is_finished(folder / "state")


def test_a_job_that_has_not_begun_is_told(tmp_path: Path) -> None:
    """There is nothing to look at; nor in a share whose process never came so far."""
    with pytest.raises(UsageError, match="not begun"), opened_job(tmp_path / "new"):
        pass
    (tmp_path / "job" / "state").mkdir(parents=True)
    settle_processes(tmp_path / "job", 2)
    with pytest.raises(UsageError, match="shares/0"), opened_shares(tmp_path / "job"):
        pass


def test_a_lost_queue_of_a_share_is_told_as_a_crawl_tells_it(folder: Path) -> None:
    """No advice to begin the job again, and nothing is made in the place of what was lost."""
    lost = folder / "shares/1/state/frontier.db"
    lost.unlink()
    with pytest.raises(StoreLost, match=r"shares/1/state: the share's queue is missing or empty"), opened_job(folder):
        pass
    assert not lost.exists()
