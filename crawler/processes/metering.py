"""Limits that hold for the job as a whole, though several processes fetch.

Pages: each visit takes a ticket from the parent after its lease and before its fetch, and gives it back if no page comes of it;
so there is not one page too many. Bytes: a share tells what it has fetched with each page, and the parent ends the crawl; what
is being fetched at that moment is beyond the limit, as with one process.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping

from anabranch.crawler.processes.channel import Channel
from anabranch.crawler.report.statistics import CrawlStatistics
from anabranch.crawler.visit import Chain, ChainDecision, Dispose, Step, Visit
from anabranch.frontier.records import OutcomeKind

TICKET, SETTLED, FETCHED = "ticket", "settled", "fetched"


class Meter:
    """A share's side. Costs nothing where there is no limit."""

    def __init__(self, channel: Channel, *, pages: bool, fetched_bytes: bool) -> None:
        self._channel = channel
        self._pages = pages
        self._bytes = fetched_bytes
        self._over = asyncio.Event()

    def metered(self, chain: Chain, dispose: Dispose, statistics: CrawlStatistics) -> tuple[Chain, Dispose]:
        """The same chain and disposition, as far as the limits have to hear of them."""
        if self._pages:
            chain, dispose = (("_ticket", self._ticket), *chain), self._settling(dispose)
        if self._bytes:
            dispose = self._counting(dispose, statistics)
        return chain, dispose

    def end(self) -> None:
        """The run is stopped: whoever waits for a ticket gives the lease back."""
        self._over.set()

    async def _ticket(self, visit: Visit) -> Step:
        """Wait for a ticket, or for the end of the run."""
        asked = asyncio.create_task(self._channel.ask(TICKET))
        over = asyncio.create_task(self._over.wait())
        try:
            await asyncio.wait({asked, over}, return_when=asyncio.FIRST_COMPLETED)
            if asked.done():
                await asked  # raises if the parent has gone
                return Step.PROCEED
        finally:
            asked.cancel()
            over.cancel()
        visit.decide(ChainDecision.RELEASED)
        return Step.STOP

    def _settling(self, dispose: Dispose) -> Dispose:
        async def settled(visit: Visit) -> OutcomeKind | None:
            kind = await dispose(visit)
            if not (visit.decision is ChainDecision.RELEASED and self._over.is_set()):
                self._channel.post(SETTLED, is_page=kind is OutcomeKind.DONE)
            return kind

        return settled

    def _counting(self, dispose: Dispose, statistics: CrawlStatistics) -> Dispose:
        async def counted(visit: Visit) -> OutcomeKind | None:
            kind = await dispose(visit)
            self._channel.post(FETCHED, bytes=statistics.fetched_bytes)
            return kind

        return counted


class PageTickets:
    """The parent's side for pages: as many tickets as pages are left, in all shares together.

    None are handed out until every share has said how many pages it has.
    """

    def __init__(self, pages: int, shares: int, on_reached: Callable[[], None]) -> None:
        self._pages: int | None = pages
        self._shares = shares
        self._on_reached = on_reached
        self._done: dict[int, int] = {}
        self._out: dict[int, int] = {}
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def begin(self, share: int, done: int) -> None:
        """A share has begun with so many pages; tickets that an earlier process of it had count no more."""
        self._done[share], self._out[share] = done, 0
        self._serve()

    async def take(self, share: int) -> None:
        """Wait for a ticket."""
        if self._pages is None:
            return
        ticket: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((share, ticket))
        self._serve()
        await ticket

    def settle(self, share: int, *, is_page: bool) -> None:
        """A page came of a ticket, or it is back."""
        self._out[share] = max(self._out.get(share, 0) - 1, 0)
        self._done[share] = self._done.get(share, 0) + is_page
        self._serve()

    def lift(self) -> None:
        """There is no limit any more."""
        self._pages = None
        self._serve()

    def _serve(self) -> None:
        if self._pages is not None and len(self._done) < self._shares:
            return
        while self._waiting and (self._pages is None or self._left > 0):
            share, ticket = self._waiting.popleft()
            if not ticket.done():
                self._out[share] = self._out.get(share, 0) + 1
                ticket.set_result(None)
        if self._pages is not None and sum(self._done.values()) >= self._pages:
            self._on_reached()

    @property
    def _left(self) -> int:
        assert self._pages is not None
        return self._pages - sum(self._done.values()) - sum(self._out.values())


class BytesLimit:
    """The parent's side for bytes."""

    def __init__(self, fetched_bytes: int, on_reached: Callable[[], None]) -> None:
        self._limit: int | None = fetched_bytes
        self._on_reached = on_reached
        self._earlier: dict[int, int] = {}
        self._now: dict[int, int] = {}

    def begin(self, share: int, fetched_bytes: int) -> None:
        """A share has begun, having fetched so much in earlier runs."""
        self._earlier[share], self._now[share] = fetched_bytes, 0
        self._look()

    def fetched(self, share: int, facts: Mapping[str, int]) -> None:
        """A share has fetched so much in this run."""
        self._now[share] = facts["bytes"]
        self._look()

    def lift(self) -> None:
        """There is no limit any more."""
        self._limit = None

    def _look(self) -> None:
        total = sum(self._earlier.values()) + sum(self._now.values())
        if self._limit is not None and total >= self._limit:
            self._on_reached()
