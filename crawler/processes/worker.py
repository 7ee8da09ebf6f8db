"""The process of one worker: it crawls its part of the job until its parent ends it, or has gone."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from time import time
from typing import Any, NamedTuple

from anabranch.crawler.cluster.agreement import Wanted
from anabranch.crawler.job.folder import JobFolder
from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.outcomes.endings import FORESEEABLE, WhyEnded, failure_code
from anabranch.crawler.outcomes.errors import ExitCode
from anabranch.crawler.outcomes.userfunctions import import_first_from
from anabranch.crawler.report.logs import closing_logs, configure_logs
from anabranch.crawler.run.controller import CrawlController
from anabranch.crawler.run.membership import Surroundings
from anabranch.crawler.run.shared_worker import crawl_shared
from anabranch.crawler.run.signals import ignore_harmless
from anabranch.crawler.run.summing import run_facts
from anabranch.crawler.runtime import LoopName, loop_factory, tune_interpreter


class WorkerTask(NamedTuple):
    """The task that the parent sends to a new process as JSON."""

    folder: str  #: of the worker
    file: str  #: of the job's Frontier
    warc: str  #: the folder of the job's archive
    order: Mapping[str, Any]  #: of the worker
    modules: str | None  #: the folder that user functions are imported from first


def main() -> None:
    """Work on the socket whose descriptor is the first argument; the second is the event loop's name."""
    sys.exit(live(socket.socket(fileno=int(sys.argv[1])), sys.argv[2]))


def live(end: socket.socket, loop: str) -> int:
    """Crawl as the task says that comes through the socket, and say there how it was; the exit code."""
    ignore_harmless()
    tune_interpreter()
    with asyncio.Runner(loop_factory=loop_factory(_loop_name(loop))) as runner:
        return runner.run(_work(end))


def _loop_name(typed: str) -> LoopName:
    return "uvloop" if typed == "uvloop" else "asyncio" if typed == "asyncio" else "auto"


async def _work(end: socket.socket) -> int:
    parent, writer = await asyncio.open_connection(sock=end, limit=1 << 24)
    line = await parent.readline()
    if not line:
        return ExitCode.FORCED  # the parent has gone before it began
    task = WorkerTask(**json.loads(line))
    order = CrawlOrder.model_validate(task.order)
    import_first_from(None if task.modules is None else Path(task.modules))
    file = Path(order.logs.file) if order.logs.file else None
    code: int = ExitCode.DONE
    with closing_logs(configure_logs(0, style=order.logs.format, file=file)):
        try:
            report = await _crawl(task, order, parent)
        except FORESEEABLE as error:
            code = failure_code(error)
            report = {"error": str(error), "code": code}
    with suppress(ConnectionError):  # the parent has gone
        writer.write(json.dumps(report).encode() + b"\n")
        await writer.drain()
    return code


async def _crawl(task: WorkerTask, order: CrawlOrder, parent: asyncio.StreamReader) -> dict[str, Any]:
    """Crawl, and return how the run was. When the parent has gone, give up the fetches and end."""
    controllers: list[CrawlController] = []

    async def watch_parent() -> None:
        await parent.read()
        for controller in controllers:
            controller.stop(WhyEnded.SIGNAL, at_once=True)
        os.kill(os.getpid(), signal.SIGTERM)  # while it is being opened, too

    watching = asyncio.create_task(watch_parent())
    try:
        with await asyncio.to_thread(JobFolder.open, Path(task.folder)) as job:
            job.write_warc_to(Path(task.warc))
            await crawl_shared(Wanted(order, leads=False), job, _Parent(), time, Path(task.file), controllers.append)
    finally:
        watching.cancel()
    (controller,) = controllers
    assert controller.facts is not None
    return {**run_facts(controller.facts), "ending": controller.ending.name, "detail": controller.detail}


class _Parent(Surroundings):
    """The parent of this process shows all workers together, and serves their metrics."""

    is_last = True
    serves_metrics = False
