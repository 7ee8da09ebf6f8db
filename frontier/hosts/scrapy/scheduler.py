"""Scrapy's SCHEDULER over a Frontier: queues, gates, dedup and persistence.

`FrontierScheduler` opens a `session.CrawlSession`, passes requests to it and gets requests from it. It logs and counts as
Scrapy's own scheduler does, and keeps the requests that have no host.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sized
from typing import TYPE_CHECKING, Any

from scrapy import Request, Spider
from scrapy.dupefilters import BaseDupeFilter, RFPDupeFilter
from scrapy.utils.misc import build_from_crawler, load_object

from anabranch.frontier.errors import FrontierError
from anabranch.frontier.hosts.scrapy.engine import Engine
from anabranch.frontier.hosts.scrapy.inflight import Flight
from anabranch.frontier.hosts.scrapy.requests import FOUND_ON, NUMBER, Unmade
from anabranch.frontier.hosts.scrapy.session import CrawlSession
from anabranch.frontier.hosts.scrapy.settings import UNAVAILABLE, stock_queue
from anabranch.frontier.hosts.scrapy.stock import FrontierDupeFilter
from anabranch.frontier.policies.hosts import authority
from anabranch.frontier.records import VerdictKind

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)

#: Dupe filters that the Frontier's own filter replaces.
_REPLACED = (RFPDupeFilter, FrontierDupeFilter)
#: Counts requests of an earlier run that only its memory had.
_LOST = "scheduler/unserializable/lost"
#: Counts rows without a request: their callback has another name now, or their payload is not Scrapy's.
_DROPPED = "scheduler/dropped"
_STANDSTILL = (
    "none of the %d queued requests may be fetched: they are paused or blocked by `anabranch frontier`, or their hosts "
    "rest for more than five minutes; see `anabranch frontier ls`"
)
_STOCK = (
    "%s: Scrapy's own scheduler has left requests here that are not taken over; the crawl begins anew. To end the old one "
    "first, leave FrontierScheduler out"
)


class FrontierScheduler:
    """Implements Scrapy's `BaseScheduler`.

    A request goes to the work queue of its URL and is served when the gate of its host is open. It is in flight from
    `next_request` until its callback is consumed; with JOBDIR it is queued again if the process dies before. The setting
    `FRONTIER` has the settings of the Frontier.

    Differences from Scrapy's own scheduler: priorities order the requests of one work queue, and those beyond ±63 are equal;
    requests of one priority are served in the order in which they came. Requests without a host (`data:`, `file:`) pass no gate
    and stay in memory. A `DUPEFILTER_CLASS` of the project replaces the Frontier's filter. If the Frontier fails (a disk that
    stays full), the spider is closed with the reason `frontier_unavailable`.
    """

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._session: CrawlSession | None = None
        self._is_closing = False  # because the Frontier has failed
        self._is_stalled = False  # and that was logged
        self._hostless: deque[Request] = deque()
        self._logs_unserializable = True  # the first
        kind = load_object(crawler.settings["DUPEFILTER_CLASS"])
        self._own: BaseDupeFilter | None = None if kind in _REPLACED else build_from_crawler(kind, crawler)
        self._filter: BaseDupeFilter | None = None  # the same, once it is open
        # It logs duplicates, and filters requests without a host.
        self._log = RFPDupeFilter(
            debug=crawler.settings.getbool("DUPEFILTER_DEBUG"), fingerprinter=crawler.request_fingerprinter
        )

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> FrontierScheduler:
        """Make a scheduler for Scrapy, which calls this."""
        return cls(crawler)

    def open(self, spider: Spider) -> Any:
        """Open the Frontier (blocks for some milliseconds). On failure the spider is closed at its first request.

        Raising CloseSpider here would keep Scrapy from opening the rest, and from closing it without an error.
        """
        self._spider = spider
        if (stock := stock_queue(self._crawler.settings)) is not None:
            self._log_at(logging.WARNING, _STOCK, stock)
        try:
            self._session = CrawlSession(self._crawler, spider)
        except FrontierError as error:
            self._log_at(logging.ERROR, "the Frontier cannot be opened: %s", error)
            return None
        if len(self):
            self._log_at(logging.INFO, "Resuming crawl (%d requests scheduled)", len(self))
        if self._own is None:
            return None
        opening = self._own.open()
        self._filter = self._own
        return opening

    def close(self, reason: str) -> Any:
        """Finish what is consumed, release the rest, close the Frontier (blocks until all is durable)."""
        session, self._session = self._session, None
        if session is not None:
            try:
                session.close(has_failed=self._is_closing)
            except FrontierError as error:
                self._log_at(logging.ERROR, "the Frontier cannot be closed: %s", error)
        return None if self._filter is None else self._filter.close(reason)

    def has_pending_requests(self) -> bool:
        """Whether anything is queued, whether or not it may be fetched now."""
        if self._session is not None:
            try:
                self._session.exchange.end_consumed()
            except FrontierError as error:
                self._fail(error)
        return len(self) > 0

    def __len__(self) -> int:
        return (0 if self._session is None else len(self._session.exchange)) + len(self._hostless)

    def enqueue_request(self, request: Request) -> bool:
        """Queue a request; False if it is a duplicate, or cannot be stored."""
        if self._filter is not None and not request.dont_filter and self._filter.request_seen(request):
            self._filter.log(request, self._spider)
            return False
        if authority(request.url) is None:
            return self._enqueue_hostless(request)
        if self._session is None:
            return False
        try:
            verdict, trouble = self._session.exchange.put(
                request, is_unique=request.dont_filter or self._filter is not None
            )
        except FrontierError as error:
            self._fail(error)
            return False
        if verdict.kind is VerdictKind.SEEN:
            self._log.log(request, self._spider)
            return False
        if verdict.kind is VerdictKind.REFUSED:
            self._log_at(logging.WARNING, "%s cannot be queued: %s", request, verdict.reason)
            return False
        if trouble is not None:
            self._unserializable(request, trouble)
        self._count("enqueued", "memory" if trouble is not None else self._session.place)
        return True

    def next_request(self) -> Request | None:
        """The next request that may be fetched now, or None; the engine is woken when there is one."""
        session = self._session
        if session is None:
            self._close_spider()
            return None
        try:
            session.exchange.end_consumed()
            if self._hostless:
                self._count("dequeued", "memory")
                return self._hostless.popleft()
            request, is_kept, unmade = session.exchange.take()
        except FrontierError as error:
            self._fail(error)
            return None
        for each in unmade:
            self._unmade(each)
        if request is not None:
            self._count("dequeued", "memory" if is_kept else session.place)
            self._is_stalled = False
        elif not self._is_stalled and session.exchange.is_stalled():
            self._is_stalled = True
            self._log_at(logging.WARNING, _STANDSTILL, len(self))
        return request

    @property
    def mqs(self) -> Sized:
        """For Scrapy's status report: requests queued in memory, without those of JOBDIR that cannot be serialised."""
        return range(len(self) if self._session is None or self._session.place == "memory" else len(self._hostless))

    @property
    def dqs(self) -> Sized | None:
        """For Scrapy's status report: requests queued in JOBDIR; None without JOBDIR."""
        is_durable = self._session is not None and self._session.place == "disk"
        return range(len(self) - len(self._hostless)) if is_durable else None

    def flight_of(self, number: object) -> Flight | None:
        """For the spider middleware: the request in flight with this lease number."""
        return None if self._session is None else self._session.exchange.flights.of(number)

    def _enqueue_hostless(self, request: Request) -> bool:
        if self._filter is None and not request.dont_filter and self._log.request_seen(request):
            self._log.log(request, self._spider)
            return False
        for name in (NUMBER, FOUND_ON):
            request.meta.pop(name, None)
        self._hostless.append(request)
        self._count("enqueued", "memory")
        return True

    def _unserializable(self, request: Request, error: Exception) -> None:
        self._crawler.stats.inc_value("scheduler/unserializable")
        if self._logs_unserializable:
            self._logs_unserializable = False
            words = "Unable to serialize request: %s - reason: %s - no more unserializable requests will be logged"
            self._log_at(logging.WARNING, words, request, error)

    def _unmade(self, unmade: Unmade) -> None:
        """Log a lease without a request; lost requests are logged once a session."""
        if unmade.reason is not None:
            self._log_at(logging.ERROR, "%s is dropped, no request can be made of it: %s", unmade.url, unmade.reason)
        elif not self._crawler.stats.get_value(_LOST):
            words = "requests that could not be serialised were lost with the process that kept them in its memory"
            self._log_at(logging.WARNING, words)
        self._crawler.stats.inc_value(_LOST if unmade.reason is None else _DROPPED)

    def _fail(self, error: FrontierError) -> None:
        """The Frontier has failed, and every further call would fail: close the spider."""
        if not self._is_closing:
            self._log_at(logging.ERROR, "the Frontier has failed, the crawl ends and can be resumed: %s", error)
            self._close_spider()

    def _close_spider(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            Engine(self._crawler).close_spider(UNAVAILABLE)

    def _log_at(self, level: int, words: str, *what: object) -> None:
        logger.log(level, words, *what, extra={"spider": self._spider})

    def _count(self, what: str, place: str) -> None:
        self._crawler.stats.inc_value(f"scheduler/{what}/{place}")
        self._crawler.stats.inc_value(f"scheduler/{what}")
