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

from crawler.admission import Admission, host_quotas, open_admission
from crawler.archiving.recalling import Archive
from crawler.chain import Processor
from crawler.extracting.dispatch import Extractor
from crawler.extracting.options import ExtractOptions
from crawler.extracting.sandbox import Sandbox
from crawler.fetching.bodies import Scratch
from crawler.fetching.fetcher import Fetcher
from crawler.jobs.job import JobFolder
from crawler.jobs.opening import SEED_BOOK, open_job
from crawler.jobs.rounds import begin_round, current_round
from crawler.jobs.seeding import Marks, Seeding
from crawler.jobs.seeds import SeedBook
from crawler.jobs.sourcetags import SourceTags
from crawler.jobs.writing import Writing, open_writing, warc_facts
from crawler.network.descriptors import connections_within, raise_file_limit
from crawler.network.dns import Resolver
from crawler.operating.judging import Judge
from crawler.operating.limits import Limits
from crawler.orders.fetch import fetch_options, site_of
from crawler.orders.order import CrawlOrder, dump_order
from crawler.outcomes.errors import storage_errors
from crawler.processors.candidates import Ahead, Candidates
from crawler.processors.disposition import Disposition
from crawler.processors.naming import NamePrecondition
from crawler.processors.own import own_processors
from crawler.processors.page import ExtractPage, FetchPage, heeding
from crawler.processors.preconditions import NoRobots, RobotsOptions, RobotsPrecondition
from crawler.processors.preselect import Preselect
from crawler.processors.recorder import Recorder
from crawler.processors.write import Archivist, Write
from crawler.reporting.account_reading import AccountsView
from crawler.reporting.accounts import Accounts
from crawler.reporting.statistics import CrawlStatistics, WorkerBoard
from crawler.workers import Dispose, WorkerPool
from frontier.aio import AsyncFrontier
from frontier.core import Frontier


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a run has before anything is opened: the parts tell it how they fare."""

    order: CrawlOrder
    job: JobFolder
    clock: Callable[[], float]
    statistics: CrawlStatistics
    board: WorkerBoard
    limits: Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the controller works with."""

    frontier: AsyncFrontier
    seeding: Seeding
    accounts: Accounts
    fetched_bytes: int  #: what earlier runs of the job's round fetched
    pool: WorkerPool
    judge: Judge


async def open_parts(run: Run, opened: AsyncExitStack) -> Parts:
    """Open all; `opened` closes what was opened, also when something fails. Raises: CrawlerError, FrontierError."""
    order, job = run.order, run.job
    book = opened.enter_context(SeedBook(job.state / SEED_BOOK))
    resolver = resolver_of(order, run.clock)
    opened.push_async_callback(resolver.close)
    frontier = await opened.enter_async_context(AsyncFrontier(partial(_open_frontier, run, resolver)))
    accounts, writing = await asyncio.to_thread(_open_files, run)
    opened.push_async_callback(writing.journal.close)
    fetched_bytes = await asyncio.to_thread(_begun_with, job.state)
    fetcher = _fetcher(run, resolver)
    opened.push_async_callback(fetcher.close)
    sandbox = Sandbox()
    opened.push_async_callback(sandbox.close)
    admission = await open_admission(order, job.state, frontier, opened)
    tags = SourceTags()
    seeding = _seeding(order, book, admission, frontier, tags)
    archivist = None if writing.payloads is None else Archivist(writing.payloads, revisit=order.write.revisit)
    recorder = Recorder(
        writing.journal,
        run.clock,
        archivist=archivist,
        source_of=tags.tag_of if order.job.source_tags else lambda _: None,
        links=order.write.links,
        extra_info=order.logs.extra_info,
    )
    dispose = Disposition(frontier, recorder, run.statistics, run.clock)
    reading: tuple[Processor, ...] = (
        FetchPage(fetcher.get, None if writing.payloads is None else Archive(job.warc, writing.payloads, job.state)),
        _extraction(run, Extractor(_extract_options(order), sandbox)),
        *own_processors(order.job.processors),
        *([] if archivist is None else [Write(archivist)]),
    )
    candidates = Candidates(admission.scope, admission.key, seeding.redirected)
    chain: tuple[Processor, ...] = (
        Preselect(admission.scope, order.scope.block, host_quotas(order.limits, accounts, run.clock)),
        NamePrecondition(resolver, recorder.lookup, fetcher.uses_proxy),
        _robots(run, frontier, fetcher, dispose, candidates),
        *reading,
        candidates,
        *_towards_frontier(admission, frontier),
    )
    return Parts(
        frontier=frontier,
        seeding=seeding,
        accounts=accounts,
        fetched_bytes=fetched_bytes,
        pool=_pool(run, frontier, chain, dispose if admission.unlike is None else admission.unlike.keeping(dispose)),
        judge=Judge(admission.scope, admission.key, book, admission.similar),
    )


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


def _seeding(
    order: CrawlOrder, book: SeedBook, admission: Admission, frontier: AsyncFrontier, tags: SourceTags
) -> Seeding:
    return Seeding(
        book,
        admission.scope,
        frontier,
        Marks(admission.key, tags),
        sitemaps=order.extract.sitemaps,
        given=None if admission.unlike is None else admission.unlike.keep,
    )


def _extract_options(order: CrawlOrder) -> ExtractOptions:
    return order.extract.options(robot=order.agent.product, nofollow_links=order.robots.nofollow_links)


def _extraction(run: Run, extract: Extractor) -> ExtractPage:
    return ExtractPage(extract, heeding(run.order.agent.product, run.clock) if run.order.robots.meta else None)


def _towards_frontier(admission: Admission, frontier: AsyncFrontier) -> Sequence[Processor]:
    """What the candidates of a page pass before its end."""
    if admission.unlike is None:
        return [Ahead(frontier)]
    return [admission.unlike, Ahead(frontier, admission.unlike.keep)]


def _open_frontier(run: Run, resolver: Resolver, on_change: Callable[[], None]) -> Frontier:
    frontier = open_job(run.job.state, run.order, clock=run.clock, ip_of=resolver.known_address, on_change=on_change)
    try:
        run.job.write_order(dump_order(run.order))  # only now: the job may have refused the order
    except BaseException:
        frontier.close()
        raise
    return frontier


def _open_files(run: Run) -> tuple[Accounts, Writing]:
    """The accounts first: they count what of crawl.log a crash has taken from them before anything is added to it."""
    order, job = run.order, run.job
    accounts = Accounts(job.state, job.crawl_log, run.clock)
    facts = warc_facts(order, order.write, job.directory.name)
    return accounts, open_writing(job, order.write, facts, run.clock, more=[accounts])


def _begun_with(state: Path) -> int:
    """What earlier runs of the round fetched; a round that was ordered is begun: there is a Frontier for it."""
    with storage_errors(state), AccountsView(state) as view:
        total = view.total().bytes
        begin_round(state, total)
        return total - current_round(state).bytes_before


def _robots(
    run: Run, frontier: AsyncFrontier, fetcher: Fetcher, dispose: Disposition, candidates: Candidates
) -> Processor:
    if run.order.robots.robots != "obey":
        return NoRobots(frontier.set_delay)
    return RobotsPrecondition(
        fetcher,
        robots_options(run.order),
        clock=run.clock,
        set_delay=frontier.set_delay,
        note=dispose.note_robots,
        announce=candidates.announce if run.order.extract.sitemaps else None,
    )


def _pool(run: Run, frontier: AsyncFrontier, chain: Sequence[Processor], dispose: Dispose) -> WorkerPool:
    limits = run.limits
    tickets = limits.pages(frontier.core.counts().done)
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


def robots_options(order: CrawlOrder) -> RobotsOptions:
    """How the order takes robots.txt."""
    return RobotsOptions(
        product=order.agent.product,
        max_crawl_delay_s=order.robots.max_crawl_delay_s,
        cache_s=order.robots.cache_s,
        unreachable_s=order.robots.unreachable_s,
        timeout_s=order.fetch.timeout_s,
    )
