"""From batches to statements: what the batches of one transaction add up to.

Rows are collected and written as late as the order allows: before a read, and at the end. What is added and taken out in
between never touches the disk. Counts and names are written once, at the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby

from sqlalchemy import Connection

from frontier.errors import InvariantBroken
from frontier.fingerprints import seen_fingerprint
from frontier.models import OutcomeKind, Row
from frontier.stores import statements
from frontier.stores.base import Batch, Counters, Ended, GateRow, LaneId, LaneRow, QueueRow
from frontier.stores.reading import seen_ordinals

Place = tuple[int, int, int, int]  # (queue, gate, precedence, ordinal): the primary key of `url`


class Writing:
    """Writes the batches of one transaction, in their order. O(1) and a few microseconds a row."""

    def __init__(self, connection: Connection, totals: Counters) -> None:
        self._connection = connection
        #: Rows of `url` since the last flush, by ordinal, and the places that are to be emptied before they are filled.
        self._placed: dict[int, Row] = {}
        self._emptied: list[Place] = []
        self._new: list[Row] = []
        self._forced: set[int] = set()
        self._ended: list[Ended] = []
        #: Names and counts since the last flush of all.
        self._queues: dict[int, QueueRow] = {}
        self._gates: dict[int, GateRow] = {}
        self._lanes: dict[LaneId, LaneRow] = {}
        self._changes: Counter[LaneId] = Counter()
        self._outcomes: Counter[OutcomeKind] = Counter()
        self._accepted = 0
        self._last_ordinal = totals.last_ordinal
        #: Right after a flush of all.
        self.totals = totals
        self.number: int | None = None  #: of the last batch
        self.duplicates: list[Row] = []  #: new rows that died

    def add(self, batch: Batch) -> None:
        """Take one batch."""
        self.number = batch.number
        for ended in batch.ended:
            self._take_out(ended.row)
        self._ended.extend(batch.ended)
        for old, new in batch.moved:
            self._take_out(old)
            self._placed[new.ordinal] = new
        self._placed.update((row.ordinal, row) for row in batch.new)
        self._new.extend(batch.new)
        self._forced |= batch.forced
        self._queues.update((row.id, row) for row in batch.queues)
        self._gates.update((row.id, row) for row in batch.gates)
        self._lanes.update(((row.queue, row.gate), row) for row in batch.lanes)

    def flush_rows(self) -> None:
        """Write the rows, so that a read sees them. Raises: InvariantBroken if a row to take out is not there."""
        if not (self._placed or self._emptied or self._ended or self._new):
            return
        emptied = self._run(statements.DELETE_URL, sorted(self._emptied))
        if emptied != len(self._emptied):
            raise InvariantBroken(f"{len(self._emptied) - emptied} rows that end or move are not in the store")
        self._enter_new()
        self._run(statements.INSERT_URL, sorted(self._placed.values()))
        self._run(statements.INSERT_DONE, sorted(_done_row(ended) for ended in self._ended))
        for row, _, outcome in self._ended:
            self._changes[row.queue, row.gate] -= 1
            self._outcomes[outcome] += 1
        self._placed, self._emptied, self._new, self._forced, self._ended = {}, [], [], set(), []

    def flush(self) -> None:
        """Write rows, names and counts. Raises: InvariantBroken, as `flush_rows` or for a lane that was not announced."""
        self.flush_rows()
        self._run(statements.PUT_QUEUE, sorted(self._queues.values()))
        self._run(statements.PUT_GATE, sorted(self._gates.values()))
        self._run(statements.PUT_LANE, sorted(row[:4] for row in self._lanes.values()))
        changes = [(change, *lane) for lane, change in sorted(self._changes.items()) if change]
        if self._run(statements.COUNT_LANE, changes) != len(changes):
            raise InvariantBroken("rows were written for a lane that no batch has announced")
        if self.number is not None:
            self.totals = self._new_totals()
            facts = {**self.totals._asdict(), "batch": self.number}
            self._run(statements.PUT_CRAWL, ((name, str(value)) for name, value in facts.items()))
        self._queues, self._gates, self._lanes = {}, {}, {}
        self._changes, self._outcomes, self._accepted = Counter(), Counter(), 0

    def _take_out(self, row: Row) -> None:
        placed = self._placed.pop(row.ordinal, None)
        if placed is None:
            self._emptied.append((row.queue, row.gate, row.precedence, row.ordinal))
        elif placed[:4] != row[:4]:
            raise InvariantBroken(f"row {row.ordinal} ends or moves at {row[:4]}, and is at {placed[:4]}")

    def _enter_new(self) -> None:
        """Enter the new rows' fingerprints into `seen`; rows whose key was known die."""
        died: list[Row] = []
        for is_forced, rows in groupby(self._new, key=lambda row: row.ordinal in self._forced):
            died.extend(self._enter(list(rows), is_forced=is_forced))
        dead = {row.ordinal for row in died}
        alive = [row for row in self._new if row.ordinal not in dead]
        for ordinal in dead:
            del self._placed[ordinal]
        self._changes.update((row.queue, row.gate) for row in alive)
        self._accepted += len(alive)
        self._last_ordinal = max(self._last_ordinal, max((row.ordinal for row in alive), default=0))
        self.duplicates.extend(died)

    def _enter(self, rows: Sequence[Row], *, is_forced: bool) -> list[Row]:
        # Of equal keys the lowest ordinal comes first: it wins if it is not forced, the highest if it is.
        pairs = sorted((seen_fingerprint(row.dedup_key()), row.ordinal) for row in rows)
        if is_forced:
            self._run(statements.REPLACE_SEEN, pairs)
            return []
        if self._run(statements.ENTER_SEEN, pairs) == len(pairs):
            return []
        known = seen_ordinals(self._connection, [fingerprint for fingerprint, _ in pairs])
        died = {ordinal for fingerprint, ordinal in pairs if known[fingerprint] != ordinal}
        return [row for row in rows if row.ordinal in died]

    def _new_totals(self) -> Counters:
        before, outcomes = self.totals, self._outcomes
        return Counters(
            last_ordinal=self._last_ordinal,
            queued=before.queued + self._accepted - outcomes.total(),
            done=before.done + outcomes[OutcomeKind.DONE],
            failed=before.failed + outcomes[OutcomeKind.FAILED],
            disregarded=before.disregarded + outcomes[OutcomeKind.DISREGARDED],
        )

    def _run(self, statement: str, parameters: Iterable[tuple[object, ...]]) -> int:
        """Execute for each tuple; answers how many rows were changed."""
        many = list(parameters)
        return self._connection.exec_driver_sql(statement, many).rowcount if many else 0


def _done_row(ended: Ended) -> tuple[int, str, bytes | None, int, str, int]:
    row, status, outcome = ended
    return row.ordinal, row.url, row.key, status, outcome.value, row.attempts
