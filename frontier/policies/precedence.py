"""Precedence: which URL of a queue goes first, and which queue of a gate. Smaller numbers go first, as in Heritrix. Pure.

A **row** sorts by directive, then URI precedence, then order of acceptance: `directive << 8 | URI precedence`. The URI
precedence is the candidate's own (Heritrix's "preloaded"), else its sheet's, else the policy's:

    base[:N]        N for every URL, 1 if N is left out
    cost            the URL's cost (the default; with costs of `unit` the same as base:1)
    hops[:all]      1 plus the number of links (hops "L") on its path from the seed; `hops:all` counts every hop
    module:function a user function, called with (candidate, via)

A **queue** has one precedence for all its lanes:

    base[:N]        N, 3 if N is left out (the default); a sheet's `queue_precedence` replaces N
    success[:A,B…]  base, plus one for each tier of successes: after A, after B more, then after each further B
    module:function a user function, called with a `QueueHistory`

A queue at the precedence floor (255) or above never runs. Successes alone never bring a queue there. Heritrix's `highest-uri`
is not offered: each URL that comes or goes would have to update its idle queue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from anabranch.frontier.errors import PolicyError
from anabranch.frontier.policies.budgets import UNIT, Cost, user_number
from anabranch.frontier.policies.userfunctions import Import, shown
from anabranch.frontier.records import Candidate, QueueKey

#: Precedences are numbers from 0 to this one.
LAST = 255
#: A queue at this precedence or above never runs, unless the order sets another floor.
FLOOR = 255
#: Default precedence of a queue and of a URL (Heritrix's).
QUEUE_BASE = 3
URI_BASE = 1

# Heritrix's scheduling directives NORMAL and HIGH, which sort before the URI precedence.
_NORMAL = 3 << 8
_HIGH = 1 << 8

UriRule = Callable[[Candidate, str | None], int]


def is_precedence(number: int | None) -> bool:
    """Whether a candidate may bring this URI precedence; others are refused."""
    return number is None or (type(number) is int and 0 <= number <= LAST)


def in_front(precedence: int) -> int:
    """The row precedence of a queued row that is moved to the front."""
    return _HIGH | (precedence & LAST)


@dataclass(frozen=True, slots=True)
class UriPrecedence:
    """A policy for URIs."""

    rule: UriRule  #: (candidate, via) -> 0 to 255
    constant: int | None = None  #: the rule's answer for every candidate, if it is always the same

    @property
    def plain(self) -> int | None:
        """The row precedence of every candidate that brings none and is not for the front; None = ask `in_row`."""
        return None if self.constant is None else _NORMAL | self.constant

    def in_row(self, candidate: Candidate, via: str | None = None, sheet: int | None = None) -> int:
        """The row precedence of a candidate found on `via`; `sheet` is its sheet's. Raises: PolicyError."""
        number = candidate.precedence
        if number is None:
            number = sheet
        if number is None:
            number = self.constant
        if number is None:
            number = self.rule(candidate, via)
        return (_HIGH if candidate.front else _NORMAL) | number


def parse_uri_precedence(name: str, imported: Import | None = None, cost: Cost = UNIT) -> UriPrecedence:
    """The URI precedence policy of that name; the policy `cost` uses `cost`. Raises: PolicyError."""
    kind, colon, argument = name.partition(":")
    if kind == "base":
        return _always(_number("URI precedence", name, argument, LAST) if colon else URI_BASE)
    if name == "cost" and cost.constant is not None:
        return _always(min(cost.constant, LAST))
    if name == "cost":
        return UriPrecedence(lambda candidate, via: min(cost.of(candidate.url, via, candidate.hops), LAST))
    if name in _HOPS:
        return UriPrecedence(_HOPS[name])
    known = ["base:N", "cost", *_HOPS]
    return UriPrecedence(user_number("URI precedence", name, imported, known, LAST, "candidate, via"))


class QueueHistory(NamedTuple):
    """The facts that a policy for queues is given."""

    key: QueueKey
    base: int  #: the precedence by the order, or by the queue's sheet
    spent: int  #: cost units so far
    successes: int  #: URLs that ended well
    errors: int  #: URLs that failed for good


@dataclass(frozen=True, slots=True)
class QueuePrecedence:
    """A policy for queues; asked again whenever a session of the queue ends."""

    base: int = QUEUE_BASE  #: precedence of a new queue without a sheet
    floor: int = FLOOR  #: a queue at this precedence or above never runs
    rule: Callable[[QueueHistory], int] | None = None  #: None = always the base

    def of(self, history: QueueHistory) -> int:
        """The precedence of a queue now. Raises: PolicyError if a user function fails or gives a bad answer."""
        return history.base if self.rule is None else self.rule(history)


def parse_queue_precedence(name: str, imported: Import | None = None, floor: int = FLOOR) -> QueuePrecedence:
    """The queue precedence policy of that name, with the order's precedence floor. Raises: PolicyError."""
    if type(floor) is not int or not 1 <= floor <= LAST:
        raise PolicyError(f"precedence floor {floor!r}: give a whole number from 1 to {LAST}")
    kind, colon, argument = name.partition(":")
    if kind == "base":
        base = _number("queue precedence", name, argument, LAST) if colon else QUEUE_BASE
        return QueuePrecedence(base, floor)
    if kind == "success":
        tiers = [_number("queue precedence", name, tier) for tier in argument.split(",")] if colon else [100, 1000]
        if not all(tiers):
            raise PolicyError(
                f"queue precedence {shown(name)}: a tier needs at least one success, as in success:100,1000"
            )
        return QueuePrecedence(floor=floor, rule=_by_success(tiers, floor))
    if name == "highest-uri":
        raise PolicyError(
            f"queue precedence {name} is not offered; give URLs precedence in their queues, or queues by sheet"
        )
    known = ["base:N", "success:A,B"]
    rule = user_number("queue precedence", name, imported, known, LAST, "history")
    return QueuePrecedence(floor=floor, rule=rule)


def _always(number: int) -> UriPrecedence:
    return UriPrecedence(lambda candidate, via: number, number)  # noqa: ARG005 - one shape for all


_HOPS: dict[str, UriRule] = {
    "hops": lambda candidate, via: min(URI_BASE + candidate.hops.count("L"), LAST),  # noqa: ARG005 - one shape for all
    "hops:all": lambda candidate, via: min(URI_BASE + len(candidate.hops), LAST),  # noqa: ARG005 - one shape for all
}


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


def _number(what: str, name: str, digits: str, highest: int = 1_000_000_000) -> int:
    if not (digits.isascii() and digits.isdigit() and len(digits) < 11 and int(digits) <= highest):
        raise PolicyError(f"{what} {shown(name)}: give a whole number from 0 to {highest}")
    return int(digits)
