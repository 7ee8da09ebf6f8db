"""Limits that hold for the job as a whole, though several workers fetch.

Pages: each visit takes a ticket after its lease and before its fetch, and gives it back if no page comes of it. A worker has
tickets for some pages in all since it joined, a number in its row of `job_worker`. Tickets that were not used are free again
when the worker's lease has ended, because its pages are counted in the transactions that end them: the limit is exact.

Bytes: each worker writes what it has fetched; what is being fetched at the limit is beyond it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from sqlalchemy import Connection

from anabranch.crawler.cluster.database import execute, fetch, lock_job
from anabranch.crawler.visit import Chain, ChainDecision, Dispose, Step, Visit
from anabranch.frontier.records import OutcomeKind

#: Tickets that a worker takes at a time, at most: a block shrinks with what is left, so that none wait at one worker.
_MOST_AT_ONCE = 1000
_PART = 4


class UsedLimits(NamedTuple):
    """The amounts of the job's limits that all workers together have used."""

    pages: int
    fetched_bytes: int


class WorkerTickets:
    """One worker's tickets, for one event loop. `on_short` is called when a visit waits for one."""

    def __init__(self, on_short: Callable[[], None]) -> None:
        self._granted = 0  #: since the worker joined, as its row says
        self._done = 0  #: pages that came of them
        self._out = 0  #: at visits
        self._waiting: deque[asyncio.Future[bool]] = deque()
        self._on_short = on_short
        self._is_limited = True
        self._was_short = False
        self._is_ended = False

    @property
    def short(self) -> int:
        """Visits that wait for a ticket."""
        return len(self._waiting)

    async def take(self) -> bool:
        """Wait for a ticket; False: the run ends, and there is none."""
        self._was_short = True
        if self._is_ended:
            return False
        if self._is_limited and self._free <= 0:
            ticket: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
            self._waiting.append(ticket)
            self._on_short()
            return await ticket
        self._out += 1
        return True

    def settle(self, *, is_page: bool) -> None:
        """A page came of a ticket, or it is free again."""
        self._out -= 1
        self._done += is_page
        self._serve()

    def grant(self, granted: int) -> None:
        """The worker has so many in all since it joined."""
        self._granted = granted
        self._serve()

    def give_back(self) -> int | None:
        """Give up tickets unused since the last call; how many remain granted, None: all."""
        was_short, self._was_short = self._was_short, False
        if was_short or self._waiting or self._free <= 0:
            return None
        self._granted -= self._free
        return self._granted

    def end(self) -> None:
        """The run ends: visits that wait, or come later, give their leases back."""
        self._is_ended = True
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(False)

    def lift(self) -> None:
        """There is no limit any more."""
        self._is_limited = False
        self._serve()

    def limit(self) -> int:
        """There is a limit from now on; the tickets that pages of before need, which `hold_tickets` notes."""
        if not self._is_limited:
            self._is_limited = True
            self._granted = max(self._granted, self._done + self._out)
        return self._granted

    @property
    def _free(self) -> int:
        return self._granted - self._done - self._out

    def _serve(self) -> None:
        while self._waiting and (self._free > 0 or not self._is_limited):
            waiter = self._waiting.popleft()
            if not waiter.done():
                self._out += 1
                waiter.set_result(True)

    def metered(self, chain: Chain, dispose: Dispose) -> tuple[Chain, Dispose]:
        """Return the chain with a first step that takes a ticket, and the disposition with a last step that settles it."""

        async def ticket(visit: Visit) -> Step:
            if await self.take():
                return Step.PROCEED
            visit.decide(ChainDecision.RELEASED)
            without.add(id(visit))
            return Step.STOP

        async def settled(visit: Visit) -> OutcomeKind | None:
            kind = await dispose(visit)
            if id(visit) in without:
                without.discard(id(visit))
            else:
                self.settle(is_page=kind is OutcomeKind.DONE)
            return kind

        without: set[int] = set()
        return (("_ticket", ticket), *chain), settled


# In a transaction


def granted(connection: Connection, epoch: int) -> int:
    """The tickets of a worker since it joined."""
    rows = fetch(connection, "SELECT tickets FROM job_worker WHERE epoch = :epoch", epoch=epoch)
    return int(rows[0][0]) if rows else 0  # another round has begun


def take_tickets(connection: Connection, epoch: int, pages: int, wanted: int) -> int:
    """Give a worker up to so many more tickets, fewer if few are left; how many it has since it joined."""
    lock_job(connection)
    left = pages - _pages_and_tickets(connection)
    ((live,),) = fetch(connection, "SELECT count(*) FROM worker WHERE until_s > 0")
    block = min(left // (_PART * max(live, 1)), _MOST_AT_ONCE)
    more = min(left, max(block, min(wanted, max(left // max(live, 1), 1))))
    if more > 0:
        execute(
            connection,
            "UPDATE job_worker SET tickets = tickets + :more WHERE epoch = :epoch",
            more=more,
            epoch=epoch,
        )
    return granted(connection, epoch)


def keep_tickets(connection: Connection, epoch: int, tickets: int) -> None:
    """A worker needs no more than so many since it joined."""
    execute(
        connection,
        "UPDATE job_worker SET tickets = :tickets WHERE epoch = :epoch AND tickets > :tickets",
        tickets=tickets,
        epoch=epoch,
    )


def hold_tickets(connection: Connection, epoch: int, tickets: int) -> None:
    """A worker has so many since it joined, at least: it fetched without a limit before."""
    execute(
        connection,
        "UPDATE job_worker SET tickets = :tickets WHERE epoch = :epoch AND tickets < :tickets",
        tickets=tickets,
        epoch=epoch,
    )


def used(connection: Connection) -> UsedLimits:
    """Return the amounts that all workers have used, those that have ended included."""
    ((pages, fetched),) = fetch(
        connection,
        "SELECT (SELECT coalesce(sum(done), 0) FROM worker), (SELECT coalesce(sum(bytes), 0) FROM job_worker)",
    )
    return UsedLimits(int(pages), int(fetched))


def _pages_and_tickets(connection: Connection) -> int:
    """Pages that are done, or that a live worker has a ticket for."""
    ((total,),) = fetch(
        connection,
        """SELECT coalesce(sum(CASE WHEN until_s > 0 AND tickets > done THEN tickets ELSE done END), 0)
           FROM worker LEFT JOIN job_worker ON job_worker.epoch = worker.epoch""",
    )
    return int(total)
