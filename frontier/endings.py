"""How a lease ends: what becomes of its slot, of its row, and of its queue."""

from __future__ import annotations

import math
from typing import Final

from anabranch.frontier.errors import PolicyError
from anabranch.frontier.leases import Board, Held
from anabranch.frontier.models import ENDING, WAITING, HostTrouble, Lease, Outcome, OutcomeKind, Row
from anabranch.frontier.outbox import Outbox
from anabranch.frontier.policies.budgets import NOTHING_MORE
from anabranch.frontier.policies.queuerules import Charge, QueueRules, pay
from anabranch.frontier.scheduling.gatelines import Line
from anabranch.frontier.scheduling.gates import Gate
from anabranch.frontier.scheduling.retries import Retries
from anabranch.frontier.scheduling.schedule import Schedule
from anabranch.frontier.scheduling.workqueues import WorkQueue
from anabranch.frontier.stores.messages import Announced, Ended, Moved
from anabranch.frontier.turns import turn_of

#: Leases of a queue without total budget that may end before its row is written: what a crash may leave uncounted.
UNSAVED: Final = 16

# By these names, because reading a member of an Enum's class costs as much as a call.
_DONE: Final = OutcomeKind.DONE
_RETRY: Final = OutcomeKind.RETRY
_DEFERRED: Final = OutcomeKind.DEFERRED
_RETIRE: Final = OutcomeKind.RETIRE
_NO_TROUBLE: Final = HostTrouble.NONE
_new: Final = tuple.__new__
_INFINITY: Final = math.inf
_NUMBER: Final = (float, int)
#: A status is a signed integer of 64 bits, as SQL's.
_MOST: Final = 1 << 63


class Endings:
    """Takes leases back. Every operation costs O(log active)."""

    def __init__(self, outbox: Outbox, schedule: Schedule, retries: Retries, rules: QueueRules) -> None:
        self._outbox = outbox
        self._schedule = schedule
        self._retries = retries
        self._rules = rules
        self.waiting = 0  #: rows that wait for a retry
        self.board: Board | None = None

    def end(self, held: Held, outcome: Outcome, charge: Charge, now_s: float) -> None:
        """A lease ends with this outcome; everything that changes is in the batch."""
        _, lane, head = held
        kind = outcome[0]
        self._end_slot(lane.line, outcome, now_s)
        self._end_row(lane.queue, head[0], outcome, now_s)
        queue = lane.queue
        pay(queue, kind, charge[0])
        if kind is _RETIRE and not queue.standing:
            queue.budget = queue.total_budget = NOTHING_MORE
        if queue.unsaved >= UNSAVED or queue.total_budget >= 0:
            self._schedule.index.save(queue)
            if self._rules.is_over_total(queue) and not queue.standing:
                self._schedule.halting.retire(queue)
        self._schedule.come_back(lane, head, charge, now_s, keep=kind is _DEFERRED or kind is _RETIRE)
        if self.board is not None:
            self._show(self.board, lane.line.gate, head[0], now_s)

    def release(self, held: Held, now_s: float) -> None:
        """The URL is first again, the slot does not rest."""
        _, lane, head = held
        line = lane.line
        line.gate.give_back(now_s)
        if line.group is not None:
            line.group.gate.give_back(now_s)
        self._schedule.come_back(lane, head, FREE, now_s, keep=True)
        if self.board is not None:
            self._show(self.board, line.gate, head[0], now_s)

    def expire(self, held: Held, now_s: float) -> None:
        """A lease is lost: its fetch may be going on up to now, so the slot rests; the URL is first again."""
        self.end(held, Outcome(OutcomeKind.DEFERRED, 0, held[0].since_s, now_s), FREE, now_s)

    def wake_retries(self, now_s: float) -> None:
        """Rows whose time has come go back to their place among those that can be served."""
        for row in self._retries.take_due(now_s):
            self._come_due(row)

    def _show(self, board: Board, gate: Gate, row: Row, now_s: float) -> None:
        board.back(row.ordinal, gate.id, gate.opens_s(), now_s)

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
        if line is None or line.is_loading:
            schedule.window.wake(row.gate, turn, row.queue)
        if line is not None:
            schedule.lane_waits(line, row.queue, turn)

    def _end_slot(self, line: Line, outcome: Outcome, now_s: float) -> None:
        """The slots rest if something was fetched; the host's gate closes if there was trouble."""
        _, _, start_s, end_s, _, trouble, retry_after_s = outcome
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
        if trouble is not _NO_TROUBLE or retry_after_s > 0:
            gate.trouble(trouble, retry_after_s, now_s)
        if gate.must_be_written:
            self._outbox.batch.gates.append(gate.row())

    def _end_row(self, queue: WorkQueue, row: Row, outcome: Outcome, now_s: float) -> None:
        """The row ends, waits for a retry behind its lane, or stays where it is."""
        kind = outcome[0]
        if kind is _DONE or kind in ENDING:
            self._outbox.batch.ended.append(_new(Ended, (row, outcome[1], kind)))  # half the price of Ended(...)
        elif kind is _RETRY:
            waits = row._replace(
                precedence=row.precedence % WAITING + WAITING,
                attempts=row.attempts + 1,
                due_s=now_s + outcome.after_s,
            )
            self._outbox.batch.moved.append(Moved(row, waits))
            self._retries.add(waits)
            self.waiting += 1
            queue.waits += 1


def check_outcome(lease: Lease, outcome: Outcome) -> None:
    """Raises: PolicyError for what no gate could keep to and no store can hold: a row that is never due would end no crawl."""
    kind, status, start_s, end_s, after_s, trouble, retry_after_s = outcome
    if not (isinstance(kind, OutcomeKind) and isinstance(trouble, HostTrouble)):
        raise PolicyError(f"{lease.url}: it ended as {kind!r} with {trouble!r}: give an OutcomeKind and a HostTrouble")
    if not isinstance(status, int) or not -_MOST <= status < _MOST:
        raise PolicyError(f"{lease.url}: status {status!r}: give a whole number of 64 bits")
    if not ((start_s is None or _is_finite(start_s)) and (end_s is None or _is_finite(end_s))):
        raise PolicyError(f"{lease.url}: fetched from {start_s!r} to {end_s!r}: give times in epoch seconds, or None")
    if not _is_finite(after_s):
        raise PolicyError(f"{lease.url}: a retry after {after_s!r} s: give a finite number")
    # A host may ask for any time; its backoff cuts what is too long.
    if not isinstance(retry_after_s, _NUMBER) or math.isnan(retry_after_s):
        raise PolicyError(f"{lease.url}: its host asks for {retry_after_s!r} s: give a number, 0 for none")


def _is_finite(number: float) -> bool:
    return isinstance(number, _NUMBER) and -_INFINITY < number < _INFINITY


def _is_well(outcome: Outcome) -> bool:
    """The host has answered without trouble; a lease that was lost, or a name that was not found, proves nothing."""
    has_answered = outcome.kind is OutcomeKind.DONE or outcome.status > 0
    return has_answered and outcome.trouble is HostTrouble.NONE


#: What the end of a lease costs that tried nothing.
FREE: Final[Charge] = (0, 0)
