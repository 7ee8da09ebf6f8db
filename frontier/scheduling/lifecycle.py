"""The life of a work queue, as a table.

A queue is in exactly one state, which follows from the strongest of its `Holds`. `STEPS` lists every step and its cause, and
`NEVER` the impossible ones and the reason. A step that is not in the table is a defect.

    EMPTY ──rows──▶ INACTIVE ──asked──▶ LOADING ──heads──▶ READY ──leased──▶ IN_FLIGHT ──▶ (what is left)
                        ▲                                                        │
                        └──────────────── SNOOZED (all its rows wait) ◀──────────┘

    PAUSED and RETIRED are entered from every state, and left for what the queue holds.

`scripts/lifecycle_diagram.py` draws docs/explanation/lifecycle.md from these tables.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from anabranch.frontier.errors import LifecycleError


class QueueState(Enum):
    """The state of a work queue."""

    EMPTY = "empty"  #: it holds no URL
    INACTIVE = "inactive"  #: it holds URLs and waits for its turn
    LOADING = "loading"  #: its head was asked of the store
    READY = "ready"  #: its head is in memory; it goes as soon as a gate lets it ("parked" while none does)
    IN_FLIGHT = "in-flight"  #: as many of its URLs are leased as may be, or all that it could give
    SNOOZED = "snoozed"  #: all its URLs wait for a retry
    RETIRED = "retired"  #: over its total budget, or put aside by the operator; its URLs are kept
    PAUSED = "paused"  #: stopped by the operator until it is resumed

    # Members are single objects; Enum's own hash is a Python call, and tables by state are read at every lease.
    __hash__ = object.__hash__


class Holds(Enum):
    """The holdings of a queue, strongest first: the events of the table.

    LEASES: `per_queue` of its URLs are leased, or at least one is and nothing else can be served.
    """

    PAUSED = "an order to pause"
    RETIRED = "an order to retire"
    LEASES = "all the leases it may have"
    HEADS = "heads in memory"
    ASKED = "heads on their way"
    ROWS = "rows in the store"
    RETRIES = "only rows that wait"
    NOTHING = "nothing"

    __hash__ = object.__hash__


#: The state that follows from each holding.
RESTS_IN: Final[dict[Holds, QueueState]] = {
    Holds.PAUSED: QueueState.PAUSED,
    Holds.RETIRED: QueueState.RETIRED,
    Holds.LEASES: QueueState.IN_FLIGHT,
    Holds.HEADS: QueueState.READY,
    Holds.ASKED: QueueState.LOADING,
    Holds.ROWS: QueueState.INACTIVE,
    Holds.RETRIES: QueueState.SNOOZED,
    Holds.NOTHING: QueueState.EMPTY,
}

_PAUSE = {Holds.PAUSED: "the operator pauses it"}
_RETIRE = {Holds.RETIRED: "the operator retires it, or lowers its budget to what it spent or less"}
_SPENT = {Holds.RETIRED: "its total budget is spent, a lease ended with RETIRE, or the operator retires it"}
_REOPENED = {
    Holds.LEASES: "it may run again; what was leased before is still out",
    Holds.HEADS: "it may run again; a URL came back to memory meanwhile",
    Holds.ASKED: "it may run again; its heads are still on their way",
    Holds.ROWS: "it may run again, and waits for its turn",
    Holds.RETRIES: "it may run again; all its URLs wait for a retry",
    Holds.NOTHING: "it may run again, and holds no URL",
}

#: Every possible step: from a state, by the new holding -> its cause.
STEPS: Final[dict[QueueState, dict[Holds, str]]] = {
    QueueState.EMPTY: _PAUSE | _RETIRE | {Holds.ROWS: "a URL is queued"},
    QueueState.INACTIVE: _PAUSE | _SPENT | {
        Holds.ASKED: "it is activated: a gate could serve it",
        Holds.HEADS: "a retry comes due or a URL is given back, and is put at the head",
        Holds.LEASES: "what was not leased was known already, or was removed by the operator",
        Holds.RETRIES: "what did not wait was known already, or was removed by the operator",
        Holds.NOTHING: "its last rows were known already, or were removed by the operator",
    },
    QueueState.LOADING: _PAUSE | _SPENT | {
        Holds.HEADS: "the store answers, or a retry comes due first",
        Holds.ROWS: "the question is dropped: the answer brought nothing, or better rows came meanwhile",
        Holds.LEASES: "the answer brings nothing: only what is leased is left",
        Holds.RETRIES: "the answer brings nothing: only rows that wait are left",
        Holds.NOTHING: "the answer brings nothing: its rows were known already, or removed",
    },
    QueueState.READY: _PAUSE | _SPENT | {
        Holds.LEASES: "its head is leased",
        Holds.ASKED: "better rows came: its heads are given up and read again",
        Holds.ROWS: "its heads are given up: a better queue goes first, or its gate leaves memory",
        Holds.RETRIES: "the operator removes its heads; the rest waits",
        Holds.NOTHING: "the operator removes its URLs",
    },
    QueueState.IN_FLIGHT: _PAUSE | _SPENT | {
        Holds.HEADS: "a lease ended; the next head is in memory",
        Holds.ASKED: "a lease ended; the next heads are on their way",
        Holds.ROWS: "a lease ended; its session budget is spent, or its next heads are in the store only",
        Holds.RETRIES: "a lease ended; all that is left waits for a retry",
        Holds.NOTHING: "its last URL ended",
    },
    QueueState.SNOOZED: _PAUSE | _RETIRE | {
        Holds.HEADS: "a retry comes due and is put at the head",
        Holds.ROWS: "a URL is queued, or a retry comes due",
        Holds.NOTHING: "the operator removes its URLs",
    },
    QueueState.RETIRED: _PAUSE | _REOPENED,
    QueueState.PAUSED: _REOPENED | {Holds.RETIRED: "it may run again but is over its budget; or the operator retires it"},
}  # fmt: skip

_NO_ROWS = "a queue without rows has nothing that could be read, leased or waited for"
_NOT_DUE = "heads are asked for only where rows can be served; one that waits must come due first"

#: Steps that cannot happen, and why.
NEVER: dict[tuple[QueueState, Holds], str] = {
    (QueueState.EMPTY, Holds.LEASES): _NO_ROWS,
    (QueueState.EMPTY, Holds.HEADS): _NO_ROWS,
    (QueueState.EMPTY, Holds.ASKED): _NO_ROWS,
    (QueueState.EMPTY, Holds.RETRIES): _NO_ROWS,
    (QueueState.SNOOZED, Holds.LEASES): "nothing of it is leased, and only a head in memory can be",
    (QueueState.SNOOZED, Holds.ASKED): _NOT_DUE,
}

#: The same table by pair: (state, holding) -> the state after.
NEXT: dict[tuple[QueueState, Holds], QueueState] = {
    (state, holds): RESTS_IN[holds] for state, steps in STEPS.items() for holds in steps
}


def next_state(state: QueueState, holds: Holds) -> QueueState:
    """The state after `state` for a queue that now holds `holds`. Raises: LifecycleError for an impossible step."""
    rests_in = RESTS_IN[holds]
    if rests_in is not state and holds not in STEPS[state]:
        why = NEVER[state, holds]
        raise LifecycleError(f"a queue that is {state.value} may not come to hold {holds.value}: {why}")
    return rests_in
