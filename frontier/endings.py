"""How a lease ends: what becomes of its slot, of its row, and of its queue."""

from __future__ import annotations

from frontier.leases import Held
from frontier.models import ENDING, WAITING, HostTrouble, Outcome, OutcomeKind, Row
from frontier.outbox import Outbox
from frontier.policies.queuerules import Charge, QueueRules, pay
from frontier.scheduling.retries import Retries
from frontier.scheduling.schedule import Schedule
from frontier.stores.base import Announced, Ended, Moved, Standing
from frontier.turns import turn_of

#: Leases of a queue without total budget that may end before its row is written: what a crash may leave uncounted.
UNSAVED = 16


class Endings:
    """Takes leases back. Every operation costs O(log active)."""

    def __init__(self, outbox: Outbox, schedule: Schedule, retries: Retries, rules: QueueRules) -> None:
        self._outbox = outbox
        self._schedule = schedule
        self._retries = retries
        self._rules = rules
        self.waiting = 0  #: rows that wait for a retry

    def end(self, held: Held, outcome: Outcome, charge: Charge, now_s: float) -> None:
        """A lease ends with this outcome; everything that changes is in the batch."""
        self._end_slot(held, outcome, now_s)
        self._end_row(held, outcome, now_s)
        queue = held.lane.queue
        pay(queue, outcome.kind, charge.cost)
        if outcome.kind is OutcomeKind.RETIRE and queue.standing is Standing.OPEN:
            queue.budget = queue.total_budget = queue.spent
        if queue.unsaved >= UNSAVED or queue.total_budget >= 0:
            self._schedule.index.save(queue)
        is_spent = self._rules.is_over_total(queue)
        if is_spent and queue.standing is Standing.OPEN:
            self._schedule.halting.retire(queue)
        keep = outcome.kind is OutcomeKind.DEFERRED or outcome.kind is OutcomeKind.RETIRE
        self._schedule.come_back(held.lane, held.head, charge, now_s, keep=keep)

    def release(self, held: Held, now_s: float) -> None:
        """The URL is first again, the slot does not rest."""
        line = held.lane.line
        line.gate.give_back(now_s)
        if line.group is not None:
            line.group.gate.give_back(now_s)
        self._schedule.come_back(held.lane, held.head, FREE, now_s, keep=True)

    def expire(self, held: Held, now_s: float) -> None:
        """A lease is lost: its fetch may be going on up to now, so the slot rests; the URL is first again."""
        lease = held.lease
        self.end(held, Outcome(OutcomeKind.DEFERRED, 0, lease.since_s, now_s), FREE, now_s)

    def wake_retries(self, now_s: float) -> None:
        """Rows whose time has come go back to their place among those that can be served."""
        for row in self._retries.take_due(now_s):
            self._come_due(row)

    def _come_due(self, row: Row) -> None:
        batch, schedule = self._outbox.batch, self._schedule
        back = row._replace(precedence=row.precedence % WAITING, due_s=None)
        batch.moved.append(Moved(row, back))
        self.waiting -= 1
        line = schedule.window.get(row.gate)
        lane = None if line is None else line.lanes.get(row.queue)
        if lane is not None:
            schedule.row_stored(lane, back)
            return
        if line is not None and row.queue in line.waiting:
            return
        queue = schedule.index.get(row.queue)
        turn = turn_of(self._rules.queues.base if queue is None else queue.precedence, self._outbox.number())
        batch.announced.append(Announced(row.queue, row.gate, turn))
        if line is None:
            schedule.window.wake(row.gate, turn, row.queue)
        else:
            schedule.lane_waits(line, row.queue, turn)

    def _end_slot(self, held: Held, outcome: Outcome, now_s: float) -> None:
        """The slots rest if something was fetched; the host's gate closes if there was trouble."""
        _, _, start_s, end_s, _, trouble, retry_after_s = outcome
        line = held.lane.line
        gate, group = line.gate, line.group
        if start_s is None or end_s is None:
            gate.give_back(now_s)
            if group is not None:
                group.gate.give_back(now_s)
        else:
            if gate.troubles and _is_well(outcome):
                gate.well(now_s)
            gate.rest(start_s, end_s, now_s)
            if group is not None:
                group.gate.rest(start_s, end_s, now_s)
                if group.gate.must_be_written:
                    self._outbox.batch.gates.append(group.gate.row())
        if trouble is not HostTrouble.NONE or retry_after_s > 0:
            gate.trouble(trouble, retry_after_s, now_s)
        if gate.must_be_written:
            self._outbox.batch.gates.append(gate.row())

    def _end_row(self, held: Held, outcome: Outcome, now_s: float) -> None:
        """The row ends, waits for a retry behind its lane, or stays where it is."""
        row = held.head.row
        if outcome.kind in ENDING:
            self._outbox.batch.ended.append(Ended(row, outcome.status, outcome.kind))
        elif outcome.kind is OutcomeKind.RETRY:
            waits = row._replace(
                precedence=row.precedence % WAITING + WAITING,
                attempts=row.attempts + 1,
                due_s=now_s + outcome.after_s,
            )
            self._outbox.batch.moved.append(Moved(row, waits))
            self._retries.add(waits)
            self.waiting += 1
            held.lane.queue.waits += 1


def _is_well(outcome: Outcome) -> bool:
    """The host has answered without trouble; a lease that was lost, or a name that was not found, proves nothing."""
    has_answered = outcome.kind is OutcomeKind.DONE or outcome.status > 0
    return has_answered and outcome.trouble is HostTrouble.NONE


#: What the end of a lease costs that tried nothing.
FREE = Charge(0, 0)
