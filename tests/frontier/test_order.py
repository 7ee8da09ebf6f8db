"""Settings of a Frontier: which are accepted, and which are refused."""

import pytest

from anabranch.frontier.errors import PolicyError
from anabranch.frontier.order import FrontierOrder, check_numbers
from anabranch.frontier.policies.assignment import PolitenessScope
from anabranch.frontier.policies.budgets import Budgets
from anabranch.frontier.policies.groups import GroupRule
from anabranch.frontier.scheduling.gates import Backoff, Politeness
from tests.rows import each_row


@each_row(
    ("order", "message"),
    [
        ({"politeness": Politeness(min_delay_s=-1.0)}, "not negative"),
        ({"politeness": Politeness(delay_factor=-0.1)}, "not negative"),
        ({"politeness": Politeness(max_delay_s=-1.0)}, "not negative"),
        ({"politeness": Politeness(max_delay_s=float("nan"))}, "not negative"),
        ({"politeness": Politeness(max_delay_s=float("inf"))}, "not negative"),
        ({"politeness": Politeness(min_delay_s=5.0, max_delay_s=2.5)}, "min_delay 5 s is longer than max_delay 2.5 s"),
        ({"politeness": Politeness(slots=0)}, "at least one slot"),
        ({"group_politeness": Politeness(min_delay_s=-1.0)}, "not negative"),
        ({"group_politeness": Politeness(slots=0)}, "at least one slot"),
        ({"max_unacknowledged": 0}, "max_unacknowledged 0: give at least 1"),
        ({"per_queue": 0}, "per_queue 0: give at least 1"),
        ({"gates_in_memory": 0}, "gates_in_memory 0: give at least 1"),
        ({"lease_s": 2399.0}, "lease_s 2399: a lease must last at least twice as long as a fetch may take, 2400 s"),
        ({"lease_s": float("nan")}, "lease_s nan"),
        ({"lease_s": 20.0, "fetch_limit_s": 10.5}, "lease_s 20: .* 21 s"),
        ({"checkpoint_s": 0.0}, "checkpoint_s 0: give more than 0 seconds"),
        ({"backoff": Backoff(base_s=-1.0)}, "backoff base_s -1: give a number that is not negative"),
        ({"backoff": Backoff(cap_s=float("inf"))}, "backoff cap_s inf"),
        ({"backoff": Backoff(jitter=float("nan"))}, "backoff jitter nan"),
        ({"backoff": Backoff(forgive_s=-1.0)}, "backoff forgive_s -1"),
        ({"backoff": Backoff(longest_retry_after_s=-1.0)}, "backoff longest_retry_after_s -1"),
        ({"backoff": Backoff(base_s=61.0, cap_s=60.0)}, "backoff base_s 61 is longer than cap_s 60"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(order: dict[str, object], message: str) -> None:
    """The error names the number and says what may be given."""
    with pytest.raises(PolicyError, match=message):
        check_numbers(FrontierOrder(**order))  # type: ignore[arg-type]


@pytest.mark.parametrize("group", ["domain", {"a.test": "x"}, lambda host: host])
def test_a_group_of_queues_is_refused(group: GroupRule) -> None:
    """A queue's gate stands for no host, so no rule can tell its group; without groups it is an order like any other."""
    with pytest.raises(PolicyError, match=r"politeness queue and a group: .* leave the group out, or say host"):
        check_numbers(FrontierOrder(scope=PolitenessScope.QUEUE, group=group))
    check_numbers(FrontierOrder(scope=PolitenessScope.QUEUE))
    check_numbers(FrontierOrder(group=group))


@each_row(
    "order",
    [
        {},
        {"lease_s": 2400.0},
        {"lease_s": 20.0, "fetch_limit_s": 10.0},
        {"politeness": Politeness(delay_factor=0.0, min_delay_s=0.0, max_delay_s=0.0, slots=10_000)},
        {"backoff": Backoff(base_s=0.0, cap_s=0.0, jitter=0.0, forgive_s=0.0, longest_retry_after_s=0.0)},
        {"backoff": Backoff(base_s=60.0, cap_s=60.0, jitter=1.0)},
        {"per_queue": 1000, "gates_in_memory": 1, "max_unacknowledged": 1},
    ],
)
def test_numbers_at_their_ends_are_taken(order: dict[str, object]) -> None:
    """The defaults too."""
    check_numbers(FrontierOrder(**order))  # type: ignore[arg-type]


def test_a_budget_that_makes_no_sense_cannot_be_written_down() -> None:
    """It is refused where it is made."""
    with pytest.raises(PolicyError, match="balance_replenish 0"):
        FrontierOrder(budgets=Budgets(balance_replenish=0))
