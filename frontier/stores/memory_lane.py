"""One lane of the store in memory: the rows of a queue at a gate, in the order in which they are served."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from heapq import merge
from itertools import chain, islice
from typing import Final

from anabranch.frontier.models import WAITING, Row
from anabranch.frontier.stores.memory_order import Ascending
from anabranch.frontier.stores.messages import LaneRow, Standing
from anabranch.frontier.turns import Turn

_new: Final = tuple.__new__


class Lane:
    """The rows of one queue at one gate."""

    __slots__ = ("gate", "levels", "queue", "ready", "returned", "standing", "turn", "waiting")

    def __init__(self, queue: int, gate: int, turn: Turn, standing: Standing) -> None:
        self.queue = queue
        self.gate = gate
        self.turn = turn
        self.standing = standing  #: its queue's; what is not OPEN is shelved
        self.ready = 0  #: rows that can be served, leased ones included
        self.waiting = 0  #: rows that wait for a retry
        #: Rows by precedence, then in the order they came: rising ordinals, but for rows that wait.
        self.levels: dict[int, OrderedDict[int, Row]] = {}
        #: Rows to serve that came after younger ones of their precedence: (precedence, ordinal, row).
        self.returned: Ascending[tuple[int, int, Row]] | None = None

    @property
    def is_servable(self) -> bool:
        """It stands in its gate's line."""
        return self.ready > 0 and not self.standing

    @property
    def count(self) -> int:
        """All its rows."""
        return self.ready + self.waiting

    def as_row(self) -> LaneRow:
        """What the contract calls a lane."""
        return _new(LaneRow, (self.queue, self.gate, self.turn, self.ready + self.waiting, self.waiting))

    def heads(self, limit: int) -> Iterable[Row]:
        """The first rows that do not wait."""
        levels = self.levels
        served = [precedence for precedence in levels if precedence < WAITING]
        if not self.returned and len(served) == 1:
            return islice(levels[served[0]].values(), limit)
        in_order = chain.from_iterable([levels[precedence].values() for precedence in sorted(served)])
        returned = [] if self.returned is None else [row for _, _, row in self.returned.since((), limit)]
        return islice(merge(in_order, returned, key=place_in_lane), limit)

    def find(self, ordinal: int) -> Row | None:
        """The row with this number, if it is here. O(precedences), and O(rows that came back)."""
        found = (level.get(ordinal) for level in list(self.levels.values()))
        row = next((row for row in found if row is not None), None)
        if row is None and self.returned is not None:
            row = next((row for _, number, row in list(self.returned) if number == ordinal), None)
        return row

    def rows(self) -> list[Row]:
        """All rows, in no order."""
        returned = [] if self.returned is None else [row for _, _, row in self.returned]
        return list(chain(*(list(level.values()) for level in list(self.levels.values())), returned))

    def put_back(self, row: Row) -> None:
        """Add a row that may be older than others that are here."""
        _, _, precedence, ordinal = row[:4]
        level = self.levels.get(precedence)
        if level is None:
            level = self.levels[precedence] = OrderedDict()
        elif precedence < WAITING and next(reversed(level)) > ordinal:
            if self.returned is None:
                self.returned = Ascending()
            self.returned.add((precedence, ordinal, row))
            return
        level[ordinal] = row

    def take_returned(self, precedence: int, ordinal: int) -> Row:
        """Take a row out of `returned`. Raises: KeyError if it is not there."""
        found = [] if self.returned is None else self.returned.since((precedence, ordinal), 1)
        if self.returned is None or not found or found[0][:2] != (precedence, ordinal):
            raise KeyError(ordinal)
        self.returned.discard(found[0])
        return found[0][2]


def place_in_lane(row: Row) -> tuple[int, ...]:
    """Rows of a lane are served by precedence, then in the order of acceptance."""
    return row[2:4]
