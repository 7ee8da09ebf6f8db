"""A crawl as one of the workers of a job: it joins, crawls its part, and leaves."""

from __future__ import annotations

import asyncio
import re
import secrets
import socket
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import structlog

from anabranch.crawler.cluster.agreement import Applicant, Joined, Wanted, join
from anabranch.crawler.cluster.database import JobDatabase
from anabranch.crawler.job.folder import JobFolder
from anabranch.crawler.job.state import WorkerOfFolder, current_round, note_worker, order_round, worker_of
from anabranch.crawler.outcomes.errors import storage_errors
from anabranch.crawler.report.statistics import CrawlStatistics
from anabranch.crawler.run.controller import CrawlController, RunHooks
from anabranch.crawler.run.shared_run import SharedRun
from anabranch.crawler.run.uploading import Uploading
from anabranch.frontier.aio import AsyncFrontier
from anabranch.frontier.composition import clear_filter
from anabranch.frontier.times import counted, steady_clock

log = structlog.get_logger(__name__)

_UNFIT_FOR_NAMES = re.compile(r"[^A-Za-z0-9._-]+")
#: A machine's clock may differ from the server's by so much without a warning.
_CLOCK_SLACK_S = 5.0


async def crawl_shared(
    wanted: Wanted,
    job: JobFolder,
    hooks: RunHooks,
    machine_s: Callable[[], float],
    address: Path | str,
    begins: Callable[[CrawlController], None] = lambda _: None,
) -> int:
    """Join the workers of the job at this address and crawl; the exit code. Raises: as `join` and a crawl do.

    `machine_s` is the machine's clock; `begins` is called with the controller before it runs.
    """
    order = wanted.order
    with closing(JobDatabase(address)) as database:
        worker, joined = await asyncio.to_thread(_join, database, wanted, job)
        hooks.notify(_joined_line(database, joined))
        if abs(joined.now_s - machine_s()) > _CLOCK_SLACK_S:
            off = f"{machine_s() - joined.now_s:+.0f} s"
            log.warning("this machine's clock differs from the server's, which counts for the crawl", differs_by=off)
        shared = await asyncio.to_thread(SharedRun, database, order, joined, worker.token)
        uploading = None
        if order.write.warc and order.write.upload and job.has_own_warc:
            uploading = Uploading(job, f"{order.write.upload.rstrip('/')}/{joined.name}", shared.register)

        async def watch(frontier: AsyncFrontier, statistics: CrawlStatistics) -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(shared.watch(frontier, statistics), name="job")
                if uploading is not None:
                    group.create_task(uploading.watch(), name="uploads")

        own = replace(hooks, show=shared.shown(hooks.show), watch=watch, control=shared.control, share=shared.share)
        clock = steady_clock(epoch=lambda: joined.now_s)
        controller = CrawlController(order, job, wanted.seeds, own, clock)
        begins(controller)
        code = await controller.run()
        if uploading is not None:
            await uploading.finish()
        return code


def _join(database: JobDatabase, wanted: Wanted, job: JobFolder) -> tuple[WorkerOfFolder, Joined]:
    """Join as the worker of this folder. Clears the filter of an earlier round."""
    order = wanted.order
    worker = worker_of(job.state)
    if worker is None:
        worker = WorkerOfFolder(secrets.token_hex(8))
        note_worker(job.state, worker)
    name = order.job.worker or worker.name or _UNFIT_FOR_NAMES.sub("-", socket.gethostname()).strip("-.") or "worker"
    joined = join(database, wanted, Applicant(name, worker.token, bool(order.job.worker), worker.job))
    with storage_errors(job.state):
        if current_round(job.state).number != joined.round:
            clear_filter(job.state)  # it knows the URLs of the round before
            order_round(job.state, joined.round)
    worker = worker._replace(name=joined.name, job=joined.job)
    note_worker(job.state, worker)
    return worker, joined


def _joined_line(database: JobDatabase, joined: Joined) -> str:
    words = "the first at work" if joined.is_first else "others are at work"
    added = f"; {counted(joined.added, 'seed')} added" if joined.added else ""
    return f"worker {joined.name} of the job in {database.place}, {words}{added}"
