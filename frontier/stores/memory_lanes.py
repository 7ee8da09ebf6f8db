"""The lanes of the store in memory: their rows, their counts, and the order in which a gate serves them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from anabranch.frontier.models import WAITING, Row
from anabranch.frontier.stores.memory_lane import Lane
from anabranch.frontier.stores.memory_order import Ascending
from anabranch.frontier.stores.messages import LaneId, LaneRow, Standing
from anabranch.frontier.turns import Turn


class Lanes:
    """All lanes, the servable ones of each gate in line by turn, and all rows that wait by the time of their retry.

    Putting and taking out a row is O(1), and O(log n) for one that waits, comes back, or changes whether its lane is servable.
    """

    def __init__(self) -> None:
        self._by_queue: dict[int, dict[int, Lane]] = {}
        self._lines: dict[int, Ascending[tuple[Turn, int]]] = {}  # by gate: (turn, queue) of servable lanes
        self._retries: Ascending[tuple[float, int, Row]] = Ascending()  # (due_s, ordinal, row)
        self._stopped: dict[int, Standing] = {}  # queues that are not open
        self.rows_stopped = [0] * len(Standing)  #: by standing, how many rows are in such queues; open ones count none
        self._last_ordinal = 0

    # Lanes

    def lane(self, lane: LaneId) -> Lane | None:
        """The lane, if it was announced and not removed."""
        return self._by_queue.get(lane[0], {}).get(lane[1])

    def of_queue(self, queue: int) -> list[Lane]:
        """All lanes of a queue, empty ones too."""
        return list(self._by_queue.get(queue, {}).values())

    def all(self) -> Iterator[Lane]:
        """All lanes, empty ones too."""
        return (lane for lanes in list(self._by_queue.values()) for lane in list(lanes.values()))

    def announce(self, queue: int, gate: int, turn: Turn) -> None:
        """Make the lane if there is none; the turn is taken unless it is servable."""
        lanes = self._by_queue.setdefault(queue, {})
        lane = lanes.get(gate)
        if lane is None:
            lanes[gate] = Lane(queue, gate, turn, self._stopped.get(queue, Standing.OPEN))
        elif not lane.is_servable:
            lane.turn = turn

    def set_turn(self, lane_id: LaneId, turn: Turn) -> None:
        """Give a lane another turn; a lane that is unknown is ignored."""
        lane = self.lane(lane_id)
        if lane is None:
            return
        if not lane.is_servable:
            lane.turn = turn
            return
        self._leave_line(lane)
        lane.turn = turn
        self._join_line(lane)

    def remove(self, lane_id: LaneId) -> None:
        """Forget a lane that has no rows."""
        lane = self.lane(lane_id)
        if lane is None or lane.count:
            return
        lanes = self._by_queue[lane.queue]
        del lanes[lane.gate]
        if not lanes:
            del self._by_queue[lane.queue]

    # Rows

    def put(self, row: Row) -> None:
        """Add a row to its lane. Raises: KeyError if the lane was not announced."""
        precedence, ordinal = row[2], row[3]
        lane = self._by_queue[row[0]][row[1]]
        if ordinal > self._last_ordinal:
            self._last_ordinal = ordinal
            level = lane.levels.get(precedence)
            if level is None:
                level = lane.levels[precedence] = OrderedDict()
            level[ordinal] = row
        else:
            lane.put_back(row)
        if precedence >= WAITING:
            lane.waiting += 1
            self._retries.add(_as_retry(row))
        else:
            lane.ready += 1
            if lane.ready == 1 and not lane.standing:
                self._join_line(lane)
        if lane.standing:
            self.rows_stopped[lane.standing] += 1

    def take_out(self, row: Row) -> None:
        """Take a row from its place. Raises: KeyError if it is not there."""
        precedence, ordinal = row[2], row[3]
        lane = self._by_queue[row[0]][row[1]]
        level = lane.levels.get(precedence)
        kept = None if level is None else level.pop(ordinal, None)
        if kept is None:
            kept = lane.take_returned(precedence, ordinal)
        elif not level:
            del lane.levels[precedence]
        if precedence >= WAITING:
            lane.waiting -= 1
            self._retries.discard(_as_retry(kept))
        else:
            lane.ready -= 1
            if not lane.ready and not lane.standing:
                self._leave_line(lane)
        if lane.standing:
            self.rows_stopped[lane.standing] -= 1

    def retries(self, after: tuple[float, int] | None, limit: int) -> list[Row]:
        """Rows that wait, by (due_s, ordinal), behind a place."""
        bound = () if after is None else (after[0], after[1] + 1)
        return [row for _, _, row in self._retries.since(bound, limit)]

    def move_times(self, by_s: float) -> None:
        """Add a duration to the time of every retry."""
        for due_s, _, row in list(self._retries):
            self.take_out(row)
            self.put(row._replace(due_s=due_s + by_s))

    # The lines at the gates

    def line(self, gate: int, after: Turn | None, limit: int) -> list[LaneRow]:
        """The servable lanes of a gate behind a turn, by turn."""
        line = self._lines.get(gate)
        if line is None:
            return []
        places = line.since(() if after is None else (after + 1,), limit)
        return [self._by_queue[queue][gate].as_row() for _, queue in places]

    def first_turn(self, gate: int) -> Turn | None:
        """The turn of the first servable lane of a gate."""
        line = self._lines.get(gate)
        first = None if line is None else line.first()
        return None if first is None else first[0]

    # Standings

    def standing(self, queue: int) -> Standing:
        """Whether a queue is open."""
        return self._stopped.get(queue, Standing.OPEN)

    def set_standing(self, queue: int, standing: Standing) -> list[int]:
        """Open, pause or retire a queue; answers the gates at which it is servable now and was not."""
        if standing:
            self._stopped[queue] = standing
        else:
            self._stopped.pop(queue, None)
        opened = []
        for lane in self.of_queue(queue):
            was_servable = lane.is_servable
            self._count_stopped(lane, -lane.count)
            lane.standing = standing
            self._count_stopped(lane, lane.count)
            if was_servable and standing:
                self._leave_line(lane)
            elif lane.is_servable and not was_servable:
                self._join_line(lane)
                opened.append(lane.gate)
        return opened

    def _count_stopped(self, lane: Lane, rows: int) -> None:
        if lane.standing:
            self.rows_stopped[lane.standing] += rows

    def _join_line(self, lane: Lane) -> None:
        line = self._lines.get(lane.gate)
        if line is None:
            line = self._lines[lane.gate] = Ascending()
        line.add((lane.turn, lane.queue))

    def _leave_line(self, lane: Lane) -> None:
        line = self._lines[lane.gate]
        line.discard((lane.turn, lane.queue))
        if not line:
            del self._lines[lane.gate]


def _as_retry(row: Row) -> tuple[float, int, Row]:
    return (row.due_s or 0.0, row.ordinal, row)
