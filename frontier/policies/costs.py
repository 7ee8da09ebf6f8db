"""Cost policies: what fetching a URL takes from the budgets of its queue.

    unit            1 for every URL (the default)
    zero            0: budgets never end
    anticalendar    1, and 1 more for a path or query that looks like a calendar's
    wag             1, and 1 more for a query, and 1 more if the page before it differs in the query only ("wild guess")
    module:function the user's own, called with (url, via, hops)

These are Heritrix's policies. Two are stricter here: a word such as "date" counts as a word, so "update" is no calendar, and
the host is not looked at; and `wag` compares the whole page address, not its beginning. Everything here is pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from anabranch.frontier.errors import PolicyError
from anabranch.frontier.policies.ownfunctions import Import, call_own, is_own, own_function, shown

#: (url, the URL of the page it was found on or None, hops) -> cost units
CostOf = Callable[[str, str | None, str], int]

#: No URL may cost more; a user's function that says so is wrong.
MOST_EXPENSIVE = 1_000_000


@dataclass(frozen=True, slots=True)
class Cost:
    """A cost policy."""

    name: str  #: as in the order
    of: CostOf  #: Raises: PolicyError if it is a user's function that fails or answers nonsense
    constant: int | None = None  #: the cost of every URL, if it is always the same: `of` need not be called


def parse_cost(name: str, imported: Import | None = None) -> Cost:
    """The cost policy of that name; `imported` finds a user's function. Raises: PolicyError."""
    if name in _CONSTANT:
        amount = _CONSTANT[name]
        return Cost(name, lambda url, via, hops: amount, amount)  # noqa: ARG005 - one shape for all
    if name in _RULES:
        return Cost(name, _RULES[name])
    return Cost(name, own_number("cost", name, imported, [*_CONSTANT, *_RULES], MOST_EXPENSIVE, "url, via, hops"))


def own_number(
    what: str, name: str, imported: Import | None, known: Iterable[str], highest: int, arguments: str
) -> Callable[..., int]:
    """The user's function of that name, made to answer with a whole number from 0 to `highest` or raise PolicyError.

    The error names `what` it is, the function, and the URL or queue of its first argument. Raises: PolicyError if `name` is
    not written like a function, which lists the `known` names, and as `own_function` does.
    """
    if not is_own(name):
        raise PolicyError(f"{what} {shown(name)} is unknown; choose one of {', '.join(known)}, package.module:function")
    function = own_function(name, what, imported, arguments)

    def answer(*arguments: object) -> int:
        whose = f"{what} {name} for {_subject(arguments[0])}"
        number = call_own(lambda given: function(*given), arguments, whose)
        if type(number) is not int or not 0 <= number <= highest:
            raise PolicyError(f"{whose} gave {shown(repr(number))}; a whole number from 0 to {highest} is needed")
        return number

    return answer


def _subject(argument: object) -> str:
    """What a function is asked about: a URL, a candidate by its URL, a queue by its key."""
    return shown(str(getattr(argument, "url", None) or getattr(argument, "key", None) or argument))


# Words that stand alone, and parts that betray a calendar wherever they stand; years of two centuries.
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
