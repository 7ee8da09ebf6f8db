"""The open Frontier of one crawl, and what connects it with Scrapy."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scrapy import Spider

from anabranch.frontier.adapters.scrapy.engine import Engine
from anabranch.frontier.adapters.scrapy.exchange import Exchange
from anabranch.frontier.adapters.scrapy.known import Known
from anabranch.frontier.adapters.scrapy.requests import Requests
from anabranch.frontier.adapters.scrapy.settings import folder, frontier_settings
from anabranch.frontier.adapters.scrapy.signals import Listener
from anabranch.frontier.embedding.job import EmbeddedJob
from anabranch.frontier.policies.assignment import PolitenessScope

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)


class Run:
    """From the scheduler's `open` to its `close`. Raises when it is made: FrontierError."""

    def __init__(self, crawler: Crawler, spider: Spider) -> None:
        place, settings = folder(crawler.settings), frontier_settings(crawler.settings)
        self.place = "memory" if place is None else "disk"
        self._engine = Engine(crawler)
        self._job = EmbeddedJob(
            place,
            settings,
            on_change=self._engine.wake_from_thread,
            max_unacknowledged=crawler.settings.getint("CONCURRENT_REQUESTS") or None,
        )
        frontier = self._job.frontier
        frontier.tell_troubles(_log_trouble)
        requests = Requests(spider, crawler.request_fingerprinter.fingerprint, is_durable=place is not None)
        self.exchange = Exchange(frontier, requests, Known(crawler.request_fingerprinter), self._engine)
        by_host = settings.get("politeness", PolitenessScope.HOST.value) == PolitenessScope.HOST.value
        self._listener = Listener(self.exchange.flights, frontier, crawler, has_host_gates=by_host)

    def close(self, *, has_failed: bool) -> None:
        """End what is consumed, give the rest back, write all (blocks). Raises: StoreUnavailable."""
        self._engine.sleep()
        try:
            if not has_failed:
                self.exchange.end_consumed()
                self.exchange.release_all()
        finally:
            self._job.close()


def _log_trouble(words: str) -> None:
    if words:
        logger.warning("%s", words)
