"""The Frontier by one setting of Scrapy (ADDONS), and the spider middleware that the addon installs.

`FrontierSpiderMiddleware` reports on which page a request was found, and when a callback is consumed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING, Any

from scrapy import Request
from scrapy.exceptions import CloseSpider, NotConfigured
from scrapy.http import Response
from scrapy.settings import SETTINGS_PRIORITIES, BaseSettings, default_settings
from scrapy.utils.misc import load_object

from anabranch.frontier.errors import PolicyError
from anabranch.frontier.hosts.scrapy.engine import scheduler_of
from anabranch.frontier.hosts.scrapy.inflight import Flight
from anabranch.frontier.hosts.scrapy.requests import FOUND_ON, NUMBER
from anabranch.frontier.hosts.scrapy.scheduler import FrontierScheduler
from anabranch.frontier.hosts.scrapy.settings import FRONTIER, SLOTS, frontier_settings

if TYPE_CHECKING:
    from scrapy.crawler import Crawler


#: Nearest to the engine: after all other spider middlewares.
_NEAREST = 10
_ADDON = "addon"
#: A random delay of the downloader would come on top of the gate's.
_STEADY = {"jitter": 0} if hasattr(default_settings, "DOWNLOAD_DELAY_JITTER") else {"randomize_delay": False}  # 2.19

#: Connections to a host in a project that sets no limit.
_ALL = 1_000_000


class FrontierAddon:
    """Sets the scheduler and the spider middleware, and leaves delays to the gates.

    DOWNLOAD_DELAY and CONCURRENT_REQUESTS_PER_DOMAIN become settings of the Frontier, and the downloader does not wait: a
    request that waits there takes one of CONCURRENT_REQUESTS, so a slow host would stop all others.
    """

    def update_settings(self, settings: BaseSettings) -> None:
        """Scrapy calls it before a crawler is made. Raises: NotConfigured if the project has chosen another scheduler."""
        settings.set("SCHEDULER", FrontierScheduler, priority=_ADDON)
        if load_object(settings["SCHEDULER"]) is not FrontierScheduler:
            raise NotConfigured(f"SCHEDULER is {settings['SCHEDULER']}; leave it out, or leave FrontierAddon out")
        try:
            _overrule(settings, FRONTIER, frontier_settings(settings))
        except PolicyError:
            return  # the scheduler reports it, and closes the spider
        settings.setdefault_in_component_priority_dict("SPIDER_MIDDLEWARES", FrontierSpiderMiddleware, _NEAREST)
        _overrule(settings, "DOWNLOAD_DELAY", 0)
        _overrule(settings, "CONCURRENT_REQUESTS_PER_DOMAIN", settings.getint("CONCURRENT_REQUESTS") or _ALL)
        _overrule(settings, "AUTOTHROTTLE_ENABLED", value=False)
        if slots := settings.getdict(SLOTS):
            _overrule(settings, SLOTS, {name: {**slot, **_STEADY} for name, slot in slots.items()})


def _overrule(settings: BaseSettings, name: str, value: Any) -> None:
    """Set it even if the project has set it: its value is the Frontier's now."""
    settings.set(name, value, priority=max(settings.getpriority(name) or 0, SETTINGS_PRIORITIES[_ADDON]))


class FrontierSpiderMiddleware:
    """Records the page on which a request was found, and when a callback is consumed.

    `anabranch frontier why` shows that page. A page that closed the spider in its callback is fetched again when the crawl is
    resumed. Without `FrontierScheduler` it does nothing. Give it a small number, nearest to the engine, so that it sees the
    requests that the other middlewares have left.
    """

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> FrontierSpiderMiddleware:
        """Make a middleware for Scrapy, which calls this."""
        return cls(crawler)

    def process_spider_output(self, response: Response, result: Iterable[Any]) -> Iterable[Any]:
        """Yield what the callback yields; requests are marked with their page."""
        flight = self._flight(response)
        for each in result:
            yield _marked(each, flight)
        _consumed(flight)

    async def process_spider_output_async(self, response: Response, result: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Do for an async callback what `process_spider_output` does for others."""
        flight = self._flight(response)
        async for each in result:
            yield _marked(each, flight)
        _consumed(flight)

    def process_spider_exception(self, response: Response, exception: Exception) -> None:
        """A callback that closes the spider has not consumed its page."""
        if isinstance(exception, CloseSpider) and (flight := self._flight(response)) is not None:
            flight.cut()

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
        flight.consumed()
