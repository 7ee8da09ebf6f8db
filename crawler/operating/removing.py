"""Lines of crawl.log for URLs that the operator removes from the queue of a job that is not running."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from anabranch.crawler.jobs.journal import Entry, LineFile
from anabranch.crawler.jobs.rounds import round_of_run
from anabranch.crawler.outcomes.errors import storage_errors
from anabranch.crawler.outcomes.status import FetchStatus
from anabranch.crawler.reporting.accounts import Accounts
from anabranch.crawler.reporting.annotations import round_note
from anabranch.crawler.reporting.crawl_log import CrawlLogEntry, crawl_log_line
from anabranch.frontier.models import Head


@contextmanager
def noting(
    directory: Path, now_s: Callable[[], float], *, extra_info: bool
) -> Iterator[Callable[[Sequence[Head]], None]]:
    """Writes the lines of queued URLs, and counts them in the job's totals; both are durable when it returns. A line names no
    worker and no source. The caller has the job's lock. Cost: 70 µs a line. Raises: StorageError, AccountsDamaged,
    RoundDamaged.
    """
    crawl_log = directory / "logs" / "crawl.log"
    with storage_errors(crawl_log):
        notes = (round_note(round_of_run(directory / "state")),)

    def line(head: Head) -> bytes:
        entry = CrawlLogEntry(
            logged_s=now_s(),
            status=FetchStatus.DELETED,
            url=head.row.url,
            worker=0,
            hops=head.row.hops,
            via=head.via,
            annotations=notes,
            extra={} if extra_info else None,
        )
        return crawl_log_line(entry)

    with (
        closing(Accounts(directory / "state", crawl_log, now_s)) as accounts,
        closing(LineFile(crawl_log, "crawl_log")) as log,
    ):

        def note(heads: Sequence[Head]) -> None:
            entries = [Entry(crawl_log=line(head)) for head in heads]
            with storage_errors(crawl_log):
                try:
                    log.append(entries)
                    accounts.append(entries)
                except BaseException:
                    log.take_back()
                    accounts.take_back()
                    raise
            log.keep()
            accounts.keep()

        yield note
