"""Which lane is served next: the gates are scheduled, and lanes wait at them. Pure; the time is an argument.

`admission` brings new rows and `completion` those that come back: `Schedule.schedule_row` gives each its place. `lease` takes a
slot and a head.

One heap holds the gates that have something to serve, by opening time. An open gate gives its best waiting lane whose
queue is free; a lane whose queue is busy is parked at the queue and comes back with it, so a blocked host stops only its
own lanes (`Parking`). No slot is handed out in advance, so no wake-up can be lost.

Activation is lazy: a lane's heads are asked of the store only when its gate could serve more lanes than it has ready. An
active lane takes turns with the other active ones of its gate until its session is spent; then it goes behind all that wait.
A lane that has nothing in memory is an id at its gate (`readylist`), or a row only. It gets an object when its heads are asked
for, and loses it when it has neither heads nor leases (`Placement`).
"""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.frontier.records import (
    NORMAL,
    WAITING,
    GateKey,
    Head,
    QueueKey,
    Row,
    Turn,
    precedence_of,
    turn_of,
    with_precedence,
)
from anabranch.frontier.scheduling.gates import GateMaker
from anabranch.frontier.scheduling.queues import (
    LOADING,
    NOWHERE,
    PARKED,
    READY,
    STORED,
    Charge,
    Lane,
    QueueIndex,
    QueueRules,
    WorkQueue,
)
from anabranch.frontier.scheduling.readylist import Outbox, ReadyList
from anabranch.frontier.scheduling.window import GateWindow, StateAtOpening
from anabranch.frontier.stores.contract import Announced, LanesRead, QueueRow, Standing

_NOTHING_KNOWN = StateAtOpening()
#: Lanes whose heads may be on their way beyond twice the leases that are out.
ASKED_AT_LEAST = 64


class Placement:
    """The lanes in memory, each in its place. Every operation costs O(log active)."""

    def __init__(
        self, outbox: Outbox, maker: GateMaker, rules: QueueRules, gates: int, found: StateAtOpening = _NOTHING_KNOWN
    ) -> None:
        self._outbox = outbox
        self._rules = rules
        self.index = QueueIndex(rules.per_queue, self._save)
        self.window = GateWindow(maker, outbox, self.drop, gates, found)
        self._stamps = 0
        self.asked = 0  #: lanes whose heads are on their way
        self.loading = 0  #: of these, such as have nothing else that could be leased
        self.out = 0  #: leases out

    @property
    def store_is_busy(self) -> bool:
        """As many heads are asked for as the leases out can justify."""
        return self.asked >= ASKED_AT_LEAST + 2 * self.out

    def activate(self, line: ReadyList) -> bool:
        """Ask for the heads of as many further lanes as the gate can use; False if the store has enough to do."""
        waiting = line.waiting
        if not waiting.may_have_any:
            return True
        while line.active < line.wanted():
            first = waiting.first()
            if first is None or precedence_of(first[0]) >= self._rules.floor:
                break
            if self.store_is_busy:
                return False
            waiting.pop()
            self._ask_first(line, first[1], first[0])
        if waiting.wants_more:
            self._outbox.lanes.append((line, waiting.ask()))
        return True

    def ask(self, lane: Lane) -> None:
        """Ask the store for its heads."""
        lane.ask()
        self._outbox.heads.append(lane)
        self.asked += 1
        lane.line.count_asked(1)

    def place(self, lane: Lane) -> None:
        """Put the lane where it belongs in its gate's line, after anything happened to it."""
        place = lane.belongs()
        line = lane.line
        before = lane.place
        if place is not before:
            if before is not NOWHERE:
                self.unplace(lane)
            if place is READY:
                self._stamps += 1
                lane.stand(READY, self._stamps)
                line.push_ready(lane)
            elif place is LOADING:
                lane.stand(LOADING)
                line.count_active(1)
                self.loading += 1
            else:
                lane.stand(place)
            if place is STORED:
                line.waiting.offer(lane.turn, lane.queue.id)
                self.window.busy(line)
        if not lane.window and not lane.leased and place is not LOADING and place is not PARKED:
            self._forget(lane)
        self.index.settle(lane.queue)

    def unplace(self, lane: Lane) -> None:
        """Take the lane out of its line."""
        place = lane.place
        if place is READY or place is LOADING:
            lane.line.count_active(-1)
            if place is LOADING:
                self.loading -= 1
        elif place is STORED:
            lane.line.waiting.discard(lane.queue.id)
        elif place is PARKED and lane in lane.queue.parked:
            lane.queue.parked.remove(lane)
        lane.stand(NOWHERE)

    def drop(self, lane: Lane) -> None:
        """The lane leaves memory, whatever it has; it stays as long as it has leases out."""
        lane.drop_all()
        self.forget_answer(lane)
        self.unplace(lane)
        if not lane.leased:
            self._forget(lane)
            self.index.settle(lane.queue)

    def forget_answer(self, lane: Lane) -> None:
        """Do not wait for the lane's heads, if they are on their way."""
        if lane.forget_answer():
            self.answered(lane)

    def answered(self, lane: Lane) -> None:
        """Nothing is on its way for the lane any more."""
        self.asked -= 1
        lane.line.count_asked(-1)

    def count_out(self, change: int) -> None:
        """A lease was handed out, or came back."""
        self.out += change

    def lanes_read(self, line: ReadyList, answer: LanesRead, limit: int) -> None:
        """The store's answer for a line."""
        entries = [(lane.turn, lane.queue) for lane in answer.lanes]
        line.waiting.answer(entries, limit)
        for queue_id in line.lanes:
            if line.lanes[queue_id].place is not STORED:
                line.waiting.discard(queue_id)
        line.enlist()
        self.window.note_idle(line)

    def drop_rows(self, line: ReadyList, ordinals: set[int]) -> None:
        """These rows of the line are no more, and none of them is leased."""
        for lane in list(line.lanes.values()):
            lane.drop(ordinals)
            self.forget_answer(lane)
            self.place(lane)
        line.enlist()

    def _save(self, queue: WorkQueue) -> None:
        self._outbox.batch.queues.append(queue.row())

    def _ask_first(self, line: ReadyList, queue_id: int, turn: Turn) -> None:
        """Begin the session of a lane that has nothing in memory."""
        lane = line.lanes.get(queue_id)
        queue = self.index.take_up(queue_id)
        if queue.standing:
            return
        balance = self._rules.session_budget(queue.key)
        if lane is None:
            lane = line.lanes[queue_id] = Lane(queue, line, turn, balance)
            queue.lanes.add(lane)
        lane.begin_session(turn, balance)
        self.ask(lane)
        self.place(lane)

    def _forget(self, lane: Lane) -> None:
        """The lane has nothing in memory any more: its object goes, its row stays if it has rows."""
        lane.leave()
        lane.line.lanes.pop(lane.queue.id, None)
        lane.queue.lanes.discard(lane)
        if lane.place is NOWHERE and not lane.more:
            lane.line.waiting.discard(lane.queue.id)  # a read that is under way may bring it
            self._outbox.batch.removed.append(lane.id)
        self.window.note_idle(lane.line)


class Parking:
    """Brings parked lanes back. Costs O(1) a lease, and a placing for each lane that comes back."""

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self._held: dict[int, WorkQueue] = {}  #: queues that are free, with lanes that are parked all the same

    def freed(self, queue: WorkQueue, now_s: float) -> None:
        """A lease of the queue ended, or it may be served again."""
        parked = queue.parked
        if not parked:
            return
        if queue.per_queue == 1 and not queue.standing:
            for lane in parked:
                if lane.line.opens_s() <= now_s and not lane.line.is_leaving:
                    self._come_back([lane])
                    self._held[queue.id] = queue
                    return
        self._come_back(parked)

    def taken(self, queue: WorkQueue) -> None:
        """The queue is busy: what is parked there stays."""
        if self._held:
            self._held.pop(queue.id, None)

    def end(self) -> bool:
        """All lanes that are parked at free queues come back; False if there are none."""
        if not self._held:
            return False
        held, self._held = self._held, {}
        for queue in held.values():
            if not queue.is_busy:
                self._come_back(queue.parked)
        return True

    def _come_back(self, lanes: Sequence[Lane]) -> None:
        for lane in list(lanes):
            self._placement.unplace(lane)
            self._placement.place(lane)
            lane.line.enlist()


class Suspension:
    """Stops queues in memory, and lets them go on. Every operation costs O(lanes of the queue in memory)."""

    def __init__(self, outbox: Outbox, placement: Placement) -> None:
        self._outbox = outbox
        self._placement = placement
        self.out = 0  #: leases out of queues that are retired

    def retire(self, queue: WorkQueue) -> None:
        """The queue has spent all that it may: say so, and serve it no more."""
        self._outbox.batch.standings.append((queue.id, Standing.RETIRED))
        self.halt(queue, Standing.RETIRED)

    def reopen(self, queue: WorkQueue) -> None:
        """The queue may be served again; what it has comes back when its gates are read."""
        self._stand(queue, Standing.OPEN)
        for lane in list(queue.lanes):
            self._placement.place(lane)
            lane.line.enlist()
        self._placement.index.settle(queue)

    def halt(self, queue: WorkQueue, standing: Standing) -> None:
        """The queue is paused or retired: its lanes leave memory, its leases may end."""
        self._stand(queue, standing)
        for lane in list(queue.lanes):
            self._placement.drop(lane)
            lane.line.enlist()  # the next lane of its gate takes its turn
        self._placement.index.settle(queue)

    def came_back(self, lane: Lane, *, keep: bool) -> None:
        """A lease of a queue that may not be served ended; its row stays if `keep`."""
        if keep:
            lane.note_more()
        self.out -= lane.queue.standing is Standing.RETIRED

    def _stand(self, queue: WorkQueue, standing: Standing) -> None:
        if queue.standing is Standing.RETIRED:
            self.out -= queue.out
        if standing is Standing.RETIRED:
            self.out += queue.out
        queue.set_standing(standing)


#: Gates that one call looks at in vain before it gives the caller a turn.
LOOKS = 64


class Schedule:
    """The gates, lanes and queues in memory. Every operation costs O(log active)."""

    def __init__(
        self, outbox: Outbox, maker: GateMaker, rules: QueueRules, gates: int, found: StateAtOpening = _NOTHING_KNOWN
    ) -> None:
        self._outbox = outbox
        self._rules = rules
        self.placement = Placement(outbox, maker, rules, gates, found)
        self.index = self.placement.index  #: queues in memory
        self.window = self.placement.window  #: gates in memory
        self.suspension = Suspension(outbox, self.placement)  #: queues that may not be served
        self.parking = Parking(self.placement)  #: lanes whose queue is busy

    @property
    def asked(self) -> int:
        """Lanes whose heads are on their way."""
        return self.placement.asked

    # What happens to rows

    def schedule_row(self, row: Row, queue_key: QueueKey | None = None, gate_key: GateKey | None = None) -> None:
        """Give a row its place among all that is served, whoever brings it: a page, a dump, a retry that comes due.

        The caller has added the row to the batch. If its lane is in memory, the lane takes it; else the lane joins the list of
        its gate, or the gate its turn in the store. A row that waits for its retry only makes its lane known. The keys are
        those of its queue and gate, if the store may not know them yet.
        """
        window, queue_id = self.window, row.queue
        line = window.lines.get(row.gate)
        waits = row.precedence >= WAITING
        if line is not None:
            lane = line.lanes.get(queue_id)
            if lane is not None:
                if not waits:
                    self.row_stored(lane, row)
                return
            if queue_id in line.waiting:
                return
        queue = self.index.queues.get(queue_id)
        turn = self._announce(row, queue_key, queue)
        line = window.admit(row.gate, gate_key, None if waits else turn, queue_id)
        if waits or line is None or (queue is not None and queue.standing):
            return
        line.waiting.offer(turn, queue_id)
        if window.idle:
            window.busy(line)
        if line.entry is None:
            line.enlist()

    def row_stored(self, lane: Lane, row: Row) -> None:
        """A row is written for a lane in memory."""
        if row.precedence < NORMAL or row.attempts:
            # Rows that are served after it may be in the window or on their way: they are read again.
            lane.drop_behind(row)
            self.placement.forget_answer(lane)
        elif lane.more:
            return
        lane.note_more()
        self.placement.place(lane)
        lane.line.enlist()

    def lane_waits(self, line: ReadyList, queue_id: int, turn: Turn) -> None:
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
                self.suspension.retire(queue)
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
                line.group.unlist()  # until one of its hosts has heads
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
        placement.count_out(-1)
        queue, line = lane.queue, lane.line
        lane.end_lease(head.row.ordinal, charge[0])
        if queue.standing:
            self.suspension.came_back(lane, keep=keep)
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

    def _announce(self, row: Row, key: QueueKey | None, queue: WorkQueue | None) -> Turn:
        """The row's lane is not in memory: let the store make it, if there is none; answers the turn that it takes then."""
        batch = self._outbox.batch
        if key is None:
            arrival, precedence = self._outbox.number(), self._rules.queues.base if queue is None else queue.precedence
        elif queue is not None and queue.is_known:
            arrival, precedence = row.ordinal, queue.precedence
        else:
            arrival, precedence = row.ordinal, self._rules.first_precedence(key)
            batch.queue_names.append((row.queue, key, precedence))
        turn = turn_of(precedence, arrival)
        batch.announced.append(Announced(row.queue, row.gate, turn))
        return turn

    def _take(self, line: ReadyList, lane: Lane, now_s: float) -> Head:
        line.gate.take(now_s)
        group = line.group
        if group is not None:
            group.gate.take(now_s)
        placement, queue = self.placement, lane.queue
        line.count_active(-1)
        lane.stand(NOWHERE)
        head = lane.take()
        placement.count_out(1)
        if lane.wants_heads():
            placement.ask(lane)
        if queue.out < queue.per_queue:
            placement.place(lane)
        elif lane.window and queue.per_queue > 1:
            lane.park()
        self.parking.taken(queue)
        self.index.settle(queue)
        placement.activate(line)
        line.lose_turn()  # it is used up
        if group is not None or line.gate.out < line.gate.slots:
            line.enlist()
        return head

    def _end_session(self, lane: Lane, precedence: int) -> bool:
        """Its session is spent: its queue has its precedence anew, and it stands behind all that wait, if anything does.

        True: its gate gives way to another.
        """
        line, queue = lane.line, lane.queue
        lane.begin_session(lane.turn, self._rules.session_budget(queue.key))
        if queue.standing:
            return False
        queue.set_precedence(precedence)
        if not (line.waiting.may_have_any or self.window.stored.more):
            self._check_turn(lane)
            return False
        lane.set_turn(turn_of(queue.precedence, self._outbox.number()))
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
            lane.set_turn(with_precedence(lane.turn, queue.precedence))
            self._outbox.batch.turns.append((lane.id, lane.turn))
            if queue.precedence >= self._rules.floor:
                lane.drop_all()
                self.placement.forget_answer(lane)
