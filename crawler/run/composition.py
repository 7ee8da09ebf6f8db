"""Builds the parts of one run from its order, each after those that it needs; they are closed in the opposite order.

    seeds -> resolver -> Frontier -> accounts, logs, WARC files -> fetcher -> sandbox -> admission -> chain -> workers

`controller` calls `open_parts` and runs the workers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import TracebackType

from anabranch.crawler.accounts.accounts import Accounts
from anabranch.crawler.accounts.crawl_log import CrawlLogEntry, last_entry
from anabranch.crawler.accounts.database import AccountsView
from anabranch.crawler.archive.cdxserver import CdxServers
from anabranch.crawler.archive.earlier import open_earlier
from anabranch.crawler.extract.extractor import Sandbox
from anabranch.crawler.fetch.bandwidth import Bandwidth
from anabranch.crawler.fetch.connection_limits import connection_limits_for, raise_file_limit
from anabranch.crawler.fetch.cookies import CookieFile, Cookies, read_cookie_file
from anabranch.crawler.fetch.dns import Resolver
from anabranch.crawler.fetch.fetcher import Fetcher
from anabranch.crawler.fetch.response import Scratch
from anabranch.crawler.job.folder import JobFolder
from anabranch.crawler.job.frontier import frontier_order, has_urls
from anabranch.crawler.job.journal import Journal, JournalFiles, open_journal, warc_facts
from anabranch.crawler.job.orderfile import settle_changes
from anabranch.crawler.job.seeding import CandidateMaker, Seeding, known_keys
from anabranch.crawler.job.seeds import SourceTags
from anabranch.crawler.job.seedtable import Seeds
from anabranch.crawler.job.state import COOKIES, EARLIER, SINKS, begin_round, current_round, round_of_run
from anabranch.crawler.order.fetch import fetch_options, site_of
from anabranch.crawler.order.order import CrawlOrder, dump_order
from anabranch.crawler.order.sections import UsedLimits
from anabranch.crawler.outcomes.errors import storage_errors
from anabranch.crawler.outcomes.userfunctions import user_sink
from anabranch.crawler.processors.admission import (
    QuotasOf,
    UrlAdmission,
    host_and_group_quotas,
    host_quotas,
    open_admission,
)
from anabranch.crawler.processors.chain import ChainParts, build_chain
from anabranch.crawler.processors.disposition import Disposition
from anabranch.crawler.processors.group_budgets import GroupBudgets, quotas_of_groups
from anabranch.crawler.processors.preconditions import RobotsPrecondition
from anabranch.crawler.processors.recorder import ExchangeMaker, KnownPayloads, Recorder
from anabranch.crawler.report.logtail import Trouble, last_logged
from anabranch.crawler.report.statistics import CrawlStatistics, WorkerBoard
from anabranch.crawler.report.troubles import names_logged
from anabranch.crawler.run.explain import Evidence, UrlExplainer
from anabranch.crawler.run.limits import RunLimits
from anabranch.crawler.run.membership import Membership, Surroundings
from anabranch.crawler.run.run_state import RunState
from anabranch.crawler.run.service_gates import ServiceGates
from anabranch.crawler.run.services import Services, known_services
from anabranch.crawler.run.sinks import SinkFeed, SinkPlaces, Sinks
from anabranch.crawler.run.workers import Delivery, WorkerPool
from anabranch.crawler.scope.body import body_rules_of
from anabranch.crawler.scope.parameters import Template
from anabranch.crawler.scope.scope import Quotas
from anabranch.crawler.visit import Chain
from anabranch.frontier import AsyncFrontier, Frontier
from anabranch.frontier.cancellation import to_the_end
from anabranch.frontier.errors import errors_after
from anabranch.frontier.records import GateKey

#: How much of the end of crawl.log is searched for the hops of a URL. The crawl stands still for these 16 ms.
_SEARCHED_BYTES = 32 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """The parts of a run that exist before anything is opened."""

    order: CrawlOrder
    job: JobFolder
    clock: Callable[[], float]
    statistics: CrawlStatistics
    board: WorkerBoard
    run_state: RunState
    member: Membership
    outside: Surroundings

    @property
    def name(self) -> str:
        """The job's name, for reports."""
        return self.member.name

    @property
    def is_shared(self) -> bool:
        """Several workers crawl the job."""
        return bool(self.member.worker)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunParts:
    """The open parts that the controller uses."""

    frontier: AsyncFrontier
    resolver: Resolver
    seeding: Seeding
    accounts: Accounts
    journal: Journal
    limits: RunLimits
    bandwidth: Bandwidth
    pool: WorkerPool
    services: Services  #: that many hosts share
    sinks: Sinks  #: that get the pages in batches
    delivery: Delivery | None = None  #: of pages to a program
    explainer: UrlExplainer
    view_totals: Callable[[], AccountsView]  #: of the whole job, as of now (blocks); the caller closes it
    admission: UrlAdmission

    def find_trouble(self) -> str:
        """Say what the journal waits for; empty if it can write."""
        return self.journal.trouble

    def follow(self, order: CrawlOrder) -> None:
        """Go on by a changed order. Raises: OrderError, PolicyError; then nothing is changed."""
        asked = frontier_order(order)
        self.admission.change(order)
        self.frontier.operate(lambda on: on.set_politeness(asked.politeness, asked.group_politeness))
        self.limits.change(order.limits)


async def open_parts(context: RunContext, opened: AsyncExitStack) -> RunParts:
    """Open all; `opened` closes what was opened, also when something fails. Raises: CrawlerError, FrontierError."""
    order, job, clock, member = context.order, context.job, context.clock, context.member
    recorded = member.open_seeds(opened)
    resolver = resolver_of(order, clock)
    opened.push_async_callback(resolver.close)
    frontier = await opened.enter_async_context(AsyncFrontier(partial(_open_frontier, context, recorded, resolver)))
    accounts, files = await to_the_end(_open_journal(context, opened))
    bandwidth = Bandwidth(order.fetch.bandwidth_bytes, order.fetch.host_bandwidth_bytes, is_shared=context.is_shared)
    fetcher, sandbox = _fetcher(context, resolver, frontier.core, bandwidth), Sandbox()
    opened.push_async_callback(fetcher.close)
    await _open_cookies(context, fetcher.cookies, opened)
    opened.push_async_callback(sandbox.close)
    quotas_of, groups = await _quotas(context, accounts)
    admission = await open_admission(order, job.state, frontier, quotas_of, recorded, opened)
    maker = CandidateMaker(admission.canonicalizer.key, tags := SourceTags())
    given = None if (similar := admission.drop_similar) is None else similar.learn
    seeding = Seeding(recorded, admission.scope, frontier, maker, sitemaps=order.extract.sitemaps, given=given)
    exchanges, captures = await _exchanges(context, files, opened), _captures(context, opened)
    recorder = _recorder(context, files, exchanges, tags)
    disposition = Disposition(frontier, recorder, context.statistics, clock, admission.seen, order.fetch.name_retries_s)
    chain_parts = ChainParts(
        order=order,
        job=job,
        clock=clock,
        frontier=frontier,
        resolver=resolver,
        fetcher=fetcher,
        sandbox=sandbox,
        admission=admission,
        seeding=seeding,
        files=files,
        exchanges=exchanges,
        captures=captures,
        recorder=recorder,
        disposition=disposition,
    )
    chain: Chain = tuple(build_chain(chain_parts))
    limits = await _limits(context, frontier)
    dispose = groups.counting_after(admission.informed_after(disposition))
    explainer, services = _explainer(context, admission, recorded, chain), _services(context, chain_parts)
    delivery = context.outside.delivery(recorder.archive)
    parts = RunParts(
        frontier=frontier,
        resolver=resolver,
        seeding=seeding,
        accounts=accounts,
        journal=files.journal,
        limits=limits,
        bandwidth=bandwidth,
        pool=WorkerPool(
            frontier, member.informed(chain), dispose, context.statistics, limits, context.board, delivery, services
        ),
        services=services,
        delivery=delivery,
        sinks=_sinks(context, accounts, opened),
        explainer=explainer,
        admission=admission,
        view_totals=partial(member.view_totals, accounts),
    )
    member.opened(parts)
    return parts


async def _quotas(context: RunContext, accounts: Accounts) -> tuple[QuotasOf, GroupBudgets]:
    """The judge of hosts and their groups by their limits; and the budgets of groups, which count each visit."""
    order, clock, member = context.order, context.clock, context.member
    of_hosts = partial(host_quotas, accounts=accounts, clock=clock, of_host=partial(member.of_host, accounts))
    groups = GroupBudgets(order.politeness, accounts, clock, member.view_totals)
    if quotas_of_groups(order.limits) != Quotas():
        await asyncio.to_thread(groups.load)
    return partial(host_and_group_quotas, of_hosts=of_hosts, groups=groups), groups


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


def _open_frontier(context: RunContext, recorded: Seeds, resolver: Resolver, on_change: Callable[[], None]) -> Frontier:
    frontier = context.member.open_frontier(context.clock, resolver.known_address, on_change)
    try:
        if has_urls(frontier):
            recorded.require()
        context.job.write_order(dump_order(context.order))  # only now: the job may have refused the order
        settle_changes(context.job.state, context.order)
    except BaseException:
        frontier.close()
        raise
    return frontier


async def _open_journal(context: RunContext, opened: AsyncExitStack) -> tuple[Accounts, JournalFiles]:
    """Open the job's files in a thread. Not to be cancelled: they are open before `opened` knows them."""
    order, job = context.order, context.job

    def open_files() -> tuple[Accounts, JournalFiles]:
        # The accounts come first: those of an older job count what they lack of crawl.log before anything is added to it.
        accounts = Accounts(job.state, job.crawl_log, context.clock)
        section = order.write
        if context.is_shared:  # the files of all workers may come together
            prefix = f"{section.warc_prefix}-{context.member.worker}"
            section = section.model_copy(update={"warc_prefix": prefix})
        facts, retry_s = warc_facts(order, section, context.name), context.member.retry_s
        statistics = context.statistics
        return accounts, open_journal(
            job, section, facts, context.clock, accounts, retry_s=retry_s, at_work=lambda: statistics.active
        )

    accounts, files = await asyncio.to_thread(open_files)

    async def close(_kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        with errors_after(error):
            await files.journal.close()

    opened.push_async_exit(close)
    return accounts, files


async def _open_cookies(context: RunContext, jar: Cookies, opened: AsyncExitStack) -> None:
    """Load the cookies of earlier runs, and those of the file that the order names. Raises: OrderError.

    They are kept in that file, or in the job's folder. Of several workers each keeps its own.
    """
    section, kept, now_s = context.order.fetch, context.job.state / COOKIES, context.clock()
    if not _uses_cookies(context.order):
        return
    named = Path(section.cookie_file) if section.cookie_file else None
    if named is not None:
        await asyncio.to_thread(read_cookie_file, named, jar, now_s, is_secret=True)
    if (named is None or context.is_shared) and kept.exists():
        await asyncio.to_thread(read_cookie_file, kept, jar, now_s, is_secret=False)
    path = kept if named is None or context.is_shared else named
    opened.push_async_callback(CookieFile(path, jar, context.clock).close)


def _uses_cookies(order: CrawlOrder) -> bool:
    of_sites = any(site.cookies or site.login_page for site in order.site)
    return order.fetch.cookies or bool(order.fetch.cookie_file) or of_sites


def _fetcher(context: RunContext, resolver: Resolver, frontier: Frontier, bandwidth: Bandwidth) -> Fetcher:
    order = context.order
    return Fetcher(
        replace(fetch_options(order.fetch, order.agent.sent_user_agent), redact=order.write.redact),
        resolver=resolver,
        scratch=Scratch(context.job.state),
        clock=context.clock,
        sites=map(site_of, order.site),
        connections=connection_limits_for(raise_file_limit(), order.crawl.workers)._replace(bandwidth=bandwidth),
        may_send=None if frontier.hosting is None else frontier.hosting.may_lease,
    )


def _sinks(context: RunContext, accounts: Accounts, opened: AsyncExitStack) -> Sinks:
    section, job, feeds = context.order.job, context.job, []
    if section.sinks:
        places = SinkPlaces(job.state / SINKS)
        feeds = [SinkFeed(user_sink(name), job.directory, places, accounts) for name in section.sinks]
    sinks = Sinks(feeds, context.run_state, section.sink_backlog_bytes)
    opened.push_async_callback(sinks.close)
    return sinks


def _services(context: RunContext, parts: ChainParts) -> Services:
    section = context.order.fetch
    gates = ServiceGates(section.outage_first_s, section.outage_max_s, context.member.worker)
    known = known_services(parts.resolver, parts.fetcher)
    return Services(
        gates,
        parts.frontier,
        context.run_state,
        known,
        context.statistics,
        parts.disposition.prepare if context.order.frontier.has_user_functions else None,
        lambda: list(known_keys(names_logged(context.job.directory), parts.admission.canonicalizer.key).items()),
    )


async def _exchanges(context: RunContext, files: JournalFiles, opened: AsyncExitStack) -> ExchangeMaker | None:
    """Return what makes exchanges; None without WARC files. Raises: OrderError, StorageError."""
    section = context.order.write
    if files.payloads is None:
        return None
    elsewhere: list[KnownPayloads] = []
    if section.revisit and section.revisit_folders:
        earlier = await open_earlier(context.member.state / EARLIER, section.revisit_folders)
        opened.callback(earlier.close)
        elsewhere.append(earlier)
    shared = context.member.payloads(section)
    if shared is not None:
        files.payloads.share(shared)
        elsewhere.append(shared)
    return ExchangeMaker(
        files.payloads, revisit=section.revisit, min_bytes=section.revisit_min_size_bytes, elsewhere=elsewhere
    )


def _captures(context: RunContext, opened: AsyncExitStack) -> CdxServers | None:
    """Return what asks the CDX servers of the order; None without any."""
    section = context.order.write
    if not (section.warc and section.revisit and section.cdx_servers):
        return None
    servers = CdxServers(
        section.cdx_servers,
        timeout_s=section.revisit_timeout_s,
        user_agent=context.order.agent.sent_user_agent,
        count_unanswered=context.statistics.count_cdx_unanswered,
    )
    opened.push_async_callback(servers.close)
    return servers


def _recorder(context: RunContext, files: JournalFiles, exchanges: ExchangeMaker | None, tags: SourceTags) -> Recorder:
    order = context.order
    return Recorder(
        files.journal,
        context.clock,
        exchanges=exchanges,
        tags=tags if order.job.source_tags else None,
        links=order.write.links,
        extra_info=order.logs.extra_info,
        round_number=round_of_run(context.job.state),
    )


async def _limits(context: RunContext, frontier: AsyncFrontier) -> RunLimits:
    fetched_bytes = await asyncio.to_thread(_begin_round, context)
    before = None if context.is_shared else UsedLimits(frontier.core.counts().done, fetched_bytes)
    return RunLimits(context.order.limits, context.run_state, context.statistics, before, context.member.want_tickets)


def _begin_round(context: RunContext) -> int:
    """Begin a round that was ordered, now that it has a Frontier. Returns what earlier runs of the round fetched (blocks)."""
    state, now_s = context.job.state, context.clock()
    # A gate that an earlier run has closed may be closed for an hour: this run reports the reason, too.
    context.statistics.troubles.restore(last_logged(context.job.directory, now_s), now_s)
    with storage_errors(state), AccountsView(state) as view:
        total = view.total()
        begin_round(state, total.bytes, total.processed)
        return max(total.bytes - current_round(state).bytes_before, 0)  # less than before: the accounts were removed


def _explainer(context: RunContext, admission: UrlAdmission, seeds: Seeds, chain: Chain) -> UrlExplainer:
    robots = next((process for _, process in chain if isinstance(process, RobotsPrecondition)), None)
    evidence = RunEvidence(context, admission, robots)
    body = body_rules_of(context.order, runs=False)
    return UrlExplainer(admission.scope, admission.canonicalizer.key, seeds, admission.similar, evidence, body)


class RunEvidence(Evidence):
    """Knows what a running crawl has met."""

    def __init__(self, context: RunContext, admission: UrlAdmission, robots: RobotsPrecondition | None) -> None:
        self.asks_robots = robots is not None
        self._context = context
        self._admission = admission
        self._robots = robots

    def robots(self, url: str, now_s: float) -> str:
        """The known facts of the robots.txt at this URL."""
        return "" if self._robots is None else self._robots.words(url, now_s)

    def robots_verdict(self, url: str, now_s: float) -> str | None:
        """The verdict of the rules that are known."""
        return None if self._robots is None else self._robots.verdict(url, now_s)

    def trouble(self, url: str, gate: GateKey | None, now_s: float) -> Trouble | None:
        """The last trouble of its host in this run, else of the URL in the log."""
        known = None if gate is None else self._context.statistics.troubles.of(gate, now_s)
        return known or last_logged(self._context.job.directory, now_s, url)

    def logged(self, url: str) -> CrawlLogEntry | None:
        """Its last line in the end of crawl.log."""
        return last_entry(self._context.job.crawl_log, url, most_bytes=_SEARCHED_BYTES)

    def is_blocked(self, url: str) -> bool:
        """The patterns that hold now block it."""
        return self._admission.preselector.is_blocked(url)

    def skipped_by(self, url: str) -> Template | None:
        """The rule by which it was skipped."""
        return self._admission.traps.kept.rule_of(url)

    def skips(self, url: str) -> Template | None:
        """The rule by which most URLs like it are skipped now."""
        return self._admission.traps.rule_for(url)
