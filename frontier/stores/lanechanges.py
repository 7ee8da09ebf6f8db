"""What the batches of one transaction change in the table `lane`: rows counted, turns taken, lanes made and removed.

Whether an announced turn is taken depends on what the lane counts at that moment, so the steps are kept in their order, and
played over the lanes when those are read: once per transaction, all of them together.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from sqlalchemy import Connection

from frontier.errors import InvariantBroken
from frontier.models import WAITING, Row
from frontier.stores import statements
from frontier.stores.base import Batch, LaneId, Standing
from frontier.stores.dialect import fetch, fetch_for, write
from frontier.turns import Turn

Facts = tuple[Turn, int, int]  # of a lane: (turn, count, waiting)


class Step(NamedTuple):
    """A turn that a lane may take, and what had changed before it."""

    turn: Turn
    is_announced: bool  #: taken only by a lane that is new or not servable
    servable: int  #: rows more that do not wait


class RowsCounted(NamedTuple):
    """How many rows more there are."""

    rows: int
    waiting: int  #: of these, such that wait
    stopped: list[int]  #: of these, by the standing of their queue


class LaneChange:
    """What changes in one lane."""

    __slots__ = ("count", "is_removed", "steps", "waiting")

    def __init__(self) -> None:
        self.count = 0  #: rows more
        self.waiting = 0  #: waiting rows more
        self.steps: list[Step] = []
        self.is_removed = False  #: unless it has rows

    def take(self, turn: Turn, *, is_announced: bool) -> None:
        """Note a turn."""
        self.steps.append(Step(turn, is_announced, self.count - self.waiting))
        self.is_removed = self.is_removed and not is_announced

    def played(self, lane: Facts | None, shelved: int) -> Facts | None:
        """What becomes of the lane; None = there is none."""
        turn, count, waiting = lane or (None, 0, 0)
        for step in self.steps:
            if turn is None:
                turn = step.turn if step.is_announced else None
            elif not (step.is_announced and not shelved and count - waiting + step.servable > 0):
                turn = step.turn
        return None if turn is None else (turn, count + self.count, waiting + self.waiting)


class LaneChanges:
    """Collects what batches say of lanes, and writes it. O(1) a row, about 5 µs for each lane that changed."""

    def __init__(self) -> None:
        self._changes: dict[LaneId, LaneChange] = {}

    def add(self, batch: Batch, laneless: Collection[int]) -> None:
        """Take one batch, after all that came before it; new rows with an ordinal in `laneless` were known, or have ended."""
        for queue, gate, turn in batch.announced:
            self._change((queue, gate)).take(turn, is_announced=True)
        for lane, turn in batch.turns:
            self._change(lane).take(turn, is_announced=False)
        for ended in batch.ended:
            self._count(ended.row, -1)
        for old, new in batch.moved:
            self._count(old, -1)
            self._count(new, 1)
        for row in batch.new:
            if row.ordinal not in laneless:
                self._count(row, 1)
        for lane in batch.removed:
            self._change(lane).is_removed = True

    def write(self, connection: Connection) -> RowsCounted:
        """Write all lanes that change. Raises: InvariantBroken for rows of a lane that was not announced."""
        changes, self._changes = self._changes, {}
        lanes = _read(connection, changes)
        kept: list[tuple[int, ...]] = []
        gone: list[LaneId] = []
        for lane, change in sorted(changes.items()):
            facts, shelved = lanes[lane]
            played = change.played(facts, shelved)
            _make_sure(lane, change, played)
            if played is not None and (played[1] or not change.is_removed):
                kept.append((*lane, *played, shelved))
            elif facts is not None:
                gone.append(lane)
        write(connection, statements.PUT_LANES, kept)
        write(connection, statements.DELETE_LANES, gone)
        return _counted((change, lanes[lane][1]) for lane, change in changes.items())

    def _change(self, lane: LaneId) -> LaneChange:
        change = self._changes.get(lane)
        if change is None:
            change = self._changes[lane] = LaneChange()
        return change

    def _count(self, row: Row, sign: int) -> None:
        queue, gate, precedence = row[:3]
        change = self._change((queue, gate))
        change.count += sign
        if precedence >= WAITING:
            change.waiting += sign


def _read(connection: Connection, asked: Collection[LaneId]) -> dict[LaneId, tuple[Facts | None, int]]:
    """What is known of each of these lanes, None = nothing, and how its queue stands."""
    rows = fetch_for(connection, statements.READ_LANES, sorted(asked))
    lanes: dict[LaneId, tuple[Facts | None, int]] = {(row[0], row[1]): (row[2:5], row[5]) for row in rows}
    new = [lane for lane in asked if lane not in lanes]
    standings = _standings(connection, {queue for queue, _ in new})
    lanes.update((lane, (None, standings.get(lane[0], Standing.OPEN))) for lane in new)
    return lanes


def _standings(connection: Connection, queues: Collection[int]) -> dict[int, int]:
    """The standings of those of these queues that are not open. One seek if every queue of the crawl is open."""
    if not queues or not fetch(connection, statements.ANY_CLOSED):
        return {}
    return dict(fetch_for(connection, statements.CLOSED, [(queue,) for queue in sorted(queues)]))


def _counted(changes: Iterable[tuple[LaneChange, int]]) -> RowsCounted:
    """The sums over lanes: (change, how its queue stands)."""
    rows = waiting = 0
    stopped = [0] * len(Standing)
    for change, standing in changes:
        rows += change.count
        waiting += change.waiting
        stopped[standing] += change.count
    return RowsCounted(rows, waiting, stopped)


def _make_sure(lane: LaneId, change: LaneChange, facts: Facts | None) -> None:
    if facts is None and (change.count or change.waiting):
        raise InvariantBroken(f"rows were written for the lane {lane}, which no batch has announced")
    if facts is not None and not 0 <= facts[2] <= facts[1]:
        raise InvariantBroken(f"the lane {lane} would count {facts[1]} rows, {facts[2]} of them waiting")
