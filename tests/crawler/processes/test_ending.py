"""The end of a run in several processes."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from anabranch.crawler.accounts.accounts import Accounts
from anabranch.crawler.accounts.database import ACCOUNTS_FILE, AccountsView
from anabranch.crawler.accounts.journal import SumDamaged
from anabranch.crawler.archive.sink import JournalEntry
from anabranch.crawler.job.folder import JobFolder
from anabranch.crawler.job.seeding import SeedFact
from anabranch.crawler.job.seeds import Seed
from anabranch.crawler.job.state import is_finished
from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.outcomes.endings import WhyEnded
from anabranch.crawler.outcomes.errors import StorageError
from anabranch.crawler.processes.ending import Ending
from anabranch.crawler.processes.folders import settle_processes
from anabranch.crawler.processes.shares import Shares
from anabranch.crawler.report.summary import RunFacts
from tests.crawler.accounts.test_accounts import line
from tests.crawler.run.test_summing import share

QUIET = CrawlOrder.model_validate({"report": {"reports": False}})
SEEDS = [
    Seed(url="http://a.test/", source="command line"),
    Seed(url="http://b.test/", source="redirect", via="http://a.test/"),
]


@pytest.fixture
def job(tmp_path: Path) -> Iterator[JobFolder]:
    """A job of two shares, whose logs have a line each."""
    with JobFolder.open(tmp_path / "job") as opened:
        settle_processes(opened.directory, 2)
        for number in range(2):
            logs = opened.directory / "shares" / str(number) / "logs"
            logs.mkdir(parents=True)
            (opened.directory / "shares" / str(number) / "state").mkdir()
            (logs / "crawl.log").write_bytes(line(url=f"http://{number}.test/"))
        yield opened


def shares(*ended: dict[str, Any]) -> Shares:
    return cast("Shares", SimpleNamespace(count=2, ended=dict(enumerate(ended))))


def ended(
    job: JobFolder, why: WhyEnded, *of_shares: dict[str, Any], order: CrawlOrder = QUIET
) -> tuple[Ending, RunFacts]:
    ending = Ending(order, job, lambda: 100.0)
    ending.check()
    return ending, ending.report(shares(*of_shares), SEEDS, why, {"pages": 5})


def retired(pages: int) -> dict[str, Any]:
    facts = share(pages)
    return {**facts, "frontier": {**facts["frontier"], "retired": 3}}


def test_the_run_is_the_sum_of_its_shares(job: JobFolder) -> None:
    """Dead processes included; seeds are those that the operator gave."""
    _, facts = ended(job, WhyEnded.PAGE_LIMIT, share(3), share(4))
    assert (facts.run.pages, facts.frontier.done, facts.ended) == (12, 7, WhyEnded.PAGE_LIMIT.value)
    assert facts.seeds == [SeedFact("http://a.test/", 0, "", None)]


@pytest.mark.parametrize(
    ("why", "of_share", "told", "finished"),
    [
        (WhyEnded.FINISHED, share(4), WhyEnded.FINISHED, True),
        (WhyEnded.FINISHED, retired(4), WhyEnded.RETIRED, False),
        (WhyEnded.SIGNAL, share(4, pending=1), WhyEnded.SIGNAL, False),
    ],
)
def test_a_job_is_finished_if_nothing_is_left_in_any_share(
    job: JobFolder, why: WhyEnded, of_share: dict[str, Any], told: WhyEnded, *, finished: bool
) -> None:
    """What stands in retired queues is left; so is what a signal has left."""
    ending, _ = ended(job, why, share(3), of_share)
    assert ending.why is told
    assert is_finished(job.state) is finished


def test_lines_are_gathered_and_counted_once(job: JobFolder) -> None:
    """At the beginning what a killed run has left, at the end the rest; the totals are the shares', wherever their logs are."""
    ending = Ending(QUIET, job, lambda: 100.0)
    ending.gather()
    share_0 = job.directory / "shares" / "0"
    accounts = Accounts(share_0 / "state", share_0 / "logs" / "crawl.log", lambda: 100.0)
    accounts.append([JournalEntry(crawl_log=line(url="http://0.test/more"))])
    accounts.keep()  # and killed: it never closes them
    with (share_0 / "logs" / "crawl.log").open("ab") as log:
        log.write(line(url="http://0.test/more"))
    for number in range(2):
        ending.report(shares(share(1), share(1)), SEEDS, WhyEnded.SIGNAL, {})
        with AccountsView(job.state) as view:
            assert view.total().urls == 3
        log_of = job.directory / "shares" / str(number) / "logs" / "crawl.log"
        log_of.rename(log_of.with_name("crawl.log.1"))
    assert len(job.crawl_log.read_text().splitlines()) == 3


def test_a_damaged_sum_is_told_before_the_crawl(job: JobFolder) -> None:
    """It is made again of the shares' accounts when it is removed."""
    (job.state / ACCOUNTS_FILE).write_bytes(b"no database" * 1000)
    with pytest.raises(SumDamaged, match="remove it"):
        Ending(QUIET, job, lambda: 100.0).check()
    (job.state / ACCOUNTS_FILE).unlink()
    ended(job, WhyEnded.SIGNAL, share(1), share(1))
    with AccountsView(job.state) as view:
        assert view.total().urls == 2


def test_a_folder_that_takes_no_reports_is_told_before_the_crawl(job: JobFolder) -> None:
    """Not after hours of it."""
    job.reports.rmdir()
    job.reports.write_text("in the way")
    with pytest.raises(StorageError):
        Ending(CrawlOrder(), job, lambda: 100.0).check()
