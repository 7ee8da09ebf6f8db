"""PostgreSQL beside a file of SQLite: schedule, lease and finish of 100 hosts in turns, and new URLs into an empty table.

The server is this machine's own, so its CPU time is measured, too. Medians over the rounds; each round has a fresh database,
and the reverse order of the round before.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from anabranch.frontier.composition import FrontierOrder
from anabranch.frontier.jobfolder import STORE_FILE
from anabranch.frontier.stores.sql.store import SqlStore
from scripts.benchmarks.frontier.filling import new_urls
from scripts.benchmarks.frontier.host import START_S, Host
from scripts.benchmarks.frontier.links import Web
from scripts.benchmarks.frontier.speed import POLITENESS
from scripts.benchmarks.rows import Row, Setting, rounds_row
from scripts.postgres_server import PostgresServer, fresh_database, running

_ROUNDS = 9
_HOSTS = 100
_URLS = 50_000
_DISCOVERED = 200_000


class Cost(NamedTuple):
    """The cost of one URL in one round."""

    rate: float  #: URLs per second
    client_us: float  #: CPU time of this process
    server_us: float  #: CPU time of the server


def beside_sqlite(setting: Setting) -> Iterator[Row]:
    """Every round ends when all changes are committed and synced."""
    rounds = 1 if setting.is_quick else _ROUNDS
    with running(setting.folder / "pg") as server:
        sqlite, postgres, discovered = list[Cost](), list[Cost](), list[Cost]()
        for number in range(rounds):
            setting.say(f"round {number + 1} of {rounds}")
            folder = setting.folder / str(number)
            folder.mkdir()

            def of_sqlite(folder: Path = folder) -> None:
                sqlite.append(_fetched(setting, folder / "sqlite", SqlStore(folder / STORE_FILE), server))

            def of_postgres(folder: Path = folder) -> None:
                with fresh_database(server.url) as url:
                    postgres.append(_fetched(setting, folder / "postgres", SqlStore(url), server))

            for fetched in (of_postgres, of_sqlite) if number % 2 else (of_sqlite, of_postgres):
                fetched()
            with fresh_database(server.url) as url:
                discovered.append(_discovered(setting, SqlStore(url), server))
    yield from _rows(sqlite, postgres, discovered)


def _rows(sqlite: list[Cost], postgres: list[Cost], discovered: list[Cost]) -> Iterator[Row]:
    what = f"schedule + lease + finish, policy host, {_HOSTS} hosts"
    rates = [ours.rate / other.rate for ours, other in zip(postgres, sqlite, strict=True)]
    clients = [ours.client_us / other.client_us for ours, other in zip(postgres, sqlite, strict=True)]
    yield Row(
        name="postgres-100", what=what, measured=_median(postgres, "rate"), unit="URLs/s",
        note=f"SQLite in turns: {_median(sqlite, 'rate'):,.0f}/s; {len(rates)} rounds of each",
    )  # fmt: skip
    yield rounds_row("postgres-100-rate", "its rate, over SQLite's", rates, "×", target=0.65)
    yield rounds_row(
        "postgres-100-client", "CPU time of the client, over SQLite's", clients, "×", target=1.15, is_bound=True,
        note=f"{_median(postgres, 'client_us'):.1f} µs a URL, SQLite {_median(sqlite, 'client_us'):.1f}",
    )  # fmt: skip
    yield Row(
        name="postgres-100-server", what="CPU time of the server a URL", measured=_median(postgres, "server_us"),
        unit="µs", target=20.0, is_bound=True,
    )  # fmt: skip
    yield Row(
        name="postgres-discovered", what="new URLs into an empty table: CPU time of the client a URL",
        measured=_median(discovered, "client_us"), unit="µs", target=2.0, is_bound=True,
        note=f"server {_median(discovered, 'server_us'):.1f} µs; {_median(discovered, 'rate'):,.0f} URLs/s",
    )  # fmt: skip


def _fetched(setting: Setting, folder: Path, store: SqlStore, server: PostgresServer) -> Cost:
    """Schedule so many URLs, then lease and finish them."""
    web, count = Web(_HOSTS), setting.count(_URLS)
    with Host(folder, FrontierOrder(policy="host", politeness=POLITENESS), web.hosts, store=store) as host:
        batches = list(web.batches(range(count)))

        def work() -> None:
            host.schedule(batches)
            host.flush()
            host.fetch(count)
            host.flush()

        return _measured(count, work, server)


def _discovered(setting: Setting, store: SqlStore, server: PostgresServer) -> Cost:
    """Only what the store does with new URLs: their fingerprints, rows and lanes."""
    batches = list(new_urls(_HOSTS, setting.count(_DISCOVERED)))
    store.open({"policy": "host"}, START_S, lambda: None)
    try:

        def work() -> None:
            for batch in batches:
                store.write(batch)
            store.flush()

        gc.collect()
        gc.freeze()  # a crawl tunes the collector; without that it looks at all these rows again and again
        return _measured(batches[-1].last_number, work, server)
    finally:
        gc.unfreeze()
        store.close(clean=True)


def _measured(count: int, work: Callable[[], None], server: PostgresServer) -> Cost:
    client_s, server_s, started = time.process_time(), server.cpu_s(), time.perf_counter()
    work()
    took_s = time.perf_counter() - started
    client_s, server_s = time.process_time() - client_s, server.cpu_s() - server_s
    return Cost(count / took_s, 1e6 * client_s / count, 1e6 * server_s / count)


def _median(costs: list[Cost], name: str) -> float:
    return statistics.median([getattr(cost, name) for cost in costs])
