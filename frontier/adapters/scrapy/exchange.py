"""Requests into the Frontier, requests out of it, and how what is out comes to its end."""

from __future__ import annotations

from collections import deque

from scrapy import Request

from frontier.adapters.scrapy.engine import Engine
from frontier.adapters.scrapy.inflight import Flight, InFlight
from frontier.adapters.scrapy.requests import FOUND_ON, NUMBER, Requests
from frontier.core import Frontier
from frontier.models import Candidate, Outcome, OutcomeKind, Verdict, VerdictKind

_LOST = Outcome(OutcomeKind.DISREGARDED)


class Exchange:
    """Between one crawl and its Frontier."""

    def __init__(self, frontier: Frontier, requests: Requests, engine: Engine) -> None:
        self.flights = InFlight()
        self.lost = 0  #: requests that an earlier run kept in its memory
        self._frontier = frontier
        self._requests = requests
        self._engine = engine
        self._waiting: deque[Candidate] = deque()  # the store was behind when they came

    def __len__(self) -> int:
        return self._frontier.pending + len(self._waiting)

    def put(self, request: Request, *, is_unique: bool) -> Verdict:
        """Queue it. One that comes for a request still at the downloader (retried, redirected) takes that one's place."""
        number, found_on = request.meta.pop(NUMBER, None), request.meta.pop(FOUND_ON, None)
        candidate = self._requests.candidate(request, is_unique=is_unique)
        replaced, page = self.flights.of(number), self.flights.of(found_on)
        if replaced is not None and replaced.is_at_spider:
            page = page or replaced
            replaced = None
        if replaced is not None:
            verdict = self._end(replaced, [candidate])[0]
        else:
            verdict = self._frontier.schedule([candidate], None if page is None else page.lease)[0]
        if verdict.kind is VerdictKind.BUSY:
            self._waiting.append(candidate)
        elif verdict.kind is not VerdictKind.NEW:
            self._requests.forget(candidate)
        return verdict

    def take(self) -> Request | None:
        """The next request that may be fetched now."""
        self._put_waiting()
        while (lease := self._frontier.lease()) is not None:
            request = self._requests.request(lease)
            if request is not None:
                request.meta[NUMBER] = lease.ordinal
                self.flights.add(lease, request)
                return request
            self.lost += 1
            self._frontier.finish(lease, _LOST)
        self._engine.wake_at(self._frontier)
        return None

    def end_consumed(self) -> None:
        """End the leases of all requests that the engine is done with."""
        for flight in self.flights:
            is_done = self._engine.is_done_with(flight.request)
            if flight.is_consumed if is_done is None else is_done:
                self._end(flight)

    def release_all(self) -> None:
        """Give back what is out."""
        for flight in self.flights:
            self.flights.end(flight)
            self._frontier.release(flight.lease)

    def _end(self, flight: Flight, successors: list[Candidate] | None = None) -> list[Verdict]:
        self.flights.end(flight)
        verdicts = self._frontier.finish(flight.lease, flight.outcome(), successors or ())
        self._requests.ended(flight.lease)
        return verdicts

    def _put_waiting(self) -> None:
        while self._waiting:
            verdict = self._frontier.schedule([self._waiting[0]])[0]
            if verdict.kind is VerdictKind.BUSY:
                return
            candidate = self._waiting.popleft()
            if verdict.kind is not VerdictKind.NEW:
                self._requests.forget(candidate)
