"""Which lane is served next: gates are scheduled, lanes wait at them. Pure; the time is an argument.

One heap holds the gates that have something to serve, by opening time. An open gate gives its best waiting lane whose
queue is free; a lane whose queue is busy is parked at the queue and comes back with it, so a blocked host stops only its
own lanes (`parking`). No slot is handed out in advance, so no wake-up can be lost.

Activation is lazy: a lane's heads are asked of the store only when its gate could serve more lanes than it has ready. An
active lane takes turns with the other active ones of its gate until its session is spent; then it stands behind all that wait.
"""

from __future__ import annotations

from anabranch.frontier.models import NORMAL, Head, Row
from anabranch.frontier.outbox import Outbox
from anabranch.frontier.policies.queuerules import Charge, QueueRules
from anabranch.frontier.scheduling.gategroups import GateMaker
from anabranch.frontier.scheduling.gatelines import Line
from anabranch.frontier.scheduling.halting import Halting
from anabranch.frontier.scheduling.parking import Parking
from anabranch.frontier.scheduling.placement import Placement
from anabranch.frontier.scheduling.workqueues import NOWHERE, PARKED, Lane
from anabranch.frontier.stores.messages import QueueRow
from anabranch.frontier.turns import Turn, precedence_of, turn_of, with_precedence

#: Gates that one call looks at in vain before it gives the caller a turn.
LOOKS = 64


class Schedule:
    """The gates, lanes and queues in memory. Every operation costs O(log active)."""

    def __init__(self, outbox: Outbox, maker: GateMaker, rules: QueueRules, gates: int) -> None:
        self._outbox = outbox
        self._rules = rules
        self.placement = Placement(outbox, maker, rules, gates)
        self.index = self.placement.index  #: queues in memory
        self.window = self.placement.window  #: gates in memory
        self.halting = Halting(outbox, self.placement)  #: queues that may not be served
        self.parking = Parking(self.placement)  #: lanes whose queue is busy

    @property
    def asked(self) -> int:
        """Lanes whose heads are on their way."""
        return self.placement.asked

    # What happens to rows

    def row_stored(self, lane: Lane, row: Row) -> None:
        """A row is written for a lane in memory."""
        if row.precedence < NORMAL or row.attempts:
            # Rows that are served after it may be in the window or on their way: they are read again.
            lane.drop_behind(row)
            self.placement.forget_answer(lane)
        elif lane.more:
            return
        lane.more = True
        self.placement.place(lane)
        lane.line.enlist()

    def lane_waits(self, line: Line, queue_id: int, turn: Turn) -> None:
        """A lane that is not in memory got rows; its gate is in memory."""
        queue = self.index.get(queue_id)
        if queue_id in line.lanes or (queue is not None and queue.standing):
            return
        line.waiting.offer(turn, queue_id)
        self.window.busy(line)
        if line.entry is None:
            line.enlist()

    def heads_read(self, lane: Lane, heads: list[Head], row: QueueRow | None) -> None:
        """The store's answer for a lane."""
        if not lane.answer(heads):
            return
        self.placement.answered(lane)
        if lane.is_dropped:
            return
        queue = lane.queue
        if row is not None and not queue.is_known:
            queue.learn(row)
            self._rules.meet(queue)
            self._check_turn(lane)
            if not queue.standing and self._rules.is_over_total(queue):
                self.halting.retire(queue)
        if self.window.groups.exist and lane.line.group is None:
            self.window.join_group(lane.line)
        if queue.standing:
            self.placement.drop(lane)  # it was halted while it was not in memory
        else:
            self.placement.place(lane)
        # If it brought nothing, another lane of the gate takes its turn.
        lane.line.enlist()

    # Serving

    def lease(self, now_s: float) -> tuple[Lane, Head] | None:
        """Take a slot of an open gate and the head of its best lane; None if there is none to be had now."""
        served = self._serve(now_s)
        return self._serve(now_s) if served is None and self.parking.end() else served

    def _serve(self, now_s: float) -> tuple[Lane, Head] | None:
        window = self.window
        if window.stored.more or window.stored.wakes_s is not None:
            window.refill(now_s)
        for _ in range(LOOKS):
            line = window.heap.first_open(now_s)
            if line is None:
                window.make_room(now_s)
                return None
            lane = line.best()
            if lane is not None:
                return lane, self._take(line, lane, now_s)
            if line.group is not None and line.group.has_enough:
                line.group.entry = None  # until one of its hosts has heads
                continue
            if not self.placement.activate(line):
                return None  # enough is asked of the store; the gate keeps its place
            line.delist()  # nothing to serve until heads come or a queue is free
            window.rest(line, now_s)
        return None

    def come_back(self, lane: Lane, head: Head, charge: Charge, now_s: float, *, keep: bool) -> None:
        """A lease of the lane ended; the row is first again if `keep`, else it has left the lane.

        The caller has returned the gate's slot. The charge is taken from the lane's session.
        """
        placement = self.placement
        placement.out -= 1
        queue, line = lane.queue, lane.line
        lane.leased.discard(head[0][3])
        queue.out -= 1
        lane.balance -= charge[0]
        if queue.standing:
            self.halting.came_back(lane, keep=keep)
        elif keep:
            lane.put_first(head)
        gives_way = False
        if lane.balance <= 0:
            gives_way = self._end_session(lane, charge[1])
        elif line.waiting.may_have_any:
            self._yield_to_better(lane)
        if lane.place is not NOWHERE:
            placement.unplace(lane)
        self.parking.freed(queue, now_s)
        placement.place(lane)
        if gives_way:
            self.window.let_go(line, now_s)
        elif line.is_leaving or not (line.lanes or line.waiting.may_have_any):
            self.window.rest(line, now_s)
        line.enlist()

    def next_time(self, now_s: float) -> float | None:
        """When a gate with something to serve opens; None if no time will help.

        A gate that is open already but waits for the store is no reason to come back before the store has answered.
        """
        self.parking.end()
        window = self.window
        at_s = window.heap.next_time()
        if at_s is not None and at_s <= now_s and self.placement.store_is_busy:
            return None  # nor is a gate in the store that opens: it has to wait for those here
        wakes_s = None if window.stored.wakes_s is None else window.stored.next_time()
        return wakes_s if wakes_s is not None and (at_s is None or wakes_s < at_s) else at_s

    # Inside

    def _take(self, line: Line, lane: Lane, now_s: float) -> Head:
        line.gate.take(now_s)
        group = line.group
        if group is not None:
            group.gate.take(now_s)
        placement, queue = self.placement, lane.queue
        lane.place = NOWHERE
        lane.stamp = 0
        line.active -= 1
        head = lane.take()
        placement.out += 1
        if lane.wants_heads():
            placement.ask(lane)
        if queue.out < queue.per_queue:
            placement.place(lane)
        elif lane.window and queue.per_queue > 1:
            lane.place = PARKED
            queue.parked.append(lane)
        self.parking.taken(queue)
        self.index.settle(queue)
        placement.activate(line)
        line.entry = line.turn = None  # its turn is used up
        if group is not None or line.gate.out < line.gate.slots:
            line.enlist()
        return head

    def _end_session(self, lane: Lane, precedence: int) -> bool:
        """Its session is spent: its queue has its precedence anew, and it stands behind all that wait, if anything does.

        True: its gate gives way to another.
        """
        line, queue = lane.line, lane.queue
        lane.balance = self._rules.session_budget(queue.key)
        if queue.standing:
            return False
        if queue.precedence != precedence:
            queue.precedence = precedence
            queue.unsaved += 1  # its row may have been written for this very lease
        if not (line.waiting.may_have_any or self.window.stored.more):
            self._check_turn(lane)
            return False
        lane.turn = turn_of(queue.precedence, self._outbox.number())
        self._outbox.batch.turns.append((lane.id, lane.turn))
        lane.drop_all()
        self.placement.forget_answer(lane)
        return self.window.stored.more

    def _yield_to_better(self, lane: Lane) -> None:
        """A queue of smaller precedence waits at the gate: the lane gives up its heads and waits, too; it keeps its turn."""
        first = lane.line.waiting.first()
        if first is not None and precedence_of(first[0]) < lane.queue.precedence:
            lane.drop_all()
            self.placement.forget_answer(lane)

    def _check_turn(self, lane: Lane) -> None:
        """Its turn was given before its queue's precedence was known, or has changed: write the right one."""
        queue = lane.queue
        if precedence_of(lane.turn) != queue.precedence and not queue.standing:
            lane.turn = with_precedence(lane.turn, queue.precedence)
            self._outbox.batch.turns.append((lane.id, lane.turn))
            if queue.precedence >= self._rules.floor:
                lane.drop_all()
                self.placement.forget_answer(lane)
