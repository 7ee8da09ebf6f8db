"""A page of a crawl in PostgreSQL beside one in a file of SQLite: 200 hosts, in turns, and what the server uses for it."""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from scripts.benchmarks.crawl.contestants import CLONE, DURABLE, Contestant, Task, ours
from scripts.benchmarks.crawl.race import Result, cores, crawled, task_of
from scripts.benchmarks.crawl.speed import HOSTS
from scripts.benchmarks.rows import Row, Setting
from scripts.benchmarks.site.pages import Site
from scripts.benchmarks.site.process import serving
from scripts.postgres_server import PostgresServer, fresh_database, running

_CLIENT_X = 1.1
_SERVER_US = 220.0


_SHARES_X = 0.95


class _Round(NamedTuple):
    sqlite: Result
    postgres: Result  #: of the 128 shares that such a job has
    one_share: Result  #: of a job that no second worker can join
    server_us: float  #: CPU time of the database's server a page, with 128 shares


def compared(setting: Setting) -> Iterable[Row]:
    """Rounds of all three, each in the reverse order of the one before."""
    site, rounds = Site(pages=setting.pages, hosts=HOSTS, is_named=True), list[_Round]()
    servers, _ = cores()
    with running(setting.folder / "pg") as database, serving(site, servers) as server:
        task = task_of(server, setting)
        for number in range(setting.rounds):
            rounds.append(_round(task, database, is_reversed=number % 2 == 1))
            sqlite, postgres, _, server_us = rounds[-1]
            setting.say(
                f"round {number + 1}: {sqlite.cpu_us:,.0f} µs of CPU a page in SQLite, "
                f"{postgres.cpu_us:,.0f} in PostgreSQL and {server_us:,.0f} of its server"
            )
    yield from rows(rounds)


def rows(rounds: Sequence[_Round]) -> Iterator[Row]:
    """Medians of the rounds, and of their ratios."""
    clients = [one.postgres.cpu_us / one.sqlite.cpu_us for one in rounds]
    rates = [one.postgres.pages_per_s / one.sqlite.pages_per_s for one in rounds]
    shares = [one.postgres.pages_per_s / one.one_share.pages_per_s for one in rounds]
    yield Row(
        name="postgres/client-x", what="CPU time of a page, PostgreSQL / SQLite", measured=statistics.median(clients),
        unit="x", target=_CLIENT_X, is_bound=True,
        note=f"{_spread(clients)}; {statistics.median(one.postgres.cpu_us for one in rounds):,.0f} µs",
    )  # fmt: skip
    yield Row(
        name="postgres/server", what="CPU time of the database's server a page",
        measured=statistics.median(one.server_us for one in rounds), unit="µs", target=_SERVER_US, is_bound=True,
    )  # fmt: skip
    yield Row(
        name="postgres/rate-x", what="pages/s, PostgreSQL / SQLite", measured=statistics.median(rates), unit="x",
        note=f"{_spread(rates)}; the database and the site share a core",
    )  # fmt: skip
    yield Row(
        name="postgres/shares-x", what="pages/s, 128 shares / 1 share", measured=statistics.median(shares), unit="x",
        target=_SHARES_X, note=_spread(shares),
    )  # fmt: skip


def _spread(ratios: Sequence[float]) -> str:
    return f"{min(ratios):.3g} to {max(ratios):.3g} in {len(ratios)} rounds"


def _round(task: Task, database: PostgresServer, *, is_reversed: bool) -> _Round:
    results, server_us = dict[str, Result](), dict[str, float]()
    with fresh_database(database.url) as url, fresh_database(database.url) as other:
        contestants = (DURABLE, _in(url, "shared"), _in(other, "one-share", "--set", "frontier.shares=1"))
        for one in contestants[:: -1 if is_reversed else 1]:
            before_s = database.cpu_s()
            results[one.name] = _crawled(one, task)
            server_us[one.name] = 1e6 * (database.cpu_s() - before_s) / task.server.site.pages
    return _Round(results[DURABLE.name], results["shared"], results["one-share"], server_us["shared"])


def _in(url: str, name: str, *more: str) -> Contestant:
    store = url.replace(":@", "@")  # an order refuses a password, also an empty one
    return Contestant(name=name, what="", command=ours("--store", store, *more), environment=CLONE)


def _crawled(one: Contestant, task: Task) -> Result:
    folder = task.folder / one.name
    folder.mkdir()
    try:
        return crawled(one, replace(task, folder=folder), cores()[1])
    finally:
        shutil.rmtree(folder)
