"""Figure 9 of the DSBF paper (2016): URLs per second through a DSBF with c leaves on c Redis servers.

`redis_servers.py` starts the servers and ends them afterwards. Each of several threads has its own connections and adds the
URLs in batches, as crawlers that share a filter do; then all threads look up known URLs. The pairs of c and threads take turns:
each round adds another part of the URLs to the filter of every pair, in the reverse order of the round before, so that a
machine that changes its speed does so for all of them.

The paper's leaves are on three machines, one of them the crawler's; here `latency_s` makes a thread wait as long as a network
would, for all servers but the first. Clients and servers share this machine's cores, so the CPU time of both is measured, too.
The first half measures (`run`), the second makes the report.
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
from statistics import median
from typing import NamedTuple, TypeAlias

import numpy as np

from anabranch.crawler.lab.filters.redis_servers import RedisServer
from anabranch.crawler.lab.report import (
    LEAST_ROUNDS,
    NOT_RECOVERABLE,
    Cell,
    Curve,
    LabReport,
    OnProgress,
    Panel,
    Ratio,
    Table,
    in_turns,
    interval,
    ratio_of,
)
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
    rounds = min(ROUNDS, len(batches))
    edges = [len(batches) * number // rounds for number in range(rounds + 1)]
    pairs = [(leaves, threads) for leaves in options.leaves for threads in options.threads]
    with running_servers(max(options.leaves), options.server) as servers:
        trials = [
            Trial(servers[:leaves], shape_for(len(urls), leaves, options.false_positive), threads, options.latency_s)
            for leaves, threads in pairs
        ]
        steps = rounds * len(trials)
        for step, (number, trial) in enumerate(in_turns(trials, rounds)):
            on_progress(step, steps, f"round {number + 1} of {rounds}, {trial.words}")
            trial.run(batches[edges[number] : edges[number + 1]])
        on_progress(steps, steps, "done")
        rows = [trial.row() for trial in trials]
    setup = RedisSetup(
        urls=len(urls),
        known=sum(row.known for row in rows) // len(rows),
        batch=options.batch,
        latency_s=options.latency_s,
        false_positive=options.false_positive,
        cores=os.cpu_count() or 1,
    )
    return report(setup, rows)


#: Rounds, each with another part of the URLs.
ROUNDS = LEAST_ROUNDS
_names = count()


class Trial:
    """A filter on some servers, to which so many threads add URLs round by round."""

    def __init__(self, servers: Sequence[RedisServer], shape: DsbfParameters, threads: int, latency_s: float) -> None:
        self._servers = servers
        self._shape = shape
        self._threads = threads
        self._latency_s = latency_s
        self._name = f"run-{next(_names)}"
        self._rounds: list[RedisRound] = []
        self._splits = 0

    @property
    def words(self) -> str:
        """The pair, for progress."""
        return f"c = {len(self._servers)}, threads: {self._threads}"

    def run(self, batches: Sequence[Batch]) -> None:
        """Add the batches, none of which was added before; then ask for the first ones again."""
        wires = [SimulatedLatency(self._latency_s) for _ in range(self._threads)]
        known = batches[: -(-len(batches) // _KNOWN_SHARE)]
        with ExitStack() as opened:
            filters = [opened.enter_context(self._open(wire)) for wire in wires]
            client_s, servers_s, busy_s = time.process_time(), self._servers_s(), _busy_s()
            new, new_s = timed([wire.over(one.add) for wire, one in zip(wires, filters, strict=True)], batches)
            client_s, servers_s = time.process_time() - client_s, self._servers_s() - servers_s
            busy_s = _busy_s() - busy_s
            _, known_s = timed([wire.over(one.unseen) for wire, one in zip(wires, filters, strict=True)], known)
            self._splits = filters[0].statistics().splits
        self._rounds.append(
            RedisRound(
                urls=sum(map(len, batches)),
                new=new,
                new_s=new_s,
                known=sum(map(len, known)),
                known_s=known_s,
                client_s=client_s,
                servers_s=servers_s,
                others_s=max(0.0, busy_s - client_s - servers_s),
            )
        )

    def row(self) -> RedisRow:
        """All rounds together."""
        return RedisRow(
            leaves=len(self._servers), threads=self._threads, rounds=tuple(self._rounds), splits=self._splits
        )

    def _servers_s(self) -> float:
        return sum(server.cpu_s() for server in self._servers)

    def _open(self, wire: SimulatedLatency) -> SharedDsbf:
        addresses = [server.url for server in self._servers]
        return SharedDsbf.open(addresses, name=self._name, parameters=self._shape, on_sent=wire.sent)


def _busy_s() -> float:
    """CPU time of all programs of the machine so far; 0 where the kernel does not show it (not Linux)."""
    stat = Path("/proc/stat")
    if not stat.exists():
        return 0.0
    user, nice, system, _idle, _wait, *interrupts = map(
        int, stat.read_text(encoding="utf-8").split("\n")[0].split()[1:8]
    )
    return (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")


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
def running_servers(number: int, program: Path | None) -> Iterator[list[RedisServer]]:
    """So many servers with new, empty data."""
    with tempfile.TemporaryDirectory(prefix="anabranch-lab-") as folder, ExitStack() as running:
        yield [
            running.enter_context(RedisServer(Path(folder, str(place)), program=program, append_only=True))
            for place in range(number)
        ]


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

#: Other programs that took more than this part of the machine shared it.
_SHARED = 0.2
_SATURATED = 0.85  # of a core: near the maximum of one interpreter
_COLUMNS = (
    "leaves c",
    "threads",
    "new URLs/s",
    "95 %",
    "known URLs/s",
    "published URLs/s",
    "client µs a URL",
    "servers µs a URL",
    "client's cores",
    "falsely known",
    "splits",
)


class RedisRound(NamedTuple):
    """A part of the URLs through one filter."""

    urls: int
    new: int  #: that were taken for new
    new_s: float  #: to add them
    known: int  #: URLs that were asked for again
    known_s: float
    client_s: float  #: CPU time of all threads, while URLs were added
    servers_s: float  #: CPU time of all servers, in the same time
    others_s: float = 0.0  #: CPU time of all other programs of the machine, in the same time


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisRow:
    """One filter of c leaves on c servers, fed by some threads."""

    leaves: int
    threads: int
    rounds: tuple[RedisRound, ...]
    splits: int  #: of leaves, while URLs were added

    @property
    def news_per_s(self) -> list[float]:
        """URLs per second of each round, each added for the first time."""
        return [each.urls / each.new_s for each in self.rounds]

    @property
    def new_per_s(self) -> float:
        """The median of `news_per_s`."""
        return median(self.news_per_s)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of `new_per_s`; None of few rounds."""
        return interval(self.news_per_s) if len(self.rounds) >= LEAST_ROUNDS else None

    @property
    def knowns_per_s(self) -> list[float]:
        """URLs per second of each round, of those that were added before."""
        return [each.known / each.known_s for each in self.rounds]

    @property
    def known_per_s(self) -> float:
        """The median of `knowns_per_s`."""
        return median(self.knowns_per_s)

    @property
    def known(self) -> int:
        """URLs that were asked for again."""
        return sum(each.known for each in self.rounds)

    @property
    def client_us(self) -> float:
        """CPU time of the client for a new URL."""
        return 1e6 * median(each.client_s / each.urls for each in self.rounds)

    @property
    def servers_us(self) -> float:
        """CPU time of all servers for a new URL; the kernel counts it in ticks, so that it is of all rounds together."""
        return 1e6 * sum(each.servers_s for each in self.rounds) / sum(each.urls for each in self.rounds)

    @property
    def client_cores(self) -> float:
        """CPU time of all threads per second, while new URLs were added."""
        return median(each.client_s / each.new_s for each in self.rounds)

    @property
    def server_cores(self) -> float:
        """CPU time of all servers per second, while new URLs were added."""
        return sum(each.servers_s for each in self.rounds) / sum(each.new_s for each in self.rounds)

    @property
    def other_cores(self) -> float:
        """CPU time of all other programs per second, while new URLs were added."""
        return sum(each.others_s for each in self.rounds) / sum(each.new_s for each in self.rounds)

    @property
    def falsely_known(self) -> int:
        """New URLs that were taken for known."""
        return sum(each.urls - each.new for each in self.rounds)


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
            f"New: test-and-set of URLs that no one added before, logged and checked, AOF everysec; the median of "
            f"{len(rows[0].rounds)} rounds, each with another part of the URLs, in which all rows took turns, and its 95 % "
            f"interval (bootstrap). Known: {setup.known:,} of them again. Client and servers: their CPU time. The published "
            f"figure is the paper's prose for c = {PUBLISHED_LEAVES}, several threads; its curves are lost. Its leaves were on "
            f"three machines, with 0.35-0.45 ms for a ping; here all servers and the threads share {setup.cores} cores."
        ),
    )


def _cells(row: RedisRow) -> tuple[Cell, ...]:
    is_published = row.leaves == PUBLISHED_LEAVES
    return (
        row.leaves,
        row.threads,
        row.new_per_s,
        "" if row.interval is None else " to ".join(f"{end:,.0f}" for end in row.interval),
        row.known_per_s,
        f"about {PUBLISHED_URLS_PER_S:,}" if is_published else NOT_RECOVERABLE,
        row.client_us,
        row.servers_us,
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
            f"c = {PUBLISHED_LEAVES}: {best.new_per_s:,.0f} URLs/s with {_threads(best)}{_spread(best)}, beside the published "
            f"{PUBLISHED_URLS_PER_S:,}. That is no factor: the paper had three machines with a wire, here threads and servers "
            f"share {setup.cores} cores."
        )
    others = median(row.other_cores for row in rows)
    if others > _SHARED * setup.cores:
        yield (
            f"Other programs took {others:.1f} of {setup.cores} cores, and more servers get a larger part of the rest. So "
            "there is no verdict on c and threads; the CPU time of a URL is what counts here."
        )
    else:
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
    """The sentence about what keeps the fastest row from being faster: cores that are all in use, or Python."""
    used, its = fastest.client_cores, fastest.server_cores
    used_words = (
        f"In the fastest row the threads took {used:.2f} of {setup.cores} cores ({fastest.client_us:.2g} µs a URL), "
        f"{_servers(fastest)} {its:.2f} ({fastest.servers_us:.2g} µs)"
    )
    if used > _SATURATED:
        return (
            f"{used_words}: the threads share one Python interpreter, which is the limit; more crawlers would do more."
        )
    if used + its > _SATURATED * setup.cores:
        return f"{used_words}: all cores are in use, and machines of their own would do more."
    if its > _SATURATED * fastest.leaves:
        return f"{used_words}: the servers, each of which runs one script at a time, are the limit."
    return f"{used_words}; the rest of the time they waited, for each other, the wire or other programs."


def _more_leaves(rows: Sequence[RedisRow]) -> Iterator[str]:
    """Whether the speed rises with c, over all numbers of threads together."""
    counts = _counts(rows)
    if len(counts) < 2:
        return
    speeds = {leaves: _together([row for row in rows if row.leaves == leaves]) for leaves in counts}
    few, many = counts[0], counts[-1]
    change = ratio_of(speeds[many], speeds[few])
    figures = "; ".join(f"c = {leaves}: {median(each):,.0f}" for leaves, each in speeds.items())
    yield (
        f"The paper reports that the speed rises with c. Here it {_verb(change)} from c = {few} to c = {many}: "
        f"times {change} (URLs/s over all threads: {figures})."
    )


def _together(rows: Sequence[RedisRow]) -> list[float]:
    """URLs per second in each round, of rows of one c."""
    rounds = zip(*(row.rounds for row in rows), strict=True)
    return [sum(each.urls for each in parts) / sum(each.new_s for each in parts) for parts in rounds]


def _verb(change: Ratio) -> str:
    if change.is_above():
        return "rises"
    return "falls" if change.is_below() else "shows no difference"


def _more_threads(rows: Sequence[RedisRow]) -> Iterator[str]:
    """The effect of more threads, for the largest number of leaves."""
    most = max(row.leaves for row in rows)
    ranked = sorted((row for row in rows if row.leaves == most), key=lambda row: row.threads)
    if len(ranked) > 1:
        fewest, *_, many = ranked
        best = _best(ranked)
        yield (
            f"c = {most}: {fewest.new_per_s:,.0f} URLs/s with {_threads(fewest)}, {many.new_per_s:,.0f} with "
            f"{_threads(many)}{_differ(many, fewest)}; the highest median is {best.new_per_s:,.0f} with {_threads(best)}."
        )


def _differ(many: RedisRow, fewest: RedisRow) -> str:
    """The ratio of the two by rounds."""
    change = ratio_of(many.news_per_s, fewest.news_per_s)
    return f", times {change}" if change.is_above() or change.is_below() else ", no difference shown"


def _best(rows: Sequence[RedisRow]) -> RedisRow:
    return max(rows, key=lambda row: row.new_per_s)


def _spread(row: RedisRow) -> str:
    """The interval, in brackets."""
    return "" if row.interval is None else f" (95 %: {row.interval[0]:,.0f} to {row.interval[1]:,.0f})"


def _threads(row: RedisRow) -> str:
    return f"{row.threads} thread{'s' * (row.threads > 1)}"


def _servers(row: RedisRow) -> str:
    return f"{row.leaves} server{'s' * (row.leaves > 1)}"
