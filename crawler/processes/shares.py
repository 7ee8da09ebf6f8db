"""The shares of a job as processes: each is kept running until it has ended in order, or cannot go on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import structlog

from anabranch.crawler.outcomes.endings import WhyEnded
from anabranch.crawler.outcomes.errors import CrawlerError, ExitCode
from anabranch.crawler.processes.channel import ChannelClosed, Message
from anabranch.crawler.processes.children import Child
from anabranch.crawler.processes.nursery import Nursery
from anabranch.crawler.processes.postoffice import THERE
from anabranch.crawler.processes.share import STOP
from anabranch.crawler.run.control import ControlRefused

log = structlog.get_logger(__name__)

#: How often a share is started again in one run.
RESTARTS = 5


class ShareDied(CrawlerError):
    """A process of the crawl dies again and again."""


#: What a share has said; the facts go back to it if it asked.
HandleOf = Callable[[int, Message], Awaitable[Mapping[str, Any] | None]]


class Shares:
    """All of them. A process that dies is started again, up to `RESTARTS` times each."""

    def __init__(
        self, count: int, loop: str, nursery: Nursery, start: Callable[[int], Mapping[str, Any]], handle: HandleOf
    ) -> None:
        """`start` answers what a process is told when it begins, `loop` names its event loop."""
        self.count = count
        self._loop = loop
        self.ready: dict[int, Child] = {}  #: that are open: they take parcels and answer
        self.ended: dict[int, Mapping[str, Any]] = {}  #: how the runs were that ended in order
        self.failure: CrawlerError | None = None  #: why the crawl cannot go on
        self.ending: WhyEnded | None = None  #: why it is to end
        self._at_once = False
        self._nursery = nursery
        self._start = start
        self._handle = handle
        self._running: dict[int, Child] = {}
        self._lives: dict[int, int] = {}

    async def run(self) -> None:
        """Start all; return when none runs any more."""
        async with asyncio.TaskGroup() as keeping:
            for share in range(self.count):
                keeping.create_task(self._keep(share), name=f"share-{share}")

    def stop(self, ending: WhyEnded, *, at_once: bool = False) -> None:
        """End all in order; the first reason counts, unless it is now to end at once."""
        if self.ending is None or (at_once and not self._at_once):
            self.ending = ending
        self._at_once = self._at_once or at_once
        for child in self._running.values():
            self._tell_stop(child)

    def fail(self, failure: CrawlerError) -> None:
        """The crawl cannot go on: end all in order."""
        self.failure = self.failure or failure
        self.stop(WhyEnded.SIGNAL)

    def end(self) -> None:
        """Nothing is left anywhere: all end by themselves."""
        self.ending = WhyEnded.FINISHED
        self.post("end")

    def is_ready(self, share: int) -> None:
        """A share is open; who has something for it may send."""
        self.ready[share] = self._running[share]
        for other, child in self.ready.items():
            if other != share:
                child.channel.post(THERE, share=share)
                self.ready[share].channel.post(THERE, share=other)

    def post(self, kind: str, **facts: Any) -> None:
        """Say it to all that are open."""
        for child in self.ready.values():
            child.channel.post(kind, **facts)

    async def ask(self, share: int, kind: str, body: bytes = b"", **facts: Any) -> Mapping[str, Any] | None:
        """The reply of a share; None if it is not open, or dies meanwhile."""
        child = self.ready.get(share)
        if child is None:
            return None
        try:
            return await child.channel.ask(kind, body, **facts)
        except ChannelClosed:
            return None

    async def ask_all(self, kind: str, **facts: Any) -> dict[int, Mapping[str, Any]]:
        """The replies of all that are open and answer."""
        asked = sorted(self.ready)
        replies = await asyncio.gather(*(self.ask(share, kind, **facts) for share in asked))
        return {share: reply for share, reply in zip(asked, replies, strict=True) if reply is not None}

    async def tell_all(self, kind: str, **facts: Any) -> None:
        """Say it to every share; return when those that are open have heard it. One that is being opened hears it then."""
        for share, child in self._running.items():
            if share not in self.ready:
                child.channel.post(kind, **facts)
        await self.ask_all(kind, **facts)

    async def _keep(self, share: int) -> None:
        while self.ending is None:
            self._lives[share] = self._lives.get(share, 0) + 1
            try:
                child = await Child.start(share, self._loop, self._nursery)
            except OSError as error:
                self.fail(CrawlerError(f"a process of the crawl cannot be started: {error.strerror}; start fewer"))
                return
            if await self._lived(child):
                return
            if self.ending is None and self._lives[share] > RESTARTS:
                self.fail(
                    ShareDied(f"process {child.pid} of share {share} has died, as {RESTARTS} before it; see the log")
                )

    async def _lived(self, child: Child) -> bool:
        """Hear a process to its end; False if it died."""
        share = child.share
        self._running[share] = child  # with what it is told at first: nothing that is said to all comes in between
        child.begin(self._start(share))
        if self.ending is not None:
            self._tell_stop(child)
        try:
            await child.run(partial(self._handle, share))
        finally:
            del self._running[share]
            self.ready.pop(share, None)
        if child.ended is not None:
            self.ended[share] = child.ended
            if self.ending is None:
                self.stop(WhyEnded.SIGNAL)  # somebody has ended this one alone
        elif child.failed is not None:
            self.fail(ControlRefused(str(child.failed["error"]), ExitCode(child.failed["code"])))
        else:
            is_last = self.ending is not None or self._lives[share] > RESTARTS
            then = "" if is_last else "; it is started again"
            log.warning(f"a process of the crawl has died{then}", share=share, pid=child.pid)
            return False
        return True

    def _tell_stop(self, child: Child) -> None:
        assert self.ending is not None
        child.channel.post(STOP, ending=self.ending.name, at_once=self._at_once)
