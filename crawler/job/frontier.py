"""Opens a job's Frontier by its order, and refuses a job if its queue is not in the place that the order names.

The seeds (`seedtable`) and the marks in the state folder (`state`) show whether a job has begun.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import structlog

from anabranch.crawler.job.seeds import Seed, has_seeds
from anabranch.crawler.job.state import (
    JOB_FILE,
    clear_queue_in_memory,
    has_queue_in_memory,
    is_finished,
    mark_queue_in_memory,
    ordered_round,
)
from anabranch.crawler.order.code import refuse_withheld
from anabranch.crawler.order.frontier import MEMORY, DedupSection, OverrideEntry
from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.outcomes.errors import QueueLost, StoreLost
from anabranch.frontier import (
    FILTER_PARAMETERS,
    Backoff,
    Budgets,
    FilterChoice,
    Frontier,
    FrontierOrder,
    FrontierStore,
    Override,
    Politeness,
    PolitenessScope,
    Settings,
    SharedFilter,
    WorkerLimits,
    check_order,
    filter_choice,
    open_frontier,
    open_shared,
    share_rule_of,
    wake_nobody,
)
from anabranch.frontier.errors import PolicyError
from anabranch.frontier.jobfolder import STORE_FILE, has_store
from anabranch.frontier.policies.hosts import IpOf, unknown_address
from anabranch.frontier.records import QueueKey
from anabranch.frontier.times import Clock

if TYPE_CHECKING:
    from anabranch.frontier import WorkerIdentity

log = structlog.get_logger(__name__)

#: Keys of [dedup] that shape the filter.
_OF_FILTER = FILTER_PARAMETERS.keys() - {"filter", "mapped_limit"}

#: Most fetches of one visit: robots.txt with its redirects, and the page.
_FETCHES = 2


def has_begun(state: Path) -> bool:
    """Whether the job with this state folder has seeds, and its round a queue. Raises: StorageError."""
    return has_seeds(state.parent) and ordered_round(state) is None


def frontier_order(order: CrawlOrder, ip_of: IpOf = unknown_address, *, is_view: bool = False) -> FrontierOrder:
    """The Frontier's order from the crawl order; `ip_of` knows addresses and never waits. Imports its user functions.

    `is_view`: only a copy is looked at, without the functions that are withheld. Raises: PolicyError; CodeWithheld.
    """
    frontier, politeness, dedup = order.frontier, order.politeness, order.dedup
    withheld = _withheld(order, is_view=is_view)
    if frontier.store == MEMORY and dedup.leaves:
        raise PolicyError(
            "[frontier] store memory: such a queue cannot share a filter with other crawls; "
            "leave out [dedup] leaves, or the store"
        )
    asked = FrontierOrder(
        policy=frontier.policy,
        scope=PolitenessScope(frontier.politeness),
        politeness=Politeness(
            delay_factor=politeness.delay_factor,
            min_delay_s=politeness.min_delay_s,
            max_delay_s=politeness.max_delay_s,
            slots=politeness.max_connections,
        ),
        backoff=Backoff(
            base_s=politeness.backoff_base_s,
            cap_s=politeness.backoff_cap_s,
            jitter=politeness.backoff_jitter,
            forgive_s=politeness.backoff_forgive_s,
            longest_retry_after_s=politeness.max_retry_after_s,
        ),
        group=politeness.group or politeness.groups or None,
        group_politeness=Politeness(
            delay_factor=politeness.group_delay_factor,
            min_delay_s=politeness.group_min_delay_s,
            max_delay_s=politeness.group_max_delay_s,
            slots=politeness.group_max_connections,
        ),
        overrides=[_override(entry) for entry in order.override],
        budgets=Budgets(
            balance_replenish=frontier.balance_replenish,
            total_budget=frontier.total_budget,
            error_penalty=frontier.error_penalty,
        ),
        cost=frontier.cost,
        uri_precedence=frontier.uri_precedence,
        queue_precedence=frontier.queue_precedence,
        precedence_floor=frontier.precedence_floor,
        per_queue=frontier.per_queue,
        max_unacknowledged=order.crawl.workers,
        lease_s=frontier.lease_s or None,
        fetch_limit_s=_FETCHES * order.fetch.timeout_s,
        checkpoint_s=frontier.checkpoint_s,
        gates_in_memory=frontier.gates_in_memory,
        workers=order.crawl.workers,
        worker_limits=WorkerLimits(
            domain=frontier.domain_workers, slow=frontier.slow_workers, slow_s=frontier.slow_fetch_s
        ),
        ip_of=ip_of,
        shares=frontier.shares if frontier.is_shared else None,
        withheld=withheld,
        uniq=_filter_of(dedup, is_view=is_view),
    )
    check_order(asked)
    return asked


def of_filter(dedup: DedupSection) -> dict[str, Any]:
    """The settings that make the job's own filter, by the names of `filter_choice`."""
    others = {name: getattr(dedup, name) for name in _OF_FILTER}
    return {"filter": dedup.chosen, "mapped_limit": dedup.mapped_limit_bytes, **others}


def _withheld(order: CrawlOrder, *, is_view: bool) -> frozenset[str]:
    """The functions that the Frontier must do without. Raises: CodeWithheld, unless it is only viewed."""
    withheld = order.code.of_frontier
    if not is_view:
        refuse_withheld(withheld, order.job.name or "the job", "its Frontier")
    return frozenset(one.name for one in withheld)


def _filter_of(dedup: DedupSection, *, is_view: bool) -> FilterChoice | None:
    """The filter that the order names; None for a copy, which is viewed without one. Raises: PolicyError."""
    if is_view:
        return None
    return filter_choice(of_filter(dedup))


def open_job(
    state: Path,
    order: CrawlOrder,
    *,
    clock: Clock | None = None,
    ip_of: IpOf = unknown_address,
    on_change: Callable[[], None] = wake_nobody,
) -> Frontier:
    """Open the Frontier of the job with this state folder, by its order; blocks.

    Raises: as `open_frontier` and `refuse_lost_queue`, and StoreLost if the rows are not with the job's seeds and filter.
    """
    refuse_lost_queue(state)
    is_old, address = has_begun(state), order.frontier.store
    asked = frontier_order(order, ip_of)
    _check_place(state, address, is_old=is_old)
    if address == MEMORY:  # the filter is in memory, too, and exact
        mark_queue_in_memory(state)
        return open_frontier(None, asked, clock=clock, on_change=on_change)
    if not is_old:
        clear_queue_in_memory(state)
    with ExitStack() as opened:  # closes what was opened if something fails
        shared = _shared(order.dedup)
        if shared is not None:
            opened.callback(shared.close)
        store: FrontierStore | None = None
        if address:
            from anabranch.frontier import SqlStore  # noqa: PLC0415 - most jobs have no database

            store = SqlStore(address, seen=shared)
        frontier = open_frontier(state, asked, store=store, seen=shared, clock=clock, on_change=on_change)
        opened.callback(frontier.close)
        if address and not is_old and has_urls(frontier):  # the filter of a job still has its URLs if its rows are gone
            raise StoreLost(
                f"{address}: holds the queue of another job; name another database or schema, or drop its tables "
                f"(if it is this job's, its {JOB_FILE} is lost: restore that from a copy)"
            )
        opened.pop_all()
    _log_renewed(frontier, shared)
    return frontier


def _log_renewed(frontier: Frontier, shared: SharedFilter | None) -> None:
    """A line if a filter was not as the store needs it."""
    if frontier.filter_renewed:
        log.warning("the filter was made anew from the store", reason=frontier.filter_renewed)
    if shared is not None and shared.left:
        log.warning("the crawl leaves the filter that it shared with other crawls", reason=shared.left)


def open_share_holder(
    state: Path,
    order: CrawlOrder,
    worker: WorkerIdentity,
    target: Path | str,
    *,
    clock: Clock | None = None,
    ip_of: IpOf = unknown_address,
    on_change: Callable[[], None] = wake_nobody,
) -> Frontier:
    """Open the Frontier of one of the workers of a job, by the job's order; blocks.

    `state` has the worker's filter, `target` the job's rows: a file, or a database by its URL.

    Raises: as `open_frontier`; CodeWithheld.
    """
    from anabranch.frontier import Shared, SqlStore  # noqa: PLC0415 - most jobs have no database

    asked = frontier_order(order, ip_of)
    with ExitStack() as opened:  # closes what was opened if something fails
        seen = _shared(order.dedup)
        if seen is not None:
            opened.callback(seen.close)
        store = SqlStore(target, seen=seen, shared=Shared(share_rule_of(asked), worker))
        frontier = open_frontier(state, asked, store=store, seen=seen, clock=clock, on_change=on_change)
        opened.pop_all()
    _log_renewed(frontier, seen)
    return frontier


def view_shares(
    state: Path, order: CrawlOrder, worker: WorkerIdentity, copy: Path, clock: Clock, on_change: Callable[[], None]
) -> Frontier:
    """Open a copy of a worker's rows for viewing, without a filter and without the functions that are withheld.

    Raises: as `open_frontier`.
    """
    from anabranch.frontier import Shared, SqlStore, StoreDecides  # noqa: PLC0415 - most jobs have no database

    asked = frontier_order(order, is_view=True)
    store = SqlStore(copy, shared=Shared(share_rule_of(asked), worker))
    return open_frontier(state, asked, store=store, seen=StoreDecides(), clock=clock, on_change=on_change)


def _check_place(state: Path, address: str, *, is_old: bool) -> None:
    """Raises: StoreLost if the queue is not in the file, memory or database that the order names."""
    if address and has_store(state):
        other = "memory" if address == MEMORY else "a database"
        move = "" if address == MEMORY else f", or move the job: `anabranch move {state.parent} {address}`"
        raise StoreLost(f"{state}: the queue is in {STORE_FILE}, not in {other}; leave out [frontier] store{move}")
    if is_old and address == MEMORY:
        raise StoreLost(f"{state}: the queue is in a database, not in memory; leave out [frontier] store")
    if is_old and not address and not has_store(state):
        raise StoreLost(
            f"{state}: {STORE_FILE} is missing or empty, and with it the queue; "
            "restore it from a copy, or start over with `anabranch crawl --fresh`, which moves the job aside"
        )


def has_urls(frontier: Frontier) -> bool:
    """Whether anything was ever scheduled in it. O(1)."""
    counts = frontier.counts()
    return any((counts.pending, counts.retired, counts.done, counts.failed, counts.disregarded))


def is_over(state: Path, named: Iterable[Seed]) -> bool:
    """Whether the job's queue was in memory and empty at the end, and the job already has all `named` seeds."""
    if not has_queue_in_memory(state) or not has_begun(state) or not is_finished(state):
        return False
    from anabranch.crawler.job.seedtable import opened_seeds  # noqa: PLC0415 - commands on a running crawl do not need it

    with opened_seeds(state) as known:
        return all(seed.url in known for seed in named)


def refuse_lost_queue(state: Path) -> None:
    """Raises: QueueLost if the job's queue was in the memory of a process that has ended. The caller holds the job's lock."""
    if not has_queue_in_memory(state) or not has_begun(state):
        return
    if is_finished(state):
        raise QueueLost(
            f"{state.parent}: the job is finished, and its queue was in memory; "
            "begin another round (`anabranch crawl --again`), or start over with `anabranch crawl --fresh`, "
            "which moves it aside"
        )
    raise QueueLost(
        f"{state.parent}: the job cannot go on, its queue was in memory and ended with its process; "
        "start over with `anabranch crawl --fresh`, which moves it aside, or name another job"
    )


def _shared(dedup: DedupSection) -> SharedFilter | None:
    """The filter that the order shares with other crawls, if any. Raises: as `open_shared`."""
    if not dedup.leaves:
        return None
    urls, password = list(dedup.leaves), quote(os.environ.get("REDISCLI_AUTH", ""), safe="")  # redis-cli reads the same
    if password:  # in the form of the client library
        for number, url in enumerate(urls):
            parts = urlsplit(url)
            user, _, place = parts.netloc.rpartition("@")
            urls[number] = parts._replace(netloc=f"{user}:{password}@{place}").geturl()
    return open_shared(urls, dedup.leaves_name, expect=dedup.expect, false_positive=dedup.false_positive)


def _override(entry: OverrideEntry) -> Override:
    """Raises: PolicyError, which names the entry by its first prefix."""
    settings = Settings(
        delay_factor=entry.delay_factor,
        min_delay_s=entry.min_delay_s,
        max_delay_s=entry.max_delay_s,
        max_connections=entry.max_connections,
        session_budget=entry.balance_replenish,
        total_budget=entry.total_budget,
        queue_precedence=entry.queue_precedence,
        domain_workers=entry.domain_workers,
        key=None if entry.key is None else QueueKey(entry.key),
        uri_precedence=entry.uri_precedence,
    )
    return Override(entry.surt, settings)
