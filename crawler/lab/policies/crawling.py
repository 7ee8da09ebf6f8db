"""One real crawl, in a process of its own, whose arguments are a folder and a descriptor.

It runs the order `order.toml` of the folder, in the folder `job` there, and says one JSON value a line on the descriptor: a
list for each sample, then an object for the end. Nothing else is said there: standard output is left to what an operator's own
functions print. Its log goes to standard error. It ends at once when its standard input ends, which is when whoever started it
has gone, however that came about.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TextIO

from anabranch.crawler.controller import CrawlController, Outside
from anabranch.crawler.interpreter import tune_interpreter
from anabranch.crawler.jobs.job import JobFolder
from anabranch.crawler.jobs.opening import open_job
from anabranch.crawler.jobs.seeds import read_seeds
from anabranch.crawler.lab.policies.sampling import Sampler
from anabranch.crawler.network.addresses import parse_address
from anabranch.crawler.orders.order import CrawlOrder
from anabranch.crawler.orders.sources import load_order
from anabranch.crawler.outcomes.endings import FORESEEABLE, failure_code
from anabranch.crawler.outcomes.errors import NoSeeds
from anabranch.crawler.outcomes.exits import ExitCode
from anabranch.crawler.reporting.logs import configure_logs
from anabranch.crawler.reporting.progress import CrawlSnapshot
from anabranch.frontier.composition import own_function
from anabranch.frontier.models import QueueKey
from anabranch.frontier.policies.assignment import Assign, parse_policy
from anabranch.frontier.policies.balance import Balance, balance

#: In the folder that it is given.
ORDER_FILE = "order.toml"
JOB_FOLDER = "job"

#: URLs that are assigned at a time when queues are counted.
_BATCH = 1000


def main(arguments: Sequence[str]) -> int:
    """Crawl, and answer the exit code; a foreseeable error is one line on standard error."""
    folder, fd = Path(arguments[0]), int(arguments[1])
    configure_logs(0)
    tune_interpreter()
    with os.fdopen(fd, "w", encoding="ascii", buffering=1) as stream:  # a line at a time
        say = partial(_say, stream)
        try:
            order = load_order(folder / ORDER_FILE, {})
            say(_crawled(order, folder / JOB_FOLDER, say))
        except FORESEEABLE as error:
            print(error, file=sys.stderr)  # noqa: T201 - what the starting process reads
            return failure_code(error)
    return ExitCode.DONE


def _crawled(order: CrawlOrder, directory: Path, say: Callable[[object], None]) -> dict[str, object]:
    """Run the crawl, and say its samples; then how it ended. Raises: CrawlerError, FrontierError."""
    found = read_seeds(order.job.sources, io.BytesIO())
    if not found.seeds:
        raise NoSeeds("no seed is left")
    sampler = Sampler(say)
    outside = Outside(
        say=_nothing, show=_show_nothing, force_exit=lambda: os._exit(ExitCode.FORCED), watch=sampler.watch
    )
    with JobFolder.open(directory) as job:
        code = asyncio.run(_run(CrawlController(order, job, found.seeds, outside)))
        if code is ExitCode.NO_SEED_ANSWERED:
            raise NoSeeds("no seed answered")
        busy, lengths = sampler.busy(), queue_lengths(job.state, order)
    return {"ended_s": sampler.ended_s, "is_drained": sampler.is_drained, "busy": busy, "queue_lengths": lengths}


async def _run(controller: CrawlController) -> ExitCode:
    _end_with(sys.stdin.fileno())
    return await controller.run()


def _end_with(fd: int) -> None:
    """End the process when nobody holds the other end of this descriptor any more."""

    def look() -> None:
        if not os.read(fd, 1024):
            os._exit(ExitCode.FORCED)

    asyncio.get_running_loop().add_reader(fd, look)


def queue_lengths(state: Path, order: CrawlOrder) -> Balance:
    """How many of all URLs that a job has found came to how many queues (blocks). Costs a look at every URL."""
    hosts = order.dns.hosts
    assign = parse_policy(
        order.frontier.policy,
        ip_of=lambda host: parse_address(hosts[host]).host if host in hosts else None,
        imported=own_function,
    )
    with closing(open_job(state, order)) as frontier:
        return balance(_keys(assign, (entry["url"] for entry in map(json.loads, frontier.dump()) if "url" in entry)))


def _keys(assign: Assign, urls: Iterator[str]) -> Iterator[QueueKey]:
    while batch := list(islice(urls, _BATCH)):
        yield from assign(batch)


def _say(stream: TextIO, value: object) -> None:
    stream.write(json.dumps(value) + "\n")


def _nothing(_: str) -> None:
    """The comparison says what there is to say."""


async def _show_nothing(_: Callable[[], CrawlSnapshot]) -> None:
    await asyncio.Event().wait()
