"""Budgets: how much a queue may spend before others get their turn, and before it is retired. Pure.

The unit is the cost of a URL, paid when its lease ends. Names and defaults are Heritrix's (balanceReplenishAmount,
queueTotalBudget, errorPenaltyAmount).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from anabranch.frontier.errors import PolicyError
from anabranch.frontier.policies.userfunctions import Import, call_user_function, is_user_function, shown, user_function
from anabranch.frontier.records import OutcomeKind

#: A total budget without end.
UNLIMITED = -1
#: The total budget of a queue that the operator put aside: every queue has spent as much.
NOTHING_MORE = 0

# By these names, because reading a member of an Enum's class costs more than all the rest of `spend`.
_DONE: Final = OutcomeKind.DONE
_RETRY: Final = OutcomeKind.RETRY
_FAILED: Final = OutcomeKind.FAILED


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """The budgets of each queue by the order, or by a site's sheets. Amounts in cost units. Raises: PolicyError."""

    balance_replenish: int = 3000  #: one session: after so much the queue goes behind its equals
    total_budget: int = UNLIMITED  #: over it the queue is retired, its URLs are kept; 0 = never run, -1 = without end
    error_penalty: int = 100  #: the extra cost of a URL that failed for good

    def __post_init__(self) -> None:
        _check("balance_replenish", self.balance_replenish, lowest=1)
        _check("total_budget", self.total_budget, lowest=UNLIMITED)
        _check("error_penalty", self.error_penalty, lowest=0)


def spend(kind: OutcomeKind, cost: int, penalty: int) -> int:
    """The units that a queue pays for a lease that ended so: a try costs, a failure also the penalty, all else 0."""
    if kind is _DONE or kind is _RETRY:
        return cost
    return cost + penalty if kind is _FAILED else 0


def checked_total(budget: int) -> int:
    """A total budget that an operator gives one queue. Raises: PolicyError below -1."""
    _check("total_budget", budget, lowest=UNLIMITED)
    return budget


def _check(name: str, amount: int, *, lowest: int) -> None:
    if not isinstance(amount, int) or isinstance(amount, bool) or amount < lowest:
        end = ", which is without end," if lowest == UNLIMITED else ""
        raise PolicyError(f"{name} {amount!r}: give a whole number of cost units, {lowest}{end} or more")


#: (url, the URL of the page it was found on or None, hops) -> cost units
CostOf = Callable[[str, str | None, str], int]

#: The highest cost that a user function may give.
MOST_EXPENSIVE = 1_000_000


@dataclass(frozen=True, slots=True)
class Cost:
    """A cost policy."""

    of: CostOf  #: Raises: PolicyError if a user function fails or gives a bad answer
    constant: int | None = None  #: the cost of every URL, if it is always the same: `of` need not be called


def parse_cost(name: str, imported: Import | None = None) -> Cost:
    """The cost policy of that name; `imported` finds a user function. Raises: PolicyError."""
    if name in _CONSTANT:
        amount = _CONSTANT[name]
        return Cost(lambda url, via, hops: amount, amount)  # noqa: ARG005 - one shape for all
    if name in _RULES:
        return Cost(_RULES[name])
    return Cost(user_number("cost", name, imported, [*_CONSTANT, *_RULES], MOST_EXPENSIVE, "url, via, hops"))


def user_number(
    what: str, name: str, imported: Import | None, known: Iterable[str], highest: int, arguments: str
) -> Callable[..., int]:
    """The user function of that name, wrapped to give a whole number from 0 to `highest` or raise PolicyError.

    Raises: PolicyError, with the `known` names, if `name` is not written like a function; and as `user_function`.
    """
    if not is_user_function(name):
        raise PolicyError(f"{what} {shown(name)} is unknown; choose one of {', '.join(known)}, package.module:function")
    function = user_function(name, what, imported, arguments)

    def answer(*arguments: object) -> int:
        first = arguments[0]  # a URL, a candidate with a URL, or a queue with a key
        subject = shown(str(getattr(first, "url", None) or getattr(first, "key", None) or first))
        call = f"{what} {name} for {subject}"
        number = call_user_function(lambda given: function(*given), arguments, call)
        if type(number) is not int or not 0 <= number <= highest:
            raise PolicyError(f"{call} gave {shown(repr(number))}; a whole number from 0 to {highest} is needed")
        return number

    return answer


# Words that mark a calendar when alone, parts that mark one anywhere, and years of two centuries.
_CALENDAR = re.compile(
    r"(?<![a-z])(?:years?|months?|days?|dates?|events?|yr|jours?)(?![a-z])|calendar|calendrier|viewcal|(?<!\d)(?:19|20)\d\d(?!\d)",
    re.IGNORECASE,
)


def _anticalendar(url: str, via: str | None, hops: str) -> int:  # noqa: ARG001 - one shape for all
    _, _, rest = url.partition("://")
    slash = rest.find("/")
    return 2 if slash >= 0 and _CALENDAR.search(rest, slash) else 1


def _wag(url: str, via: str | None, hops: str) -> int:  # noqa: ARG001 - one shape for all
    page, question, _ = url.partition("?")
    if not question:
        return 1
    return 3 if via is not None and via.partition("?")[0] == page else 2


_CONSTANT = {"unit": 1, "zero": 0}
_RULES: dict[str, CostOf] = {"anticalendar": _anticalendar, "wag": _wag}

#: Every URL costs 1: Heritrix's default.
UNIT = parse_cost("unit")
