"""Requests that are out: from their lease to the end of their callback. Pure, but for the requests that are held."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from scrapy import Request

from anabranch.frontier.models import Candidate, HostTrouble, Lease, Outcome, OutcomeKind

#: Heritrix's status of a host that could not be reached.
UNREACHABLE = -2


@dataclass(slots=True, eq=False)
class Flight:
    """One request that is out."""

    lease: Lease
    request: Request
    start_s: float | None = None  #: when it reached the downloader; None: it has not
    end_s: float | None = None  #: when it left it
    status: int = 0  #: of the answer, before any middleware; 0: none came
    trouble: HostTrouble = HostTrouble.NONE
    retry_after_s: float = 0.0
    has_headers: bool = False  #: the host has begun to answer
    is_at_spider: bool = False  #: a response goes to its callback, or has gone there
    is_consumed: bool = False  #: all that the callback yields was taken
    is_cut: bool = False  #: its callback has closed the spider: it is not consumed, and comes again
    owed: list[Candidate] = field(default_factory=list)  #: found on it, and not taken yet, for the store was behind

    def outcome(self) -> Outcome:
        """How its lease ends.

        An answer is DONE, whatever its status, for Scrapy's middlewares have decided what becomes of it. What never came to the
        downloader was not wanted (by robots.txt, by a middleware), unless it was answered from a cache.
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
    """Flights by the number of their lease. Those in the downloader are many, and are not asked whether they are back."""

    def __init__(self) -> None:
        self._flights: dict[int, Flight] = {}
        self._landing: dict[int, Flight] = {}

    def __len__(self) -> int:
        return len(self._flights)

    def __iter__(self) -> Iterator[Flight]:
        return iter(list(self._flights.values()))

    def landing(self) -> list[Flight]:
        """Those that may have come to their end: all but those in the downloader."""
        return list(self._landing.values())

    def add(self, lease: Lease, request: Request) -> None:
        """It goes out."""
        self._flights[lease.ordinal] = self._landing[lease.ordinal] = Flight(lease, request)

    def of(self, number: object) -> Flight | None:
        """The flight of a lease's number; None for what is none, or out no more."""
        return self._flights.get(number) if isinstance(number, int) else None

    def reached(self, flight: Flight) -> None:
        """It is in the downloader, which tells when it leaves."""
        self._landing.pop(flight.lease.ordinal, None)

    def left(self, flight: Flight) -> None:
        """It has left the downloader."""
        self._landing[flight.lease.ordinal] = flight

    def end(self, flight: Flight) -> None:
        """It is back."""
        del self._flights[flight.lease.ordinal]
        self._landing.pop(flight.lease.ordinal, None)
