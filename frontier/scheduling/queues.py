"""The work queues in memory by id, and the rules by which they are served."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from anabranch.frontier.policies.budgets import UNIT, Budgets, Cost, spend
from anabranch.frontier.policies.precedence import (
    QueueHistory,
    QueuePrecedence,
    UriPrecedence,
    parse_queue_precedence,
    parse_uri_precedence,
)
from anabranch.frontier.policies.sheets import NOTHING, Settings, Sheets
from anabranch.frontier.records import Candidate, Head, OutcomeKind, QueueKey
from anabranch.frontier.scheduling.lifecycle import RESTS_IN, STEPS, QueueState, next_state
from anabranch.frontier.scheduling.readylist import WorkQueue

# By these names, because reading a member of an Enum's class costs as much as a call.
_DONE: Final = OutcomeKind.DONE
_DEFERRED: Final = OutcomeKind.DEFERRED


class QueueIndex:
    """The queues in memory, by id."""

    def __init__(self, per_queue: int, save: Callable[[WorkQueue], None]) -> None:
        """`save` writes the row of a queue."""
        self.queues: dict[int, WorkQueue] = {}
        self._per_queue = per_queue
        self._save = save
        self.states = dict.fromkeys(QueueState, 0)  #: queues in memory by state

    def __len__(self) -> int:
        return len(self.queues)

    def __iter__(self) -> Iterator[WorkQueue]:
        return iter(self.queues.values())

    def get(self, queue_id: int) -> WorkQueue | None:
        """The queue, if it is in memory."""
        return self.queues.get(queue_id)

    def take_up(self, queue_id: int) -> WorkQueue:
        """The queue, created if it is not in memory."""
        queue = self.queues.get(queue_id)
        if queue is None:
            queue = self.queues[queue_id] = WorkQueue(queue_id, self._per_queue)
            self.states[queue.state] += 1
        return queue

    def settle(self, queue: WorkQueue) -> None:
        """Set the queue's state by the table of `lifecycle`; an idle queue leaves memory."""
        before, holds = queue.state, queue.holds()
        state = RESTS_IN[holds]
        if state is not before:
            if holds not in STEPS[before]:  # a call for what never happens would cost half of this one
                next_state(before, holds)
            states = self.states
            states[before] -= 1
            states[state] += 1
            queue.state = state
        if not (queue.lanes or queue.out) and self.queues.get(queue.id) is queue:
            self.states[state] -= 1
            del self.queues[queue.id]
            self.save(queue)

    def save(self, queue: WorkQueue) -> None:
        """Write the queue's row if it changed."""
        if queue.unsaved:
            queue.unsaved = 0
            self._save(queue)

    def save_all(self) -> None:
        """Write the rows of all queues that changed."""
        for queue in self.queues.values():
            self.save(queue)


#: The units that the queue spends for a lease, and its precedence if the session ends with it. A plain tuple, because one is
#: made for every page.
Charge = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRules:
    """The rules by which queues are served. Every method is O(1)."""

    per_queue: int = 1  #: URLs of one queue that may be leased at a time
    budgets: Budgets = field(default_factory=Budgets)
    cost: Cost = UNIT
    uris: UriPrecedence = field(default_factory=lambda: parse_uri_precedence("cost"))
    queues: QueuePrecedence = field(default_factory=lambda: parse_queue_precedence("base"))
    sheets: Sheets = field(default_factory=Sheets)
    host_of: Callable[[QueueKey], str] | None = None  #: a queue's host; None if queues hold many hosts
    #: The key that the policy gave a queue, where each share of the job has queues of its own.
    policy_key: Callable[[QueueKey], QueueKey] | None = None

    @property
    def floor(self) -> int:
        """A queue at this precedence or above never runs."""
        return self.queues.floor

    def charge(self, queue: WorkQueue, head: Head, kind: OutcomeKind) -> Charge:
        """The charge for a lease that ends so; a deferred one costs nothing and asks no policy. Raises: PolicyError."""
        if kind is _DEFERRED:
            return 0, queue.precedence
        cost = self.cost.constant
        if cost is None:
            row, via = head
            cost = self.cost.of(row.url, via, row.hops)
        paid = cost if kind is _DONE else spend(kind, cost, self.budgets.error_penalty)
        return paid, queue.base_precedence if self.queues.rule is None else self.precedence(queue, kind, paid)

    def precedence(self, queue: WorkQueue, kind: OutcomeKind, paid: int) -> int:
        """The queue's precedence after it paid for a lease that ends so. Raises: PolicyError."""
        successes = queue.successes + (kind is OutcomeKind.DONE)
        errors = queue.errors + (kind is OutcomeKind.FAILED)
        return self.queues.of(QueueHistory(queue.key, queue.base_precedence, queue.spent + paid, successes, errors))

    def first_precedence(self, queue: QueueKey) -> int:
        """The precedence of a new queue."""
        base = self._settings(queue).queue_precedence
        return self.queues.base if base is None else base

    def in_row(self, candidate: Candidate, via: str | None) -> int:
        """The row precedence of a candidate found on the page `via`. Raises: PolicyError."""
        sheet = self.sheets.for_url(candidate.url).uri_precedence if self.sheets.has_uri_precedence else None
        return self.uris.in_row(candidate, via, sheet)

    @property
    def plain_precedence(self) -> int | None:
        """The row precedence of every candidate without its own, if it is constant."""
        return None if self.sheets.has_uri_precedence else self.uris.plain

    def meet(self, queue: WorkQueue) -> None:
        """Set the effective budget and base precedence of a queue after its row was read."""
        queue.set_rules(self.total_budget(queue.key, queue.budget), self.first_precedence(queue.key))

    def total_budget(self, queue: QueueKey, own: int | None) -> int:
        """The total budget of a queue: its own, set by the operator; else its sheet's; else the order's. -1 = without end."""
        if own is not None:
            return own
        sheet = self._settings(queue).total_budget
        return self.budgets.total_budget if sheet is None else sheet

    def session_budget(self, queue: QueueKey) -> int:
        """Cost units of a session."""
        own = self._settings(queue).session_budget
        return self.budgets.balance_replenish if own is None else own

    def _settings(self, queue: QueueKey) -> Settings:
        sheets = self.sheets
        if sheets.is_empty:
            return NOTHING
        queue = queue if self.policy_key is None else self.policy_key(queue)
        by_key = sheets.for_key(queue)
        if by_key is not None:
            return by_key
        return NOTHING if self.host_of is None else sheets.for_host(self.host_of(queue))


def is_over_total(spent: int, budget: int) -> bool:
    """Whether a queue has spent its total budget and is to be retired; a budget below 0 has no end."""
    return 0 <= budget <= spent
