"""One worker's run of a job that several crawl: what it does with the others while it crawls.

It looks at the job's rows a few times a second, because machines cannot notify each other: what the operator wants, commands,
seeds that others found, the job's limits. It writes how it is doing, from which the job's status is made. While the server is
away the crawl waits, and goes on by itself.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

import structlog
from sqlalchemy import Connection

from anabranch.crawler.accounts.accounts import MAX_KNOWN, Accounts, Counted
from anabranch.crawler.accounts.database import AccountsView, CountedRow
from anabranch.crawler.accounts.totals import Totals, host_counted
from anabranch.crawler.archive.uploads import Uploaded
from anabranch.crawler.cluster.agreement import Applicant, Joined, check_agreement, parsed_settings
from anabranch.crawler.cluster.commands import Wish, answer, asked_of, parsed_wish
from anabranch.crawler.cluster.outputs import put_output
from anabranch.crawler.cluster.payloads import SharedPayloads
from anabranch.crawler.cluster.tickets import (
    granted,
    hold_tickets,
    keep_tickets,
    take_bandwidth,
    take_tickets,
    used,
)
from anabranch.crawler.cluster.totals import (
    CountedTo,
    adopt_totals,
    all_totals,
    counting_name,
    fold_totals,
    put_counted,
    put_totals,
    totals_elsewhere,
    view_of,
)
from anabranch.crawler.extract.links import REDIRECT
from anabranch.crawler.job.database import JobDatabase, execute, fetch, server_time
from anabranch.crawler.job.folder import JobFolder
from anabranch.crawler.job.frontier import open_share_holder
from anabranch.crawler.job.seedtable import Seeds
from anabranch.crawler.order.changes import changed_order
from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.order.sections import UsedLimits, WriteSection
from anabranch.crawler.outcomes.errors import CrawlerError, DiskFull, storage_errors
from anabranch.crawler.report.progress_log import memory_of_process
from anabranch.crawler.report.statistics import CrawlStatistics
from anabranch.crawler.run.control import Answer, Responder
from anabranch.crawler.run.crawl_verbs import METRICS, PAUSE, RESUME, SET, STOP
from anabranch.crawler.run.membership import OpenedRun, ReportedRun
from anabranch.crawler.run.summing import snapshot_facts
from anabranch.crawler.run.verbs import Facts
from anabranch.crawler.visit import Chain, Step, Visit
from anabranch.frontier import Frontier, WorkerIdentity
from anabranch.frontier.errors import FrontierError, SharesLost, StoreUnavailable
from anabranch.frontier.policies.hosts import IpOf

log = structlog.get_logger(__name__)

#: Seconds between two looks at the job's rows.
LOOK_S = 0.2
#: Between two statuses that are written, and between two times that idle tickets are given back.
STATUS_S = 1.0
#: Between two times that the totals are written.
TOTALS_S = 10.0

#: What a worker does when the operator wants something of all.
_VERBS: Mapping[Wish, tuple[str, Mapping[str, Any]]] = {
    Wish.PAUSE: (PAUSE, {}),
    Wish.RESUME: (RESUME, {}),
    Wish.STOP: (STOP, {}),
    Wish.STOP_NOW: (STOP, {"now": True}),
}


class _News(NamedTuple):
    """The results of one look at the job's rows."""

    number: int  #: of the operator's last wish
    wish: Wish
    settings: list[list[str]]  #: changes of the order since the run began
    seeds: int  #: the number of seeds
    requests: Mapping[int, Mapping[str, Any]]  #: that it has not answered, by their numbers
    drains: bool
    used: UsedLimits | None  #: None: the job has no limits
    tickets: int  #: of this worker, since it joined
    bandwidth: int  #: bytes that it may read in addition


def _nothing_carried() -> None:
    """Follows a transaction that carried no counts."""


class SharedRun:
    """The part of one worker, for one run of the controller."""

    def __init__(
        self, database: JobDatabase, order: CrawlOrder, job: JobFolder, joined: Joined, who: Applicant
    ) -> None:
        self.name = order.job.name or database.name
        self.worker = joined.name
        # Processes of one machine have one disk, so no other worker could do better; on many machines others take over.
        self.retry_s = None if order.frontier.is_in_database else math.inf
        self._database = database
        self.state = database.address.parent if isinstance(database.address, Path) else job.state
        self._state = job.state
        self._who = who._replace(name=joined.name)
        self._order = order
        self._joined = joined
        self._identity = WorkerIdentity(
            name=joined.name, token=who.token, ttl_s=order.frontier.worker_lease_s, carry=self._carry_counts
        )
        self._counting_name = counting_name(joined.name, who.token)
        self._seeds = Seeds(database)
        self._epoch = 0
        self._bytes_before = 0  #: that this process fetched before it joined last
        self._obeyed = 0
        self._settings = 0  #: changes of the run that this worker's order has
        self._parts: OpenedRun | None = None
        self._payloads: SharedPayloads | None = None
        self._requests: Responder | None = None
        self._run: ReportedRun | None = None
        self._statistics: CrawlStatistics | None = None
        self._due = asyncio.Event()  # something is wanted of the rows now
        self._status_at_s = 0.0
        self._totals_at_s = 0.0
        self._elsewhere: dict[str, Totals] = {}  # what other workers counted for a host, when it was met here first
        self._is_drained = False

    @property
    def known_seeds(self) -> int:
        """Seeds of the job that this worker has read."""
        return len(self._seeds)

    @asynccontextmanager
    async def control(self, answer: Answer, status: ReportedRun, statistics: CrawlStatistics) -> AsyncIterator[None]:
        """While entered, commands of other machines can be answered."""
        self._requests = requests = Responder(answer)
        self._run, self._statistics = status, statistics
        try:
            yield
        except BaseException:
            with suppress(CrawlerError, FrontierError):  # the error that ends the run counts, not its consequences
                await self._leave(requests)
            raise
        await self._leave(requests)

    async def _leave(self, requests: Responder) -> None:
        """Answer what was asked, and write the last totals and status."""
        await requests.end()
        self._totals_at_s = min(self._totals_at_s, monotonic())
        await self._push_totals()
        with suppress(StoreUnavailable):  # the server is away: others see that this worker is gone
            write = partial(self._write_status, await self._status(), self._fetched_bytes)
            await asyncio.to_thread(self._database.do, write)

    async def watch(self) -> None:
        """Look at the job's rows again and again, until cancelled."""
        is_away = False
        while True:
            self._due.clear()
            try:
                look = await self._look_for(self._fetched_bytes)
                news = await asyncio.to_thread(self._database.do, look)
            except StoreUnavailable as error:
                if not self._database.is_passing(error):
                    raise
                if not is_away:
                    log.warning("the job's database is away; the crawl waits for it", reason=str(error))
                is_away = True
                self._status_at_s = 0.0  # the next look writes, too: one that only reads succeeds on a full disk
            else:
                is_away = False
                await self._follow(news)
                await self._push_totals()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._due.wait(), LOOK_S)
                await asyncio.sleep(LOOK_S / 10)  # visits that want a ticket come in numbers

    def register(self, arrived: Uploaded) -> None:
        """A file of this worker has arrived elsewhere: note that in a row; blocks. Raises: StoreUnavailable."""
        name, number = self._identity.name, self._joined.round
        self._database.do(partial(put_output, worker=name, number=number, arrived=arrived))

    @property
    def _fetched_bytes(self) -> int:
        """Since this worker joined last."""
        return 0 if self._statistics is None else self._statistics.fetched_bytes - self._bytes_before

    def stop(self) -> None:
        """Wait no longer for a server that is away: the run stops."""
        self._database.limit_retries()
        if self._parts is not None:
            self._parts.frontier.core.operations.limit_retries()
            self._parts.journal.limit_retries()

    def want_tickets(self) -> None:
        """Ask the rows for tickets at once."""
        self._due.set()

    # The run's parts

    def open_seeds(self, opened: AsyncExitStack) -> Seeds:
        """Those of the database, which stays open."""
        del opened
        return self._seeds

    def open_frontier(self, clock: Callable[[], float], ip_of: IpOf, on_change: Callable[[], None]) -> Frontier:
        """Join the job's workers; blocks. While the server is away it waits as long as a worker at work would.

        Raises: as `open_frontier`, OtherOrder, FolderCopied.
        """
        while True:
            try:
                return self._joined_frontier(clock, ip_of, on_change)
            except StoreUnavailable as error:
                if not self._database.may_try_again(error):
                    raise

    def _joined_frontier(self, clock: Callable[[], float], ip_of: IpOf, on_change: Callable[[], None]) -> Frontier:
        self._settings = check_agreement(self._database, self._order, self._joined.round, self._who)
        self._elsewhere.clear()
        self._seeds.reload()
        frontier = open_share_holder(
            self._state,
            self._order,
            self._identity,
            self._database.address,
            clock=clock,
            ip_of=ip_of,
            on_change=on_change,
        )
        try:
            self._database.do_patiently(self._enter)
            self._settings = check_agreement(self._database, self._order, self._joined.round, self._who)
        except BaseException:
            frontier.close()
            raise
        return frontier

    def _enter(self, connection: Connection) -> None:
        """Insert this worker's row. Raises: SharesLost if its lease has ended already."""
        ((epoch,),) = fetch(
            connection, "SELECT max(epoch) FROM worker WHERE name = :name AND until_s > 0", name=self._identity.name
        )
        if epoch is None:
            raise SharesLost(f"worker {self._identity.name}: its lease ended before it began")
        self._epoch = epoch
        self._bytes_before = 0 if self._statistics is None else self._statistics.fetched_bytes
        adopt_totals(connection, self._identity.name, self._counting_name)
        execute(
            connection,
            "INSERT INTO job_worker VALUES (:epoch, :name, 0, 0, 0, 0, NULL, :now_s) ON CONFLICT (epoch) DO NOTHING",
            epoch=self._epoch,
            name=self._identity.name,
            now_s=server_time(connection),
        )

    def opened(self, parts: OpenedRun) -> None:
        """Collect what is counted for the transactions of the Frontier."""
        parts.accounts.carry()
        self._parts = parts

    def payloads(self, section: WriteSection) -> SharedPayloads | None:
        """Share payloads from now on, if the order wants it."""
        if section.warc and section.revisit and section.revisit_shared:
            self._payloads = SharedPayloads(
                self._database,
                self._identity.name,
                min_bytes=section.revisit_min_size_bytes,
                timeout_s=section.revisit_timeout_s,
            )
        return self._payloads

    def _carry_counts(self, connection: Connection) -> Callable[[], None]:
        """Write what was counted and archived since the last transaction of the Frontier, in this one (its store's thread)."""
        has_payloads = self._payloads is not None and self._payloads.put(connection)
        counted = None if self._parts is None else self._parts.accounts.uncarried()
        if counted is not None:
            put_counted(connection, self._counting_name, self._epoch, counted)
        return _nothing_carried if counted is None and not has_payloads else self._carried

    def _carried(self) -> None:
        if self._parts is not None:
            self._parts.accounts.carried()
        if self._payloads is not None:
            self._payloads.carried()

    def informed(self, chain: Chain) -> Chain:
        """Add what others know of seeds and hosts."""
        return (("_seed", self._know_seed), ("_host", self._know_host), *chain)

    async def _know_host(self, visit: Visit) -> Step:
        """Limits of a host count what other workers fetched from it before."""
        limits = self._order.limits
        if not (limits.pages_per_host or limits.bytes_per_host or limits.time_per_host_s):
            return Step.PROCEED
        host = host_counted(visit.lease.url)
        if host not in self._elsewhere:
            if len(self._elsewhere) > MAX_KNOWN:
                self._elsewhere.clear()
            find = partial(totals_elsewhere, worker=self._counting_name, host=host)
            self._elsewhere[host] = await asyncio.to_thread(self._database.do_patiently, find)
        return Step.PROCEED

    def of_host(self, accounts: Accounts, host: str) -> Totals:
        """Add what other workers have counted for it, when it was met here first."""
        totals = accounts.of_host(host)
        totals.add(self._elsewhere.get(host, Totals()))
        return totals

    def view_totals(self, accounts: Accounts) -> AccountsView:
        """Return a view of the totals of all workers, those that have ended included (blocks). An open view needs no server."""
        rows = self._database.do(partial(self._exchange_totals, accounts.changed(all_rows=True)))
        return view_of(rows)

    def _exchange_totals(self, own: Counted, connection: Connection) -> list[CountedRow]:
        self._put_totals(own, connection)
        return all_totals(connection)

    def _put_totals(self, own: Counted, connection: Connection) -> bool:
        return put_totals(connection, self._counting_name, own.rows, CountedTo(self._epoch, own.place))

    async def _know_seed(self, visit: Visit) -> Step:
        """A URL that came by redirects alone, or by none, is a seed: the scope of its links needs to know it."""
        if visit.lease.url not in self._seeds and not visit.lease.hops.strip(REDIRECT):
            await self._read_seeds()
        return Step.PROCEED

    async def _read_seeds(self) -> None:
        await asyncio.to_thread(self._seeds.refresh)
        if self._parts is not None:
            self._parts.seeding.catch_up()

    # The job's rows

    async def _look_for(self, fetched_bytes: int) -> Callable[[Connection], _News]:
        """The next look. What it writes is chosen now, in the loop's thread."""
        is_due = monotonic() >= self._status_at_s
        status = None
        if is_due:
            self._status_at_s = monotonic() + STATUS_S
            status = await self._status()
        assert self._parts is not None
        tickets = self._parts.limits.tickets
        kept = tickets.give_back() if is_due else None
        granted = self._parts.bandwidth.granted
        wanted = 0 if granted is None else granted.wanted()
        return partial(self._look, status, fetched_bytes, tickets.short, kept, wanted)

    def _look(
        self, status: str | None, fetched_bytes: int, short: int, kept: int | None, wanted: int, connection: Connection
    ) -> _News:
        """In one transaction: read what is wanted, and write what others want to know."""
        ((wish, settings, seeds, asked, drains),) = fetch(
            connection,
            """SELECT (SELECT value FROM job_fact WHERE name = 'wish'), (SELECT value FROM job_fact WHERE name = 'settings'),
               (SELECT coalesce(max(number), 0) FROM job_seed),
               (SELECT count(*) FROM job_command WHERE epoch = :epoch AND answer IS NULL),
               (SELECT drains FROM job_worker WHERE epoch = :epoch)""",
            epoch=self._epoch,
        )
        if status is not None:
            self._write_status(status, fetched_bytes, connection)
        tickets, limits = 0, self._order.limits
        if limits.pages:
            if kept is not None:
                keep_tickets(connection, self._epoch, kept)
            tickets = (
                take_tickets(connection, self._epoch, limits.pages, short)
                if short
                else granted(connection, self._epoch)
            )
        return _News(
            *parsed_wish(wish),
            parsed_settings(settings),
            seeds,
            asked_of(connection, self._epoch) if asked else {},
            bool(drains),
            used(connection) if limits.pages or limits.fetched_bytes else None,
            tickets,
            take_bandwidth(connection, self._order.fetch.bandwidth_bytes, wanted) if wanted else 0,
        )

    async def _status(self) -> str:
        assert self._requests is not None
        assert self._run is not None
        last, metrics = self._run.last_line(), await self._requests.answer(METRICS, {})
        process = {"pid": os.getpid(), "machine": socket.gethostname(), "memory": list(memory_of_process())}
        longest = 0 if last is None else last.longest
        return json.dumps({**snapshot_facts(self._run.snapshot()), **process, "longest": longest, "metrics": metrics})

    def _write_status(self, status: str, fetched_bytes: int, connection: Connection) -> None:
        execute(
            connection,
            """UPDATE job_worker SET status = :status, status_s = :now_s, obeyed = :obeyed, bytes = :bytes
               WHERE epoch = :epoch""",
            status=status,
            now_s=server_time(connection),
            obeyed=self._obeyed,
            bytes=fetched_bytes,
            epoch=self._epoch,
        )

    async def _push_totals(self) -> None:
        """Write what this worker has counted, from time to time, and fold what others left that have gone."""
        if monotonic() < self._totals_at_s or self._parts is None:
            return
        accounts, all_rows = self._parts.accounts, self._totals_at_s == 0.0
        self._totals_at_s = 0.0  # until all is written
        with suppress(StoreUnavailable, DiskFull), storage_errors(accounts.path):  # later, then
            own = await asyncio.to_thread(accounts.changed, all_rows=all_rows)
            is_written = await asyncio.to_thread(self._database.do, partial(self._put_totals, own))
            await asyncio.to_thread(self._database.do, fold_totals)
            if is_written:
                self._totals_at_s = monotonic() + TOTALS_S

    async def _follow(self, news: _News) -> None:
        """Do what the rows ask for."""
        assert self._parts is not None
        assert self._requests is not None
        self._parts.limits.tickets.grant(news.tickets)
        if news.bandwidth and self._parts.bandwidth.granted is not None:
            self._parts.bandwidth.granted.grant(news.bandwidth)
        if news.seeds > len(self._seeds):
            await self._read_seeds()
        if news.number > self._obeyed:
            verb = _VERBS.get(news.wish)
            if verb is not None:
                await self._requests.reply_to(*verb)
            self._obeyed = news.number
            self._status_at_s = 0.0
            self._due.set()
        for settings in news.settings[self._settings :]:
            self._settings += 1
            await self._set(settings)
        if news.drains and not self._is_drained:
            self._is_drained = True
            await self._requests.reply_to(STOP, {})
        if news.requests and not self._requests.is_busy:  # the next one is read again, since it may be withdrawn
            number, request = next(iter(news.requests.items()))
            self._requests.take(request, partial(self._put_answer, number))
        if news.used is not None:
            self._parts.limits.hold(news.used)

    async def _put_answer(self, number: int, reply: Facts) -> None:
        with suppress(StoreUnavailable):  # the next look raises it, too
            await asyncio.to_thread(self._database.do_patiently, partial(answer, number=number, reply=reply))
        self._due.set()

    async def _set(self, settings: list[str]) -> None:
        """Change the order as the operator did."""
        assert self._parts is not None
        assert self._requests is not None
        self._order, _ = changed_order(self._order, settings)
        reply = await self._requests.reply_to(SET, {"settings": settings})
        if "error" in reply:
            log.error("a change of the order could not be followed", settings=settings, reason=reply["error"])
        tickets = self._parts.limits.tickets
        if tickets.is_limited:  # it may have fetched without a limit before
            hold = partial(hold_tickets, epoch=self._epoch, tickets=tickets.granted)
            await asyncio.to_thread(self._database.do_patiently, hold)
