"""Which URL may be fetched next, and when?

The story of a URL. It comes in as a `Candidate`. `intake` asks the filter (`seen`) whether it is known, `assignment` for its
work queue (host, BKDR, …) and its gate (its host), `queuerules` for its precedence; then it gets a number. All that one
call changes is one batch (`outbox`, `books`), and the store makes it one transaction: a page's end and its outlinks stand or
fall together. The filter learns of the URL only when that transaction is synced, so that it never knows more than the store.

Now the URL is a row in a lane: the part of its queue that passes one gate. Nothing of it is in memory. A gate that has
something to serve has a turn; those whose turn comes are read (`gatewindow`), each with the first of its lanes (`gatelines`),
and a lane's first rows when the gate could use them (`schedule`, `workqueues`). `lease()` takes a slot of an open gate, and of
its group's if there is one, and the head of its best lane. It never waits: if there is nothing to be had, `wake()` says when
there will be. `finish()` ends the lease (`endings`): the slot rests, the queue pays (`budgets`), the row moves to `done`,
waits for its retry (`retries`) or stays, and the queue's next lane comes to its gate.

    intake ─▶ stores (rows, one thread) ─▶ gatewindow ─▶ gatelines ─▶ workqueues ─▶ Lease ─▶ endings ─▶ stores

The core (`core.Frontier`) is synchronous, reads one injected clock and waits for no store; what an operator asks and orders
is in its `operations`. `aio.AsyncFrontier` is its thin face for tasks, woken by the store and by time (`bell`). `composition`
builds the core from a `FrontierOrder`; with `order` it is the only place that knows the room `dedup`. If the crawl is divided
among several Frontiers, `division` passes on what belongs to another.
"""

from anabranch.frontier.aio import AsyncFrontier, Drained
from anabranch.frontier.composition import open_frontier
from anabranch.frontier.core import Frontier
from anabranch.frontier.errors import FrontierError, LeaseLost, StoreUnavailable
from anabranch.frontier.models import (
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
from anabranch.frontier.order import FrontierOrder
from anabranch.frontier.policies.budgets import Budgets
from anabranch.frontier.policies.sheets import Override
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
