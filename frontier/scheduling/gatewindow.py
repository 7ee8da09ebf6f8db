"""The gates that are in memory: those that serve, rest or soon will. The others are rows with a turn.

A crawl of a million hosts has a million gates; at most `GATES` of them are here. When there is room, those that come next
by turn are read. When there is none and nothing here is open, those that open last make room: what is closed for long
need not be in memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from heapq import nlargest

from anabranch.frontier.models import GateKey
from anabranch.frontier.outbox import LANES_AT_ONCE, Outbox
from anabranch.frontier.scheduling.gategroups import GateMaker, Groups
from anabranch.frontier.scheduling.gatelines import GateHeap, Group, Line
from anabranch.frontier.scheduling.storedgates import StoredGates
from anabranch.frontier.scheduling.workqueues import Lane
from anabranch.frontier.stores.messages import GateRead, GatesRead, LeftGate
from anabranch.frontier.turns import Turn

#: Gates that may be in memory.
GATES = 10_000
#: A gate that is closed for longer is better a row: Heritrix's longest rest.
LONG_S = 30.0
#: Gates that are read at a time.
GATES_AT_ONCE = 1000


class GateWindow:
    """Lines and groups by the id of their gate."""

    def __init__(self, maker: GateMaker, outbox: Outbox, drop_lane: Callable[[Lane], None], most: int) -> None:
        self.maker = maker
        self._outbox = outbox
        self._drop_lane = drop_lane
        self._most = most
        self._lines: dict[int, Line] = {}
        self._idle: dict[int, Line] = {}  #: lines with nothing to serve, in the order in which they became idle
        self.heap = GateHeap()
        self.groups = Groups(maker, outbox, self.heap)
        self.stored = StoredGates()  #: what is known of the others
        #: An earlier owner died: a fetch may have been under way at every gate until then; 0 = none did.
        self.died_s = 0.0

    def __len__(self) -> int:
        return len(self._lines)

    def __iter__(self) -> Iterator[Line]:
        return iter(self._lines.values())

    def get(self, gate_id: int) -> Line | None:
        """The line of this gate, if it is in memory."""
        return self._lines.get(gate_id)

    def named(self, gate_id: int, key: GateKey) -> Line | Group:
        """The gate that somebody names, a host's or a group's; asked for if it is not in memory."""
        return self.groups.get(gate_id) or self._lines.get(gate_id) or self.load(gate_id, key)

    # Coming in

    def admit(self, gate_id: int, key: GateKey) -> Line | None:
        """The line of a gate that gets something to serve: loaded if there is room and no other gate waits for it."""
        line = self._lines.get(gate_id)
        if line is None and not self.stored.more and self._makes_room():
            line = self.load(gate_id, key)
        return line

    def load(self, gate_id: int, key: GateKey) -> Line:
        """Ask the store for this gate; its line takes lanes from now on, and serves when the answer is there."""
        line = self._lines[gate_id] = Line(self.maker.host_gate(key), self.heap)
        line.waiting.ask()
        self._outbox.gates.append(line)
        return line

    def wake(self, gate_id: int, turn: Turn, queue_id: int) -> None:
        """A gate not in memory, or asked for (a death may lose the question), got something to serve: a lane of this queue."""
        self._outbox.batch.woken.append((gate_id, turn))
        if gate_id not in self._lines:
            self.stored.woken(gate_id, turn, queue_id)

    def refill(self, now_s: float) -> None:
        """Ask for gates by turn if some may wait in the store and there is room for a tenth of the window."""
        if self.stored.is_asked or not self.stored.may_serve(now_s):
            return
        if self._room * 10 >= self._most:
            self._ask()

    def gates_read(self, answer: GatesRead, now_s: float) -> None:
        """Take in what was read."""
        missed = self.stored.answered(answer)
        for read in answer.gates:
            self._take_up(read, now_s)
            self._catch_up(read.row.id, missed.get(read.row.id, ()))
        while len(self._lines) > self._most and self._idle:
            self._leave(next(iter(self._idle.values())), now_s)

    def join_group(self, line: Line) -> None:
        """Look again for the group that the line's host belongs to: its address may be known by now."""
        self.groups.join(line, self._take_out)

    # Staying

    def busy(self, line: Line) -> None:
        """The line has something to serve, or a lease out."""
        self._idle.pop(line.gate.id, None)

    def rest(self, line: Line, now_s: float) -> None:
        """Nothing is left to serve at the line, for now; or it was leaving and its last lease has come back."""
        if line.gate.out or line.is_loading:
            return
        if line.is_leaving:
            self._leave(line, now_s)
        else:
            self.note_idle(line)

    def note_idle(self, line: Line) -> None:
        """If nothing is left to serve at the line and no lease is out, its place may be had by another."""
        if not (line.gate.out or line.is_loading or line.is_leaving or line.has_work):
            self._idle[line.gate.id] = line

    # Leaving

    @property
    def is_full(self) -> bool:
        """Gates that could serve wait in the store, and there is no room."""
        return self.stored.more and self._room <= 0

    def let_go(self, line: Line, now_s: float) -> None:
        """Its turn is over: as soon as it has no lease out it makes room for another gate."""
        line.is_leaving = True
        line.enlist()
        self.rest(line, now_s)

    def make_room(self, now_s: float) -> None:
        """Nothing here is open, and gates in the store may be: of those closed for long the last to open leave.

        Up to a tenth of the window. A gate that only rests stays: to read it again would cost more than its few seconds.
        """
        if self.stored.is_asked or not self.stored.may_serve(now_s):
            return
        # What is closed with its group is in no list; else the list knows whether a look at each gate is worth its price.
        if self._room <= 0 and (self.groups.exist or self.heap.latest_s > now_s + LONG_S):
            for line in _closed_for_long(self._lines.values(), max(self._most // 10, 1), now_s):
                self._leave(line, now_s)
            self.heap.latest_s = max((line.entry[0] for line in self._lines.values() if line.entry), default=-math.inf)
        if self._room > 0:
            self._ask()
        else:
            self.stored.stuck(now_s)

    def leave_all(self, now_s: float) -> None:
        """Everything becomes rows: the crawl ends."""
        for line in list(self._lines.values()):
            if not line.is_loading:
                self._leave(line, now_s)

    # Inside

    @property
    def _room(self) -> int:
        """Gates that can be taken in; idle ones give way to them."""
        return self._most - len(self._lines) + len(self._idle)

    def _ask(self) -> None:
        self._outbox.next_gates = self.stored.ask(min(self._room, GATES_AT_ONCE))

    def _makes_room(self) -> bool:
        if len(self._lines) < self._most:
            return True
        if not self._idle:
            return False
        self._leave(next(iter(self._idle.values())), math.inf)
        return True

    def _take_up(self, read: GateRead, now_s: float) -> None:
        gate_id = read.row.id
        group = self.groups.get(gate_id)
        if group is not None:
            if group.is_loading:
                self._restore(group, read, now_s)
                group.enlist()
            return
        line = self._lines.get(gate_id)
        if line is None:
            line = self._lines[gate_id] = Line(self.maker.host_gate(read.row.key), self.heap)
        elif not line.is_loading:
            return  # a woken row that was in memory by then
        self._restore(line, read, now_s)
        line.waiting.answer([(lane.turn, lane.queue) for lane in read.lanes], LANES_AT_ONCE)
        self.groups.join(line, self._take_out)
        line.enlist()
        self.rest(line, now_s)

    def _catch_up(self, gate_id: int, missed: Iterable[tuple[Turn, int]]) -> None:
        """Lanes that came while the gate was being read."""
        line = self._lines.get(gate_id)
        for turn, queue_id in missed:
            if line is not None and not (queue_id in line.waiting or queue_id in line.lanes):
                line.waiting.offer(turn, queue_id)
                self.busy(line)
                line.enlist()

    def _restore(self, listed: Line | Group, read: GateRead, now_s: float) -> None:
        """Its row was read: take it up, then the changes that have waited for it."""
        gate = listed.gate
        gate.restore(read.row, now_s, clean=not self.died_s, opened_s=self.died_s or None)
        listed.is_loading = False
        for change in listed.later:
            change(gate)
            self._outbox.batch.gates.append(gate.row())
        listed.later.clear()

    def _take_out(self, gate_id: int) -> Line | None:
        self._idle.pop(gate_id, None)
        return self._lines.pop(gate_id, None)

    def _leave(self, line: Line, now_s: float) -> None:
        """The gate becomes a row."""
        turn = line.first_turn()
        wakes_s = None if turn is None else _wakes_s(line, now_s)
        self._outbox.batch.gates.append(line.gate.row())
        self._outbox.batch.left.append(LeftGate(line.gate.id, turn, wakes_s))
        for lane in list(line.lanes.values()):
            self._drop_lane(lane)
        line.is_leaving, line.entry = True, None
        self._take_out(line.gate.id)
        self.stored.left(turn, wakes_s)
        self.groups.leave(line)


def _closed_for_long(lines: Iterable[Line], most: int, now_s: float) -> list[Line]:
    """Those that open last, if not soon. Costs a look at every gate."""
    closed = (line for line in lines if not (line.gate.out or line.is_loading))
    return [line for line in nlargest(most, closed, key=Line.opens_s) if line.opens_s() > now_s + LONG_S]


def _wakes_s(line: Line, now_s: float) -> float | None:
    """When a gate that leaves is worth reading again; None = at once."""
    opens_s = line.opens_s()
    if opens_s == math.inf:  # all slots of its group are out, and the next of them rests before it is free
        opens_s = now_s + max(line.group.gate.politeness.min_delay_s if line.group else 0.0, 1.0)
    return opens_s if opens_s > now_s else None
