"""Crawls of three workers on PostgreSQL that lose workers on the way, compared with the web that they crawl.

    python -m tests.stress.cluster --seeds 1-95 [--ttl 3] [--faults 3] [--pages 5000] [--results FILE]

A run of one seed crawls a web of 200 hosts in a process of its own, with three workers in processes of their own, each behind a
proxy to the database. Faults come at random moments: kill -9 with a successor at once or later, SIGSTOP for three leases, a
connection to the database that is frozen for three leases. In the end each URL of the web was fetched, few twice, and no host
was asked more often than its politeness allows. One line of JSON for each seed is added to the results; seeds that are there
already are left out.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple

from sqlalchemy import URL, make_url

from anabranch.crawler.lab.web.ledger import PolitenessRule
from anabranch.crawler.lab.web.miniweb import Served, serving
from anabranch.crawler.lab.web.model import WebOptions
from scripts.postgres_server import PostgresServer, administer, fresh_database, running
from tests.acceptance.blocking import Process
from tests.stress.frozen_proxy import FrozenProxy

WORKERS = 3
HOSTS = 200
#: Fetches of a worker at once.
FETCHES = 16
REST_S = 0.05
KINDS = ("kill", "kill and wait", "stop", "cut")
#: A run that takes longer has failed.
LIMIT_S = 600.0
#: A little later the faults begin: all three are at work then.
FIRST_PART = 0.1

_ORDER = """
[agent]
contact = "tests@example.org"
[scope]
scope = "any"
max_hops = 1000
max_embeds = 1000
[politeness]
delay_factor = 0
min_delay = "{rest}s"
max_delay = "{rest}s"
backoff_base = "0.2s"
backoff_cap = "1s"
[fetch]
allow_private = true
timeout = "20s"
[frontier]
worker_lease = "{ttl}s"
[crawl]
workers = {fetches}
[report]
interval = "5s"
[dns.hosts]
{hosts}
"""


class Fault(NamedTuple):
    """One fault, and how long its shares were at rest."""

    kind: str
    worker: int
    at_pages: int
    back_s: (
        float | None
    )  #: until all shares had a living worker again, by the server's clock; None: the crawl ended first


class Worker:
    """One worker's process, its folder and its way to the database."""

    def __init__(self, number: int, folder: Path, database: URL, proxy: FrozenProxy) -> None:
        self.name = f"w{number}"
        self.number = number
        self.job = folder / self.name
        self.proxy = proxy
        self._log = folder / f"{self.name}.log"
        self._order = folder / "order.toml"
        self._seeds = folder / "seeds.txt"
        self._dsn = f"postgresql://{database.username}@127.0.0.1:{proxy.port}/{database.database}"
        self.process: Process | None = None
        self.codes: list[int] = []

    def start(self) -> None:
        """Begin, or go on."""
        command = ["-m", "anabranch", "crawl", str(self._seeds), "-c", str(self._order)]
        command += ["--store", self._dsn, "--job", str(self.job), "-s", f"job.worker={self.name}"]
        with self._log.open("ab") as log:
            self.process = Process(command, cwd=Path.cwd(), stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, if it lives."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(number)

    def ended(self) -> bool:
        """It has ended by itself."""
        return self.process is not None and self.process.poll() is not None

    def lines(self, name: str) -> Iterator[dict[str, Any]]:
        """The JSON lines of one of its files."""
        file = self.job / name
        if file.exists():
            for line in file.read_bytes().splitlines():
                yield json.loads(line)


class Run(NamedTuple):
    """One seed's outcome."""

    seed: int
    ttl_s: float
    urls: int  #: of the web
    fetched: int  #: different ones
    repeats: int
    allowed_repeats: int
    violations: int  #: of politeness, by the web's ledger
    faults: list[Fault]
    codes: list[list[int]]
    took_s: float

    def wrong(self) -> list[str]:
        """List the broken rules in words."""
        slow = [fault for fault in self.faults if fault.back_s is not None and fault.back_s > self.ttl_s + 2]
        rules = {
            f"{self.fetched} of {self.urls} were fetched": self.fetched != self.urls,
            f"{self.repeats} repeats": self.repeats > self.allowed_repeats,
            f"{self.violations} violations of politeness": bool(self.violations),
            f"the workers exited with {self.codes}": any(codes[-1] != 0 for codes in self.codes),
            f"slow: {slow}": bool(slow),
        }
        return [words for words, is_so in rules.items() if is_so]


def run(seed: int, server: PostgresServer, *, ttl_s: float, faults: int, pages: int, folder: Path) -> Run:
    """Crawl once; all files are below `folder`."""
    chance = random.Random(seed)
    began_s = time.monotonic()
    with ExitStack() as opened:
        database = make_url(opened.enter_context(fresh_database(server.url)))
        web = opened.enter_context(
            serving(WebOptions(pages=pages, hosts=HOSTS, kind="hosts", latency_s=0.01, seed=seed))
        )
        web.begin(PolitenessRule(min_delay_s=REST_S, max_delay_s=REST_S))
        _write(folder, web, ttl_s)
        path = str(Path(str(database.query["host"])) / ".s.PGSQL.5432")
        proxies = [opened.enter_context(FrozenProxy(path)) for _ in range(WORKERS)]
        workers = [Worker(number, folder, database, proxy) for number, proxy in enumerate(proxies)]
        try:
            for worker in workers:
                worker.start()
            happened = _disturb(chance, workers, database, ttl_s=ttl_s, faults=faults, pages=web.urls)
            _await_end(workers, began_s)
        finally:
            for worker in workers:
                worker.signal(signal.SIGCONT)
                worker.signal(signal.SIGKILL)
        ledger = web.ledger()
        repeats, fetched = _repeats(workers, ledger.requests)
        return Run(
            seed,
            ttl_s,
            web.urls,
            fetched,
            repeats,
            2 * FETCHES * len(happened),
            sum(entry.too_many + entry.too_early for entry in ledger.broken),
            happened,
            [worker.codes for worker in workers],
            time.monotonic() - began_s,
        )


def _write(folder: Path, web: Served, ttl_s: float) -> None:
    hosts = "\n".join(f'"{host}" = "{address}"' for host, address in web.hosts.items())
    (folder / "order.toml").write_text(_ORDER.format(rest=REST_S, ttl=ttl_s, fetches=FETCHES, hosts=hosts))
    (folder / "seeds.txt").write_text("\n".join(web.seeds))


def _disturb(
    chance: random.Random, workers: Sequence[Worker], database: URL, *, ttl_s: float, faults: int, pages: int
) -> list[Fault]:
    """Cause the faults, one after the other, each when a random part of the pages is done."""
    happened = []
    for number in range(faults):
        part = FIRST_PART + (1 - 2 * FIRST_PART) * (number + chance.random()) / faults
        kind, victim = chance.choice(KINDS), workers[chance.randrange(len(workers))]
        done = _await_pages(database, int(part * pages), workers)
        if done is None:
            break
        happened.append(Fault(kind, victim.number, done, _cause(chance, kind, victim, database, ttl_s)))
    return happened


def _cause(chance: random.Random, kind: str, victim: Worker, database: URL, ttl_s: float) -> float | None:
    """Cause one fault and let it end; how long until each share had a living worker that was not the victim."""
    before = _await_at_work(database, victim)
    if before is None:
        return None
    with _fault(chance, kind, victim, ttl_s):
        began_s = _server_s(database)
        back_s = _await_holders(database, before, began_s, ttl_s)
        if kind in {"stop", "cut"}:
            Event().wait(max(3 * ttl_s - (_server_s(database) - began_s), 0.0))
    return back_s


@contextmanager
def _fault(chance: random.Random, kind: str, victim: Worker, ttl_s: float) -> Iterator[None]:
    match kind:
        case "stop":
            victim.signal(signal.SIGSTOP)
            yield
            victim.signal(signal.SIGCONT)
        case "cut":
            victim.proxy.freeze()
            yield
            victim.proxy.thaw()
        case _:
            victim.signal(signal.SIGKILL)
            assert victim.process is not None
            victim.codes.append(victim.process.wait())
            if kind == "kill":
                victim.start()
            yield
            if kind != "kill":
                Event().wait(chance.random() * ttl_s)
                victim.start()


def _server_s(database: URL) -> float:
    return float(administer(database, "SELECT extract(epoch FROM clock_timestamp())")[0][0])


def _await_at_work(database: URL, worker: Worker) -> int | None:
    """Wait until a worker holds shares; its epoch, None: it has ended."""
    sought = f"SELECT epoch FROM worker WHERE name = '{worker.name}' AND epoch IN (SELECT epoch FROM share)"
    while not worker.ended():
        if found := administer(database, sought):
            return int(found[0][0])
        Event().wait(0.05)
    return None


def _await_holders(database: URL, before: int, began_s: float, ttl_s: float) -> float | None:
    """Seconds until each share has a living holder that joined otherwise than as this epoch; None: the crawl has ended."""
    latest_s = began_s + 4 * ttl_s + 30
    while True:
        ((free, live, now_s),) = administer(
            database,
            f"""SELECT (SELECT count(*) FROM share LEFT JOIN worker ON worker.epoch = share.epoch
                WHERE share.epoch IS NULL OR share.epoch = {before} OR until_s = 0),
                (SELECT count(*) FROM worker WHERE until_s > 0 AND epoch <> {before}), extract(epoch FROM clock_timestamp())""",
        )
        if not live:
            return None
        if not free:
            return float(now_s) - began_s
        if float(now_s) > latest_s:
            return float(now_s) - began_s
        Event().wait(0.02)


def _await_pages(database: URL, pages: int, workers: Sequence[Worker]) -> int | None:
    """Wait until so many are done; None if the crawl has ended."""
    while True:
        if all(worker.ended() for worker in workers):
            return None
        try:
            ((done,),) = administer(database, "SELECT coalesce(sum(done), 0) FROM worker")
        except Exception as error:
            if "does not exist" not in str(error):
                raise
            done = 0
        if done >= pages:
            return int(done)
        Event().wait(0.05)


def _await_end(workers: Sequence[Worker], began_s: float) -> None:
    for worker in workers:
        assert worker.process is not None
        worker.codes.append(worker.process.wait(max(LIMIT_S - (time.monotonic() - began_s), 1.0)))


def _repeats(workers: Sequence[Worker], requests: int) -> tuple[int, int]:
    """Requests beyond those that an undisturbed crawl makes, and the different URLs that were fetched."""
    pages: Counter[str] = Counter()
    again = robots = 0
    for worker in workers:
        pages.update(line["url"] for line in worker.lines("pages.jsonl"))
        again += sum(not line["final"] for line in worker.lines("logs/errors.jsonl"))
        log = worker.job / "logs" / "crawl.log"
        robots += sum(b"/robots.txt " in line for line in log.read_bytes().splitlines()) if log.exists() else 0
    return requests - len(pages) - again - robots, len(pages)


def main() -> int:
    """Run the seeds that are not in the results yet."""
    arguments = _parser().parse_args()
    first, _, last = arguments.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    done = set()
    if arguments.results.exists():
        done = {json.loads(line)["seed"] for line in arguments.results.read_text().splitlines()}
    failed = 0
    data = Path(tempfile.mkdtemp(prefix="anabranch-pg-"))  # sockets need a short path
    try:
        with running(data) as server:
            for seed in seeds:
                if seed not in done:
                    failed += _one(seed, server, arguments)
    finally:
        shutil.rmtree(data, ignore_errors=True)
    return int(failed > 0)


def _one(seed: int, server: PostgresServer, arguments: argparse.Namespace) -> bool:
    """Run one seed and write its line; True if something is wrong."""
    folder = Path(tempfile.mkdtemp(prefix=f"anabranch-cluster-{seed}-"))
    outcome = run(seed, server, ttl_s=arguments.ttl, faults=arguments.faults, pages=arguments.pages, folder=folder)
    wrong = outcome.wrong()
    facts = {**outcome._asdict(), "faults": [fault._asdict() for fault in outcome.faults], "wrong": wrong}
    with arguments.results.open("a") as results:
        results.write(json.dumps(facts) + "\n")
    kinds = ", ".join(
        f"{one.kind} {one.back_s if one.back_s is None else round(one.back_s, 1)}" for one in outcome.faults
    )
    print(
        f"seed {seed}: {outcome.fetched} of {outcome.urls}, {outcome.repeats} repeats, {outcome.violations} violations, "
        f"{outcome.took_s:.0f} s; {kinds}{'; WRONG: ' + '; '.join(wrong) if wrong else ''}",
        flush=True,
    )
    if wrong:
        print(f"  its files: {folder}", flush=True)
    else:
        shutil.rmtree(folder)
    return bool(wrong)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--seeds", default="1-3", metavar="A-B")
    parser.add_argument("--ttl", type=float, default=3.0)
    parser.add_argument("--faults", type=int, default=3)
    parser.add_argument("--pages", type=int, default=5000)
    parser.add_argument("--results", type=Path, default=Path("cluster-results.jsonl"))
    return parser


if __name__ == "__main__":
    sys.exit(main())
