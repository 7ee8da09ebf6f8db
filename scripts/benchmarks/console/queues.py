"""Pages of a million queues: how long they take, and what the looks cost the process that crawls.

The crawl is a Frontier in a job's folder, in a process of its own: it leases, finishes with new links, and answers its control
socket, in virtual time and without a network. A page costs it less than a page of a crawl with a network, so the cost of being
watched weighs more. The process publishes its pages and its CPU time.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import statistics
import time
from collections.abc import Iterator, Mapping, MutableSequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from threading import Event
from typing import Any

from anabranch.crawler.console.jobs import ConsoleJobs
from anabranch.crawler.console.queues import QueueTables
from anabranch.crawler.job.folder import JobFolder
from anabranch.crawler.order.order import CrawlOrder, dump_order
from anabranch.crawler.run.control import Control
from anabranch.crawler.run.verbs import answer
from anabranch.frontier.composition import FrontierOrder
from anabranch.frontier.stores.sql.browse import COPY, GATE_COLUMNS, QUEUE_COLUMNS, PageQuery
from scripts.benchmarks.frontier.filling import VISITS, fill
from scripts.benchmarks.frontier.host import START_S, Host
from scripts.benchmarks.frontier.links import Web
from scripts.benchmarks.frontier.speed import POLITENESS
from scripts.benchmarks.rows import Row, Setting, rounds_row

_ORDER = FrontierOrder(policy="host", politeness=POLITENESS)
_QUEUES = 1_000_000
_REQUESTS = 50
_PAIRS = 9
_PERIOD_S = 4.0
#: Between two looks of a grid that is watched.
_LOOK_S = 0.5
_LATER_S = 1e6
_PAGES_AT_ONCE = 20
_TEXTS = ("", "", "7", "00", "h00", "example", "99.e", "none")
_JOB = "large"


def measured(setting: Setting) -> Iterator[Row]:
    """The pages, the tables, and the crawl with and without looks at it."""
    queues = setting.count(_QUEUES)
    job = setting.folder / "jobs" / _JOB
    with JobFolder.open(job) as folder:
        folder.write_order(dump_order(CrawlOrder.model_validate({"frontier": {"policy": "host"}})))
        fill(folder.state, _ORDER, queues, setting.say, same_host=1)
    with _crawling(job, queues) as figures:
        setting.say("the crawl runs")
        tables = QueueTables(setting.folder / "console", ConsoleJobs(str(setting.folder / "jobs")))
        try:
            yield from _first_look(tables, setting.folder / "console", queues)
            yield from _pages(tables, queues)
            yield from _watched(tables, queues, figures, setting)
        finally:
            tables.close()


def _first_look(tables: QueueTables, folder: Path, queues: int) -> Iterator[Row]:
    began = time.perf_counter()
    tables.queues(_JOB, PageQuery())
    took_s = time.perf_counter() - began
    files = [file for file in folder.rglob("*") if file.is_file()]
    copied = sum(file.stat().st_size for file in files if file.name == COPY)
    yield Row(
        name="queues-first",
        what=f"the first page of {queues:,} queues: the queue is copied and read",
        measured=took_s,
        unit="s",
        note=f"the copy has {copied >> 20} MiB",
    )
    yield Row(
        name="queues-disk",
        what="the tables, without the copy, a queue",
        measured=(sum(file.stat().st_size for file in files) - copied) / queues,
        unit="bytes",
    )


def _pages(tables: QueueTables, queues: int) -> Iterator[Row]:
    dice, times = random.Random(1), []
    for number in range(_REQUESTS):
        columns = GATE_COLUMNS if number % 2 else QUEUE_COLUMNS
        query = PageQuery(
            sort=dice.choice(("key", "state", *columns)),
            descending=dice.random() < 0.5,
            text=dice.choice(_TEXTS),
            states=() if number % 2 or dice.random() < 0.5 else ("inactive", "ready", "in-flight"),
            least_urls=dice.choice((0, 0, 2)),
            offset=dice.randrange(queues),
        )
        began = time.perf_counter()
        if number % 2:
            tables.gates(_JOB, query)
        else:
            tables.queues(_JOB, query)
        times.append(1000 * (time.perf_counter() - began))
    what = f"{_REQUESTS} pages of {queues:,} queues and hosts, any sort, filter and place"
    yield Row(name="queues-page-p50", what=what, measured=statistics.median(times), unit="ms")
    p95 = statistics.quantiles(times, n=20)[-1]
    note = f"the longest took {max(times):.0f} ms"
    yield Row(name="queues-page-p95", what=what, measured=p95, unit="ms", target=500.0, is_bound=True, note=note)


def _watched(tables: QueueTables, queues: int, figures: MutableSequence[float], setting: Setting) -> Iterator[Row]:
    ratios, (_, cpu_s, answers_s) = [], figures
    for number in range(2 if setting.is_quick else _PAIRS):
        first_is_watched = number % 2 == 1
        costs = {
            is_watched: _looked_at(tables, queues, figures) if is_watched else _per_page(figures, _PERIOD_S)
            for is_watched in (first_is_watched, not first_is_watched)
        }
        ratios.append(costs[True] / costs[False])
    answers = (figures[2] - answers_s) / (figures[1] - cpu_s)
    yield rounds_row(
        "queues-watched-x",
        "CPU of the crawl a page, watched over unwatched",
        ratios,
        "x",
        target=1.02,
        is_bound=True,
        note=f"answers to the console took {answers:.2%} of its CPU time",
    )


def _looked_at(tables: QueueTables, queues: int, figures: MutableSequence[float]) -> float:
    """Seconds of CPU a page while somebody scrolls."""
    pages, cpu_s, _ = figures
    until_s, place = time.monotonic() + _PERIOD_S, 0
    while time.monotonic() < until_s:
        place = (place + queues // 7) % queues
        tables.queues(_JOB, PageQuery(sort="urls", descending=True, text="7", offset=place))
        Event().wait(_LOOK_S)
    return (figures[1] - cpu_s) / (figures[0] - pages)


def _per_page(figures: MutableSequence[float], period_s: float) -> float:
    pages, cpu_s, _ = figures
    Event().wait(period_s)
    return (figures[1] - cpu_s) / (figures[0] - pages)


# The crawl


@contextmanager
def _crawling(job: Path, queues: int) -> Iterator[MutableSequence[float]]:
    """Pages, seconds of CPU, and those for answers, of a process that crawls the job while the block runs."""
    context = multiprocessing.get_context("spawn")
    figures: Any = context.Array("d", 3, lock=False)
    ready = context.Event()
    process = context.Process(target=_crawl, args=(job, queues, figures, ready))
    process.start()
    try:
        while not ready.wait(1.0):
            if not process.is_alive():
                raise RuntimeError("the crawl ended at once")
        yield figures
    finally:
        process.kill()
        process.join()


def _crawl(job: Path, queues: int, figures: MutableSequence[float], ready: Any) -> None:
    asyncio.run(_crawl_for_ever(job, queues, figures, ready))


async def _crawl_for_ever(job: Path, queues: int, figures: MutableSequence[float], ready: Any) -> None:
    with JobFolder.open(job) as folder, Host(folder.state, _ORDER, queues, START_S + _LATER_S) as host:

        async def answered(verb: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
            began_s = time.process_time()
            facts = answer(host.frontier, verb, arguments)
            figures[2] += time.process_time() - began_s
            return facts

        pages = Web(queues).pages(range(VISITS * queues, 1 << 40), VISITS * queues)
        async with Control(folder.state, answered):
            host.fetch_pages(islice(pages, 1000))
            figures[1] = time.process_time()
            ready.set()
            while True:
                host.fetch_pages(islice(pages, _PAGES_AT_ONCE))
                figures[0] += _PAGES_AT_ONCE
                figures[1] = time.process_time()
                await asyncio.sleep(0)
