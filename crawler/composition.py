"""Builds the parts of one run from its order, each after those that it needs; they are closed the other way round.

seeds' book → resolver → Frontier → accounts, logs, WARC files → fetcher → extractor → chain → workers
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from anabranch.crawler.admission import Admission, open_admission
from anabranch.crawler.chain import Processor
from anabranch.crawler.extracting.sandbox import Sandbox
from anabranch.crawler.fetching.bodies import Scratch
from anabranch.crawler.fetching.fetcher import Fetcher
from anabranch.crawler.jobs.job import JobFolder
from anabranch.crawler.jobs.journal import Journal
from anabranch.crawler.jobs.opening import has_urls, open_job
from anabranch.crawler.jobs.rounds import begin_round, current_round, round_of_run
from anabranch.crawler.jobs.seeding import Marks, Seeding
from anabranch.crawler.jobs.seeds import SEED_BOOK, Book, SeedBook, require_seeds
from anabranch.crawler.jobs.sourcetags import SourceTags
from anabranch.crawler.jobs.writing import Writing, open_writing, warc_facts
from anabranch.crawler.network.descriptors import connections_within, raise_file_limit
from anabranch.crawler.network.dns import Resolver
from anabranch.crawler.operating.judging import Judge, RobotsWords
from anabranch.crawler.operating.limits import Limits
from anabranch.crawler.orders.fetch import fetch_options, site_of
from anabranch.crawler.orders.order import CrawlOrder, dump_order
from anabranch.crawler.outcomes.errors import storage_errors
from anabranch.crawler.processes.portion import Portion
from anabranch.crawler.processors.disposition import Disposition
from anabranch.crawler.processors.recorder import Recorder
from anabranch.crawler.processors.write import Archivist
from anabranch.crawler.reporting.account_reading import AccountsView
from anabranch.crawler.reporting.accounts import Accounts
from anabranch.crawler.reporting.statistics import CrawlStatistics, WorkerBoard
from anabranch.crawler.reporting.troubles import Trouble, last_logged
from anabranch.crawler.steps import Tools, robots_words, steps
from anabranch.crawler.workers import Dispose, WorkerPool
from anabranch.frontier.aio import AsyncFrontier
from anabranch.frontier.cancellation import to_the_end
from anabranch.frontier.core import Frontier
from anabranch.frontier.division.aio import AsyncShare
from anabranch.frontier.models import GateKey

_Part = TypeVar("_Part", Resolver, Fetcher, Sandbox)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a run has before anything is opened: the parts tell it how they fare."""

    order: CrawlOrder
    job: JobFolder
    clock: Callable[[], float]
    statistics: CrawlStatistics
    board: WorkerBoard
    limits: Limits
    portion: Portion | None = None  #: what a share of a job has beside; None: this run is all of its job


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the controller works with."""

    frontier: AsyncFrontier
    seeding: Seeding
    accounts: Accounts
    journal: Journal
    fetched_bytes: int  #: what earlier runs of the job's round fetched
    pool: WorkerPool
    judge: Judge


async def open_parts(run: Run, opened: AsyncExitStack) -> Parts:
    """Open all; `opened` closes what was opened, also when something fails. Raises: CrawlerError, FrontierError."""
    portion = run.portion
    book = opened.enter_context(SeedBook(run.job.state / SEED_BOOK)) if portion is None else portion.book
    tools = await _open_tools(run, book, opened)
    admission = tools.admission
    dispose = tools.dispose if admission.unlike is None else admission.unlike.keeping(tools.dispose)
    chain = tuple(steps(run.order, tools))
    parts = Parts(
        frontier=tools.frontier,
        seeding=tools.seeding,
        accounts=tools.accounts,
        journal=tools.writing.journal,
        fetched_bytes=await asyncio.to_thread(_begun_with, run.job.state),
        pool=_pool(run, tools.frontier, chain, dispose),
        judge=_judge(run, admission, book, robots_words(chain)),
    )
    await asyncio.to_thread(_recall_trouble, run)
    if portion is not None:
        parts.seeding.mine = portion.owns
        portion.opened(parts)
    return parts


async def _open_tools(run: Run, book: Book, opened: AsyncExitStack) -> Tools:
    order, job = run.order, run.job
    resolver = _closed_at_the_end(resolver_of(order, run.clock), opened)
    face = AsyncFrontier if run.portion is None else AsyncShare
    frontier = await opened.enter_async_context(face(partial(_open_frontier, run, book, resolver)))
    accounts, writing = await to_the_end(_open_writing(run, opened))
    fetcher = _closed_at_the_end(_fetcher(run, resolver), opened)
    sandbox = _closed_at_the_end(Sandbox(), opened)
    admission = await open_admission(order, job.state, frontier, opened)
    tags = SourceTags()
    archivist = None if writing.payloads is None else Archivist(writing.payloads, revisit=order.write.revisit)
    recorder = _recorder(run, writing, archivist, tags)
    return Tools(
        job=job,
        clock=run.clock,
        frontier=frontier,
        resolver=resolver,
        fetcher=fetcher,
        sandbox=sandbox,
        admission=admission,
        seeding=_seeding(run, book, admission, frontier, tags),
        accounts=accounts,
        writing=writing,
        archivist=archivist,
        recorder=recorder,
        dispose=Disposition(frontier, recorder, run.statistics, run.clock, admission.known),
    )


def _closed_at_the_end(part: _Part, opened: AsyncExitStack) -> _Part:
    opened.push_async_callback(part.close)
    return part


def _fetcher(run: Run, resolver: Resolver) -> Fetcher:
    order = run.order
    return Fetcher(
        fetch_options(order.fetch, order.agent.user_agent),
        resolver=resolver,
        scratch=Scratch(run.job.state),
        clock=run.clock,
        sites=map(site_of, order.site),
        connections=connections_within(raise_file_limit(), order.crawl.workers),
    )


def _judge(run: Run, admission: Admission, book: Book, robots: RobotsWords | None) -> Judge:
    def trouble(url: str, gate: GateKey | None, now_s: float) -> Trouble | None:
        known = None if gate is None else run.statistics.troubles.of(gate, now_s)
        return known or last_logged(run.job.directory, now_s, url)

    return Judge(admission.scope, admission.canonicalizer.key, book, admission.similar, robots, trouble)


def _recall_trouble(run: Run) -> None:
    """A gate that an earlier run has closed may be closed for an hour: the reason is told in this run, too."""
    now_s = run.clock()
    run.statistics.troubles.recall(last_logged(run.job.directory, now_s), now_s)


def _seeding(run: Run, book: Book, admission: Admission, frontier: AsyncFrontier, tags: SourceTags) -> Seeding:
    return Seeding(
        book,
        admission.scope,
        frontier,
        Marks(admission.canonicalizer.key, tags),
        sitemaps=run.order.extract.sitemaps,
        given=None if admission.unlike is None else admission.unlike.keep,
    )


def _recorder(run: Run, writing: Writing, archivist: Archivist | None, tags: SourceTags) -> Recorder:
    order = run.order
    return Recorder(
        writing.journal,
        run.clock,
        archivist=archivist,
        source_of=tags.tag_of if order.job.source_tags else lambda _: None,
        links=order.write.links,
        extra_info=order.logs.extra_info,
        round_number=round_of_run(run.job.state),
    )


def _open_frontier(run: Run, book: Book, resolver: Resolver, on_change: Callable[[], None]) -> Frontier:
    frontier = open_job(run.job.state, run.order, clock=run.clock, ip_of=resolver.known_address, on_change=on_change)
    try:
        if run.portion is None and has_urls(frontier):
            require_seeds(book, run.job.state / SEED_BOOK)
        run.job.write_order(dump_order(run.order))  # only now: the job may have refused the order
    except BaseException:
        frontier.close()
        raise
    return frontier


async def _open_writing(run: Run, opened: AsyncExitStack) -> tuple[Accounts, Writing]:
    """Open the job's files, off the loop. Not to be cancelled: they are open before `opened` knows of them."""
    accounts, writing = await asyncio.to_thread(_open_files, run)
    opened.push_async_callback(writing.journal.close)
    return accounts, writing


def _open_files(run: Run) -> tuple[Accounts, Writing]:
    """The accounts first: those of an older job count what of crawl.log they lack before anything is added to it."""
    order, job = run.order, run.job
    accounts = Accounts(job.state, job.crawl_log, run.clock)
    facts = warc_facts(order, order.write, job.directory.name)
    return accounts, open_writing(job, order.write, facts, run.clock, more=[accounts])


def _begun_with(state: Path) -> int:
    """What earlier runs of the round fetched; a round that was ordered is begun: there is a Frontier for it."""
    with storage_errors(state), AccountsView(state) as view:
        total = view.total()
        begin_round(state, total.bytes, total.processed)
        return max(total.bytes - current_round(state).bytes_before, 0)  # less than before: the accounts were removed


def _pool(run: Run, frontier: AsyncFrontier, chain: Sequence[Processor], dispose: Dispose) -> WorkerPool:
    limits = run.limits
    tickets = limits.pages(frontier.core.counts().done)
    if run.portion is not None:
        chain, dispose = run.portion.metered(chain, dispose, run.statistics)
    return WorkerPool(frontier, chain, limits.counting(dispose), run.statistics, tickets, run.board)


def resolver_of(order: CrawlOrder, clock: Callable[[], float]) -> Resolver:
    """The resolver that the order's [dns] asks for."""
    dns = order.dns
    return Resolver(
        dns.servers,
        dns.hosts,
        clock=clock,
        timeout_s=dns.timeout_s,
        options=dns.options(ipv4=order.fetch.ipv4, ipv6=order.fetch.ipv6),
    )
