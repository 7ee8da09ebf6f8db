"""The seeds of a job of several workers, as rows: every worker has the same, with the same numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from threading import Lock

from sqlalchemy import Connection, select

from anabranch.crawler.cluster.database import SEED, JobDatabase, execute, fetch, lock_job
from anabranch.crawler.job.seeds import Seed

_ADDED_AT_ONCE = 1000


class SeedTable:
    """A `Book` over the table `job_seed`, with a copy of it in memory: the seeds that were known at the last `refresh`.

    Any thread may use it. While the server is away, a call waits. Cost of `add`: a transaction of four statements.
    """

    def __init__(self, database: JobDatabase) -> None:
        self._database = database
        self._seeds: dict[str, Seed] = {}
        self._listed: list[Seed] = []
        self._changing = Lock()
        self.refresh()

    def __len__(self) -> int:
        return len(self._seeds)

    def __iter__(self) -> Iterator[Seed]:
        return iter(self._listed[:])

    def __contains__(self, url: object) -> bool:
        return url in self._seeds

    def after(self, count: int) -> Sequence[Seed]:
        """The seeds after the first `count`."""
        return self._listed[count:]

    def add(self, seed: Seed) -> bool:
        """Record a seed; False if its URL is in the table already."""
        return bool(self.add_all((seed,)))

    def add_all(self, seeds: Iterable[Seed]) -> tuple[Seed, ...]:
        """Record those that are new, all or none, and return them."""
        given = [seed for seed in seeds if seed.url not in self._seeds]
        if not given:
            return ()
        added = self._database.do_patiently(lambda connection: add_seeds(connection, given))
        self.refresh()
        return added

    def reload(self) -> None:
        """Read all: an older state of the table may have taken the place of the one that was read."""
        found = self._database.do_patiently(lambda connection: _seeds_after(connection, 0))
        with self._changing:
            self._seeds, self._listed = {seed.url: seed for seed in found}, found

    def refresh(self) -> None:
        """Read what other workers have added."""
        known = len(self._listed)
        found = self._database.do_patiently(lambda connection: _seeds_after(connection, known))
        with self._changing:
            new = found[len(self._listed) - known :]  # another thread may have read some of them meanwhile
            self._seeds |= {seed.url: seed for seed in new}
            self._listed += new


def add_seeds(connection: Connection, seeds: Iterable[Seed]) -> tuple[Seed, ...]:
    """Add the new ones in the running transaction, numbered without gaps; returns them."""
    lock_job(connection)
    ((last,),) = fetch(connection, "SELECT coalesce(max(number), 0) FROM job_seed")
    added: list[Seed] = []
    given: dict[str, Seed] = {}
    for seed in seeds:
        given.setdefault(seed.url, seed)
    listed = list(given.values())
    for start in range(0, len(listed), _ADDED_AT_ONCE):
        chunk = listed[start : start + _ADDED_AT_ONCE]
        known = _known(connection, [seed.url for seed in chunk])
        new = [seed for seed in chunk if seed.url not in known]
        rows = [
            {"number": last + len(added) + place, "url": seed.url, "source": seed.source, "via": seed.via}
            for place, seed in enumerate(new, start=1)
        ]
        if rows:
            execute(connection, "INSERT INTO job_seed VALUES (:number, :url, :source, :via)", rows)
        added += new
    return tuple(added)


def _known(connection: Connection, urls: list[str]) -> set[str]:
    return set(connection.scalars(select(SEED.c.url).where(SEED.c.url.in_(urls))))


def _seeds_after(connection: Connection, last: int) -> list[Seed]:
    rows = fetch(connection, "SELECT url, source, via FROM job_seed WHERE number > :last ORDER BY number", last=last)
    return [Seed(url=url, source=source, via=via) for url, source, via in rows]
