"""What the batches of one transaction change in the table `lane`: rows counted, turns taken, lanes made and removed.

Whether an announced turn is taken depends on what the lane counts at that moment, so the steps are kept in their order, and
played over the lanes when these are known: once per transaction, all of them together. Most lanes only count, and most of
these were written a moment ago: they are remembered (`KnownLanes`) and need no read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from sqlalchemy import Connection

from anabranch.frontier.errors import InvariantBroken
from anabranch.frontier.records import WAITING, Row, Turn
from anabranch.frontier.stores.contract import Batch, LaneId, Standing
from anabranch.frontier.stores.sql import statements
from anabranch.frontier.stores.sql.statements import fetch, fetch_for, write

Kept = tuple[Turn, int, int, int]  # of a lane: (turn, count, waiting), and how its queue stands

#: Lanes that are remembered, at least; up to twice as many. About 400 bytes each.
REMEMBERED = 16_384


class LaneStep(NamedTuple):
    """A turn that a lane may take, and what had changed before it."""

    turn: Turn
    is_announced: bool  #: taken only by a lane that is new or not servable
    servable: int  #: rows more that do not wait


class RowsCounted(NamedTuple):
    """How many rows more there are."""

    rows: int
    waiting: int  #: of these, such that wait
    stopped: list[int]  #: of these, by the standing of their queue


class KnownLanes:
    """Rows of `lane` as they were last written, for the store's one owner. Forget all when a transaction may not be kept."""

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self._remembered = remembered
        self._young: dict[LaneId, Kept] = {}
        self._old: dict[LaneId, Kept] = {}

    def get(self, lane: LaneId) -> Kept | None:
        """Its row, if it is remembered."""
        return self._young.get(lane) or self._old.get(lane)

    def put(self, lane: LaneId, kept: Kept) -> None:
        """It was written like that."""
        self._young[lane] = kept
        if len(self._young) >= self._remembered:
            self._old, self._young = self._young, {}

    def drop(self, lane: LaneId) -> None:
        """Its row was deleted."""
        self._young.pop(lane, None)
        self._old.pop(lane, None)

    def forget(self) -> None:
        """Remember nothing."""
        self._young, self._old = {}, {}


class LaneChanges:
    """Collects what batches say of lanes, and writes it. O(1) a row, 1 to 3 µs for each lane that changed."""

    def __init__(self, known: KnownLanes) -> None:
        self._known = known
        self._counts: dict[LaneId, int] = {}  #: rows more, of every lane that changes
        self._waiting: dict[LaneId, int] = {}  #: waiting rows more
        self._steps: dict[LaneId, list[LaneStep]] = {}
        self._removed: set[LaneId] = set()  #: unless they have rows

    def add(self, batch: Batch, laneless: Collection[int]) -> None:
        """Take one batch, after all that came before it; new rows with an ordinal in `laneless` were known, or have ended."""
        for queue, gate, turn in batch.announced:
            self._take((queue, gate), turn, is_announced=True)
            self._removed.discard((queue, gate))
        for lane, turn in batch.turns:
            self._take(lane, turn, is_announced=False)
        for ended in batch.ended:
            self._count(ended[0], -1)
        for old, new in batch.moved:
            self._count(old, -1)
            self._count(new, 1)
        for row in batch.new:
            if row[3] not in laneless:
                self._count(row, 1)
        for lane in batch.removed:
            self._counts.setdefault(lane, 0)
            self._removed.add(lane)

    def write(self, connection: Connection) -> RowsCounted:
        """Write all lanes that change. Raises: InvariantBroken for rows of a lane that was not announced."""
        counts, waiting, steps, removed = self._counts, self._waiting, self._steps, self._removed
        self._counts, self._waiting, self._steps, self._removed = {}, {}, {}, set()
        before, standings = self._read(connection, counts)
        changes = _Changes()
        for lane in sorted(counts):
            kept, by, waits, taken = before.get(lane), counts[lane], waiting.get(lane, 0), steps.get(lane)
            shelved = standings.get(lane[0], 0) if kept is None else kept[3]
            changes.count(by, waits, shelved)
            if kept is not None and taken is None:  # it only counts, as most do
                after: Kept | None = (kept[0], kept[1] + by, kept[2] + waits, shelved)
            else:
                after = played(kept, shelved, taken or (), by, waits)
            if after is None or not 0 <= after[2] <= after[1]:
                _make_sure(lane, by, waits, after)
            if after is not None and (after[1] or lane not in removed):
                changes.put(lane, kept, after)
                self._known.put(lane, after)
            elif kept is not None:
                changes.gone.append(lane)
                self._known.drop(lane)
        changes.write(connection)
        return RowsCounted(changes.rows, changes.waiting, changes.stopped)

    def _take(self, lane: LaneId, turn: Turn, *, is_announced: bool) -> None:
        servable = self._counts.setdefault(lane, 0) - self._waiting.get(lane, 0)
        self._steps.setdefault(lane, []).append(LaneStep(turn, is_announced, servable))

    def _count(self, row: Row, by: int) -> None:
        lane = row[:2]
        counts = self._counts
        counts[lane] = counts.get(lane, 0) + by
        if row[2] >= WAITING:
            self._waiting[lane] = self._waiting.get(lane, 0) + by

    def _read(self, connection: Connection, asked: Iterable[LaneId]) -> tuple[dict[LaneId, Kept], dict[int, int]]:
        """The rows of those of these lanes that have one, and the standings of the others' queues that are not open."""
        known = self._known.get
        lanes: dict[LaneId, Kept] = {}
        strange: list[LaneId] = []
        for lane in asked:
            if (kept := known(lane)) is not None:
                lanes[lane] = kept
            else:
                strange.append(lane)
        strange.sort()
        lanes.update((row[:2], row[2:]) for row in fetch_for(connection, statements.READ_LANES, strange))
        new = {lane[0] for lane in strange if lane not in lanes}
        return lanes, _standings(connection, new)


class _Changes:
    """What is to be written, sorted as it came, and its sums."""

    def __init__(self) -> None:
        self.rows = self.waiting = 0
        self.stopped = [0] * len(Standing)
        self.gone: list[LaneId] = []
        self._put: list[tuple[int, ...]] = []
        self._counted: list[tuple[int, ...]] = []

    def count(self, rows: int, waiting: int, standing: int) -> None:
        """Rows more of one lane."""
        self.rows += rows
        self.waiting += waiting
        self.stopped[standing] += rows

    def put(self, lane: LaneId, before: Kept | None, after: Kept) -> None:
        """A lane that changed or is new."""
        servable = _servable(after)
        is_in_place = before is not None and before[0] == after[0] and _servable(before) == servable
        (self._counted if is_in_place else self._put).append((*lane, *after, servable))

    def write(self, connection: Connection) -> None:
        """Write it."""
        write(connection, statements.PUT_LANES, self._put)
        write(connection, statements.COUNT_LANES, self._counted)
        write(connection, statements.DELETE_LANES, self.gone)


def played(lane: Kept | None, shelved: int, steps: Iterable[LaneStep], by: int, waits: int) -> Kept | None:
    """What becomes of a lane after these steps and with so many rows more; None = there is none."""
    turn, count, waiting, _ = lane or (None, 0, 0, 0)
    for step in steps:
        if turn is None:
            turn = step.turn if step.is_announced else None
        elif not (step.is_announced and not shelved and count - waiting + step.servable > 0):
            turn = step.turn
    return None if turn is None else (turn, count + by, waiting + waits, shelved)


def _servable(lane: Kept) -> int:
    return int(lane[1] > lane[2] and not lane[3])


def _standings(connection: Connection, queues: Collection[int]) -> dict[int, int]:
    """The standings of those of these queues that are not open. One seek if every queue of the crawl is open."""
    if not queues or not fetch(connection, statements.ANY_CLOSED):
        return {}
    return dict(fetch_for(connection, statements.CLOSED, [(queue,) for queue in sorted(queues)]))


def _make_sure(lane: LaneId, by: int, waits: int, facts: Kept | None) -> None:
    if facts is None and (by or waits):
        raise InvariantBroken(f"rows were written for the lane {lane}, which no batch has announced")
    if facts is not None and not 0 <= facts[2] <= facts[1]:
        raise InvariantBroken(f"the lane {lane} would count {facts[1]} rows, {facts[2]} of them waiting")
