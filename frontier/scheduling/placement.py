"""Lanes into memory and out of it, and to their place in line. Pure.

A lane that has nothing in memory is an id in its gate's line, or a row only. It gets an object when its heads are asked for,
and loses it when it has neither heads nor leases.
"""

from __future__ import annotations

from heapq import heappush

from anabranch.frontier.outbox import Outbox
from anabranch.frontier.policies.queuerules import QueueRules
from anabranch.frontier.scheduling.gategroups import GateMaker
from anabranch.frontier.scheduling.gatelines import Line
from anabranch.frontier.scheduling.gatewindow import GateWindow
from anabranch.frontier.scheduling.queueindex import QueueIndex
from anabranch.frontier.scheduling.workqueues import LOADING, NOWHERE, PARKED, READY, STORED, Lane, WorkQueue
from anabranch.frontier.stores.messages import LanesRead
from anabranch.frontier.turns import Turn, precedence_of

#: Lanes whose heads may be on their way beyond twice the leases that are out.
ASKED_AT_LEAST = 64


class Placement:
    """The lanes in memory, each in its place. Every operation costs O(log active)."""

    def __init__(self, outbox: Outbox, maker: GateMaker, rules: QueueRules, gates: int) -> None:
        self._outbox = outbox
        self._rules = rules
        self.index = QueueIndex(rules.per_queue, self._save)
        self.window = GateWindow(maker, outbox, self.drop, gates)
        self._stamps = 0
        self.asked = 0  #: lanes whose heads are on their way
        self.loading = 0  #: of these, such as have nothing else that could be leased
        self.out = 0  #: leases out

    @property
    def store_is_busy(self) -> bool:
        """As many heads are asked for as the leases out can justify."""
        return self.asked >= ASKED_AT_LEAST + 2 * self.out

    def activate(self, line: Line) -> bool:
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
        if lane.line.group is not None:
            lane.line.group.asked += 1

    def place(self, lane: Lane) -> None:
        """Put the lane where it belongs in its gate's line, after anything happened to it."""
        place = lane.belongs()
        line = lane.line
        before = lane.place
        if place is not before:
            if before is not NOWHERE:
                self.unplace(lane)
            lane.place = place
            if place is READY:
                line.active += 1
                self._stamps += 1
                lane.stamp = self._stamps
                heappush(line.ready, (lane.queue.precedence, lane.stamp, lane))
            elif place is LOADING:
                line.active += 1
                self.loading += 1
            elif place is STORED:
                line.waiting.offer(lane.turn, lane.queue.id)
                self.window.busy(line)
        if not lane.window and not lane.leased and place is not LOADING and place is not PARKED:
            self._forget(lane)
        self.index.settle(lane.queue)

    def unplace(self, lane: Lane) -> None:
        """Take the lane out of its line."""
        place = lane.place
        if place is READY or place is LOADING:
            lane.line.active -= 1
            if place is LOADING:
                self.loading -= 1
        elif place is STORED:
            lane.line.waiting.discard(lane.queue.id)
        elif place is PARKED and lane in lane.queue.parked:
            lane.queue.parked.remove(lane)
        lane.place = NOWHERE
        lane.stamp = 0

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
        if lane.line.group is not None:
            lane.line.group.asked -= 1

    def lanes_read(self, line: Line, answer: LanesRead, limit: int) -> None:
        """The store's answer for a line."""
        entries = [(lane.turn, lane.queue) for lane in answer.lanes]
        line.waiting.answer(entries, limit)
        for queue_id in line.lanes:
            if line.lanes[queue_id].place is not STORED:
                line.waiting.discard(queue_id)
        line.enlist()
        self.window.note_idle(line)

    def drop_rows(self, line: Line, ordinals: set[int]) -> None:
        """These rows of the line are no more, and none of them is leased."""
        for lane in list(line.lanes.values()):
            lane.drop(ordinals)
            self.forget_answer(lane)
            self.place(lane)
        line.enlist()

    def _save(self, queue: WorkQueue) -> None:
        self._outbox.batch.queues.append(queue.row())

    def _ask_first(self, line: Line, queue_id: int, turn: Turn) -> None:
        """Begin the session of a lane that has nothing in memory."""
        lane = line.lanes.get(queue_id)
        queue = self.index.take_up(queue_id)
        if queue.standing:
            return
        balance = self._rules.session_budget(queue.key)
        if lane is None:
            lane = line.lanes[queue_id] = Lane(queue, line, turn, balance)
            queue.lanes.add(lane)
        lane.turn, lane.balance = turn, balance
        self.ask(lane)
        self.place(lane)

    def _forget(self, lane: Lane) -> None:
        """The lane has nothing in memory any more: its object goes, its row stays if it has rows."""
        lane.is_dropped = True
        lane.line.lanes.pop(lane.queue.id, None)
        lane.queue.lanes.discard(lane)
        if lane.place is NOWHERE and not lane.more:
            lane.line.waiting.discard(lane.queue.id)  # a read that is under way may bring it
            self._outbox.batch.removed.append(lane.id)
        self.window.note_idle(lane.line)
