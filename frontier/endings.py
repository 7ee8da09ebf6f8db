"""How a lease ends: what becomes of its slot, and of its row."""

from __future__ import annotations

from frontier.leases import Held
from frontier.models import ENDING, WAITING, Head, Outcome, OutcomeKind
from frontier.schedule import Schedule
from frontier.stores.base import Batch, Ended, Moved


def end_slot(held: Held, outcome: Outcome, now_s: float, batch: Batch) -> None:
    """The slot rests if something was fetched; the gate closes if the host asked for it."""
    gate = held.gate
    if outcome.start_s is not None and outcome.end_s is not None:
        gate.rest(outcome.start_s, outcome.end_s, now_s)
    else:
        gate.give_back(now_s)
    if outcome.host_rest_s > 0:
        gate.block(now_s + outcome.host_rest_s)
    batch.gates.append(gate.row())


def end_row(held: Held, outcome: Outcome, now_s: float, batch: Batch, schedule: Schedule) -> None:
    """The row ends, waits for a retry behind its lane, or goes back to its old place."""
    lane, head, row = held.lane, held.head, held.head.row
    if outcome.kind in ENDING:
        batch.ended.append(Ended(row, outcome.status, outcome.kind))
        schedule.row_ended(lane)
    elif outcome.kind is OutcomeKind.RETRY:
        waits = row._replace(
            precedence=row.precedence % WAITING + WAITING,
            attempts=row.attempts + 1,
            due_s=now_s + outcome.after_s,
        )
        batch.moved.append(Moved(row, waits))
        schedule.row_waits(lane, Head(waits, head.via))
    schedule.come_back(lane, head, keep=outcome.kind is OutcomeKind.DEFERRED)
