"""Budgets: how much a queue may spend before others get their turn, and before it is retired.

The unit is the cost of a URL (see `costs`); a URL is paid for when its lease ends. Names and defaults are Heritrix's
(balanceReplenishAmount, queueTotalBudget, errorPenaltyAmount). Everything here is pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from anabranch.frontier.errors import PolicyError
from anabranch.frontier.models import OutcomeKind

#: A total budget without end.
UNLIMITED = -1
#: The total budget of a queue that was put aside: whatever it has spent, it is over it.
NOTHING_MORE = 0

# By these names, because reading a member of an Enum's class costs more than all the rest of `spend`.
_DONE: Final = OutcomeKind.DONE
_RETRY: Final = OutcomeKind.RETRY
_FAILED: Final = OutcomeKind.FAILED


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """What the order, or the sheets of a site, allow each queue. Amounts in cost units. Raises: PolicyError."""

    balance_replenish: int = 3000  #: one session: after so much the queue goes behind its equals
    total_budget: int = UNLIMITED  #: over it the queue is retired, its URLs are kept; 0 = never run, -1 = without end
    error_penalty: int = 100  #: what a URL that failed for good costs beside its own cost

    def __post_init__(self) -> None:
        _check("balance_replenish", self.balance_replenish, lowest=1)
        _check("total_budget", self.total_budget, lowest=UNLIMITED)
        _check("error_penalty", self.error_penalty, lowest=0)


def spend(kind: OutcomeKind, cost: int, penalty: int) -> int:
    """What a queue pays for a lease that ended so, for a URL of this cost.

    A try costs, whether it brought the page or must be repeated; a failure costs the penalty too, which pushes broken hosts
    back; what was deliberately not fetched, or went back to its old place, is free.
    """
    if kind is _DONE or kind is _RETRY:
        return cost
    return cost + penalty if kind is _FAILED else 0


def is_over_total(spent: int, budget: int) -> bool:
    """The queue has spent its total budget and is to be retired; a budget below 0 has no end."""
    return 0 <= budget <= spent


def total_budget(own: int | None, sheet: int | None, order: int) -> int:
    """The total budget that counts for a queue: its own, set by the operator; else its sheet's; else the order's."""
    if own is not None:
        return own
    return order if sheet is None else sheet


def checked_total(budget: int) -> int:
    """A total budget that an operator gives one queue. Raises: PolicyError below -1."""
    _check("total_budget", budget, lowest=UNLIMITED)
    return budget


def _check(name: str, amount: int, *, lowest: int) -> None:
    if not isinstance(amount, int) or isinstance(amount, bool) or amount < lowest:
        end = ", which is without end," if lowest == UNLIMITED else ""
        raise PolicyError(f"{name} {amount!r}: give a whole number of cost units, {lowest}{end} or more")
