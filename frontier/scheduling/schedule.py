"""The schedule: which lane is served next, and when. Pure; the time is an argument.

`admission` and `completion` bring rows, which `Schedule.schedule_row` places; `lease` takes a slot and a head. A heap holds the
gates with something to serve, by opening time. An open gate serves its best lane with a free queue; a lane with a busy queue is
parked until the queue is free. No slot is reserved in advance, so no wake-up can be lost.

A lane's heads are read only when its gate could serve more lanes than are ready (`Placement`). Active lanes of a gate take
turns until their session is spent; then they go behind all waiting lanes. A lane without heads and leases is an id at its gate
(`readylist`), or a row only.
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
from anabranch.frontier.scheduling.holds import ServiceHolds
from anabranch.frontier.scheduling.queues import Charge, QueueIndex, QueueRules, is_over_total
from anabranch.frontier.scheduling.readylist import (
    LOADING,
    NOWHERE,
    PARKED,
    READY,
    STORED,
    Lane,
    Outbox,
    ReadyList,
    WorkQueue,
)
from anabranch.frontier.scheduling.window import GateWindow, HostHeap, StateAtOpening
from anabranch.frontier.stores.contract import Announced, LanesRead, QueueRow, Standing

_NOTHING_KNOWN = StateAtOpening()
#: So many lanes, plus twice the leases out, may wait for heads.
ASKED_AT_LEAST = 64


class Placement:
    """Puts the lanes in memory in their places. An operation costs O(log active) a lane.

    A lane with a busy queue is parked until a lease of the queue ends. Then one parked lane with an open gate comes back, or
    else all; if the one is not served, `bring_back` returns the others.
    """

    def __init__(
        self,
        outbox: Outbox,
        maker: GateMaker,
        rules: QueueRules,
        gates: int,
        found: StateAtOpening = _NOTHING_KNOWN,
        heap: HostHeap | None = None,
    ) -> None:
        self._outbox = outbox
        self._rules = rules
        self.index = QueueIndex(rules.per_queue, lambda queue: outbox.batch.queues.append(queue.row()))
        self.window = GateWindow(maker, outbox, self.drop, gates, found, heap)
        self._stamps = 0
        self.asked = 0  #: lanes that wait for heads
        self.loading = 0  #: of these, lanes without other heads
        self.out = 0  #: leases out
        self.retired_out = 0  #: of these, leases of retired queues
        self.held: dict[int, WorkQueue] = {}  #: free queues that still have parked lanes

    @property
    def store_is_busy(self) -> bool:
        """Whether as many lanes wait for heads as the number of leases justifies."""
        return self.asked >= ASKED_AT_LEAST + 2 * self.out

    def activate(self, line: ReadyList) -> bool:
        """Ask for the heads of as many more lanes as the gate can use; False if the store is busy."""
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
            self._begin_session(line, first[1], first[0])
        if waiting.wants_more:
            self._outbox.lanes.append((line, waiting.ask()))
        return True

    def ask(self, lane: Lane) -> None:
        """Ask the store for the lane's heads."""
        lane.ask()
        self._outbox.heads.append(lane)
        self.asked += 1
        if lane.line.group is not None:
            lane.line.group.count_asked(1)

    def place(self, lane: Lane) -> None:
        """Put the lane in the place where it belongs now."""
        place = lane.belongs()
        before = lane.place
        if place is not before:
            line = lane.line
            if before is not NOWHERE:
                self.unplace(lane)
            if place is READY:
                self._stamps += 1
                lane.stand(READY, self._stamps)
                line.push_ready(lane)
            elif place is not NOWHERE:
                lane.stand(place)
                if place is LOADING:
                    line.count_active(1)
                    self.loading += 1
                elif place is STORED:
                    line.waiting.offer(lane.turn, lane.queue.id)
                    self.window.busy(line)
        if not lane.window and not lane.leased and place is not LOADING and place is not PARKED:
            self._forget(lane)
        self.index.settle(lane.queue)

    def unplace(self, lane: Lane) -> None:
        """Take the lane out of its place."""
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
        """Let the lane leave memory with its heads, or as soon as its leases have ended."""
        self.drop_heads(lane)
        self.unplace(lane)
        if not lane.leased:
            self._forget(lane)
            self.index.settle(lane.queue)

    def drop_heads(self, lane: Lane) -> None:
        """Drop all heads of the lane; the store has them."""
        lane.drop_all()
        self.forget_answer(lane)

    def forget_answer(self, lane: Lane) -> None:
        """Stop waiting for the lane's heads."""
        if lane.forget_answer():
            self.answered(lane)

    def answered(self, lane: Lane) -> None:
        """Count the answer to the lane."""
        self.asked -= 1
        if lane.line.group is not None:
            lane.line.group.count_asked(-1)

    def lanes_read(self, line: ReadyList, answer: LanesRead, limit: int) -> None:
        """Take the store's answer for a ready list."""
        line.waiting.answer([(lane.turn, lane.queue) for lane in answer.lanes], limit)
        for queue_id, lane in line.lanes.items():
            if lane.place is not STORED:
                line.waiting.discard(queue_id)
        line.enlist()
        self.window.note_idle(line)

    def drop_rows(self, line: ReadyList, ordinals: set[int]) -> None:
        """Remove these rows, none of which is leased."""
        for lane in list(line.lanes.values()):
            lane.drop(ordinals)
            self.forget_answer(lane)
            self.place(lane)
        line.enlist()

    # Queues

    def queue_freed(self, queue: WorkQueue, now_s: float) -> None:
        """Bring back a parked lane with an open gate, or else all, of a queue that is free."""
        if queue.per_queue == 1 and not queue.standing:
            for lane in queue.parked:
                if lane.line.opens_s() <= now_s and not (
                    lane.line.is_leaving or lane.line.is_held or lane.line.is_aside
                ):
                    self._come_back([lane])
                    self.held[queue.id] = queue
                    return
        self._come_back(queue.parked)

    def bring_back(self) -> bool:
        """Bring back all lanes parked at free queues; False if there are none."""
        if not self.held:
            return False
        held, self.held = self.held, {}
        for queue in held.values():
            if not queue.is_busy:
                self._come_back(queue.parked)
        return True

    def retire(self, queue: WorkQueue) -> None:
        """Retire a queue that has spent its total budget."""
        self._outbox.batch.standings.append((queue.id, Standing.RETIRED))
        self.suspend(queue, Standing.RETIRED)

    def suspend(self, queue: WorkQueue, standing: Standing) -> None:
        """Pause or retire the queue: its lanes leave memory, its leases may end."""
        self._set_standing(queue, standing)
        for lane in list(queue.lanes):
            self.drop(lane)
            lane.line.enlist()  # the next lane of its gate takes its turn
        self.index.settle(queue)

    def reopen(self, queue: WorkQueue) -> None:
        """Serve the queue again; lanes that are not in memory come back when their gates are read."""
        self._set_standing(queue, Standing.OPEN)
        for lane in list(queue.lanes):
            self.place(lane)
            lane.line.enlist()
        self.index.settle(queue)

    # Inside

    def _set_standing(self, queue: WorkQueue, standing: Standing) -> None:
        if queue.standing is Standing.RETIRED:
            self.retired_out -= queue.out
        if standing is Standing.RETIRED:
            self.retired_out += queue.out
        queue.standing = standing

    def _come_back(self, lanes: Sequence[Lane]) -> None:
        for lane in list(lanes):
            self.unplace(lane)
            self.place(lane)
            lane.line.enlist()

    def _begin_session(self, line: ReadyList, queue_id: int, turn: Turn) -> None:
        """Begin the session of a lane without heads."""
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
        """Remove the lane from memory, and from the store if it has no rows."""
        lane.is_dropped = True
        lane.line.lanes.pop(lane.queue.id, None)
        lane.queue.lanes.discard(lane)
        if lane.place is NOWHERE and not lane.more:
            lane.line.waiting.discard(lane.queue.id)  # a read under way may contain it
            self._outbox.batch.removed.append(lane.id)
        self.window.note_idle(lane.line)


#: The most gates without a lane to serve that one call tries.
LOOKS = 64


class Schedule:
    """The gates, lanes and queues in memory. Every operation costs O(log active)."""

    def __init__(
        self,
        outbox: Outbox,
        maker: GateMaker,
        rules: QueueRules,
        gates: int,
        found: StateAtOpening = _NOTHING_KNOWN,
        heap: HostHeap | None = None,
    ) -> None:
        """`heap` may have limits of workers; None = there are no limits."""
        self._outbox = outbox
        self._rules = rules
        self.placement = Placement(outbox, maker, rules, gates, found, heap)
        self.index = self.placement.index  #: queues in memory
        self.window = self.placement.window  #: gates in memory
        self.holds = ServiceHolds()  #: services that are away

    # Rows

    def schedule_row(self, row: Row, queue_key: QueueKey | None = None, gate_key: GateKey | None = None) -> None:
        """Place a row that the caller added to the batch: of a page, a dump, or a retry that is due.

        A lane in memory takes the row; any other lane waits at its gate; a gate that is not in memory gets a turn in the store.
        A row that waits for its retry only announces its lane. Give the keys of queue and gate if the store may lack them.
        """
        window, queue_id = self.window, row.queue
        line = window.lines.get(row.gate)
        waits = row.precedence >= WAITING
        if line is not None:
            lane = line.lanes.get(queue_id)
            if lane is not None:
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
        if line.entry is None and not line.is_loading:
            line.enlist()

    def row_stored(self, lane: Lane, row: Row) -> None:
        """Take a new row of a lane in memory; it does nothing for one that waits for its retry."""
        if row.precedence >= WAITING:
            return
        if row.precedence < NORMAL or row.attempts:
            # Later rows may be in the window or being read: they are read again.
            lane.drop_behind(row)
            self.placement.forget_answer(lane)
        elif lane.more:
            return
        lane.more = True
        self.placement.place(lane)
        lane.line.enlist()

    def lane_waits(self, line: ReadyList, queue_id: int, turn: Turn) -> None:
        """Let a lane that is not in memory wait at its gate, which is in memory."""
        queue = self.index.queues.get(queue_id)
        if queue_id in line.lanes or (queue is not None and queue.standing):
            return
        line.waiting.offer(turn, queue_id)
        self.window.busy(line)
        if line.entry is None:
            line.enlist()

    def heads_read(self, lane: Lane, heads: list[Head], row: QueueRow | None) -> None:
        """Take the store's answer for a lane."""
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
            if not queue.standing and is_over_total(queue.spent, queue.total_budget):
                self.placement.retire(queue)
        if self.window.maker.has_groups and lane.line.group is None:
            self.window.join_group(lane.line)
        if queue.standing:
            self.placement.drop(lane)  # it was suspended while it was not in memory
        else:
            self.placement.place(lane)
        lane.line.enlist()

    # Serving

    def lease(self, now_s: float) -> tuple[Lane, Head] | None:
        """Take a slot of an open gate and the head of its best lane; None if that is not possible now."""
        served = self._serve(now_s)
        return self._serve(now_s) if served is None and self.placement.bring_back() else served

    def _serve(self, now_s: float) -> tuple[Lane, Head] | None:
        window = self.window
        if window.stored.more or window.stored.wakes_s is not None:
            window.refill(now_s)
        for _ in range(LOOKS):
            line = window.heap.first_open(now_s)
            if line is None:
                window.make_room(now_s)
                return None
            if self.holds.are_any and self.holds.keep(line):
                window.heap.passed_over(line, now_s)
                continue
            lane = line.best()
            if lane is not None:
                if self.holds.are_any:
                    self.holds.taken(line)
                window.heap.taken(line, now_s)
                return lane, self._take(line, lane, now_s)
            if line.group is not None and line.group.has_enough:
                line.group.unlist()  # until one of its hosts has heads
                window.heap.passed_over(line, now_s)
                continue
            if not self.placement.activate(line):
                return None  # the store is busy; the gate keeps its place
            line.delist()  # nothing to serve until heads come or a queue is free
            window.heap.passed_over(line, now_s)
            window.rest(line, now_s)
        return None

    def come_back(self, lane: Lane, head: Head, charge: Charge, now_s: float, *, keep: bool) -> None:
        """End a lease with its slot returned; the session pays. With `keep` the row is first again, else it is gone."""
        placement, queue, line = self.placement, lane.queue, lane.line
        placement.out -= 1
        queue.out -= 1
        lane.end_lease(head.row.ordinal, charge[0])
        if queue.standing:
            if keep:
                lane.more = True
            placement.retired_out -= queue.standing is Standing.RETIRED
        elif keep:
            lane.put_first(head)
        gives_way = False
        if lane.balance <= 0:
            gives_way = self._end_session(lane, charge[1])
        elif line.waiting.may_have_any:
            self._yield_to_better(lane)
        if lane.place is not NOWHERE:
            placement.unplace(lane)
        if queue.parked:
            placement.queue_freed(queue, now_s)
        placement.place(lane)
        if gives_way:
            self.window.let_go(line, now_s)
        elif line.is_leaving or not (line.lanes or line.waiting.may_have_any):
            self.window.rest(line, now_s)
        line.enlist()

    def next_time(self, now_s: float) -> float | None:
        """When a gate with something to serve opens; None if time alone opens none, or if the store must answer first."""
        self.placement.bring_back()
        window = self.window
        at_s = window.heap.soonest(now_s)
        if at_s is not None and at_s <= now_s and self.placement.store_is_busy:
            return None  # gates in the store have to wait, too
        wakes_s = None if window.stored.wakes_s is None else window.stored.next_time()
        return wakes_s if wakes_s is not None and (at_s is None or wakes_s < at_s) else at_s

    # Inside

    def _announce(self, row: Row, key: QueueKey | None, queue: WorkQueue | None) -> Turn:
        """Let the store create the row's lane if it is missing; returns the turn that it would get."""
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
        """Lease the first head of a lane that was taken from its ready list."""
        gate, group = line.gate, line.group
        gate.take(now_s)
        if group is not None:
            group.gate.take(now_s)
        placement, queue = self.placement, lane.queue
        placement.out += 1
        head = lane.take()
        if lane.more and lane.wants_heads():
            placement.ask(lane)
        if queue.out < queue.per_queue:
            placement.place(lane)
        elif lane.window and queue.per_queue > 1:
            lane.park()
        if placement.held:
            placement.held.pop(queue.id, None)
        self.index.settle(queue)
        if line.waiting.may_have_any:
            placement.activate(line)
        if group is not None or gate.out < gate.slots:
            line.enlist()
        return head

    def _end_session(self, lane: Lane, precedence: int) -> bool:
        """End a session that is spent: update the queue's precedence and go behind all waiting lanes, if there are any.

        True: the gate must leave memory for another one.
        """
        line, queue = lane.line, lane.queue
        lane.begin_session(lane.turn, self._rules.session_budget(queue.key))
        if queue.standing:
            return False
        queue.set_precedence(precedence)
        others_wait = self.window.others_wait(line)
        if not (line.waiting.may_have_any or others_wait):
            self._check_turn(lane)
            return False
        lane.turn = turn_of(queue.precedence, self._outbox.number())
        self._outbox.batch.turns.append((lane.id, lane.turn))
        self.placement.drop_heads(lane)
        return others_wait

    def _yield_to_better(self, lane: Lane) -> None:
        """If a queue of smaller precedence waits at the gate, drop the lane's heads; it keeps its turn."""
        first = lane.line.waiting.first()
        if first is not None and precedence_of(first[0]) < lane.queue.precedence:
            self.placement.drop_heads(lane)

    def _check_turn(self, lane: Lane) -> None:
        """Correct the lane's turn if the queue's precedence is another one."""
        queue = lane.queue
        if precedence_of(lane.turn) != queue.precedence and not queue.standing:
            lane.turn = with_precedence(lane.turn, queue.precedence)
            self._outbox.batch.turns.append((lane.id, lane.turn))
            if queue.precedence >= self._rules.floor:
                self.placement.drop_heads(lane)
