"""One crawl of Scrapy and its Frontier: requests in, requests out, and how each ends.

`scheduler` opens a `CrawlSession` for a crawl. Its `RequestExchange` makes candidates of requests and requests of leases
(`requests`), keeps those in flight (`inflight`), and finishes their leases when the engine is done with them (`engine`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from scrapy import Request, Spider

from anabranch.frontier.frontier import Frontier
from anabranch.frontier.hosts.embedding.job import EmbeddedJob
from anabranch.frontier.hosts.scrapy.engine import Engine
from anabranch.frontier.hosts.scrapy.inflight import Flight, InFlight, Listener
from anabranch.frontier.hosts.scrapy.payloads import settle_pickles
from anabranch.frontier.hosts.scrapy.requests import FOUND_ON, NUMBER, KnownRequests, Packed, Requests, Unmade
from anabranch.frontier.hosts.scrapy.settings import folder, frontier_settings
from anabranch.frontier.policies.assignment import PolitenessScope
from anabranch.frontier.records import SEEN, Candidate, Lease, Outcome, OutcomeKind, Verdict, VerdictKind, WaitsFor

if TYPE_CHECKING:
    from scrapy.crawler import Crawler


logger = logging.getLogger(__name__)

#: Heritrix's status of an error inside the crawler.
_INSIDE = -5
#: Outcomes of leases without a request: an earlier run had it in memory; its payload cannot be read.
_GONE, _USELESS = Outcome(OutcomeKind.DISREGARDED), Outcome(OutcomeKind.FAILED, _INSIDE)

#: The most of those that one call finishes: a queue full of them must not hold up the loop.
_MOST_UNMADE = 64
#: Verdicts after which a candidate is not in the Frontier, and will not be.
_NOT_TAKEN = frozenset({VerdictKind.SEEN, VerdictKind.REFUSED})
#: Verdicts after which the same request is seen.
_KNOWN = frozenset({VerdictKind.SEEN, VerdictKind.NEW})
#: A rest longer than this is reported.
_LONG_S = 300.0


class Put(NamedTuple):
    """The result of queueing a request."""

    verdict: Verdict
    trouble: Exception | None = None  #: why the request stays in this process only; None: it is stored


class Taken(NamedTuple):
    """The next request that may be fetched now, if there is one."""

    request: Request | None
    is_kept: bool  #: the request stays in this process only
    unmade: list[Unmade]  #: leases before it of which no request could be made; they are finished


class RequestExchange:
    """Moves requests between one crawl and its Frontier."""

    def __init__(self, frontier: Frontier, requests: Requests, known: KnownRequests, engine: Engine) -> None:
        self.flights = InFlight()
        self._frontier = frontier
        self._requests = requests
        self._known = known
        self._engine = engine
        self._owed: list[Candidate] = []  # candidates without a page, refused because the store was behind
        self._unserializable: set[bytes] = set()  # keys of requests that stay in this process

    def __len__(self) -> int:
        return self._frontier.pending + len(self._owed)

    def put(self, request: Request, *, is_unique: bool) -> Put:
        """Queue a request. A request made from one that has left the downloader (a retry, a redirect) replaces it."""
        if is_unique:
            return self._put(request, is_unique=True)
        if NUMBER not in request.meta and request in self._known:
            return Put(SEEN)
        put = self._put(request, is_unique=False)
        if put.verdict.kind in _KNOWN:
            self._known.add(request)
        return put

    def take(self) -> Taken:
        """Lease the next request that may be fetched now. Without one, the engine is woken when there is."""
        self._put_owed()
        unmade: list[Unmade] = []
        while len(unmade) < _MOST_UNMADE:
            lease = self._frontier.lease()
            if lease is None:
                self._engine.wake_at(self._frontier)
                break
            made = self._requests.request(lease)
            if isinstance(made, Request):
                made.meta[NUMBER] = lease.ordinal
                self.flights.add(lease, made)
                return Taken(made, self._requests.is_kept(lease), unmade)
            unmade.append(made)
            self._frontier.finish(lease, _GONE if made.reason is None else _USELESS)
        else:
            self._engine.wake()
        return Taken(None, is_kept=False, unmade=unmade)

    def is_stalled(self) -> bool:
        """Whether requests are queued, none is in flight, and none will be leased for minutes or without an operator."""
        if len(self.flights) or not len(self):
            return False
        at_s, waits_for = self._frontier.wake()
        is_far = at_s is not None and at_s > self._frontier.now_s() + _LONG_S
        return is_far or WaitsFor.OPERATOR in waits_for

    def end_consumed(self) -> None:
        """Finish the leases of all requests that the engine has finished."""
        for flight in self.flights.landing():
            is_done = self._engine.is_done_with(flight.request)
            if (flight.is_consumed if is_done is None else is_done) and not flight.is_cut:
                self._end(flight)

    def release_all(self) -> None:
        """Release the leases of all requests in flight."""
        self._put_owed()
        if self._owed:
            self._frontier.flush()
            self._put_owed()
        for flight in self.flights:
            self.flights.end(flight)
            self._frontier.release(flight.lease)

    def _put(self, request: Request, *, is_unique: bool) -> Put:
        flight, page = self._origin(request)
        if flight is not None and flight.request is request:
            request = request.copy()  # it is still out, and known by its number
        request.meta.pop(NUMBER, None)
        request.meta.pop(FOUND_ON, None)
        packed = self._requests.candidate(request, is_unique=is_unique)
        candidate, trouble, _ = packed
        ends = flight if page is None else None
        if self._is_known(packed):
            verdict = SEEN
            if ends is not None:
                self._end(ends)
        elif ends is not None:
            verdict = self._end(ends, [candidate])[0]
        else:
            verdict = self._frontier.schedule([candidate], None if page is None else page.lease)[0]
        if verdict.kind is VerdictKind.BUSY:
            (self._owed if page is None else page.owed).append(candidate)
        elif verdict.kind in _NOT_TAKEN:
            self._requests.forget(candidate)
        return Put(verdict, trouble)

    def _origin(self, request: Request) -> tuple[Flight | None, Flight | None]:
        """The request in flight that this one was made from, and the page that it was found on, if any.

        A request made from one that is still being fetched or parsed was found on it. One that has left the downloader and
        comes to no callback is replaced.
        """
        flight, page = self.flights.of(request.meta.get(NUMBER)), self.flights.of(request.meta.get(FOUND_ON))
        if flight is not None and page is None and (flight.is_at_spider or self._engine.is_under_way(flight.request)):
            page = flight
        return flight, page

    def _end(self, flight: Flight, successors: list[Candidate] | None = None) -> list[Verdict]:
        """Finish a lease, with its successors and the candidates that it owes; finishing is never refused."""
        successors = successors or []
        self.flights.end(flight)
        verdicts = self._frontier.finish(flight.lease, flight.outcome(), [*successors, *flight.owed])
        self._forget(flight.owed, verdicts[len(successors) :])
        self._requests.forget(flight.lease)
        return verdicts

    def _is_known(self, packed: Packed) -> bool:
        """Whether the same request is known, where one of the two cannot be serialised and so is not in the filter."""
        _, trouble, key = packed
        if key is None or (trouble is None and key not in self._unserializable):
            return False
        if key in self._unserializable:
            return True
        self._unserializable.add(key)
        return not self._frontier.unseen([key])[0]

    def _put_owed(self) -> None:
        """Schedule again what was refused because the store was behind; it is refused as a whole or not at all."""
        if self._owed and self._is_taken(self._owed, None):
            self._owed = []
        for flight in self.flights.landing():
            if flight.owed and self._is_taken(flight.owed, flight.lease):
                flight.paid()

    def _is_taken(self, candidates: list[Candidate], page: Lease | None) -> bool:
        verdicts = self._frontier.schedule(candidates, page)
        self._forget(candidates, verdicts)
        return verdicts[0].kind is not VerdictKind.BUSY

    def _forget(self, candidates: list[Candidate], verdicts: list[Verdict]) -> None:
        for candidate, verdict in zip(candidates, verdicts, strict=True):
            if verdict.kind in _NOT_TAKEN:
                self._requests.forget(candidate)


class CrawlSession:
    """From the scheduler's `open` to its `close`. Opening raises FrontierError."""

    def __init__(self, crawler: Crawler, spider: Spider) -> None:
        place, settings = folder(crawler.settings), frontier_settings(crawler.settings)
        self.place = "memory" if place is None else "disk"
        if place is not None:
            settle_pickles(place)
        self._engine = Engine(crawler)
        self._job = EmbeddedJob(
            place,
            settings,
            on_change=self._engine.wake_from_thread,
            max_unacknowledged=crawler.settings.getint("CONCURRENT_REQUESTS") or None,
        )
        frontier = self._job.frontier
        frontier.on_trouble(_log_trouble)
        requests = Requests(spider, crawler.request_fingerprinter.fingerprint, is_durable=place is not None)
        self.exchange = RequestExchange(frontier, requests, KnownRequests(crawler.request_fingerprinter), self._engine)
        by_host = settings.get("politeness", PolitenessScope.HOST.value) == PolitenessScope.HOST.value
        self._listener = Listener(self.exchange.flights, frontier, crawler, has_host_gates=by_host)

    def close(self, *, has_failed: bool) -> None:
        """End what is consumed, release the rest, write all (blocks). Raises: StoreUnavailable."""
        self._engine.sleep()
        try:
            if not has_failed:
                self.exchange.end_consumed()
                self.exchange.release_all()
        finally:
            self._job.close()


def _log_trouble(trouble: str) -> None:
    if trouble:
        logger.warning("%s", trouble)
