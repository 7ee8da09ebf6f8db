"""What the core knows of the gates that it does not have in memory: whether any could serve, and when the next opens. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from anabranch.frontier.stores.messages import GatesRead
from anabranch.frontier.turns import Turn

Missed = Mapping[int, Sequence[tuple[Turn, int]]]  # gate -> (turn, queue) of lanes


class StoredGates:
    """Knowledge of rows, kept up while the rows change. Every operation costs O(1)."""

    def __init__(self) -> None:
        self.more = True  #: gates that could serve may stand in the store
        self.is_asked = False  #: gates are on their way by turn
        self.wakes_s: float | None = None  #: when the next gate in the store opens, if one is closed
        self._limit = 0  #: how many were asked for
        self._woken = False  #: one more got something to serve while a read was under way
        self._missed: dict[int, list[tuple[Turn, int]]] = {}  #: lanes by gate that came while a read was under way
        #: When the next opens of those that left since gates were last asked for: no answer has them.
        self._left_s: float | None = None
        self._stuck_s = -math.inf  #: when no room could be made for others

    def may_serve(self, now_s: float) -> bool:
        """Gates that could serve may stand in the store."""
        return self.more or (self.wakes_s is not None and self.wakes_s <= now_s)

    def next_time(self) -> float | None:
        """When a gate in the store opens that could be read then; None if no time alone will help."""
        wakes_s = self.wakes_s
        return None if wakes_s is None or self.is_asked or wakes_s <= self._stuck_s else wakes_s

    def stuck(self, now_s: float) -> None:
        """No room can be made for others: all in memory has leases out, rests, or is on its way."""
        self._stuck_s = now_s

    def note_woken(self) -> None:
        """Gates got something to serve otherwise: none of the answers under way need have them."""
        self.more = self._woken = True

    def woken(self, gate_id: int, turn: Turn, queue_id: int) -> None:
        """A gate got something to serve: a lane of this queue."""
        if self.is_asked:  # the answer under way may bring the gate, as it was before
            self._missed.setdefault(gate_id, []).append((turn, queue_id))
        self.note_woken()

    def left(self, turn: Turn | None, wakes_s: float | None) -> None:
        """A gate left memory: with something to serve if it has a turn, at once or when it opens."""
        if wakes_s is not None:
            self.wakes_s = min(wakes_s, math.inf if self.wakes_s is None else self.wakes_s)
            self._left_s = min(wakes_s, math.inf if self._left_s is None else self._left_s)
        elif turn is not None:
            self.note_woken()

    def ask(self, limit: int) -> int:
        """Note that so many are asked for."""
        self.is_asked, self._woken, self._left_s, self._limit = True, False, None, limit
        return limit

    def answered(self, answer: GatesRead) -> Missed:
        """Gates came; the result are lanes that came to some of them meanwhile."""
        if answer.asked is not None:
            return {}
        self.more = self._woken or len(answer.gates) >= self._limit
        self.is_asked = False
        times = (answer.wakes_s, self._left_s)
        self.wakes_s = min((time_s for time_s in times if time_s is not None), default=None)
        missed, self._missed = self._missed, {}
        return missed
