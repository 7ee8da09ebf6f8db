"""The lanes that wait at a gate, and the heap of gates by opening time. Pure; the time is an argument."""

from __future__ import annotations

import math
from heapq import heappop, heappush

from frontier.gates import Gate
from frontier.workqueues import Lane, Place

Entry = tuple[int, int, int, Lane]  # (queue precedence, arrival, stamp, lane): the stamp is unique


class Line:
    """The lanes that wait at one gate."""

    __slots__ = ("active", "entry", "gate", "ready", "stored")

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.ready: list[Entry] = []  #: heap of lanes with heads in memory; may hold stale entries
        self.stored: list[Entry] = []  #: heap of lanes whose rows are in the store; may hold stale entries
        self.active = 0  #: lanes that are READY or LOADING
        self.entry: tuple[float, int] | None = None  #: its valid entry in the heap of gates

    def best(self) -> Lane | None:
        """Take the best ready lane whose queue is free; park those whose queue is busy."""
        while self.ready:
            _, _, stamp, lane = heappop(self.ready)
            if lane.stamp != stamp:
                continue
            if not lane.queue.is_busy:
                return lane
            lane.place = Place.PARKED
            lane.stamp = 0
            self.active -= 1
            lane.queue.parked.append(lane)
        return None

    def next_stored(self) -> Lane | None:
        """Take the first lane whose heads are in the store."""
        while self.stored:
            _, _, stamp, lane = heappop(self.stored)
            if lane.stamp == stamp:
                return lane
        return None

    def wanted(self) -> int:
        """How many lanes should be ready or loading: as many as could be served soon, at most 2 × those served."""
        return min(2 * max(1, self.gate.out), max(1, self.gate.slots - self.gate.out + 1))


class GateHeap:
    """Lines whose gate has something to serve and a slot, by opening time. Every operation costs O(log gates)."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Line]] = []
        self._turn = 0  #: breaks ties: first come, first served

    def enlist(self, line: Line) -> None:
        """Give the line its place, if it has anything to serve and a slot; it keeps its turn if nothing changed."""
        opens_s = line.gate.opens_s()
        if opens_s == math.inf or not (line.ready or line.stored):
            line.entry = None
            return
        at_s = max(opens_s, line.gate.served_s)
        if line.entry is not None and line.entry[0] == at_s:
            return
        self._turn += 1
        line.entry = (at_s, self._turn)
        heappush(self._heap, (at_s, self._turn, line))

    def first_open(self, now_s: float) -> Line | None:
        """The line whose gate has been open for longest; it keeps its place."""
        while (at_s := self.next_time()) is not None and at_s <= now_s:
            line = self._heap[0][2]
            if line.gate.opens_s() <= now_s:
                return line
            heappop(self._heap)
            line.entry = None
            self.enlist(line)
        return None

    def next_time(self) -> float | None:
        """When the first gate opens; None if none will by itself."""
        while self._heap and self._heap[0][2].entry != self._heap[0][:2]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None
