"""Ready lists: the lanes that wait at each gate, and the heap of gates by opening time. Also the outbox of a call.

Millions of lanes may wait at a gate, and millions of rows for a retry. A `Prefix` keeps the first of them in memory, up to a
*horizon*; the rest is in the store and read when few remain. Members behind the horizon come with a later read; those that
arrive during a read are remembered, since it may not contain them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush, nsmallest
from typing import TYPE_CHECKING, Final, Generic, Literal, TypeVar

from anabranch.frontier.records import Outcome, Turn
from anabranch.frontier.scheduling.gates import Gate
from anabranch.frontier.scheduling.queues import NOWHERE, Lane
from anabranch.frontier.stores.contract import Batch

if TYPE_CHECKING:
    from anabranch.frontier.scheduling.domains import Domain, Domains

K = TypeVar("K", Turn, tuple[float, int])


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


Entry = tuple[int, int, Lane]  # (queue precedence, stamp, lane): the stamp is unique

#: Numbers in a group's heap begin here, because a host that joins leaves an old entry in the outer heap.
_IN_GROUP = 1 << 48
#: Waiting lanes of one gate in memory.
LANES = 1000

_NEVER: Final = math.inf


class Listed:
    """An entry of a heap of gates: the lanes of one host (`ReadyList`), or the hosts of one group (`Group`)."""

    __slots__ = ("entry", "gate", "is_fast", "is_loading", "later", "outer", "turn")

    def __init__(self, gate: Gate, outer: GateHeap) -> None:
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

    def move(self, outer: GateHeap, *, is_fast: bool) -> None:
        """Change its heap and its class; its entry in the old heap is void. The caller enlists it."""
        self.outer, self.is_fast = outer, is_fast
        self.entry = self.turn = None

    def restored(self) -> list[Callable[[Gate], None]]:
        """Its row was read: it may serve. The caller makes the changes that waited."""
        self.is_loading = False
        changes, self.later = self.later, []
        return changes


class GateHeap:
    """Gates that have something to serve and a slot, by opening time. Every operation costs O(log gates)."""

    def __init__(self, turns_from: int = 0) -> None:
        self._heap: list[tuple[float, int, ReadyList | Group]] = []
        self._turn = turns_from  #: breaks ties: first come, first served
        self.latest_s = -math.inf  #: no gate with a slot opens later

    def enlist(self, listed: ReadyList | Group) -> None:
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

    def forget_left(self, listed: Iterable[Listed]) -> None:
        """Recompute `latest_s` after gates have left; costs a look at each."""
        self.latest_s = max((one.entry[0] for one in listed if one.entry), default=-math.inf)

    def first_open(self, now_s: float) -> ReadyList | None:
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

    def first_listed(self) -> ReadyList | Group:
        """The first entry, which `next_time` has found."""
        return self._heap[0][2]

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

    def open_lines(self, now_s: float) -> Iterator[ReadyList]:
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


class Group(Listed):
    """A second gate that several hosts pass, with the heap of those that have something to serve."""

    __slots__ = ("asked", "heap", "lines")

    def __init__(self, gate: Gate, outer: GateHeap) -> None:
        super().__init__(gate, outer)
        self.heap = GateHeap(_IN_GROUP)
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
        return self.asked >= _wanted(self.gate)

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


class ReadyList(Listed):
    """The lanes that wait at one host's gate."""

    # fmt: off
    __slots__ = (
        "active", "domain", "group", "is_aside", "is_held", "is_leaving", "lanes", "ready", "slow_out", "waiting",
        "waits_from_s", "was_fetched",
    )
    # fmt: on

    def __init__(self, gate: Gate, outer: GateHeap) -> None:
        super().__init__(gate, outer)
        self.group: Group | None = None
        self.domain: Domain | None = None  #: counts its leases, see `domains`; None: nothing counts them yet
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

    def belong_to(self, domain: Domain) -> None:
        """Let this domain count its leases."""
        self.domain = domain

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

    def wanted(self) -> int:
        """The number of lanes that should be ready or loading: as many as could be served soon."""
        return _wanted(self.gate)

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


class HostHeap(GateHeap):
    """Hosts that have something to serve and a slot, by opening time, without limits of workers: nothing is counted."""

    def __init__(self) -> None:
        super().__init__()
        self.domains: Domains | None = None  #: those of the hosts in memory, if leases are counted by domain
        self.slow_out = 0  #: leases of new and slow hosts

    @property
    def newcomers(self) -> GateHeap:
        """The heap of hosts that come into memory."""
        return self

    def taken(self, line: ReadyList, now_s: float) -> None:
        """Count a lease that is handed out."""

    def returned(self, line: ReadyList, now_s: float) -> None:
        """Count a lease that has ended. Call it after the slot was returned."""

    def ended(self, line: ReadyList, outcome: Outcome, now_s: float) -> None:
        """Count a lease that has ended. Note how fast the host answered, if something was fetched."""

    def passed_over(self, line: ReadyList, now_s: float) -> None:
        """Let another host of its domain be served in the place of one that is open and has nothing to serve."""

    def enter(self, line: ReadyList) -> None:
        """Add a host that comes into memory."""

    def remember(self, line: ReadyList, rests_until_s: float) -> None:
        """Class a host whose row was read: its last rest says how long its last fetch took, if there was one."""

    def leave(self, line: ReadyList) -> None:
        """Remove a host without leases that leaves memory."""


def _wanted(gate: Gate) -> int:
    out = gate.out
    return min(2 * out or 2, max(1, gate.slots - out + 1))


#: Lanes that are read together with a gate.
LANES_AT_ONCE = 16
#: Waiting rows that are read at a time.
RETRIES_AT_ONCE = 2500


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

    def questions_asked(self) -> None:
        """Forget the questions after they were asked."""
        self.heads, self.lanes, self.gates, self.next_gates, self.retries = [], [], [], 0, False
