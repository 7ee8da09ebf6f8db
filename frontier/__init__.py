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
    from anabranch.frontier.admission import Prepared as Prepared
    from anabranch.frontier.aio import AsyncFrontier as AsyncFrontier
    from anabranch.frontier.aio import Drained as Drained
    from anabranch.frontier.completion import HOST_BUSY as HOST_BUSY
    from anabranch.frontier.completion import trouble_of as trouble_of
    from anabranch.frontier.composition import assignment_of as assignment_of
    from anabranch.frontier.composition import check_order as check_order
    from anabranch.frontier.composition import clear_filter as clear_filter
    from anabranch.frontier.composition import open_frontier as open_frontier
    from anabranch.frontier.composition import precedence_of as precedence_of
    from anabranch.frontier.composition import share_rule_of as share_rule_of
    from anabranch.frontier.composition import wake_nobody as wake_nobody
    from anabranch.frontier.errors import FrontierError as FrontierError
    from anabranch.frontier.errors import LeaseLost as LeaseLost
    from anabranch.frontier.errors import StoreFull as StoreFull
    from anabranch.frontier.errors import StoreUnavailable as StoreUnavailable
    from anabranch.frontier.errors import UnknownQueue as UnknownQueue
    from anabranch.frontier.filterchoice import FILTER_PARAMETERS as FILTER_PARAMETERS
    from anabranch.frontier.filterchoice import FilterChoice as FilterChoice
    from anabranch.frontier.filterchoice import filter_choice as filter_choice
    from anabranch.frontier.filterchoice import loss_warning as loss_warning
    from anabranch.frontier.filters import SharedFilter as SharedFilter
    from anabranch.frontier.filters import open_shared as open_shared
    from anabranch.frontier.frontier import Frontier as Frontier
    from anabranch.frontier.hosts.embedding.leaseboard import OutElsewhere as OutElsewhere
    from anabranch.frontier.hosts.embedding.leaseboard import read_board as read_board
    from anabranch.frontier.inspect.dump import URI_PRECEDENCE as URI_PRECEDENCE
    from anabranch.frontier.inspect.dump import dump_lines as dump_lines
    from anabranch.frontier.inspect.dump import load_dump as load_dump
    from anabranch.frontier.inspect.explain import NEVER_SCHEDULED as NEVER_SCHEDULED
    from anabranch.frontier.inspect.explain import NOT_STORED as NOT_STORED
    from anabranch.frontier.inspect.explain import REFUSED as REFUSED
    from anabranch.frontier.inspect.explain import Explanation as Explanation
    from anabranch.frontier.inspect.explain import GateView as GateView
    from anabranch.frontier.inspect.explain import QueueView as QueueView
    from anabranch.frontier.inspect.explain import UrlFacts as UrlFacts
    from anabranch.frontier.inspect.explain import explain_queue as explain_queue
    from anabranch.frontier.inspect.explain import explain_url as explain_url
    from anabranch.frontier.inspect.explain import text_of as text_of
    from anabranch.frontier.inspect.load import LoadReport as LoadReport
    from anabranch.frontier.inspect.operations import Operations as Operations
    from anabranch.frontier.inspect.recovery import RecoveryJournal as RecoveryJournal
    from anabranch.frontier.inspect.recovery import load_journal as load_journal
    from anabranch.frontier.inspect.statistics import FrontierCounts as FrontierCounts
    from anabranch.frontier.inspect.statistics import FrontierStatistics as FrontierStatistics
    from anabranch.frontier.order import FrontierOrder as FrontierOrder
    from anabranch.frontier.policies.assignment import PolitenessScope as PolitenessScope
    from anabranch.frontier.policies.assignment import QueuePolicy as QueuePolicy
    from anabranch.frontier.policies.assignment import policy_warning as policy_warning
    from anabranch.frontier.policies.budgets import Budgets as Budgets
    from anabranch.frontier.policies.groups import is_group as is_group
    from anabranch.frontier.policies.shares import MOST_SHARES as MOST_SHARES
    from anabranch.frontier.policies.shares import ShareRule as ShareRule
    from anabranch.frontier.policies.sheets import HostTable as HostTable
    from anabranch.frontier.policies.sheets import Override as Override
    from anabranch.frontier.policies.sheets import Settings as Settings
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
    from anabranch.frontier.scheduling.fairness import WorkerLimits as WorkerLimits
    from anabranch.frontier.scheduling.gates import Backoff as Backoff
    from anabranch.frontier.scheduling.gates import Politeness as Politeness
    from anabranch.frontier.scheduling.lifecycle import RESTS_IN as RESTS_IN
    from anabranch.frontier.scheduling.lifecycle import QueueState as QueueState
    from anabranch.frontier.seen import SeenFilter as SeenFilter
    from anabranch.frontier.stores.contract import Counters as Counters
    from anabranch.frontier.stores.contract import FailedRecord as FailedRecord
    from anabranch.frontier.stores.contract import FrontierStore as FrontierStore
    from anabranch.frontier.stores.contract import JobCounts as JobCounts
    from anabranch.frontier.stores.sql import CRAWL as CRAWL
    from anabranch.frontier.stores.sql import METADATA as METADATA
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
    from anabranch.frontier.stores.sql.forget import forget_urls as forget_urls
    from anabranch.frontier.stores.sql.livecopy import StoreDecides as StoreDecides
    from anabranch.frontier.stores.sql.livecopy import copy_live as copy_live
    from anabranch.frontier.stores.sql.livecopy import live_counters as live_counters
    from anabranch.frontier.stores.sql.postgres import PostgresDatabase as PostgresDatabase
    from anabranch.frontier.stores.sql.requeue import epochs_of as epochs_of
    from anabranch.frontier.stores.sql.requeue import pages_of as pages_of
    from anabranch.frontier.stores.sql.requeue import requeue as requeue
    from anabranch.frontier.stores.sql.requeue import reserve_numbers as reserve_numbers
    from anabranch.frontier.stores.sql.schema import kept_identity as kept_identity
    from anabranch.frontier.stores.sql.schema import renew_shared as renew_shared
    from anabranch.frontier.stores.sql.settings import copy_settings as copy_settings
    from anabranch.frontier.stores.sql.statements import SERVER_TIME as SERVER_TIME
    from anabranch.frontier.stores.sql.store import RETRY_S as RETRY_S
    from anabranch.frontier.stores.sql.store import SqlStore as SqlStore
    from anabranch.frontier.stores.sql.work import Patience as Patience
    from anabranch.frontier.stores.sql.worker import Shared as Shared
    from anabranch.frontier.stores.sql.worker import WorkerIdentity as WorkerIdentity
    from anabranch.frontier.stores.sql.worker import end_all_workers as end_all_workers
    from anabranch.frontier.stores.sql.worker import end_late_workers as end_late_workers
    from anabranch.frontier.stores.totals import closed_rows as closed_rows
    from anabranch.frontier.stores.totals import kept_counters as kept_counters
    from anabranch.frontier.stores.totals import kept_totals as kept_totals

#: Names by module. They are imported at their first use: who needs `records` alone does not wait for numpy.
_NAMES = {
    "admission": "Prepared",
    "aio": "AsyncFrontier Drained",
    "completion": "HOST_BUSY trouble_of",
    "composition": "assignment_of check_order clear_filter open_frontier precedence_of share_rule_of wake_nobody",
    "errors": "FrontierError LeaseLost StoreFull StoreUnavailable UnknownQueue",
    "filterchoice": "FILTER_PARAMETERS FilterChoice filter_choice loss_warning",
    "filters": "SharedFilter open_shared",
    "frontier": "Frontier",
    "hosts.embedding.leaseboard": "OutElsewhere read_board",
    "inspect.dump": "URI_PRECEDENCE dump_lines load_dump",
    "inspect.explain": (
        "NEVER_SCHEDULED NOT_STORED REFUSED Explanation GateView QueueView UrlFacts explain_queue explain_url text_of"
    ),
    "inspect.load": "LoadReport",
    "inspect.operations": "Operations",
    "inspect.recovery": "RecoveryJournal load_journal",
    "inspect.statistics": "FrontierCounts FrontierStatistics",
    "order": "FrontierOrder",
    "policies.assignment": "PolitenessScope QueuePolicy policy_warning",
    "policies.budgets": "Budgets",
    "policies.groups": "is_group",
    "policies.shares": "MOST_SHARES ShareRule",
    "policies.sheets": "HostTable Override Settings",
    "policies.userfunctions": "is_user_function",
    "records": "Candidate HostTrouble Lease Outcome OutcomeKind Verdict VerdictKind WaitsFor Wake",
    "scheduling.fairness": "WorkerLimits",
    "scheduling.gates": "Backoff Politeness",
    "scheduling.lifecycle": "RESTS_IN QueueState",
    "seen": "SeenFilter",
    "stores.contract": "Counters FailedRecord FrontierStore JobCounts",
    "stores.sql": "CRAWL METADATA",
    "stores.sql.browse": (
        "GATE_STATES QUEUE_STATES BrowsedTable PageQuery QueuedUrl browsed_tables first_urls make_tables "
        "size_of write_facts"
    ),
    "stores.sql.forget": "forget_urls",
    "stores.sql.livecopy": "StoreDecides copy_live live_counters",
    "stores.sql.postgres": "PostgresDatabase",
    "stores.sql.requeue": "epochs_of pages_of requeue reserve_numbers",
    "stores.sql.schema": "kept_identity renew_shared",
    "stores.sql.settings": "copy_settings",
    "stores.sql.statements": "SERVER_TIME",
    "stores.sql.store": "RETRY_S SqlStore",
    "stores.sql.work": "Patience",
    "stores.sql.worker": "Shared WorkerIdentity end_all_workers end_late_workers",
    "stores.totals": "closed_rows kept_counters kept_totals",
}
_MODULES = {name: f"{__name__}.{module}" for module, names in _NAMES.items() for name in names.split()}

__all__ = list(_MODULES)


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
