"""One run of a crawl: opens the parts, starts the workers, ends them, reports.

    open the job -> open the Frontier -> seeds -> workers ... -> drain -> reports -> close all

The order of the end is fixed: stop leasing, let fetches under way end (at most the fetch time-out), give the other leases back,
write the reports, close the journal, close the Frontier. Only this file creates long-lived tasks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import replace

import structlog

from anabranch.crawler.accounts.totals import Totals
from anabranch.crawler.job.folder import JobFolder
from anabranch.crawler.job.seeds import Seed, has_seeds
from anabranch.crawler.job.state import FAILED, round_of_run
from anabranch.crawler.order.frontier import MEMORY
from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.outcomes.endings import (
    ASKED_FOR,
    DOMINATED,
    FORESEEABLE,
    WhyEnded,
    exit_code,
    first_failure,
    first_of,
    with_failures,
)
from anabranch.crawler.outcomes.errors import ExitCode, StorageError, storage_errors
from anabranch.crawler.report.logtail import PROGRESS_LOG_FILE
from anabranch.crawler.report.progress_log import ProgressLog
from anabranch.crawler.report.reports import SEEDS_REPORT, check_folder, seeds_shown, write_all
from anabranch.crawler.report.statistics import CrawlStatistics, WorkerBoard
from anabranch.crawler.report.summary import RunFacts, crawl_report, opening_line
from anabranch.crawler.run.composition import RunContext, RunParts, open_parts
from anabranch.crawler.run.crawl_verbs import CrawlVerbs, facts_of_running
from anabranch.crawler.run.limits import DiskWatch
from anabranch.crawler.run.membership import Membership, SoleMembership, Surroundings, uploading_of
from anabranch.crawler.run.metrics import LoopLag, RunMetrics, metrics_served
from anabranch.crawler.run.run_state import Phase, RunNote, RunState
from anabranch.crawler.run.signals import handle_signals
from anabranch.crawler.run.status import ProgressReporter, RunStatus, log_frontier_trouble, log_status, opening_facts
from anabranch.crawler.run.stopped_verbs import reasons_of
from anabranch.crawler.run.workers import DELIVERY
from anabranch.frontier import FrontierCounts
from anabranch.frontier.errors import SharesLost, StoreSetBack, StoreUnavailable
from anabranch.frontier.times import steady_clock

log = structlog.get_logger(__name__)


#: How often in a row, without a fetch between, the crawl goes on after its store was set back: then it is no restore.
_MOST_SET_BACK = 3


class CrawlController:
    """Runs one crawl of one job, once."""

    def __init__(
        self,
        order: CrawlOrder,
        job: JobFolder,
        seeds: Sequence[Seed],
        outside: Surroundings,
        member: Membership | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """`member`: how the run takes part in the job; None: alone. `clock`: of a server that all workers go by; None: of this
        machine.
        """
        self._order = order
        self._job = job
        self._seeds = seeds
        self._outside = outside
        self._member = SoleMembership(order, job) if member is None else member
        self._clock = clock or steady_clock()
        self._statistics = CrawlStatistics(started_s=self._clock())
        self._run_state = RunState(outside.notify, self._phase_changed, is_resumable=order.frontier.store != MEMORY)
        written = [job.directory, job.warc] if order.write.warc else [job.directory]  # maybe on several disks
        self._disk = DiskWatch(written, order.limits.min_free_disk_bytes, self._run_state)
        self._context = RunContext(
            order=order,
            job=job,
            clock=self._clock,
            statistics=self._statistics,
            board=WorkerBoard(),
            run_state=self._run_state,
            member=self._member,
            outside=outside,
        )
        self.facts: RunFacts | None = None  #: how the run was, when it has ended in order
        self._parts: RunParts | None = None  # these three are None until the job is open
        self._progress: ProgressReporter | None = None
        self._status: RunStatus | None = None
        self._uploading = uploading_of(order, job, self._member.worker, self._member.register)
        self._lag = LoopLag()
        self._record = RunNote(job.state)
        self._is_signalled = False
        self._report_error: StorageError | StoreUnavailable | None = (
            None  #: why there are no reports; the summary is shown all the same
        )

    async def run(self) -> ExitCode:
        """Crawl until nothing is left, a limit or a signal; then report. Raises: CrawlerError, FrontierError."""
        with handle_signals(self._signalled, self._log_status, self.reopen_logs, is_last=self._outside.is_last):
            facts = await self._crawled()
        self._outside.notify(crawl_report(facts) + seeds_shown(facts.seeds, self._job.reports / SEEDS_REPORT))
        if self._report_error is not None:
            raise self._report_error
        if self._uploading is not None:
            await self._uploading.finish()
        return facts.code

    async def crawl(self) -> RunFacts:
        """Crawl as `run` does, but without signals and without a report to the operator: for a program with its own loop."""
        facts = await self._crawled()
        if self._uploading is not None:
            await self._uploading.finish()
        return facts

    async def _crawled(self) -> RunFacts:
        """Crawl until a run has ended in order; the job has a record of it. A worker of several has its rows instead."""
        if self._context.is_shared:
            return await self._crawled_through()
        await asyncio.to_thread(self._record.begin)
        try:
            facts = await self._crawled_through()
        except asyncio.CancelledError:
            self._record.end(WhyEnded.OPERATOR_NOW.name.lower(), "cancelled by the program that crawls")
            raise
        except BaseException as error:
            await asyncio.to_thread(self._record.end, FAILED, str(error) or repr(error))
            raise
        await asyncio.to_thread(self._record.end, (self._run_state.verdict or self.ending).name.lower(), facts.ended)
        return facts

    async def _crawled_through(self) -> RunFacts:
        """Crawl until a run has ended in order.

        A worker that was away for too long opens the job again and gets other shares. A run whose store was set back opens the
        job again and goes on with what the store has, at most `_MOST_SET_BACK` times in a row without a fetch between.
        """
        fetched_bytes, set_back = 0, 0
        while True:
            failed: Exception | None = None
            try:
                self.facts = await self._open_and_crawl()
            except SharesLost as lost:
                if self._run_state.stopped.is_set():
                    raise
                log.warning("this worker joins again", reason=str(lost))
            except StoreSetBack as lost:
                set_back = set_back + 1 if self._statistics.fetched_bytes == fetched_bytes else 1
                fetched_bytes = self._statistics.fetched_bytes
                if self._run_state.stopped.is_set() or set_back > _MOST_SET_BACK:
                    raise
                log.warning("the store was set back; the crawl goes on with what it has", reason=str(lost))
            except FORESEEABLE as error:
                failed = self._report_error or first_failure(error)
            else:
                return self.facts
            if failed is not None:  # not in its handler: that would change what it says of its own cause
                raise failed

    def stop(self, ending: WhyEnded, *, at_once: bool = False) -> None:
        """End the crawl in order; the first reason counts. `at_once`: fetches under way are given up."""
        self._run_state.stop(ending, at_once=at_once)
        self._stop_leasing()

    def _stop_leasing(self) -> None:
        """Begin no visit any more; those that wait for a ticket give their leases back, which nobody may get then."""
        if self._parts is not None:
            self._parts.frontier.stop_leasing()
            self._parts.limits.tickets.end()
        self._member.stop()  # it may be joining, and wait for the server

    @property
    def ending(self) -> WhyEnded:
        """Why the run ends, or ended."""
        return self._run_state.ending

    @property
    def detail(self) -> str:
        """The name of what ended the run, such as a service; empty if the ending says all."""
        return self._run_state.detail

    def reopen_logs(self) -> None:
        """Continue in the files that have the logs' names now; a log that is written seldom does so with its next line."""
        if self._parts is not None:
            self._parts.journal.follow()

    async def _open_and_crawl(self) -> RunFacts:
        """Open every part, crawl, close every part in the opposite order."""
        async with AsyncExitStack() as opened:
            if self._order.report.reports:
                with storage_errors(self._job.reports):
                    check_folder(self._job.reports)
            parts = self._parts = await open_parts(self._context, opened)
            frontier, seeding = parts.frontier, parts.seeding
            progress_log = ProgressLog(self._job.crawl_log.parent / PROGRESS_LOG_FILE, self._clock)
            interval_s = self._order.report.statistics_interval_s
            progress = ProgressReporter(frontier, self._statistics, progress_log, interval_s, self._clock)
            self._progress = progress
            status = self._status = RunStatus(
                self._context, self._disk, frontier.core, progress, parts.services, parts.limits, parts.find_trouble
            )
            frontier.core.on_trouble(log_frontier_trouble)
            metrics = RunMetrics(self._context, parts, status, self._lag)
            verbs = CrawlVerbs(self._context, parts, status, metrics, self._follow)
            async with (
                self._member.control(verbs.answer, status, self._statistics),
                self._served(metrics),
                self._outside.answering(verbs.answer),
            ):
                try:
                    await seeding.begin(self._seeds)
                finally:
                    if has_seeds(self._job.directory) or self._context.is_shared:
                        self._job.begin()
                self._outside.notify(self._opening_line(frontier.core.counts()))
                await self._disk.poll()
                parts.limits.check()
                self._run_state.begin(frontier)
                await self._crawl(parts, progress, status)
            await self._crawl(parts, progress, status)  # seeds added in the last moment; no more can be added now
            await frontier.flush()
            is_taken = await parts.sinks.finish()
            counts, is_done = frontier.core.counts(), frontier.core.is_done
            if is_done and self._run_state.ending not in ASKED_FOR:  # even if a limit came with the last page
                self._run_state.nothing_left(WhyEnded.RETIRED if counts.retired else WhyEnded.FINISHED)
            seeds = await seeding.facts(self._statistics.seed_failures)
            statuses = [seed.status for seed in seeds]
            verdict = with_failures(self._run_state.ending, counts.done, counts.failed, statuses)
            self._run_state.judge(verdict)
            if is_taken and is_done and not counts.retired and verdict not in DOMINATED:
                self._job.mark_finished()
            self.stop(self._run_state.ending)
            await progress.end(self._run_state.end_reason)
            await self._write_reports(parts)
            number, total = await asyncio.to_thread(self._rounds, parts)
            return RunFacts(
                job=str(self._job.directory),
                ended=self._run_state.end_reason,
                code=exit_code(verdict, statuses),
                elapsed_s=self._clock() - self._statistics.started_s,
                seeds=seeds,
                run=self._statistics,
                frontier=await frontier.statistics(),
                round_number=number,
                all_rounds=total,
                reasons=await asyncio.to_thread(reasons_of, verdict, statuses, frontier.core.operations),
            )

    def _served(self, metrics: RunMetrics) -> AbstractAsyncContextManager[None]:
        """Metrics at the order's address, if it has one and this process is to serve it."""
        address = self._order.report.metrics if self._outside.serves_metrics else ""
        return metrics_served(address, lambda: {self._name: metrics.numbers()}, self._outside.notify)

    @property
    def _name(self) -> str:
        return self._order.job.name or self._context.name

    def _opening_line(self, counts: FrontierCounts) -> str:
        if self._context.is_shared:
            return f"the job has {counts.done:,} pages, {counts.pending:,} URLs are queued"
        return opening_line(self._job, counts, self._order.limits.pages)

    async def _write_reports(self, parts: RunParts) -> None:
        if not self._order.report.reports:
            return
        try:
            with storage_errors(self._job.reports):
                facts = await facts_of_running(self._context, parts)
                with facts.accounts:
                    await asyncio.to_thread(write_all, self._job.reports, facts)
        except (StorageError, StoreUnavailable) as error:
            self._report_error = error

    async def _crawl(self, parts: RunParts, progress: ProgressReporter, status: RunStatus) -> None:
        """Let workers work until nothing is left or the run is stopped."""
        with parts.limits.clock():
            while not parts.frontier.is_drained and not self._run_state.stopped.is_set():
                await self._work(parts, progress, status)

    async def _work(self, parts: RunParts, progress: ProgressReporter, status: RunStatus) -> None:
        """Run the workers until they end by themselves or are stopped."""
        try:
            async with asyncio.TaskGroup() as group:
                workers = [
                    group.create_task(parts.pool.work(number), name=f"worker-{number}")
                    for number in range(1, self._order.crawl.workers + 1)
                ]
                others = [
                    group.create_task(self._outside.show(status.snapshot)),
                    group.create_task(self._disk.watch(), name="disk"),
                    group.create_task(parts.services.watch(), name="services"),
                    group.create_task(progress.refresh(), name="look"),
                    group.create_task(progress.write(), name="progress-statistics"),
                    group.create_task(self._member.watch(), name="job"),
                    group.create_task(self._outside.watch(parts.frontier, self._statistics), name="watch"),
                ]
                if self._order.report.metrics:
                    others.append(group.create_task(self._lag.watch(), name="loop-lag"))
                if parts.sinks.feeds:
                    others.append(group.create_task(parts.sinks.watch(), name="sinks"))
                if self._uploading is not None:
                    others.append(group.create_task(self._uploading.watch(), name="uploads"))
                await self._until_ended(workers, parts)
                for task in others:
                    task.cancel()
        except ExceptionGroup as failures:
            # Not `except*`: Python 3.11.2 (Debian 12) wraps what is raised in it in a group again.
            expected, defects = failures.split(FORESEEABLE)
            if expected is None or defects is not None:
                raise
            raise first_of(expected) from failures

    async def _until_ended(self, workers: Sequence[asyncio.Task[None]], parts: RunParts) -> None:
        """Return when the workers have ended. A stop gives those at work the time of a fetch, or none if it is at once.

        With a program it warns then, and waits on.
        """
        state = self._run_state
        stopped, hurried = (asyncio.create_task(event.wait()) for event in (state.stopped, state.hurried))
        ended = asyncio.create_task(asyncio.wait(workers))
        try:
            await asyncio.wait({stopped, ended}, return_when=asyncio.FIRST_COMPLETED)
            if ended.done():
                return
            self._stop_leasing()
            if parts.delivery is not None:
                parts.delivery.end()
            ends, patience_s = {hurried, ended}, self._order.fetch.timeout_s
            done, _ = await asyncio.wait(ends, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
            if parts.delivery is not None and not done:  # pages that a program has not seen yet wait for it
                self._warn_of_work()
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for worker in workers:
                worker.cancel()
        finally:
            for task in (stopped, hurried, ended):
                task.cancel()

    def _warn_of_work(self) -> None:
        """Name the URL that has kept the end waiting longest. Those that wait for the program are its own matter."""
        at_work = [fact for fact in self._context.board.facts() if fact.step != DELIVERY]
        if at_work:
            last = max(at_work, key=lambda fact: fact.in_step_s)
            log.warning("the crawl cannot end before these URLs", url=last.url, step=last.step, more=len(at_work) - 1)

    def _follow(self, order: CrawlOrder) -> None:
        """Go on by a changed order. Raises: OrderError, PolicyError; then nothing is changed."""
        assert self._parts is not None
        self._parts.follow(order)
        self._order, self._context = order, replace(self._context, order=order)
        self._disk.change(order.limits.min_free_disk_bytes)

    def _phase_changed(self, phase: Phase, reason: str) -> None:
        if phase is Phase.DRAINING:
            self._record.unwanted()
        if self._progress is not None:
            self._progress.phase_changed(phase, reason)

    def _signalled(self) -> None:
        if self._is_signalled:
            self._outside.force_exit()
        self._is_signalled = True
        self.stop(WhyEnded.SIGNAL)
        self._outside.notify("draining: fetches under way may end; a second signal leaves at once")

    def _log_status(self) -> None:
        log_status(opening_facts(self._context) if self._status is None else self._status.facts())

    def _rounds(self, parts: RunParts) -> tuple[int, Totals | None]:
        """The number of this round, and the counts of all rounds if there were others (blocks)."""
        state = self._job.state
        with storage_errors(state):
            number = round_of_run(state)
            if number == 1:
                return number, None
            with parts.view_totals() as view:
                return number, view.total()
