"""The gates of the store in memory: their facts, and the order of those that the core does not hold."""

from __future__ import annotations

from anabranch.frontier.models import GateKey
from anabranch.frontier.stores.memory_order import Ascending
from anabranch.frontier.stores.messages import GateRow
from anabranch.frontier.turns import Turn


class Gates:
    """A gate is held, or has a turn (and a time before which it is closed), or has nothing to serve.

    O(log gates) per change of a turn, O(1) for a gate's facts.
    """

    def __init__(self) -> None:
        self.rows: dict[int, GateRow] = {}
        self.held: set[int] = set()
        self._windows: dict[int, tuple[Turn, float | None]] = {}  # those not held that have a turn: (turn, wakes_s)
        self._open: Ascending[tuple[Turn, int]] = Ascending()
        self._closed: Ascending[tuple[float, int]] = Ascending()  # (wakes_s, gate)

    def name(self, gate: int, key: GateKey) -> None:
        """Make the row of a gate that has none."""
        if gate not in self.rows:
            self.rows[gate] = GateRow(gate, key, 0.0, 0.0, 0.0, 0.0, 0.0, 0, 0.0, None)

    def hold(self, gate: int) -> None:
        """The core has it in memory."""
        self._forget_window(gate)
        self.held.add(gate)

    def leave(self, gate: int, turn: Turn | None, wakes_s: float | None) -> None:
        """The core has it no longer. A gate that is unknown is ignored."""
        if gate in self.rows:
            self.held.discard(gate)
            self._set_window(gate, turn, wakes_s)

    def wake(self, gate: int, turn: Turn) -> None:
        """Something can be served there with this turn. Ignored for a gate that is held, unknown, or earlier anyway."""
        if gate in self.held or gate not in self.rows:
            return
        old_turn, wakes_s = self._windows.get(gate, (None, None))
        if old_turn is None or turn < old_turn:
            self._set_window(gate, turn, wakes_s)

    def rest(self, gate: int) -> None:
        """Nothing can be served there."""
        self._set_window(gate, None, None)

    def first_open(self, now_s: float) -> int | None:
        """The gate with the smallest turn of those that are not held and not known to be closed."""
        while (first := self._closed.first()) is not None and first[0] <= now_s:
            _, gate = first
            turn, _ = self._windows[gate]
            self._set_window(gate, turn, None)
        soonest = self._open.first()
        return None if soonest is None else soonest[1]

    def next_opening(self) -> float | None:
        """When the next closed gate opens; only right after `first_open` of the same time."""
        first = self._closed.first()
        return None if first is None else first[0]

    def move_times(self, by_s: float) -> None:
        """Add a duration to every time."""
        for gate, row in self.rows.items():
            self.rows[gate] = row._replace(
                rests_until_s=row.rests_until_s + by_s,
                blocked_until_s=row.blocked_until_s + by_s,
                troubled_s=row.troubled_s + by_s,
            )
        for gate, (turn, wakes_s) in list(self._windows.items()):
            if wakes_s is not None:
                self._set_window(gate, turn, wakes_s + by_s)

    def _set_window(self, gate: int, turn: Turn | None, wakes_s: float | None) -> None:
        self._forget_window(gate)
        if turn is None:
            return
        self._windows[gate] = turn, wakes_s
        if wakes_s is None:
            self._open.add((turn, gate))
        else:
            self._closed.add((wakes_s, gate))

    def _forget_window(self, gate: int) -> None:
        window = self._windows.pop(gate, None)
        if window is None:
            return
        turn, wakes_s = window
        if wakes_s is None:
            self._open.discard((turn, gate))
        else:
            self._closed.discard((wakes_s, gate))
