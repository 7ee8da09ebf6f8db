"""The worker pool: each worker takes a lease, runs the chain, and always disposes of the visit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

import structlog

from anabranch.crawler.chain import Processor, chain_of, run_chain
from anabranch.crawler.outcomes.errors import CrawlerError
from anabranch.crawler.outcomes.exhaustion import lacks_memory
from anabranch.crawler.outcomes.failures import FetchError
from anabranch.crawler.outcomes.ownfunctions import OwnFunctionFailed
from anabranch.crawler.reporting.statistics import CrawlStatistics, WorkerBoard
from anabranch.crawler.visit import Visit
from anabranch.frontier.aio import AsyncFrontier, Drained
from anabranch.frontier.cancellation import to_the_end
from anabranch.frontier.errors import FrontierError, LeaseLost
from anabranch.frontier.models import Lease, Outcome, OutcomeKind

log = structlog.get_logger(__name__)

Dispose = Callable[[Visit], Coroutine[Any, Any, OutcomeKind | None]]


class PageLimit:
    """At most so many pages: one ticket each, taken before the lease and given back if no page came of it."""

    def __init__(self, pages: int | None, on_reached: Callable[[], None]) -> None:
        self._tickets = None if pages is None else asyncio.Semaphore(pages)
        self._left = pages
        self._on_reached = on_reached
        self._waiting = 0
        if pages == 0:
            on_reached()

    async def take(self) -> None:
        """Wait for a ticket."""
        if self._tickets is None:
            return
        self._waiting += 1
        try:
            await self._tickets.acquire()
        finally:
            self._waiting -= 1

    def settle(self, *, is_page: bool) -> None:
        """A page came of the ticket, or it is given back."""
        if self._tickets is None or self._left is None:
            return
        if not is_page:
            self._tickets.release()
            return
        self._left -= 1
        if self._left == 0:
            self._on_reached()

    def lift(self) -> None:
        """There is no limit any more; whoever waits for a ticket goes on."""
        if self._tickets is not None:
            for _ in range(self._waiting):
                self._tickets.release()
        self._tickets = self._left = None

    def wake_all(self, waiters: int) -> None:
        """Let everybody through who waits for a ticket: the Frontier hands out no more leases."""
        for _ in range(waiters if self._tickets is not None else 0):
            self.settle(is_page=False)


class WorkerPool:
    """N workers over one Frontier."""

    def __init__(
        self,
        frontier: AsyncFrontier,
        chain: Sequence[Processor],
        dispose: Dispose,
        statistics: CrawlStatistics,
        limit: PageLimit,
        board: WorkerBoard,
    ) -> None:
        self._frontier = frontier
        self._chain = chain_of(chain)
        self._dispose = dispose
        self._statistics = statistics
        self._limit = limit
        self._board = board

    def wake_all(self, workers: int) -> None:
        """Leasing has stopped: nobody need wait for a ticket."""
        self._limit.wake_all(workers)

    async def work(self, number: int) -> None:
        """Be a worker until the Frontier is drained or stopped. Raises what is not a site's fault."""
        while True:
            await self._limit.take()
            is_page = False
            try:
                lease = await self._frontier.lease()
                is_page = await self._visit(lease, number)
            except Drained:
                return
            finally:
                self._limit.settle(is_page=is_page)

    async def _visit(self, lease: Lease, number: int) -> bool:
        """Run the chain, then dispose; True if a page came of it. A cancelled chain gives the lease back."""
        visit = Visit(lease, number)
        self._statistics.active += 1
        self._board.begin(number, lease.url, lease.attempts)
        try:
            try:
                await self._run(visit)
            except asyncio.CancelledError:
                self._give_back(lease)
                raise
            self._board.enter(number, "disposition")
            return await to_the_end(self._dispose(visit)) is OutcomeKind.DONE
        finally:
            visit.close()
            self._board.end(number)
            self._statistics.active -= 1

    def _give_back(self, lease: Lease) -> None:
        """A chain was cancelled: the URL is first again, and its slot rests, since a fetch may have been under way."""
        tried = Outcome(kind=OutcomeKind.DEFERRED, start_s=lease.since_s, end_s=self._frontier.core.now_s())
        with suppress(LeaseLost):  # its time was up: the URL is queued already
            self._frontier.finish(lease, tried)

    async def _run(self, visit: Visit) -> None:
        """Run the chain; what a page or a site does wrong ends in the visit, not in the worker; a lack of memory is neither."""
        try:
            await run_chain(self._chain, visit, self._board)
        except FetchError as error:
            visit.failure = error
        except (CrawlerError, FrontierError):
            raise
        except OwnFunctionFailed as error:
            visit.broken = error
            log.exception(f"{error.role.words} failed", url=visit.lease.url, function=error.name)
        except Exception as error:
            if lacks_memory(error):
                raise
            visit.broken = error
            log.exception("processor failed", url=visit.lease.url)
