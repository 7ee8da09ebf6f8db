"""How a run takes part in its job, alone or as one of several workers, and the program around the run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from anabranch.crawler.accounts.accounts import Accounts
from anabranch.crawler.accounts.database import AccountsView
from anabranch.crawler.accounts.totals import Totals
from anabranch.crawler.archive.uploads import Uploaded, Uploading, Uploads
from anabranch.crawler.fetch.bandwidth import Bandwidth
from anabranch.crawler.job.folder import JobFolder
from anabranch.crawler.job.frontier import open_job
from anabranch.crawler.job.journal import Journal
from anabranch.crawler.job.seeding import Seeding
from anabranch.crawler.job.seedtable import Seeds, opened_seeds
from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.report.jobstatus import CrawlSnapshot
from anabranch.crawler.report.progress_log import ProgressFacts
from anabranch.crawler.report.statistics import CrawlStatistics
from anabranch.crawler.run.control import Answer, Control
from anabranch.crawler.run.limits import RunLimits
from anabranch.crawler.run.workers import Archive, Delivery
from anabranch.crawler.visit import Chain
from anabranch.frontier import AsyncFrontier, Frontier
from anabranch.frontier.policies.hosts import IpOf

if TYPE_CHECKING:
    from anabranch.crawler.cluster.payloads import SharedPayloads
    from anabranch.crawler.order.sections import WriteSection


class ReportedRun(Protocol):
    """The run as it reports of itself."""

    def snapshot(self) -> CrawlSnapshot:
        """Take one."""

    def last_line(self) -> ProgressFacts | None:
        """The facts of the progress log's last line; None before the first."""


class OpenedRun(Protocol):
    """The parts of a run that its job may ask for."""

    @property
    def frontier(self) -> AsyncFrontier:
        """The part of the Frontier that this worker has."""

    @property
    def accounts(self) -> Accounts:
        """The totals that this process has counted."""

    @property
    def journal(self) -> Journal:
        """The journal, which keeps the run's files in step."""

    @property
    def limits(self) -> RunLimits:
        """The limits that end or pause the run."""

    @property
    def bandwidth(self) -> Bandwidth:
        """The caps of what is read from sockets."""

    @property
    def seeding(self) -> Seeding:
        """The part that opens the scope for seeds that others found."""


class Surroundings:
    """The program around a run. This one is told nothing and wants nothing; a program overrides what concerns it."""

    is_last = False  #: the process ends with the crawl, so a signal that comes too late has nothing to end
    serves_metrics = True  #: False: the parent serves those of all its processes at the order's address

    def notify(self, text: str) -> None:
        """Show a line, or lines, to the operator."""

    async def show(self, take: Callable[[], CrawlSnapshot]) -> None:
        """Display progress until cancelled."""
        del take
        await asyncio.Event().wait()

    async def watch(self, frontier: AsyncFrontier, statistics: CrawlStatistics) -> None:
        """Run beside the workers until cancelled."""
        del frontier, statistics
        await asyncio.Event().wait()

    def force_exit(self) -> None:
        """Leave at once."""

    def answering(self, answer: Answer) -> AbstractAsyncContextManager[None]:
        """While the result is entered, the crawl answers verbs."""
        del answer
        return nullcontext()

    def delivery(self, archive: Archive) -> Delivery | None:
        """Return what hands the pages to the program; None: it gets none. `archive` archives a visit's exchange at once."""
        del archive
        return None


class Membership(Protocol):
    """How a run takes part in its job."""

    name: str  #: of the job, for reports
    worker: str  #: the name of this worker, also in those of its WARC files; empty: it is the only one
    state: Path  #: the folder of what this process shares with others of the job, on one machine
    retry_s: float | None  #: how long the journal waits for a disk that is full; None: as usual

    def open_seeds(self, opened: AsyncExitStack) -> Seeds:
        """The job's seeds; `opened` closes them."""

    def open_frontier(self, clock: Callable[[], float], ip_of: IpOf, on_change: Callable[[], None]) -> Frontier:
        """Open the job's Frontier (blocks). Raises: CrawlerError, FrontierError."""

    def opened(self, parts: OpenedRun) -> None:
        """All parts of the run are open."""

    def payloads(self, section: WriteSection) -> SharedPayloads | None:
        """The payloads of the job's workers; None if no other worker writes any."""

    def informed(self, chain: Chain) -> Chain:
        """The chain, after steps that learn what other workers know of a visit."""

    def want_tickets(self) -> None:
        """A visit waits for a ticket."""

    def of_host(self, accounts: Accounts, host: str) -> Totals:
        """The whole job's totals of a host, given this process' own."""

    def view_totals(self, accounts: Accounts) -> AccountsView:
        """A view of the totals of the whole job, as of now (blocks); the caller closes it."""

    def control(
        self, answer: Answer, status: ReportedRun, statistics: CrawlStatistics
    ) -> AbstractAsyncContextManager[object]:
        """While entered, commands are answered, and the job's status is that of this run."""

    async def watch(self) -> None:
        """Do what the job asks for, until cancelled."""

    def register(self, arrived: Uploaded) -> None:
        """A file of this worker was copied elsewhere (blocks)."""

    def stop(self) -> None:
        """The run begins no more fetches."""


class SoleMembership:
    """The only worker of a job, which has it in its folder."""

    worker = ""
    retry_s: float | None = None

    def __init__(self, order: CrawlOrder, job: JobFolder, *, listens: bool = True) -> None:
        """`listens`: other commands reach the run through the control socket."""
        self.name = job.directory.name
        self.state = job.state
        self._order = order
        self._job = job
        self._listens = listens

    def open_seeds(self, opened: AsyncExitStack) -> Seeds:
        """Open the file of the job's folder."""
        return opened.enter_context(opened_seeds(self._job.state))

    def open_frontier(self, clock: Callable[[], float], ip_of: IpOf, on_change: Callable[[], None]) -> Frontier:
        """Open the whole Frontier. Raises: as `open_job`."""
        return open_job(self._job.state, self._order, clock=clock, ip_of=ip_of, on_change=on_change)

    def opened(self, parts: OpenedRun) -> None:
        """Do nothing: no other worker has to know."""

    def payloads(self, section: WriteSection) -> None:
        """There is no other worker."""

    def informed(self, chain: Chain) -> Chain:
        """Return it as it is: there is no other worker."""
        return chain

    def want_tickets(self) -> None:
        """Do nothing: the run has all that its limit leaves."""

    def of_host(self, accounts: Accounts, host: str) -> Totals:
        """Return the totals that this process has counted; no other one counts."""
        return accounts.of_host(host)

    def view_totals(self, accounts: Accounts) -> AccountsView:
        """A view of its own."""
        accounts.sync()
        return AccountsView(self._job.state)

    def control(
        self, answer: Answer, status: ReportedRun, statistics: CrawlStatistics
    ) -> AbstractAsyncContextManager[object]:
        """Serve the control socket, which asks for the status, too."""
        del status, statistics
        return Control(self._job.state, answer) if self._listens else nullcontext()

    async def watch(self) -> None:
        """Wait for ever: no other process asks for anything."""
        await asyncio.Event().wait()

    def register(self, arrived: Uploaded) -> None:
        """The folder knows what has arrived."""

    def stop(self) -> None:
        """Nobody is waited for."""


def uploading_of(
    order: CrawlOrder, job: JobFolder, worker: str = "", register: Callable[[Uploaded], None] | None = None
) -> Uploading | None:
    """The task that copies this worker's WARC files elsewhere; None if the order does not ask for it. Raises: OrderError."""
    if not (order.write.warc and order.write.upload and job.has_own_warc):
        return None
    target = f"{order.write.upload.rstrip('/')}/{worker}" if worker else order.write.upload
    return Uploading(Uploads(job.warc, job.state, target, register))
