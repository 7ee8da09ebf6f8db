"""Scrapy's SCHEDULER: queues, gates, dedup and persistence by a Frontier."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sized
from typing import TYPE_CHECKING, Any

from scrapy import Request, Spider
from scrapy.dupefilters import BaseDupeFilter, RFPDupeFilter
from scrapy.utils.misc import build_from_crawler, load_object

from anabranch.frontier.adapters.scrapy.dupefilter import FrontierDupeFilter
from anabranch.frontier.adapters.scrapy.engine import Engine
from anabranch.frontier.adapters.scrapy.inflight import Flight
from anabranch.frontier.adapters.scrapy.requests import FOUND_ON, NUMBER, Unmade
from anabranch.frontier.adapters.scrapy.run import Run
from anabranch.frontier.adapters.scrapy.settings import UNAVAILABLE, stock_queue
from anabranch.frontier.errors import FrontierError
from anabranch.frontier.models import VerdictKind
from anabranch.frontier.policies.authority import authority

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)

#: Dupe filters whose work the Frontier's own filter does.
_REPLACED = (RFPDupeFilter, FrontierDupeFilter)
#: Counts requests of an earlier run that only its memory had.
_LOST = "scheduler/unserializable/lost"
#: Counts rows of which no request can be made: their callback has another name now, or their payload is not Scrapy's.
_DROPPED = "scheduler/dropped"
_STANDSTILL = (
    "none of the %d queued requests may be fetched: they are paused or blocked by `anabranch frontier`, or their hosts "
    "rest for more than five minutes; `anabranch frontier ls` tells"
)
_STOCK = (
    "%s: Scrapy's own scheduler has left requests here that are not taken over; the crawl begins anew. To end the old one "
    "first, leave FrontierScheduler out"
)


class FrontierScheduler:
    """Implements Scrapy's `BaseScheduler`.

    A request is queued by its URL's work queue and served when its host's gate is open. It is out from `next_request` until its
    callback is consumed; with JOBDIR a process that dies finds it queued again. `FRONTIER` has the settings of the Frontier.

    What differs from Scrapy's own: priorities order the requests of one work queue, and those beyond ±63 are equal; within a
    priority they are served in the order in which they came. Requests without a host (`data:`, `file:`) pass no gate and stay
    in memory. A `DUPEFILTER_CLASS` that is none of Scrapy's decides in the place of the Frontier's filter. If the Frontier
    fails (a disk that stays full), the spider is closed with the reason `frontier_unavailable`.
    """

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._run: Run | None = None
        self._is_closing = False  # because the Frontier cannot go on
        self._stands_still = False  # and that is told
        self._hostless: deque[Request] = deque()
        self._logs_unserializable = crawler.settings.getbool("SCHEDULER_DEBUG")
        kind = load_object(crawler.settings["DUPEFILTER_CLASS"])
        self._own: BaseDupeFilter | None = None if kind in _REPLACED else build_from_crawler(kind, crawler)
        self._filter: BaseDupeFilter | None = None  # the same, once it is open
        # It logs what the Frontier says of duplicates, and knows those that have no host.
        self._log = RFPDupeFilter(
            debug=crawler.settings.getbool("DUPEFILTER_DEBUG"), fingerprinter=crawler.request_fingerprinter
        )

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> FrontierScheduler:
        """As Scrapy builds it."""
        return cls(crawler)

    # Scrapy's interface

    def open(self, spider: Spider) -> Any:
        """Open the Frontier (blocks for some milliseconds). If it cannot be opened, the spider is closed at its first request.

        A scheduler that raises CloseSpider here keeps Scrapy from opening the rest, and from closing it without an error.
        """
        self._spider = spider
        if (stock := stock_queue(self._crawler.settings)) is not None:
            self._say(logging.WARNING, _STOCK, stock)
        try:
            self._run = Run(self._crawler, spider)
        except FrontierError as error:
            self._say(logging.ERROR, "the Frontier cannot be opened: %s", error)
            return None
        if len(self):
            self._say(logging.INFO, "Resuming crawl (%d requests scheduled)", len(self))
        if self._own is None:
            return None
        opening = self._own.open()
        self._filter = self._own
        return opening

    def close(self, reason: str) -> Any:
        """End what is consumed, give the rest back, close the Frontier (blocks until all is durable)."""
        run, self._run = self._run, None
        if run is not None:
            try:
                run.close(has_failed=self._is_closing)
            except FrontierError as error:
                self._say(logging.ERROR, "the Frontier cannot be closed: %s", error)
        return None if self._filter is None else self._filter.close(reason)

    def has_pending_requests(self) -> bool:
        """Whether anything is queued, whether or not it may be fetched now."""
        if self._run is not None:
            try:
                self._run.exchange.end_consumed()
            except FrontierError as error:
                self._fail(error)
        return len(self) > 0

    def __len__(self) -> int:
        return (0 if self._run is None else len(self._run.exchange)) + len(self._hostless)

    def enqueue_request(self, request: Request) -> bool:
        """Queue it; False if it is a duplicate, or no store can hold it."""
        if self._filter is not None and not request.dont_filter and self._filter.request_seen(request):
            self._filter.log(request, self._spider)
            return False
        if authority(request.url) is None:
            return self._enqueue_hostless(request)
        if self._run is None:
            return False
        try:
            verdict, trouble = self._run.exchange.put(
                request, is_unique=request.dont_filter or self._filter is not None
            )
        except FrontierError as error:
            self._fail(error)
            return False
        if verdict.kind is VerdictKind.SEEN:
            self._log.log(request, self._spider)
            return False
        if verdict.kind is VerdictKind.REFUSED:
            self._say(logging.WARNING, "%s cannot be queued: %s", request, verdict.reason)
            return False
        if trouble is not None:
            self._unserializable(request, trouble)
        self._count("enqueued", "memory" if trouble is not None else self._run.place)
        return True

    def next_request(self) -> Request | None:
        """The next request that may be fetched now; None if there is none: the engine is woken when there is."""
        run = self._run
        if run is None:
            self._close_spider()
            return None
        try:
            run.exchange.end_consumed()
            if self._hostless:
                self._count("dequeued", "memory")
                return self._hostless.popleft()
            request, is_kept, unmade = run.exchange.take()
        except FrontierError as error:
            self._fail(error)
            return None
        for each in unmade:
            self._unmade(each)
        if request is not None:
            self._count("dequeued", "memory" if is_kept else run.place)
        self._tell_standstill(run, has_ended=request is not None)
        return request

    # What Scrapy's status report asks of its own scheduler

    @property
    def mqs(self) -> Sized:
        """What is queued in memory alone; requests that could not be serialised are not told from the others."""
        return range(len(self) if self._run is None or self._run.place == "memory" else len(self._hostless))

    @property
    def dqs(self) -> Sized | None:
        """What is queued in JOBDIR; None without."""
        is_durable = self._run is not None and self._run.place == "disk"
        return range(len(self) - len(self._hostless)) if is_durable else None

    # For the spider middleware

    def flight_of(self, number: object) -> Flight | None:
        """What is out under this number."""
        return None if self._run is None else self._run.exchange.flights.of(number)

    # Inside

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
            self._say(logging.WARNING, words, request, error)

    def _tell_standstill(self, run: Run, *, has_ended: bool) -> None:
        """Said once, until a request is served again."""
        if has_ended:
            self._stands_still = False
        elif not self._stands_still and run.exchange.stands_still():
            self._stands_still = True
            self._say(logging.WARNING, _STANDSTILL, len(self))

    def _unmade(self, unmade: Unmade) -> None:
        """What is lost is said once a run."""
        if unmade.reason is not None:
            self._say(logging.ERROR, "%s is dropped, no request can be made of it: %s", unmade.url, unmade.reason)
        elif not self._crawler.stats.get_value(_LOST):
            words = "requests that could not be serialised were lost with the process that kept them in its memory"
            self._say(logging.WARNING, words)
        self._crawler.stats.inc_value(_LOST if unmade.reason is None else _DROPPED)

    def _fail(self, error: FrontierError) -> None:
        """The Frontier cannot go on; every further call of it would say so, too."""
        if not self._is_closing:
            self._say(logging.ERROR, "the Frontier has failed, the crawl ends and can be resumed: %s", error)
            self._close_spider()

    def _close_spider(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            Engine(self._crawler).close_spider(UNAVAILABLE)

    def _say(self, level: int, words: str, *what: object) -> None:
        logger.log(level, words, *what, extra={"spider": self._spider})

    def _count(self, what: str, place: str) -> None:
        self._crawler.stats.inc_value(f"scheduler/{what}/{place}")
        self._crawler.stats.inc_value(f"scheduler/{what}")
