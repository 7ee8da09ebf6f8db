"""Which URL may be fetched next, and when?

The way of a URL is straight, one file a step:

    admission ─▶ storelink ─▶ stores ─▶ scheduling.schedule ─▶ Lease ─▶ completion ─▶ storelink ─▶ stores

`admission`: a `Candidate` comes in. The filter says whether it is known, `policies` which work queue (host, BKDR, …), gate (its
host) and precedence it has; then it gets a number. `storelink`: all that one call changes is one batch, and the store makes it
one transaction: a page's end and its outlinks are kept together or not at all. The filter learns of the URL only when that
transaction is synced, so that it never knows more than the store.

Now the URL is a row in a lane: the part of its queue that passes one gate. Nothing of it is in memory. `scheduling.schedule`:
a gate that has something to serve has a turn; those whose turn comes are read (`window`), each with the first of its lanes
(`readylist`), and a lane's first rows when the gate could use them (`queues`). `lease()` takes a slot of an open gate
(`gates`), and of its group's if there is one, and the head of its best lane. It never waits: if there is none, `wake()` says
when to ask again. `completion`: `finish()` ends the lease. The slot rests, the queue pays, the row moves to `done`, waits for
its retry (`retries`) or stays, and the queue's next lane comes to its gate.

The core (`frontier.Frontier`) is synchronous, reads one injected clock and waits for no store; what an operator asks and orders
is in its `operations`. `aio.AsyncFrontier` is its asyncio face. `composition` builds the core from a `FrontierOrder`; with
`filters` it is the only place that knows the room `dedup`. If the crawl is divided among several Frontiers, `division` passes
on what belongs to another.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anabranch.frontier.aio import AsyncFrontier, Drained
    from anabranch.frontier.composition import open_frontier
    from anabranch.frontier.errors import FrontierError, LeaseLost, StoreUnavailable
    from anabranch.frontier.frontier import Frontier
    from anabranch.frontier.order import FrontierOrder
    from anabranch.frontier.policies.budgets import Budgets
    from anabranch.frontier.policies.sheets import Override
    from anabranch.frontier.records import (
        Candidate,
        HostTrouble,
        Lease,
        Outcome,
        OutcomeKind,
        Verdict,
        VerdictKind,
        WaitsFor,
        Wake,
    )
    from anabranch.frontier.scheduling.gates import Politeness

__all__ = [
    "AsyncFrontier",
    "Budgets",
    "Candidate",
    "Drained",
    "Frontier",
    "FrontierError",
    "FrontierOrder",
    "HostTrouble",
    "Lease",
    "LeaseLost",
    "Outcome",
    "OutcomeKind",
    "Override",
    "Politeness",
    "StoreUnavailable",
    "Verdict",
    "VerdictKind",
    "WaitsFor",
    "Wake",
    "open_frontier",
]

#: Where the names are. They are imported at their first use: who needs `records` alone does not wait for numpy.
_MODULES = {
    "AsyncFrontier": "anabranch.frontier.aio",
    "Budgets": "anabranch.frontier.policies.budgets",
    "Candidate": "anabranch.frontier.records",
    "Drained": "anabranch.frontier.aio",
    "Frontier": "anabranch.frontier.frontier",
    "FrontierError": "anabranch.frontier.errors",
    "FrontierOrder": "anabranch.frontier.order",
    "HostTrouble": "anabranch.frontier.records",
    "Lease": "anabranch.frontier.records",
    "LeaseLost": "anabranch.frontier.errors",
    "Outcome": "anabranch.frontier.records",
    "OutcomeKind": "anabranch.frontier.records",
    "Override": "anabranch.frontier.policies.sheets",
    "Politeness": "anabranch.frontier.scheduling.gates",
    "StoreUnavailable": "anabranch.frontier.errors",
    "Verdict": "anabranch.frontier.records",
    "VerdictKind": "anabranch.frontier.records",
    "WaitsFor": "anabranch.frontier.records",
    "Wake": "anabranch.frontier.records",
    "open_frontier": "anabranch.frontier.composition",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
