"""The budgets of groups of hosts, `[politeness] groups` or `group = "domain"`: pages, bytes and time of all hosts of a group.

What a group has used is summed from the job's accounts when a budget is first asked for, and counted with each visit from then
on. A fetch under way when a budget is used up still counts, as with quotas of hosts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from anabranch.crawler.accounts.accounts import Accounts
from anabranch.crawler.accounts.database import AccountsView
from anabranch.crawler.order.frontier import PolitenessSection
from anabranch.crawler.order.sections import LimitsSection
from anabranch.crawler.outcomes.errors import storage_errors
from anabranch.crawler.scope.scope import OverQuota, Quotas, Used, over_quota
from anabranch.crawler.urls.parsing import host_of
from anabranch.crawler.visit import Dispose, Visit
from anabranch.frontier import HostTable
from anabranch.frontier.policies.hosts import domain_of, parse_surt
from anabranch.frontier.records import ENDING, OutcomeKind


def quotas_of_groups(limits: LimitsSection) -> Quotas:
    """The budgets of each group."""
    return Quotas(pages=limits.pages_per_group, bytes=limits.bytes_per_group, time=limits.time_per_group_s)


def group_of(politeness: PolitenessSection) -> Callable[[str], str | None] | None:
    """Host -> its group, or None; None without groups that have budgets. Raises: PolicyError."""
    if politeness.group == "domain":
        return domain_of
    if not politeness.groups:
        return None
    table: HostTable[str] = HostTable()
    for surt, name in politeness.groups.items():
        table.put(parse_surt(surt), name)
    return table.get


@dataclass(slots=True)
class _GroupUse:
    """The amounts that a group has used."""

    pages: int = 0
    bytes: int = 0
    since_s: float | None = None  #: its first answer, epoch seconds

    def add(self, pages: int, size_bytes: int, since_s: float | None) -> None:
        """Add more of it."""
        self.pages += pages
        self.bytes += size_bytes
        if since_s is not None and (self.since_s is None or since_s < self.since_s):
            self.since_s = since_s


class GroupBudgets:
    """The budgets of one run. Memory: 150 bytes for each group that was fetched from."""

    def __init__(
        self,
        politeness: PolitenessSection,
        accounts: Accounts,
        clock: Callable[[], float],
        view: Callable[[Accounts], AccountsView],
    ) -> None:
        """`view` takes the totals of the whole job."""
        self._group_of = group_of(politeness)
        self._accounts = accounts
        self._clock = clock
        self._view = view
        self._used: dict[str, _GroupUse] | None = None

    def load(self) -> None:
        """Sum what the groups have used, unless that is known (blocks). Cost: 5 µs a host. Raises: StorageError."""
        if self._used is not None or self._group_of is None:
            return
        used: dict[str, _GroupUse] = {}
        with storage_errors(self._accounts.path), self._view(self._accounts) as view:
            for host, totals in view.hosts():
                if (group := self._group_of(host)) is not None:
                    used.setdefault(group, _GroupUse()).add(totals.pages, totals.bytes, totals.first_success_s)
        self._used = used

    def over(self, quotas: Quotas, host: str) -> OverQuota | None:
        """The budget that the group of this host has used up; None if it may be fetched from. Raises: StorageError."""
        self.load()
        if self._used is None or self._group_of is None or (group := self._group_of(host)) is None:
            return None
        use = self._used.get(group)
        if use is None:
            return None
        passed_s = 0.0 if use.since_s is None else self._clock() - use.since_s
        return over_quota(quotas, Used(use.pages, use.bytes, passed_s), "group")

    def counting_after(self, dispose: Dispose) -> Dispose:
        """Wrap the disposition: count what a visit has fetched for the group of its host."""
        if self._group_of is None:
            return dispose
        group_of_host = self._group_of

        async def disposed(visit: Visit) -> OutcomeKind | None:
            kind, response = await dispose(visit), visit.response
            if self._used is not None and kind in ENDING and response is not None and visit.status > 0:
                group = group_of_host(host_of(visit.lease.url))
                if group is not None:
                    use = self._used.setdefault(group, _GroupUse())
                    use.add(1, response.body.size, response.start_s)
            return kind

        return disposed
