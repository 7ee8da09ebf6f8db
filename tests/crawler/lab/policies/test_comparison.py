"""How many workers a policy could keep busy, and who is first."""

from __future__ import annotations

import pytest

from anabranch.crawler.lab.policies.comparison import Bound, bound, is_crawler_limit, ranked
from anabranch.crawler.lab.policies.series import Busy
from anabranch.frontier.policies.balance import Balance
from tests.crawler.lab.policies.runs import run_of, setting_of


@pytest.mark.parametrize(
    ("politeness", "connections", "queues", "workers", "most"),
    [
        ("paper", 1, 997, 1000, 997),
        ("paper", 1, 997, 100, 100),
        ("off", 8, 997, 1000, 997),
        ("polite", 1, 997, 1000, 10),
        ("polite", 8, 997, 1000, 80),
        ("polite", 8, 10, 1000, 10),
    ],
)
def test_queues_slots_and_workers_bound_what_is_possible(
    politeness: str, connections: int, queues: int, workers: int, most: int
) -> None:
    """A queue has one URL in flight; under polite a host has as many as its gate has slots."""
    setting = setting_of(politeness=politeness, connections=connections, workers=workers)
    assert bound(setting, run_of(queue_lengths=Balance(5000, queues, 100))).fetches == most


def test_where_nobody_counted_the_hosts_only_queues_and_workers_bound_it() -> None:
    """A real crawl does not know its hosts beforehand."""
    assert bound(setting_of(hosts=0), run_of(queue_lengths=Balance(5000, 50, 100))) == Bound(50, "50 queues")


def test_policies_are_ranked_by_active_workers_over_the_common_interval() -> None:
    """What a longer run did later does not lift it."""
    late, early = run_of("late", active=(1, 1, 99, 99)), run_of("early", active=(5, 5))
    assert [run.policy for run, _ in ranked([late, early])] == ["early", "late"]


def test_a_crawler_that_is_late_by_less_than_a_fetch_takes_was_not_the_limit() -> None:
    """Half a second late matters where pages come in a tenth of one, not where they take a whole one."""
    late = run_of(crawler=Busy(0.3, 0.5))
    assert is_crawler_limit(setting_of(latency_s=0.1), late)
    assert not is_crawler_limit(setting_of(latency_s=1.0), late)
    assert is_crawler_limit(setting_of(latency_s=1.0), run_of(crawler=Busy(0.9, 0.5)))
