"""Which URL may be fetched next, and when?

A URL comes in as a `Candidate`. `intake` asks the assignment policy for its work queue (BKDR, host, …) and its gate (its
host), asks the filter whether it was seen, and numbers it. The call's rows go to the store as one batch: a page's end and
its outlinks are one transaction. The filter learns of a URL only when that transaction is synced.

The URL now waits in a lane: the part of its queue that passes one gate. `schedule` keeps the gates that have something to
serve in one heap, by opening time. `lease()` takes a slot of an open gate and the head of its best lane, and never waits:
if there is nothing to be had, `wake()` says when there will be. `finish()` ends the lease: the slot rests, the row moves to
`done` or waits for its retry, the queue comes back to its gates.

    intake ─▶ stores (rows, one thread) ─▶ workqueues (windows) ─▶ schedule (gates) ─▶ Lease ─▶ finish ─▶ stores

The core (`core.Frontier`) is synchronous, reads one injected clock and waits for no store: the only I/O of its own is the
marking of the filter. `aio.AsyncFrontier` is its thin face for tasks. `composition` builds the core from a `FrontierOrder`,
and is the only place that knows the room `dedup`.
"""

from frontier.aio import AsyncFrontier, Drained
from frontier.composition import FrontierOrder, open_frontier
from frontier.core import Frontier
from frontier.models import Candidate, Lease, Outcome, OutcomeKind, Verdict, VerdictKind

__all__ = [
    "AsyncFrontier",
    "Candidate",
    "Drained",
    "Frontier",
    "FrontierOrder",
    "Lease",
    "Outcome",
    "OutcomeKind",
    "Verdict",
    "VerdictKind",
    "open_frontier",
]
