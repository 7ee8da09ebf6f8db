"""Work queues and their lanes: what is queued, counted exactly, and the heads that are in memory.

A work queue is the unit of order and parallelism: `PER_QUEUE` of its URLs are leased at a time. It holds one lane per gate
that its URLs pass. A lane counts its rows and keeps a window: the first few of them, read from the store, next one left.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from enum import Enum, auto

from frontier.fingerprints import name_id
from frontier.lifecycle import Holds, QueueState, next_state
from frontier.models import WAITING, Head, QueueKey
from frontier.stores.base import LaneId, LaneRow

#: URLs of one queue that may be leased at a time.
PER_QUEUE = 1
#: Rows that are read at a time for a lane's window.
WINDOW = 16
#: A window this short is refilled while it is still in use.
LOW_WINDOW = 4


class WorkQueue:
    """One queue: its state and the sums over its lanes."""

    __slots__ = ("asked", "heads", "id", "key", "out", "parked", "precedence", "rows", "state", "waiting")

    def __init__(self, queue_id: int, key: QueueKey) -> None:
        self.id = queue_id
        self.key = key
        self.precedence = 3  #: Heritrix's base queue precedence; smaller is served first
        self.state = QueueState.EMPTY
        self.rows = 0  #: all rows, leased and waiting ones included
        self.waiting = 0  #: rows that wait for a retry
        self.out = 0  #: leased rows
        self.heads = 0  #: rows in the windows of its lanes
        self.asked = 0  #: lanes whose heads are on their way
        self.parked: list[Lane] = []  #: lanes that a gate would have served, had the queue been free

    def __repr__(self) -> str:
        return f"<WorkQueue {self.key} {self.state.value} {self.rows} urls>"

    @property
    def is_busy(self) -> bool:
        """As many of its URLs are leased as may be."""
        return self.out >= PER_QUEUE

    def holds(self) -> Holds:
        """The strongest fact about it."""
        if self.is_busy:
            return Holds.LEASES
        if self.heads:
            return Holds.HEADS
        if self.asked:
            return Holds.ASKED
        if self.rows - self.waiting - self.out:
            return Holds.ROWS
        return Holds.RETRIES if self.waiting else Holds.NOTHING


class Place(Enum):
    """Where a lane stands in its gate's line."""

    NOWHERE = auto()  #: it has nothing to serve
    STORED = auto()  #: it has rows, none of them in memory
    LOADING = auto()  #: its first heads are on their way
    READY = auto()  #: its head can be leased
    PARKED = auto()  #: the same, but its queue is busy


class Lane:
    """The URLs of one queue that pass one gate."""

    __slots__ = (
        "_answers_due",
        "_excluded",
        "arrival",
        "gate",
        "leased",
        "place",
        "queue",
        "rows",
        "stamp",
        "waiting",
        "window",
    )

    def __init__(self, queue: WorkQueue, gate: int, arrival: int) -> None:
        self.queue = queue
        self.gate = gate  #: id of the gate
        self.arrival = arrival  #: FIFO among lanes of equal precedence
        self.place = Place.NOWHERE
        self.stamp = 0  #: names its one valid entry in a line's heaps
        self.rows = 0
        self.waiting = 0
        self.leased: set[int] = set()  #: ordinals
        self.window: deque[Head] = deque()
        self._excluded: frozenset[int] | None = None  #: rows that the answer under way may hold but that are known
        self._answers_due = 0  #: answers under way, forgotten ones included

    def __repr__(self) -> str:
        return f"<Lane {self.queue.key} {self.place.name.lower()} {self.rows} urls, {len(self.window)} in memory>"

    @property
    def id(self) -> LaneId:
        """(queue id, gate id)."""
        return self.queue.id, self.gate

    @property
    def is_asked(self) -> bool:
        """An answer of the store is under way."""
        return self._excluded is not None

    @property
    def stored(self) -> int:
        """Rows that could be served and are in the store only."""
        return self.rows - self.waiting - len(self.leased) - len(self.window)

    def belongs(self) -> Place:
        """Where it should stand. A parked lane stays parked until its queue comes back."""
        if self.place is Place.PARKED:
            return Place.PARKED
        if self.window:
            return Place.READY
        if self.is_asked:
            return Place.LOADING
        return Place.STORED if self.stored > 0 else Place.NOWHERE

    def wants_heads(self) -> bool:
        """Whether its window should be (re)filled now."""
        return self.stored > 0 and len(self.window) <= LOW_WINDOW and not self.is_asked

    def ask(self) -> int:
        """Note that heads are asked for; answers how many rows to read.

        The read begins at the lane's first row, so it meets those that are leased or in the window already: they
        are counted in, and left out when the answer comes, even if they are finished by then.
        """
        self._excluded = frozenset({*self.leased, *(head.row.ordinal for head in self.window)})
        self._answers_due += 1
        self.queue.asked += 1
        return WINDOW + len(self._excluded)

    def answer(self, heads: Iterable[Head]) -> int | None:
        """Take the oldest answer under way; tells how many heads were new, or None if it had been forgotten.

        Answers come in the order of the questions, so the last one under way belongs to the last question.
        """
        self._answers_due -= 1
        assert self._answers_due >= 0, "heads arrive that nobody asked for"
        if self._excluded is None or self._answers_due:
            return None
        known, self._excluded = self._excluded, None
        self.queue.asked -= 1
        fresh = [head for head in heads if head.row.ordinal not in known]
        self.window.extend(fresh)
        self.queue.heads += len(fresh)
        return len(fresh)

    def forget_answer(self) -> None:
        """Do not wait for the answer under way: better rows came meanwhile, the lane must be read again."""
        self._excluded = None
        self.queue.asked -= 1

    def put_first(self, head: Head) -> None:
        """A head comes back (or a retry comes due): it is next."""
        self.window.appendleft(head)
        self.queue.heads += 1

    def take(self) -> Head:
        """Lease the first head."""
        head = self.window.popleft()
        self.leased.add(head.row.ordinal)
        self.queue.heads -= 1
        self.queue.out += 1
        return head

    def drop_behind(self, precedence: int) -> None:
        """A row of `precedence` was stored: heads that are served after it leave the window, to be read again."""
        while self.window and precedence < self.window[-1].row.precedence < WAITING:
            self.window.pop()
            self.queue.heads -= 1


class QueueIndex:
    """Every queue and lane by id. All of them are in memory; callers must not rely on that."""

    def __init__(self) -> None:
        self._queues: dict[int, WorkQueue] = {}
        self._lanes: dict[LaneId, Lane] = {}
        self._arrivals = 0
        self.states: Counter[QueueState] = Counter()  #: queues by state

    def __iter__(self) -> Iterator[Lane]:
        return iter(self._lanes.values())

    def queues(self) -> Iterator[WorkQueue]:
        """All queues, in no order."""
        return iter(self._queues.values())

    def queue(self, key: QueueKey) -> tuple[WorkQueue, bool]:
        """The queue of this key, and whether it was made just now."""
        queue_id = name_id(key)
        if (queue := self._queues.get(queue_id)) is not None:
            return queue, False
        return self.restore_queue(queue_id, key), True

    def restore_queue(self, queue_id: int, key: QueueKey) -> WorkQueue:
        """Make a queue that the store knows."""
        queue = self._queues[queue_id] = WorkQueue(queue_id, key)
        self.states[queue.state] += 1
        return queue

    def lane(self, queue: WorkQueue, gate: int) -> tuple[Lane, bool]:
        """The queue's lane at this gate, and whether it was made just now."""
        if (lane := self._lanes.get((queue.id, gate))) is not None:
            return lane, False
        lane = self._lanes[queue.id, gate] = Lane(queue, gate, self.next_arrival())
        return lane, True

    def restore_lane(self, row: LaneRow) -> Lane:
        """Make a lane that the store knows, with its count."""
        queue = self._queues[row.queue]
        lane = self._lanes[row.queue, row.gate] = Lane(queue, row.gate, row.arrival)
        self._arrivals = max(self._arrivals, row.arrival)
        return lane

    def get(self, lane: LaneId) -> Lane:
        """The lane with this id."""
        return self._lanes[lane]

    def next_arrival(self) -> int:
        """The end of the line."""
        self._arrivals += 1
        return self._arrivals

    def settle(self, queue: WorkQueue) -> None:
        """Bring the queue's state in line with what it holds, by the table of `lifecycle`."""
        state = next_state(queue.state, queue.holds())
        if state is not queue.state:
            self.states[queue.state] -= 1
            self.states[state] += 1
            queue.state = state
