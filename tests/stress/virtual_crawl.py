"""A crawl by many workers in virtual time: no fetch takes any, the clock jumps to what happens next."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from itertools import count

from frontier.core import Frontier
from frontier.models import Candidate, Lease, Outcome, OutcomeKind
from tests.frontier.builder import FakeClock

Fetch = Callable[[Lease], tuple[float, Outcome]]


def by_first_folder(url: str) -> str:
    """An assignment policy: one queue for each first folder of a path."""
    return url.split("/")[3]


def done(lease: Lease) -> tuple[float, Outcome]:
    """A fetch that takes no time and goes well."""
    return 0.0, Outcome(OutcomeKind.DONE, 200)


class VirtualCrawl:
    """Workers that share one Frontier. `fetch` answers how long a fetch takes, and its outcome without times."""

    def __init__(
        self,
        core: Frontier,
        clock: FakeClock,
        workers: int,
        *,
        fetch: Fetch = done,
        started: Callable[[Lease], None] = lambda lease: None,
        ended: Callable[[Lease, Outcome], None] = lambda lease, outcome: None,
        links: Callable[[Lease], list[Candidate]] = lambda lease: [],
    ) -> None:
        self.core = core
        self.clock = clock
        self.workers = workers
        self._fetch = fetch
        self._started = started
        self._ended = ended
        self._links = links
        self._under_way: list[tuple[float, int, Lease, Outcome]] = []  # heap by end
        self._numbers = count()

    def run(self, until_s: float = float("inf")) -> Iterator[Lease]:
        """Every lease, when it is handed out; ends when nothing is left, or nothing happens before `until_s`."""
        while True:
            while len(self._under_way) < self.workers and (lease := self.core.lease()) is not None:
                self._started(lease)
                taken_s, outcome = self._fetch(lease)
                end_s = self.clock() + taken_s
                timed = outcome._replace(start_s=lease.since_s, end_s=end_s)
                heappush(self._under_way, (end_s, next(self._numbers), lease, timed))
                yield lease
            next_s = self._next_s()
            if next_s is None or next_s > until_s:
                return
            self.clock.advance_to(next_s)
            self._end_some()

    def abandon(self) -> list[Lease]:
        """The leases that are out; their fetches are forgotten."""
        leases = [lease for _, _, lease, _ in self._under_way]
        self._under_way.clear()
        return leases

    def _next_s(self) -> float | None:
        """When the next fetch ends, or a lease may be had by a worker that is free; None: nothing will happen."""
        times = [self._under_way[0][0]] if self._under_way else []
        if len(self._under_way) < self.workers:
            at_s = self.core.wake().at_s
            times += [] if at_s is None else [at_s]
        return min(times, default=None)

    def _end_some(self) -> None:
        while self._under_way and self._under_way[0][0] <= self.clock():
            _, _, lease, outcome = heappop(self._under_way)
            self.core.finish(lease, outcome, self._links(lease))
            self._ended(lease, outcome)
