"""How a visit ends: decided by tables, written to the logs, then said to the Frontier. It always runs.

The lines of `crawl.log` and `pages.jsonl` are durable before the URL is finished: after a crash a line may stand twice, but
no finished URL is without one.
"""

from __future__ import annotations

import base64
from collections.abc import Callable

import structlog

from crawler.fetching.bodies import Body
from crawler.fetching.response import Response
from crawler.jobs.journal import Entry, Journal
from crawler.network.lookups import MIME, Lookup
from crawler.outcomes.failures import TROUBLES, retry_after, told_by
from crawler.outcomes.status import StatusClass, class_of
from crawler.reporting.annotations import Noted
from crawler.reporting.annotations import annotations_of as listed
from crawler.reporting.crawl_log import CrawlLogEntry, crawl_log_line, page_line
from crawler.reporting.statistics import CrawlStatistics
from crawler.visit import Ending, Visit
from frontier.aio import AsyncFrontier
from frontier.errors import LeaseLost
from frontier.models import ENDING, HostTrouble, Outcome, OutcomeKind

log = structlog.get_logger(__name__)

#: How the class of a final status ends a URL.
_KINDS: dict[StatusClass, OutcomeKind] = {
    StatusClass.SUCCESS: OutcomeKind.DONE,
    StatusClass.FAILED: OutcomeKind.FAILED,
    StatusClass.DISREGARDED: OutcomeKind.DISREGARDED,
}


class Disposition:
    """Ends visits: logs, counts and finishes them."""

    def __init__(
        self,
        frontier: AsyncFrontier,
        journal: Journal,
        statistics: CrawlStatistics,
        clock: Callable[[], float],
    ) -> None:
        self._frontier = frontier
        self._journal = journal
        self._statistics = statistics
        self._clock = clock

    async def __call__(self, visit: Visit) -> OutcomeKind | None:
        """End the visit; answers how, or None if its lease was only given back, or was lost: then the URL comes again."""
        try:
            return await self._end(visit)
        except LeaseLost:
            log.warning("lease lost: the URL is fetched again; a longer [frontier] lease helps", url=visit.lease.url)
            return None

    async def _end(self, visit: Visit) -> OutcomeKind | None:
        outcome = decide(visit, self._clock())
        if outcome is None:
            self._frontier.release(visit.lease)
            return None
        if outcome.kind in ENDING:
            digest = None if visit.response is None else digest_of(visit.response.body)
            await self._journal.write(
                Entry(crawl_log=self._log_line(visit, digest), pages=self._page_line(visit, digest))
            )
        self._frontier.finish(visit.lease, outcome, visit.discovered)
        self._statistics.count(visit, outcome.kind)
        return outcome.kind

    async def note_robots(self, visit: Visit, url: str, response: Response) -> None:
        """Write the line of a robots.txt that was fetched in a page's place (hop P)."""
        entry = CrawlLogEntry(
            logged_s=self._clock(),
            status=response.status,
            size_bytes=response.body.size,
            url=url,
            hops=visit.lease.hops + "P",
            via=visit.lease.url,
            mime=visit.mime,
            worker=visit.worker,
            start_s=response.start_s,
            end_s=response.end_s,
            digest=digest_of(response.body),
        )
        await self._journal.write(Entry(crawl_log=crawl_log_line(entry)))
        self._statistics.robots += 1

    async def note_lookup(self, visit: Visit, made: Lookup) -> None:
        """Write the line of a name that was looked up for a page (hop P)."""
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
            digest=digest_of(Body.of(made.body)) if made.records else None,
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
            annotations=annotations_of(visit),
        )
        return crawl_log_line(entry)

    @staticmethod
    def _page_line(visit: Visit, digest: str | None) -> bytes | None:
        response = visit.response
        if response is None or visit.status <= 0:
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
        )


def decide(visit: Visit, now_s: float) -> Outcome | None:
    """The outcome of a visit; None to release its lease unprocessed. Pure."""
    if visit.ending is Ending.RELEASED:
        return None
    if visit.broken is not None and visit.fetched is None:
        times: tuple[float | None, float | None] = (visit.lease.since_s, now_s)  # a fetch may have been under way
    else:
        times = visit.fetched or (None, None)
    kind, after_s = _kind_of(visit)
    return Outcome(kind, visit.status, *times, after_s, *_told_of_host(visit, now_s))


def _kind_of(visit: Visit) -> tuple[OutcomeKind, float]:
    """How the URL ends, and for a retry after how many seconds."""
    if visit.ending in (Ending.DEFERRED, Ending.UNRULED):
        return OutcomeKind.DEFERRED, 0.0
    failure = visit.status if visit.is_busy else visit.failure
    if failure is None:
        return _KINDS[class_of(visit.status)], 0.0
    again_s = retry_after(failure, visit.lease.attempts)
    if again_s is not None:
        return OutcomeKind.RETRY, again_s
    return (OutcomeKind.FAILED if visit.is_busy else _KINDS[class_of(visit.status)]), 0.0


def _told_of_host(visit: Visit, now_s: float) -> tuple[HostTrouble, float]:
    """What was fetched tells of the host, and the seconds that the host asks for; a visit that fetched nothing tells nothing.

    A robots.txt that cannot be had is trouble whatever its status, until it has been asked for often enough.
    """
    if visit.ending is Ending.DEFERRED or visit.fetched is None:
        return HostTrouble.NONE, 0.0
    if visit.response is None:
        return next((told for kind, told in TROUBLES.items() if isinstance(visit.failure, kind)), HostTrouble.NONE), 0.0
    trouble, asked_s = told_by(visit.response.status, visit.response.headers, now_s)
    if trouble is HostTrouble.NONE and visit.ending is Ending.UNRULED:
        trouble = HostTrouble.UNAVAILABLE
    return trouble, asked_s


def annotations_of(visit: Visit) -> tuple[str, ...]:
    """The twelfth field of `crawl.log`."""
    failure = visit.failure
    noted = Noted(
        attempts=visit.lease.attempts,
        cuts=() if visit.response is None else tuple(cut.value for cut in visit.response.cuts),
        robots_excluded=visit.ending is Ending.EXCLUDED,
        dropped_links=visit.dropped_links,
        broken=visit.broken,
        more=(*([failure.annotation] if failure is not None else []), *visit.notes),
    )
    return listed(noted)


def digest_of(body: Body) -> str:
    """`sha1:` and the Base32 of the body's SHA-1, as Heritrix and WARC write it."""
    return "sha1:" + base64.b32encode(body.digest).decode()
