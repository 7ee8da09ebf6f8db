"""Builds the chain of a crawl: which processors a visit passes, in their order.

    preselect -> names -> robots.txt -> fetch -> extract -> the user's own -> write -> parameters -> candidates -> similar
    -> ahead

`run.workers` runs it, and the disposition behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from anabranch.crawler.archive.cdxserver import CdxServers
from anabranch.crawler.archive.replay import ArchivedResponses
from anabranch.crawler.extract.extractor import Extractor, Sandbox
from anabranch.crawler.fetch.dns import Resolver
from anabranch.crawler.fetch.fetcher import Fetcher
from anabranch.crawler.job.folder import JobFolder
from anabranch.crawler.job.journal import JournalFiles
from anabranch.crawler.job.seeding import Seeding
from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.processors.admission import UrlAdmission
from anabranch.crawler.processors.candidates import FindCandidates, ScheduleSitemaps, ScheduleSurplus
from anabranch.crawler.processors.cookie_redirects import RepeatForCookies
from anabranch.crawler.processors.disposition import Disposition
from anabranch.crawler.processors.login import Logins
from anabranch.crawler.processors.page import BodyCheck, ExtractPage, FetchPage, directives_for
from anabranch.crawler.processors.preconditions import DnsPrecondition, IgnoreRobots, RobotsOptions, RobotsPrecondition
from anabranch.crawler.processors.recorder import ArchivePage, ExchangeMaker, Recorder
from anabranch.crawler.processors.user_processors import user_processor
from anabranch.crawler.scope.body import body_rules_of
from anabranch.crawler.visit import Processor
from anabranch.frontier import AsyncFrontier


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainParts:
    """The collaborators of a run's processors."""

    order: CrawlOrder
    job: JobFolder
    clock: Callable[[], float]
    frontier: AsyncFrontier
    resolver: Resolver
    fetcher: Fetcher
    sandbox: Sandbox
    admission: UrlAdmission
    seeding: Seeding
    files: JournalFiles
    exchanges: ExchangeMaker | None  #: None: nothing is archived
    recorder: Recorder
    disposition: Disposition
    captures: CdxServers | None = None  #: None: no CDX server is asked


def build_chain(parts: ChainParts) -> Iterator[tuple[str, Processor]]:
    """The processors of the order, each with its name in reports. Raises: OrderError for a user's own that is no processor."""
    order, admission = parts.order, parts.admission
    candidates = FindCandidates(admission.scope, admission.canonicalizer, parts.seeding.redirected, admission.seen)
    on_scheduled = None if admission.drop_similar is None else admission.drop_similar.learn
    payloads = parts.files.payloads
    archive = None if payloads is None else ArchivedResponses(parts.job.warc, payloads, parts.job.state)
    options = order.extract.options(
        robot=order.agent.token,
        nofollow_links=order.robots.nofollow_links,
        page_queries=bool(
            parts.frontier.core.first_format
        ),  # an older job keeps the URLs that it has until its next round
    )
    directives = directives_for(order.agent.token, parts.clock) if order.robots.meta else None
    sitemaps = ScheduleSitemaps(candidates, parts.frontier, on_scheduled)

    yield "preselect", admission.preselector
    yield "names", DnsPrecondition(parts.resolver, parts.recorder, parts.fetcher, parts.clock)
    if order.robots.robots == "obey":
        yield (
            "preconditions",
            RobotsPrecondition(
                parts.fetcher,
                RobotsOptions(
                    product=order.agent.token,
                    max_crawl_delay_s=order.robots.max_crawl_delay_s,
                    cache_s=order.robots.cache_s,
                    unreachable_s=order.robots.unreachable_s,
                    timeout_s=order.fetch.timeout_s,
                    allow_tries=order.robots.allow_tries,
                    allow_after_s=order.robots.allow_after_s,
                ),
                clock=parts.clock,
                frontier=parts.frontier,
                disposition=parts.disposition,
                schedule_sitemaps=sitemaps if order.extract.sitemaps else None,
            ),
        )
    else:
        yield "preconditions", IgnoreRobots(parts.frontier.set_delay)
    get = Logins(parts.fetcher).get if parts.fetcher.has_logins else parts.fetcher.get
    rules = body_rules_of(order)
    check = None if rules is None else BodyCheck(rules, parts.seeding.maker.tags)
    yield "fetch", FetchPage(get, archive, check, parts.captures)
    yield "extract", ExtractPage(Extractor(options, parts.sandbox), directives)
    for name in order.job.processors:
        yield name.lower(), user_processor(name)
    if parts.exchanges is not None:
        yield "write", ArchivePage(parts.exchanges)
    yield "parameters", admission.traps
    yield "candidates", candidates
    yield "cookies", RepeatForCookies(candidates, parts.fetcher.cookies_for)
    if admission.drop_similar is not None:
        yield "similar", admission.drop_similar
    yield "ahead", ScheduleSurplus(parts.frontier, on_scheduled, admission.seen)
