"""Precedence: which URL of a queue goes first, and which queue of a gate. Smaller numbers go first, as in Heritrix.

A **row** sorts by directive, then URI precedence, then the order of acceptance: `directive << 8 | URI precedence`. The
URI precedence of a candidate is the one it brings (Heritrix's "preloaded"), else its sheet's, else the policy's:

    base[:N]        N for every URL, 1 if N is left out
    cost            what the URL costs (the default; with costs of `unit` the same as base:1)
    hops[:all]      1 and the number of links (hops "L") on its path from the seed; `hops:all` counts every hop
    module:function the user's own, called with (candidate, via)

A **queue** has one precedence for all its lanes:

    base[:N]        N, 3 if N is left out (the default); a sheet's `queue_precedence` stands for N
    success[:A,B…]  base, and one more for each tier of successes: after A, after B more, the last one again and again
    module:function the user's own, called with a `QueueHistory`

A queue at the precedence floor (255) or above never runs. Successes alone never bring a queue there: after 250,000 pages
Heritrix's queue stops for good, ours stays the last one that runs. Heritrix's `highest-uri`, which gives a queue the
precedence of its best URL, is not offered: it would have to be known of every idle queue at each URL that comes or goes. What
it is used for is done by precedences of URLs within queues, and by a sheet's `queue_precedence` between them.

Everything here is pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from anabranch.frontier.errors import PolicyError
from anabranch.frontier.policies.budgets import UNIT, Cost, own_number
from anabranch.frontier.policies.userfunctions import Import, shown
from anabranch.frontier.records import Candidate, QueueKey

#: Precedences are numbers from 0 to this one.
LAST = 255
#: A queue at this precedence or above never runs, unless the order says otherwise.
FLOOR = 255
#: Precedence of a queue and of a URL of which nothing else is said (Heritrix's).
QUEUE_BASE = 3
URI_BASE = 1
#: Tiers of `success` (Heritrix's).
TIERS = (100, 1000)


class Directive(IntEnum):
    """What comes before the URI precedence: Heritrix's scheduling directives."""

    HIGHEST = 0
    HIGH = 1  #: scheduled with `front`
    MEDIUM = 2
    NORMAL = 3


_BITS = 8
_NORMAL = Directive.NORMAL << _BITS
_HIGH = Directive.HIGH << _BITS

UriRule = Callable[[Candidate, str | None], int]


def is_precedence(number: int | None) -> bool:
    """Whether a candidate may bring this URI precedence; one that may not is refused."""
    return number is None or (type(number) is int and 0 <= number <= LAST)


def in_front(precedence: int) -> int:
    """The row precedence of a row that is scheduled with `front` after all."""
    return _HIGH | (precedence & LAST)


@dataclass(frozen=True, slots=True)
class UriPrecedence:
    """A policy for URIs."""

    name: str  #: as in the order
    rule: UriRule  #: (candidate, via) -> 0 to 255
    constant: int | None = None  #: what the rule answers for every candidate, if it is always the same

    @property
    def plain(self) -> int | None:
        """The row precedence of every candidate that brings none and is not for the front; None = `in_row` must be asked."""
        return None if self.constant is None else _NORMAL | self.constant

    def in_row(self, candidate: Candidate, via: str | None = None, sheet: int | None = None) -> int:
        """The row precedence of a candidate, found on the page `via`, where its sheet says `sheet` (None = nothing).

        Raises: PolicyError if the policy is a user's function that fails or answers nonsense.
        """
        number = candidate.precedence
        if number is None:
            number = sheet
        if number is None:
            number = self.constant
        if number is None:
            number = self.rule(candidate, via)
        return (_HIGH if candidate.front else _NORMAL) | number


def parse_uri_precedence(name: str, imported: Import | None = None, cost: Cost = UNIT) -> UriPrecedence:
    """The URI precedence policy of that name; `cost` is what `cost` asks. Raises: PolicyError."""
    kind, colon, argument = name.partition(":")
    if kind == "base":
        return _always(name, _number("URI precedence", name, argument, LAST) if colon else URI_BASE)
    if name == "cost":
        return _by_cost(cost)
    if name in _HOPS:
        return UriPrecedence(name, _HOPS[name])
    return UriPrecedence(
        name, own_number("URI precedence", name, imported, ["base:N", "cost", *_HOPS], LAST, "candidate, via")
    )


class QueueHistory(NamedTuple):
    """What a policy for queues may look at."""

    key: QueueKey
    base: int  #: what the order, or the queue's sheet, says
    spent: int  #: cost units so far
    successes: int  #: URLs that ended well
    errors: int  #: URLs that failed for good


@dataclass(frozen=True, slots=True)
class QueuePrecedence:
    """A policy for queues; asked again whenever a session of the queue ends."""

    name: str  #: as in the order
    base: int = QUEUE_BASE  #: precedence of a queue that is new and has no sheet
    floor: int = FLOOR  #: a queue at this precedence or above never runs
    rule: Callable[[QueueHistory], int] | None = None  #: None = always the base

    @property
    def is_constant(self) -> bool:
        """A queue keeps its base for good: `of` need not be asked again."""
        return self.rule is None

    def of(self, history: QueueHistory) -> int:
        """The precedence of a queue now. Raises: PolicyError if it is a user's function that fails or answers nonsense."""
        return history.base if self.rule is None else self.rule(history)


def parse_queue_precedence(name: str, imported: Import | None = None, floor: int = FLOOR) -> QueuePrecedence:
    """The queue precedence policy of that name, with the order's precedence floor. Raises: PolicyError."""
    if type(floor) is not int or not 1 <= floor <= LAST:
        raise PolicyError(f"precedence floor {floor!r}: give a whole number from 1 to {LAST}")
    kind, colon, argument = name.partition(":")
    if kind == "base":
        base = _number("queue precedence", name, argument, LAST) if colon else QUEUE_BASE
        return QueuePrecedence(name, base, floor)
    if kind == "success":
        return QueuePrecedence(name, floor=floor, rule=_by_success(_tiers(name, argument) if colon else TIERS, floor))
    if name == "highest-uri":
        raise PolicyError(
            f"queue precedence {name} is not offered; give URLs precedence in their queues, or queues by sheet"
        )
    known = ["base:N", "success:A,B"]
    return QueuePrecedence(
        name, floor=floor, rule=own_number("queue precedence", name, imported, known, LAST, "history")
    )


def _always(name: str, number: int) -> UriPrecedence:
    return UriPrecedence(name, lambda candidate, via: number, number)  # noqa: ARG005 - one shape for all


def _by_cost(cost: Cost) -> UriPrecedence:
    if cost.constant is not None:
        return _always("cost", min(cost.constant, LAST))
    return UriPrecedence("cost", lambda candidate, via: min(cost.of(candidate.url, via, candidate.hops), LAST))


def _by_links(candidate: Candidate, via: str | None) -> int:  # noqa: ARG001 - one shape for all
    return min(URI_BASE + candidate.hops.count("L"), LAST)


def _by_hops(candidate: Candidate, via: str | None) -> int:  # noqa: ARG001 - one shape for all
    return min(URI_BASE + len(candidate.hops), LAST)


_HOPS: dict[str, UriRule] = {"hops": _by_links, "hops:all": _by_hops}


def _by_success(tiers: Sequence[int], floor: int) -> Callable[[QueueHistory], int]:
    def rule(history: QueueHistory) -> int:
        left, passed = history.successes, 0
        for tier in tiers:
            if left < tier:
                break
            left -= tier
            passed += 1
        else:
            passed += left // tiers[-1]
        return min(history.base + passed, max(history.base, floor - 1))

    return rule


def _tiers(name: str, argument: str) -> list[int]:
    tiers = [_number("queue precedence", name, tier) for tier in argument.split(",")]
    if not all(tiers):
        raise PolicyError(f"queue precedence {shown(name)}: a tier needs at least one success, as in success:100,1000")
    return tiers


def _number(what: str, name: str, digits: str, highest: int = 1_000_000_000) -> int:
    if not (digits.isascii() and digits.isdigit() and len(digits) < 11 and int(digits) <= highest):
        raise PolicyError(f"{what} {shown(name)}: give a whole number from 0 to {highest}")
    return int(digits)
