"""Jobs whose files are written by the real journal, without a crawl."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from anabranch.crawler.accounts.accounts import Accounts
from anabranch.crawler.accounts.crawl_log import CrawlLogEntry, crawl_log_line, links_line, page_line
from anabranch.crawler.archive.sink import JournalEntry
from anabranch.crawler.extract.links import Link
from anabranch.crawler.job.folder import JobFolder
from anabranch.crawler.job.journal import Journal, open_journal
from anabranch.crawler.order.sections import WriteSection
from tests.crawler.archive.exchanges import START_S, exchange


def clock() -> float:
    return START_S


@asynccontextmanager
async def running(directory: Path, **write: object) -> AsyncIterator[Journal]:
    """A job that a process crawls, as far as its files are concerned."""
    section = WriteSection.model_validate({"warc": True, "links": True, **write})
    with JobFolder.open(directory) as job:
        accounts = Accounts(job.state, job.crawl_log, clock)
        files = open_journal(job, section, {"software": "test"}, clock, accounts)
        try:
            yield files.journal
        finally:
            await files.journal.close()


def entry(
    url: str,
    *,
    hops: str = "",
    status: int = 200,
    mime: str = "text/html",
    links: Sequence[str] = (),
    errors: bytes | None = None,
    at_s: float = START_S,
) -> JournalEntry:
    """The entry that a visit of this URL leaves."""
    logged = CrawlLogEntry(logged_s=at_s, status=status, size_bytes=7, url=url, worker=1, hops=hops, mime=mime)
    page = page_line(
        url=url,
        status=status,
        mime=mime,
        size_bytes=7,
        hops=hops,
        via=None,
        fetched_s=at_s,
        digest="sha1:X",
        round_number=1,
    )
    found = [Link(link, "L", "a/@href") for link in links]
    return JournalEntry(
        crawl_log=crawl_log_line(logged),
        pages=page,
        links=links_line(url, hops, found) if found else None,
        errors=errors,
        exchange=exchange(url, b"<p>" + url.encode(), start_s=at_s, end_s=at_s),
    )


async def finished(directory: Path, *entries: JournalEntry, **write: object) -> Path:
    """A job that has ended, with these visits."""
    async with running(directory, **write) as journal:
        for one in entries:
            await journal.write(one)
    return directory
