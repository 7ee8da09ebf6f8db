"""The lanes that wait at a gate, and the heaps of gates by opening time. Pure; the time is an argument.

A URL passes the gate of its host, and a second one if its host belongs to a group. So there are two levels: the outer heap
holds hosts that stand alone, and groups; a group has a heap of its own hosts. What is closed by its group costs nothing
until the group opens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import Final, Protocol

from anabranch.frontier.scheduling.gates import Gate
from anabranch.frontier.scheduling.prefix import Prefix
from anabranch.frontier.scheduling.workqueues import NOWHERE, PARKED, Lane
from anabranch.frontier.turns import Turn

Entry = tuple[int, int, Lane]  # (queue precedence, stamp, lane): the stamp is unique

#: Turns in a group's heap begin here: a host that joins one leaves an entry in the outer heap, which must not be taken for its
#: new one.
_IN_GROUP = 1 << 48
#: Lanes of one gate whose ids are in memory.
LANES = 1000

_NEVER: Final = math.inf


class Listed(Protocol):
    """What can stand in a heap of gates."""

    gate: Gate
    entry: tuple[float, int] | None  #: its valid entry
    turn: tuple[float, int] | None  #: the latest one: whoever is listed again for the same time keeps his turn

    def serves_s(self) -> float:
        """When it may serve something at the earliest; infinity if nothing stands at it or no slot will open by itself."""
        ...

    def open_line(self, now_s: float) -> Line | None:
        """The line that is served first, if any gate it has to pass is open."""
        ...

    def open_lines(self, now_s: float) -> Iterator[Line]:
        """All lines of which that is true, in no order."""
        ...


class GateHeap:
    """Gates that have something to serve and a slot, by opening time. Every operation costs O(log gates)."""

    def __init__(self, turns_from: int = 0) -> None:
        self._heap: list[tuple[float, int, Listed]] = []
        self._turn = turns_from  #: breaks ties: first come, first served
        self.latest_s = -math.inf  #: no gate that may be listed opens later, those left out all of whose slots are out

    def enlist(self, listed: Listed) -> None:
        """Give it its place, if it has anything to serve and a slot; it keeps its turn if nothing changed."""
        at_s = listed.serves_s()
        if at_s == _NEVER:
            listed.entry = None
            if listed.gate.blocked_until_s == _NEVER:
                self.latest_s = _NEVER
            return
        entry = listed.entry
        if entry is not None and entry[0] == at_s:
            return
        turn = listed.turn
        if turn is None or turn[0] != at_s:
            self._turn += 1
            turn = at_s, self._turn
        listed.entry = listed.turn = turn
        self.latest_s = max(self.latest_s, at_s)
        heappush(self._heap, (at_s, turn[1], listed))

    def first_open(self, now_s: float) -> Line | None:
        """The line that has been open for longest; it keeps its place."""
        heap = self._heap
        while (at_s := self.next_time()) is not None and at_s <= now_s:
            listed = heap[0][2]
            line = listed.open_line(now_s)
            if line is not None:
                return line
            heappop(heap)
            listed.entry = None
            self.enlist(listed)
            if listed.serves_s() <= now_s:
                return None  # it says so, but has no line: another look will tell
        return None

    def next_time(self) -> float | None:
        """When the first gate opens; None if none will by itself."""
        heap = self._heap
        while heap:
            at_s, number, listed = heap[0]
            entry = listed.entry
            if entry is not None and entry[1] == number:  # a number stands for one time
                return at_s
            heappop(heap)
        return None

    def open_lines(self, now_s: float) -> Iterator[Line]:
        """All lines that have something to serve and may, in no order, some twice. Costs their number."""
        heap = self._heap
        places = [0]
        while places:
            place = places.pop()
            if place >= len(heap) or heap[place][0] > now_s:
                continue  # nor does what stands below it open before
            _, number, listed = heap[place]
            if listed.entry is not None and listed.entry[1] == number:
                yield from listed.open_lines(now_s)
            places += (2 * place + 1, 2 * place + 2)


class Group:
    """A second gate that several hosts pass, and the heap of those that have something to serve."""

    __slots__ = ("asked", "entry", "gate", "heap", "is_loading", "later", "lines", "outer", "turn")

    def __init__(self, gate: Gate, outer: GateHeap) -> None:
        self.gate = gate
        self.heap = GateHeap(_IN_GROUP)
        self.outer = outer  #: where it stands itself
        self.entry: tuple[float, int] | None = None
        self.turn: tuple[float, int] | None = None
        self.lines = 0  #: hosts of it that are in memory
        self.asked = 0  #: lanes of these whose heads are on their way
        self.is_loading = True  #: its row has not been read yet: nothing may pass
        self.later: list[Callable[[Gate], None]] = []  #: changes of the gate that wait until its row is read

    def enlist(self) -> None:
        """Give it its place."""
        self.outer.enlist(self)

    @property
    def has_enough(self) -> bool:
        """Heads are on their way for as many of its hosts as it could let through soon."""
        return self.asked >= _wanted(self.gate)

    def serves_s(self) -> float:
        """When it is open and one of its hosts, too."""
        member_s = self.heap.next_time()
        if member_s is None or self.is_loading:
            return math.inf
        return max(member_s, self.gate.opens_s(), self.gate.served_s)

    def open_line(self, now_s: float) -> Line | None:
        """The host of it that has been open for longest."""
        return self.heap.first_open(now_s) if self.gate.opens_s() <= now_s else None

    def open_lines(self, now_s: float) -> Iterator[Line]:
        """All of its hosts that are open."""
        return self.heap.open_lines(now_s) if self.gate.opens_s() <= now_s else iter(())


class Line:
    """The lanes that wait at one host's gate."""

    __slots__ = (
        "active",
        "entry",
        "gate",
        "group",
        "is_leaving",
        "is_loading",
        "lanes",
        "later",
        "outer",
        "ready",
        "turn",
        "waiting",
    )

    def __init__(self, gate: Gate, outer: GateHeap) -> None:
        self.gate = gate
        self.outer = outer  #: where it stands, unless it belongs to a group
        self.group: Group | None = None
        self.ready: list[Entry] = []  #: heap of lanes with heads in memory; may hold stale entries
        self.waiting: Prefix[Turn] = Prefix(LANES, is_complete=False)  #: ids of queues whose lanes are rows
        self.lanes: dict[int, Lane] = {}  #: lanes in memory, by queue
        self.active = 0  #: lanes that are READY or LOADING
        self.entry: tuple[float, int] | None = None  #: its valid entry in the heap it stands in
        self.turn: tuple[float, int] | None = None  #: the latest one
        self.is_loading = True  #: its row has not been read yet: nothing may pass
        self.is_leaving = False  #: it serves nothing more until it has left memory
        self.later: list[Callable[[Gate], None]] = []  #: changes of the gate that wait until its row is read

    def __repr__(self) -> str:
        return f"<Line {self.gate.key}: {self.active} active, {len(self.waiting)} waiting>"

    def serves_s(self) -> float:
        """When its gate is open, if there is anything to serve."""
        if self.is_loading or self.is_leaving or not (self.ready or self.waiting.may_have_any):
            return _NEVER
        gate = self.gate
        opens_s, served_s = gate.opens_s(), gate.served_s
        return opens_s if opens_s > served_s else served_s  # noqa: FURB136 - a call costs four times as much

    def opens_s(self) -> float:
        """When its gate and its group's are open at the earliest; infinity while all slots of one are out."""
        opens_s = self.gate.opens_s()
        return opens_s if self.group is None else max(opens_s, self.group.gate.opens_s())

    def open_line(self, now_s: float) -> Line | None:
        """Itself, if its gate is open."""
        return self if self.gate.opens_s() <= now_s else None

    def open_lines(self, now_s: float) -> Iterator[Line]:
        """Itself, if its gate is open."""
        return iter((self,) if self.gate.opens_s() <= now_s else ())

    def enlist(self) -> None:
        """Give it its place in the heap it stands in, and its group in the outer one."""
        group = self.group
        if group is None:
            self.outer.enlist(self)
        else:
            group.heap.enlist(self)
            group.outer.enlist(group)

    def delist(self) -> None:
        """It has nothing to serve until something changes."""
        self.entry = None
        if self.group is not None:
            self.group.outer.enlist(self.group)

    def best(self) -> Lane | None:
        """Take the best ready lane whose queue is free; park those whose queue is busy."""
        ready = self.ready
        while ready:
            _, stamp, lane = heappop(ready)
            if lane.stamp != stamp:
                continue
            queue = lane.queue
            if queue.out < queue.per_queue:
                return lane
            lane.place = PARKED
            lane.stamp = 0
            self.active -= 1
            queue.parked.append(lane)
        return None

    def wanted(self) -> int:
        """How many lanes should be ready or loading: as many as could be served soon, at most 2 × those served."""
        return _wanted(self.gate)

    @property
    def has_work(self) -> bool:
        """Something stands here, or may stand in the store."""
        return bool(self.lanes) or self.waiting.may_have_any

    def first_turn(self) -> Turn | None:
        """The smallest turn of all that it could serve; None if there is nothing."""
        turns = [lane.turn for lane in self.lanes.values() if lane.place is not NOWHERE]
        if self.waiting.may_have_any:
            turns.append(self.waiting.first_key() or Turn(0))
        return min(turns, default=None)


def _wanted(gate: Gate) -> int:
    out = gate.out
    return min(2 * out or 2, max(1, gate.slots - out + 1))
