"""Budgets of groups: what counts for a group, what is summed from earlier runs, and which groups may have one."""

from __future__ import annotations

from anabranch.crawler.accounts.accounts import Accounts
from anabranch.crawler.accounts.database import AccountsView
from anabranch.crawler.job.checking import budget_faults
from anabranch.crawler.order.frontier import PolitenessSection
from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.order.sections import LimitsSection
from anabranch.crawler.outcomes.status import FetchStatus
from anabranch.crawler.processors.admission import host_and_group_quotas
from anabranch.crawler.processors.group_budgets import GroupBudgets
from anabranch.crawler.scope.scope import OverQuota
from anabranch.frontier.records import OutcomeKind
from tests.crawler.builder import START_S, response, visit
from tests.crawler.processors.test_admission import accounts, fetched  # noqa: F401 - the fixture
from tests.rows import each_row

TABLE = PolitenessSection(groups={"test,a,": "ab", "test,b,": "ab"})
OVER = OverQuota(FetchStatus.OVER_QUOTA, "Q:pages_per_group")


def budgets(known: Accounts, politeness: PolitenessSection = TABLE, now_s: float = START_S + 60.0) -> GroupBudgets:
    def view(of: Accounts) -> AccountsView:
        of.sync()
        return AccountsView(of.path.parent)

    return GroupBudgets(politeness, known, lambda: now_s, view)


def over(groups: GroupBudgets, host: str, **limits: object) -> OverQuota | None:
    over_of = host_and_group_quotas(LimitsSection.model_validate(limits), lambda _: None, groups)
    assert over_of is not None
    return over_of(host)


def test_a_group_has_used_what_its_hosts_have(accounts: Accounts) -> None:  # noqa: F811 - the fixture
    """By the accounts of earlier runs; other hosts have no budget."""
    fetched(
        accounts, ("http://a.test/", ""), ("http://www.a.test/", ""), ("http://b.test/1", "L"), ("http://c.test/", "")
    )
    groups = budgets(accounts)
    assert over(groups, "a.test", pages_per_group=3) == OVER
    assert over(groups, "new.b.test", pages_per_group=3) == OVER
    assert over(groups, "a.test", pages_per_group=4) is None
    assert over(groups, "c.test", pages_per_group=1) is None
    assert over(groups, "a.test", time_per_group=60.0) == OverQuota(FetchStatus.OVER_TIME, "Q:time_per_group")
    assert over(groups, "a.test", bytes_per_group=1) == OverQuota(FetchStatus.OVER_QUOTA, "Q:bytes_per_group")


def test_a_domain_is_a_group(accounts: Accounts) -> None:  # noqa: F811
    """If hosts are grouped by it."""
    fetched(accounts, ("http://x.a.co.uk/", ""), ("http://y.a.co.uk/", ""))
    groups = budgets(accounts, PolitenessSection(group="domain"))
    assert over(groups, "z.a.co.uk", pages_per_group=2) == OVER
    assert over(groups, "x.b.co.uk", pages_per_group=2) is None


async def test_each_visit_counts_from_then_on(accounts: Accounts) -> None:  # noqa: F811
    """If it is answered and ends; a try that is repeated does not."""
    groups = budgets(accounts)
    kinds = [OutcomeKind.DONE, OutcomeKind.RETRY, None, OutcomeKind.DONE]

    async def dispose(_: object) -> OutcomeKind | None:
        return kinds.pop(0)

    counting = groups.counting_after(dispose)
    assert over(groups, "b.test", pages_per_group=2) is None
    for path in range(4):
        await counting(visit(url=f"http://a.test/{path}", answer=response(200, b"x")))
    assert over(groups, "b.test", pages_per_group=2) == OVER
    assert over(groups, "b.test", pages_per_group=3) is None
    assert over(groups, "b.test", bytes_per_group=3) is None


def test_without_budgets_no_group_is_asked_for(accounts: Accounts) -> None:  # noqa: F811
    """A crawl pays nothing for them."""
    assert host_and_group_quotas(LimitsSection(), lambda _: None, budgets(accounts)) is None


@each_row(
    ("politeness", "faults"),
    [
        ({}, 1),
        ({"group": "ip"}, 1),
        ({"group": "ours:group"}, 1),
        ({"group": "domain"}, 0),
        ({"groups": {"a.test": "a"}}, 0),
    ],
)
def test_a_budget_needs_groups_that_do_not_change(politeness: dict[str, object], faults: int) -> None:
    """One line says what to do."""
    order = CrawlOrder(
        politeness=PolitenessSection.model_validate(politeness), limits=LimitsSection(time_per_group=1.0)
    )
    found = list(budget_faults(order))
    assert len(found) == faults
    assert all(line.startswith("[limits] time_per_group: there are no groups for it; give ") for line in found)
    assert not list(budget_faults(CrawlOrder(politeness=order.politeness)))
