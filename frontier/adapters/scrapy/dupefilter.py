"""Scrapy's DUPEFILTER_CLASS: the Frontier's filter with Scrapy's own scheduler."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scrapy import Request, Spider
from scrapy.dupefilters import BaseDupeFilter, RFPDupeFilter

from anabranch.frontier.adapters.scrapy.engine import Engine
from anabranch.frontier.adapters.scrapy.settings import UNAVAILABLE, folder
from anabranch.frontier.composition import open_filter
from anabranch.frontier.errors import FrontierError
from anabranch.frontier.seen import SeenFilter

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)


class FrontierDupeFilter(BaseDupeFilter):
    """Fingerprints in a memory-mapped signature store joined with a Bloom filter: memory that does not grow with the crawl.

    With JOBDIR it lies in `JOBDIR/frontier/seen` and outlives a process that dies; without, it is a set in memory. What is
    called seen is seen but for the filter's error rate (`dedup.uniq`: one in a million by default).
    """

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._seen: SeenFilter | None = None
        self._is_closing = False
        self._log = RFPDupeFilter(debug=crawler.settings.getbool("DUPEFILTER_DEBUG"))

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> FrontierDupeFilter:
        """As Scrapy builds it."""
        return cls(crawler)

    def open(self) -> None:
        """Open it (blocks). If it cannot be opened, the spider is closed at its first request."""
        place = folder(self._crawler.settings)
        try:
            self._seen = open_filter(None if place is None else place / "seen")
        except FrontierError as error:
            logger.error("the dupe filter cannot be opened: %s", error)  # noqa: TRY400 - one line

    def request_seen(self, request: Request) -> bool:
        """Whether a request of this fingerprint came before; from now on one did. Cost: microseconds."""
        if self._seen is None:
            self._close_spider()
            return True
        key = self._crawler.request_fingerprinter.fingerprint(request)
        if not self._seen.unseen([key])[0]:
            return True
        self._seen.mark([key])
        return False

    def close(self, reason: str) -> None:
        """Make all durable (blocks)."""
        del reason
        if self._seen is not None:
            self._seen.close()

    def _close_spider(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            Engine(self._crawler).close_spider(UNAVAILABLE)

    def log(self, request: Request, spider: Spider) -> None:
        """As Scrapy's own."""
        self._log.log(request, spider)
