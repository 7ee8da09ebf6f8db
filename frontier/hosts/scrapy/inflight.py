"""Requests in flight, from their lease to the end of their callback, and the signals of Scrapy that report on them.

`session` adds a `Flight` for each lease that it gives to the engine. `Listener` records in it what the signals report, and
`Flight.outcome` makes the lease's outcome of that.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scrapy import Request, signals
from scrapy.http import Response

from anabranch.frontier.completion import trouble_of
from anabranch.frontier.frontier import Frontier
from anabranch.frontier.hosts.scrapy.requests import NUMBER
from anabranch.frontier.policies.hosts import authority
from anabranch.frontier.records import Candidate, GateKey, HostTrouble, Lease, Outcome, OutcomeKind

if TYPE_CHECKING:
    from scrapy.crawler import Crawler


#: Heritrix's status of a host that could not be reached.
UNREACHABLE = -2


@dataclass(slots=True, eq=False)
class Flight:
    """One request in flight."""

    lease: Lease
    request: Request
    start_s: float | None = None  #: when it reached the downloader; None: it has not
    end_s: float | None = None  #: when it left it
    status: int = 0  #: of the answer, before any middleware; 0: none came
    trouble: HostTrouble = HostTrouble.NONE
    retry_after_s: float = 0.0
    has_headers: bool = False  #: the host has begun to answer
    is_at_spider: bool = False  #: a response goes to its callback, or has gone to it
    is_consumed: bool = False  #: all that the callback yields was taken
    is_cut: bool = False  #: its callback has closed the spider: it is fetched again when the crawl is resumed
    #: candidates found on it that the store was too far behind to take
    owed: list[Candidate] = field(default_factory=list)

    def reached_downloader(self, now_s: float) -> None:
        """Its fetch begins."""
        self.start_s, self.end_s = now_s, None

    def got_headers(self) -> None:
        """The host has begun to answer, whether or not the body is taken."""
        self.has_headers = True

    def answered(self, status: int, trouble: HostTrouble, retry_after_s: float) -> None:
        """The host's answer, before a middleware retries or redirects it."""
        self.status, self.trouble, self.retry_after_s = status, trouble, retry_after_s

    def left_downloader(self, now_s: float) -> None:
        """Its fetch has ended; without an answer its host could not be reached."""
        self.end_s = now_s
        if not self.status and not self.has_headers and self.request.url.startswith("http"):
            self.trouble = HostTrouble.UNREACHABLE

    def goes_to_spider(self, status: int) -> None:
        """A response goes to its callback."""
        self.is_at_spider = True
        self.status = self.status or status

    def consumed(self) -> None:
        """All that its callback yields was taken."""
        self.is_consumed = True

    def cut(self) -> None:
        """Its callback has closed the spider."""
        self.is_cut = True

    def paid(self) -> None:
        """The Frontier has taken what was found on it."""
        self.owed = []

    def outcome(self) -> Outcome:
        """How its lease ends.

        An answer is DONE with any status, since Scrapy's middlewares have decided about it. A request that never came to the
        downloader is DISREGARDED, unless a cache answered it.
        """
        if self.status or self.is_at_spider:
            kind = OutcomeKind.DONE
        elif self.start_s is None:
            kind = OutcomeKind.DISREGARDED
        else:
            kind = OutcomeKind.FAILED
        status = self.status or (UNREACHABLE if kind is OutcomeKind.FAILED else 0)
        start_s, end_s = (None, None) if self.end_s is None else (self.start_s, self.end_s)
        return Outcome(kind, status, start_s, end_s, trouble=self.trouble, retry_after_s=self.retry_after_s)


class InFlight:
    """Flights by the number of their lease. Those in the downloader are kept apart, so that `landing` skips them."""

    def __init__(self) -> None:
        self._flights: dict[int, Flight] = {}
        self._landing: dict[int, Flight] = {}

    def __len__(self) -> int:
        return len(self._flights)

    def __iter__(self) -> Iterator[Flight]:
        return iter(list(self._flights.values()))

    def landing(self) -> list[Flight]:
        """The flights that may have ended: all except those in the downloader."""
        return list(self._landing.values())

    def add(self, lease: Lease, request: Request) -> None:
        """Add a request that is sent with this lease."""
        self._flights[lease.ordinal] = self._landing[lease.ordinal] = Flight(lease, request)

    def of(self, number: object) -> Flight | None:
        """The flight with this lease number, or None."""
        return self._flights.get(number) if isinstance(number, int) else None

    def reached(self, flight: Flight) -> None:
        """It is in the downloader, which reports when it leaves."""
        self._landing.pop(flight.lease.ordinal, None)

    def left(self, flight: Flight) -> None:
        """It has left the downloader."""
        self._landing[flight.lease.ordinal] = flight

    def end(self, flight: Flight) -> None:
        """Remove it."""
        del self._flights[flight.lease.ordinal]
        self._landing.pop(flight.lease.ordinal, None)


#: A longer Crawl-delay is cut, as in a crawl of our own.
_LONGEST_DELAY_S = 300.0
#: Hosts with a remembered Crawl-delay, so that the longest of a host's ports applies.
_MOST_DELAYS = 100_000


class Listener:
    """Receives the signals of one crawl. Keep a reference: Scrapy holds only a weak one."""

    def __init__(self, flights: InFlight, frontier: Frontier, crawler: Crawler, *, has_host_gates: bool) -> None:
        self._flights = flights
        self._frontier = frontier
        self._delays: dict[GateKey, float] = {}
        settings = crawler.settings
        self._agent = settings["ROBOTSTXT_USER_AGENT"] or settings["USER_AGENT"]
        handlers = {
            signals.request_reached_downloader: self._reached,
            signals.headers_received: self._headers,
            signals.response_downloaded: self._downloaded,
            signals.request_left_downloader: self._left,
            signals.response_received: self._received,
        }
        if has_host_gates and hasattr(signals, "robots_parsed"):  # Scrapy 2.18
            handlers[signals.robots_parsed] = self._parsed
        for signal, method in handlers.items():
            crawler.signals.connect(method, signal=signal)

    def _reached(self, request: Request) -> None:
        if (flight := self._of(request)) is not None:
            self._flights.reached(flight)
            flight.reached_downloader(self._frontier.now_s())

    def _headers(self, request: Request) -> None:
        if (flight := self._of(request)) is not None:
            flight.got_headers()

    def _downloaded(self, response: Response, request: Request) -> None:
        if (flight := self._of(request)) is not None:
            asked = (response.headers.get(b"Retry-After") or b"").decode("latin-1")
            flight.answered(response.status, *trouble_of(response.status, asked, self._frontier.now_s()))

    def _left(self, request: Request) -> None:
        """Sent last, for every request that has reached the downloader."""
        if (flight := self._of(request)) is not None:
            self._flights.left(flight)
            flight.left_downloader(self._frontier.now_s())

    def _received(self, response: Response, request: Request) -> None:
        """It goes to its callback: requests with its number were found on it from now on."""
        if (flight := self._of(request)) is not None:
            flight.goes_to_spider(response.status)

    def _parsed(self, robotparser: Any, request: Request) -> None:
        """Apply the Crawl-delay of a robots.txt, which Scrapy ignores. The longest of a host's ports applies."""
        found, delay_s = authority(request.url), robotparser.crawl_delay(self._agent)
        if found is None or not delay_s or math.isnan(delay_s):
            return
        gate = GateKey(found.host)
        longest_s = max(min(float(delay_s), _LONGEST_DELAY_S), self._delays.get(gate, 0.0))
        if len(self._delays) < _MOST_DELAYS:
            self._delays[gate] = longest_s
        self._frontier.set_delay(gate, longest_s)

    def _of(self, request: Request) -> Flight | None:
        """The request's flight; None for another request that has copied its meta."""
        flight = self._flights.of(request.meta.get(NUMBER))
        return flight if flight is not None and flight.request is request else None
