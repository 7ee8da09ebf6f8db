"""From a crawl order to the job's open Frontier."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote, urlsplit

from anabranch.crawler.jobs.durablefiles import replace_file
from anabranch.crawler.jobs.forgetting import forgets, is_finished, note_forgetting, note_lasting
from anabranch.crawler.jobs.rounds import ordered_round
from anabranch.crawler.jobs.seeds import SEED_BOOK, Seed, SeedBook, is_begun
from anabranch.crawler.orders.dedup import DedupSection
from anabranch.crawler.orders.frontier import MEMORY, FrontierSection, OverrideEntry, PolitenessSection
from anabranch.crawler.orders.order import CrawlOrder
from anabranch.crawler.outcomes.errors import QueueForgotten, StoreLost, storage_errors
from anabranch.frontier.clocks import Clock
from anabranch.frontier.composition import STORE_FILE, FrontierOrder, check_order, has_store, open_frontier
from anabranch.frontier.core import Frontier
from anabranch.frontier.division.ownership import Division
from anabranch.frontier.errors import PolicyError
from anabranch.frontier.filters import uniq_parameters
from anabranch.frontier.models import QueueKey
from anabranch.frontier.policies.assignment import PolitenessScope
from anabranch.frontier.policies.authority import IpOf
from anabranch.frontier.policies.budgets import Budgets
from anabranch.frontier.policies.sheets import Override, Settings
from anabranch.frontier.scheduling.backoff import Backoff
from anabranch.frontier.scheduling.gates import Politeness
from anabranch.frontier.sharing import SharedFilter, open_shared
from anabranch.frontier.stores.base import FrontierStore

#: The variable with the password of the Redis servers, as redis-cli reads it.
AUTH_VARIABLE = "REDISCLI_AUTH"

#: Which share of its job a state folder belongs to.
_SHARE_FILE = "share"

#: Fetches of one visit at most: robots.txt, whose redirects share its time, and the page.
_FETCHES = 2


def has_seeds(directory: Path) -> bool:
    """The folder is a job that has seeds to go on with. Raises: StorageError."""
    with storage_errors(directory):
        return is_begun(directory / "state" / SEED_BOOK)


def has_begun(state: Path) -> bool:
    """The job with this state folder has seeds, and its round a queue. Raises: StorageError."""
    return has_seeds(state.parent) and ordered_round(state) is None


def unknown_address(host: str) -> None:
    """No host's address is known: for commands that do not crawl, and so ask no name server."""


def frontier_order(order: CrawlOrder, ip_of: IpOf = unknown_address) -> FrontierOrder:
    """What the crawl order asks of the Frontier; `ip_of` knows addresses and never waits. Raises: PolicyError."""
    frontier, politeness = order.frontier, order.politeness
    asked = FrontierOrder(
        policy=frontier.policy,
        scope=PolitenessScope(frontier.politeness),
        politeness=_host_politeness(politeness),
        backoff=_backoff(politeness),
        group=politeness.group or politeness.groups or None,
        group_politeness=_group_politeness(politeness),
        overrides=[_override(entry) for entry in order.override],
        budgets=_budgets(frontier),
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
        ip_of=ip_of,
        uniq=_uniq(order),
    )
    check_order(asked)
    return asked


def open_job(
    state: Path,
    order: CrawlOrder,
    *,
    clock: Clock | None = None,
    ip_of: IpOf = unknown_address,
    on_change: Callable[[], None] = lambda: None,
) -> Frontier:
    """Open the Frontier of the job with this state folder, by its order; blocks. It is a share if the folder says so.

    Raises: as `open_frontier` and `refuse_forgotten`, and StoreLost if the rows are not where the job's seeds and filter
    belong to.
    """
    refuse_forgotten(state)
    is_old = has_begun(state)
    asked, has_file = replace(frontier_order(order, ip_of), division=division_of(state)), _has_file(state, order)
    if order.frontier.store == MEMORY:
        return _in_memory(state, asked, is_old=is_old, clock=clock, on_change=on_change)
    if not is_old:
        note_lasting(state)
    elif has_file:
        _check_is_there(state)
    with ExitStack() as opened:  # lets go of what was opened if something fails
        shared = _shared(order.dedup)
        if shared is not None:
            opened.callback(shared.close)
        store = None if has_file else _database(order.frontier.store, shared)
        frontier = open_frontier(state, asked, store=store, seen=shared, clock=clock, on_change=on_change)
        opened.callback(frontier.close)
        if store is not None and not is_old:
            _check_is_empty(frontier, order.frontier.store)
        opened.pop_all()
    return frontier


def has_urls(frontier: Frontier) -> bool:
    """Something was ever scheduled in it. O(1)."""
    counts = frontier.counts()
    return any((counts.pending, counts.retired, counts.done, counts.failed, counts.disregarded))


def note_division(state: Path, division: Division) -> None:
    """Say in a share's state folder which share it is. Raises: OSError."""
    replace_file(state / _SHARE_FILE, f"{division.share} of {division.shares}\n".encode())


def division_of(state: Path) -> Division | None:
    """Which share of a job this is; None for a whole one. Raises: StorageError, StoreLost if the note is damaged."""
    file = state / _SHARE_FILE
    with storage_errors(file):
        said = file.read_text() if file.exists() else None
    if said is None:
        return None
    share, _, shares = said.partition(" of ")
    try:
        return Division(share=int(share), shares=int(shares))
    except ValueError as error:
        raise StoreLost(f"{file}: damaged; it must say which share of the job this is, like 0 of 2") from error


def is_over(state: Path, named: Iterable[Seed]) -> bool:
    """The job's queue was in memory, nothing was left in it, and nothing is named that the job does not have."""
    if not forgets(state) or not has_begun(state) or not is_finished(state):
        return False
    with SeedBook(state / SEED_BOOK) as book:
        known = {seed.url for seed in book}
    return all(seed.url in known for seed in named)


def refuse_forgotten(state: Path) -> None:
    """Raises: QueueForgotten if the job's queue was in the memory of a process that has ended; the job's lock is held."""
    if not forgets(state) or not has_begun(state):
        return
    if is_finished(state):
        raise QueueForgotten(
            f"{state.parent}: the job is finished, and its queue was in memory; "
            "begin another round with --again, or start over with --fresh, which moves it aside"
        )
    raise QueueForgotten(
        f"{state.parent}: the job cannot go on, its queue was in memory and ended with its process; "
        "start over with --fresh, which moves it aside, or choose another --job"
    )


def _in_memory(
    state: Path, asked: FrontierOrder, *, is_old: bool, clock: Clock | None, on_change: Callable[[], None]
) -> Frontier:
    """A Frontier that ends with the process, and a mark that it did. Its filter is in memory, too, and exact."""
    if is_old:
        raise StoreLost(f"{state}: the queue is in a database, not in memory; leave out [frontier] store")
    note_forgetting(state)
    return open_frontier(None, asked, clock=clock, on_change=on_change)


def _uniq(order: CrawlOrder) -> object:
    """Raises: PolicyError."""
    dedup = order.dedup
    if order.frontier.store == MEMORY and dedup.leaves:
        raise PolicyError(
            "[frontier] store memory: such a queue cannot share a filter with other crawls; "
            "leave out [dedup] leaves, or the store"
        )
    return uniq_parameters(exact=dedup.exact, expect=dedup.expect, false_positive=dedup.false_positive)


def _has_file(state: Path, order: CrawlOrder) -> bool:
    """The rows are to be in the folder's file. Raises: StoreLost if they are there, against the order."""
    store = order.frontier.store
    if store and has_store(state):
        other = "memory" if store == MEMORY else "a database"
        raise StoreLost(f"{state}: the queue is in {STORE_FILE}, not in {other}; leave out [frontier] store")
    return not store


def _database(address: str, shared: SharedFilter | None) -> FrontierStore:
    """The store in a database. Raises: PolicyError for a URL of another kind."""
    from anabranch.frontier.stores.sql import SqlStore  # noqa: PLC0415 - most jobs have no database

    return SqlStore(address, seen=shared)


def _shared(dedup: DedupSection) -> SharedFilter | None:
    """The filter that the order shares with other crawls, if it does. Raises: as `open_shared`."""
    if not dedup.leaves:
        return None
    urls = [_with_password(url, os.environ.get(AUTH_VARIABLE)) for url in dedup.leaves]
    return open_shared(urls, dedup.leaves_name, expect=dedup.expect, false_positive=dedup.false_positive)


def _with_password(url: str, password: str | None) -> str:
    """The URL as the client library takes it."""
    if not password:
        return url
    parts = urlsplit(url)
    user, _, place = parts.netloc.rpartition("@")
    return parts._replace(netloc=f"{user}:{quote(password, safe='')}@{place}").geturl()


def _check_is_there(state: Path) -> None:
    """A job that has begun has its rows."""
    if not has_store(state):
        raise StoreLost(
            f"{state}: {STORE_FILE} is missing or empty, and with it the queue; "
            "restore it from a copy, or start over with --fresh, which moves the job aside"
        )


def _check_is_empty(frontier: Frontier, address: str) -> None:
    """A new job takes over nobody's rows. (One whose rows are gone is known by its filter.)"""
    if has_urls(frontier):
        raise StoreLost(
            f"{address}: holds the queue of another job; name another database or schema, or drop its tables "
            f"(if it is this job's, its {SEED_BOOK} is lost: restore that from a copy)"
        )


def _budgets(frontier: FrontierSection) -> Budgets:
    return Budgets(
        balance_replenish=frontier.balance_replenish,
        total_budget=frontier.total_budget,
        error_penalty=frontier.error_penalty,
    )


def _backoff(politeness: PolitenessSection) -> Backoff:
    return Backoff(
        base_s=politeness.backoff_base_s,
        cap_s=politeness.backoff_cap_s,
        jitter=politeness.backoff_jitter,
        forgive_s=politeness.backoff_forgive_s,
        longest_retry_after_s=politeness.max_retry_after_s,
    )


def _host_politeness(politeness: PolitenessSection) -> Politeness:
    return Politeness(
        delay_factor=politeness.delay_factor,
        min_delay_s=politeness.min_delay_s,
        max_delay_s=politeness.max_delay_s,
        slots=politeness.max_connections,
    )


def _group_politeness(politeness: PolitenessSection) -> Politeness:
    return Politeness(
        delay_factor=politeness.group_delay_factor,
        min_delay_s=politeness.group_min_delay_s,
        max_delay_s=politeness.group_max_delay_s,
        slots=politeness.group_max_connections,
    )


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
        key=None if entry.key is None else QueueKey(entry.key),
        uri_precedence=entry.uri_precedence,
    )
    return Override(entry.surt, settings)
