"""The parent's run of a job that several processes crawl: begin, start them, restart those that die, end all, report.

logs of a killed run gathered → order and seeds into the job's rows → processes … nothing left, a limit or a signal → logs
gathered → reports
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any

import structlog
from sqlalchemy import Connection

from anabranch.crawler.cluster.agreement import Applicant, Joined, Wanted, join
from anabranch.crawler.cluster.commands import Wish, put_wish
from anabranch.crawler.cluster.totals import all_totals, view_of
from anabranch.crawler.job.database import JobDatabase, fetch, free_all_shares
from anabranch.crawler.job.folder import JobFolder
from anabranch.crawler.job.state import FAILED, WORKERS, Round
from anabranch.crawler.job.workerfolders import worker_folders
from anabranch.crawler.order.order import CrawlOrder, dump_order
from anabranch.crawler.outcomes.endings import ASKED_FOR, DOMINATED, WhyEnded, ending_text, exit_code, with_failures
from anabranch.crawler.outcomes.errors import CrawlerError, ExitCode, StorageError, storage_errors
from anabranch.crawler.processes.children import Child
from anabranch.crawler.processes.forkserver import ForkServer
from anabranch.crawler.processes.gathering import finish_warcs, gather
from anabranch.crawler.processes.jobwatch import JobWatch
from anabranch.crawler.processes.worker import WorkerTask
from anabranch.crawler.report.reports import SEEDS_REPORT, check_folder, seeds_shown, write_all
from anabranch.crawler.report.summary import RunFacts, crawl_report, opening_line
from anabranch.crawler.run.control import ControlRefused
from anabranch.crawler.run.job_rows import JobLook, JobRows
from anabranch.crawler.run.limits import full_folder
from anabranch.crawler.run.membership import Surroundings, uploading_of
from anabranch.crawler.run.metrics import metrics_served
from anabranch.crawler.run.run_state import Cause, RunNote
from anabranch.crawler.run.signals import handle_signals
from anabranch.crawler.run.stopped_verbs import (
    WholeJob,
    facts_of_stopped,
    held_whole,
    reasons_of,
    stopped_seed_outcomes,
)
from anabranch.crawler.run.summing import summed_filters, summed_run
from anabranch.crawler.urls.canonicalization import Canonicalizer
from anabranch.frontier import FrontierCounts
from anabranch.frontier.errors import StoreUnavailable
from anabranch.frontier.jobfolder import STORE_FILE
from anabranch.frontier.stores.sql.sqlite import sealed

log = structlog.get_logger(__name__)

#: How often a worker's process is started again in one run.
RESTARTS = 5
#: Between two looks whether a full disk has room again.
ROOM_S = 1.0


class WorkerDied(CrawlerError):
    """A process of the crawl dies again and again."""


async def supervise(wanted: Wanted, job: JobFolder, outside: Surroundings, fork_server: ForkServer) -> ExitCode:
    """Crawl a job with processes that share its file; the caller holds the job's lock. Raises: CrawlerError, FrontierError."""
    file = job.state / STORE_FILE
    with sealed(file), closing(JobDatabase(file)) as database:
        return await Supervisor(wanted, job, database, outside, fork_server).run()


class Supervisor:
    """Runs one crawl of one job in several processes, once. The caller holds the job's lock."""

    def __init__(
        self, wanted: Wanted, job: JobFolder, database: JobDatabase, outside: Surroundings, fork_server: ForkServer
    ) -> None:
        self._wanted = wanted
        self._order = wanted.order
        self._job = job
        self._database = database
        self._outside = outside
        self._fork_server = fork_server
        self._children: dict[int, Child] = {}  #: by the number of the worker
        self._ended: list[Mapping[str, Any]] = []  #: how the runs were that ended in order
        self._failure: BaseException | None = None  #: why the crawl cannot go on
        self._why: WhyEnded | None = None  #: why it is to end
        self._ending = asyncio.Event()
        self._is_signalled = False
        self._unreported: StorageError | None = None  #: why there are no reports
        self._record = RunNote(job.state)

    async def run(self) -> ExitCode:
        """Crawl until nothing is left, a limit or a signal; then report. Raises: CrawlerError, FrontierError."""
        await asyncio.to_thread(self._record.begin)
        try:
            facts = await self._run()
        except BaseException as error:
            await asyncio.to_thread(self._record.end, FAILED, str(error) or repr(error))
            raise
        assert self._why is not None  # `_report` has said it
        await asyncio.to_thread(self._record.end, self._why.name.lower(), facts.ended)
        self._outside.notify(crawl_report(facts) + seeds_shown(facts.seeds, self._job.reports / SEEDS_REPORT))
        if self._unreported is not None:
            raise self._unreported
        return facts.code

    async def _run(self) -> RunFacts:
        with handle_signals(self._signalled, self._log_status, self._reopen_logs, is_last=self._outside.is_last):
            joined, before = await asyncio.to_thread(self._begin)
            shared = JobRows(self._database, self._order)
            self._watch = JobWatch(shared, before, self._job.crawl_log.parent, self._order.report)
            self._outside.notify(self._opening_line(joined, before))
            address, name = self._order.report.metrics, shared.name
            async with metrics_served(address, lambda: {name: self._watch.metrics()}, self._outside.notify):
                await self._crawl()
            if self._failure is not None:
                raise self._failure
            return await asyncio.to_thread(self._end, shared, joined, before)

    def _begin(self) -> tuple[Joined, JobLook]:
        """Make the order and the seeds the job's; what it has (blocks)."""
        if self._order.report.reports:
            with storage_errors(self._job.reports):
                check_folder(self._job.reports)
        gather(self._job.directory, worker_folders(self._job.directory))  # what a killed run left
        self._database.do(free_all_shares)
        joined = join(self._database, self._wanted, Applicant("", "", is_named=True))
        with storage_errors(self._job.directory):
            self._job.write_order(dump_order(self._order))
        return joined, JobRows(self._database, self._order).look()

    def _opening_line(self, joined: Joined, look: JobLook) -> str:
        counters = look.counts.counters
        pending = counters.queued - counters.retired + look.counts.links
        if joined.added and not counters.accepted:
            pending = joined.added
        if self._wanted.again:
            return f"round {joined.round} of job {self._job.directory}: {pending} URLs queued"
        counts = FrontierCounts(
            pending=pending, waiting=0, in_flight=0, done=counters.done, failed=counters.failed,
            disregarded=counters.disregarded, retired=counters.retired, queues={}, gates=0,
        )  # fmt: skip
        return opening_line(self._job, counts, self._order.limits.pages)

    # While it runs

    async def _crawl(self) -> None:
        uploading = uploading_of(self._order, self._job)
        beside = [
            self._outside.show(lambda: self._watch.snapshot),
            self._watch.run(lambda: self._why),
            self._watch.end_stopped(self._children),
            self._watch.write(),
            self._hold_time(),
            *([] if uploading is None else [uploading.watch()]),
        ]
        tasks = [asyncio.create_task(one) for one in beside]
        for task in tasks:
            task.add_done_callback(self._besides_ended)
        try:
            async with asyncio.TaskGroup() as keeping:
                for number in range(1, self._order.crawl.processes + 1):
                    keeping.create_task(self._keep(number), name=f"worker-{number}")
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._note_begun()
        if self._failure is None:
            # Those that ended in order have finished their files; one that was killed last has not.
            workers = worker_folders(self._job.directory)
            await asyncio.to_thread(finish_warcs, self._job.warc, self._order.write.warc_prefix, workers)
            if uploading is not None:
                await uploading.finish()

    def _besides_ended(self, task: asyncio.Task[None]) -> None:
        """If a task that runs along with the processes has failed, end the processes in order; the failure is raised then."""
        if not task.cancelled() and (failure := task.exception()) is not None:
            self._fail(failure)

    async def _note_begun(self) -> None:
        """If a worker has ever begun to crawl the start has not failed, and nothing is to be removed."""
        try:
            has_worked = await asyncio.to_thread(self._database.do, _has_worked)
        except StoreUnavailable:
            has_worked = True
        if has_worked:
            self._job.begin()

    async def _keep(self, number: int) -> None:
        """Have a process crawl as this worker until it has ended in order, or cannot go on; one that dies is started again.

        What happens on a full disk is no fault of a process: it is started again when there is room.
        """
        deaths = 0
        while deaths <= RESTARTS and not self._ending.is_set():
            try:
                child = await Child.start(self._task(number), self._order.crawl.loop, self._fork_server)
            except OSError as error:
                self._fail(CrawlerError(f"a process of the crawl cannot be started: {error.strerror}; start fewer"))
                return
            self._children[number] = child
            if self._ending.is_set():
                child.signal(signal.SIGTERM)
            report = await child.ended()
            del self._children[number]
            if report is not None and "error" not in report:
                self._ended.append(report)
                return
            if await self._has_room(number, report):
                deaths += 1
                self._ended_badly(number, child.pid, report, is_last=deaths > RESTARTS)

    def _ended_badly(self, number: int, pid: int, report: Mapping[str, Any] | None, *, is_last: bool) -> None:
        """Log a process that has died or could not go on although its disks have room; fail if it is not to be started again.

        A process that ended for want of room is started again, since there is room now.
        """
        may_go_on = self._watch.has_begun and not self._ending.is_set()
        if report is not None and (is_last or report["code"] != ExitCode.DISK_FULL or not may_go_on):
            self._fail(ControlRefused(str(report["error"]), ExitCode(report["code"])))
            return
        then = "" if is_last or self._ending.is_set() else "; it is started again"
        log.warning(f"a process of the crawl has {_how_ended(report)}{then}", worker=number, pid=pid)
        if is_last and not self._ending.is_set():
            self._fail(WorkerDied(f"process {pid} of worker {number} has died, as {RESTARTS} before it; see the log"))

    async def _has_room(self, number: int, report: Mapping[str, Any] | None) -> bool:
        """Whether the job's disks had room at the first look. If not, waits until they have, or the crawl ends.

        A crawl that has not begun does not wait: its operator is still there.
        """
        if not self._watch.has_begun:
            return True
        folders = [self._job.state, *([self._job.warc] if self._order.write.warc else [])]
        is_first = True
        while (full := await asyncio.to_thread(full_folder, folders)) is not None and not self._ending.is_set():
            if is_first:
                log.warning(
                    f"a process of the crawl has {_how_ended(report)}; it is started again when there is room on the disk",
                    worker=number,
                    folder=str(full),
                )
            is_first = False
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), ROOM_S)
        return is_first

    def _task(self, number: int) -> WorkerTask:
        return WorkerTask(
            folder=str(self._job.directory / WORKERS / str(number)),
            file=str(self._job.state / STORE_FILE),
            warc=str(self._job.warc),
            order=worker_order(self._order, number),
            modules=None if (folder := self._order.code.folder) is None else str(folder),
        )

    async def _hold_time(self) -> None:
        """The limit of time is that of the parent: its processes may be started again."""
        if not self._order.limits.time_s:
            return
        await asyncio.sleep(self._order.limits.time_s)
        if self._order.limits.on_limit == "pause":
            self._outside.notify(f"{Cause.TIME.value}; fetches under way may end")
            await asyncio.to_thread(self._database.do_patiently, lambda connection: put_wish(connection, Wish.PAUSE))
        else:
            self._stop(WhyEnded.TIME_LIMIT)

    def _stop(self, why: WhyEnded) -> None:
        """End all in order; the first reason counts."""
        self._why = self._why or why
        self._ending.set()
        if self._failure is None:
            self._record.unwanted()
        for child in self._children.values():
            child.signal(signal.SIGTERM)

    def _fail(self, failure: BaseException) -> None:
        """The crawl cannot go on: end all in order."""
        self._failure = self._failure or failure
        self._stop(WhyEnded.SIGNAL)

    def _signalled(self) -> None:
        if self._is_signalled:
            for child in self._children.values():
                if child.is_stopped:  # it would not see that its parent has gone
                    child.signal(signal.SIGKILL)
            self._outside.force_exit()
        self._is_signalled = True
        self._stop(WhyEnded.SIGNAL)
        self._outside.notify("draining: fetches under way may end; a second signal leaves at once")

    def _log_status(self) -> None:
        for child in self._children.values():
            child.signal(signal.SIGUSR1)

    def _reopen_logs(self) -> None:
        for child in self._children.values():
            child.signal(signal.SIGUSR2)

    # The end

    def _end(self, shared: JobRows, joined: Joined, before: JobLook) -> RunFacts:
        """Gather the logs, write the reports, and say how the run was (blocks)."""
        gather(self._job.directory, worker_folders(self._job.directory))
        self._database.do(free_all_shares)  # of those that have died
        with held_whole(shared) as whole:
            facts = self._report(shared, whole, joined, before)
        self._watch.end(facts)
        return facts

    def _report(self, shared: JobRows, whole: WholeJob, joined: Joined, before: JobLook) -> RunFacts:
        key = Canonicalizer(self._order.urls.canonicalization).key
        fared = stopped_seed_outcomes(self._job.directory, list(whole.seeds), key, whole.frontier)
        statistics = whole.frontier.operations.statistics()._replace(
            seen=summed_filters(report["frontier"]["seen"] for report in self._ended),
            leases_lost=sum(report["frontier"]["leases_lost"] for report in self._ended),
        )
        after = shared.look()
        # Links that are under way count; and a run may end before a worker has queued the seeds.
        is_done = after.counts.is_done and after.counts.counters.accepted > 0
        self._why = why_of(self._why, self._ended, is_done=is_done, has_retired=bool(statistics.retired))
        seeds = [seed.status for seed in fared]
        verdict = with_failures(self._why, statistics.done, statistics.failed, seeds)
        ended = ending_text(self._why, lasts=True, detail=_detail_of(self._why, self._ended), verdict=verdict)
        if is_done and not statistics.retired and verdict not in DOMINATED:
            self._job.mark_finished()
        with view_of(self._database.do(all_totals)) as view:
            if self._order.report.reports:
                facts = facts_of_stopped(shared.name, whole.frontier, fared, view, Round(joined.round))
                try:
                    with storage_errors(self._job.reports):
                        write_all(self._job.reports, replace(facts, status=ended, frontier=statistics))
                except StorageError as error:
                    self._unreported = error
            return RunFacts(
                job=str(self._job.directory),
                ended=ended,
                code=exit_code(verdict, seeds),
                elapsed_s=after.now_s - before.now_s,
                seeds=fared,
                run=summed_run(self._ended, before.now_s, _done_since(before, after)),
                frontier=statistics,
                round_number=joined.round,
                all_rounds=view.total() if joined.round > 1 else None,
                reasons=reasons_of(verdict, seeds, whole.frontier.operations),
            )


def _how_ended(report: Mapping[str, Any] | None) -> str:
    return "died" if report is None else f"ended ({report['error']})"


def _has_worked(connection: Connection) -> bool:
    """A worker has begun to crawl, in this run or an earlier one: the start has not failed."""
    return bool(fetch(connection, "SELECT 1 FROM job_worker WHERE status IS NOT NULL LIMIT 1"))


def worker_order(order: CrawlOrder, number: int) -> dict[str, Any]:
    """The order of one worker, as JSON holds it: its part of the fetches at once; time, seeds and reports are the parent's."""
    processes = order.crawl.processes
    fetches = max(order.crawl.workers // processes + (number <= order.crawl.workers % processes), 1)
    asked = order.model_copy(
        update={
            "job": order.job.model_copy(update={"seeds": (), "seed_files": (), "worker": str(number)}),
            "crawl": order.crawl.model_copy(update={"workers": fetches}),
            "limits": order.limits.model_copy(update={"time_s": 0.0}),
            "report": order.report.model_copy(update={"reports": False}),
        }
    )
    return asked.model_dump(mode="json", by_alias=True, exclude_none=True)


def why_of(asked: WhyEnded | None, ended: Sequence[Mapping[str, Any]], *, is_done: bool, has_retired: bool) -> WhyEnded:
    """Why the run as a whole has ended: as it was asked to, or as its workers report. Pure."""
    reasons = [WhyEnded[facts["ending"]] for facts in ended]
    if asked is not None and asked in ASKED_FOR:
        return asked
    if asked is None and reasons and ASKED_FOR.keys() >= {*reasons}:
        return reasons[0]
    if is_done:
        return WhyEnded.RETIRED if has_retired else WhyEnded.FINISHED
    return asked or next((why for why in reasons if why not in _NOTHING_LEFT), WhyEnded.SIGNAL)


def _detail_of(why: WhyEnded, ended: Sequence[Mapping[str, Any]]) -> str:
    """Return the cause, such as the name of a service, from the first worker that reports this ending; empty if none does."""
    return next((facts["detail"] for facts in ended if facts["ending"] == why.name), "")


#: What a worker reports that has nothing left to do.
_NOTHING_LEFT = frozenset({WhyEnded.FINISHED, WhyEnded.RETIRED})


def _done_since(before: JobLook, after: JobLook) -> dict[str, int]:
    """Return the counts of this run over all processes from their rows, those of processes that died included."""
    then, now = before.counts.counters, after.counts.counters
    return {
        "pages": now.done - then.done,
        "failed": now.failed + now.retried - then.failed - then.retried,
        "excluded": now.disregarded - then.disregarded,
        "fetched_bytes": after.used.fetched_bytes - before.used.fetched_bytes,
    }
