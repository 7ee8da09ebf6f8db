"""Builds what decides which URLs a run takes: the scope, the keys for dedup, the similarity filter, the quotas of hosts."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from anabranch.crawler.orders.limits import LimitsSection
from anabranch.crawler.orders.order import CrawlOrder
from anabranch.crawler.outcomes.errors import storage_errors
from anabranch.crawler.outcomes.ownfunctions import is_own
from anabranch.crawler.processors.alike import Unlike
from anabranch.crawler.processors.known import Known
from anabranch.crawler.processors.preselect import OverQuotaOf
from anabranch.crawler.reporting.accounts import Accounts
from anabranch.crawler.scope.opening import open_scope
from anabranch.crawler.scope.quotas import OverQuota, Quotas, Used, over_quota
from anabranch.crawler.scope.ruling import Scope
from anabranch.crawler.scope.similar import Similar, open_similar
from anabranch.crawler.urls.canonicalization import Canonicalizer
from anabranch.frontier.aio import AsyncFrontier


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """Which URLs are taken, and what counts as one."""

    scope: Scope
    canonicalizer: Canonicalizer  #: makes the keys for dedup
    similar: Similar | None  #: None: the order asks for none
    unlike: Unlike | None  #: the same as a step of the chain
    known: Known | None = None  #: URLs that need not be judged again; None: each one is


async def open_admission(order: CrawlOrder, state: Path, frontier: AsyncFrontier, opened: AsyncExitStack) -> Admission:
    """Open all that the order asks for; it is closed before the Frontier is. Raises: OrderError, StorageError."""
    scope, canonicalizer = open_scope(order.scope), Canonicalizer(order.urls.canonicalization)
    similar = await open_similar(state, order.scope)
    # A filter of similar URLs hears of what the Frontier has, too: it may have forgotten that in a crash.
    known = None if _asks_own(order) else Known(frontier.core.unseen if similar is None else None)
    if similar is None:
        return Admission(scope=scope, canonicalizer=canonicalizer, similar=None, unlike=None, known=known)
    unlike = Unlike(similar, frontier.flush)
    opened.push_async_callback(unlike.close)
    return Admission(scope=scope, canonicalizer=canonicalizer, similar=similar, unlike=unlike, known=known)


def _asks_own(order: CrawlOrder) -> bool:
    """Functions of the operator's own judge URLs: they see each link, whatever became of it before."""
    return bool(order.scope.rules) or any(map(is_own, order.urls.canonicalization))


def host_quotas(limits: LimitsSection, accounts: Accounts, clock: Callable[[], float]) -> OverQuotaOf | None:
    """What each host may still be asked for, by the job's accounts; None if hosts have no limits.

    A crawl's own limits are not among these: they end or pause it. Asking raises StorageError.
    """
    quotas = Quotas(
        pages_per_host=limits.pages_per_host,
        bytes_per_host=limits.bytes_per_host,
        time_per_host=limits.time_per_host_s,
    )
    if quotas == Quotas():
        return None

    def over(host: str) -> OverQuota | None:
        with storage_errors(accounts.path):
            totals = accounts.of_host(host)
        since_s = totals.first_success_s
        used = Used(totals.pages, totals.bytes, 0.0 if since_s is None else clock() - since_s)
        return over_quota(quotas, Used(), used)

    return over
