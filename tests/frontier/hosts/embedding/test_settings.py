"""Settings of a host program, given as plain values."""

from __future__ import annotations

import tomllib

import pytest

from anabranch.crawler.job.frontier import frontier_order
from anabranch.crawler.order.order import CrawlOrder
from anabranch.frontier.errors import PolicyError
from anabranch.frontier.hosts.embedding.settings import order_of, order_text
from anabranch.frontier.order import FrontierOrder
from anabranch.frontier.policies.assignment import PolitenessScope
from tests.rows import each_row

ALL = {
    "policy": "bkdr:64",
    "politeness": "queue",
    "balance_replenish": 10,
    "total_budget": 99,
    "error_penalty": 7,
    "cost": "zero",
    "uri_precedence": "cost",
    "queue_precedence": "base",
    "precedence_floor": 200,
    "per_queue": 2,
    "checkpoint": 5.5,
    "gates_in_memory": 77,
    "workers": 12,
    "domain_workers": 0.5,
    "slow_workers": 0.3,
    "slow_fetch": 2.5,
    "delay_factor": 2.5,
    "min_delay": 0.7,
    "max_delay": 9,
    "max_connections": 3,
    "backoff_base": 11,
    "backoff_cap": 12,
    "backoff_jitter": 0.2,
    "backoff_forgive": 13,
    "max_retry_after": 14,
    "group_delay_factor": 1,
    "group_min_delay": 2,
    "group_max_delay": 3,
    "group_max_connections": 4,
    "filter": "both",
    "signature": "md5",
    "levels": [1, 2],
    "leaf_bits": 1 << 14,
    "split_fan_out": 2,
    "false_positive": 0.01,
    "expect": 1000,
    "override": [
        {"surt": "slow.test", "min_delay": 5.0, "max_delay": 50, "delay_factor": 1, "max_connections": 1},
        {"surt": ["(test,a,)/x", "b.test"], "key": "mine", "uri_precedence": 3},
        {"surt": "c.test", "balance_replenish": 3, "total_budget": -1, "queue_precedence": 2, "key": "c"},
        {"surt": "d.test", "domain_workers": 0.9},
    ],
}


def test_nothing_said_is_the_frontiers_own_order() -> None:
    """A host need not know any of it; only the policy is one that keeps a site's order."""
    assert order_of({}) == FrontierOrder(policy="host")


def test_what_is_said_is_what_the_same_words_mean_in_a_crawl_order() -> None:
    """`anabranch frontier` opens the job by the order file, the host by its own values: both must ask for the same."""
    said = CrawlOrder.model_validate(tomllib.loads(order_text(ALL)))
    asked = frontier_order(said)
    mine = order_of(ALL)
    for name in (
        "policy",
        "scope",
        "politeness",
        "backoff",
        "group_politeness",
        "budgets",
        "cost",
        "per_queue",
        "uniq",
        "workers",
        "worker_limits",
    ):
        assert getattr(mine, name) == getattr(asked, name), name
    assert list(mine.overrides) == list(asked.overrides)
    assert mine.scope is PolitenessScope.QUEUE
    assert (mine.checkpoint_s, mine.gates_in_memory, mine.precedence_floor) == (5.5, 77, 200)


@pytest.mark.parametrize(
    ("settings", "per_queue"),
    [
        ({}, 1),
        ({"max_connections": 8}, 8),
        ({"max_connections": 8, "per_queue": 2}, 2),
        ({"max_connections": 2, "override": [{"surt": "a.test", "max_connections": 9}]}, 9),
    ],
)
def test_a_queue_gives_as_many_urls_as_a_host_has_connections(settings: dict[str, object], per_queue: int) -> None:
    """Else the one queue of a host would leave connections idle; and the order file says the same."""
    assert order_of(settings).per_queue == per_queue
    assert CrawlOrder.model_validate(tomllib.loads(order_text(settings))).frontier.per_queue == per_queue


@each_row(
    ("settings", "said"),
    [
        ({"delay": 3}, "'delay' is no setting of the Frontier; choose from policy, "),
        ({"min_delay": "3s"}, "min_delay '3s': give a number that is not negative"),
        ({"min_delay": -1}, "min_delay -1: give a number"),
        ({"max_connections": 1.5}, "max_connections 1.5: give a whole number"),
        ({"max_connections": True}, "max_connections True: give a whole number"),
        ({"policy": ""}, "policy '': give text"),
        ({"override": {"surt": "a.test"}}, "override {'surt': 'a.test'}: give a list of tables"),
        ({"override": [{"surt": "a.test", "delay": 3}]}, "'delay' is no setting of override; choose from surt, "),
        ({"override": [{"surt": [], "min_delay": 3}]}, "surt []: give text, or a list of texts"),
        ({"override": [{"min_delay": 3}]}, "an override names no SURT prefix"),
        ({"override": ["a.test"]}, "override 'a.test': give a table of names and values"),
        ({"politeness": "rude"}, "politeness 'rude': choose one of host, queue, off"),
    ],
)
def test_what_makes_no_sense_is_named(settings: dict[str, object], said: str) -> None:
    """With what may stand there."""
    with pytest.raises(PolicyError) as refused:
        order_of(settings)
    assert said in str(refused.value)
