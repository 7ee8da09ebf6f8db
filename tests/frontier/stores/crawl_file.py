"""A crawl's tables in a file of SQLite, without the store thread: what the tests of statements write to and read from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection

from anabranch.frontier.records import Row, turn_of
from anabranch.frontier.stores.contract import (
    Announced,
    Batch,
    Counters,
    Ended,
    GateRow,
    Moved,
    Opening,
    QueueRow,
    Standing,
)
from anabranch.frontier.stores.sql import sqlite
from anabranch.frontier.stores.sql.schema import open_tables
from anabranch.frontier.stores.sql.writing import SoleOwner, TransactionWriter
from tests.frontier.stores.rows import IDENTITY, NOW_S, gate_key, queue_key


class Crawl:
    """One connection, and what its owner knows."""

    def __init__(self, connection: Connection, opening: Opening) -> None:
        self.connection = connection
        self.opening = opening
        self.totals: Counters = opening.counters
        self.number = 0

    def batch(
        self,
        new: Sequence[Row] = (),
        *,
        ended: Sequence[Ended] = (),
        moved: Sequence[Moved] = (),
        announced: Sequence[Announced] | None = None,
    ) -> Batch:
        """A batch that names and announces what its new rows need, with turns by ordinal."""
        self.number += 1
        made = Batch(self.number, NOW_S)
        made.new, made.ended, made.moved = list(new), list(ended), list(moved)
        made.queue_names = [(row.queue, queue_key(row.queue), 3) for row in new]
        made.gate_names = [(row.gate, gate_key(row.gate)) for row in new]
        firsts = {(row.queue, row.gate): row.ordinal for row in reversed(new)}
        lanes = [Announced(*lane, turn_of(3, ordinal)) for lane, ordinal in firsts.items()]
        made.announced = lanes if announced is None else list(announced)
        made.last_number = max((row.ordinal for row in new), default=0)
        return made

    def write(self, *batches: Batch) -> TransactionWriter:
        """One transaction."""
        writing = TransactionWriter(self.connection, self.totals, SoleOwner(self.opening.epoch))
        with self.connection.begin():
            for batch in batches:
                writing.add(batch)
            writing.flush()
        self.totals = writing.totals
        return writing

    def add(self, *rows: Row) -> TransactionWriter:
        """One transaction of one batch of new rows."""
        return self.write(self.batch(rows))

    def values(self, statement: str) -> list[tuple[object, ...]]:
        """Return the rows that a statement selects."""
        with self.connection.begin():
            return [tuple(row) for row in self.connection.exec_driver_sql(statement)]


@contextmanager
def crawl(path: Path, now_s: float = NOW_S) -> Iterator[Crawl]:
    """Open the file, which is made if there is none."""
    with sqlite.connected(path, None) as connection:
        yield Crawl(connection, open_tables(connection, str(path), IDENTITY, now_s))


def gate_facts(gate: int, **more: object) -> GateRow:
    """Make the row of a gate without history, except for `more`."""
    facts = GateRow(gate, gate_key(gate), 0.0, 0.0, 0.0, 0.0, 0.0, 0, 0.0, None)
    return facts._replace(**more)  # type: ignore[arg-type]


def queue_facts(queue: int, **more: object) -> QueueRow:
    """Make the row of a queue without history, except for `more`."""
    facts = QueueRow(queue, queue_key(queue), Standing.OPEN, 3, 0, None, 0, 0)
    return facts._replace(**more)  # type: ignore[arg-type]
