"""How evenly a policy spreads URLs."""

import pytest

from anabranch.frontier.models import QueueKey
from anabranch.frontier.policies.assignment import parse_policy
from anabranch.frontier.policies.balance import Balance, balance


def test_balance_counts_queues_and_compares_the_longest_with_the_mean() -> None:
    """Two URLs in one queue and one in another: the longest has a third more than its share."""
    found = balance([QueueKey("a"), QueueKey("b"), QueueKey("a")])
    assert found == Balance(urls=3, queues=2, longest=2)
    assert found.mean == 1.5
    assert found.max_over_mean == pytest.approx(4 / 3)


def test_nothing_is_balanced() -> None:
    """No URLs, no division by zero."""
    found = balance([])
    assert (found, found.mean, found.max_over_mean) == (Balance(0, 0, 0), 0.0, 0.0)


@pytest.mark.parametrize("policy", ["bkdr:997", "elf:997", "sdbm:997"])
def test_a_prime_number_of_queues_is_filled_by_every_hash(policy: str) -> None:
    """A portal's URLs reach each of 997 queues, and none has thrice its share."""
    urls = [f"http://www.portal.test/news/2024/{n % 12 + 1:02}/article-{n:06}.html" for n in range(40_000)]
    found = balance(parse_policy(policy)(urls))
    assert found.queues == 997
    assert found.max_over_mean < 3
