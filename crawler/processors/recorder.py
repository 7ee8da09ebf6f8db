"""Writes a visit: the lines of the job's logs and the exchange for its WARC files, together.

`ArchivePage` makes the exchange and writes nothing. `Recorder.end` gives it to the journal with the visit's lines. All is
durable before the URL is finished: after a crash a line may be there twice, but every finished URL has one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Protocol

from anabranch.crawler.accounts.crawl_log import (
    DUPLICATE_DIGEST,
    CrawlLogEntry,
    VisitNotes,
    annotations_of,
    crawl_log_line,
    links_line,
    page_line,
    round_note,
    with_place,
)
from anabranch.crawler.accounts.crawl_log import NOT_MODIFIED as SERVER_NOT_MODIFIED
from anabranch.crawler.archive.history import FetchHistory
from anabranch.crawler.archive.records import (
    NOT_MODIFIED,
    SAME_PAYLOAD,
    Exchange,
    NameRecord,
    Original,
    Outlink,
    Revisit,
    digest_text,
    response_head,
    without_secrets,
)
from anabranch.crawler.archive.sink import JournalEntry
from anabranch.crawler.fetch.addresses import MIME, Lookup
from anabranch.crawler.fetch.response import Body, Response
from anabranch.crawler.job.journal import Journal
from anabranch.crawler.job.seeds import SourceTags
from anabranch.crawler.outcomes.status import FetchStatus
from anabranch.crawler.report.troubles import Failure, error_line
from anabranch.crawler.scope.body import BODY_RULE_NOTE
from anabranch.crawler.visit import ChainDecision, Step, Visit
from anabranch.frontier.records import ENDING, OutcomeKind

#: Profile of a revisit -> its two notes in crawl.log (Heritrix's words).
REVISIT_NOTES = {SAME_PAYLOAD: (DUPLICATE_DIGEST, "digest"), NOT_MODIFIED: (SERVER_NOT_MODIFIED, "notModified")}


class KnownPayloads(Protocol):
    """Payloads that are archived somewhere."""

    async def original(self, digest: bytes) -> Original | None:
        """The record that has this payload; None if it has none, or cannot be asked."""


class ExchangeMaker:
    """Makes exchanges. With `revisit` a payload that is archived already is not written again, if it is as large as
    `min_bytes` and not a redirect's.
    """

    def __init__(
        self, payloads: FetchHistory, *, revisit: bool, min_bytes: int = 0, elsewhere: Sequence[KnownPayloads] = ()
    ) -> None:
        """`elsewhere`: who is asked for a payload that the job has not written, one after the other."""
        self._payloads = payloads
        self._elsewhere = elsewhere
        self._revisit = revisit
        self._min_bytes = min_bytes

    async def exchange(
        self,
        url: str,
        response: Response,
        *,
        hops: str,
        via: str | None,
        outlinks: Sequence[Outlink] = (),
        captures: KnownPayloads | None = None,
    ) -> Exchange:
        """Return the exchange to archive for a response. Cost: one look-up in the index of payloads.

        `captures`: asked last, as it may be on its way yet.
        """
        new = Exchange(url=url, response=response, hops=hops, via=via, outlinks=outlinks)
        revisit = await self._revisit_of(new, captures)
        new = new if revisit is None else replace(new, revisit=revisit)
        return without_secrets(new) if response.secrets else new

    async def _revisit_of(self, new: Exchange, captures: KnownPayloads | None) -> Revisit | None:
        """Why the payload need not be written; None if it must be."""
        response = new.response
        if response.status == HTTPStatus.NOT_MODIFIED:
            known = await self._payloads.fetched(new.url)
            return None if known is None else Revisit(NOT_MODIFIED, known.original)
        if not self._revisit or response.body.size < self._min_bytes or not new.may_be_original:
            return None
        digest = response.body.digest
        original = await self._payloads.original(digest)
        for other in (*self._elsewhere, captures):
            if original is None and other is not None:
                original = await other.original(digest)
        return None if original is None else Revisit(SAME_PAYLOAD, original)


class ArchivePage:
    """The processor behind the extraction: makes what is archived of an answered visit."""

    def __init__(self, exchanges: ExchangeMaker) -> None:
        self._exchanges = exchanges

    async def __call__(self, visit: Visit) -> Step:
        """Fill `visit.exchange`; a visit has none without a response, or if a rule left its body unread."""
        lease, response = visit.lease, visit.response
        if response is not None and visit.status > 0 and not visit.body_rule:
            visit.archive(
                await self._exchanges.exchange(
                    lease.url,
                    response,
                    hops=lease.hops,
                    via=lease.via,
                    outlinks=visit.links,
                    captures=visit.captures,
                )
            )
        return Step.PROCEED


class Recorder:
    """Makes entries of the journal, and waits until they are durable. Raises: StorageError."""

    def __init__(
        self,
        journal: Journal,
        clock: Callable[[], float],
        *,
        exchanges: ExchangeMaker | None = None,
        tags: SourceTags | None = None,
        links: bool = False,
        extra_info: bool = False,
        round_number: int = 1,
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._exchanges = exchanges
        self._tags = tags
        self._links = links
        self._extra_info = extra_info
        self._round_number = round_number
        self._round_note = (round_note(round_number),)

    async def end(self, visit: Visit, kind: OutcomeKind) -> None:
        """Record a try: an ended URL has its lines, a failed one a line in errors.jsonl, a stopped one none in pages.jsonl."""
        errors = self._error_lines(visit, kind)
        if kind not in ENDING:
            if errors is not None:
                await self._journal.write(JournalEntry(errors=errors))
            return
        lease, response = visit.lease, visit.response
        digest = None if response is None else digest_text(response.body.digest)
        start_s, end_s = visit.fetch_times or (None, None)
        entry = CrawlLogEntry(
            logged_s=self._clock(),
            status=visit.status,
            size_bytes=None if response is None else response.body.size,
            url=lease.url,
            hops=lease.hops,
            via=lease.via,
            mime=visit.mime,
            worker=visit.worker,
            start_s=start_s,
            end_s=end_s,
            digest=digest,
            source=self._source_of(lease.payload),
            annotations=visit_annotations(visit) + self._round_note,
            extra=self._extra(response),
        )
        pages = links = None
        if response is not None and not visit.stopped_by:
            if visit.status > 0:
                pages = page_line(
                    url=lease.url,
                    status=response.status,
                    mime=visit.mime,
                    size_bytes=response.body.size,
                    hops=lease.hops,
                    via=lease.via,
                    fetched_s=response.start_s,
                    digest=digest,
                    round_number=self._round_number,
                )
            if self._links and visit.links:
                links = links_line(lease.url, lease.hops, visit.links)
        line, exchange = crawl_log_line(entry), visit.exchange
        if visit.place is not None:
            line, exchange = with_place(line, visit.place), None
        await self._journal.write(JournalEntry(line, pages, links, errors, exchange))

    async def archive(self, visit: Visit) -> None:
        """Write the exchange to the WARC files now, if there is one, so that its place is known before the visit ends."""
        if visit.exchange is not None:
            written = await self._journal.write(JournalEntry(exchange=visit.exchange))
            visit.archived_at(written.place)

    async def robots(self, visit: Visit, url: str, response: Response) -> None:
        """Record a robots.txt that was fetched in a page's place (hop P)."""
        line = self._prerequisite(visit, url, response, visit.mime, response.body)
        exchange = None
        if self._exchanges is not None:
            hops, via = visit.lease.hops + "P", visit.lease.url
            exchange = await self._exchanges.exchange(url, response, hops=hops, via=via)
        await self._journal.write(JournalEntry(crawl_log=line, exchange=exchange))

    async def lookup(self, visit: Visit, made: Lookup) -> None:
        """Record a name that was looked up for a page (hop P), in the archive, too, if it was found."""
        mime, body = (MIME, Body.of(made.body)) if made.records else ("", None)
        line = self._prerequisite(visit, made.url, made, mime, body)
        is_archived = self._exchanges is not None and bool(made.records)
        name = NameRecord(made.url, made.start_s, made.body) if is_archived else None
        await self._journal.write(JournalEntry(crawl_log=line, name=name))

    def _prerequisite(self, visit: Visit, url: str, found: Response | Lookup, mime: str, body: Body | None) -> bytes:
        """The line of crawl.log for a prerequisite of a page (hop P)."""
        entry = CrawlLogEntry(
            logged_s=self._clock(),
            status=found.status,
            size_bytes=None if body is None else body.size,
            url=url,
            hops=visit.lease.hops + "P",
            via=visit.lease.url,
            mime=mime,
            worker=visit.worker,
            start_s=found.start_s,
            end_s=found.end_s,
            digest=None if body is None else digest_text(body.digest),
            source=self._source_of(visit.lease.payload),
            annotations=self._round_note,
            extra=self._extra(found if isinstance(found, Response) else None),
        )
        return crawl_log_line(entry)

    def _source_of(self, payload: bytes | None) -> str | None:
        """The source of the seed that led to a URL, if the order wants it."""
        return None if self._tags is None else self._tags.tag_of(payload)

    def _error_lines(self, visit: Visit, kind: OutcomeKind) -> bytes | None:
        """The page's line if its try failed or a processor broke, then those of its lost links; None if all is well."""
        lines = []
        if kind in (OutcomeKind.RETRY, OutcomeKind.FAILED) or visit.broken is not None:
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
            lines.append(error_line(failure))
        for link in visit.lost:
            lost = Failure(
                time_s=self._clock(),
                url=link.url,
                status=FetchStatus.PROCESSOR_FAILED,
                attempt=0,
                is_final=False,  # it is judged again where it is found again
                error=link.error,
                is_ours=True,
                hops=link.hops,
                via=visit.lease.url,
                worker=visit.worker,
            )
            lines.append(error_line(lost))
        return b"".join(lines) or None

    def _extra(self, response: Response | None) -> dict[str, str | int] | None:
        """The thirteenth field of crawl.log, if the order wants it; the WARC files add their part."""
        if not self._extra_info:
            return None
        return {} if response is None else {"contentSize": len(response_head(response)) + response.body.size}


def visit_annotations(visit: Visit) -> tuple[str, ...]:
    """The twelfth field of crawl.log, except for the round, which is its last note."""
    failure, exchange = visit.failure, visit.exchange
    duplicate, revisit = "", ""
    if exchange is not None and exchange.revisit is not None:
        duplicate, revisit = REVISIT_NOTES[exchange.revisit.profile]
    notes = VisitNotes(
        attempts=visit.lease.attempts,
        cuts=tuple(cut.value for cut in visit.response.cuts) if visit.response and visit.response.cuts else (),
        has_surplus=visit.response is not None and visit.response.has_surplus,
        repairs=tuple(repair.value for repair in visit.response.repairs)
        if visit.response and visit.response.repairs
        else (),
        robots_excluded=visit.decision is ChainDecision.EXCLUDED,
        duplicate=duplicate,
        revisit=revisit,
        dropped_links=visit.dropped_links,
        lost_links=visit.lost_links,
        broken=visit.broken,
        stopped_by=visit.stopped_by,
        more=_robots_note(visit)
        + _body_note(visit)
        + (visit.notes if failure is None else (failure.annotation, *visit.notes)),
    )
    return annotations_of(notes)


def _robots_note(visit: Visit) -> tuple[str, ...]:
    """The URL was fetched although its robots.txt cannot be, after so many tries."""
    return (f"robotsUnreachable:{visit.robots_tries}",) if visit.robots_tries else ()


def _body_note(visit: Visit) -> tuple[str, ...]:
    """The rule that left the body of the answer unread."""
    return (f"{BODY_RULE_NOTE}{visit.body_rule}",) if visit.body_rule and visit.response is not None else ()
