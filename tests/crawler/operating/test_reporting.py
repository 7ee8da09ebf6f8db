"""The verb `report` of a running crawl."""

from __future__ import annotations

import pytest

from anabranch.crawler.operating.reporting import MOST, RunningJob, answer_report, facts_of_running
from anabranch.crawler.outcomes.errors import UsageError
from anabranch.crawler.reporting.accounts import Accounts
from anabranch.crawler.reporting.crawl_log import CrawlLogEntry, crawl_log_line
from anabranch.crawler.reporting.reports.catalogue import REPORTS, write_all
from anabranch.crawler.reporting.reports.seeds import SeedFact
from anabranch.crawler.reporting.statistics import WorkerBoard
from tests.crawler.builder import memory_frontier
from tests.crawler.reporting.test_accounts import Entry

URL = "http://a.test/"


@pytest.fixture
async def job(tmp_path):
    async with memory_frontier(URL, f"{URL}2") as frontier:
        accounts = Accounts(tmp_path, tmp_path / "crawl.log", frontier.core.now_s)
        entry = CrawlLogEntry(logged_s=0.0, status=200, size_bytes=5, url=URL, mime="a/b", worker=1)
        accounts.append([Entry(crawl_log_line(entry))])
        accounts.keep()

        async def seeds():
            return [SeedFact(URL, 0, "", None)]

        board = WorkerBoard()
        lease = await frontier.lease()
        board.begin(3, lease.url, 0)
        board.enter(3, "fetch")
        yield RunningJob(
            name="news", state=tmp_path, accounts=accounts, frontier=frontier, board=board,
            status=lambda: "running", seeds=seeds,
        )  # fmt: skip
        accounts.close()


@pytest.mark.parametrize("name", REPORTS)
async def test_a_running_crawl_has_every_report(job, name) -> None:
    """Facts or rows, what JSON holds."""
    said = await answer_report(job, {"name": name})
    assert said.get("facts") or said["rows"] or name == "frontier-nonempty"


async def test_what_was_kept_a_moment_ago_is_in_the_report(job) -> None:
    """Nobody waits for the next commit."""
    assert (await answer_report(job, {"name": "mimetypes"}))["rows"] == [{"#urls": 1, "#bytes": 5, "mime-types": "a/b"}]
    assert (await answer_report(job, {"name": "crawl-summary"}))["facts"]["Crawl Status"] == "running"
    (worker,) = (await answer_report(job, {"name": "workers"}))["rows"]
    assert (worker["worker"], worker["processor"], worker["uri"]) == ("#003", "fetch", URL)


@pytest.mark.parametrize(
    "given", [{}, {"name": "x"}, {"name": "hosts", "limit": -1}, {"name": "hosts", "limit": MOST + 1}]
)
async def test_what_makes_no_sense_is_refused(job, given) -> None:
    """One line for whoever asked."""
    with pytest.raises(UsageError):
        await answer_report(job, given)


async def test_at_the_end_all_reports_are_written(job, tmp_path) -> None:
    """From the same facts."""
    facts = await facts_of_running(job)
    with facts.accounts:
        write_all(tmp_path, facts)
    assert (tmp_path / "hosts-report.txt").read_text().splitlines()[1].startswith("1 5 a.test 0 ")
