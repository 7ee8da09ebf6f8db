"""The rows of a list of jobs."""

import json
from pathlib import Path

import pytest

from anabranch.crawler.accounts.accounts import Accounts
from anabranch.crawler.accounts.crawl_log import CrawlLogEntry, crawl_log_line
from anabranch.crawler.job.folder import JobFolder, move_aside
from anabranch.crawler.operate.listing import job_folders, listed, listed_jobs
from anabranch.crawler.order.order import CrawlOrder, dump_order
from anabranch.crawler.report.progress_log import LEGEND
from anabranch.frontier.jobfolder import STORE_FILE
from tests.crawler.accounts.test_accounts import Entry
from tests.facts_schema import checked

LINE = " ".join(
    ["2026-11-20T11:22:33Z", "1010", "800", "205", "5.00(4.50)", "10(9)", "5", "12", "1000", "2000", "2.00", "40", "10"]
)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A job that was made, and that nobody has crawled."""
    with JobFolder.open(tmp_path / "news") as folder:
        folder.write_order(dump_order(CrawlOrder()))
    return tmp_path / "news"


def test_a_job_that_has_not_begun(job: Path) -> None:
    """Says so."""
    row = checked(listed(job), "JobRow")
    assert (row["job"], row["phase"], row["line"], row["pages"]) == ("news", "stopped", "not started yet", 0)


def test_a_stopped_job_has_the_numbers_of_its_logs(job: Path) -> None:
    """The last whole line of its statistics, and why it ended; nothing is opened."""
    log = job / "logs" / "progress-statistics.log"
    log.write_text(f"{LEGEND}\n{LINE}\n2026-11-20T11:22:34Z CRAWL ENDED - stopped\n2026-11-20T11:22:")
    row = checked(listed(job), "JobRow")
    assert (row["pages"], row["queued"], row["failed"], row["pages_per_s"]) == (205, 800, 5, 0)
    assert row["line"] == "stopped"
    with log.open("a") as file:
        file.write(f"33Z CRAWL RUNNING - crawling\n{LINE}\n")
    assert listed(job)["line"] == "not running"  # it was killed


def test_a_job_that_is_held_is_unknown(job: Path) -> None:
    """It is being opened, closed or changed."""
    with JobFolder.open(job):
        assert checked(listed(job), "JobRow")["phase"] == "unknown"


@pytest.mark.parametrize(
    ("file", "text", "line"),
    [
        ("state/format.json", json.dumps({"format": "anabranch job", "version": 999}), "by a newer version"),
        ("state/format.json", "{", "cannot be read"),
        ("order.toml", "[", "not TOML"),
    ],
)
def test_a_job_that_cannot_be_read_does_not_break_the_list(job: Path, file: str, text: str, line: str) -> None:
    """It is unknown, with the reason."""
    JobFolder.open(job.with_name("other")).close()
    (job / file).write_text(text)
    rows = [checked(row, "JobRow") for row in listed_jobs(job.parent)]
    assert [(row["job"], row["phase"]) for row in rows] == [("news", "unknown"), ("other", "stopped")]
    assert line in rows[0]["line"]


def test_the_jobs_of_a_folder_are_in_order(job: Path) -> None:
    """Files, other folders and jobs that were moved aside are left out; a folder that does not exist has no jobs."""
    JobFolder.open(job.with_name("archive")).close()
    (job.parent / "file").touch()
    (job.parent / "empty").mkdir()
    JobFolder.open(job.with_name("old")).close()
    moved = move_aside(job.with_name("old"), 0.0)
    assert moved is not None
    assert [found.name for found in job_folders(job.parent)] == ["archive", "news"]
    assert job_folders(job) == [job]
    assert job_folders(job.parent / "nosuch") == []


def test_a_crawl_that_was_killed_before_its_first_line_of_progress_has_its_pages(job: Path) -> None:
    """From its accounts; the pages since these were written are left out."""
    line = crawl_log_line(CrawlLogEntry(logged_s=0.0, status=200, size_bytes=1, url="http://a.test/", worker=1))
    accounts = Accounts(job / "state", job / "logs" / "crawl.log", lambda: 0.0)
    accounts.append([Entry(line)])
    accounts.keep()
    accounts.close()
    (job / "state" / STORE_FILE).write_text("a queue, which is not opened")
    row = checked(listed(job), "JobRow")
    assert (row["pages"], row["line"]) == (1, "not running")
