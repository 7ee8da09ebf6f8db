"""The recount of the store in memory: its rows against all that is kept beside them. Costs a look at every row."""

from __future__ import annotations

from collections import Counter

from anabranch.frontier.errors import InvariantBroken
from anabranch.frontier.models import WAITING
from anabranch.frontier.stores.memory_lane import Lane, place_in_lane
from anabranch.frontier.stores.memory_lanes import Lanes
from anabranch.frontier.stores.messages import Standing
from anabranch.frontier.turns import Turn


def check_lanes(lanes: Lanes) -> None:
    """Compare counts, order and lines with the rows. Raises: InvariantBroken, naming the first difference."""
    by_standing: Counter[Standing] = Counter()
    waiting = 0
    for lane in lanes.all():
        _check_lane(lane)
        by_standing[lane.standing] += lane.count
        waiting += lane.waiting
        if lane.standing is not lanes.standing(lane.queue):
            raise InvariantBroken(f"{lane.as_row()} is {lane.standing.name}, its queue is not")
        if lane.is_servable != (lane.as_row() in lanes.line(lane.gate, Turn(lane.turn - 1), 1)):
            raise InvariantBroken(f"{lane.as_row()} is servable or in line, and not both")
    for standing in (Standing.PAUSED, Standing.RETIRED):
        if by_standing[standing] != lanes.rows_stopped[standing]:
            raise InvariantBroken(
                f"{by_standing[standing]} rows are {standing.name}, counted are {lanes.rows_stopped[standing]}"
            )
    timed = len(lanes.retries(None, waiting + 1))
    if timed != waiting:
        raise InvariantBroken(f"{waiting} rows wait, {timed} have a time")


def _check_lane(lane: Lane) -> None:
    rows = lane.rows()
    waiting = sum(row.precedence >= WAITING for row in rows)
    if (len(rows), waiting) != (lane.count, lane.waiting):
        raise InvariantBroken(f"{lane.as_row()} holds {len(rows)} rows, {waiting} of them wait")
    heads = [place_in_lane(row) for row in lane.heads(len(rows))]
    if heads != sorted(place_in_lane(row) for row in rows if row.precedence < WAITING):
        raise InvariantBroken(f"{lane.as_row()} has its heads out of order")
