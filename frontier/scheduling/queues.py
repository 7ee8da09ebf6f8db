"""Work queues and lanes in memory.

A work queue is the unit of order and parallelism: at most `per_queue` of its URLs are leased at a time. It has one lane per
gate that its URLs pass. A lane is in memory while it has heads, waits for them, or has leases. Its window holds the first few
of its rows and is refilled before it is empty; the store counts its rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from anabranch.frontier.policies.budgets import UNIT, Budgets, Cost, is_over_total, spend, total_budget
from anabranch.frontier.policies.precedence import (
    QueueHistory,
    QueuePrecedence,
    UriPrecedence,
    parse_queue_precedence,
    parse_uri_precedence,
)
from anabranch.frontier.policies.sheets import NOTHING, Settings, Sheets
from anabranch.frontier.records import WAITING, Candidate, Head, OutcomeKind, QueueKey, Row, Turn
from anabranch.frontier.scheduling.lifecycle import RESTS_IN, STEPS, Holds, QueueState, next_state
from anabranch.frontier.stores.contract import LaneId, QueueRow, Standing

if TYPE_CHECKING:
    from anabranch.frontier.scheduling.readylist import ReadyList

#: Rows that are read at a time for a lane's window.
WINDOW = 16
#: A window this short is refilled.
LOW_WINDOW = 4

# By these names, because reading a member of an Enum's class costs as much as a call.
_PAUSED: Final = Standing.PAUSED
_OPEN: Final = Standing.OPEN
_DONE: Final = OutcomeKind.DONE
_DEFERRED: Final = OutcomeKind.DEFERRED
_FAILED: Final = OutcomeKind.FAILED
_HOLDS_LEASES: Final = Holds.LEASES
_HOLDS_HEADS: Final = Holds.HEADS
_HOLDS_ASKED: Final = Holds.ASKED
_HOLDS_ROWS: Final = Holds.ROWS


class WorkQueue:
    """A queue in memory."""

    # fmt: off
    __slots__ = (
        "asked", "base_precedence", "budget", "errors", "heads", "id", "is_known", "key", "lanes", "out", "parked", "per_queue",
        "precedence", "spent", "standing", "state", "successes", "total_budget", "unsaved", "waits",
    )
    # fmt: on

    def __init__(self, queue_id: int, per_queue: int) -> None:
        self.id = queue_id
        self.per_queue = per_queue
        self.key = QueueKey("")
        self.is_known = False  #: its row has been read
        self.standing = _OPEN
        self.precedence = 0  #: smaller is served first
        self.spent = 0
        self.budget: int | None = None  #: its own total budget; None = the order's
        self.total_budget = -1  #: the effective one; -1 = without end
        self.base_precedence = 0  #: by the order or a sheet
        self.successes = 0
        self.errors = 0
        self.state = QueueState.INACTIVE
        self.lanes: set[Lane] = set()  #: in memory
        self.out = 0  #: leased rows
        self.heads = 0  #: rows in the windows of its lanes
        self.asked = 0  #: lanes that wait for heads
        self.unsaved = 0  #: leases that ended since its row was written
        self.waits = 0  #: rows that began to wait for a retry while it is in memory
        self.parked: list[Lane] = []  #: lanes with heads that wait until the queue is free

    def __repr__(self) -> str:
        return f"<WorkQueue {self.key or self.id} {self.state.value}, {self.out} leased, {self.heads} heads>"

    @property
    def is_busy(self) -> bool:
        """Whether as many of its URLs are leased as allowed."""
        return self.out >= self.per_queue

    # Its row

    def learn(self, row: QueueRow) -> None:
        """Take over its row from the store."""
        self.is_known = True
        _, self.key, self.standing, self.precedence, self.spent, self.budget, self.successes, self.errors = row

    def set_rules(self, total_budget: int, base_precedence: int) -> None:
        """Set the effective budget and the precedence by the order or a sheet."""
        self.total_budget, self.base_precedence = total_budget, base_precedence

    def set_budget(self, budget: int | None, total_budget: int) -> None:
        """Set its own total budget (None = the order's) and the effective one."""
        self.budget = budget
        self.total_budget = total_budget

    def set_precedence(self, precedence: int) -> None:
        """Change its precedence, which makes its row unsaved."""
        if self.precedence != precedence:
            self.precedence = precedence
            self.unsaved += 1

    def pay(self, kind: OutcomeKind, cost: int) -> None:
        """Record how a lease ended and what it cost."""
        self.spent += cost
        self.unsaved += 1
        if kind is _DONE:
            self.successes += 1
        elif kind is _FAILED:
            self.errors += 1

    # Its rows in memory

    def count_heads(self, change: int) -> None:
        """Add to the number of rows in its windows."""
        self.heads += change

    def count_asked(self, change: int) -> None:
        """Add to the number of lanes that wait for heads."""
        self.asked += change

    def row(self) -> QueueRow:
        """Its row for the store."""
        return QueueRow(
            self.id, self.key, self.standing, self.precedence, self.spent, self.budget, self.successes, self.errors,
        )  # fmt: skip

    def holds(self) -> Holds:
        """Its strongest holding."""
        if self.standing:
            return Holds.PAUSED if self.standing is _PAUSED else Holds.RETIRED
        if self.out >= self.per_queue:
            return _HOLDS_LEASES
        if self.heads:
            return _HOLDS_HEADS
        if self.asked:
            return _HOLDS_ASKED
        if any(lane.more for lane in self.lanes):
            return _HOLDS_ROWS
        if self.out:
            return _HOLDS_LEASES
        return Holds.RETRIES if self.waits else Holds.NOTHING


class LanePlace(Enum):
    """The place of a lane at its gate."""

    NOWHERE = auto()  #: it has nothing to serve, or was dropped
    STORED = auto()  #: its rows are in the store only; its id waits at the gate
    LOADING = auto()  #: its first heads are being read
    READY = auto()  #: its head can be leased
    PARKED = auto()  #: its head can be leased when its queue is free


# By these names, because reading a member of an Enum's class costs as much as a call.
NOWHERE: Final = LanePlace.NOWHERE
STORED: Final = LanePlace.STORED
LOADING: Final = LanePlace.LOADING
READY: Final = LanePlace.READY
PARKED: Final = LanePlace.PARKED


class Lane:
    """The URLs of one queue that pass one gate."""

    # fmt: off
    __slots__ = (
        "_answers_due", "_excluded", "balance", "is_dropped", "leased", "limit", "line", "more", "place", "queue", "stamp",
        "turn", "window",
    )
    # fmt: on

    def __init__(self, queue: WorkQueue, line: ReadyList, turn: Turn, balance: int) -> None:
        self.queue = queue
        self.line = line
        self.turn = turn  #: as in the store
        self.balance = balance  #: cost units left in its session
        self.place: LanePlace = NOWHERE
        self.stamp = 0  #: its one valid entry in the heap of ready lanes; rises, so that equals take turns
        self.more = True  #: the store may have more servable rows than the window
        self.limit = 0  #: the number of rows that the last question asked for
        self.leased: set[int] = set()  #: ordinals
        self.window: deque[Head] = deque()
        self.is_dropped = False  #: it left memory and ignores answers
        self._excluded: set[int] | None = None  #: known rows that the next answer may contain; None = not asked
        self._answers_due = 0  #: answers to come, including those to ignore

    def __repr__(self) -> str:
        more = " and more" if self.more else ""
        return (
            f"<Lane {self.queue.key} at {self.line.gate.key} {self.place.name.lower()}, {len(self.window)} heads{more}>"
        )

    @property
    def id(self) -> LaneId:
        """(queue id, gate id)."""
        return self.queue.id, self.line.gate.id

    @property
    def is_asked(self) -> bool:
        """It waits for an answer of the store."""
        return self._excluded is not None

    def belongs(self) -> LanePlace:
        """The place where it should be. A parked lane stays parked until its queue is free."""
        if self.queue.standing:
            return NOWHERE
        if self.window:
            return PARKED if self.place is PARKED else READY
        if self._excluded is not None:
            return LOADING
        return STORED if self.more else NOWHERE

    def wants_heads(self) -> bool:
        """Whether its window should be refilled."""
        if not self.more or self._excluded is not None:
            return False
        window = len(self.window)
        return window <= LOW_WINDOW and window < self.balance

    def ask(self) -> int:
        """Note that heads are asked for, from the lane's first row; returns how many to read, known ones included."""
        self._excluded = self.leased.union([head.row.ordinal for head in self.window])
        self._answers_due += 1
        self.queue.count_asked(1)
        self.more = False  # new rows set it again
        self.limit = min(WINDOW, max(self.balance, 1)) + len(self._excluded)
        return self.limit

    def answer(self, heads: list[Head]) -> bool:
        """Take the answer to the oldest question, in their order; False if that question was forgotten."""
        self._answers_due -= 1
        assert self._answers_due >= 0, "heads arrive that nobody asked for"
        if self._excluded is None or self._answers_due:
            return False
        known, self._excluded = self._excluded, None
        self.queue.count_asked(-1)
        self.more = self.more or len(heads) >= self.limit
        fresh = [head for head in heads if head.row.ordinal not in known] if known else heads
        self.window.extend(fresh)
        self.queue.count_heads(len(fresh))
        return True

    def forget_answer(self) -> bool:
        """Ignore the next answer; True if there is one to come."""
        if self._excluded is None:
            return False
        self._excluded = None
        self.queue.count_asked(-1)
        self.more = True
        return True

    def put_first(self, head: Head) -> None:
        """Put a head back, as the next one."""
        self.window.appendleft(head)
        self.queue.count_heads(1)

    def take(self) -> Head:
        """Lease the first head; the lane leaves its place."""
        head, queue = self.window.popleft(), self.queue
        self.leased.add(head.row.ordinal)
        queue.heads -= 1
        queue.out += 1
        self.place, self.stamp = NOWHERE, 0
        return head

    def end_lease(self, ordinal: int, cost: int) -> None:
        """End a lease, which takes its cost from the session; the caller counts it for the queue."""
        self.leased.discard(ordinal)
        self.balance -= cost

    def begin_session(self, turn: Turn, balance: int) -> None:
        """Take this turn and so many cost units."""
        self.turn = turn
        self.balance = balance

    def stand(self, place: LanePlace, stamp: int = 0) -> None:
        """Set its place; `stamp` names its entry among the ready lanes."""
        self.place = place
        self.stamp = stamp

    def park(self) -> None:
        """Wait until its queue is free."""
        self.stand(PARKED)
        self.queue.parked.append(self)

    def drop_behind(self, row: Row) -> bool:
        """Drop heads that come after a new row, to read them again; True if there were any."""
        place = row.precedence, row.ordinal
        dropped = False
        while self.window and place < self.window[-1].row[2:4]:
            self.window.pop()
            self.queue.count_heads(-1)
            self.more = dropped = True
        return dropped

    def drop_all(self) -> None:
        """Drop all heads; the store has them."""
        if self.window:
            self.queue.count_heads(-len(self.window))
            self.window.clear()
            self.more = True

    def drop(self, ordinals: set[int]) -> None:
        """Drop the heads of rows that were removed."""
        kept = [head for head in self.window if head.row.ordinal not in ordinals]
        self.queue.count_heads(len(kept) - len(self.window))
        self.window = deque(kept)


# Rows that wait sort behind all that can be served.
assert WAITING > 255 << 8 | 255


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
        """The total budget of a queue, -1 = without end; `own` is the operator's."""
        return total_budget(own, self._settings(queue).total_budget, self.budgets.total_budget)

    def session_budget(self, queue: QueueKey) -> int:
        """Cost units of a session."""
        own = self._settings(queue).session_budget
        return self.budgets.balance_replenish if own is None else own

    def is_over_total(self, queue: WorkQueue) -> bool:
        """Whether it has spent its total budget."""
        return is_over_total(queue.spent, queue.total_budget)

    def _settings(self, queue: QueueKey) -> Settings:
        sheets = self.sheets
        if sheets.is_empty:
            return NOTHING
        queue = queue if self.policy_key is None else self.policy_key(queue)
        by_key = sheets.for_key(queue)
        if by_key is not None:
            return by_key
        return NOTHING if self.host_of is None else sheets.for_host(self.host_of(queue))
