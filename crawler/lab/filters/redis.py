"""Figure 9 of the DSBF paper (2016): URLs per second through a DSBF whose c leaves lie on c Redis servers.

The servers are started here and ended afterwards. Each of several threads has connections of its own and adds every so
many URLs as one batch, as crawlers that share a filter do; then all ask for known ones. The paper's leaves are on three
machines, one of them the crawler's; here `latency_s` lets a thread wait as for a wire, for all servers but the first.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TypeAlias

import numpy as np

from anabranch.crawler.lab.filters.redis_report import Measured, Setup, report
from anabranch.crawler.lab.filters.redis_servers import RedisServer
from anabranch.crawler.lab.report import Report, Tell
from anabranch.crawler.lab.urls import distinct_urls
from anabranch.crawler.outcomes.errors import UsageError
from anabranch.dedup.batch import BoolArray
from anabranch.dedup.dsbf.bloom import DsbfParameters
from anabranch.dedup.dsbf.sharedfilter import SharedDsbf

Batch: TypeAlias = Sequence[bytes]
Call: TypeAlias = Callable[[Batch], BoolArray]

_KNOWN_SHARE = 4  # of how many URLs one is asked for again
_FEWEST_URLS = 1000
_FEWEST_BITS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisOptions:
    """What `anabranch lab redis` may be told."""

    urls: Path | None = None  #: one URL a line, each taken once; `count` and `seed` are not used then
    count: int = 1_000_000  #: URLs, as published
    batch: int = 300  #: URLs of one call, as published
    threads: tuple[int, ...] = (1, 2, 4, 8, 16)  #: how many at once
    leaves: tuple[int, ...] = (1, 2, 3, 5)  #: the values of c; each leaf is on a server of its own
    latency_s: float = 0.0  #: of a round trip to any server but the first; the paper's machines: 0.0004
    seed: int = 1  #: of the generated URLs
    false_positive: float = 1e-3  #: f_max
    server: Path | None = None  #: the redis-server program; None: it is looked for


def run(options: RedisOptions, tell: Tell) -> Report:
    """Measure all pairs of c and threads. Raises: UsageError, also if there is no redis-server; DedupError, OSError."""
    _check(options)
    urls = distinct_urls(options.urls, options.count, options.seed)
    batches = [urls[start : start + options.batch] for start in range(0, len(urls), options.batch)]
    known = batches[: -(-len(batches) // _KNOWN_SHARE)]
    rows: list[Measured] = []
    steps = len(options.leaves) * len(options.threads)
    for leaves in options.leaves:
        with running_servers(leaves, options.server) as addresses:
            trial = Trial(addresses, shape_for(len(urls), leaves, options.false_positive), options.latency_s)
            for threads in options.threads:
                tell(len(rows), steps, f"c = {leaves}, threads: {threads}")
                rows.append(trial.run(threads, batches, known))
    tell(steps, steps, "done")
    setup = Setup(
        urls=len(urls),
        known=sum(map(len, known)),
        batch=options.batch,
        latency_s=options.latency_s,
        false_positive=options.false_positive,
        cores=os.cpu_count() or 1,
    )
    return report(setup, rows)


class Trial:
    """Filters of one shape on the same servers."""

    def __init__(self, addresses: Sequence[str], shape: DsbfParameters, latency_s: float) -> None:
        self._addresses = addresses
        self._shape = shape
        self._latency_s = latency_s
        self._runs = count()

    def run(self, threads: int, batches: Sequence[Batch], known: Sequence[Batch]) -> Measured:
        """Add all batches to a new filter with so many threads, then ask for the known ones."""
        name, wires = f"run-{next(self._runs)}", [Wire(self._latency_s) for _ in range(threads)]
        with ExitStack() as opened:
            filters = [opened.enter_context(self._open(name, wire)) for wire in wires]
            cpu_s = time.process_time()
            new, new_s = timed([wire.over(one.add) for wire, one in zip(wires, filters, strict=True)], batches)
            cpu_s = time.process_time() - cpu_s
            _, known_s = timed([wire.over(one.unseen) for wire, one in zip(wires, filters, strict=True)], known)
            splits = filters[0].statistics().splits
        urls = sum(map(len, batches))
        return Measured(
            leaves=len(self._addresses),
            threads=threads,
            new_per_s=urls / new_s,
            known_per_s=sum(map(len, known)) / known_s,
            client_cores=cpu_s / new_s,
            falsely_known=urls - new,
            splits=splits,
        )

    def _open(self, name: str, wire: Wire) -> SharedDsbf:
        return SharedDsbf.open(self._addresses, name=name, parameters=self._shape, on_sent=wire.sent)


class Wire:
    """Lets the time of a wire pass for one thread's calls: `latency_s` for each round trip to any server but the first.

    All servers of a round trip are under way at the same time, so it costs one latency. The time passes after the call:
    at the sending the servers would work meanwhile, and what they need would come on top of it no more.
    """

    def __init__(self, latency_s: float) -> None:
        self._latency_s = latency_s
        self._trips = 0
        self._never = threading.Event()

    def sent(self, servers: list[int]) -> None:
        """Count a round trip to these servers."""
        self._trips += any(servers)

    def over(self, call: Call) -> Call:
        """The call, longer by the wire's time."""

        def over_the_wire(batch: Batch) -> BoolArray:
            self._trips = 0
            answers = call(batch)
            if self._trips and self._latency_s:
                self._never.wait(self._trips * self._latency_s)  # the wire is simulated: only the time is waited for
            return answers

        return over_the_wire


def shape_for(urls: int, leaves: int, false_positive: float) -> DsbfParameters:
    """A tree whose first level has exactly so many leaves, of the least size that holds so many URLs unsplit."""
    bits = _FEWEST_BITS
    while DsbfParameters(expected=urls, false_positive=false_positive, leaf_bits=bits).first_leaves > leaves:
        bits *= 2
    least, most = urls, urls * leaves * 4  # a leaf of half the size held fewer than all: so it is below that
    while least < most:  # the largest number that still fits into so many leaves
        middle = (least + most + 1) // 2
        fits = DsbfParameters(expected=middle, false_positive=false_positive, leaf_bits=bits).first_leaves <= leaves
        least, most = (middle, most) if fits else (least, middle - 1)
    return DsbfParameters(expected=least, false_positive=false_positive, leaf_bits=bits)


def timed(calls: Sequence[Call], batches: Sequence[Batch]) -> tuple[int, float]:
    """Give the batches to the calls in turns, each in a thread of its own: how many answers were True, and seconds."""
    stop = threading.Event()

    def work(number: int) -> int:
        new = 0
        for batch in batches[number :: len(calls)]:
            if stop.is_set():
                break
            new += int(np.count_nonzero(calls[number](batch)))
        return new

    started = time.perf_counter()
    with ThreadPoolExecutor(len(calls)) as pool:
        running = [pool.submit(work, number) for number in range(len(calls))]
        try:
            wait(running, return_when=FIRST_EXCEPTION)
        finally:
            stop.set()  # after Ctrl-C, or if a server is gone, the other threads end after their batch
    return sum(thread.result() for thread in running), time.perf_counter() - started


@contextmanager
def running_servers(number: int, program: Path | None) -> Iterator[list[str]]:
    """So many servers with new, empty data, and their URLs."""
    with tempfile.TemporaryDirectory(prefix="anabranch-lab-") as folder, ExitStack() as running:
        servers = [
            running.enter_context(RedisServer(Path(folder, str(place)), program=program, append_only=True))
            for place in range(number)
        ]
        yield [server.url for server in servers]


def _check(options: RedisOptions) -> None:
    for name, numbers in (("threads", options.threads), ("leaves", options.leaves)):
        if not numbers or min(numbers) < 1:
            raise UsageError(f"--{name} {numbers}: give one number or more, each 1 or more")
    for name, number, least in (("count", options.count, _FEWEST_URLS), ("batch", options.batch, 1)):
        if number < least:
            raise UsageError(f"--{name} {number}: it must be {least} or more")
    if not 0 <= options.latency_s <= 1:
        raise UsageError(f"--latency {options.latency_s} s: it must be from 0 to 1 s")
