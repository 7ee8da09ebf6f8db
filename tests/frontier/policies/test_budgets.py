"""Budgets: what a lease costs its queue, and when a queue has spent what it may."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.frontier.errors import PolicyError
from anabranch.frontier.models import OutcomeKind
from anabranch.frontier.policies.budgets import (
    UNLIMITED,
    Budgets,
    checked_total,
    is_over_total,
    spend,
    total_budget,
)


def test_the_defaults_are_those_of_heritrix() -> None:
    """Operators find the numbers they know."""
    assert Budgets() == Budgets(balance_replenish=3000, total_budget=-1, error_penalty=100)


@pytest.mark.parametrize(
    ("kind", "spent"),
    [
        (OutcomeKind.DONE, 7),
        (OutcomeKind.FAILED, 107),
        (OutcomeKind.RETRY, 7),
        (OutcomeKind.DISREGARDED, 0),
        (OutcomeKind.DEFERRED, 0),
        (OutcomeKind.RETIRE, 0),
    ],
)
def test_each_end_of_a_lease_has_its_price(kind: OutcomeKind, spent: int) -> None:
    """Tries cost, failures cost the penalty too, what was not tried is free."""
    assert spend(kind, 7, 100) == spent


def test_every_kind_of_outcome_has_a_price_in_the_test_above() -> None:
    """A new kind of outcome needs a decision about its price."""
    assert {kind.name for kind in OutcomeKind} == {"DONE", "FAILED", "RETRY", "DISREGARDED", "DEFERRED", "RETIRE"}


def test_a_total_budget_ends_when_it_is_spent() -> None:
    """A queue with budget left goes on; one without is retired."""
    assert not is_over_total(99, 100)
    assert is_over_total(100, 100)
    assert is_over_total(101, 100)


def test_a_total_budget_of_0_is_spent_at_once() -> None:
    """0 is an amount, not the absence of one."""
    assert is_over_total(0, 0)


@given(st.integers(0, 2**62))
def test_a_budget_without_end_is_never_spent(spent: int) -> None:
    """-1 means that nothing is too much."""
    assert not is_over_total(spent, UNLIMITED)


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(1, 10**9))
def test_raising_a_budget_far_enough_wakes_a_queue(spent: int, budget: int, more: int) -> None:
    """A retired queue runs again as soon as its budget is larger than what it spent, and not before."""
    assert is_over_total(spent, budget) == (budget <= spent)
    assert not is_over_total(spent, spent + more)


@pytest.mark.parametrize(
    ("own", "sheet", "order", "counts"),
    [
        (5, 6, 7, 5),
        (None, 6, 7, 6),
        (None, None, 7, 7),
        (0, 6, 7, 0),
        (None, 0, 7, 0),
        (UNLIMITED, 6, 7, UNLIMITED),
        (None, UNLIMITED, 7, UNLIMITED),
    ],
)
def test_the_nearest_total_budget_counts(own: int | None, sheet: int | None, order: int, counts: int) -> None:
    """The operator's word for one queue beats the sheet's for a site, which beats the order's for all; 0 and -1 are words."""
    assert total_budget(own, sheet, order) == counts


@pytest.mark.parametrize(
    ("amounts", "line"),
    [
        ({"balance_replenish": 0}, "balance_replenish 0: give a whole number of cost units, 1 or more"),
        ({"error_penalty": -1}, "error_penalty -1: give a whole number of cost units, 0 or more"),
        ({"total_budget": -2}, "total_budget -2: give a whole number of cost units, -1, which is without end, or more"),
        ({"error_penalty": 1.5}, "error_penalty 1.5: give a whole number of cost units, 0 or more"),
        ({"error_penalty": True}, "error_penalty True: give a whole number of cost units, 0 or more"),
    ],
)
def test_an_amount_that_makes_no_sense_is_refused(amounts: dict[str, int], line: str) -> None:
    """One line names the setting and what it may be."""
    with pytest.raises(PolicyError) as raised:
        Budgets(**amounts)
    assert str(raised.value) == line


def test_the_least_amounts_are_taken() -> None:
    """The limits belong to what is allowed."""
    assert Budgets(balance_replenish=1, total_budget=0, error_penalty=0).balance_replenish == 1
    assert checked_total(UNLIMITED) == UNLIMITED


def test_a_budget_of_one_queue_is_checked_too() -> None:
    """What an operator types for one queue meets the same limits."""
    with pytest.raises(PolicyError, match="total_budget -5"):
        checked_total(-5)
