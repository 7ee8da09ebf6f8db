"""Which URLs a run accepts: the scope, the keys for dedup, the similarity filter, and the quotas of hosts.

Links are judged when they are found (`processors.candidates`), and each URL again before it is fetched (`Preselector`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Container, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from anabranch.crawler.accounts.accounts import Accounts
from anabranch.crawler.accounts.totals import Totals
from anabranch.crawler.job.checking import budget_faults
from anabranch.crawler.job.skipped import SkippedUrls
from anabranch.crawler.job.state import round_of_run
from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.order.sections import LimitsSection
from anabranch.crawler.outcomes.errors import OrderError, storage_errors
from anabranch.crawler.outcomes.failures import FetchError
from anabranch.crawler.outcomes.status import FetchStatus
from anabranch.crawler.processors.candidates import DropSimilar
from anabranch.crawler.processors.group_budgets import GroupBudgets, quotas_of_groups
from anabranch.crawler.processors.seen_urls import SeenUrls
from anabranch.crawler.processors.traps import ParameterTraps
from anabranch.crawler.scope.parameters import ParameterRules
from anabranch.crawler.scope.scope import OverQuota, Quotas, Scope, Used, blocked_by, open_scope, over_quota
from anabranch.crawler.scope.similarity import SimilarUrlFilter, open_similar_filter
from anabranch.crawler.urls.canonicalization import Canonicalizer
from anabranch.crawler.urls.parsing import host_of
from anabranch.crawler.visit import Dispose, Step, Visit
from anabranch.frontier import AsyncFrontier
from anabranch.frontier.policies.userfunctions import is_user_function
from anabranch.frontier.records import Lease

#: Host -> the quota that it has used up; None if it may be fetched from. Called for every URL, so it must cost O(1).
OverQuotaOf = Callable[[str], OverQuota | None]
#: The limits of hosts -> whether a host has used them up; None if hosts have no limits.
QuotasOf = Callable[[LimitsSection], OverQuotaOf | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class UrlAdmission:
    """Which URLs are accepted, and what counts as the same URL."""

    scope: Scope
    canonicalizer: Canonicalizer  #: makes the keys for dedup
    similar: SimilarUrlFilter | None  #: None: the order asks for no similarity filter
    drop_similar: DropSimilar | None  #: the processor that applies it
    seen: SeenUrls | None  #: URLs that need no judgement; None: each link is judged
    preselector: Preselector
    quotas_of: QuotasOf
    traps: ParameterTraps  #: skips URLs of parameters that change nothing

    def change(self, order: CrawlOrder) -> None:
        """Judge by the scope and the quotas of this order from now on, queued URLs, too. Raises: OrderError."""
        for fault in budget_faults(order):
            raise OrderError(fault)
        self.scope.change(order.scope)
        self.preselector.change(order.scope.block, self.quotas_of(order.limits))
        self.traps.turn(is_on=order.scope.skip_parameter_traps)

    def informed_after(self, dispose: Dispose) -> Dispose:
        """Wrap the disposition: after it, tell the similarity filter and the rules about parameters of the end."""
        if self.drop_similar is not None:
            dispose = self.drop_similar.learning_after(dispose)
        return self.traps.queueing_after(dispose)


async def open_admission(
    order: CrawlOrder,
    state: Path,
    frontier: AsyncFrontier,
    quotas_of: QuotasOf,
    seeds: Container[str],
    opened: AsyncExitStack,
) -> UrlAdmission:
    """Open what the order asks for; it is closed before the Frontier is. Raises: OrderError, StorageError, StoreUnavailable."""
    scope, canonicalizer = open_scope(order.scope), Canonicalizer(order.urls.canonicalization)
    similar = await open_similar_filter(state, order)
    drop_similar = None
    if similar is not None:
        drop_similar = DropSimilar(similar, frontier.flush)
        opened.push_async_callback(drop_similar.close)
    with storage_errors(state):
        kept = await asyncio.to_thread(lambda: SkippedUrls(state, round_of_run(state)))
    traps = ParameterTraps(ParameterRules(), kept, frontier, canonicalizer.key, seeds)
    opened.push_async_callback(traps.close)
    traps.turn(is_on=order.scope.skip_parameter_traps)
    await traps.begin()
    # User functions see each link again. The similarity filter learns seen URLs, too: a crash may have made it forget them.
    has_user_functions = bool(order.scope.rules) or any(map(is_user_function, order.urls.canonicalization))
    seen = (
        None
        if has_user_functions
        else SeenUrls(frontier.core.unseen if similar is None else None, count=frontier.core.known.count_recent)
    )
    return UrlAdmission(
        scope=scope,
        canonicalizer=canonicalizer,
        similar=similar,
        drop_similar=drop_similar,
        seen=seen,
        preselector=Preselector(scope, order.scope.block, quotas_of(order.limits), traps.check),
        quotas_of=quotas_of,
        traps=traps,
    )


class OutOfScope(FetchError):
    """The scope no longer accepts the URL: final."""

    status = FetchStatus.OUT_OF_SCOPE


class BlockedByOperator(FetchError):
    """The URL matches a pattern of `[scope] block`: final."""

    status = FetchStatus.BLOCKED


class OverLimit(FetchError):
    """A limit of the crawl or of the host is reached: final."""

    def __init__(self, annotation: str) -> None:
        super().__init__(f"over a limit: {annotation}")
        self.annotation = annotation


class QuotaReached(OverLimit):
    """The limit is one of pages or bytes."""

    status = FetchStatus.OVER_QUOTA


class TimeReached(OverLimit):
    """The limit is one of time."""

    status = FetchStatus.OVER_TIME


_OVER_LIMIT = {FetchStatus.OVER_QUOTA: QuotaReached, FetchStatus.OVER_TIME: TimeReached}


class Preselector:
    """Judges a URL again before it is fetched: blocked (-5001), out of scope (-5000), over a quota (-5003) or time (-5004),
    or skipped (-5005).

    The order or a quota may have changed since it was queued. Such a URL ends disregarded, and its slot does not rest.
    """

    def __init__(
        self,
        scope: Scope,
        block: Sequence[str],
        over_quota_of: OverQuotaOf | None = None,
        skip: Callable[[Lease], Awaitable[None]] | None = None,
    ) -> None:
        """`skip` raises for a URL that the crawl skips; None: it skips none."""
        self._scope = scope
        self._skip = skip
        self.change(block, over_quota_of)

    def change(self, block: Sequence[str], over_quota_of: OverQuotaOf | None) -> None:
        """Judge by these patterns and quotas from now on."""
        self._is_blocked = blocked_by(block)
        self._over_quota_of = over_quota_of

    def is_blocked(self, url: str) -> bool:
        """One of the patterns matches the URL."""
        return self._is_blocked(url)

    async def __call__(self, visit: Visit) -> Step:
        """Let the visit pass. Raises: FetchError of the kinds above; UserFunctionFailed."""
        lease = visit.lease
        if self.is_blocked(lease.url):
            raise BlockedByOperator("blocked by the operator")
        if not self._scope.accepts(lease.url, lease.hops, lease.via):
            raise OutOfScope("out of scope")
        over = None if self._over_quota_of is None else self._over_quota_of(host_of(lease.url))
        if over is not None:
            raise _OVER_LIMIT[over.status](over.annotation)
        if self._skip is not None and ("?" in lease.url or ";" in lease.url):
            await self._skip(lease)
        return Step.PROCEED


def host_quotas(
    limits: LimitsSection,
    accounts: Accounts,
    clock: Callable[[], float],
    of_host: Callable[[str], Totals] | None = None,
) -> OverQuotaOf | None:
    """The quotas of hosts by the job's accounts, or by `of_host`; None if hosts have no limits. It raises StorageError."""
    quotas = Quotas(pages=limits.pages_per_host, bytes=limits.bytes_per_host, time=limits.time_per_host_s)
    if quotas == Quotas():
        return None

    def over(host: str) -> OverQuota | None:
        with storage_errors(accounts.path):
            totals = accounts.of_host(host) if of_host is None else of_host(host)
        since_s = totals.first_success_s
        used = Used(totals.pages, totals.bytes, 0.0 if since_s is None else clock() - since_s)
        return over_quota(quotas, used)

    return over


def host_and_group_quotas(
    limits: LimitsSection, of_hosts: Callable[[LimitsSection], OverQuotaOf | None], groups: GroupBudgets
) -> OverQuotaOf | None:
    """The quotas of hosts, and the budgets of their groups; None without any. It raises StorageError."""
    over_host, budgets = of_hosts(limits), quotas_of_groups(limits)
    if budgets == Quotas():
        return over_host

    def over(host: str) -> OverQuota | None:
        found = None if over_host is None else over_host(host)
        return found or groups.over(budgets, host)

    return over
