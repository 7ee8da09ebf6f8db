"""From the order to the files of a job."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from anabranch.crawler.archive.sink import JournalEntry
from anabranch.crawler.job.folder import JobFolder
from anabranch.crawler.job.journal import open_journal, warc_facts
from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.order.sections import WriteSection
from anabranch.crawler.outcomes.errors import StorageError
from tests.crawler.archive.exchanges import START_S, exchange, read_by_warcio, urls_in, warcs

ENTRY = JournalEntry(crawl_log=b"c\n", pages=b"p\n", links=b"l\n", errors=b"e\n", exchange=exchange("http://a.test/"))


def clock() -> float:
    return START_S


class Counter:
    """A sink of somebody else's."""

    path = Path("counter")

    def __init__(self) -> None:
        self.calls: list[str] = []

    def append(self, entries: object) -> None:
        self.calls.append("append")

    def keep(self) -> None:
        self.calls.append("keep")

    def take_back(self) -> None:
        self.calls.append("take_back")

    def close(self) -> None:
        self.calls.append("close")


async def test_what_a_killed_run_left_open_is_finished_by_a_run_without_warc_files(tmp_path: Path) -> None:
    """Nobody should have to know that it was killed, or that the run after it wrote none."""
    with JobFolder.open(tmp_path / "killed") as job:
        writing = open_journal(job, WriteSection(warc=True), {"software": "x"}, clock)
        await writing.journal.write(ENTRY)
        shutil.copytree(job.warc, tmp_path / "left")
        await writing.journal.close()
    with JobFolder.open(tmp_path / "job") as job:
        (tmp_path / "left").rename(job.warc)
        (growing,) = job.warc.glob("*.warc.gz.open")
        with growing.open("ab") as torn:
            torn.write(b"\x1f\x8b torn")
        writing = open_journal(job, WriteSection(warc=False), {}, clock)
        await writing.journal.close()
        assert urls_in(job.warc) == ["http://a.test/"]
        assert sorted(path.suffix for path in job.warc.iterdir()) == [".cdxj", ".gz"]


@pytest.mark.parametrize("links", [False, True])
@pytest.mark.parametrize("pages", [False, True])
@pytest.mark.parametrize("warc", [False, True])
async def test_what_the_order_asks_for_is_written(tmp_path: Path, warc: bool, pages: bool, links: bool) -> None:
    """And nothing else; crawl.log and errors.jsonl always."""
    with JobFolder.open(tmp_path / "job") as job:
        section = WriteSection(warc=warc, pages=pages, links=links)
        counter = Counter()
        writing = open_journal(job, section, {"software": "x"}, clock, [counter])
        await writing.journal.write(ENTRY)
        await writing.journal.close()
        assert (writing.payloads is not None) == warc
        assert counter.calls == ["append", "keep", "close"]
        assert (job.crawl_log.read_bytes(), job.errors.read_bytes()) == (b"c\n", b"e\n")
        assert (job.pages.exists(), job.links.exists(), job.warc.exists()) == (pages, links, warc)
        assert (urls_in(job.warc) if warc else []) == (["http://a.test/"] if warc else [])


async def test_a_fresh_job_has_no_warc_of_the_old_one(tmp_path: Path) -> None:
    """What a job wrote goes with it."""
    with JobFolder.open(tmp_path / "job") as job:
        writing = open_journal(job, WriteSection(warc=True, links=True), {}, clock)
        await writing.journal.write(ENTRY)
        await writing.journal.close()
    with JobFolder.open(tmp_path / "job", delete_old=True) as job:
        assert not job.warc.exists()
        assert not job.links.exists()


def test_a_file_that_cannot_be_opened_closes_all_others(tmp_path: Path) -> None:
    """Also those that were handed over."""
    with JobFolder.open(tmp_path / "job") as job:
        job.links.mkdir()
        counter = Counter()
        with pytest.raises(StorageError, match=r"links.jsonl: is a directory"):
            open_journal(job, WriteSection(warc=True, links=True), {}, clock, [counter])
        assert counter.calls == ["close"]


async def test_the_first_record_says_who_crawled_and_how(tmp_path: Path) -> None:
    """The fields of warcinfo."""
    order = CrawlOrder.model_validate({"agent": {"product": "bot", "contact": "https://a.test/"}})
    section = WriteSection(warc=True, operator="An Archive")
    with JobFolder.open(tmp_path / "job") as job:
        writing = open_journal(job, section, warc_facts(order, section, "portals"), clock)
        await writing.journal.write(ENTRY)
        await writing.journal.close()
        told = read_by_warcio(warcs(job.warc)[0])[0].payload.decode()
    for line in ("isPartOf: portals", "operator: An Archive", "robots: obey", "format: WARC File Format 1.1"):
        assert line in told.splitlines()
    assert "http-header-user-agent: bot (+https://a.test/; anabranch/" in told
