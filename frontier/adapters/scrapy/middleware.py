"""Scrapy's SPIDER_MIDDLEWARES: tells the Frontier on which page a request was found, and that a callback is consumed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING, Any

from scrapy import Request
from scrapy.exceptions import CloseSpider
from scrapy.http import Response

from anabranch.frontier.adapters.scrapy.engine import scheduler_of
from anabranch.frontier.adapters.scrapy.inflight import Flight
from anabranch.frontier.adapters.scrapy.requests import FOUND_ON, NUMBER
from anabranch.frontier.adapters.scrapy.scheduler import FrontierScheduler

if TYPE_CHECKING:
    from scrapy.crawler import Crawler


class FrontierSpiderMiddleware:
    """With it `anabranch frontier why` knows the page that a request was found on, and a page whose callback closes the spider
    comes again when the crawl is resumed.

    Needs `FrontierScheduler`; with another scheduler it does nothing. It belongs nearest to the engine (a small number), so
    that it sees what the other middlewares have left.
    """

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> FrontierSpiderMiddleware:
        """As Scrapy builds it."""
        return cls(crawler)

    def process_spider_output(self, response: Response, result: Iterable[Any]) -> Iterable[Any]:
        """What the callback yields, requests marked with their page."""
        flight = self._flight(response)
        for each in result:
            yield _marked(each, flight)
        _consumed(flight)

    async def process_spider_output_async(self, response: Response, result: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """The same of an async callback."""
        flight = self._flight(response)
        async for each in result:
            yield _marked(each, flight)
        _consumed(flight)

    def process_spider_exception(self, response: Response, exception: Exception) -> None:
        """A callback that closes the spider has not consumed its page."""
        if isinstance(exception, CloseSpider) and (flight := self._flight(response)) is not None:
            flight.is_cut = True

    def _flight(self, response: Response) -> Flight | None:
        scheduler = scheduler_of(self._crawler)
        if not isinstance(scheduler, FrontierScheduler) or response.request is None:
            return None
        return scheduler.flight_of(response.request.meta.get(NUMBER))


def _marked(each: Any, flight: Flight | None) -> Any:
    if flight is not None and isinstance(each, Request):
        each.meta[FOUND_ON] = flight.lease.ordinal
    return each


def _consumed(flight: Flight | None) -> None:
    if flight is not None:
        flight.is_consumed = True
