"""Questions of operators: queues, lanes, gates, rows and totals, listed by key a page at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from sqlalchemy import Connection

from anabranch.frontier.models import Head, OutcomeKind
from anabranch.frontier.stores import statements
from anabranch.frontier.stores.base import EndedRecord, QueueFacts
from anabranch.frontier.stores.dialect import Values, fetch
from anabranch.frontier.stores.messages import GateRow, LaneRow, Place, Standing
from anabranch.frontier.stores.reading import FIRST_ID, queue_row, read_queued


def queue(connection: Connection, queue: int) -> QueueFacts | None:
    """One queue, with the sums over its lanes. Cost: O(its lanes)."""
    rows = fetch(connection, statements.QUEUE_FACTS, (queue,))
    return _facts(rows[0]) if rows else None


def queues(connection: Connection, standing: Standing | None, after: int | None, limit: int) -> list[QueueFacts]:
    """Queues that have rows or are not open, by id, behind one; of one standing if given. Cost: O(queues passed)."""
    first = FIRST_ID if after is None else after + 1
    if standing is None:
        rows = fetch(connection, statements.QUEUES, (first, limit))
    elif standing is Standing.OPEN:
        rows = fetch(connection, statements.OPEN_QUEUES, (first, limit))
    else:
        rows = fetch(connection, statements.CLOSED_QUEUES, (int(standing), first, limit))
    return [_facts(row) for row in rows]


def longest(connection: Connection, limit: int) -> list[QueueFacts]:
    """The queues with most rows, longest first, of equals the smaller id. Cost: O(lanes of the crawl)."""
    found = [queue(connection, id_) for id_, _ in fetch(connection, statements.LONGEST, (limit,))]
    return [facts for facts in found if facts is not None]


def lanes(connection: Connection, queue: int, after: int | None, limit: int) -> list[LaneRow]:
    """The lanes of a queue that have rows, by gate, behind one. Cost: one seek."""
    rows = fetch(connection, statements.LANES_OF_QUEUE, (queue, FIRST_ID if after is None else after + 1, limit))
    return [LaneRow._make(row) for row in rows]


def gate(connection: Connection, gate: int) -> GateRow | None:
    """One gate. Cost: one seek."""
    rows = fetch(connection, statements.GATE, (gate,))
    return GateRow._make(rows[0]) if rows else None


def queued(connection: Connection, after: Place | None, limit: int) -> list[Head]:
    """Rows of `url` by place, behind one. Cost: one seek, and one more per row."""
    return read_queued(connection, after, limit)


def ended_after(connection: Connection, after: int, limit: int) -> list[EndedRecord]:
    """Rows of `done` by ordinal, above one. Cost: one seek."""
    rows = fetch(connection, statements.ENDED, (after, limit))
    return [EndedRecord._make((*row[:4], OutcomeKind(row[4]), row[5])) for row in rows]


def tally(connection: Connection) -> Mapping[str, int]:
    """Queues by what their rows say. Cost: O(lanes and queues of the crawl)."""
    return Counter(dict(fetch(connection, statements.TALLY)))


def _facts(row: Values) -> QueueFacts:
    return QueueFacts(queue_row(row), int(row[8]), int(row[9]), row[10])
