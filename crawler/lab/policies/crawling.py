"""One real crawl, in a separate process, which reports a sample each second.

`compare.py` starts the process with two arguments: a folder and a descriptor. The process runs the order `order.toml` of the
folder, in the folder `job` there, and writes one JSON value a line to the descriptor: a list for each sample, then an object
for the end. Standard output is for user functions; the log goes to standard error. The process ends at once
when its standard input ends, which happens when the parent process ends in any way.
"""

from __future__ import annotations

import asyncio
import io
import json
import math
import os
import resource
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import TextIO

from anabranch.crawler.fetch.addresses import parse_address
from anabranch.crawler.job.folder import JobFolder
from anabranch.crawler.job.frontier import open_job
from anabranch.crawler.job.seeds import read_seeds
from anabranch.crawler.lab.policies.series import Balance, Busy, Sample, balance
from anabranch.crawler.order.loading import load_order
from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.outcomes.endings import FORESEEABLE, failure_code
from anabranch.crawler.outcomes.errors import ExitCode, NoSeeds
from anabranch.crawler.report.logs import configure_logs
from anabranch.crawler.report.statistics import CrawlStatistics
from anabranch.crawler.run.controller import CrawlController
from anabranch.crawler.run.membership import Surroundings
from anabranch.crawler.runtime import tune_interpreter
from anabranch.frontier import AsyncFrontier, QueueState
from anabranch.frontier.composition import user_function
from anabranch.frontier.inspect.statistics import FrontierStatistics
from anabranch.frontier.policies.assignment import Assign, parse_policy
from anabranch.frontier.records import QueueKey

#: In the folder that it is given.
ORDER_FILE = "order.toml"
JOB_FOLDER = "job"

#: URLs that are assigned at a time when queues are counted.
_BATCH = 1000


def main(arguments: Sequence[str]) -> int:
    """Crawl, and return the exit code; an expected error is one line on standard error."""
    folder, fd = Path(arguments[0]), int(arguments[1])
    configure_logs(0)
    tune_interpreter()
    with os.fdopen(fd, "w", encoding="ascii", buffering=1) as stream:  # a line at a time
        say = partial(_say, stream)
        try:
            order = load_order(folder / ORDER_FILE, {})
            say(_crawled(order, folder / JOB_FOLDER, say))
        except FORESEEABLE as error:
            print(error, file=sys.stderr)  # noqa: T201 - for the parent process
            return failure_code(error)
    return ExitCode.DONE


def _crawled(order: CrawlOrder, directory: Path, say: Callable[[object], None]) -> dict[str, object]:
    """Run the crawl, which reports its samples; returns its end. Raises: CrawlerError, FrontierError."""
    found = read_seeds(order.job.sources, io.BytesIO())
    if not found.seeds:
        raise NoSeeds("no seed is left")
    sampler = Sampler(say)
    with JobFolder.open(directory) as job:
        code = asyncio.run(_run(CrawlController(order, job, found.seeds, sampler)))
        if code is ExitCode.NO_SEED_ANSWERED:
            raise NoSeeds("no seed answered")
        busy, lengths = sampler.busy(), queue_lengths(job.state, order)
    return {"ended_s": sampler.ended_s, "is_drained": sampler.is_drained, "busy": busy, "queue_lengths": lengths}


async def _run(controller: CrawlController) -> ExitCode:
    _end_with(sys.stdin.fileno())
    return await controller.run()


def _end_with(fd: int) -> None:
    """End the process when the other end of this descriptor is closed."""

    def look() -> None:
        if not os.read(fd, 1024):
            os._exit(ExitCode.FORCED)

    asyncio.get_running_loop().add_reader(fd, look)


def queue_lengths(state: Path, order: CrawlOrder) -> Balance:
    """The numbers of all found URLs of a job, and of their queues (blocks). Reads every URL."""
    hosts = order.dns.hosts
    assign = parse_policy(
        order.frontier.policy,
        ip_of=lambda host: parse_address(hosts[host]).host if host in hosts else None,
        imported=user_function,
    )
    with closing(open_job(state, order)) as frontier:
        return balance(
            _keys(assign, (entry["url"] for entry in map(json.loads, frontier.operations.dump()) if "url" in entry))
        )


def _keys(assign: Assign, urls: Iterator[str]) -> Iterator[QueueKey]:
    while batch := list(islice(urls, _BATCH)):
        yield from assign(batch)


def _say(stream: TextIO, value: object) -> None:
    stream.write(json.dumps(value) + "\n")


#: Between two samples.
EACH_S = 1.0
#: Between two looks at how many workers are active: a sample has their mean and their most.
LOOK_S = 0.05


class Sampler(Surroundings):
    """The samples of one crawl, the first when its workers start, the last when they have ended.

    A thread reads workers, URLs and bytes, because the event loop may be a second late with a thousand busy workers: the active
    workers each `LOOK_S`, the rest each second. The queues' states are requested from the Frontier once a second, and are the
    latest known ones. A look costs 2 ms of CPU time with 900 queues in flight (measured), 0.2 % of a core.
    """

    def __init__(self, on_sample: Callable[[Sample], None], clock: Callable[[], float] = monotonic) -> None:
        self.ended_s = 0.0  #: when the workers ended
        self.is_drained = False  #: nothing was left for them
        self._on_sample = on_sample
        self._clock = clock
        self._start_s: float | None = None
        self._cpu_s = 0.0  #: that the process had used at the start
        self._lag_s = 0.0
        self._waited_s = 0.0  # as `_waited_s` says, at the start
        self._queues = (0, 0, 0)  #: ready, parked, snoozed
        self._looked_s, self._held_s, self._peak = (
            0.0,
            0.0,
            0,
        )  # workers: time of the last look, and values of the next sample

    def force_exit(self) -> None:
        """End the process; the comparison knows what that means."""
        os._exit(ExitCode.FORCED)

    async def watch(self, frontier: AsyncFrontier, statistics: CrawlStatistics) -> None:
        """Sample each second until cancelled. A second call continues."""
        if self._start_s is None:
            self._start_s, self._cpu_s = self._clock(), _cpu_s()
            self._waited_s = _waited_s()
        try:
            self._queues = _queues_of(await frontier.statistics())
            with self._sampling(statistics):
                while True:
                    await self._until_next()
                    self._queues = _queues_of(await frontier.statistics())
        finally:
            self._look(statistics)
            self.ended_s, self.is_drained = self._looked_s, frontier.core.is_done
            if self.is_drained:
                self._queues = (0, 0, 0)
            self._say(statistics)

    def busy(self) -> Busy:
        """How busy the process was since the first sample, and how late its event loop was at worst when a second began."""
        elapsed_s = self._now_s()
        if elapsed_s <= 0:
            return Busy(0.0, self._lag_s)
        return Busy(
            share=(_cpu_s() - self._cpu_s) / elapsed_s,
            longest_lag_s=self._lag_s,
            waited=(_waited_s() - self._waited_s) / elapsed_s,
        )

    def _now_s(self) -> float:
        return 0.0 if self._start_s is None else self._clock() - self._start_s

    def _look(self, counts: CrawlStatistics) -> None:
        """Count the present number of active workers for the time since the last look."""
        now_s, active = self._now_s(), counts.active
        self._held_s += active * (now_s - self._looked_s)
        self._looked_s, self._peak = now_s, max(self._peak, active)

    def _say(self, counts: CrawlStatistics) -> None:
        """Report a sample of the last look."""
        urls, peak = counts.pages + counts.failed + counts.excluded, self._peak
        self._peak = 0
        self._on_sample(Sample(self._looked_s, self._held_s, peak, *self._queues, urls, counts.fetched_bytes))

    @contextmanager
    def _sampling(self, counts: CrawlStatistics) -> Iterator[None]:
        """While inside, a thread samples."""
        is_over = threading.Event()

        def sample() -> None:
            self._look(counts)
            self._say(counts)
            due_s = self._next_s()
            while not is_over.wait(min(LOOK_S, due_s - self._now_s())):
                self._look(counts)
                if self._looked_s >= due_s:
                    self._say(counts)
                    due_s = self._next_s()

        thread = threading.Thread(target=sample, name="sampling")
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    def _next_s(self) -> float:
        """The next whole second."""
        return (math.floor(self._now_s() / EACH_S) + 1) * EACH_S

    async def _until_next(self) -> None:
        due_s = self._next_s()
        await asyncio.sleep(due_s - self._now_s())
        self._lag_s = max(self._lag_s, self._now_s() - due_s)


def _queues_of(looked: FrontierStatistics) -> tuple[int, int, int]:
    return looked.queues[QueueState.READY.value], looked.parked, looked.queues[QueueState.SNOOZED.value]


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _waited_s() -> float:
    """How long the main thread was runnable but waited for the processor; 0 where the kernel does not report it.

    Source: Documentation/scheduler/sched-stats.rst of Linux, `/proc/<pid>/schedstat`.
    """
    file = Path("/proc/self/schedstat")
    return int(file.read_text().split()[1]) / 1e9 if file.exists() else 0.0
