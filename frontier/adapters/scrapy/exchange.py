"""Requests into the Frontier, requests out of it, and how what is out comes to its end."""

from __future__ import annotations

from typing import NamedTuple

from scrapy import Request

from anabranch.frontier.adapters.scrapy.engine import Engine
from anabranch.frontier.adapters.scrapy.inflight import Flight, InFlight
from anabranch.frontier.adapters.scrapy.known import Known
from anabranch.frontier.adapters.scrapy.requests import FOUND_ON, NUMBER, Packed, Requests, Unmade
from anabranch.frontier.core import Frontier
from anabranch.frontier.models import SEEN, Candidate, Outcome, OutcomeKind, Verdict, VerdictKind, WaitsFor

#: Heritrix's status of what went wrong inside the crawler.
_INSIDE = -5
#: How leases end of which no request can be made: an earlier run kept it in its memory; its payload is of no use.
_GONE, _USELESS = Outcome(OutcomeKind.DISREGARDED), Outcome(OutcomeKind.FAILED, _INSIDE)
#: As many of those end in one call: a queue full of them must not hold up the loop.
_MOST_UNMADE = 64

#: Verdicts after which a candidate is not in the Frontier, and will not be.
_NOT_TAKEN = frozenset({VerdictKind.SEEN, VerdictKind.REFUSED})

#: Verdicts after which the same request is seen.
_KNOWN = frozenset({VerdictKind.SEEN, VerdictKind.NEW})

#: A rest that is so long is told.
_LONG_S = 300.0


class Put(NamedTuple):
    """What has become of a request that was to be queued."""

    verdict: Verdict
    trouble: Exception | None = None  #: why it is in this process's memory alone


class Taken(NamedTuple):
    """A request that may be fetched now, or none."""

    request: Request | None
    is_kept: bool  #: it is in this process's memory alone
    unmade: list[Unmade]  #: what had its turn before, and has come to its end without a request


class Exchange:
    """Between one crawl and its Frontier."""

    def __init__(self, frontier: Frontier, requests: Requests, known: Known, engine: Engine) -> None:
        self.flights = InFlight()
        self._frontier = frontier
        self._requests = requests
        self._known = known
        self._engine = engine
        self._owed: list[Candidate] = []  # the store was behind when they came, from no page

    def __len__(self) -> int:
        return self._frontier.pending + len(self._owed)

    def put(self, request: Request, *, is_unique: bool) -> Put:
        """Queue it. One that comes for a request that has left the downloader (retried, redirected) takes that one's place."""
        if is_unique:
            return self._put(request, is_unique=True)
        if NUMBER not in request.meta and request in self._known:
            return Put(SEEN)
        put = self._put(request, is_unique=False)
        if put.verdict.kind in _KNOWN:
            self._known.add(request)
        return put

    def take(self) -> Taken:
        """The next request that may be fetched now; the engine is woken when there is one."""
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

    def stands_still(self) -> bool:
        """Requests are queued and none is out, and an operator must let them go on, or minutes must pass."""
        if len(self.flights) or not len(self):
            return False
        at_s, waits_for = self._frontier.wake()
        is_far = at_s is not None and at_s > self._frontier.now_s() + _LONG_S
        return is_far or WaitsFor.OPERATOR in waits_for

    def end_consumed(self) -> None:
        """End the leases of all requests that the engine is done with."""
        for flight in self.flights.landing():
            is_done = self._engine.is_done_with(flight.request)
            if (flight.is_consumed if is_done is None else is_done) and not flight.is_cut:
                self._end(flight)

    def release_all(self) -> None:
        """Give back what is out."""
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
            verdict = self._schedule([candidate], page)[0]
        if verdict.kind is VerdictKind.BUSY:
            (self._owed if page is None else page.owed).append(candidate)
        elif verdict.kind in _NOT_TAKEN:
            self._requests.forget(candidate)
        return Put(verdict, trouble)

    def _origin(self, request: Request) -> tuple[Flight | None, Flight | None]:
        """The request in flight that this one was made from, if it was, and the page that it was found on.

        One made from a request that is still under way was found on it; only one that has left the downloader and comes to no
        callback is replaced.
        """
        flight, page = self.flights.of(request.meta.get(NUMBER)), self.flights.of(request.meta.get(FOUND_ON))
        if flight is not None and page is None and (flight.is_at_spider or self._engine.is_under_way(flight.request)):
            page = flight
        return flight, page

    def _schedule(self, candidates: list[Candidate], page: Flight | None) -> list[Verdict]:
        return self._frontier.schedule(candidates, None if page is None else page.lease)

    def _end(self, flight: Flight, successors: list[Candidate] | None = None) -> list[Verdict]:
        """What it owes goes with it, for to finish is never refused."""
        successors = successors or []
        self.flights.end(flight)
        verdicts = self._frontier.finish(flight.lease, flight.outcome(), [*successors, *flight.owed])
        self._forget(flight.owed, verdicts[len(successors) :])
        self._requests.ended(flight.lease)
        return verdicts

    def _is_known(self, packed: Packed) -> bool:
        """The same request is known, and one of both cannot be serialised, so that the Frontier's filter does not tell."""
        candidate, trouble, key = packed
        if key is None:
            return False
        if self._requests.was_kept(key):
            return True
        if trouble is None:
            return False
        self._requests.keep_known(key)
        return self._frontier.judge([candidate._replace(key=key)])[0].kind is VerdictKind.SEEN

    def _put_owed(self) -> None:
        """Send again what the store was behind for; it is refused all or none."""
        if self._owed and self._sent(self._owed, None):
            self._owed = []
        for flight in self.flights.landing():
            if flight.owed and self._sent(flight.owed, flight):
                flight.owed = []

    def _sent(self, candidates: list[Candidate], page: Flight | None) -> bool:
        verdicts = self._schedule(candidates, page)
        self._forget(candidates, verdicts)
        return verdicts[0].kind is not VerdictKind.BUSY

    def _forget(self, candidates: list[Candidate], verdicts: list[Verdict]) -> None:
        for candidate, verdict in zip(candidates, verdicts, strict=True):
            if verdict.kind in _NOT_TAKEN:
                self._requests.forget(candidate)
