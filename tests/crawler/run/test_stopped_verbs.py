"""The log of URLs that an operator removes from a job that is not running."""

from __future__ import annotations

import errno
import os
from contextlib import closing
from pathlib import Path

import pytest

from anabranch.crawler.accounts.accounts import Accounts
from anabranch.crawler.accounts.crawl_log import CrawlLogEntry, crawl_log_line
from anabranch.crawler.archive.sink import JournalEntry
from anabranch.crawler.job.folder import JobFolder
from anabranch.crawler.job.journal import LineFile
from anabranch.crawler.outcomes.errors import StorageError
from anabranch.crawler.run.stopped_verbs import removal_log
from anabranch.frontier.records import Head, Row


def head(url: str) -> Head:
    row = Row(
        ordinal=1,
        queue=1,
        gate=1,
        precedence=0,
        url=url,
        key=None,
        hops="",
        via=0,
        attempts=0,
        due_s=None,
        payload=None,
    )
    return Head(row, None)


def line(url: str) -> bytes:
    return crawl_log_line(CrawlLogEntry(0.0, 200, url, 1, size_bytes=1))


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """A job that was killed: its record knows of one line of crawl.log, which has two."""
    with JobFolder.open(tmp_path / "job") as job:
        accounts = Accounts(job.state, job.crawl_log, lambda: 0.0)
        log = LineFile(job.crawl_log, "crawl_log")
        for url in ("http://a.test/", "http://torn.test/"):
            entries = [JournalEntry(crawl_log=line(url))]
            log.append(entries)
            if "torn" not in url:
                accounts.append(entries, log.marks())
                accounts.keep()
            log.keep()
    return tmp_path / "job"


def urls_in(job: Path) -> list[str]:
    return [line.split()[3] for line in (job / "logs/crawl.log").read_text().splitlines()]


def processed(job: Path) -> int:
    with closing(Accounts(job / "state", job / "logs/crawl.log", lambda: 0.0)) as accounts:
        return accounts.of_host("a.test").processed + accounts.of_host("torn.test").processed


def test_lines_of_removed_urls_follow_those_that_count(killed: Path) -> None:
    """A line that a killed run wrote but did not record is cut first; log and totals agree, and the next run cuts nothing."""
    with removal_log(killed, lambda: 0.0, extra_info=False) as write:
        write([head("http://a.test/removed")])
    assert urls_in(killed) == ["http://a.test/", "http://a.test/removed"]
    assert processed(killed) == 2
    with closing(Accounts(killed / "state", killed / "logs/crawl.log", lambda: 0.0)) as accounts:
        assert accounts.files == {}


def test_a_line_of_a_removed_url_is_in_log_and_totals_or_in_neither(
    killed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk refuses the record, then every cut: the next run makes it."""

    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    def remove() -> None:
        with removal_log(killed, lambda: 0.0, extra_info=False) as write, monkeypatch.context() as patcher:
            patcher.setattr("anabranch.crawler.accounts.journal.AccountsJournal.append", refuse)
            patcher.setattr(os, "ftruncate", refuse)
            write([head("http://a.test/removed")])

    with pytest.raises(StorageError):
        remove()
    with removal_log(killed, lambda: 0.0, extra_info=False):
        pass
    assert urls_in(killed) == ["http://a.test/"]
    assert processed(killed) == 1
