"""Several workers on one job in PostgreSQL: what a page costs them and the server, and for what their transactions wait.

The workers are paced: a delay of each host holds all of them together to `PACE` pages a second, so that they wait for each
other and not for a core. What a session of the server waits for is sampled from `pg_stat_activity` once all have joined, which
they do one by one; the sampler's own CPU time does not count.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from scripts.benchmarks.crawl.contestants import CLONE, Task, order_text
from scripts.benchmarks.crawl.observing import CrawlFailed, Use, cpu_s_of, noted
from scripts.benchmarks.crawl.race import cores, task_of
from scripts.benchmarks.crawl.speed import HOSTS
from scripts.benchmarks.rows import Row, Setting
from scripts.benchmarks.site.pages import Site
from scripts.benchmarks.site.process import serving
from scripts.postgres_server import PostgresServer, fresh_database, running

TEAMS = (1, 2, 3, 6)
#: Pages a second of all workers together.
PACE = 100.0
#: Of a worker, to the database.
CONNECTIONS = 2
#: Fetches of a worker at once.
_FETCHES = 16
_SAMPLE_S = 0.02
#: A crawl that takes longer has failed.
_LIMIT_S = 600.0
#: The most of a run that its workers together may wait for locks.
_LOCKED = 0.01

_SESSIONS = """
SELECT wait_event_type, wait_event, state, substr(query, 1, 60) FROM pg_stat_activity
WHERE datname = %s AND state IN ('active', 'idle in transaction')
"""
_CONNECTIONS = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s"
_FIGURES = """
SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8, xact_commit::float8,
       (tup_inserted + tup_updated + tup_deleted)::float8
FROM pg_stat_database WHERE datname = %s
"""


class Figures(NamedTuple):
    """The server's counts of a database."""

    wal_bytes: float
    commits: float
    rows: float  #: inserted, changed and deleted


class Team(NamedTuple):
    """One crawl by several workers."""

    workers: int
    pages: int
    took_s: float  #: from the first request to the last
    worker_s: float  #: CPU time of all workers meanwhile
    server_s: float  #: CPU time of the server
    figures: Figures
    waits_s: Counter[str]  #: of all sessions, by kind and statement
    connections: int  #: at most

    @property
    def locked_s(self) -> float:
        """How long sessions have waited for locks of others."""
        return sum(waited_s for kind, waited_s in self.waits_s.items() if kind.startswith("Lock"))


class Sampler:
    """Looks at the sessions of a database, from another one."""

    def __init__(self, server: PostgresServer, database: str) -> None:
        import psycopg  # noqa: PLC0415  slow to import

        self._database = database
        url = server.url.set(drivername="postgresql", database="postgres").render_as_string(hide_password=False)
        self._connection = psycopg.connect(url, autocommit=True, prepare_threshold=1)
        ((self._process,),) = self._ask("SELECT pg_backend_pid() WHERE %s <> ''")
        self._sampled_s = time.monotonic()
        self.waits_s: Counter[str] = Counter()
        self.connections = 0

    def sample(self) -> None:
        """Add the time since the last sample to what each session does now."""
        now_s = time.monotonic()
        for kind, event, state, query in self._ask(_SESSIONS):
            name = f"{kind}/{event}" if state == "active" and kind else state if state != "active" else "working"
            self.waits_s[f"{name}: {' '.join(query.split())}"] += now_s - self._sampled_s
        self._sampled_s = now_s
        self.connections = max(self.connections, self._ask(_CONNECTIONS)[0][0])

    def figures(self) -> Figures:
        """What the server has counted so far; a session reports its rows when it is idle or ends."""
        return Figures._make(self._ask(_FIGURES)[0])

    def cpu_s(self) -> float:
        """CPU time of its own session."""
        return cpu_s_of(self._process) or 0.0

    def close(self) -> None:
        self._connection.close()

    def _ask(self, question: str) -> list[tuple[Any, ...]]:
        return self._connection.execute(question.encode(), (self._database,)).fetchall()


def paced(setting: Setting) -> Iterable[Row]:
    """Teams of several sizes in turns, each on a fresh database."""
    site, teams = Site(pages=setting.pages, hosts=HOSTS, is_named=True), list[Team]()
    with running(setting.folder / "pg") as database, serving(site, cores()[0]) as server:
        task = task_of(server, setting)
        for number in range(setting.rounds):
            for size in TEAMS[:: -1 if number % 2 else 1]:
                teams.append(_crawled(size, task, database))
                setting.say(_words(teams[-1]))
    for size in TEAMS:
        yield from rows([team for team in teams if team.workers == size])


def rows(teams: Sequence[Team]) -> Iterator[Row]:
    """Medians of the crawls of one size."""
    size, name = teams[0].workers, f"workers/{teams[0].workers}"

    def middle(figures: Iterable[float]) -> float:
        return statistics.median(figures)

    yield Row(
        name=f"{name}/worker", what=f"CPU time of {size} paced workers a page", unit="ms",
        measured=middle(1e3 * team.worker_s / team.pages for team in teams),
        note=f"{middle(team.pages / team.took_s for team in teams):,.0f} pages/s, "
        f"{max(team.connections for team in teams)} connections",
    )  # fmt: skip
    yield Row(
        name=f"{name}/server", what="CPU time of the database's server a page", unit="ms",
        measured=middle(1e3 * team.server_s / team.pages for team in teams),
    )  # fmt: skip
    for row, what in (("wal_bytes", "WAL a page"), ("rows", "rows written a page"), ("commits", "transactions a page")):
        figure = middle(getattr(team.figures, row) / team.pages for team in teams)
        yield Row(name=f"{name}/{row}", what=what, measured=figure, unit="B" if row == "wal_bytes" else "")
    yield Row(
        name=f"{name}/locked", what="waiting for locks, all workers together, of the run", unit="",
        measured=middle(team.locked_s / team.took_s for team in teams), target=_LOCKED, is_bound=True,
        note=_waits(teams),
    )  # fmt: skip


def _waits(teams: Sequence[Team]) -> str:
    """All locks, and what else took longest, in the mean of the crawls."""
    sums: Counter[str] = Counter()
    for team in teams:
        sums.update(team.waits_s)
    waits = sums.most_common()
    shown = [one for one in waits if one[0].startswith("Lock")] + [
        one for one in waits if not one[0].startswith("Lock")
    ][:5]
    return "; ".join(f"{kind} {waited_s / len(teams):.2f} s" for kind, waited_s in shown)


def _words(team: Team) -> str:
    ms, figures = 1e3 / team.pages, team.figures
    return (
        f"{team.workers} workers: {team.pages / team.took_s:,.0f} pages/s, {ms * team.worker_s:.2f} ms of CPU a page and "
        f"{ms * team.server_s:.2f} of the server, {figures.wal_bytes / team.pages:,.0f} B of WAL, "
        f"{figures.rows / team.pages:.2f} rows, {figures.commits / team.pages:.2f} transactions, "
        f"{team.locked_s:.2f} s in locks"
    )


def _command(task: Task, folder: Path, store: str) -> list[str]:
    """The options of a worker, and of the command that makes the job, after the verb."""
    order = folder / "order.toml"
    order.write_text(order_text(task), encoding="utf-8")
    delay_s = HOSTS / PACE
    given = [task.server.seed, "--order", str(order), "--store", store, "--workers", str(_FETCHES)]
    given += ["--delay-factor", "0", "--min-delay", f"{delay_s}s", "--max-delay", f"{delay_s}s", "--robots", "ignore"]
    return [*given, "--allow-private", "--scope", "any", "--loop", task.loop]


def _start(verb: str, *options: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "anabranch", verb, *options],
        env=os.environ | CLONE,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _crawled(size: int, task: Task, server: PostgresServer) -> Team:
    """One crawl of the whole site. Raises: CrawlFailed."""
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(dir=task.folder)))
        url = opened.enter_context(fresh_database(server.url))
        options = _command(task, folder, url.replace(":@", "@"))
        if _start("create", *options).wait():
            raise CrawlFailed("the job cannot be created")
        sampler = Sampler(server, url.rpartition("/")[2].partition("?")[0])
        opened.callback(sampler.close)
        before, server_s = sampler.figures(), server.cpu_s() - sampler.cpu_s()
        task.server.tally()
        names = [f"w{number}" for number in range(size)]
        processes = [_start("crawl", *options, "--job", str(folder / name), "--worker", name) for name in names]
        for process in processes:
            opened.callback(process.kill)
        use = _watched(processes, sampler)
        tally = task.server.tally()
        if fault := tally.fault(task.server.site.pages):
            raise CrawlFailed(fault)
        after = sampler.figures()
        return Team(
            workers=size,
            pages=tally.pages,
            took_s=tally.took_s,
            worker_s=use.cpu_between_s(tally.first_s, tally.last_s),
            server_s=server.cpu_s() - sampler.cpu_s() - server_s,
            figures=Figures._make(late - early for early, late in zip(before, after, strict=True)),
            waits_s=sampler.waits_s,
            connections=sampler.connections,
        )


def _watched(processes: Sequence[subprocess.Popen[bytes]], sampler: Sampler) -> Use:
    """Sample until all have ended. Raises: CrawlFailed."""
    began, notes, have_joined = time.monotonic(), [], False
    while any(process.poll() is None for process in processes):
        living = [process.pid for process in processes if process.poll() is None]
        notes += filter(None, [noted(living, notes[-1].cpu_s if notes else 0.0)])
        sampler.sample()
        if not have_joined and sampler.connections >= CONNECTIONS * len(processes):
            sampler.waits_s.clear()  # workers join one by one
            have_joined = True
        if time.monotonic() - began > _LIMIT_S:
            raise CrawlFailed(f"it did not end in {_LIMIT_S:.0f} s")
        time.sleep(_SAMPLE_S)
    if any(process.returncode for process in processes):
        raise CrawlFailed(f"exit statuses {[process.returncode for process in processes]}")
    return Use(notes=notes, peak_bytes=0, took_s=time.monotonic() - began)
