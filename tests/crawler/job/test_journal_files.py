"""From the order to the files of a job."""

from __future__ import annotations

import errno
import gzip
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from anabranch.crawler.accounts.accounts import Accounts
from anabranch.crawler.archive.sink import GroupRecord, JournalEntry
from anabranch.crawler.job.folder import JobFolder
from anabranch.crawler.job.journal import LineFile, open_journal, roll_back, warc_facts
from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.order.sections import WriteSection
from anabranch.crawler.outcomes.errors import StorageError
from anabranch.dedup.files.durable import FileMark
from tests.crawler.archive.exchanges import START_S, exchange, read_by_warcio, urls_in, warcs

ENTRY = JournalEntry(crawl_log=b"c\n", pages=b"p\n", links=b"l\n", errors=b"e\n", exchange=exchange("http://a.test/"))


def clock() -> float:
    return START_S


class Record(GroupRecord):
    """A record that notes what it is asked."""

    path = Path("record")
    files = None

    def __init__(self) -> None:
        self.calls: list[str] = []

    def begin(self, files: object) -> None:
        self.calls.append("begin")

    def append(self, entries: object, files: object) -> None:
        self.calls.append("append")

    def settle(self, files: object) -> None:
        self.calls.append("settle")

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
        record = Record()
        writing = open_journal(job, section, {"software": "x"}, clock, record)
        await writing.journal.write(ENTRY)
        await writing.journal.close()
        assert (writing.payloads is not None) == warc
        assert record.calls == ["begin", "append", "keep", "settle", "close"]
        assert (job.crawl_log.read_bytes(), job.errors.read_bytes()) == (b"c\n", b"e\n")
        assert (job.pages.exists(), job.links.exists(), job.warc.exists()) == (pages, links, warc)
        assert (urls_in(job.warc) if warc else []) == (["http://a.test/"] if warc else [])


async def test_a_fresh_job_has_no_warc_of_the_old_one(tmp_path: Path) -> None:
    """The files that the old job wrote are removed with it."""
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
        record = Record()
        with pytest.raises(StorageError, match=r"links.jsonl: is a directory"):
            open_journal(job, WriteSection(warc=True, links=True), {}, clock, record)
        assert record.calls == ["close"]


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


LOGS = ("logs/crawl.log", "logs/errors.jsonl", "pages.jsonl", "links.jsonl")


def killed_job(job: JobFolder) -> dict[str, FileMark]:
    """Logs with a group that was recorded and lines of one that was not; what was recorded."""
    marks = {}
    for log in LOGS:
        file = LineFile(job.directory / log, "crawl_log")
        file.append([JournalEntry(crawl_log=b"recorded\n" * 20)])
        file.keep()
        marks[Path(log).name] = file.marks()[Path(log).name]
        file.append([JournalEntry(crawl_log=b"of a torn group\n")])
        file.close()
    return marks


def moved(log: Path) -> None:
    log.rename(log.with_name(f"{log.name}.1"))


def compressed(log: Path) -> None:
    log.with_name(f"{log.name}.1.gz").write_bytes(gzip.compress(log.read_bytes()))
    log.unlink()


def replaced(log: Path) -> None:
    moved(log)
    log.write_bytes(b"of somebody else\n" * 20)


def shortened(log: Path) -> None:
    shutil.copyfile(log, log.with_name(f"{log.name}.1"))
    os.truncate(log, 9)


@pytest.mark.parametrize("rotated", [moved, compressed, replaced, shortened])
@pytest.mark.parametrize("log", LOGS)
def test_a_log_that_was_rotated_after_a_kill_is_named_and_not_cut(
    tmp_path: Path, log: str, rotated: Callable[[Path], None]
) -> None:
    """The other logs are cut to what was recorded."""
    with JobFolder.open(tmp_path / "job") as job:
        recorded = killed_job(job)
        rotated(job.directory / log)
        before = {path: path.read_bytes() for path in (job.directory / log).parent.glob(f"{Path(log).name}*")}
        with capture_logs() as logged:
            roll_back(job.directory, recorded)
        assert [entry["path"] for entry in logged if entry["log_level"] == "warning"] == [str(job.directory / log)]
        assert {path: path.read_bytes() for path in before} == before
        for other in {*LOGS} - {log}:
            assert (job.directory / other).read_bytes() == b"recorded\n" * 20


def test_a_copy_of_a_killed_job_is_rolled_back(tmp_path: Path) -> None:
    """Its files have other inodes."""
    with JobFolder.open(tmp_path / "job") as job:
        recorded = killed_job(job)
    shutil.copytree(tmp_path / "job", tmp_path / "copy")
    with capture_logs() as logged:
        roll_back(tmp_path / "copy", recorded)
    assert {entry["log_level"] for entry in logged} == {"info"}
    for log in LOGS:
        assert (tmp_path / "copy" / log).read_bytes() == b"recorded\n" * 20


async def test_logs_that_are_rotated_while_a_job_is_stopped_cause_no_warning(tmp_path: Path) -> None:
    """It was closed in order, so there is nothing to cut."""
    for _ in range(2):
        with JobFolder.open(tmp_path / "job") as job, capture_logs() as logged:
            accounts = Accounts(job.state, job.crawl_log, clock)
            writing = open_journal(job, WriteSection(warc=True, links=True), {}, clock, accounts)
            await writing.journal.write(ENTRY)
            await writing.journal.close()
            assert "rotated" not in str(logged)
            assert accounts.files == {}
        for log in LOGS:
            moved(job.directory / log)


async def test_a_warc_file_that_cannot_be_finished_is_finished_by_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record knows that its visits count."""

    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, "no")

    with JobFolder.open(tmp_path / "job") as job:
        for is_refused in (True, False):
            accounts = Accounts(job.state, job.crawl_log, clock)
            with monkeypatch.context() as patcher:
                if is_refused:
                    patcher.setattr("anabranch.crawler.archive.files.finish", refuse)
                writing = open_journal(job, WriteSection(warc=True), {}, clock, accounts)
                await writing.journal.write(ENTRY)
                await writing.journal.close()
            assert bool([*job.warc.glob("*.open")]) == is_refused
        assert urls_in(job.warc) == ["http://a.test/"] * 2
