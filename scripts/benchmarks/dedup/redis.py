"""URLs per second through leaves in Redis: three servers on this machine, several threads, batches of 300.

Each server keeps an append-only file that it syncs every second; each batch is logged and checked. The servers and the threads
share the machine's cores, so this is no measure of three machines.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from anabranch.crawler.lab.filters.redis import Trial, running_servers, shape_for
from anabranch.dedup import DsbfParameters
from scripts.benchmarks.dedup.keys import batches, urls
from scripts.benchmarks.rows import Row, Setting

_SERVERS = 3
_BATCH = 300
_THREADS = (4, 8)
_TARGET = 100_000.0
_REPETITIONS = 3


def shared(setting: Setting) -> Iterator[Row]:
    """Three leaves, as published, and the tree that ten million URLs get by default."""
    count = setting.count(400_000)
    new = batches(urls(range(count)), _BATCH)
    known = new[: len(new) // 2]
    shapes = (("", shape_for(count, _SERVERS, 1e-3), _TARGET), ("-tree", DsbfParameters(), None))
    for ending, shape, target in shapes:
        with running_servers(_SERVERS, None) as addresses:
            trial = Trial(addresses, shape, 0.0)
            for threads in _THREADS:
                setting.say(f"{shape.first_leaves} leaves, {threads} threads")
                runs = [trial.run(threads, new, known) for _ in range(_REPETITIONS)]
                for kind, speeds in (
                    ("new", [run.new_per_s for run in runs]),
                    ("known", [run.known_per_s for run in runs]),
                ):
                    yield Row(
                        name=f"redis-{threads}{ending}-{kind}",
                        what=f"{kind}, {shape.first_leaves} leaves on {_SERVERS} servers, {threads} threads",
                        measured=statistics.median(speeds),
                        unit="URLs/s",
                        target=target,
                        note=f"median of {len(runs)} runs of {count:,} URLs, {min(speeds):,.0f} to {max(speeds):,.0f}",
                    )
