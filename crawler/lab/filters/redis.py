"""Figure 9 of the DSBF paper (2016): URLs per second through a DSBF with c leaves on c Redis servers.

`redis_servers.py` starts the servers and ends them afterwards. Each of several threads has its own connections and adds the
URLs in batches, as crawlers that share a filter do; then all threads look up known URLs. The paper's leaves are on three
machines, one of them the crawler's; here `latency_s` makes a thread wait as long as a network would, for all servers but
the first. The first half measures (`run`), the second makes the report.
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

from anabranch.crawler.lab.filters.redis_servers import RedisServer
from anabranch.crawler.lab.report import NOT_RECOVERABLE, Cell, Curve, LabReport, OnProgress, Panel, Table
from anabranch.crawler.lab.urls import distinct_urls
from anabranch.crawler.outcomes.errors import UsageError
from anabranch.dedup.bloom.formulas import DsbfParameters
from anabranch.dedup.bloom.sharedfilter import SharedDsbf
from anabranch.dedup.keys import BoolArray

Batch: TypeAlias = Sequence[bytes]
Call: TypeAlias = Callable[[Batch], BoolArray]

_KNOWN_SHARE = 4  # one of so many URLs is queried again
_FEWEST_URLS = 1000
_FEWEST_BITS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisOptions:
    """Options of `anabranch lab redis`."""

    urls: Path | None = None  #: one URL a line, each taken once; `count` and `seed` are not used then
    count: int = 1_000_000  #: URLs, as published
    batch: int = 300  #: URLs of one call, as published
    threads: tuple[int, ...] = (1, 2, 4, 8, 16)  #: how many at once
    leaves: tuple[int, ...] = (1, 2, 3, 5)  #: the values of c; each leaf is on a server of its own
    latency_s: float = 0.0  #: of a round trip to any server but the first; the paper's machines: 0.0004
    seed: int = 1  #: of the generated URLs
    false_positive: float = 1e-3  #: f_max
    server: Path | None = None  #: the redis-server program; None: it is searched


def run(options: RedisOptions, on_progress: OnProgress) -> LabReport:
    """Measure all pairs of c and threads. Raises: UsageError, also if there is no redis-server; DedupError, OSError."""
    _check(options)
    urls = distinct_urls(options.urls, options.count, options.seed)
    batches = [urls[start : start + options.batch] for start in range(0, len(urls), options.batch)]
    known = batches[: -(-len(batches) // _KNOWN_SHARE)]
    rows: list[RedisRow] = []
    steps = len(options.leaves) * len(options.threads)
    for leaves in options.leaves:
        with running_servers(leaves, options.server) as addresses:
            trial = Trial(addresses, shape_for(len(urls), leaves, options.false_positive), options.latency_s)
            for threads in options.threads:
                on_progress(len(rows), steps, f"c = {leaves}, threads: {threads}")
                rows.append(trial.run(threads, batches, known))
    on_progress(steps, steps, "done")
    setup = RedisSetup(
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

    def run(self, threads: int, batches: Sequence[Batch], known: Sequence[Batch]) -> RedisRow:
        """Add all batches to a new filter with so many threads, then ask for the known ones."""
        name, wires = f"run-{next(self._runs)}", [SimulatedLatency(self._latency_s) for _ in range(threads)]
        with ExitStack() as opened:
            filters = [opened.enter_context(self._open(name, wire)) for wire in wires]
            cpu_s = time.process_time()
            new, new_s = timed([wire.over(one.add) for wire, one in zip(wires, filters, strict=True)], batches)
            cpu_s = time.process_time() - cpu_s
            _, known_s = timed([wire.over(one.unseen) for wire, one in zip(wires, filters, strict=True)], known)
            splits = filters[0].statistics().splits
        urls = sum(map(len, batches))
        return RedisRow(
            leaves=len(self._addresses),
            threads=threads,
            new_per_s=urls / new_s,
            known_per_s=sum(map(len, known)) / known_s,
            client_cores=cpu_s / new_s,
            falsely_known=urls - new,
            splits=splits,
        )

    def _open(self, name: str, wire: SimulatedLatency) -> SharedDsbf:
        return SharedDsbf.open(self._addresses, name=name, parameters=self._shape, on_sent=wire.sent)


class SimulatedLatency:
    """Adds the latency of a network to one thread's calls: `latency_s` for each round trip to any server but the first.

    All servers of a round trip are asked at the same time, so it costs one latency. The wait is after the call, because the
    servers would work during a wait before it.
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
    """A tree with exactly so many first leaves, of the least size that holds so many URLs without a split."""
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
    """Pass the batches to the calls in turns, one thread per call: the number of True answers, and seconds."""
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


#: Of the paper's prose; the figure itself is lost.
PUBLISHED_LEAVES = 3
PUBLISHED_URLS_PER_S = 15_000
#: Checks per second that a crawler of 300 pages/s needs, as the paper says.
NEEDED_PER_S = 2_000

_SATURATED = 0.85  # of a core: near the maximum of one interpreter
_IDLE = 0.5  # of a core: the threads mostly wait
_COLUMNS = (
    "leaves c",
    "threads",
    "new URLs/s",
    "known URLs/s",
    "published URLs/s",
    "new / published",
    "client's cores",
    "falsely known",
    "splits",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisRow:
    """One filter of c leaves on c servers, fed by some threads."""

    leaves: int
    threads: int
    new_per_s: float  #: URLs per second, each added for the first time
    known_per_s: float  #: the same, each added before
    client_cores: float  #: CPU time of all threads per second, while new URLs were added
    falsely_known: int  #: new URLs that were taken for known
    splits: int  #: of leaves, while they were added


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisSetup:
    """The settings that all rows share."""

    urls: int
    known: int  #: URLs of the second pass
    batch: int
    latency_s: float  #: of all servers but the first, simulated; 0: none
    false_positive: float
    cores: int


def report(setup: RedisSetup, rows: Sequence[RedisRow]) -> LabReport:
    """The whole report."""
    return LabReport(
        name="redis", tables=(_table(setup, rows),), panels=(_panel(rows),), closing=tuple(_closing(setup, rows))
    )


def _table(setup: RedisSetup, rows: Sequence[RedisRow]) -> Table:
    wire = f"{setup.latency_s * 1000:g} ms to all servers but one" if setup.latency_s else "loopback without a wire"
    return Table(
        title=f"Figure 9: {setup.urls:,} URLs, c leaves (height 1) on c Redis servers, batches of {setup.batch:,}, {wire}",
        columns=_COLUMNS,
        rows=tuple(_cells(row) for row in rows),
        note=(
            f"New: test-and-set of URLs that no one added before, logged and checked, AOF everysec. Known: the first "
            f"{setup.known:,} of them again. The published figure is the paper's prose for c = {PUBLISHED_LEAVES}, "
            f"several threads; its curves are lost. Its leaves stood on three machines, with 0.35-0.45 ms for a ping; "
            f"here all servers and the threads share {setup.cores} cores."
        ),
    )


def _cells(row: RedisRow) -> tuple[Cell, ...]:
    is_published = row.leaves == PUBLISHED_LEAVES
    return (
        row.leaves,
        row.threads,
        row.new_per_s,
        row.known_per_s,
        f"about {PUBLISHED_URLS_PER_S:,}" if is_published else NOT_RECOVERABLE,
        row.new_per_s / PUBLISHED_URLS_PER_S if is_published else None,
        row.client_cores,
        row.falsely_known,
        row.splits,
    )


def _panel(rows: Sequence[RedisRow]) -> Panel:
    threads = sorted({row.threads for row in rows})
    ends = (float(threads[0]), float(threads[-1]))
    curves = [_curve(leaves, [row for row in rows if row.leaves == leaves]) for leaves in _counts(rows)]
    bounds = ((f"published, c = {PUBLISHED_LEAVES}", PUBLISHED_URLS_PER_S), ("300 pages/s need", NEEDED_PER_S))
    lines = [Curve(label=label, x=ends, y=(float(y), float(y)), is_dashed=True) for label, y in bounds]
    return Panel(
        title="New URLs through a DSBF in Redis",
        x_label="threads",
        y_label="URLs per second",
        curves=(*curves, *lines),
        is_log_x=True,
        is_log_y=True,
    )


def _curve(leaves: int, rows: Sequence[RedisRow]) -> Curve:
    x, y = tuple(float(row.threads) for row in rows), tuple(row.new_per_s for row in rows)
    return Curve(label=f"c = {leaves}", x=x, y=y)


def _counts(rows: Sequence[RedisRow]) -> list[int]:
    """The numbers of leaves, the smallest first."""
    return sorted({row.leaves for row in rows})


def _closing(setup: RedisSetup, rows: Sequence[RedisRow]) -> Iterator[str]:
    yield _need(rows)
    if published := [row for row in rows if row.leaves == PUBLISHED_LEAVES]:
        best = _best(published)
        yield (
            f"c = {PUBLISHED_LEAVES}: {best.new_per_s:,.0f} URLs/s with {_threads(best)}, "
            f"{best.new_per_s / PUBLISHED_URLS_PER_S:.1f} times the published {PUBLISHED_URLS_PER_S:,}."
        )
    yield from _more_leaves(rows)
    yield from _more_threads(rows)
    yield _limit(setup, _best(rows))
    yield (
        f"The wire is simulated: a thread waits {setup.latency_s * 1000:g} ms longer for each round trip that goes beyond the "
        "first server; all servers are asked at once, so it waits once for all of them."
        if setup.latency_s
        else "Loopback has no wire, so this is no match for the paper's three machines: --latency 0.4ms simulates theirs."
    )
    splits, wrong = sum(row.splits for row in rows), max(row.falsely_known for row in rows)
    yield (
        f"At most {wrong:,} of {setup.urls:,} new URLs were falsely taken for known ({wrong / setup.urls:.1e}; "
        f"the bound is {setup.false_positive:g}); leaves split {splits} times."
    )


def _need(rows: Sequence[RedisRow]) -> str:
    slowest = min(rows, key=lambda row: min(row.new_per_s, row.known_per_s))
    speed = min(slowest.new_per_s, slowest.known_per_s)
    need = f"A crawler at 300 pages/s needs at least {NEEDED_PER_S:,} checks/s: "
    where = f"(c = {slowest.leaves}, {_threads(slowest)})"
    if speed < NEEDED_PER_S:
        return f"{need}the slowest row {where} is too slow for it with {speed:,.0f}."
    return f"{need}the slowest row {where} does {speed:,.0f}, {speed / NEEDED_PER_S:.0f} times as many."


def _limit(setup: RedisSetup, fastest: RedisRow) -> str:
    used = fastest.client_cores
    used_words = (
        "The threads share one Python interpreter, which lets one of them hash and pack at a time; in the fastest row "
        f"they took {used:.2f} of {setup.cores} cores"
    )
    if used > _SATURATED:
        return f"{used_words}, so Python is the limit, and more crawlers would do more."
    if used < _IDLE:
        return f"{used_words}, so the limit is {_servers(fastest)}, each of which runs one script at a time, on the same cores."
    return f"{used_words}, the rest was for {_servers(fastest)}."


def _more_leaves(rows: Sequence[RedisRow]) -> Iterator[str]:
    """Whether the speed rises with c, by the best row of each c."""
    best = [_best([row for row in rows if row.leaves == leaves]) for leaves in _counts(rows)]
    if len(best) > 1:
        few, many, highest = best[0], best[-1], _best(best)
        verb = _verb(many.new_per_s / few.new_per_s)
        peak = f", with its peak at c = {highest.leaves}" if highest not in (few, many) else ""
        figures = "; ".join(f"c = {row.leaves}: {row.new_per_s:,.0f}" for row in best)
        yield (
            f"The paper reports that the speed rises with c. Here it {verb} from c = {few.leaves} to c = {many.leaves}{peak} "
            f"(best rows, URLs/s: {figures})."
        )


def _verb(change: float) -> str:
    if change > 1.1:
        return "rises"
    return "falls" if change < 1 / 1.1 else "hardly changes"


def _more_threads(rows: Sequence[RedisRow]) -> Iterator[str]:
    """The effect of more threads, for the largest number of leaves."""
    most = max(row.leaves for row in rows)
    ranked = sorted((row for row in rows if row.leaves == most), key=lambda row: row.threads)
    if len(ranked) > 1:
        fewest, *_, many = ranked
        best = _best(ranked)
        yield (
            f"c = {most}: {fewest.new_per_s:,.0f} URLs/s with {_threads(fewest)}, {many.new_per_s:,.0f} with "
            f"{_threads(many)}; the best are {best.new_per_s:,.0f} with {_threads(best)}."
        )


def _best(rows: Sequence[RedisRow]) -> RedisRow:
    return max(rows, key=lambda row: row.new_per_s)


def _threads(row: RedisRow) -> str:
    return f"{row.threads} thread{'s' * (row.threads > 1)}"


def _servers(row: RedisRow) -> str:
    return f"{row.leaves} server{'s' * (row.leaves > 1)}"
