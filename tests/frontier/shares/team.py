"""Workers of one job in one process: Frontiers over one database, and a made-up site that they crawl together."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

from sqlalchemy import Connection, create_engine, make_url

from anabranch.frontier.composition import FrontierOrder, open_frontier, share_rule_of
from anabranch.frontier.frontier import Frontier
from anabranch.frontier.records import Candidate, Lease, Outcome, OutcomeKind
from anabranch.frontier.scheduling.gates import Politeness
from anabranch.frontier.stores.contract import Answer
from anabranch.frontier.stores.sql.reading import Question
from anabranch.frontier.stores.sql.store import SqlStore
from anabranch.frontier.stores.sql.worker import Shared, WorkerIdentity
from tests.patience import HANG_S

SHARES = 8
#: Long enough that no worker loses its lease while the machine is busy.
TTL_S = 60.0
#: Shares are divided in looks; a second each, as in a crawl, would be most of a test.
LOOK_S = 0.02
#: Links come in polls, and each link of a site waits for one.
POLL_S = 0.005


def identity(name: str, token: str = "", ttl_s: float = TTL_S, look_s: float = LOOK_S) -> WorkerIdentity:
    """A worker that looks at its part all the time; without a token, from a folder of its own."""
    return WorkerIdentity(name=name, token=token or name, ttl_s=ttl_s, look_s=look_s, poll_s=POLL_S)


def order(**more: object) -> FrontierOrder:
    """An order without delays."""
    values = {"policy": "host", "politeness": Politeness(min_delay_s=0.0, delay_factor=0.0, slots=2), "shares": SHARES}
    return FrontierOrder(**{**values, **more})  # type: ignore[arg-type]


class Site:
    """Pages of some hosts; each links to the next ones, most of them on other hosts, and to the first."""

    def __init__(self, hosts: int, pages: int) -> None:
        self.urls = [f"http://h{number % hosts}.test/{number}" for number in range(pages)]
        self._places = {url: place for place, url in enumerate(self.urls)}

    def links(self, url: str) -> list[Candidate]:
        """Return the links of the page."""
        place = self._places.get(url)
        if place is None:
            return []
        places = [2 * place + 1, 2 * place + 2, place + 1, 0]
        return [Candidate(self.urls[place]) for place in places if place < len(self.urls)]


class Worker:
    """One worker: a Frontier, and what it has fetched."""

    def __init__(
        self,
        target: Path | str,
        name: str,
        order: FrontierOrder,
        ttl_s: float = TTL_S,
        token: str = "",
        look_s: float = LOOK_S,
        state: Path | None = None,
    ) -> None:
        self.name = name
        self.changed = Event()
        self.store = SqlStore(target, shared=Shared(share_rule_of(order), identity(name, token, ttl_s, look_s)))
        self.frontier: Frontier = open_frontier(state, order, store=self.store, on_change=self._on_change)
        self.fetched: Counter[str] = Counter()
        self.held: list[Lease] = []

    def _on_change(self) -> None:
        self.changed.set()

    def lease(self, most: int = 1_000_000) -> int:
        """Take all leases that are to be had, up to so many; how many."""
        for count in range(most):
            lease = self.frontier.lease()
            if lease is None:
                return count
            self.held.append(lease)
        return most

    def fetch(self, site: Site) -> None:
        """End what is leased as fetched."""
        for lease in self.held:
            self.fetched[lease.url] += 1
            outcome = Outcome(OutcomeKind.DONE, 200, self.frontier.now_s(), self.frontier.now_s())
            self.frontier.finish(lease, outcome, site.links(lease.url))
        self.held = []

    @property
    def serving(self) -> frozenset[int]:
        """The shares that it serves."""
        hosting = self.frontier._store_link.hosting
        assert hosting is not None
        return hosting.serving

    def close(self) -> None:
        """Leave in order."""
        self.frontier.close()


def until(is_so: Callable[[], bool], workers: list[Worker], step: Callable[[], None] = lambda: None) -> None:
    """Let the workers take their answers, and `step`, until this is so."""
    for _ in waiting(workers):
        for worker in workers:
            worker.frontier.take_answers()
        step()
        if is_so():
            return


def waiting(workers: list[Worker]) -> Iterator[None]:
    """Again and again, whenever one of their stores has answered. Raises: AssertionError after a long time."""
    ends_s, changed = time.monotonic() + HANG_S, Event()
    for worker in workers:
        worker.changed = changed
    for turn in itertools.count():
        yield
        assert time.monotonic() < ends_s, f"nothing comes of it after {turn} turns"
        changed.wait(0.02)  # time alone may change something, too
        changed.clear()


def crawl(workers: list[Worker], site: Site) -> Counter[str]:
    """Crawl until every page was fetched; how often each was."""
    total: Counter[str] = Counter()

    def step() -> None:
        for worker in workers:
            worker.lease()
            worker.fetch(site)

    def is_done() -> bool:
        total.clear()
        for worker in workers:
            total.update(worker.fetched)
        return len(total) >= len(site.urls)

    until(is_done, workers, step)
    return total


@contextmanager
def team(place: Path | str, names: str = "abc", **orders: object) -> Iterator[list[Worker]]:
    """Workers that have divided the shares; they leave at the end."""
    workers = [Worker(place, name, order(**orders)) for name in names]
    until(lambda: is_divided(workers), workers)
    yield workers
    for worker in workers:
        worker.close()


def is_divided(workers: list[Worker]) -> bool:
    """Each has its even part."""
    parts = sorted(len(worker.serving) for worker in workers)
    return sum(parts) == SHARES and parts[-1] - parts[0] <= 1


@contextmanager
def frozen(worker: Worker) -> Iterator[None]:
    """While inside, the worker's store does nothing, as one of a process that is stopped or cut off."""
    stops, goes_on = Event(), Event()
    owner = worker.store._owner
    tasks = owner.tasks

    def stopped(post: Callable[[list[Answer]], None]) -> list[Question]:
        stops.set()
        assert goes_on.wait(HANG_S)
        return tasks(post)

    owner.tasks = stopped  # type: ignore[method-assign]
    assert stops.wait(HANG_S)
    try:
        yield
    finally:
        owner.tasks = tasks  # type: ignore[method-assign]
        goes_on.set()


def at_once(place: Path | str, step: Callable[[Connection], None]) -> None:
    """A step in a transaction of its own."""
    url = make_url(f"sqlite:///{place}" if isinstance(place, Path) else place)
    engine = create_engine(url.set(drivername=url.drivername.replace("postgresql", "postgresql+psycopg")))
    with engine.begin() as connection:
        step(connection)
    engine.dispose()
