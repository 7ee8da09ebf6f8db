"""What the job keeps of a visit: the lines of its logs and the exchange for its WARC files, written together.

All of it is durable before the URL is finished: after a crash a line may stand twice, but no finished URL is without one.
"""

from __future__ import annotations

from collections.abc import Callable

from anabranch.crawler.archiving.records import digest_text, response_head
from anabranch.crawler.fetching.bodies import Body
from anabranch.crawler.fetching.response import Response
from anabranch.crawler.jobs.journal import Entry, Journal
from anabranch.crawler.network.lookups import MIME, Lookup
from anabranch.crawler.outcomes.status import FetchStatus
from anabranch.crawler.processors.write import Archivist, notes_of
from anabranch.crawler.reporting.annotations import Noted, round_note
from anabranch.crawler.reporting.annotations import annotations_of as listed
from anabranch.crawler.reporting.crawl_log import CrawlLogEntry, crawl_log_line, page_line
from anabranch.crawler.reporting.error_log import Failure, error_line
from anabranch.crawler.reporting.links import links_line
from anabranch.crawler.visit import Ending, LostLink, Visit
from anabranch.frontier.models import ENDING, OutcomeKind


class Recorder:
    """Makes entries of the journal, and waits until they are durable. Raises: StorageError."""

    def __init__(
        self,
        journal: Journal,
        clock: Callable[[], float],
        *,
        archivist: Archivist | None = None,
        source_of: Callable[[bytes | None], str | None] = lambda _: None,
        links: bool = False,
        extra_info: bool = False,
        round_number: int = 1,
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._archivist = archivist
        self._source_of = source_of
        self._links = links
        self._extra_info = extra_info
        self._round_number = round_number
        self._round_note = (round_note(round_number),)

    async def end(self, visit: Visit, kind: OutcomeKind) -> None:
        """What is kept of a try: an ended URL has its lines, and one that failed a line of errors.

        Of a page that the operator's own processor stopped only the lines of `crawl.log` and errors.
        """
        errors = self._error_lines(visit, kind)
        if kind in ENDING:
            digest = None if visit.response is None else digest_text(visit.response.body.digest)
            entry = Entry(
                crawl_log=self._log_line(visit, digest),
                pages=page_line_of(visit, digest, self._round_number),
                links=links_line(visit.lease.url, visit.lease.hops, visit.links) if self._has_links(visit) else None,
                errors=errors,
                exchange=visit.exchange,
            )
        elif errors is None:
            return
        else:
            entry = Entry(errors=errors)
        await self._journal.write(entry)

    async def robots(self, visit: Visit, url: str, response: Response) -> None:
        """A robots.txt that was fetched in a page's place (hop P)."""
        hops, via = visit.lease.hops + "P", visit.lease.url
        entry = CrawlLogEntry(
            logged_s=self._clock(),
            status=response.status,
            size_bytes=response.body.size,
            url=url,
            hops=hops,
            via=via,
            mime=visit.mime,
            worker=visit.worker,
            start_s=response.start_s,
            end_s=response.end_s,
            digest=digest_text(response.body.digest),
            source=self._source(visit),
            annotations=self._round_note,
            extra=self._extra(response),
        )
        exchange = None
        if self._archivist is not None:
            exchange = await self._archivist.exchange(url, response, hops=hops, via=via)
        await self._journal.write(Entry(crawl_log=crawl_log_line(entry), exchange=exchange))

    async def lookup(self, visit: Visit, made: Lookup) -> None:
        """A name that was looked up for a page (hop P)."""
        entry = CrawlLogEntry(
            logged_s=self._clock(),
            status=made.status,
            size_bytes=len(made.body) if made.records else None,
            url=made.url,
            hops=visit.lease.hops + "P",
            via=visit.lease.url,
            mime=MIME if made.records else "",
            worker=visit.worker,
            start_s=made.start_s,
            end_s=made.end_s,
            digest=digest_text(Body.of(made.body).digest) if made.records else None,
            source=self._source(visit),
            annotations=self._round_note,
            extra=self._extra(None),
        )
        await self._journal.write(Entry(crawl_log=crawl_log_line(entry)))

    def _log_line(self, visit: Visit, digest: str | None) -> bytes:
        start_s, end_s = visit.fetched or (None, None)
        entry = CrawlLogEntry(
            logged_s=self._clock(),
            status=visit.status,
            size_bytes=None if visit.response is None else visit.response.body.size,
            url=visit.lease.url,
            hops=visit.lease.hops,
            via=visit.lease.via,
            mime=visit.mime,
            worker=visit.worker,
            start_s=start_s,
            end_s=end_s,
            digest=digest,
            source=self._source(visit),
            annotations=annotations_of(visit) + self._round_note,
            extra=self._extra(visit.response),
        )
        return crawl_log_line(entry)

    def _error_lines(self, visit: Visit, kind: OutcomeKind) -> bytes | None:
        """That of the page, then those of its links that were lost; None if all is well."""
        own = self._error_line(visit, kind)
        if not visit.lost:
            return own
        return (own or b"") + b"".join(error_line(self._lost(visit, link)) for link in visit.lost)

    def _lost(self, visit: Visit, link: LostLink) -> Failure:
        return Failure(
            time_s=self._clock(),
            url=link.url,
            status=FetchStatus.PROCESSOR_FAILED,
            attempt=0,
            is_final=False,  # it is judged anew where it is met again
            error=link.error,
            is_ours=True,
            hops=link.hops,
            via=visit.lease.url,
            worker=visit.worker,
        )

    def _error_line(self, visit: Visit, kind: OutcomeKind) -> bytes | None:
        """A line if the try failed, or a processor of ours broke; None if all is well."""
        if kind not in (OutcomeKind.RETRY, OutcomeKind.FAILED) and visit.broken is None:
            return None
        failure = Failure(
            time_s=self._clock(),
            url=visit.lease.url,
            status=visit.status,
            attempt=visit.lease.attempts + 1,
            is_final=kind in ENDING,
            error=visit.broken or visit.failure,
            is_ours=visit.broken is not None,
            hops=visit.lease.hops,
            via=visit.lease.via,
            worker=visit.worker,
        )
        return error_line(failure)

    def _extra(self, response: Response | None) -> dict[str, str | int] | None:
        """The thirteenth field of crawl.log, if it is wanted; the WARC files add their part."""
        if not self._extra_info:
            return None
        return {} if response is None else {"contentSize": len(response_head(response)) + response.body.size}

    def _has_links(self, visit: Visit) -> bool:
        return self._links and not visit.stopped_by and visit.response is not None and bool(visit.links)

    def _source(self, visit: Visit) -> str | None:
        return self._source_of(visit.lease.payload)


def page_line_of(visit: Visit, digest: str | None, round_number: int) -> bytes | None:
    """The line of `pages.jsonl`; None for a URL that was not answered, or that the operator's own processor stopped."""
    response = visit.response
    if response is None or visit.status <= 0 or visit.stopped_by:
        return None
    return page_line(
        url=visit.lease.url,
        status=response.status,
        mime=visit.mime,
        size_bytes=response.body.size,
        hops=visit.lease.hops,
        via=visit.lease.via,
        fetched_s=response.start_s,
        digest=digest,
        round_number=round_number,
    )


def annotations_of(visit: Visit) -> tuple[str, ...]:
    """The twelfth field of `crawl.log`, but for the round, which is its last note."""
    failure = visit.failure
    duplicate, revisit = notes_of(visit.exchange)
    noted = Noted(
        attempts=visit.lease.attempts,
        cuts=tuple(cut.value for cut in visit.response.cuts) if visit.response and visit.response.cuts else (),
        has_surplus=visit.response is not None and visit.response.has_surplus,
        robots_excluded=visit.ending is Ending.EXCLUDED,
        duplicate=duplicate,
        revisit=revisit,
        dropped_links=visit.dropped_links,
        lost_links=visit.lost_links,
        broken=visit.broken,
        stopped_by=visit.stopped_by,
        more=visit.notes if failure is None else (failure.annotation, *visit.notes),
    )
    return listed(noted)
