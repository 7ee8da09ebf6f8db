"""URLs per second through leaves in Redis: three servers on this machine, several threads, batches of 300.

Each server keeps an append-only file that it syncs every second; each batch is logged and checked. The servers and the threads
share the machine's cores, so this is no measure of three machines.
"""

from __future__ import annotations

from collections.abc import Iterator

from anabranch.crawler.lab.filters.redis import ROUNDS, Trial, running_servers, shape_for
from anabranch.crawler.lab.report import in_turns
from anabranch.dedup import DsbfParameters
from scripts.benchmarks.dedup.keys import batches, urls
from scripts.benchmarks.rows import Row, Setting, rounds_row

_SERVERS = 3
_BATCH = 300
_THREADS = (4, 8)
_TARGET = 100_000.0


def shared(setting: Setting) -> Iterator[Row]:
    """Three leaves, as published, and the tree that ten million URLs get by default; the numbers of threads take turns."""
    count = setting.count(400_000)
    new = batches(urls(range(count)), _BATCH)
    edges = [len(new) * number // ROUNDS for number in range(ROUNDS + 1)]
    shapes = (("", shape_for(count, _SERVERS, 1e-3), _TARGET), ("-tree", DsbfParameters(), None))
    for ending, shape, target in shapes:
        with running_servers(_SERVERS, None) as servers:
            trials = [Trial(servers, shape, threads, 0.0) for threads in _THREADS]
            setting.say(f"{shape.first_leaves} leaves, {ROUNDS} rounds of {_THREADS[0]} and {_THREADS[1]} threads")
            for number, trial in in_turns(trials, ROUNDS):
                trial.run(new[edges[number] : edges[number + 1]])
            for row in (trial.row() for trial in trials):
                what = f"{shape.first_leaves} leaves on {_SERVERS} servers, {row.threads} threads"
                note = f"client {row.client_us:.2g} µs of CPU a URL, servers {row.servers_us:.2g}"
                for kind, speeds in (("new", row.news_per_s), ("known", row.knowns_per_s)):
                    yield rounds_row(
                        f"redis-{row.threads}{ending}-{kind}",
                        f"{kind}, {what}",
                        speeds,
                        "URLs/s",
                        target=target,
                        note=note,
                    )
