"""Requests that are out: from their lease to the end of their callback. Pure, but for the requests that are held."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from scrapy import Request

from frontier.models import HostTrouble, Lease, Outcome, OutcomeKind

#: Heritrix's status of a host that could not be reached.
UNREACHABLE = -2


@dataclass(slots=True)
class Flight:
    """One request that is out."""

    lease: Lease
    request: Request
    start_s: float | None = None  #: when it reached the downloader; None: it has not
    end_s: float | None = None  #: when it left it
    status: int = 0  #: of the answer, before any middleware; 0: none came
    trouble: HostTrouble = HostTrouble.NONE
    retry_after_s: float = 0.0
    is_at_spider: bool = False  #: a response goes to its callback, or has gone there
    is_consumed: bool = False  #: all that the callback yields was taken

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
        times = (self.start_s, self.end_s) if self.start_s is not None and self.end_s is not None else (None, None)
        return Outcome(kind, status, *times, trouble=self.trouble, retry_after_s=self.retry_after_s)


class InFlight:
    """Flights by the number of their lease."""

    def __init__(self) -> None:
        self._flights: dict[int, Flight] = {}

    def __len__(self) -> int:
        return len(self._flights)

    def __iter__(self) -> Iterator[Flight]:
        return iter(list(self._flights.values()))

    def add(self, lease: Lease, request: Request) -> None:
        """It goes out."""
        self._flights[lease.ordinal] = Flight(lease, request)

    def of(self, number: object) -> Flight | None:
        """The flight of a lease's number; None for what is none, or out no more."""
        return self._flights.get(number) if isinstance(number, int) else None

    def end(self, flight: Flight) -> None:
        """It is back."""
        del self._flights[flight.lease.ordinal]
