"""What Scrapy's signals tell of requests in flight, and of hosts."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from scrapy import Request, signals
from scrapy.http import Response

from anabranch.frontier.adapters.scrapy.inflight import Flight, InFlight
from anabranch.frontier.adapters.scrapy.requests import NUMBER
from anabranch.frontier.core import Frontier
from anabranch.frontier.hosttroubles import told_by
from anabranch.frontier.models import GateKey, HostTrouble
from anabranch.frontier.policies.authority import authority

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

#: A longer Crawl-delay is cut, as in a crawl of our own.
_LONGEST_DELAY_S = 300.0
#: Hosts whose Crawl-delays are remembered, so that the longest of a host's ports holds.
_MOST_DELAYS = 100_000


class Listener:
    """Hears the signals of one crawl; it must be kept, for Scrapy does not."""

    def __init__(self, flights: InFlight, frontier: Frontier, crawler: Crawler, *, has_host_gates: bool) -> None:
        self._flights = flights
        self._frontier = frontier
        self._delays: dict[GateKey, float] = {}
        settings = crawler.settings
        self._agent = settings["ROBOTSTXT_USER_AGENT"] or settings["USER_AGENT"]
        heard = {
            signals.request_reached_downloader: self._reached,
            signals.headers_received: self._headers,
            signals.response_downloaded: self._downloaded,
            signals.request_left_downloader: self._left,
            signals.response_received: self._received,
        }
        if has_host_gates and hasattr(signals, "robots_parsed"):  # Scrapy 2.18
            heard[signals.robots_parsed] = self._parsed
        for signal, method in heard.items():
            crawler.signals.connect(method, signal=signal)

    def _reached(self, request: Request) -> None:
        if (flight := self._of(request)) is not None:
            self._flights.reached(flight)
            flight.start_s, flight.end_s = self._frontier.now_s(), None

    def _headers(self, request: Request) -> None:
        """The host is there, whatever becomes of the body (too large, not wanted)."""
        if (flight := self._of(request)) is not None:
            flight.has_headers = True

    def _downloaded(self, response: Response, request: Request) -> None:
        """The answer as the host gave it, before a middleware retries or redirects it."""
        if (flight := self._of(request)) is not None:
            flight.status = response.status
            asked = (response.headers.get(b"Retry-After") or b"").decode("latin-1")
            flight.trouble, flight.retry_after_s = told_by(response.status, asked, self._frontier.now_s())

    def _left(self, request: Request) -> None:
        """Sent for every request that has reached the downloader, and last."""
        flight = self._of(request)
        if flight is None:
            return
        self._flights.left(flight)
        flight.end_s = self._frontier.now_s()
        if not flight.status and not flight.has_headers and request.url.startswith("http"):
            flight.trouble = HostTrouble.UNREACHABLE

    def _received(self, response: Response, request: Request) -> None:
        """It goes to its callback: what comes with its number from now on was found there."""
        if (flight := self._of(request)) is not None:
            flight.is_at_spider = True
            flight.status = flight.status or response.status

    def _parsed(self, robotparser: Any, request: Request) -> None:
        """A robots.txt may ask for a delay, which Scrapy itself does not heed. Of several ports' the longest holds."""
        found, delay_s = authority(request.url), robotparser.crawl_delay(self._agent)
        if found is None or not delay_s or math.isnan(delay_s):
            return
        gate = GateKey(found.host)
        longest_s = max(min(float(delay_s), _LONGEST_DELAY_S), self._delays.get(gate, 0.0))
        if len(self._delays) < _MOST_DELAYS:
            self._delays[gate] = longest_s
        self._frontier.set_delay(gate, longest_s)

    def _of(self, request: Request) -> Flight | None:
        """Not of a request that has only copied its page's meta, and may be for another host."""
        flight = self._flights.of(request.meta.get(NUMBER))
        return flight if flight is not None and flight.request is request else None
