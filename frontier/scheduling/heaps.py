"""Ordered sets of what waits: gates by opening time, members whose first part is in memory, rows by due time.

Millions of lanes may wait at a gate, and millions of rows for a retry. A `Prefix` keeps the first of them in memory, up to a
*horizon*; the rest is in the store and read when few remain. Members behind the horizon come with a later read; those that
arrive during a read are remembered, since it may not contain them. `Retries` are the rows of such a set.

A `GateHeap` knows its entries as `Listed`. Their kinds, and what they serve (`L`), are in `readylist`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush, nsmallest
from typing import Final, Generic, TypeVar

from anabranch.frontier.records import Row, Turn
from anabranch.frontier.scheduling.gates import Gate

#: Waiting rows in memory.
RETRIES = 10_000
#: Waiting rows that are read at a time.
RETRIES_AT_ONCE = 2500

_NEVER: Final = math.inf

K = TypeVar("K", Turn, tuple[float, int])
L = TypeVar("L")  # `readylist.ReadyList`


class Listed(ABC, Generic[L]):
    """An entry of a heap of gates: one host, or a group of hosts. L is what serves the lanes of one host."""

    __slots__ = ("entry", "gate", "is_fast", "is_loading", "later", "outer", "turn")

    def __init__(self, gate: Gate, outer: GateHeap[L]) -> None:
        self.gate = gate
        self.outer = outer  #: its heap, unless it is a host of a group
        self.entry: tuple[float, int] | None = None  #: its valid entry in its heap
        self.turn: tuple[float, int] | None = None  #: its latest entry, which it keeps if it opens at the same time
        self.is_loading = True  #: its row has not been read yet: nothing may pass
        self.later: list[Callable[[Gate], None]] = []  #: changes of the gate that wait for its row
        self.is_fast = False  #: its last fetch was answered soon, see `fairness`

    def list_at(self, entry: tuple[float, int]) -> None:
        """Set its entry in its heap."""
        self.entry = self.turn = entry

    def unlist(self) -> None:
        """Invalidate its entry; it keeps its turn."""
        self.entry = None

    def move(self, outer: GateHeap[L], *, is_fast: bool) -> None:
        """Change its heap and its class; its entry in the old heap is void. The caller enlists it."""
        self.outer, self.is_fast = outer, is_fast
        self.entry = self.turn = None

    def restored(self) -> list[Callable[[Gate], None]]:
        """Its row was read: it may serve. The caller makes the changes that waited."""
        self.is_loading = False
        changes, self.later = self.later, []
        return changes

    def wanted(self) -> int:
        """The number of lanes that should be ready or loading: as many as could be served soon."""
        out = self.gate.out
        return min(2 * out or 2, max(1, self.gate.slots - out + 1))

    @abstractmethod
    def serves_s(self) -> float:
        """When it can be served; infinity if time alone does not help."""

    @abstractmethod
    def open_line(self, now_s: float) -> L | None:
        """The host that has been open for longest, if any."""

    @abstractmethod
    def open_lines(self, now_s: float) -> Iterator[L]:
        """All open hosts."""

    @abstractmethod
    def first_line(self) -> L:
        """The host that opens first; there must be one."""


class GateHeap(Generic[L]):
    """Gates that have something to serve and a slot, by opening time. Every operation costs O(log gates)."""

    def __init__(self, turns_from: int = 0) -> None:
        self._heap: list[tuple[float, int, Listed[L]]] = []
        self._turn = turns_from  #: breaks ties: first come, first served
        self.latest_s = -math.inf  #: no gate with a slot opens later

    def enlist(self, listed: Listed[L]) -> None:
        """Enter it if it has something to serve and a slot; it keeps its turn if nothing changed."""
        at_s = listed.serves_s()
        if at_s == _NEVER:
            listed.unlist()
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
        listed.list_at(turn)
        self.latest_s = max(self.latest_s, at_s)
        heappush(self._heap, (at_s, turn[1], listed))

    @property
    def opens_last_s(self) -> float:
        """No gate with a slot opens later."""
        return self.latest_s

    def forget_left(self, listed: Iterable[Listed[L]]) -> None:
        """Recompute `latest_s` after gates have left; costs a look at each."""
        self.latest_s = max((one.entry[0] for one in listed if one.entry), default=-math.inf)

    def first_open(self, now_s: float) -> L | None:
        """The list that has been open for longest; it keeps its place."""
        heap = self._heap
        while (at_s := self.next_time()) is not None and at_s <= now_s:
            listed = heap[0][2]
            line = listed.open_line(now_s)
            if line is not None:
                return line
            heappop(heap)
            listed.unlist()
            self.enlist(listed)
            if listed.serves_s() <= now_s:
                return None  # it is open without an open list: the next look decides
        return None

    def first_line(self) -> L:
        """The host of the first entry, which `next_time` has found."""
        return self._heap[0][2].first_line()

    def soonest(self, _now_s: float) -> float | None:
        """When `first_open` may have an answer; None if time alone brings none."""
        return self.next_time()

    def next_time(self) -> float | None:
        """When the first gate opens; None if time alone opens none."""
        heap = self._heap
        while heap:
            at_s, number, listed = heap[0]
            entry = listed.entry
            if entry is not None and entry[1] == number:  # a number belongs to one time
                return at_s
            heappop(heap)
        return None

    def open_lines(self, now_s: float) -> Iterator[L]:
        """All lists that may serve something now, in no order, some twice. O(their number)."""
        heap = self._heap
        places = [0]
        while places:
            place = places.pop()
            if place >= len(heap) or heap[place][0] > now_s:
                continue  # its children in the heap open later still
            _, number, listed = heap[place]
            if listed.entry is not None and listed.entry[1] == number:
                yield from listed.open_lines(now_s)
            places += (2 * place + 1, 2 * place + 2)


class Prefix(Generic[K]):
    """The first part of an ordered set of whole numbers, by key. Every operation costs O(log members)."""

    __slots__ = ("_gone", "_heap", "_horizon", "_keys", "_meanwhile", "_most", "is_asked", "is_complete")

    def __init__(self, most: int, *, is_complete: bool) -> None:
        self._most = most  #: members in memory; up to twice as many between two cuts
        self._heap: list[tuple[K, int]] = []
        self._keys: dict[int, K] = {}
        self.is_complete = is_complete  #: nothing is behind the horizon
        self._horizon: K | None = None  #: the last key that was read
        self._gone: set[int] = set()  #: discarded during a read, which may contain it
        self._meanwhile: dict[int, K] = {}  #: offered during a read
        self.is_asked = False

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, member: int) -> bool:
        return member in self._keys

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(self._keys)

    @property
    def may_have_any(self) -> bool:
        """It has members in memory, or maybe in the store."""
        return bool(self._keys) or not self.is_complete

    @property
    def wants_more(self) -> bool:
        """Few remain, the store may have more, and no read is under way."""
        return not (self.is_complete or self.is_asked) and len(self._keys) <= self._most >> 2

    def offer(self, key: K, member: int) -> None:
        """Set the member's key; it is kept in memory unless the key is behind the horizon."""
        self._keys.pop(member, None)
        if self.is_complete or (self._horizon is not None and key <= self._horizon):
            self._keys[member] = key
            heappush(self._heap, (key, member))
        if not self.is_asked:
            self._limit()
        else:
            # A key that is too small costs a useless look, one that is too large loses the member.
            self._gone.discard(member)
            self._meanwhile[member] = min(key, self._meanwhile.get(member, key))

    def discard(self, member: int) -> None:
        """Remove the member."""
        self._keys.pop(member, None)
        if self.is_asked:
            self._meanwhile.pop(member, None)
            self._gone.add(member)

    def first_key(self) -> K | None:
        """The smallest key in memory, else the horizon, if any."""
        while self._heap and self._keys.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else self._horizon

    def first(self) -> tuple[K, int] | None:
        """The first member with its key; None if none is in memory."""
        self.first_key()
        return self._heap[0] if self._heap else None

    def pop(self) -> tuple[K, int] | None:
        """Take the first member out."""
        entry = self.first()
        if entry is not None:
            heappop(self._heap)
            self.discard(entry[1])
        return entry

    def rewind(self) -> None:
        """Read from the first key on; no read may be under way. Members in memory stay."""
        self._horizon, self.is_complete = None, False

    def ask(self) -> K | None:
        """Note that the store is asked; returns the key behind which to read."""
        self.is_asked = True
        return self._horizon

    def answer(self, entries: list[tuple[K, int]], limit: int) -> None:
        """Take the members that were read, in order; fewer than the limit are the last ones."""
        self.is_asked = False
        self.is_complete = len(entries) < limit
        if entries:
            self._horizon = entries[-1][0]
        meanwhile, self._meanwhile = self._meanwhile, {}
        gone, self._gone = self._gone, set()
        for key, member in entries:
            if member in gone:
                continue
            # One that was offered meanwhile was in the store already: the key that was read is right.
            meanwhile.pop(member, None)
            if member not in self._keys:
                self._keys[member] = key
                heappush(self._heap, (key, member))
        for member, key in meanwhile.items():
            self.offer(key, member)

    def _limit(self) -> None:
        """Keep the first members if there are too many; not during a read, which began behind the old horizon."""
        if len(self._keys) <= 2 * self._most:
            return
        kept = nsmallest(self._most, ((key, member) for member, key in self._keys.items()))
        self._keys = {member: key for key, member in kept}
        self._heap = kept
        heapify(self._heap)
        self._horizon = kept[-1][0]
        self.is_complete = False


class Retries:
    """Waiting rows by (due, ordinal). Every operation costs O(log of those in memory)."""

    def __init__(self, *, may_have_any: bool) -> None:
        """`may_have_any`: the store may hold waiting rows already."""
        self._places: Prefix[tuple[float, int]] = Prefix(RETRIES, is_complete=not may_have_any)
        self._rows: dict[int, Row] = {}
        self._is_stale = False  #: rows that came to the store otherwise may be before those that were read

    def add(self, row: Row) -> None:
        """Let the row wait until it is due."""
        self._places.offer(_place(row), row.ordinal)
        if row.ordinal in self._places or self._places.is_asked:
            self._rows[row.ordinal] = row
        if len(self._rows) > 2 * len(self._places) + RETRIES and not self._places.is_asked:  # the prefix was cut
            self._rows = {ordinal: row for ordinal, row in self._rows.items() if ordinal in self._places}

    def remove(self, ordinals: set[int]) -> None:
        """Remove these rows."""
        for ordinal in ordinals:
            self._places.discard(ordinal)
            self._rows.pop(ordinal, None)

    def of(self, asked: Callable[[Row], bool]) -> set[int]:
        """The ordinals of the rows in memory for which this is true."""
        return {ordinal for ordinal, row in self._rows.items() if asked(row)}

    def read_again(self) -> None:
        """Read from the first row on: the store has got rows that were not added here."""
        if self._places.is_asked:
            self._is_stale = True
        else:
            self._places.rewind()

    def take_due(self, now_s: float) -> Iterator[Row]:
        """Take every row in memory that is due."""
        while (first := self._places.first()) is not None and first[0][0] <= now_s:
            self._places.pop()
            yield self._rows.pop(first[1])

    def next_time(self) -> float | None:
        """When the next row in memory is due; None if none waits."""
        first = self._places.first()
        return None if first is None else first[0][0]

    @property
    def wants_more(self) -> bool:
        """Whether to ask the store for more."""
        return self._places.wants_more

    def ask(self) -> tuple[float, int] | None:
        """Note that the store is asked; returns the place behind which to read."""
        return self._places.ask()

    def read(self, rows: list[Row]) -> None:
        """Take the store's answer."""
        known = set(self._rows)
        is_stale, self._is_stale = self._is_stale, False
        self._places.answer([(_place(row), row.ordinal) for row in rows], RETRIES_AT_ONCE)
        self._rows.update((row.ordinal, row) for row in rows if row.ordinal not in known)
        self._rows = {ordinal: row for ordinal, row in self._rows.items() if ordinal in self._places}
        if is_stale:
            self._places.rewind()


def _place(row: Row) -> tuple[float, int]:
    assert row.due_s is not None, "a row that waits has a time"
    return row.due_s, row.ordinal
