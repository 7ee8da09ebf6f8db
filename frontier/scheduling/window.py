"""The window: the gates in memory. The others are rows with a turn.

A crawl of a million hosts has a million gates; at most `GATES` of them are in memory. While there is room, the next ones by
turn are read. If there is none and no gate in memory is open, those that open last leave.

With limits of workers (`fairness`) a domain that crowds the window (`domains`) makes room: for the new hosts of other domains
at once (`admit`), and for gates in the store from time to time (`refill`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import nlargest
from itertools import chain, islice
from typing import NamedTuple

from anabranch.frontier.records import GateKey, Outcome, Turn, name_id
from anabranch.frontier.scheduling.domains import Domain, Domains
from anabranch.frontier.scheduling.gates import GateMaker, Politeness
from anabranch.frontier.scheduling.heaps import GateHeap
from anabranch.frontier.scheduling.readylist import LANES_AT_ONCE, Group, Lane, Outbox, ReadyList
from anabranch.frontier.stores.contract import GateRead, GatesRead, LeftGate, ShareOf, in_one_share

#: Gates that may be in memory.
GATES = 10_000
#: A gate that is closed for longer may leave memory: Heritrix's longest rest.
LONG_S = 30.0
#: Gates that are read at a time.
GATES_AT_ONCE = 1000


class StateAtOpening(NamedTuple):
    """The state of the store when it was opened."""

    may_have_gates: bool = True  #: the store may have gates that could serve
    died_s: float = 0.0  #: fetches of an owner that died may have lasted until then; 0 = none died
    share_of: ShareOf = in_one_share


class HostHeap(GateHeap[ReadyList]):
    """Hosts that have something to serve and a slot, by opening time, without limits of workers: nothing is counted."""

    def __init__(self) -> None:
        super().__init__()
        self.newcomers: GateHeap[ReadyList] = self  #: the heap of hosts that come into memory
        self.domains: Domains | None = None  #: those of the hosts in memory, if leases are counted by domain
        self.slow_out = 0  #: leases of new and slow hosts

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


class GateWindow:
    """Ready lists and groups by the id of their gate."""

    def __init__(
        self,
        maker: GateMaker,
        outbox: Outbox,
        drop_lane: Callable[[Lane], None],
        most: int,
        found: StateAtOpening,
        heap: HostHeap | None = None,
    ) -> None:
        """`heap` may have limits of workers; None = there are no limits."""
        self.maker = maker
        self._outbox = outbox
        self._drop_lane = drop_lane
        self._most = most
        self.lines: dict[int, ReadyList] = {}
        self.idle: dict[int, ReadyList] = {}  #: lists with nothing to serve, the longest idle first
        self.heap = heap or HostHeap()
        self._domains = self.heap.domains
        self.groups: dict[int, Group] = {}
        self.stored = StoredGates(more=found.may_have_gates)  #: about the gates in the store
        self._share_of = found.share_of
        #: By share: fetches of an owner that died may have lasted until then.
        self.died_s: dict[int, float] = {0: found.died_s} if found.died_s else {}

    def __len__(self) -> int:
        return len(self.lines)

    def __iter__(self) -> Iterator[ReadyList]:
        return iter(self.lines.values())

    def get(self, gate_id: int) -> ReadyList | None:
        """The list of this gate, if it is in memory."""
        return self.lines.get(gate_id)

    def named(self, gate_id: int, key: GateKey) -> ReadyList | Group:
        """The gate of a host or group; asked for if it is not in memory."""
        return self.groups.get(gate_id) or self.lines.get(gate_id) or self.load(gate_id, key)

    def set_politeness(self, politeness: Politeness, group_politeness: Politeness) -> None:
        """Serve all gates by these rules from now on. Cost: 2 µs a gate in memory."""
        self.maker.set_politeness(politeness, group_politeness)
        listed: Iterable[ReadyList | Group] = chain(self.lines.values(), self.groups.values())
        for line in listed:
            line.gate.set_politeness(self.maker.politeness_of(line.gate.key))
            if not line.is_loading:
                line.enlist()

    # Coming in

    def admit(self, gate_id: int, key: GateKey | None, turn: Turn | None, queue_id: int) -> ReadyList | None:
        """The list of a gate that got something to serve, a lane of this queue; None if the gate stays in the store.

        A gate with a key is loaded if there is room and no other gate waits, or if another domain crowds the window. Else its
        turn, if any, is written to the store.
        """
        line = self.lines.get(gate_id)
        if line is None and key is not None and turn is not None:
            if self._is_let_in(key):
                line = self.load(gate_id, key)
            else:
                turn = self._spread(gate_id, key, turn)
        if line is None or line.is_loading:
            batch = self._outbox.batch
            if key is not None:
                batch.gate_names.append((gate_id, key))
            if turn is not None:
                batch.woken.append((gate_id, turn))
                if line is None:
                    self.stored.woken(gate_id, turn, queue_id)
        return line

    def load(self, gate_id: int, key: GateKey) -> ReadyList:
        """Ask the store for this gate; its list takes lanes from now on, and serves after the answer."""
        line = self._bring_in(gate_id, key)
        line.waiting.ask()
        self._outbox.gates.append(line)
        return line

    def refill(self, now_s: float) -> None:
        """Ask for gates by turn if the store may have some and there is room for a tenth of the window."""
        if self.stored.is_asked or not self.stored.may_serve(now_s):
            return
        domains = self._domains
        crowd = None if domains is None else domains.crowd_to_swap(now_s)
        if domains is not None and crowd is not None and self._room * 2 < self._most:
            self._displace(crowd, max(self._most // 10, 1), now_s)
            domains.swap_began(now_s, is_asked=self._room > 0)
        if self._room > 0 and (crowd is not None or self._room * 10 >= self._most):
            self._ask()

    def gates_read(self, answer: GatesRead, now_s: float) -> None:
        """Take the store's answer."""
        missed = self.stored.answered(answer)
        if answer.asked is None and self._domains is not None:
            self._domains.swap_answered((read.row.key for read in answer.gates), now_s)
        for read in answer.gates:
            self._take_up(read, now_s)
            self._catch_up(read.row.id, missed.get(read.row.id, ()))
        while len(self.lines) > self._most and self.idle:
            self._leave(next(iter(self.idle.values())), now_s)

    def join_group(self, line: ReadyList) -> None:
        """Join the list to the group of its host, if there is one that is known by now."""
        key = self.maker.group_of(line.gate.key) if self.maker.has_groups and line.group is None else None
        if key is None:
            return
        group_id = name_id(key)
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = Group(self.maker.group_gate(key), self.heap.newcomers)
            self._outbox.gates.append(group)
            named = self._take_out(group_id)
            if named is not None:  # an operator named the group before its hosts were known
                group.replace(named)
        line.join(group)

    # Staying

    def others_wait(self, line: ReadyList) -> bool:
        """The store may have gates that this one must make room for: not if another domain crowds the window."""
        return self.stored.more and self._crowd_before(line.gate.key) is None

    def busy(self, line: ReadyList) -> None:
        """The list has something to serve."""
        self.idle.pop(line.gate.id, None)

    def rest(self, line: ReadyList, now_s: float) -> None:
        """Let the list be idle, or leave if it was leaving, unless it has leases out."""
        if line.gate.out or line.is_loading:
            return
        if line.is_leaving:
            self._leave(line, now_s)
        else:
            self.note_idle(line)

    def note_idle(self, line: ReadyList) -> None:
        """Note the list as idle, so that it may make room, if it has neither work nor leases."""
        if not (line.gate.out or line.is_loading or line.is_leaving or line.has_work):
            self.idle[line.gate.id] = line

    # Leaving

    @property
    def is_full(self) -> bool:
        """The store may have gates that could serve, and there is no room."""
        return self.stored.more and self._room <= 0

    def let_go(self, line: ReadyList, now_s: float) -> None:
        """Let the list leave as soon as it has no lease out."""
        line.leave()
        line.enlist()
        self.rest(line, now_s)

    def make_room(self, now_s: float) -> None:
        """No gate in memory is open: up to a tenth of the window leaves, those that open last, if not soon."""
        if self.stored.is_asked or not self.stored.may_serve(now_s):
            return
        # A gate closed by its group is not in the heap; otherwise the heap knows whether a look at each gate is useful.
        if self._room <= 0 and (self.maker.has_groups or self.heap.opens_last_s > now_s + LONG_S):
            for line in _closed_for_long(self.lines.values(), max(self._most // 10, 1), now_s):
                self._leave(line, now_s)
            self.heap.forget_left(self.lines.values())
        if self._room > 0:
            self._ask()
        else:
            self.stored.stuck(now_s)

    def leave_all(self, now_s: float) -> None:
        """Write all gates, because the crawl ends."""
        for line in list(self.lines.values()):
            if not line.is_loading:
                self._leave(line, now_s)

    # Inside

    @property
    def _room(self) -> int:
        """The number of gates that can be taken in; idle ones make room."""
        return self._most - len(self.lines) + len(self.idle)

    def _ask(self) -> None:
        self._outbox.ask_gates(self.stored.ask(min(self._room, GATES_AT_ONCE)))

    def _bring_in(self, gate_id: int, key: GateKey) -> ReadyList:
        line = self.lines[gate_id] = ReadyList(self.maker.host_gate(key), self.heap.newcomers)
        if self._domains is not None:
            self.heap.enter(line)
        return line

    def _is_let_in(self, key: GateKey) -> bool:
        """Whether a new gate need not wait in the store: no other waits there, or another domain crowds the window."""
        if not self.stored.more and self._makes_room():
            return True
        crowd = self._crowd_before(key)
        if crowd is None:
            return False
        if len(self.lines) + self.stored.limit < self._most:
            return True
        # Fewer than the room for which `refill` reads gates from the store: that room is for new hosts.
        return self._displace(crowd, max(self._most // 32, 1), -math.inf)

    def _crowd_before(self, host: GateKey) -> Domain | None:
        """The domain that crowds this host out, if any."""
        return None if self._domains is None else self._domains.crowd_before(host)

    def _spread(self, gate_id: int, host: GateKey, turn: Turn) -> Turn:
        """The turn with which a gate goes to the store."""
        return turn if self._domains is None else self._domains.spread(gate_id, host, turn)

    def _displace(self, crowd: Domain, most: int, now_s: float) -> bool:
        """Let some gates of a crowd leave, the latest first, at most an eighth of them; False if none could."""
        free = (line for line in reversed(crowd.lines.values()) if not (line.gate.out or line.is_loading))
        leaving = list(islice(free, min(most, max(len(crowd.lines) // 8, 1))))
        for line in leaving:
            self._leave(line, now_s)
        return bool(leaving)

    def _makes_room(self) -> bool:
        if len(self.lines) < self._most:
            return True
        if not self.idle:
            return False
        self._leave(next(iter(self.idle.values())), math.inf)
        return True

    def _take_up(self, read: GateRead, now_s: float) -> None:
        gate_id = read.row.id
        group = self.groups.get(gate_id)
        if group is not None:
            if group.is_loading:
                self._restore(group, read, now_s)
                group.enlist()
            return
        line = self.lines.get(gate_id)
        if line is None:
            line = self._bring_in(gate_id, read.row.key)
        elif not line.is_loading:
            return  # a woken row that was in memory by then
        self._restore(line, read, now_s)
        line.waiting.answer([(lane.turn, lane.queue) for lane in read.lanes], LANES_AT_ONCE)
        self.join_group(line)
        line.enlist()
        self.rest(line, now_s)

    def _catch_up(self, gate_id: int, missed: Iterable[tuple[Turn, int]]) -> None:
        """Take the lanes that came while the gate was being read."""
        line = self.lines.get(gate_id)
        for turn, queue_id in missed:
            if line is not None and not (queue_id in line.waiting or queue_id in line.lanes):
                line.waiting.offer(turn, queue_id)
                self.busy(line)
                line.enlist()

    def _restore(self, listed: ReadyList | Group, read: GateRead, now_s: float) -> None:
        """Restore the gate from its row, then make the changes that waited."""
        gate = listed.gate
        died_s = self.died_s.get(self._share_of(gate.key)) if self.died_s else None
        gate.restore(read.row, now_s, clean=not died_s, opened_s=died_s or None)
        if isinstance(listed, ReadyList):
            self.heap.remember(listed, read.row.rests_until_s)
        for change in listed.restored():
            change(gate)
            self._outbox.batch.gates.append(gate.row())

    def _take_out(self, gate_id: int) -> ReadyList | None:
        self.idle.pop(gate_id, None)
        line = self.lines.pop(gate_id, None)
        if line is not None:
            self.heap.leave(line)
        return line

    def _leave(self, line: ReadyList, now_s: float) -> None:
        """Write the gate and remove it from memory."""
        turn = line.first_turn()
        if turn is not None:
            turn = self._spread(line.gate.id, line.gate.key, turn)
        wakes_s = None if turn is None else _wakes_s(line, now_s)
        self._outbox.batch.gates.append(line.gate.row())
        self._outbox.batch.left.append(LeftGate(line.gate.id, turn, wakes_s))
        for lane in list(line.lanes.values()):
            self._drop_lane(lane)
        line.leave()
        line.unlist()
        self._take_out(line.gate.id)
        self.stored.left(turn, wakes_s)
        self._leave_group(line)

    def _leave_group(self, line: ReadyList) -> None:
        """The group leaves memory with the last of its lists."""
        group = line.group
        if group is not None and group.let_out():
            group.unlist()
            del self.groups[group.gate.id]
            self._outbox.batch.gates.append(group.gate.row())
            self._outbox.batch.left.append(LeftGate(group.gate.id, None, None))


def _closed_for_long(lines: Iterable[ReadyList], most: int, now_s: float) -> list[ReadyList]:
    """The lists that open last, if not soon. Costs a look at every gate."""
    closed = (line for line in lines if not (line.gate.out or line.is_loading))
    return [line for line in nlargest(most, closed, key=ReadyList.opens_s) if line.opens_s() > now_s + LONG_S]


def _wakes_s(line: ReadyList, now_s: float) -> float | None:
    """When to read a gate again that leaves; None = at once."""
    opens_s = line.opens_s()
    if opens_s == math.inf:  # all slots of its group are out
        opens_s = now_s + max(line.group.gate.politeness.min_delay_s if line.group else 0.0, 1.0)
    return opens_s if opens_s > now_s else None


Missed = Mapping[int, Sequence[tuple[Turn, int]]]  # gate -> (turn, queue) of lanes


class StoredGates:
    """Knowledge about the gates in the store. Every operation costs O(1)."""

    def __init__(self, *, more: bool = True) -> None:
        self.more = more  #: the store may have gates that could serve
        self.is_asked = False  #: a read by turn is under way
        self.wakes_s: float | None = None  #: when the next closed gate in the store opens
        self.limit = 0  #: how many were asked for by the read under way
        self._woken = False  #: another gate got something to serve during the read
        self._missed: dict[int, list[tuple[Turn, int]]] = {}  #: lanes by gate that came during the read
        self._left_s: float | None = None  #: when the next gate opens that left since the last read was asked for
        self._stuck_s = -math.inf  #: when no room could be made for others

    def may_serve(self, now_s: float) -> bool:
        """The store may have gates that could serve now."""
        return self.more or (self.wakes_s is not None and self.wakes_s <= now_s)

    def next_time(self) -> float | None:
        """When a gate in the store opens and could be read; None if time alone does not help."""
        wakes_s = self.wakes_s
        return None if wakes_s is None or self.is_asked or wakes_s <= self._stuck_s else wakes_s

    def stuck(self, now_s: float) -> None:
        """Note that no gate in memory can make room."""
        self._stuck_s = now_s

    def note_woken(self) -> None:
        """Note that gates got something to serve, which a read under way may lack."""
        self.more = self._woken = True

    def woken(self, gate_id: int, turn: Turn, queue_id: int) -> None:
        """Note that a gate got something to serve: a lane of this queue."""
        if self.is_asked:  # the read may contain the gate as it was before
            self._missed.setdefault(gate_id, []).append((turn, queue_id))
        self.note_woken()

    def left(self, turn: Turn | None, wakes_s: float | None) -> None:
        """Note that a gate left memory; with a turn it can serve, at once or when it opens."""
        if wakes_s is not None:
            self.wakes_s = min(wakes_s, math.inf if self.wakes_s is None else self.wakes_s)
            self._left_s = min(wakes_s, math.inf if self._left_s is None else self._left_s)
        elif turn is not None:
            self.note_woken()

    def ask(self, limit: int) -> int:
        """Note that a read of so many begins."""
        self.is_asked, self._woken, self._left_s, self.limit = True, False, None, limit
        return limit

    def answered(self, answer: GatesRead) -> Missed:
        """Take an answer; returns the lanes that came to some of its gates meanwhile."""
        if answer.asked is not None:
            return {}
        self.more = self._woken or len(answer.gates) >= self.limit
        self.is_asked, self.limit = False, 0
        times = (answer.wakes_s, self._left_s)
        self.wakes_s = min((time_s for time_s in times if time_s is not None), default=None)
        missed, self._missed = self._missed, {}
        return missed
