"""The life of a work queue, as a table.

A queue is in exactly one state. What moves it is what it holds after something happened; `NEXT` names every step that is
allowed, and a step that is not in the table is a defect that shows at once.

    EMPTY ──rows──▶ INACTIVE ──asked──▶ LOADING ──heads──▶ READY ──leased──▶ IN_FLIGHT ──▶ (what is left)
                        ▲                                                        │
                        └──────────────── SNOOZED (all its rows wait) ◀──────────┘
"""

from __future__ import annotations

from enum import Enum

from frontier.errors import LifecycleError


class QueueState(Enum):
    """Where a work queue stands."""

    EMPTY = "empty"  #: it holds no URL
    INACTIVE = "inactive"  #: it holds URLs and waits for its turn
    LOADING = "loading"  #: its head was asked of the store
    READY = "ready"  #: its head is in memory; it goes as soon as a gate lets it ("parked" while none does)
    IN_FLIGHT = "in-flight"  #: as many of its URLs are leased as may be
    SNOOZED = "snoozed"  #: all its URLs wait for a retry


class Holds(Enum):
    """What a queue holds: the events of the table, strongest first."""

    LEASES = "its full number of leases"
    HEADS = "heads in memory"
    ASKED = "heads on their way"
    ROWS = "rows in the store"
    RETRIES = "only rows that wait"
    NOTHING = "nothing"


NEXT: dict[tuple[QueueState, Holds], QueueState] = {
    (QueueState.EMPTY, Holds.ROWS): QueueState.INACTIVE,
    (QueueState.INACTIVE, Holds.ASKED): QueueState.LOADING,
    (QueueState.INACTIVE, Holds.HEADS): QueueState.READY,
    (QueueState.INACTIVE, Holds.RETRIES): QueueState.SNOOZED,
    (QueueState.INACTIVE, Holds.NOTHING): QueueState.EMPTY,
    (QueueState.LOADING, Holds.HEADS): QueueState.READY,
    (QueueState.LOADING, Holds.ROWS): QueueState.INACTIVE,
    (QueueState.LOADING, Holds.RETRIES): QueueState.SNOOZED,
    (QueueState.LOADING, Holds.NOTHING): QueueState.EMPTY,
    (QueueState.READY, Holds.LEASES): QueueState.IN_FLIGHT,
    (QueueState.READY, Holds.ASKED): QueueState.LOADING,
    (QueueState.READY, Holds.ROWS): QueueState.INACTIVE,
    (QueueState.IN_FLIGHT, Holds.HEADS): QueueState.READY,
    (QueueState.IN_FLIGHT, Holds.ASKED): QueueState.LOADING,
    (QueueState.IN_FLIGHT, Holds.ROWS): QueueState.INACTIVE,
    (QueueState.IN_FLIGHT, Holds.RETRIES): QueueState.SNOOZED,
    (QueueState.IN_FLIGHT, Holds.NOTHING): QueueState.EMPTY,
    (QueueState.SNOOZED, Holds.HEADS): QueueState.READY,
    (QueueState.SNOOZED, Holds.ROWS): QueueState.INACTIVE,
}

#: The state that each holding rests in; a queue that is there already stays.
RESTS_IN: dict[Holds, QueueState] = {
    Holds.LEASES: QueueState.IN_FLIGHT,
    Holds.HEADS: QueueState.READY,
    Holds.ASKED: QueueState.LOADING,
    Holds.ROWS: QueueState.INACTIVE,
    Holds.RETRIES: QueueState.SNOOZED,
    Holds.NOTHING: QueueState.EMPTY,
}


def next_state(state: QueueState, holds: Holds) -> QueueState:
    """The state after `state` for a queue that now holds `holds`. Raises: LifecycleError."""
    if RESTS_IN[holds] is state:
        return state
    try:
        return NEXT[state, holds]
    except KeyError:
        raise LifecycleError(f"a queue that is {state.value} may not come to hold {holds.value}") from None
