"""The steps of a visit: which processors the chain of a crawl has, in their order.

in scope? → name → robots.txt → fetch → links → the operator's own → archive → candidates → [unlike others] → Frontier
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from anabranch.crawler.admission import Admission, host_quotas
from anabranch.crawler.archiving.recalling import Archive
from anabranch.crawler.chain import Processor
from anabranch.crawler.extracting.dispatch import Extractor
from anabranch.crawler.extracting.sandbox import Sandbox
from anabranch.crawler.fetching.fetcher import Fetcher
from anabranch.crawler.jobs.job import JobFolder
from anabranch.crawler.jobs.seeding import Seeding
from anabranch.crawler.jobs.writing import Writing
from anabranch.crawler.network.dns import Resolver
from anabranch.crawler.operating.judging import RobotsWords
from anabranch.crawler.orders.order import CrawlOrder
from anabranch.crawler.processors.announcing import Announcer
from anabranch.crawler.processors.candidates import Ahead, Candidates
from anabranch.crawler.processors.disposition import Disposition
from anabranch.crawler.processors.naming import NamePrecondition
from anabranch.crawler.processors.own import own_processors
from anabranch.crawler.processors.page import ExtractPage, FetchPage, heeding
from anabranch.crawler.processors.preconditions import NoRobots, RobotsOptions, RobotsPrecondition
from anabranch.crawler.processors.preselect import Preselect
from anabranch.crawler.processors.recorder import Recorder
from anabranch.crawler.processors.write import Archivist, Write
from anabranch.crawler.reporting.accounts import Accounts
from anabranch.frontier.aio import AsyncFrontier


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What the steps work with."""

    job: JobFolder
    clock: Callable[[], float]
    frontier: AsyncFrontier
    resolver: Resolver
    fetcher: Fetcher
    sandbox: Sandbox
    admission: Admission
    seeding: Seeding
    accounts: Accounts
    writing: Writing
    archivist: Archivist | None  #: None: nothing is archived
    recorder: Recorder
    dispose: Disposition


def steps(order: CrawlOrder, tools: Tools) -> Iterator[Processor]:
    """The processors of the order's chain. Raises: OrderError for an own one that is none."""
    admission = tools.admission
    candidates = Candidates(admission.scope, admission.canonicalizer, tools.seeding.redirected, admission.known)
    yield Preselect(admission.scope, order.scope.block, host_quotas(order.limits, tools.accounts, tools.clock))
    yield NamePrecondition(tools.resolver, tools.recorder.lookup, tools.fetcher.uses_proxy)
    yield _robots(order, tools, candidates)
    yield FetchPage(tools.fetcher.get, _archive(tools))
    yield _extraction(order, tools)
    yield from own_processors(order.job.processors)
    if tools.archivist is not None:
        yield Write(tools.archivist)
    yield candidates
    if admission.unlike is None:
        yield Ahead(tools.frontier, known=admission.known)
    else:
        yield admission.unlike
        yield Ahead(tools.frontier, admission.unlike.keep, admission.known)


def robots_options(order: CrawlOrder) -> RobotsOptions:
    """How the order takes robots.txt."""
    return RobotsOptions(
        product=order.agent.token,
        max_crawl_delay_s=order.robots.max_crawl_delay_s,
        cache_s=order.robots.cache_s,
        unreachable_s=order.robots.unreachable_s,
        timeout_s=order.fetch.timeout_s,
    )


def robots_words(chain: Iterable[Processor]) -> RobotsWords | None:
    """What says what the crawl with this chain knows of a robots.txt; None if it asks for none."""
    return next((step.words for step in chain if isinstance(step, RobotsPrecondition)), None)


def _robots(order: CrawlOrder, tools: Tools, candidates: Candidates) -> Processor:
    if order.robots.robots != "obey":
        return NoRobots(tools.frontier.set_delay)
    return RobotsPrecondition(
        tools.fetcher,
        robots_options(order),
        clock=tools.clock,
        set_delay=tools.frontier.set_delay,
        note=tools.dispose.note_robots,
        announce=_announcer(tools, candidates) if order.extract.sitemaps else None,
    )


def _announcer(tools: Tools, candidates: Candidates) -> Announcer:
    unlike = tools.admission.unlike
    return Announcer(candidates.announce, tools.frontier, None if unlike is None else unlike.keep)


def _archive(tools: Tools) -> Archive | None:
    """What was archived of a page before, so that it is fetched only if it has changed."""
    payloads = tools.writing.payloads
    return None if payloads is None else Archive(tools.job.warc, payloads, tools.job.state)


def _extraction(order: CrawlOrder, tools: Tools) -> ExtractPage:
    options = order.extract.options(robot=order.agent.token, nofollow_links=order.robots.nofollow_links)
    heed = heeding(order.agent.token, tools.clock) if order.robots.meta else None
    return ExtractPage(Extractor(options, tools.sandbox), heed)
