"""Changes of one transaction's batches in the table `lane`: rows counted, turns taken, lanes made and removed.

Whether an announced turn is taken depends on the lane's count at that moment. So the steps are kept in their order and applied
once per transaction, when all lanes are known. Most lanes only count, and most of these were written a moment ago: they are
remembered (`KnownLanes`) and need no read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from sqlalchemy import Connection

from anabranch.frontier.errors import InvariantBroken
from anabranch.frontier.records import WAITING, Row, Turn
from anabranch.frontier.stores.contract import Batch, LaneId, Standing
from anabranch.frontier.stores.sql import statements
from anabranch.frontier.stores.sql.execution import fetch, fetch_for, write

Kept = tuple[Turn, int, int, int]  # of a lane: (turn, count, waiting, standing of its queue)

#: Lanes that are remembered, at least; up to twice as many. About 400 bytes each.
REMEMBERED = 16_384

#: A batch with so many new rows has them counted together.
_MANY = 100

#: A turn that a lane may take; announced ones only if it is new or not servable; rows added before that do not wait.
LaneStep = tuple[Turn, bool, int]


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
        """It was written so."""
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
    """Collects the changes of lanes and writes them once. O(1) a row, 1 to 3 µs for each lane that changed."""

    def __init__(self, known: KnownLanes) -> None:
        self._known = known
        self._counts: dict[LaneId, int] = {}  #: rows added, of every lane that changes
        self._waiting: dict[LaneId, int] = {}  #: waiting rows added
        self._steps: dict[LaneId, list[LaneStep]] = {}
        self._removed: set[LaneId] = set()  #: unless they have rows
        # Sums over all lanes, once they are written:
        self.rows = self.waiting = 0
        self.stopped = [0] * len(Standing)  #: rows added by the standing of their queue

    def add(self, batch: Batch, laneless: Collection[int]) -> None:
        """Take one batch, in order; new rows with an ordinal in `laneless` were known, or have ended."""
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
        if len(batch.new) < _MANY:
            for row in batch.new:
                if row[3] not in laneless:
                    self._count(row, 1)
        else:
            self._count_many([row for row in batch.new if row[3] not in laneless])
        for lane in batch.removed:
            self._counts.setdefault(lane, 0)
            self._removed.add(lane)

    def write(self, connection: Connection) -> None:
        """Write all lanes that change; once. Raises: InvariantBroken for rows of a lane that was not announced."""
        before, standings = self._read(connection, self._counts)
        put: list[tuple[int, ...]] = []
        counted: list[tuple[int, ...]] = []  # those that keep their turn and place in line
        gone: list[LaneId] = []
        for lane in sorted(self._counts):
            kept, by, waits = before.get(lane), self._counts[lane], self._waiting.get(lane, 0)
            steps = self._steps.get(lane, ())
            shelved = standings.get(lane[0], 0) if kept is None else kept[3]
            self.rows += by
            self.waiting += waits
            self.stopped[shelved] += by
            if kept is not None and not steps:  # it only counts, as most do
                after: Kept | None = (kept[0], kept[1] + by, kept[2] + waits, shelved)
            else:
                after = _after(kept, shelved, steps, by, waits)
            if after is None or not 0 <= after[2] <= after[1]:
                _make_sure(lane, by, waits, after)
            if after is not None and (after[1] or lane not in self._removed):
                (counted if _keeps_place(kept, after) else put).append((*lane, *after, _servable(after)))
                self._known.put(lane, after)
            elif kept is not None:
                gone.append(lane)
                self._known.drop(lane)
        write(connection, statements.PUT_LANES, put)
        write(connection, statements.COUNT_LANES, counted)
        write(connection, statements.DELETE_LANES, gone)

    def _take(self, lane: LaneId, turn: Turn, *, is_announced: bool) -> None:
        servable = self._counts.setdefault(lane, 0) - self._waiting.get(lane, 0)
        self._steps.setdefault(lane, []).append((turn, is_announced, servable))

    def _count_many(self, rows: Sequence[Row]) -> None:
        """Count new rows; of a thousand each costs two thirds of one alone."""
        lanes: list[LaneId] = [row[:2] for row in rows]
        waiting: list[LaneId] = [row[:2] for row in rows if row.precedence >= WAITING]
        for known, added in ((self._counts, lanes), (self._waiting, waiting)):
            for lane, count in Counter(added).items():
                known[lane] = known.get(lane, 0) + count

    def _count(self, row: Row, by: int) -> None:
        lane = row[:2]
        counts = self._counts
        counts[lane] = counts.get(lane, 0) + by
        if row[2] >= WAITING:
            self._waiting[lane] = self._waiting.get(lane, 0) + by

    def _read(self, connection: Connection, asked: Iterable[LaneId]) -> tuple[dict[LaneId, Kept], dict[int, int]]:
        """The rows of these lanes, and for lanes without one the standings of queues that are not open."""
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
        if not new or not fetch(connection, statements.ANY_CLOSED):
            return lanes, {}
        return lanes, dict(fetch_for(connection, statements.CLOSED, [(queue,) for queue in sorted(new)]))


def _after(lane: Kept | None, shelved: int, steps: Iterable[LaneStep], by: int, waits: int) -> Kept | None:
    """The lane after these steps and with so many rows added; None = it does not exist."""
    turn, count, waiting, _ = lane or (None, 0, 0, 0)
    for step_turn, is_announced, servable in steps:
        if turn is None:
            turn = step_turn if is_announced else None
        elif not (is_announced and not shelved and count - waiting + servable > 0):
            turn = step_turn
    return None if turn is None else (turn, count + by, waiting + waits, shelved)


def _servable(lane: Kept) -> int:
    return int(lane[1] > lane[2] and not lane[3])


def _keeps_place(before: Kept | None, after: Kept) -> bool:
    return before is not None and before[0] == after[0] and _servable(before) == _servable(after)


def _make_sure(lane: LaneId, by: int, waits: int, after: Kept | None) -> None:
    if after is not None:
        raise InvariantBroken(f"the lane {lane} would count {after[1]} rows, {after[2]} of them waiting")
    if by or waits:
        raise InvariantBroken(f"rows were written for the lane {lane}, which no batch has announced")
