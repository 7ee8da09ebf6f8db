"""Ready lists: what waits to be served, in memory. Also the outbox of a call.

A work queue is the unit of order and parallelism: at most `per_queue` of its URLs are leased at a time. It has one lane per
gate that its URLs pass. A lane is in memory while it has heads, waits for them, or has leases. Its window holds the first few
of its rows and is refilled before it is empty; the store counts its rows.

A ready list holds the lanes that wait at the gate of one host, a group the hosts that wait at a second gate. They are the
entries of the heap of gates by opening time (`heaps`).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from enum import Enum, auto
from heapq import heappop, heappush
from typing import Final, Literal

from anabranch.frontier.records import WAITING, Head, OutcomeKind, QueueKey, Row, Turn
from anabranch.frontier.scheduling.gates import Gate
from anabranch.frontier.scheduling.heaps import GateHeap, Listed, Prefix
from anabranch.frontier.scheduling.lifecycle import Holds, QueueState
from anabranch.frontier.stores.contract import Batch, LaneId, QueueRow, Standing

#: Rows that are read at a time for a lane's window.
WINDOW = 16
#: A window this short is refilled.
LOW_WINDOW = 4
#: Waiting lanes of one gate in memory.
LANES = 1000
#: Lanes that are read together with a gate.
LANES_AT_ONCE = 16

#: Numbers in a group's heap begin here, because a host that joins leaves an old entry in the outer heap.
_IN_GROUP = 1 << 48
_NEVER: Final = math.inf

# By these names, because reading a member of an Enum's class costs as much as a call.
_PAUSED: Final = Standing.PAUSED
_OPEN: Final = Standing.OPEN
_DONE: Final = OutcomeKind.DONE
_FAILED: Final = OutcomeKind.FAILED
_HOLDS_LEASES: Final = Holds.LEASES
_HOLDS_HEADS: Final = Holds.HEADS
_HOLDS_ASKED: Final = Holds.ASKED
_HOLDS_ROWS: Final = Holds.ROWS

# Rows that wait sort behind all that can be served.
assert WAITING > 255 << 8 | 255


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
        self.key, self.standing, self.precedence = row.key, row.standing, row.precedence
        self.spent, self.budget = row.spent, row.budget
        self.successes, self.errors = row.successes, row.errors

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


# As above.
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


class Group(Listed["ReadyList"]):
    """A second gate that several hosts pass, with the heap of those that have something to serve."""

    __slots__ = ("asked", "heap", "lines")

    def __init__(self, gate: Gate, outer: GateHeap[ReadyList]) -> None:
        super().__init__(gate, outer)
        self.heap: GateHeap[ReadyList] = GateHeap(_IN_GROUP)
        self.lines = 0  #: its hosts in memory
        self.asked = 0  #: their lanes that wait for heads

    def take_in(self, line: ReadyList) -> None:
        """Add a host in memory; its leases come back through both gates."""
        self.lines += 1
        self.asked += sum(lane.is_asked for lane in line.lanes.values())
        self.gate.out += line.gate.out

    def let_out(self) -> bool:
        """Remove a host that left memory; True if the group may leave, too."""
        self.lines -= 1
        return not (self.lines or self.gate.out or self.is_loading)

    def count_asked(self, change: int) -> None:
        """Add to the number of lanes that wait for heads."""
        self.asked += change

    def replace(self, named: ReadyList) -> None:
        """Take over the waiting changes of a list made when an operator named the group before its hosts were known."""
        self.later = named.later
        named.unlist()

    def enlist(self) -> None:
        """Enter it into the heap."""
        self.outer.enlist(self)

    @property
    def has_enough(self) -> bool:
        """Its hosts wait for as many heads as could pass soon."""
        return self.asked >= self.wanted()

    def serves_s(self) -> float:
        """When it and one of its hosts are open; infinity if time alone does not open them."""
        member_s = self.heap.next_time()
        if member_s is None or self.is_loading:
            return math.inf
        return max(member_s, self.gate.opens_s(), self.gate.served_s)

    def open_line(self, now_s: float) -> ReadyList | None:
        """The host that has been open for longest, if any."""
        return self.heap.first_open(now_s) if self.gate.opens_s() <= now_s else None

    def open_lines(self, now_s: float) -> Iterator[ReadyList]:
        """All open hosts."""
        return self.heap.open_lines(now_s) if self.gate.opens_s() <= now_s else iter(())

    def first_line(self) -> ReadyList:
        """The host that opens first; there must be one."""
        self.heap.next_time()
        return self.heap.first_line()


Entry = tuple[int, int, Lane]  # (queue precedence, stamp, lane): the stamp is unique


class ReadyList(Listed["ReadyList"]):
    """The lanes that wait at one host's gate."""

    # fmt: off
    __slots__ = (
        "active", "group", "is_aside", "is_held", "is_leaving", "lanes", "ready", "slow_out", "waiting",
        "waits_from_s", "was_fetched",
    )
    # fmt: on

    def __init__(self, gate: Gate, outer: GateHeap[ReadyList]) -> None:
        super().__init__(gate, outer)
        self.group: Group | None = None
        self.is_aside = False  #: it serves nothing until its domain has fewer leases out
        self.waits_from_s = 0.0  #: when it was readmitted last
        self.slow_out = 0  #: its leases that were taken while it was new or slow
        self.was_fetched = False  #: `is_fast` is that of a fetch
        self.ready: list[Entry] = []  #: heap of lanes with heads in memory; may hold stale entries
        self.waiting: Prefix[Turn] = Prefix(LANES, is_complete=False)  #: queue ids of lanes that are in the store only
        self.lanes: dict[int, Lane] = {}  #: lanes in memory, by queue
        self.active = 0  #: lanes that are READY or LOADING
        self.is_leaving = False  #: it serves nothing more, and leaves memory when its leases have ended
        self.is_held = False  #: a service that it needs is away: it serves nothing until then

    def __repr__(self) -> str:
        return f"<Line {self.gate.key}: {self.active} active, {len(self.waiting)} waiting>"

    def join(self, group: Group) -> None:
        """Move into the heap of its group."""
        self.group = group
        self.gate.join(group.gate)
        group.take_in(self)
        self.entry = self.turn = None

    def leave(self) -> None:
        """Serve nothing more."""
        self.is_leaving = True

    def hold(self) -> None:
        """Serve nothing until `free`: a service that its URLs need is away."""
        self.is_held = True
        self.delist()

    def free(self) -> None:
        """Serve again."""
        self.is_held = False
        self.enlist()

    def set_aside(self) -> None:
        """Serve nothing until `readmit`: its domain has enough leases out."""
        self.is_aside = True
        self.delist()

    def readmit(self, now_s: float) -> None:
        """Serve again, behind all that are open by now."""
        self.is_aside, self.waits_from_s = False, now_s
        self.enlist()

    def count_slow(self, change: int) -> None:
        """Add to its leases that were taken while it was new or slow."""
        self.slow_out += change

    def fetched(self) -> None:
        """Note that it is not new."""
        self.was_fetched = True

    def push_ready(self, lane: Lane) -> None:
        """Add a lane that has heads."""
        self.active += 1
        heappush(self.ready, (lane.queue.precedence, lane.stamp, lane))

    def count_active(self, change: int) -> None:
        """Add to the number of lanes that are READY or LOADING."""
        self.active += change

    def serves_s(self) -> float:
        """When its gate opens; infinity if it has nothing to serve."""
        if self.is_loading or self.is_leaving or self.is_held or self.is_aside:
            return _NEVER
        if not (self.ready or self.waiting.may_have_any):
            return _NEVER
        gate = self.gate
        opens_s, served_s = gate.opens_s(), gate.served_s
        if self.waits_from_s > served_s:  # noqa: PLR1730 - as below
            served_s = self.waits_from_s
        return opens_s if opens_s > served_s else served_s  # noqa: FURB136 - a call costs four times as much

    def opens_s(self) -> float:
        """When its gate and its group's are open; infinity while all slots of one are out."""
        opens_s = self.gate.opens_s()
        return opens_s if self.group is None else max(opens_s, self.group.gate.opens_s())

    def open_line(self, now_s: float) -> ReadyList | None:
        """Itself, if its gate is open."""
        return self if self.gate.opens_s() <= now_s else None

    def open_lines(self, now_s: float) -> Iterator[ReadyList]:
        """Itself, if its gate is open."""
        return iter((self,) if self.gate.opens_s() <= now_s else ())

    def first_line(self) -> ReadyList:
        """Itself."""
        return self

    def enlist(self) -> None:
        """Enter it into its heap, and its group into the outer one."""
        group = self.group
        if group is None:
            self.outer.enlist(self)
        else:
            group.heap.enlist(self)
            group.outer.enlist(group)

    def delist(self) -> None:
        """Take it out of its heap until it has something to serve."""
        self.entry = None
        if self.group is not None:
            self.group.outer.enlist(self.group)

    def best(self) -> Lane | None:
        """Take the best ready lane with a free queue, and lose the turn for it; park lanes with a busy queue."""
        ready = self.ready
        while ready:
            _, stamp, lane = heappop(ready)
            if lane.stamp != stamp:
                continue
            self.active -= 1
            queue = lane.queue
            if queue.out < queue.per_queue:
                self.entry = self.turn = None
                return lane
            lane.park()
        return None

    @property
    def has_work(self) -> bool:
        """It has lanes in memory, or maybe in the store."""
        return bool(self.lanes) or self.waiting.may_have_any

    def first_turn(self) -> Turn | None:
        """The smallest turn of its lanes with something to serve, if any."""
        turns = [lane.turn for lane in self.lanes.values() if lane.place is not NOWHERE]
        if self.waiting.may_have_any:
            turns.append(self.waiting.first_key() or Turn(0))
        return min(turns, default=None)


class Outbox:
    """The batch and the questions of this call, and the sequence of ordinals and turns."""

    def __init__(self, last_number: int) -> None:
        self.batch = Batch(1)
        self.last_number = last_number  #: the latest of the sequence
        self.heads: list[Lane] = []  #: lanes to read heads for
        self.lanes: list[tuple[ReadyList, Turn | None]] = []  #: lists to read lanes for, and behind which turn
        self.gates: list[ReadyList | Group] = []  #: gates to read by name
        self.next_gates = 0  #: number of gates to read by turn; 0 = none
        self.retries: tuple[float, int] | Literal[False] | None = False  #: read waiting rows behind this place

    def number(self) -> int:
        """The next number of the sequence."""
        self.last_number += 1
        return self.last_number

    def take_batch(self, now_s: float) -> Batch | None:
        """The batch of this call, if it is not empty. The next call has another."""
        if self.batch.is_empty:
            return None
        batch, self.batch = self.batch, Batch(self.batch.number + 1)
        batch.seal(self.last_number, now_s)
        return batch

    def ask_gates(self, count: int) -> None:
        """Ask for so many gates by turn."""
        self.next_gates = count

    def ask_retries(self, after: tuple[float, int] | None) -> None:
        """Ask for waiting rows behind this place."""
        self.retries = after

    def has_questions(self) -> bool:
        """Whether this call has questions."""
        return bool(self.heads or self.next_gates or self.lanes or self.gates) or self.retries is not False

    def questions_taken(self) -> None:
        """Begin with other questions; those so far are being asked."""
        self.heads, self.lanes, self.gates, self.next_gates, self.retries = [], [], [], 0, False
