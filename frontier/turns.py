"""Turns: the place of a lane in its gate's line, and of a gate among those that are not in memory.

A turn is one 64-bit integer, so that it can be compared, indexed and stored as it is: the queue's precedence (smaller is
served first), then the arrival. Arrivals and ordinals are numbers of one rising sequence, so no two are equal and equals stand
first come, first served.
"""

from __future__ import annotations

from typing import Final, NewType

#: precedence << 48 | arrival
Turn = NewType("Turn", int)

_ARRIVAL_BITS: Final = 48


def turn_of(precedence: int, arrival: int) -> Turn:
    """The turn of a lane of a queue of this precedence that came with this number of the sequence."""
    return Turn(precedence << _ARRIVAL_BITS | arrival)


def precedence_of(turn: Turn) -> int:
    """The queue precedence in a turn."""
    return turn >> _ARRIVAL_BITS


def with_precedence(turn: Turn, precedence: int) -> Turn:
    """The same arrival at another precedence."""
    return turn_of(precedence, turn & ((1 << _ARRIVAL_BITS) - 1))
