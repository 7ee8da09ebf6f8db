"""A share's dealings with the others while it crawls: links out and in, seeds, questions, and whether it is quiet."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.crawler.job.seeding import CHUNK
from anabranch.crawler.processes.channel import Channel, Message
from anabranch.crawler.processes.delivery import Delivery, Send
from anabranch.crawler.processes.quiescence import Quiet
from anabranch.crawler.processes.seedbook import SharedBook, seeds_of
from anabranch.crawler.report.statistics import CrawlStatistics
from anabranch.crawler.run.control import Answer, reply_to
from anabranch.crawler.run.summing import progress_facts
from anabranch.frontier.aio import AsyncFrontier, AsyncShare
from anabranch.frontier.division.ownership import Division
from anabranch.frontier.division.parcels import Consigned, unpacked
from anabranch.frontier.errors import FrontierError

if TYPE_CHECKING:
    from anabranch.crawler.run.composition import ProgressSource, RunParts

#: What is said between a share and its parent of the crawl.
READY, DELIVER, PARCEL, THERE, QUIET, VERB = "ready", "deliver", "parcel", "there", "quiet", "verb"
PROGRESS = "progress"


class PostOffice:
    """One share's. Everything waits until the share is open."""

    def __init__(self, channel: Channel, division: Division, book: SharedBook) -> None:
        self._channel = channel
        self._division = division
        self._book = book
        self._open: asyncio.Future[RunParts] = asyncio.get_running_loop().create_future()
        self._answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._tell: asyncio.Future[ProgressSource] = asyncio.get_running_loop().create_future()
        others = [share for share in range(division.shares) if share != division.share]
        self._deliveries: dict[int, Delivery] = {}
        self._others = others
        self._is_crawling = False
        self._stirred = 0
        self._is_told = False  # the parent knows that this share is quiet
        self._has_failed = asyncio.Event()
        self._failure: FrontierError | None = None  # why what another share sent cannot be taken

    # For the run

    def opened(self, parts: RunParts) -> None:
        """All is open: others may send. Links that wait for them are sent from now on."""
        share = _share(parts)
        for other in self._others:
            self._deliveries[other] = Delivery(share, other, self._sender(other))
        share.exchange.on_parcel(lambda other: self._deliveries[other].wake())
        share.on_drained = self._look_soon
        self._open.set_result(parts)
        now = share.core.counts()
        has = {name: getattr(now, name) for name in ("pending", "done", "failed", "disregarded", "retired")}
        self._channel.post(READY, bytes=parts.fetched_bytes, **has)

    async def watch(self, _frontier: AsyncFrontier, _statistics: CrawlStatistics) -> None:
        """Send while the workers work, until cancelled. Raises: what keeps this share from taking what others send."""
        self._is_crawling = True
        async with asyncio.TaskGroup() as sending:
            for delivery in self._deliveries.values():
                sending.create_task(delivery.run(self._look), name="delivery")
            await self._has_failed.wait()
            assert self._failure is not None
            raise self._failure

    @asynccontextmanager
    async def control(self, _state: Path, answer: Answer) -> AsyncIterator[None]:
        """While inside, questions that come through the parent are answered."""
        self._answer.set_result(answer)
        yield

    def telling(self, tell: ProgressSource) -> None:
        """Now there is somebody who tells how the run is."""
        self._tell.set_result(tell)

    async def progress(self) -> dict[str, Any]:
        """How the run is, or was when it ended. Raises: StoreUnavailable."""
        tell = await asyncio.shield(self._tell)
        return progress_facts(await tell())

    @property
    def is_clear(self) -> bool:
        """Nothing waits for another share."""
        return len(self._deliveries) == len(self._others) and all(one.is_clear for one in self._deliveries.values())

    # For the parent

    async def handle(self, message: Message) -> Mapping[str, Any] | None:
        """What the parent says; the reply, if it asks."""
        facts = message.facts
        if message.kind == QUIET:
            return Quiet(self._is_quiet(), self._stirred, os.getpid())._asdict()
        parts = await asyncio.shield(self._open)
        match message.kind:
            case "parcel":
                return {"is_taken": await self._take(_share(parts), message.body)}
            case "there":
                self._deliveries[facts["share"]].wake()
            case "end":
                _share(parts).let_end()
            case "noted":
                seeds = seeds_of(facts["seeds"])
                self._book.note(seeds)
                parts.seeding.catch_up()
            case "verb":
                return await self._answered(facts)
            case "progress":
                return await reply_to(lambda *_: self.progress(), PROGRESS, {})
        return {}

    async def _take(self, share: AsyncShare, content: bytes) -> bool:
        """Take what another share has sent; True when all of it is durable. Waits while the store is behind."""
        try:
            for consigned in _parts_of(unpacked(content)):
                while not share.receive(consigned):
                    await share.flush()
                self._stir()
                await asyncio.sleep(0)
            await share.flush()
        except FrontierError as error:  # the run ends by it: who sent it would wait for ever
            self._failure = error
            self._has_failed.set()
            return False
        return True

    async def _answered(self, facts: Mapping[str, Any]) -> Mapping[str, Any]:
        answer = await asyncio.shield(self._answer)
        self._stir()
        try:
            return await reply_to(answer, facts["verb"], facts["arguments"])
        finally:
            self._look()

    def _sender(self, other: int) -> Send:
        async def send(content: bytes) -> bool:
            reply = await self._channel.ask(DELIVER, content, to=other)
            return bool(reply["is_taken"])

        return send

    # Quiet

    def _stir(self) -> None:
        self._stirred += 1
        self._is_told = False

    def _is_quiet(self) -> bool:
        return self._is_crawling and self._open.result().frontier.core.is_done and self.is_clear

    def _look_soon(self) -> None:
        asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        """Something may have ended: tell the parent, once, if nothing is left."""
        if not self._is_told and self._is_quiet():
            self._is_told = True
            self._channel.post(QUIET)


def _share(parts: RunParts) -> AsyncShare:
    share = parts.frontier
    assert isinstance(share, AsyncShare)
    return share


def _parts_of(pages: Iterable[Consigned]) -> Iterator[list[Consigned]]:
    """Pages in parts that keep the loop no longer than a chunk of seeds does."""
    part: list[Consigned] = []
    size = 0
    for page in pages:
        part.append(page)
        size += len(page.candidates)
        if size >= CHUNK:
            yield part
            part, size = [], 0
    if part:
        yield part
