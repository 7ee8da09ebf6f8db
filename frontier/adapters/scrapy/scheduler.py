"""Scrapy's SCHEDULER: queues, gates, dedup and persistence by a Frontier."""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Any

from scrapy import Request, Spider
from scrapy.dupefilters import BaseDupeFilter, RFPDupeFilter
from scrapy.exceptions import CloseSpider
from scrapy.utils.misc import build_from_crawler, load_object

from frontier.adapters.scrapy.dupefilter import FrontierDupeFilter
from frontier.adapters.scrapy.engine import Engine
from frontier.adapters.scrapy.exchange import Exchange
from frontier.adapters.scrapy.inflight import InFlight
from frontier.adapters.scrapy.requests import Requests
from frontier.adapters.scrapy.settings import folder, frontier_settings
from frontier.adapters.scrapy.signals import Listener
from frontier.embedding.job import EmbeddedJob
from frontier.errors import FrontierError
from frontier.models import VerdictKind
from frontier.policies.authority import authority

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)

#: Dupe filters whose work the Frontier's own filter does.
_REPLACED = (RFPDupeFilter, FrontierDupeFilter)


class FrontierScheduler:
    """Implements Scrapy's `BaseScheduler`.

    A request is queued by its URL's work queue and served when its host's gate is open. It is out from `next_request` until its
    callback is consumed; with JOBDIR a process that dies finds it queued again. `FRONTIER` has the settings of the Frontier.

    What differs from Scrapy's own: priorities order the requests of one work queue, and those beyond ±63 are equal; within a
    priority they are served in the order in which they came. Requests without a host (`data:`, `file:`) pass no gate and stay
    in memory. A `DUPEFILTER_CLASS` that is none of Scrapy's decides in the place of the Frontier's filter.
    """

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._hostless: deque[Request] = deque()
        self._is_logging_lost = True
        kind = load_object(crawler.settings["DUPEFILTER_CLASS"])
        self._filter: BaseDupeFilter | None = None if kind in _REPLACED else build_from_crawler(kind, crawler)
        self._log = RFPDupeFilter(debug=crawler.settings.getbool("DUPEFILTER_DEBUG"))

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> FrontierScheduler:
        """As Scrapy builds it."""
        return cls(crawler)

    # Scrapy's interface

    def open(self, spider: Spider) -> Any:
        """Open the Frontier (blocks for some milliseconds). Raises: CloseSpider if it cannot be opened."""
        crawler, place = self._crawler, folder(self._crawler.settings)
        engine = Engine(crawler)
        try:
            self._job = EmbeddedJob(place, frontier_settings(crawler.settings), on_change=engine.wake_from_thread)
        except FrontierError as error:
            logger.error("the Frontier cannot be opened: %s", error, extra={"spider": spider})  # noqa: TRY400 - one line
            raise CloseSpider("frontier_unavailable") from error
        self._spider, self._engine = spider, engine
        self._place = "memory" if place is None else "disk"
        self._requests = Requests(spider, crawler.request_fingerprinter.fingerprint, is_durable=place is not None)
        self._exchange = Exchange(self._job.frontier, self._requests, engine)
        self._listener = Listener(self._exchange.flights, self._job.frontier, crawler)
        if len(self):
            logger.info("Resuming crawl (%d requests scheduled)", len(self), extra={"spider": spider})
        return None if self._filter is None else self._filter.open()

    def close(self, reason: str) -> Any:
        """End what is consumed, give the rest back, close the Frontier (blocks until all is durable)."""
        self._engine.sleep()
        self._exchange.end_consumed()
        self._exchange.release_all()
        self._job.close()
        return None if self._filter is None else self._filter.close(reason)

    def has_pending_requests(self) -> bool:
        """Whether anything is queued, whether or not it may be fetched now."""
        self._exchange.end_consumed()
        return len(self) > 0

    def __len__(self) -> int:
        return len(self._exchange) + len(self._hostless)

    def enqueue_request(self, request: Request) -> bool:
        """Queue it; False if it is a duplicate, or no store can hold it."""
        if self._filter is not None and not request.dont_filter and self._filter.request_seen(request):
            self._filter.log(request, self._spider)
            return False
        if authority(request.url) is None:
            self._hostless.append(request)
            self._count("enqueued", "memory")
            return True
        before = self._requests.unserializable
        verdict = self._exchange.put(request, is_unique=request.dont_filter or self._filter is not None)
        if verdict.kind is VerdictKind.SEEN:
            self._log.log(request, self._spider)
            return False
        if verdict.kind is VerdictKind.REFUSED:
            logger.warning("%s cannot be queued: %s", request, verdict.reason, extra={"spider": self._spider})
            return False
        is_kept = self._requests.unserializable > before
        if is_kept:
            self._stats.inc_value("scheduler/unserializable")
        self._count("enqueued", "memory" if is_kept else self._place)
        return True

    def next_request(self) -> Request | None:
        """The next request that may be fetched now; None if there is none: the engine is woken when there is."""
        self._exchange.end_consumed()
        if self._hostless:
            self._count("dequeued", "memory")
            return self._hostless.popleft()
        request = self._exchange.take()
        if self._exchange.lost and self._is_logging_lost:
            self._is_logging_lost = False
            logger.warning(
                "requests that could not be serialised were lost with the process that kept them in its memory",
                extra={"spider": self._spider},
            )
        if request is not None:
            self._count("dequeued", self._place)
        return request

    # For the spider middleware

    @property
    def flights(self) -> InFlight:
        """What is out."""
        return self._exchange.flights

    # Inside

    @property
    def _stats(self) -> Any:
        return self._crawler.stats

    def _count(self, what: str, place: str) -> None:
        self._stats.inc_value(f"scheduler/{what}/{place}")
        self._stats.inc_value(f"scheduler/{what}")
