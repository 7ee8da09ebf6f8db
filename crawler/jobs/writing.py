"""From a crawl order to what its visits are written to: the journal with its files, and the memory of payloads."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from anabranch.crawler.archiving.files import WarcFiles, WarcOptions
from anabranch.crawler.archiving.finishing import finish_left_over
from anabranch.crawler.archiving.payloads import Payloads
from anabranch.crawler.jobs.job import JobFolder
from anabranch.crawler.jobs.journal import Journal, LineFile, Sink
from anabranch.crawler.orders.order import VERSION, CrawlOrder
from anabranch.crawler.orders.write import WriteSection
from anabranch.crawler.outcomes.errors import storage_errors
from anabranch.crawler.reporting.crawl_log import with_place

#: The job's memory of payloads, in its state folder.
PAYLOADS = "payloads.sqlite"

WARC_FORMAT = "WARC File Format 1.1"
WARC_STANDARD = "https://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/"


@dataclass(frozen=True, slots=True)
class Writing:
    """What visits are written to. Closing the journal closes all of it."""

    journal: Journal
    payloads: Payloads | None  #: None if no WARC files are written


def open_writing(
    job: JobFolder,
    section: WriteSection,
    facts: Mapping[str, str],
    clock: Callable[[], float],
    more: Sequence[Sink] = (),
) -> Writing:
    """Open the job's files: WARC first, then the logs, then what is `more`, then the memory of payloads.

    What a killed run left torn is cut or finished. Blocks (a WARC file that was left open is read from its last indexed record
    on). Raises: StorageError; then nothing stays open, `more` neither.
    """
    sinks: list[Sink] = []
    with contextlib.ExitStack() as opened:
        for sink in more:
            opened.callback(sink.close)
        for sink in _files(job, section, facts, clock):
            opened.callback(sink.close)
            sinks.append(sink)
        sinks += more
        payloads = Payloads(job.state / PAYLOADS) if section.warc else None
        if payloads is not None:
            sinks.append(payloads)
        opened.pop_all()
    return Writing(Journal(*sinks), payloads)


def _files(
    job: JobFolder, section: WriteSection, facts: Mapping[str, str], clock: Callable[[], float]
) -> Iterator[Sink]:
    """The files that the order asks for, opened one by one, in the order in which they are written. Raises: StorageError."""
    if section.warc:
        options = WarcOptions(
            prefix=section.warc_prefix, size_bytes=section.warc_size_bytes, facts=facts, is_alone=job.has_own_warc
        )
        yield WarcFiles(job.warc, options, clock, with_place)
    else:
        _finish_earlier(job, section.warc_prefix)
    yield LineFile(job.crawl_log, "crawl_log")
    if section.pages:
        yield LineFile(job.pages, "pages")
    if section.links:
        yield LineFile(job.links, "links")
    yield LineFile(job.errors, "errors")


def _finish_earlier(job: JobFolder, prefix: str) -> None:
    """What an earlier run with WARC files left open is finished by a run without them, too. Raises: StorageError."""
    with storage_errors(job.warc):
        if job.warc.is_dir():
            finish_left_over(job.warc, "*" if job.has_own_warc else f"{prefix}-*")


def warc_facts(order: CrawlOrder, section: WriteSection, job: str) -> dict[str, str]:
    """What the WARC files say of the crawl (fields of `warcinfo`); `job` is its name."""
    return {
        "software": f"anabranch/{VERSION}",
        "format": WARC_FORMAT,
        "conformsTo": WARC_STANDARD,
        "isPartOf": job,
        "operator": section.operator,
        "hostname": socket.gethostname(),
        "robots": order.robots.robots,
        "http-header-user-agent": order.agent.user_agent,
    }
