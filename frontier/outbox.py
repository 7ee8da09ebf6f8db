"""What the core is about to tell its store and ask of it: one batch under way, and the questions that follow it."""

from __future__ import annotations

from typing import Literal

from anabranch.frontier.scheduling.gatelines import Group, Line
from anabranch.frontier.scheduling.workqueues import Lane
from anabranch.frontier.stores.messages import Batch
from anabranch.frontier.turns import Turn

#: Lanes that a gate brings along when it is read.
LANES_AT_ONCE = 16
#: Waiting rows that are read at a time.
RETRIES_AT_ONCE = 2500


class Outbox:
    """The batch of this call, the questions of this call, and the one sequence that ordinals and turns come from."""

    def __init__(self, last_number: int) -> None:
        self.batch = Batch(1)
        self.last_number = last_number  #: the latest of the sequence
        self.heads: list[Lane] = []  #: lanes whose heads are asked for
        self.lanes: list[tuple[Line, Turn | None]] = []  #: lines whose next lanes are asked for, and behind which turn
        self.gates: list[Line | Group] = []  #: gates that are asked for by name
        self.next_gates = 0  #: how many gates are asked for by turn; 0 = none
        self.retries: tuple[float, int] | Literal[False] | None = (
            False  #: the place behind which waiting rows are asked for
        )

    def number(self) -> int:
        """The next number of the sequence."""
        self.last_number += 1
        return self.last_number

    def has_questions(self) -> bool:
        """Something is asked."""
        return bool(self.heads or self.next_gates or self.lanes or self.gates) or self.retries is not False

    def questions_asked(self) -> None:
        """The store has them all."""
        self.heads, self.lanes, self.gates, self.next_gates, self.retries = [], [], [], 0, False
