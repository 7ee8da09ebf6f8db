"""A job of several workers on this machine, to try and to look at: a PostgreSQL server, a generated web, workers, a table.

    scripts/cluster 3 [--pages 20000] [--hosts 200] [--lease 5s]

Everything is in a temporary folder, and goes with it. While it runs, use the printed URL in another terminal: kill a worker by
its process id, pause the job, ask why a URL waits, start a fourth worker by the printed command. Ctrl-C ends all in order.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.table import Table

from anabranch.crawler.job.database import JobDatabase
from anabranch.crawler.lab.web.miniweb import Served, serving
from anabranch.crawler.lab.web.model import WebOptions
from anabranch.crawler.outcomes.errors import CrawlerError
from anabranch.crawler.run.job_rows import JobRows
from anabranch.crawler.run.worker_lines import WorkerLine, workers
from anabranch.frontier.errors import FrontierError
from scripts.postgres_server import fresh_database, running

_ORDER = """
[agent]
contact = "nobody@example.org"
[scope]
scope = "any"
max_hops = 1000
[politeness]
delay_factor = 0
min_delay = "100ms"
max_delay = "1s"
backoff_base = "1s"
backoff_cap = "2s"
[fetch]
allow_private = true
[frontier]
worker_lease = "{lease}"
[dns.hosts]
{hosts}
"""
_LOOK_S = 0.5


def main() -> int:
    """Run until the job is done, or Ctrl-C."""
    arguments = _parser().parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with (
        tempfile.TemporaryDirectory(prefix="anabranch-") as made,
        running(Path(made) / "db") as server,
        fresh_database(server.url) as url,
        serving(WebOptions(pages=arguments.pages, hosts=arguments.hosts, kind="hosts")) as web,
    ):
        folder, store = Path(made), url.replace(":@", "@")
        _write(folder, web, arguments.lease)
        command = [sys.executable, "-P", "-m", "anabranch", "crawl", "-c", str(folder / "order.toml"), "--store", store]
        said = [
            f"the job: {store}",
            f"another worker: PYTHONPATH={Path.cwd()} {' '.join(command)} --job {folder}/w9 --worker w9",
        ]
        Console().print("\n".join(said), highlight=False, soft_wrap=True)
        started = [_start(command, folder, number) for number in range(1, arguments.workers + 1)]
        try:
            _watch(store, started)
        except KeyboardInterrupt:
            pass
        finally:
            _end(started)
    return 0


def _write(folder: Path, web: Served, lease: str) -> None:
    hosts = "\n".join(f'"{host}" = "{address}"' for host, address in web.hosts.items())
    (folder / "order.toml").write_text(_ORDER.format(lease=lease, hosts=hosts))
    (folder / "seeds.txt").write_text("\n".join(web.seeds))


def _start(command: Sequence[str], folder: Path, number: int) -> subprocess.Popen[bytes]:
    """A worker in a session of its own: Ctrl-C does not reach it, `_end` does."""
    more = [str(folder / "seeds.txt"), "--job", str(folder / f"w{number}"), "--worker", f"w{number}"]
    with (folder / f"w{number}.log").open("wb") as log:
        environment = {**os.environ, "PYTHONPATH": str(Path.cwd())}
        return subprocess.Popen([*command, *more], stdout=log, stderr=log, env=environment, start_new_session=True)


def _watch(store: str, started: Sequence[subprocess.Popen[bytes]]) -> None:
    """Show the workers until none is left, and the job is done."""
    with JobDatabase(store) as database, Live(Table(), console=Console(), refresh_per_second=4) as live:
        while True:
            with suppress(CrawlerError, FrontierError):  # the tables are not there yet
                job = JobRows(database)
                status = job.status()
                live.update(_table(database.do(workers), str(status["line"])))
                if status["is_finished"] and all(worker.poll() is not None for worker in started):
                    return
            threading.Event().wait(_LOOK_S)


def _table(lines: Sequence[WorkerLine], line: str) -> Table:
    table = Table(title=line, title_justify="left")
    for head in ("worker", "process", "shares", "lease", "pages", "active", "queues"):
        table.add_column(head, justify="left" if head == "worker" else "right")
    for worker in lines:
        status = worker.status or {}
        lease = f"{worker.lease_s:.1f} s" if worker.lease_s > 0 else "late"
        figures = (status.get(name, 0) for name in ("pages", "active", "ready"))
        table.add_row(worker.name, *map(str, (status.get("pid", ""), worker.shares, lease, *figures)))
    return table


def _end(started: Sequence[subprocess.Popen[bytes]]) -> None:
    for worker in started:
        if worker.poll() is None:
            worker.send_signal(signal.SIGTERM)
    for worker in started:
        with suppress(subprocess.TimeoutExpired):
            worker.wait(30)
        if worker.poll() is None:
            worker.kill()
            worker.wait()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/cluster", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("workers", type=int, nargs="?", default=3, metavar="N", help="workers")
    parser.add_argument("--pages", type=int, default=20_000, help="URLs of the web")
    parser.add_argument("--hosts", type=int, default=200, help="hosts of the web")
    parser.add_argument("--lease", default="5s", help="so long a silent worker keeps its shares")
    return parser


if __name__ == "__main__":
    sys.exit(main())
