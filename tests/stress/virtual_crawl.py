"""A crawl by many workers in the lab's virtual time: what a fetch takes and how it ends is a function's answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from anabranch.crawler.lab.simulation import virtualtime
from anabranch.frontier.frontier import Frontier
from anabranch.frontier.records import Candidate, Lease, Outcome, OutcomeKind
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
        self._fetch = fetch
        self._started = started
        self._ended = ended
        self._links = links
        self._out: dict[int, Lease] = {}
        self._crawl = virtualtime.VirtualCrawl(core, clock, workers, self._begin)

    def run(self, until_s: float = float("inf")) -> Iterator[Lease]:
        """Every lease, when it is handed out; ends when nothing is left, or nothing happens before `until_s`."""
        while True:
            while (lease := self._crawl.lease()) is not None:
                yield lease
            next_s = self._crawl.next_s()
            if next_s is None or next_s > until_s:
                return
            self._crawl.go_on(next_s)

    def abandon(self) -> list[Lease]:
        """The leases that are out; their fetches are forgotten, and this crawl with them."""
        return list(self._out.values())

    def _begin(self, lease: Lease) -> None:
        self._started(lease)
        self._out[lease.ordinal] = lease
        taken_s, outcome = self._fetch(lease)
        self._crawl.after(taken_s, lambda: self._end(lease, outcome))

    def _end(self, lease: Lease, outcome: Outcome) -> None:
        timed = outcome._replace(start_s=lease.since_s, end_s=self._crawl.clock.now_s)
        del self._out[lease.ordinal]
        self._crawl.end(lease, timed, self._links(lease))
        self._ended(lease, timed)
