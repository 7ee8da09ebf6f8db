"""The workers: each takes a lease, runs the chain, and always disposes of the visit.

`processors.chain` builds the chain, `processors.disposition` ends visits, `limits` sets the number of pages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Protocol

import structlog

from anabranch.crawler.outcomes.errors import CrawlerError, lacks_memory
from anabranch.crawler.outcomes.failures import FetchError, ServiceAway
from anabranch.crawler.outcomes.userfunctions import UserFunctionFailed
from anabranch.crawler.report.statistics import CrawlStatistics, WorkerBoard
from anabranch.crawler.run.limits import RunLimits
from anabranch.crawler.run.services import Services
from anabranch.crawler.visit import Chain, ChainDecision, Dispose, Step, Visit
from anabranch.frontier import AsyncFrontier, Drained
from anabranch.frontier.cancellation import to_the_end
from anabranch.frontier.errors import FrontierError, LeaseLost, PolicyError
from anabranch.frontier.records import Lease, Outcome, OutcomeKind

log = structlog.get_logger(__name__)


#: The step of a visit that waits for the program, and that of one that waits until it may fetch a page.
DELIVERY = "delivery"
TICKET = "page limit"


#: Writes the exchange of a visit to the WARC files, before its other records.
Archive = Callable[[Visit], Coroutine[Any, Any, None]]


class Delivery(Protocol):
    """Hands visits to a program before they are disposed of, see `api`."""

    async def wait_for_room(self) -> None:
        """Return when another page may be fetched."""

    async def deliver(self, visit: Visit) -> None:
        """Return when the program has seen the page; at once for a visit that it does not get."""

    def end(self) -> None:
        """No lease is handed out any more: wake all that wait for room."""


@dataclass(frozen=True, slots=True)
class WorkerPool:
    """N workers over one Frontier."""

    frontier: AsyncFrontier
    chain: Chain
    dispose: Dispose
    statistics: CrawlStatistics
    limits: RunLimits
    board: WorkerBoard
    delivery: Delivery | None = None  #: None: no program gets the pages
    services: Services | None = None  #: None: no service is waited for

    async def work(self, number: int) -> None:
        """Be a worker until the Frontier is drained or stopped. Raises what is not a site's fault."""
        while True:
            if self.delivery is not None:
                await self.delivery.wait_for_room()
            asked_s = perf_counter()
            try:
                lease = await self.frontier.lease()
            except Drained:
                return
            self.board.leases.add(perf_counter() - asked_s)
            await self._visit(lease, number)

    async def _visit(self, lease: Lease, number: int) -> None:
        """Run the chain, then dispose. A chain that is cancelled gives the lease back, and so does a visit without a ticket."""
        visit = Visit(lease, number)
        has_ticket = is_page = False
        if self.services is not None:
            self.services.begun(lease)
        self.statistics.begin_visit()
        self.board.begin(number, lease.url, lease.attempts)
        try:
            try:
                if self.limits.tickets.must_wait:
                    self.board.enter(number, TICKET)
                has_ticket = await self.limits.tickets.take()
                if has_ticket:
                    await self._run_chain(visit)
                else:
                    visit.decide(ChainDecision.RELEASED)
                if self.delivery is not None and has_ticket:
                    self.board.enter(number, DELIVERY)
                    await self.delivery.deliver(visit)
            except asyncio.CancelledError:
                # The URL is first again, and its slot rests, since a fetch may have been under way.
                tried = Outcome(kind=OutcomeKind.DEFERRED, start_s=lease.since_s, end_s=self.frontier.core.now_s())
                with suppress(LeaseLost):  # it has expired: the URL is queued already
                    self.frontier.finish(lease, tried)
                raise
            self.board.enter(number, "disposition")
            kind = await to_the_end(self.dispose(visit))
            if self.services is not None:
                self.services.ended(visit, kind)
            if kind is None:  # its URL may be leased again at once, so let other tasks run: one may stop this
                await asyncio.sleep(0)
            is_page = kind is OutcomeKind.DONE
        finally:
            if has_ticket:
                self.limits.settle(is_page=is_page)
            visit.close()
            self.board.end(number)
            self.statistics.end_visit()

    async def _run_chain(self, visit: Visit) -> None:
        """Pass the visit on until a processor stops it. Errors of a page, a site or a user function end in the visit."""
        try:
            for name, process in self.chain:
                self.board.enter(visit.worker, name)
                if await process(visit) is Step.STOP:
                    break
        except FetchError as error:
            self._fail(visit, error)
        except PolicyError as error:
            self._fail_by_policy(visit, error)
        except (CrawlerError, FrontierError):
            raise
        except UserFunctionFailed as error:
            visit.broke(error)
            log.exception(f"{error.role.words} failed", url=visit.lease.url, function=error.name)
        except Exception as error:
            if lacks_memory(error):
                raise
            visit.broke(error)
            log.exception("processor failed", url=visit.lease.url)
        self._prepare(visit)

    def _prepare(self, visit: Visit) -> None:
        """Ask the queue policies what they say of the visit's end, however it ends."""
        if self.services is not None:
            try:
                self.services.prepare(visit)
            except PolicyError as error:
                self._fail_by_policy(visit, error)

    def _fail_by_policy(self, visit: Visit, error: PolicyError) -> None:
        """Postpone a visit whose policy asks a service that is away. Raises: any other error of the policy."""
        away = error.__cause__
        if not isinstance(away, ServiceAway):
            raise error
        if visit.failure is not None:  # its fetch may have reached the host, whose slot rests
            away.timed(visit.failure.start_s, visit.failure.end_s)
        self._fail(visit, away)

    def _fail(self, visit: Visit, error: FetchError) -> None:
        if self.services is not None:
            error = self.services.judge(visit.lease, error)
        if isinstance(error, ServiceAway):
            visit.postponed(error)
        else:
            visit.failed(error)
