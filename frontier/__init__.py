"""Which URL may be fetched next, and when?

A URL's way is one file a step:

    admission ─▶ storelink ─▶ stores ─▶ scheduling.schedule ─▶ Lease ─▶ completion ─▶ storelink ─▶ stores

`admission`: a `Candidate` comes in. The filter decides whether it is new, `policies` give it a work queue, a gate and a
precedence. `storelink`: the changes of one call are one batch, and one transaction of the store. The filter gets the URL only
when that transaction is durable. Now the URL is a row in a lane, the part of its queue that passes one gate.
`scheduling.schedule`: gates with something to serve are read into the `window`, each with the first of its lanes (`readylist`);
a lane's first rows are read when the gate can use them (`queues`). `lease()` takes a slot of an open gate and the head of its
best lane; if there is none, `wake()` returns when to ask again. `completion`: `finish()` ends the lease. The slot rests, the
queue pays, and the row moves to `done`, waits for its retry (`retries`) or stays.

The core (`frontier.Frontier`) is synchronous, reads one injected clock and does not wait for the store, except in `operations`,
the operator's calls. `aio.AsyncFrontier` wraps it for asyncio. `composition` builds it from a `FrontierOrder`; only it and
`filters` know the room `dedup`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anabranch.frontier.aio import AsyncFrontier as AsyncFrontier
    from anabranch.frontier.aio import Drained as Drained
    from anabranch.frontier.composition import open_frontier as open_frontier
    from anabranch.frontier.errors import FrontierError as FrontierError
    from anabranch.frontier.errors import LeaseLost as LeaseLost
    from anabranch.frontier.errors import StoreFull as StoreFull
    from anabranch.frontier.errors import StoreUnavailable as StoreUnavailable
    from anabranch.frontier.errors import UnknownQueue as UnknownQueue
    from anabranch.frontier.frontier import Frontier as Frontier
    from anabranch.frontier.order import FrontierOrder as FrontierOrder
    from anabranch.frontier.policies.assignment import QueuePolicy as QueuePolicy
    from anabranch.frontier.policies.budgets import Budgets as Budgets
    from anabranch.frontier.policies.sheets import Override as Override
    from anabranch.frontier.policies.userfunctions import is_user_function as is_user_function
    from anabranch.frontier.records import Candidate as Candidate
    from anabranch.frontier.records import HostTrouble as HostTrouble
    from anabranch.frontier.records import Lease as Lease
    from anabranch.frontier.records import Outcome as Outcome
    from anabranch.frontier.records import OutcomeKind as OutcomeKind
    from anabranch.frontier.records import Verdict as Verdict
    from anabranch.frontier.records import VerdictKind as VerdictKind
    from anabranch.frontier.records import WaitsFor as WaitsFor
    from anabranch.frontier.records import Wake as Wake
    from anabranch.frontier.scheduling.gates import Politeness as Politeness
    from anabranch.frontier.scheduling.lifecycle import QueueState as QueueState
    from anabranch.frontier.seen import SeenFilter as SeenFilter
    from anabranch.frontier.stores.contract import FrontierStore as FrontierStore
    from anabranch.frontier.stores.sql.browse import GATE_STATES as GATE_STATES
    from anabranch.frontier.stores.sql.browse import QUEUE_STATES as QUEUE_STATES
    from anabranch.frontier.stores.sql.browse import BrowsedTable as BrowsedTable
    from anabranch.frontier.stores.sql.browse import PageQuery as PageQuery
    from anabranch.frontier.stores.sql.browse import QueuedUrl as QueuedUrl
    from anabranch.frontier.stores.sql.browse import browsed_tables as browsed_tables
    from anabranch.frontier.stores.sql.browse import first_urls as first_urls
    from anabranch.frontier.stores.sql.browse import make_tables as make_tables
    from anabranch.frontier.stores.sql.browse import size_of as size_of
    from anabranch.frontier.stores.sql.browse import write_facts as write_facts

#: Names by module. They are imported at their first use: who needs `records` alone does not wait for numpy.
_NAMES = {
    "aio": "AsyncFrontier Drained",
    "composition": "open_frontier",
    "errors": "FrontierError LeaseLost StoreFull StoreUnavailable UnknownQueue",
    "frontier": "Frontier",
    "order": "FrontierOrder",
    "policies.assignment": "QueuePolicy",
    "policies.budgets": "Budgets",
    "policies.sheets": "Override",
    "policies.userfunctions": "is_user_function",
    "records": "Candidate HostTrouble Lease Outcome OutcomeKind Verdict VerdictKind WaitsFor Wake",
    "scheduling.gates": "Politeness",
    "scheduling.lifecycle": "QueueState",
    "seen": "SeenFilter",
    "stores.contract": "FrontierStore",
    "stores.sql.browse": (
        "GATE_STATES QUEUE_STATES BrowsedTable PageQuery QueuedUrl "
        "browsed_tables first_urls make_tables size_of write_facts"
    ),
}
_MODULES = {name: f"{__name__}.{module}" for module, names in _NAMES.items() for name in names.split()}

__all__ = list(_MODULES)


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
