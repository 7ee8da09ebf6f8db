"""A crawl as one of the workers of a job: it joins, crawls its part, and leaves."""

from __future__ import annotations

import asyncio
import math
import re
import secrets
import socket
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

import structlog

from anabranch.crawler.accounts.accounts import Accounts
from anabranch.crawler.accounts.journal import JOURNAL_FILE, recorded_files
from anabranch.crawler.archive.files import finish_left_over
from anabranch.crawler.archive.uploads import Uploaded
from anabranch.crawler.cluster.agreement import Applicant, FolderCopied, Joined, Wanted, join
from anabranch.crawler.cluster.commands import note_finished
from anabranch.crawler.cluster.outputs import put_output
from anabranch.crawler.cluster.totals import counting_name, put_left_over
from anabranch.crawler.job.database import JobDatabase
from anabranch.crawler.job.folder import JobFolder
from anabranch.crawler.job.journal import roll_back
from anabranch.crawler.job.state import (
    WorkerOfFolder,
    current_round,
    folder_place,
    note_worker,
    order_round,
    round_of_run,
    worker_of,
)
from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.outcomes.endings import WhyEnded
from anabranch.crawler.outcomes.errors import ExitCode, JobMoving, StaysAway, storage_errors
from anabranch.crawler.run.controller import CrawlController
from anabranch.crawler.run.membership import Surroundings, uploading_of
from anabranch.crawler.run.shared_run import SharedRun
from anabranch.frontier import clear_filter
from anabranch.frontier.errors import StoreUnavailable
from anabranch.frontier.times import counted, steady_clock

log = structlog.get_logger(__name__)

_UNFIT_FOR_NAMES = re.compile(r"[^A-Za-z0-9._-]+")
#: A machine's clock may differ from the server's by so much without a warning.
_CLOCK_SLACK_S = 5.0
#: Between two looks whether a worker renews its lease.
_LEASE_LOOK_S = 0.5


async def crawl_shared(
    wanted: Wanted,
    job: JobFolder,
    outside: Surroundings,
    machine_s: Callable[[], float],
    address: Path | str,
    begins: Callable[[CrawlController], None] | None = None,
) -> int:
    """Join the workers of the job at this address and crawl; the exit code. Raises: StaysAway; as `join` and a crawl do.

    `machine_s` is the machine's clock; `begins` is called with the controller before it runs.
    """
    order = wanted.order
    with closing(JobDatabase(address)) as database:
        try:
            who, joined = await asyncio.to_thread(_join, database, wanted, job)
        except StaysAway:
            await _finish_files(database, order, job)
            await asyncio.to_thread(count_left_over, database, job, machine_s)
            raise
        outside.notify(_joined_line(database, joined))
        if joined.absent:
            outside.notify(f"the job runs again; start {joined.absent}, too: the command of each")
        if abs(joined.now_s - machine_s()) > _CLOCK_SLACK_S:
            off = f"{machine_s() - joined.now_s:+.0f} s"
            log.warning("this machine's clock differs from the server's, which counts for the crawl", differs_by=off)
        member = await asyncio.to_thread(SharedRun, database, order, job, joined, who)
        clock = steady_clock(epoch=lambda: joined.now_s)
        controller = CrawlController(order, job, wanted.seeds, outside, member, clock)
        if begins is not None:
            begins(controller)
        code = await controller.run()
        facts = controller.facts
        has_tried_all = facts is not None and all(seed.status for seed in facts.seeds)
        is_finished = controller.ending is WhyEnded.FINISHED and code == ExitCode.DONE
        if wanted.leads and is_finished and has_tried_all:
            with suppress(StoreUnavailable):  # the next run does it
                await asyncio.to_thread(database.do, partial(note_finished, seeds=member.known_seeds))
        return code


async def _finish_files(database: JobDatabase, order: CrawlOrder, job: JobFolder) -> None:
    """Finish the WARC files that a killed run left open, as far as their visits count, and upload them: the worker's next run
    may never come.

    Raises: StorageError, AccountsDamaged, UploadFailed.
    """
    worker = worker_of(job.state)
    if not (job.existed and order.write.warc and worker and worker.name):
        return
    with storage_errors(job.warc):
        recorded = await asyncio.to_thread(recorded_files, job.state / JOURNAL_FILE)
        await asyncio.to_thread(finish_left_over, job.warc, recorded=recorded)
    number = await asyncio.to_thread(round_of_run, job.state)

    def register(arrived: Uploaded) -> None:
        database.do(partial(put_output, worker=worker.name, number=number, arrived=arrived))

    uploading = uploading_of(order, job, worker.name, register)
    if uploading is not None:
        await uploading.finish()


def count_left_over(database: JobDatabase, job: JobFolder, clock: Callable[[], float]) -> None:
    """Count in the job what a killed run of this worker has counted in its folder alone. Blocks.

    Raises: StorageError, StoreUnavailable, AccountsDamaged.
    """
    worker = worker_of(job.state)
    if not (job.existed and worker and worker.name and (job.state / JOURNAL_FILE).exists()):
        return
    with storage_errors(job.state):
        roll_back(job.directory, recorded_files(job.state / JOURNAL_FILE))
        with closing(Accounts(job.state, job.crawl_log, clock)) as accounts:
            counted = accounts.changed(all_rows=True)
    database.do(partial(put_left_over, worker=counting_name(worker.name, worker.token), counted=counted))


def _join(database: JobDatabase, wanted: Wanted, job: JobFolder) -> tuple[Applicant, Joined]:
    """Join as the worker of this folder. Clears the filter of an earlier round. Blocks while the server is away.

    A worker that is at work from another folder, of which this one is a copy, renews its lease; one that is dead does not, and
    this one waits for the end of its lease. It waits for the end of a move, too. Raises: FolderCopied; as `join`.
    """
    order = wanted.order
    worker = worker_of(job.state)
    if worker is None:
        worker = WorkerOfFolder(secrets.token_hex(8))
        note_worker(job.state, worker)
    name = order.job.worker or worker.name or _UNFIT_FOR_NAMES.sub("-", socket.gethostname()).strip("-.") or "worker"
    folder = "" if isinstance(database.address, Path) else folder_place(job.state)
    who = Applicant(name, worker.token, bool(order.job.worker), worker.job, folder)
    joined = _joined(database, wanted, who)
    with storage_errors(job.state):
        if current_round(job.state).number != joined.round:
            clear_filter(job.state)  # it knows the URLs of the round before
            order_round(job.state, joined.round)
    worker = worker._replace(name=joined.name, job=joined.job)
    note_worker(job.state, worker)
    return who, joined


def _joined(database: JobDatabase, wanted: Wanted, who: Applicant) -> Joined:
    until_s = math.inf
    while True:
        try:
            return join(database, wanted, who)
        except StoreUnavailable as error:
            if not database.may_try_again(error):
                raise
        except JobMoving:  # it stays here if the move is given up
            if not database.wait(_LEASE_LOOK_S):
                raise
        except FolderCopied as error:
            if error.until_s > until_s:  # renewed meanwhile, so it is at work
                raise
            if until_s == math.inf:
                log.warning("the worker of this folder was at work elsewhere; waiting for the end of its lease")
            until_s = error.until_s
            if not database.wait(_LEASE_LOOK_S):
                raise


def _joined_line(database: JobDatabase, joined: Joined) -> str:
    words = "the first at work" if joined.is_first else "others are at work"
    added = f"; {counted(joined.added, 'seed')} added" if joined.added else ""
    return f"worker {joined.name} of the job in {database.place}, {words}{added}"
