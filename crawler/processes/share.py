"""The process of one share: a whole crawl of the hosts that are its own, told by its parent when to begin and when to end."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from anabranch.crawler.job.folder import JobFolder, wait_until_free
from anabranch.crawler.job.state import note_division
from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.outcomes.endings import FORESEEABLE, WhyEnded, failure_code
from anabranch.crawler.outcomes.errors import ExitCode, storage_errors
from anabranch.crawler.outcomes.userfunctions import import_first_from
from anabranch.crawler.processes.channel import Channel, Message
from anabranch.crawler.processes.metering import Meter
from anabranch.crawler.processes.postoffice import PostOffice
from anabranch.crawler.processes.seedbook import SharedBook, seeds_of
from anabranch.crawler.report.logs import closing_logs, configure_logs
from anabranch.crawler.report.progress import CrawlSnapshot
from anabranch.crawler.run.composition import JobShare
from anabranch.crawler.run.controller import CrawlController, RunHooks
from anabranch.crawler.run.signals import ignore_harmless
from anabranch.crawler.run.summing import run_facts, snapshot_facts
from anabranch.crawler.runtime import LoopName, loop_factory, tune_interpreter
from anabranch.frontier.division.ownership import Division

#: What the parent says, and what a share says of itself.
START, STOP, REOPEN, ENDED, FAILED, SNAPSHOT = "start", "stop", "reopen", "ended", "failed", "snapshot"
#: Between two snapshots.
SNAPSHOT_S = 0.5


def main() -> None:
    """Crawl a share, on the socket whose descriptor is the first argument; the second is the event loop's name."""
    sys.exit(live(socket.socket(fileno=int(sys.argv[1])), sys.argv[2]))


def live(end: socket.socket, loop: str) -> int:
    """Crawl a share, told by whoever has the other end of the socket; the exit code. Ends as soon as that one has gone."""
    ignore_harmless()
    tune_interpreter()
    with asyncio.Runner(loop_factory=loop_factory(_loop_name(loop))) as runner:
        return runner.run(_run(end))


def _loop_name(typed: str) -> LoopName:
    return "uvloop" if typed == "uvloop" else "asyncio" if typed == "asyncio" else "auto"


async def _run(end: socket.socket) -> int:
    channel = await Channel.over(end)
    share = Share(channel)
    listening = asyncio.create_task(channel.run(share.handle))
    listening.add_done_callback(lambda _: share.orphaned())
    try:
        return await share.run()
    finally:
        await channel.close()
        listening.cancel()
        with suppress(asyncio.CancelledError):
            await listening


class Share:
    """Between the parent's messages and the crawl."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._started: asyncio.Future[tuple[Mapping[str, Any], PostOffice, SharedBook]]
        self._started = asyncio.get_running_loop().create_future()
        self._stop: Callable[[WhyEnded, bool], None] = self._stop_later
        self._reopen: Callable[[], None] = lambda: None  # what is not open is opened
        self._is_to_stop: tuple[WhyEnded, bool] | None = None  # what was said before there was a crawl

    async def run(self) -> int:
        """Crawl when the parent says so; every foreseeable error is told to it."""
        start, office, book = await self._started
        order = CrawlOrder.model_validate(start["order"])
        import_first_from(order.job.modules)
        file = Path(order.logs.file) if order.logs.file else None
        with closing_logs(configure_logs(start["verbosity"], style=order.logs.format, file=file)):
            try:
                self._channel.post(ENDED, **await self._crawl(order, start, office, book))
            except FORESEEABLE as error:
                self._channel.post(FAILED, error=str(error), code=failure_code(error))
                return failure_code(error)
        return ExitCode.DONE

    async def handle(self, message: Message) -> Mapping[str, Any] | None:
        """What the parent says."""
        if message.kind == START:
            book = SharedBook(seeds_of(message.facts["seeds"]), self._channel)
            office = PostOffice(self._channel, _division(message.facts), book)
            self._started.set_result((message.facts, office, book))
            return None
        if message.kind == STOP:
            self._stop(WhyEnded[message.facts["ending"]], message.facts["at_once"])
            return None
        if message.kind == REOPEN:
            self._reopen()
            return None
        _, office, _ = await asyncio.shield(self._started)
        return await office.handle(message)

    def orphaned(self) -> None:
        """The parent has gone: nobody is left to exchange with, or to tell."""
        if not self._started.done():
            os._exit(ExitCode.FORCED)
        self._stop(WhyEnded.SIGNAL, True)

    async def _crawl(
        self, order: CrawlOrder, start: Mapping[str, Any], office: PostOffice, book: SharedBook
    ) -> dict[str, Any]:
        """Crawl; how it was."""
        directory = Path(start["directory"])
        limits = start["limits"]
        meter = Meter(self._channel, pages=limits["pages"], fetched_bytes=limits["bytes"])
        division = _division(start)
        share = JobShare(
            book=book,
            owns=lambda url: division.owner_of_url(url) == division.share,
            metered=meter.metered,
            on_opened=office.opened,
            on_progress=office.telling,
        )
        hooks = RunHooks(
            notify=_keep_quiet,
            show=self._show,
            force_exit=lambda: os._exit(ExitCode.FORCED),
            is_last=True,
            watch=office.watch,
            control=office.control,
            share=share,
        )
        with await asyncio.to_thread(_opened, directory, division) as job:
            job.write_warc_to(Path(start["warc"]))
            controller = CrawlController(order, job, (), hooks)
            self._begin_to_heed(controller, meter)
            await controller.run()
        assert controller.facts is not None
        return {**run_facts(controller.facts), "is_clear": office.is_clear, "progress": await office.progress()}

    def _begin_to_heed(self, controller: CrawlController, meter: Meter) -> None:
        """From now on there is something to stop."""

        def stop(ending: WhyEnded, at_once: bool) -> None:
            controller.stop(ending, at_once=at_once)
            meter.end()

        self._stop, self._reopen = stop, controller.reopen_logs
        if self._is_to_stop is not None:
            stop(*self._is_to_stop)

    def _stop_later(self, ending: WhyEnded, at_once: bool) -> None:
        self._is_to_stop = (ending, at_once)

    async def _show(self, take: Callable[[], CrawlSnapshot]) -> None:
        """Tell the parent now and then how the crawl is doing, until cancelled."""
        while True:
            self._channel.post(SNAPSHOT, **snapshot_facts(take()))
            await asyncio.sleep(SNAPSHOT_S)


def _opened(directory: Path, division: Division) -> JobFolder:
    """The share's folder. A process of a parent that died may still be ending: its share is waited for (blocks)."""
    with storage_errors(directory):
        if (directory / "state" / "lock").exists():
            wait_until_free(directory)
    job = JobFolder.open(directory)
    try:
        with storage_errors(directory):
            note_division(job.state, division)
    except BaseException:
        job.close()
        raise
    return job


def _division(start: Mapping[str, Any]) -> Division:
    return Division(share=start["share"], shares=start["shares"])


def _keep_quiet(_text: str) -> None:
    """The parent says what there is to say."""
