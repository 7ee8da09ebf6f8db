"""Which lane is served next: gates are scheduled, lanes wait at them. Pure; the time is an argument.

One heap holds the gates that have something to serve, by opening time. An open gate gives its best waiting lane whose
queue is free; a lane whose queue is busy is parked at the queue and comes back with it, so a blocked host stops only its
own lanes. No slot is handed out in advance, so no wake-up can be lost.

Activation is lazy: a lane's heads are asked of the store only when its gate could serve more lanes than it has ready.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappush

from frontier.gatelines import Entry, GateHeap, Line
from frontier.gates import Gate
from frontier.models import NORMAL, WAITING, Head
from frontier.retries import Retries
from frontier.workqueues import Lane, Place, QueueIndex

#: Gates that one call looks at in vain before it gives the caller a turn.
LOOKS = 64
#: Lanes whose heads may be on their way beyond twice the leases that are out.
ASKED_AT_LEAST = 64


class Schedule:
    """All lines, and the heap of their gates. Every operation costs O(log active)."""

    def __init__(self, index: QueueIndex) -> None:
        self.index = index  #: all queues and lanes
        self._lines: dict[int, Line] = {}
        self._open_gates = GateHeap()
        self._retries = Retries()
        self._wanted: list[tuple[Lane, int]] = []
        self._stamps = 0
        self.asked = 0  #: lanes whose heads are on their way
        self.out = 0  #: leases out
        self.gate_count = 0

    @property
    def waiting(self) -> int:
        """Rows that wait for a retry."""
        return len(self._retries)

    def gates(self) -> Iterable[Gate]:
        """Every gate."""
        return (line.gate for line in self._lines.values())

    def add_gate(self, gate: Gate) -> None:
        """Make the line of a new gate."""
        self._lines[gate.id] = Line(gate)
        self.gate_count += 1

    def gate(self, gate_id: int) -> Gate | None:
        """The gate with this id, if there is one."""
        line = self._lines.get(gate_id)
        return None if line is None else line.gate

    # What happens to rows

    def rows_stored(self, lane: Lane, precedence: int, count: int = 1) -> None:
        """`count` rows of this precedence were written for the lane."""
        lane.rows += count
        lane.queue.rows += count
        last = lane.window[-1].row.precedence if lane.window else NORMAL
        if precedence < max(last % WAITING, NORMAL):
            # Rows that are served after it may be in the window or on their way: they are read again.
            lane.drop_behind(precedence)
            if lane.is_asked:
                lane.forget_answer()
                self.asked -= 1
        self._place(lane)

    def rows_lost(self, lane: Lane, count: int = 1) -> None:
        """`count` rows of the lane turned out to be duplicates: the store does not have them."""
        lane.rows -= count
        lane.queue.rows -= count
        self._place(lane)

    def row_waits(self, lane: Lane, head: Head) -> None:
        """A row of the lane waits for `head.row.due_s`; it is not leased."""
        lane.waiting += 1
        lane.queue.waiting += 1
        self._retries.add(lane, head)

    def heads_read(self, lane: Lane, heads: list[Head]) -> bool:
        """The store's answer for a lane. False if it brings nothing though rows should be there."""
        fresh = lane.answer(heads)
        if fresh is None:
            return True
        self.asked -= 1
        self._place(lane)
        # If it brought nothing, another lane of the gate takes its turn.
        self._open_gates.enlist(self._lines[lane.gate])
        return fresh > 0 or lane.stored <= 0

    # Serving

    def take_wanted(self) -> list[tuple[Lane, int]]:
        """Lanes whose heads should be asked of the store now, and how many rows to read."""
        wanted, self._wanted = self._wanted, []
        return wanted

    def lease(self, now_s: float) -> tuple[Lane, Head] | None:
        """Take a slot of an open gate and the head of its best lane; None if there is none to be had now."""
        self._wake_retries(now_s)
        for _ in range(LOOKS):
            line = self._open_gates.first_open(now_s)
            if line is None:
                return None
            lane = line.best()
            if lane is not None:
                return lane, self._take(line, lane, now_s)
            if not self._activate(line):
                return None  # enough is asked of the store; the gate keeps its place
            line.entry = None  # nothing to serve until heads come or a queue is free
        return None

    def come_back(self, lane: Lane, head: Head, *, keep: bool) -> None:
        """A lease of the lane ended; the row is first again if `keep`, else it has left the lane.

        The caller has returned the gate's slot, and calls `row_waits` before if the row goes on waiting.
        """
        self.out -= 1
        queue = lane.queue
        lane.leased.discard(head.row.ordinal)
        queue.out -= 1
        if keep:
            lane.put_first(head)
        lane.arrival = self.index.next_arrival()
        self._unplace(lane)
        parked, queue.parked = queue.parked, []
        for other in parked:
            self._unplace(other)
            self._place(other)
        self._place(lane)
        self._open_gates.enlist(self._lines[lane.gate])

    def row_ended(self, lane: Lane) -> None:
        """A leased row of the lane is done with for good."""
        lane.rows -= 1
        lane.queue.rows -= 1

    def gate_changed(self, gate: Gate) -> None:
        """The gate opens at another time than before."""
        self._open_gates.enlist(self._lines[gate.id])

    def next_time(self, now_s: float) -> float | None:
        """When a gate with something to serve opens, or a retry comes due; None if no time will help.

        A gate that is open already but waits for the store is no reason to come back before the store has answered.
        """
        gate_s = self._open_gates.next_time()
        if gate_s is not None and gate_s <= now_s and self._store_is_busy:
            gate_s = None
        times = [time_s for time_s in (gate_s, self._retries.next_time()) if time_s is not None]
        return min(times, default=None)

    # Inside

    @property
    def _store_is_busy(self) -> bool:
        """As many heads are asked for as the leases out can justify."""
        return self.asked >= ASKED_AT_LEAST + 2 * self.out

    def _take(self, line: Line, lane: Lane, now_s: float) -> Head:
        line.gate.take(now_s)
        self._unplace(lane)
        head = lane.take()
        self.out += 1
        if lane.wants_heads():
            self._ask(lane)
        self.index.settle(lane.queue)
        self._activate(line)
        line.entry = None  # its turn is used up
        self._open_gates.enlist(line)
        return head

    def _activate(self, line: Line) -> bool:
        """Ask for the heads of as many further lanes as the gate can use; False if the store has enough to do."""
        while line.active < line.wanted():
            if self._store_is_busy:
                return not line.stored
            lane = line.next_stored()
            if lane is None:
                return True
            self._ask(lane)
            self._place(lane)
        return True

    def _ask(self, lane: Lane) -> None:
        self._wanted.append((lane, lane.ask()))
        self.asked += 1

    def _unplace(self, lane: Lane) -> None:
        """Take the lane out of its line."""
        self._lines[lane.gate].active -= lane.place in _ACTIVE
        lane.place = Place.NOWHERE
        lane.stamp = 0

    def _place(self, lane: Lane) -> None:
        """Put the lane where it belongs in its gate's line, after anything happened to it."""
        place = lane.belongs()
        if place is not lane.place:
            self._unplace(lane)
            lane.place = place
            line = self._lines[lane.gate]
            line.active += place in _ACTIVE
            if place in (Place.READY, Place.STORED):
                self._push(line.ready if place is Place.READY else line.stored, lane)
                self._open_gates.enlist(line)
        self.index.settle(lane.queue)

    def _push(self, heap: list[Entry], lane: Lane) -> None:
        self._stamps += 1
        lane.stamp = self._stamps
        heappush(heap, (lane.queue.precedence, lane.arrival, lane.stamp, lane))

    def _wake_retries(self, now_s: float) -> None:
        for lane, head in self._retries.take_due(now_s):
            lane.waiting -= 1
            lane.queue.waiting -= 1
            lane.put_first(head)
            self._place(lane)


_ACTIVE = frozenset({Place.READY, Place.LOADING})
