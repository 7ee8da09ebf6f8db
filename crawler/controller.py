"""One run of a crawl: builds the parts, starts the workers, ends them, reports.

    open the job → open the Frontier → seeds → workers … → drain → close the Frontier → reports

The order of the ending is fixed: stop leasing, let fetches under way end (at most the fetch time-out), give the other leases
back, close the journal, close the Frontier, write the reports. Only this file creates long-lived tasks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from anabranch.crawler.composition import Parts, Run, open_parts
from anabranch.crawler.jobs.job import JobFolder
from anabranch.crawler.jobs.journal import Journal
from anabranch.crawler.jobs.opening import has_seeds
from anabranch.crawler.jobs.rounds import round_of_run
from anabranch.crawler.jobs.seeds import Seed
from anabranch.crawler.operating.control import Answer, Control
from anabranch.crawler.operating.course import Course
from anabranch.crawler.operating.crawl_verbs import CrawlVerbs
from anabranch.crawler.operating.limits import DiskWatch, Limits
from anabranch.crawler.operating.reporting import RunningJob, answer_report, facts_of_running
from anabranch.crawler.operating.signals import heeded
from anabranch.crawler.operating.status import Status
from anabranch.crawler.operating.telling import Telling
from anabranch.crawler.orders.frontier import MEMORY
from anabranch.crawler.orders.order import CrawlOrder
from anabranch.crawler.outcomes.endings import ASKED_FOR, FORESEEABLE, WhyEnded, exit_code, first_of
from anabranch.crawler.outcomes.errors import StorageError, storage_errors
from anabranch.crawler.outcomes.exits import ExitCode
from anabranch.crawler.processes.portion import Portion
from anabranch.crawler.reporting.account_reading import AccountsView
from anabranch.crawler.reporting.accounting import Totals
from anabranch.crawler.reporting.accounts import Accounts
from anabranch.crawler.reporting.progress import CrawlSnapshot
from anabranch.crawler.reporting.progress_log import PROGRESS_LOG_FILE, ProgressLog
from anabranch.crawler.reporting.reports import SEEDS_REPORT, RunFacts, crawl_report, opening_line, seeds_shown
from anabranch.crawler.reporting.reports.catalogue import check_folder, write_all
from anabranch.crawler.reporting.statistics import CrawlStatistics, WorkerBoard
from anabranch.crawler.workers import WorkerPool
from anabranch.frontier.aio import AsyncFrontier
from anabranch.frontier.clocks import steady_clock
from anabranch.frontier.core import Frontier


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """What the controller needs of the outside: where to say things, and how to show progress."""

    say: Callable[[str], None]  #: a line (or lines) to the operator
    show: Callable[[Callable[[], CrawlSnapshot]], Coroutine[Any, Any, None]]  #: display progress until cancelled
    force_exit: Callable[[], None]  #: leave at once
    is_last: bool = False  #: the process ends with the crawl, so a signal that comes too late has nothing to end
    #: look at the Frontier and the counts while the workers work, until cancelled; None: nobody does
    watch: Callable[[AsyncFrontier, CrawlStatistics], Coroutine[Any, Any, None]] | None = None
    #: where questions come from: the job's state folder, what answers -> to be entered while the crawl runs
    control: Callable[[Path, Answer], AbstractAsyncContextManager[object]] = Control
    portion: Portion | None = None  #: what a share of a job has beside; None: the run is all of its job


class CrawlController:
    """Runs one crawl of one job, once."""

    def __init__(self, order: CrawlOrder, job: JobFolder, seeds: Sequence[Seed], outside: Outside) -> None:
        self._order = order
        self._job = job
        self._seeds = seeds
        self._outside = outside
        self._clock = clock = steady_clock()
        self._statistics = statistics = CrawlStatistics(started_s=clock())
        self._course = course = Course(outside.say, lasts=order.frontier.store != MEMORY)
        self._limits = limits = Limits(order.limits, course, statistics)
        self._run = Run(
            order=order,
            job=job,
            clock=clock,
            statistics=statistics,
            board=WorkerBoard(),
            limits=limits,
            portion=outside.portion,
        )
        self.facts: RunFacts | None = None  #: how the run was, when it has ended in order
        self._disk = DiskWatch(written_folders(order, job), order.limits.min_free_disk_bytes, course)
        self._status = Status(course, statistics, self._disk, order, job.directory.name, clock)
        self._journal: Journal | None = None  # once it is open
        self._is_signalled = False
        self._unreported: StorageError | None = None  #: why there are no reports; the summary is said all the same

    async def run(self) -> ExitCode:
        """Crawl until nothing is left, a limit is reached or a signal comes; then report.

        Raises: CrawlerError and FrontierError (store, job, disk); the job stays resumable.
        """
        with heeded(self._signalled, self._status.log, self.reopen_logs, is_last=self._outside.is_last):
            facts = self.facts = await self._run_parts()
        self._outside.say(crawl_report(facts) + seeds_shown(facts.seeds, self._job.reports / SEEDS_REPORT))
        if self._unreported is not None:
            raise self._unreported
        return exit_code(self._course.ending, facts.seeds)

    def stop(self, ending: WhyEnded, *, at_once: bool = False) -> None:
        """End the crawl in order; the first reason counts. `at_once`: what is being fetched is given up."""
        self._course.stop(ending, at_once=at_once)

    def reopen_logs(self) -> None:
        """Go on in the files that have the logs' names now; a log that is written seldom does so with its next line."""
        if self._journal is not None:
            self._journal.follow()

    async def _run_parts(self) -> RunFacts:
        """Open every part, crawl, close every part in the opposite order."""
        async with AsyncExitStack() as opened:
            self._check_reports()
            parts = await open_parts(self._run, opened)
            self._journal = parts.journal
            frontier, seeding = parts.frontier, parts.seeding
            telling = self._telling(frontier)
            self._status.look_at(frontier.core, lambda: telling.looked)
            running = self._running(parts)
            report = partial(answer_report, running)
            verbs = CrawlVerbs(self._course, frontier, seeding, parts.judge, self._status.facts, report)
            async with self._outside.control(self._job.state, verbs.answer):
                try:
                    await seeding.begin(self._seeds)
                finally:
                    if has_seeds(self._job.directory):
                        self._job.begin()
                self._outside.say(opening_line(self._job, frontier.core.counts(), self._order.limits.pages))
                await self._disk.look()
                self._limits.count_earlier(parts.fetched_bytes)
                self._course.steer(frontier)
                await self._crawl(parts, telling)
            await self._crawl(parts, telling)  # what was added in the last moment; nobody adds any more
            await frontier.flush()
            self._note_end(frontier.core)
            self.stop(self._course.ending)
            await telling.end(self._course.why_ended)
            await self._write_reports(running)
            return await self._facts(parts)

    def _telling(self, frontier: AsyncFrontier) -> Telling:
        log = ProgressLog(self._job.crawl_log.parent / PROGRESS_LOG_FILE, self._clock)
        interval_s = self._order.report.statistics_interval_s
        telling = Telling(frontier, self._statistics, log, interval_s, self._clock)
        self._course.tell_phases(telling.phase)
        if self._run.portion is not None:
            self._run.portion.telling(telling.facts)
        return telling

    def _running(self, parts: Parts) -> RunningJob:
        return RunningJob(
            name=self._job.directory.name,
            state=self._job.state,
            accounts=parts.accounts,
            frontier=parts.frontier,
            board=self._run.board,
            status=lambda: self._course.in_words,
            seeds=partial(parts.seeding.facts, self._statistics),
        )

    def _check_reports(self) -> None:
        """Reports that could not be written are noticed before the crawl. Raises: StorageError."""
        if self._order.report.reports:
            with storage_errors(self._job.reports):
                check_folder(self._job.reports)

    async def _write_reports(self, running: RunningJob) -> None:
        if not self._order.report.reports:
            return
        try:
            with storage_errors(self._job.reports):
                facts = await facts_of_running(running)
                with facts.accounts:
                    await asyncio.to_thread(write_all, self._job.reports, facts)
        except StorageError as error:
            self._unreported = error

    async def _crawl(self, parts: Parts, telling: Telling) -> None:
        """Let workers work until nothing is left or the run is stopped."""
        with self._limits.clock():
            while not parts.frontier.is_drained and not self._course.stopped.is_set():
                await self._work(parts.frontier, parts.pool, telling)

    async def _work(self, frontier: AsyncFrontier, pool: WorkerPool, telling: Telling) -> None:
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
                    group.create_task(telling.look(), name="look"),
                    group.create_task(telling.write(), name="progress-statistics"),
                ]
                if (watch := self._outside.watch) is not None:
                    beside.append(group.create_task(watch(frontier, self._statistics), name="watch"))
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

    async def _facts(self, parts: Parts) -> RunFacts:
        number, total = await asyncio.to_thread(self._rounds, parts.accounts)
        return RunFacts(
            job=str(self._job.directory),
            ended=self._course.why_ended,
            elapsed_s=self._clock() - self._statistics.started_s,
            seeds=await parts.seeding.facts(self._statistics),
            run=self._statistics,
            frontier=await parts.frontier.statistics(),
            round_number=number,
            all_rounds=total,
        )

    def _rounds(self, accounts: Accounts) -> tuple[int, Totals | None]:
        """The number of this round, and what all rounds have counted if there were others (blocks)."""
        state = self._job.state
        with storage_errors(state):
            number = round_of_run(state)
            if number == 1:
                return number, None
            accounts.sync()
            with AccountsView(state) as view:
                return number, view.total()


async def all_done(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Return when every task has ended, however."""
    await asyncio.wait(tasks)


def written_folders(order: CrawlOrder, job: JobFolder) -> list[Path]:
    """The folders that a crawl writes to; they may be on several disks."""
    return [job.directory, job.warc] if order.write.warc else [job.directory]
