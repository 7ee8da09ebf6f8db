"""Work queues and their lanes, as far as they are in memory.

A work queue is the unit of order and parallelism: `per_queue` of its URLs are leased at a time. It holds one lane per gate
that its URLs pass. Only what is active has an object: a lane whose heads are in memory, on their way, or leased, and its
queue. A lane keeps a window, the first few of its rows, read from the store before the last one is leased; it does not
count its rows, the store does.
"""

from __future__ import annotations

from collections import deque
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from anabranch.frontier.models import WAITING, Head, QueueKey, Row
from anabranch.frontier.scheduling.lifecycle import Holds, QueueState
from anabranch.frontier.stores.messages import LaneId, QueueRow, Standing
from anabranch.frontier.turns import Turn

if TYPE_CHECKING:
    from anabranch.frontier.scheduling.gatelines import Line

#: Rows that are read at a time for a lane's window.
WINDOW = 16
#: A window this short is refilled while it is still in use.
LOW_WINDOW = 4

# By these names, because reading a member of an Enum's class costs as much as a call.
_PAUSED: Final = Standing.PAUSED
_OPEN: Final = Standing.OPEN
_new: Final = tuple.__new__
_HOLDS_LEASES: Final = Holds.LEASES
_HOLDS_HEADS: Final = Holds.HEADS
_HOLDS_ASKED: Final = Holds.ASKED
_HOLDS_ROWS: Final = Holds.ROWS


class WorkQueue:
    """One queue that has something active."""

    __slots__ = (
        "asked",
        "base_precedence",
        "budget",
        "errors",
        "heads",
        "id",
        "is_known",
        "key",
        "lanes",
        "out",
        "parked",
        "per_queue",
        "precedence",
        "spent",
        "standing",
        "state",
        "successes",
        "total_budget",
        "unsaved",
        "waits",
    )

    def __init__(self, queue_id: int, per_queue: int) -> None:
        self.id = queue_id
        self.per_queue = per_queue
        self.key = QueueKey("")
        self.is_known = False  #: its row has been read
        self.standing = _OPEN
        self.precedence = 0  #: smaller is served first
        self.spent = 0
        self.budget: int | None = None  #: its own total budget; None = the order's
        self.total_budget = -1  #: the one that counts; -1 = without end
        self.base_precedence = 0  #: what the order or a sheet says of it
        self.successes = 0
        self.errors = 0
        self.state = QueueState.INACTIVE
        self.lanes: set[Lane] = set()  #: those in memory
        self.out = 0  #: leased rows
        self.heads = 0  #: rows in the windows of its lanes
        self.asked = 0  #: lanes whose heads are on their way
        self.unsaved = 0  #: leases that ended since its row was written
        self.waits = 0  #: rows that went to wait for a retry since it is in memory
        self.parked: list[Lane] = []  #: lanes that a gate would have served, had the queue been free

    def __repr__(self) -> str:
        return f"<WorkQueue {self.key or self.id} {self.state.value}, {self.out} leased, {self.heads} heads>"

    @property
    def is_busy(self) -> bool:
        """As many of its URLs are leased as may be."""
        return self.out >= self.per_queue

    def learn(self, row: QueueRow) -> None:
        """Take over what the store knows of it."""
        self.is_known = True
        _, self.key, self.standing, self.precedence, self.spent, self.budget, self.successes, self.errors = row

    def row(self) -> QueueRow:
        """What must survive a restart."""
        # Half the price of QueueRow(...): with very many hosts each is written after a few pages.
        return _new(QueueRow, (
            self.id, self.key, self.standing, self.precedence, self.spent, self.budget, self.successes, self.errors,
        ))  # fmt: skip

    def holds(self) -> Holds:
        """The strongest fact about it."""
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


class Place(Enum):
    """Where a lane stands in its gate's line."""

    NOWHERE = auto()  #: it has nothing to serve, or was dropped
    STORED = auto()  #: it has rows, none of them in memory: its id waits in the line
    LOADING = auto()  #: its first heads are on their way
    READY = auto()  #: its head can be leased
    PARKED = auto()  #: the same, but its queue is busy


# By these names, because reading a member of an Enum's class costs as much as a call.
NOWHERE: Final = Place.NOWHERE
STORED: Final = Place.STORED
LOADING: Final = Place.LOADING
READY: Final = Place.READY
PARKED: Final = Place.PARKED


class Lane:
    """The URLs of one queue that pass one gate."""

    __slots__ = (
        "_answers_due",
        "_excluded",
        "balance",
        "is_dropped",
        "leased",
        "limit",
        "line",
        "more",
        "place",
        "queue",
        "stamp",
        "turn",
        "window",
    )

    def __init__(self, queue: WorkQueue, line: Line, turn: Turn, balance: int) -> None:
        self.queue = queue
        self.line = line
        self.turn = turn  #: as the store has it
        self.balance = balance  #: cost units that are left of its session
        self.place: Place = NOWHERE
        self.stamp = 0  #: its one valid entry in the line's heap of ready lanes; rises, so equals take turns
        self.more = True  #: rows that could be served may be in the store beside those in the window
        self.limit = 0  #: how many rows the last question asked for
        self.leased: set[int] = set()  #: ordinals
        self.window: deque[Head] = deque()
        self.is_dropped = False  #: it left memory; answers that are still due are not for it
        self._excluded: set[int] | None = None  #: rows that the answer under way may hold but that are known
        self._answers_due = 0  #: answers under way, forgotten ones included

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
        """An answer of the store is under way."""
        return self._excluded is not None

    def belongs(self) -> Place:
        """Where it should stand. A parked lane stays parked until its queue comes back."""
        if self.queue.standing:
            return NOWHERE
        if self.window:
            return PARKED if self.place is PARKED else READY
        if self._excluded is not None:
            return LOADING
        return STORED if self.more else NOWHERE

    def wants_heads(self) -> bool:
        """Whether its window should be refilled while it is still in use."""
        if not self.more or self._excluded is not None:
            return False
        window = len(self.window)
        return window <= LOW_WINDOW and window < self.balance

    def ask(self) -> int:
        """Note that heads are asked for; answers how many rows to read.

        The read begins at the lane's first row, so it meets those that are leased or in the window already: they
        are counted in, and left out when the answer comes, even if they are finished by then.
        """
        self._excluded = self.leased.union([head[0][3] for head in self.window])
        self._answers_due += 1
        self.queue.asked += 1
        self.more = False  # rows that come from now on set it again
        self.limit = min(WINDOW, max(self.balance, 1)) + len(self._excluded)
        return self.limit

    def answer(self, heads: list[Head]) -> bool:
        """Take the oldest answer under way; False if it had been forgotten.

        Answers come in the order of the questions, so the last one under way belongs to the last question.
        """
        self._answers_due -= 1
        assert self._answers_due >= 0, "heads arrive that nobody asked for"
        if self._excluded is None or self._answers_due:
            return False
        known, self._excluded = self._excluded, None
        self.queue.asked -= 1
        self.more = self.more or len(heads) >= self.limit
        fresh = [head for head in heads if head[0][3] not in known] if known else heads
        self.window.extend(fresh)
        self.queue.heads += len(fresh)
        return True

    def forget_answer(self) -> bool:
        """Do not wait for the answer under way; True if there was one."""
        if self._excluded is None:
            return False
        self._excluded = None
        self.queue.asked -= 1
        self.more = True
        return True

    def put_first(self, head: Head) -> None:
        """A head comes back: it is next."""
        self.window.appendleft(head)
        self.queue.heads += 1

    def take(self) -> Head:
        """Lease the first head."""
        head = self.window.popleft()
        self.leased.add(head[0][3])
        queue = self.queue
        queue.heads -= 1
        queue.out += 1
        return head

    def drop_behind(self, row: Row) -> bool:
        """A row was stored that may belong before heads in the window: these leave it, to be read again."""
        place = row.precedence, row.ordinal
        dropped = False
        while self.window and place < self.window[-1].row[2:4]:
            self.window.pop()
            self.queue.heads -= 1
            self.more = dropped = True
        return dropped

    def drop_all(self) -> None:
        """All heads leave the window; they are in the store."""
        if self.window:
            self.queue.heads -= len(self.window)
            self.window.clear()
            self.more = True

    def drop(self, ordinals: set[int]) -> None:
        """These rows are no more."""
        kept = [head for head in self.window if head.row.ordinal not in ordinals]
        self.queue.heads -= len(self.window) - len(kept)
        self.window = deque(kept)


#: Places of a row that waits sort behind all that can be served.
assert WAITING > 255 << 8 | 255
