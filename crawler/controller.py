"""One run of a crawl: builds the parts, starts the workers, ends them, reports.

    open the job → open the Frontier → seeds → workers … → drain → close the Frontier → reports

The order of the ending is fixed: stop leasing, let fetches under way end (at most the fetch time-out), give the other leases
back, close the journal, close the Frontier, write the reports. Only this file creates long-lived tasks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from crawler.chain import Processor
from crawler.extracting.dispatch import Extractor
from crawler.extracting.sandbox import Sandbox
from crawler.fetching.bodies import Scratch
from crawler.fetching.fetcher import Fetcher
from crawler.jobs.job import JobFolder
from crawler.jobs.journal import Journal, LineFile
from crawler.jobs.opening import SEED_BOOK, open_job
from crawler.jobs.seeding import Seeding
from crawler.jobs.seeds import Seed, SeedBook
from crawler.network.descriptors import idle_connections, raise_file_limit
from crawler.network.dns import Resolver
from crawler.operating.control import Control
from crawler.operating.course import Course
from crawler.operating.crawl_verbs import CrawlVerbs
from crawler.operating.limits import DiskWatch, Limits
from crawler.operating.signals import heeded
from crawler.operating.status import Status
from crawler.orders.fetch import fetch_options, site_of
from crawler.orders.order import CrawlOrder, dump_order
from crawler.outcomes.endings import ASKED_FOR, FORESEEABLE, WhyEnded, exit_code, first_of
from crawler.outcomes.errors import storage_errors
from crawler.outcomes.exits import ExitCode
from crawler.processors.candidates import Candidates
from crawler.processors.disposition import Disposition
from crawler.processors.naming import NamePrecondition
from crawler.processors.page import ExtractPage, FetchPage
from crawler.processors.preconditions import NoRobots, RobotsOptions, RobotsPrecondition
from crawler.reporting.progress import CrawlSnapshot
from crawler.reporting.reports import SEEDS_REPORT, RunFacts, crawl_report, opening_line, seeds_shown, write_reports
from crawler.reporting.statistics import CrawlStatistics
from crawler.scope.opening import open_scope
from crawler.workers import WorkerPool
from frontier.aio import AsyncFrontier
from frontier.clocks import steady_clock
from frontier.core import Frontier


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """What the controller needs of the outside: where to say things, and how to show progress."""

    say: Callable[[str], None]  #: a line (or lines) to the operator
    show: Callable[[Callable[[], CrawlSnapshot]], Coroutine[Any, Any, None]]  #: display progress until cancelled
    force_exit: Callable[[], None]  #: leave at once


class CrawlController:
    """Runs one crawl of one job, once."""

    def __init__(self, order: CrawlOrder, job: JobFolder, seeds: Sequence[Seed], outside: Outside) -> None:
        self._order = order
        self._job = job
        self._seeds = seeds
        self._outside = outside
        self._clock = steady_clock()
        self._statistics = CrawlStatistics(started_s=self._clock())
        self._course = Course(outside.say)
        self._limits = Limits(order.limits, self._course, self._statistics)
        self._disk = DiskWatch([job.directory], order.limits.min_free_disk_bytes, self._course)
        self._status = Status(self._course, self._statistics, self._disk, order.crawl.workers, self._clock)
        self._is_signalled = False

    async def run(self) -> ExitCode:
        """Crawl until nothing is left, a limit is reached or a signal comes; then report.

        Raises: CrawlerError and FrontierError (store, job, disk); the job stays resumable.
        """
        with heeded(self._signalled, self._status.log):
            facts = await self._run_parts()
            with storage_errors(self._job.reports):
                write_reports(self._job.reports, facts)
        self._outside.say(crawl_report(facts) + seeds_shown(facts.seeds, self._job.reports / SEEDS_REPORT))
        return exit_code(self._course.ending, facts.seeds)

    def stop(self, ending: WhyEnded) -> None:
        """End the crawl in order; the first reason counts."""
        self._course.stop(ending)

    async def _run_parts(self) -> RunFacts:
        """Open every part, crawl, close every part in the opposite order."""
        order = self._order
        async with AsyncExitStack() as parts:
            book = SeedBook(self._job.state / SEED_BOOK)
            parts.callback(book.close)
            resolver = resolver_of(order, self._clock)
            parts.push_async_callback(resolver.close)
            frontier = await parts.enter_async_context(AsyncFrontier(partial(self._open_frontier, resolver)))
            journal = Journal(LineFile(self._job.crawl_log, "crawl_log"), LineFile(self._job.pages, "pages"))
            parts.push_async_callback(journal.close)
            fetcher = Fetcher(
                fetch_options(order.fetch, order.agent.user_agent),
                resolver=resolver,
                scratch=Scratch(self._job.state),
                clock=self._clock,
                sites=map(site_of, order.site),
                max_idle=idle_connections(raise_file_limit(), order.crawl.workers),
            )
            parts.push_async_callback(fetcher.close)
            sandbox = Sandbox()
            parts.push_async_callback(sandbox.close)
            extract = Extractor(order.extract.options(robot=order.agent.product), sandbox)
            scope = open_scope(order.scope)
            seeding = Seeding(book, scope, frontier)
            steps = (FetchPage(fetcher.get), ExtractPage(extract), Candidates(scope, seeding.redirected))
            pool = self._pool(frontier, journal, fetcher, resolver, steps)
            self._status.look_at(frontier.core)
            verbs = CrawlVerbs(self._course, frontier, seeding, self._status.facts)
            async with Control(self._job.state, verbs.answer):
                await seeding.begin(self._seeds)
                self._outside.say(opening_line(self._job, frontier.core.counts()))
                await self._disk.look()
                await self._limits.count_earlier(self._job.crawl_log)
                self._course.steer(frontier)
                await self._crawl(frontier, pool)
            await self._crawl(frontier, pool)  # what was added in the last moment; nobody adds any more
            await frontier.flush()
            self._note_end(frontier.core)
            return await self._facts(frontier, seeding)

    def _open_frontier(self, resolver: Resolver, on_change: Callable[[], None]) -> Frontier:
        frontier = open_job(
            self._job.state, self._order, clock=self._clock, ip_of=resolver.known_address, on_change=on_change
        )
        try:
            self._job.write_order(dump_order(self._order))  # only now: the job may have refused the order
        except BaseException:
            frontier.close()
            raise
        return frontier

    def _pool(
        self,
        frontier: AsyncFrontier,
        journal: Journal,
        fetcher: Fetcher,
        resolver: Resolver,
        steps: Sequence[Processor],
    ) -> WorkerPool:
        order = self._order
        dispose = Disposition(frontier, journal, self._statistics, self._clock)
        robots = RobotsPrecondition(
            fetcher,
            robots_options(order),
            clock=self._clock,
            set_delay=frontier.set_delay,
            note=dispose.note_robots,
        )
        first = robots if order.robots.robots == "obey" else NoRobots(frontier.set_delay)
        named = NamePrecondition(resolver, dispose.note_lookup)
        chain: tuple[Processor, ...] = (named, first, *steps)
        limit = self._limits.pages(frontier.core.counts().done)
        return WorkerPool(frontier, chain, self._limits.counting(dispose), self._statistics, limit)

    async def _crawl(self, frontier: AsyncFrontier, pool: WorkerPool) -> None:
        """Let workers work until nothing is left or the run is stopped."""
        with self._limits.clock():
            while not frontier.core.is_done and not self._course.stopped.is_set():
                await self._work(frontier, pool)

    async def _work(self, frontier: AsyncFrontier, pool: WorkerPool) -> None:
        """Run the workers until they end by themselves or are stopped."""
        try:
            async with asyncio.TaskGroup() as group:
                workers = [
                    group.create_task(pool.work(number), name=f"worker-{number}")
                    for number in range(1, self._order.crawl.workers + 1)
                ]
                beside = [
                    group.create_task(self._outside.show(self._status.snapshot)),
                    group.create_task(self._disk.watch(), name="disk"),
                ]
                await self._until_ended(workers, frontier, pool)
                for task in beside:
                    task.cancel()
        except ExceptionGroup as failures:
            # Not `except*`: Python 3.11.2 (Debian 12) wraps what is raised in it in a group again.
            expected, defects = failures.split(FORESEEABLE)
            if expected is None or defects is not None:
                raise
            raise first_of(expected) from failures

    async def _until_ended(
        self, workers: Sequence[asyncio.Task[None]], frontier: AsyncFrontier, pool: WorkerPool
    ) -> None:
        """Return when the workers have ended; those that a stop finds at work have the time of a fetch for it, or none."""
        stopped, hurried = (asyncio.create_task(event.wait()) for event in (self._course.stopped, self._course.hurried))
        ended = asyncio.create_task(all_done(workers))
        try:
            await asyncio.wait({stopped, ended}, return_when=asyncio.FIRST_COMPLETED)
            if ended.done():
                return
            frontier.stop_leasing()
            pool.wake_all(len(workers))
            patience_s = self._order.fetch.timeout_s
            await asyncio.wait({hurried, ended}, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
            for worker in workers:
                worker.cancel()
        finally:
            for task in (stopped, hurried, ended):
                task.cancel()

    def _note_end(self, frontier: Frontier) -> None:
        """A job with nothing left is finished, even if a limit was reached with its last page; retired queues are left."""
        if not frontier.is_done:
            return
        is_empty = not frontier.counts().retired
        if is_empty:
            self._job.mark_finished()
        if self._course.ending not in ASKED_FOR:
            self._course.ending = WhyEnded.FINISHED if is_empty else WhyEnded.RETIRED

    def _signalled(self) -> None:
        if self._is_signalled:
            self._outside.force_exit()
        self._is_signalled = True
        self.stop(WhyEnded.SIGNAL)
        self._outside.say("draining: fetches under way may end; a second signal leaves at once")

    async def _facts(self, frontier: AsyncFrontier, seeding: Seeding) -> RunFacts:
        return RunFacts(
            job=str(self._job.directory),
            ended=self._course.ending.value,
            elapsed_s=self._clock() - self._statistics.started_s,
            seeds=await seeding.facts(self._statistics),
            run=self._statistics,
            frontier=await frontier.statistics(),
        )


def resolver_of(order: CrawlOrder, clock: Callable[[], float]) -> Resolver:
    """The resolver that the order's [dns] asks for."""
    dns = order.dns
    return Resolver(
        dns.servers,
        dns.hosts,
        clock=clock,
        timeout_s=dns.timeout_s,
        options=dns.options(ipv4=order.fetch.ipv4, ipv6=order.fetch.ipv6),
    )


def robots_options(order: CrawlOrder) -> RobotsOptions:
    """How the order takes robots.txt."""
    return RobotsOptions(
        product=order.agent.product,
        max_crawl_delay_s=order.robots.max_crawl_delay_s,
        cache_s=order.robots.cache_s,
        unreachable_s=order.robots.unreachable_s,
    )


async def all_done(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Return when every task has ended, however."""
    await asyncio.wait(tasks)
