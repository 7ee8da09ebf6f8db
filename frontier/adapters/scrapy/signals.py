"""What Scrapy's signals tell of requests in flight, and of hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy import Request, signals
from scrapy.http import Response

from frontier.adapters.scrapy.inflight import Flight, InFlight
from frontier.adapters.scrapy.requests import NUMBER
from frontier.adapters.scrapy.retryafter import TROUBLES, retry_after_s, wall_s
from frontier.core import Frontier
from frontier.models import GateKey, HostTrouble
from frontier.policies.authority import authority

if TYPE_CHECKING:
    from scrapy.crawler import Crawler


class Listener:
    """Hears the signals of one crawl; it must be kept, for Scrapy does not."""

    def __init__(self, flights: InFlight, frontier: Frontier, crawler: Crawler) -> None:
        self._flights = flights
        self._frontier = frontier
        settings = crawler.settings
        self._agent = settings["ROBOTSTXT_USER_AGENT"] or settings["USER_AGENT"]
        heard = {
            signals.request_reached_downloader: self._reached,
            signals.response_downloaded: self._downloaded,
            signals.request_left_downloader: self._left,
            signals.response_received: self._received,
        }
        if (parsed := getattr(signals, "robots_parsed", None)) is not None:  # Scrapy 2.18
            heard[parsed] = self._parsed
        for signal, method in heard.items():
            crawler.signals.connect(method, signal=signal)

    def _reached(self, request: Request) -> None:
        if (flight := self._of(request)) is not None:
            flight.start_s, flight.end_s = self._frontier.now_s(), None

    def _downloaded(self, response: Response, request: Request) -> None:
        """The answer as the host gave it, before a middleware retries or redirects it."""
        flight = self._of(request)
        if flight is None:
            return
        flight.end_s, flight.status = self._frontier.now_s(), response.status
        asked = response.headers.get(b"Retry-After") or b""
        flight.trouble = TROUBLES.get(response.status, HostTrouble.NONE)
        if asked and response.status >= 400:
            flight.retry_after_s = retry_after_s(asked.decode("latin-1"), wall_s())

    def _left(self, request: Request) -> None:
        if (flight := self._of(request)) is not None and flight.end_s is None:
            flight.end_s = self._frontier.now_s()

    def _received(self, response: Response, request: Request) -> None:
        """It goes to its callback: what comes with its number from now on was found there."""
        if (flight := self._of(request)) is not None:
            flight.is_at_spider = True

    def _parsed(self, robotparser: Any, request: Request) -> None:
        """A robots.txt may ask for a delay, which Scrapy itself does not heed."""
        delay_s, found = robotparser.crawl_delay(self._agent), authority(request.url)
        if delay_s and found is not None:
            self._frontier.set_delay(GateKey(found.host), float(delay_s))

    def _of(self, request: Request) -> Flight | None:
        return self._flights.of(request.meta.get(NUMBER))
