"""What the order and its sheets say of queues: cost, budgets, precedence. Pure; errors are those of a user's own functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from anabranch.frontier.models import Candidate, Head, OutcomeKind, QueueKey
from anabranch.frontier.policies.budgets import Budgets, is_over_total, spend, total_budget
from anabranch.frontier.policies.costs import UNIT, Cost
from anabranch.frontier.policies.precedence import (
    QueueHistory,
    QueuePrecedence,
    UriPrecedence,
    parse_queue_precedence,
    parse_uri_precedence,
)
from anabranch.frontier.policies.sheets import NOTHING, Settings, Sheets
from anabranch.frontier.scheduling.workqueues import WorkQueue

#: What the end of a lease costs, worked out before anything is changed: the units that the queue spends, and its precedence,
#: should its session end with it. A plain tuple, because one is made for every page.
Charge = tuple[int, int]

_DONE: Final = OutcomeKind.DONE
_FAILED: Final = OutcomeKind.FAILED


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRules:
    """How queues are served. Every answer is O(1)."""

    per_queue: int = 1  #: URLs of one queue that may be leased at a time
    budgets: Budgets = field(default_factory=Budgets)
    cost: Cost = UNIT
    uris: UriPrecedence = field(default_factory=lambda: parse_uri_precedence("cost"))
    queues: QueuePrecedence = field(default_factory=lambda: parse_queue_precedence("base"))
    sheets: Sheets = field(default_factory=Sheets)
    host_of: Callable[[QueueKey], str] | None = None  #: a queue's host, where the policy gives each host its own queues

    @property
    def floor(self) -> int:
        """A queue at this precedence or above never runs."""
        return self.queues.floor

    def charge(self, queue: WorkQueue, head: Head, kind: OutcomeKind) -> Charge:
        """The price of a lease that ends so. Raises: PolicyError."""
        cost = self.cost.constant
        if cost is None:
            row, via = head
            cost = self.cost.of(row.url, via, row.hops)
        paid = cost if kind is _DONE else spend(kind, cost, self.budgets.error_penalty)
        return paid, queue.base_precedence if self.queues.rule is None else self.precedence(queue, kind, paid)

    def precedence(self, queue: WorkQueue, kind: OutcomeKind, paid: int) -> int:
        """The queue's precedence once it has paid for a lease that ends so. Raises: PolicyError."""
        if self.queues.is_constant:
            return queue.base_precedence
        successes = queue.successes + (kind is OutcomeKind.DONE)
        errors = queue.errors + (kind is OutcomeKind.FAILED)
        return self.queues.of(QueueHistory(queue.key, queue.base_precedence, queue.spent + paid, successes, errors))

    def first_precedence(self, queue: QueueKey) -> int:
        """The precedence of a queue of which nothing is known but what the order says."""
        base = self._settings(queue).queue_precedence
        return self.queues.base if base is None else base

    def in_row(self, candidate: Candidate, via: str | None) -> int:
        """The row precedence of a candidate that was found on the page `via`. Raises: PolicyError."""
        sheet = self.sheets.for_url(candidate.url).uri_precedence if self.sheets.has_uri_precedence else None
        return self.uris.in_row(candidate, via, sheet)

    @property
    def plain_precedence(self) -> int | None:
        """The row precedence of every candidate that says nothing of its own, if there is one."""
        return None if self.sheets.has_uri_precedence else self.uris.plain

    def meet(self, queue: WorkQueue) -> None:
        """Work out what counts for a queue whose row was read."""
        queue.total_budget = self.total_budget(queue.key, queue.budget)
        queue.base_precedence = self.first_precedence(queue.key)

    def total_budget(self, queue: QueueKey, own: int | None) -> int:
        """The total budget of a queue, -1 = without end; `own` is what the operator gave it."""
        return total_budget(own, self._settings(queue).total_budget, self.budgets.total_budget)

    def session_budget(self, queue: QueueKey) -> int:
        """Cost units of a session."""
        own = self._settings(queue).session_budget
        return self.budgets.balance_replenish if own is None else own

    def is_over_total(self, queue: WorkQueue) -> bool:
        """It has spent all that it may."""
        return is_over_total(queue.spent, queue.total_budget)

    def _settings(self, queue: QueueKey) -> Settings:
        sheets = self.sheets
        if not sheets:
            return NOTHING
        by_key = sheets.for_key(queue)
        if by_key is not None:
            return by_key
        return NOTHING if self.host_of is None else sheets.for_host(self.host_of(queue))


def pay(queue: WorkQueue, kind: OutcomeKind, cost: int) -> None:
    """Note in the queue's books how a lease ended."""
    queue.spent += cost
    queue.unsaved += 1
    if kind is _DONE:
        queue.successes += 1
    elif kind is _FAILED:
        queue.errors += 1
