"""Builds a Frontier from an order, with its store and its filter."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

from anabranch.dedup.errors import BadParameters, DedupError
from anabranch.dedup.errors import FormatMismatch as FilterMismatch
from anabranch.dedup.uniq import UniqParameters
from anabranch.dedup.userfunctions import found
from anabranch.frontier.admission import Admission, Marking, Outbound
from anabranch.frontier.checkpoints import NO_FOLDER, Checkpoints, LastBatch, OtherStore, catch_up, remark_from
from anabranch.frontier.completion import Board, Completion, Leases
from anabranch.frontier.errors import FilterAhead, FormatMismatch, PolicyError, StoreUnavailable, unwritable
from anabranch.frontier.filterchoice import checked_choice, name_of, open_choice
from anabranch.frontier.filters import (
    SHARED,
    BesideShared,
    SharedFilter,
    catch_up_shared,
    keep_pair,
    pair_of,
    remove_filter,
)
from anabranch.frontier.frontier import Frontier
from anabranch.frontier.jobfolder import SEEN_FOLDER, STORE_FILE, has_store
from anabranch.frontier.order import FrontierOrder, check_numbers
from anabranch.frontier.parts import Parts
from anabranch.frontier.policies.assignment import Assign, Assignment, PolitenessScope, host_of_queue, parse_policy
from anabranch.frontier.policies.budgets import parse_cost
from anabranch.frontier.policies.groups import parse_group
from anabranch.frontier.policies.precedence import parse_queue_precedence, parse_uri_precedence
from anabranch.frontier.policies.shares import ShareRule, policy_queue, share_rule
from anabranch.frontier.policies.sheets import Sheets
from anabranch.frontier.policies.userfunctions import Import
from anabranch.frontier.records import Candidate
from anabranch.frontier.scheduling.fairness import FairHeap
from anabranch.frontier.scheduling.gates import GateMaker
from anabranch.frontier.scheduling.heaps import Retries
from anabranch.frontier.scheduling.queues import QueueRules
from anabranch.frontier.scheduling.readylist import Outbox
from anabranch.frontier.scheduling.schedule import Schedule
from anabranch.frontier.scheduling.window import HostHeap, StateAtOpening
from anabranch.frontier.seen import ExactFilter, KnownCounts, SeenFilter
from anabranch.frontier.shares.hosting import Hosting
from anabranch.frontier.storelink import Receivers, StoreLink
from anabranch.frontier.stores.contract import FrontierStore, Opening
from anabranch.frontier.stores.memory.store import MemoryStore
from anabranch.frontier.times import Clock, never_back, steady_clock

# Notes in the store: the order's budgets at the last opening, and when it was last opened after an owner had died.
_BUDGETS = "budgets"
_DIED = "died"
_COUNTED = "counted"


def wake_nobody() -> None:
    """The `on_change` of a host that never waits for the store."""


def open_frontier(
    state: Path | None,
    order: FrontierOrder,
    *,
    store: FrontierStore | None = None,
    seen: SeenFilter | UniqParameters | str | None = None,
    clock: Clock | None = None,
    on_change: Callable[[], None] = wake_nobody,
    board: Board | None = None,
) -> Frontier:
    """Open the Frontier with its state in the folder `state` (None: in memory only); blocks.

    `store` replaces the folder's file. `seen` names the folder's filter, as `order.uniq` does (smm, dsbf, both, exact,
    package.module:Class), or replaces it, and is closed with the Frontier; one that blocks must be given to the store,
    too (`SqlStore(…, seen=…)`), and verdicts are LATER then. A `SharedFilter` is used in addition to the folder's filter;
    a given `store` must have it, too. `clock` is the host's own clock; the Frontier never sees it go back. `on_change` is
    called from another thread after an answer of the store; it may only wake the host. `board` shows the leases. Raises:
    PolicyError, FormatMismatch (the state was made by another policy, filter or version), StoreInUse, StoreFull,
    StoreUnavailable; TypeError for a folder that is no Path.
    """
    if not isinstance(state, Path | None):
        raise TypeError(f"the state's folder is a Path, or None for memory alone; not {state!r}")
    order, seen = _named(order, seen)
    shared = seen if isinstance(seen, SharedFilter) else None
    if shared is not None and state is None and store is None:
        raise TypeError("a shared filter needs a store that asks it: give a folder, or SqlStore(…, seen=shared)")
    check_order(order)
    own_clock = clock
    clock = steady_clock() if clock is None else never_back(clock)
    if store is None:
        store = MemoryStore() if state is None else _file_store(state, shared)
    _check_shares(store, order)
    opening = store.open(_identity(order), clock(), on_change)
    if own_clock is None and opening.server_s is not None:  # workers of one job go by one clock
        clock = steady_clock(epoch=_at(opening.server_s))
    with ExitStack() as opened:  # closes everything if something fails
        opened.callback(store.close, clean=False)
        found = _open_filter(state, order, store, opening, seen)
        seen = found.seen
        opened.callback(_abandon, seen)
        counted: list[KnownCounts] = []  # a checkpoint may be made before the parts
        checkpoints = Checkpoints(
            store,
            seen,
            order.checkpoint_s,
            marked=opening.counters.last_ordinal,
            on_change=on_change,
            more=lambda: _notes(counted, shared),
            last_batch=found.last_batch,
        )
        opened.callback(checkpoints.close, final=False)
        parts = _parts(order, store, seen, opening, checkpoints, clock, board)
        counted.append(parts.admission.marking.counts)
        frontier = Frontier(
            store=store,
            seen=seen,
            parts=parts,
            checkpoints=checkpoints,
            clock=clock,
            filter_renewed=found.renewed,
            first_format=opening.first_format,
        )
        _wake_by_budget(frontier, order, store, opening)
        opened.pop_all()
    return frontier


def _abandon(seen: SeenFilter) -> None:
    """Close a filter whose Frontier could not be opened. Its own errors are dropped, because that failure is reported."""
    with suppress(OSError):
        seen.close()


def _notes(counted: Sequence[KnownCounts], shared: SharedFilter | None) -> dict[str, str]:
    """Return the notes that each checkpoint adds.

    A run without the shared filter notes an empty one: a filter that is named again later lacks the URLs accepted
    meanwhile.
    """
    notes = {SHARED: ""} if shared is None else dict(shared.notes())
    if counted:
        notes[_COUNTED] = counted[0].note()
    return notes


def _counts(order: FrontierOrder, opening: Opening, now_s: float) -> KnownCounts:
    """The counts of the job's earlier runs. How one of many workers has ended before is not known."""
    counts = KnownCounts(now_s)
    if note := opening.notes.get(_COUNTED):
        counts.restore(note, clean=opening.clean and order.shares is None)
    return counts


def _at(time_s: float) -> Clock:
    return lambda: time_s


def _named(
    order: FrontierOrder, seen: SeenFilter | UniqParameters | str | None
) -> tuple[FrontierOrder, SeenFilter | None]:
    """The order with the filter that `seen` names, or the filter itself. Raises: TypeError."""
    if isinstance(seen, UniqParameters | str):
        return replace(order, uniq=seen), None
    if seen is not None and not hasattr(seen, "unseen"):
        raise TypeError(f"seen {seen!r}: give a filter, its name or UniqParameters")
    if seen is None and order.withheld:
        raise TypeError(
            "a Frontier whose functions are withheld can only be viewed: give a copy of its state, and a filter"
        )
    return order, seen


def clear_filter(state: Path) -> None:
    """Remove the filter of a state folder; the next opening makes one, as its order asks for it, from the rows of the store.

    No process may have the state open. Raises: StoreUnavailable.
    """
    folder = state / SEEN_FOLDER
    with _filter_errors(folder):
        remove_filter(folder)


#: What a policy that is withheld answers: a queue without URLs.
NOT_RUN = "not run"


def _import_of(order: FrontierOrder, instead: object) -> Import:
    """Imports user functions; in the place of one that the order withholds comes a function that answers `instead`."""
    return lambda name: (lambda *_: instead) if name in order.withheld else user_function(name)


def user_function(name: str) -> Callable[..., Any]:
    """The user function of that name. Raises: PolicyError."""
    try:
        return found(name, "function", ())
    except BadParameters as error:
        raise PolicyError(str(error)) from error


def check_order(order: FrontierOrder) -> None:
    """Raises: PolicyError for policies that do not exist and values that make no sense."""
    check_numbers(order)
    checked_choice(order.uniq)
    sheets = Sheets(order.overrides)
    _assign(order, sheets)
    parse_group(order.group, ip_of=order.ip_of, imported=_import_of(order, None))
    if order.shares is not None:
        share_rule_of(order)
    _rules(order, sheets)


def share_rule_of(order: FrontierOrder) -> ShareRule:
    """Which share of the order's job a host is in; for `SqlStore(…, shared=Shared(rule, worker))`. Raises: PolicyError."""
    group_of = parse_group(order.group, ip_of=order.ip_of, imported=_import_of(order, None))
    return share_rule(1 if order.shares is None else order.shares, order.policy, order.group, group_of)


def _check_shares(store: FrontierStore, order: FrontierOrder) -> None:
    """Raises: PolicyError if store and order differ in whether, and how, the job is shared."""
    kept: ShareRule | None = getattr(store, "share_rule", None)
    asked = None if order.shares is None else share_rule_of(order)
    if kept != asked:
        raise PolicyError(
            f"shares: {asked or 'none'} in the order, {kept or 'none'} in the store; "
            "give FrontierOrder(shares=…) and SqlStore(…, shared=Shared(share_rule_of(order), worker))"
        )


def assignment_of(order: FrontierOrder) -> Assignment:
    """The queues and gates of URLs by the order. Raises: PolicyError."""
    sheets = Sheets(order.overrides)
    assign = _assign(order, sheets)
    if order.shares is None:
        return Assignment(assign, order.scope)
    return Assignment(
        assign, order.scope, share_rule_of(order), None if sheets.has_keys else host_of_queue(order.policy)
    )


def precedence_of(order: FrontierOrder) -> Callable[[str], int]:
    """The row precedence of a URL that no page led to. Raises: PolicyError."""
    rules = _rules(order, Sheets(order.overrides))
    return lambda url: rules.in_row(Candidate(url), None)


def _assign(order: FrontierOrder, sheets: Sheets) -> Assign:
    return parse_policy(order.policy, ip_of=order.ip_of, imported=_import_of(order, NOT_RUN), overrides=sheets)


def _rules(order: FrontierOrder, sheets: Sheets) -> QueueRules:
    number = _import_of(order, 1)
    cost = parse_cost(order.cost, number)
    host_of = host_of_queue(order.policy)
    is_per_share = order.shares is not None and (host_of is None or sheets.has_keys)
    return QueueRules(
        per_queue=order.per_queue,
        budgets=order.budgets,
        cost=cost,
        uris=parse_uri_precedence(order.uri_precedence, number, cost),
        queues=parse_queue_precedence(order.queue_precedence, number, order.precedence_floor),
        sheets=sheets,
        host_of=host_of,
        policy_key=policy_queue if is_per_share else None,
    )


def _parts(
    order: FrontierOrder,
    store: FrontierStore,
    seen: SeenFilter,
    opening: Opening,
    checkpoints: Checkpoints,
    clock: Clock,
    board: Board | None = None,
) -> Parts:
    sheets = Sheets(order.overrides)
    rules = _rules(order, sheets)
    outbox = Outbox(opening.counters.last_ordinal)
    maker = GateMaker(
        order.politeness,
        order.group_politeness,
        order.backoff,
        sheets,
        parse_group(order.group, ip_of=order.ip_of, imported=_import_of(order, None)),
        is_off=order.scope is PolitenessScope.OFF,
    )
    outbound = None if order.shares is None else Outbound(share_rule_of(order), outbox)
    state = StateAtOpening(
        may_have_gates=opening.counters.queued > 0,
        died_s=_died_s(store, opening, clock()),
    )
    if outbound is not None:
        state = state._replace(share_of=outbound.rule.of_gate)
    schedule = Schedule(outbox, maker, rules, order.gates_in_memory, state, _hosts(order, sheets))
    retries = Retries(may_have_any=opening.counters.waiting > 0)
    completion = Completion(outbox, schedule, retries, opening.counters.waiting, board)
    has_shared = isinstance(seen, BesideShared)
    last_batch = checkpoints.last_batch
    counts = _counts(order, opening, clock())
    marking = Marking(seen, opening.counters.last_ordinal, has_shared=has_shared, last_batch=last_batch, counts=counts)
    admission = Admission(assignment_of(order), rules, marking, schedule, outbox, outbound)
    leases = Leases(order.lease_s, board)
    receivers = Receivers(admission=admission, schedule=schedule, retries=retries, completion=completion, outbox=outbox)
    hosting = None
    if outbound is not None:
        shared: Any = store  # as `_check_shares` has made sure
        hosting = Hosting(outbound, shared, admission, schedule, completion, leases, monotonic)
    store_link = StoreLink(store, receivers, opening.counters, order.max_unacknowledged, clock, checkpoints, hosting)
    return Parts(
        outbox=outbox,
        rules=rules,
        schedule=schedule,
        retries=retries,
        leases=leases,
        admission=admission,
        completion=completion,
        store_link=store_link,
    )


def _hosts(order: FrontierOrder, sheets: Sheets) -> HostHeap:
    """The heap of hosts, without limits of workers if the order has none, or if its gates belong to queues, not to hosts."""
    limits = order.worker_limits
    has_any = min(limits.domain, limits.slow) < 1 or any(one.settings.domain_workers for one in order.overrides)
    if order.workers is None or order.scope is PolitenessScope.QUEUE or not has_any:
        return HostHeap()
    return FairHeap(order.workers, limits, order.gates_in_memory, lambda host: sheets.for_host(host).domain_workers)


def _died_s(store: FrontierStore, opening: Opening, now_s: float) -> float:
    """Until when fetches of an owner that died may have lasted, noted in the store; 0 = none died."""
    if not opening.clean:
        store.note({_DIED: repr(now_s)})
        return now_s
    return min(float(opening.notes.get(_DIED, "0")), now_s)


def _identity(order: FrontierOrder) -> dict[str, str]:
    return {"policy": order.policy, "politeness": order.scope.value}


def _file_store(state: Path, shared: SharedFilter | None) -> FrontierStore:
    from anabranch.frontier.stores.sql.store import SqlStore  # noqa: PLC0415 - a Frontier in memory needs no SQLAlchemy

    try:
        state.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreUnavailable(f"{state}: {error.strerror}; choose a folder that can be written") from error
    return SqlStore(state / STORE_FILE, seen=shared)


class _Filter(NamedTuple):
    """The filter of a Frontier."""

    seen: SeenFilter
    last_batch: LastBatch = NO_FOLDER  #: beside it
    renewed: str = ""  #: why it was made anew from the store; empty if it was not


def _open_filter(
    state: Path | None, order: FrontierOrder, store: FrontierStore, opening: Opening, given: SeenFilter | None
) -> _Filter:
    """The filter, or the folder's together with a shared one, after they have caught up with the store."""
    if isinstance(given, SharedFilter):
        own = _open_filter(state, order, store, opening, None)
        both = BesideShared(own.seen, given)
        try:
            catch_up_shared(store, given, opening)
        except BaseException:
            both.close()
            raise
        return own._replace(seen=both)
    if given is not None or state is None:
        with _filter_errors(None):
            seen = given or open_filter(None, order.uniq, kept=True)
            if order.shares is None:
                _catch_up(seen, store, opening)
        return _Filter(seen)
    folder = state / SEEN_FOLDER
    with _filter_errors(folder):
        try:
            return _open_followed(folder, order, store, opening)
        except OtherStore:
            raise
        except FilterAhead as error:
            remove_filter(folder)
            return _open_followed(folder, order, store, opening)._replace(renewed=error.why)


def _open_followed(folder: Path, order: FrontierOrder, store: FrontierStore, opening: Opening) -> _Filter:
    """The folder's filter, which follows the store from now on.

    The filter of one of many workers needs no key of the store: what it lacks, the store drops, and then it is marked. So it is
    made anew whenever in doubt. Raises: FilterAhead, with the filter closed.
    """
    seen = open_filter(folder, order.uniq, kept=True)
    last_batch, has_all = LastBatch(folder), order.shares is None
    try:
        pair = pair_of(folder, opening.notes, is_shared=not has_all)
        is_elsewhere = not has_store(folder.parent)
        last_batch.require_in(opening, is_old=not has_all and bool(seen.position()), is_elsewhere=is_elsewhere)
        if has_all:
            remark_from(opening.notes, seen, clean=opening.clean)
        keep_pair(folder, store, pair, name_of(checked_choice(order.uniq)))
        last_batch.begin(opening)  # before the filter marks a URL
    except (FormatMismatch, FilterMismatch) as error:
        if not isinstance(error, FilterAhead) or isinstance(error, OtherStore):
            store.close(clean=opening.clean)  # nothing was written
        _abandon(seen)
        raise
    except BaseException:
        _abandon(seen)
        raise
    if has_all:
        _catch_up(seen, store, opening)
    return _Filter(seen, last_batch)


def open_filter(folder: Path | None, uniq: object | None = None, *, kept: bool = False) -> SeenFilter:
    """The filter in a folder; None: in memory; blocks; `kept`: a store has its keys. Raises: as `open_frontier`."""
    with _filter_errors(folder):
        if folder is None:
            return ExactFilter()
        return open_choice(folder, checked_choice(uniq), kept=kept)


@contextmanager
def _filter_errors(folder: Path | None) -> Iterator[None]:
    """Translate errors of a filter into this room's."""
    try:
        yield
    except FilterMismatch as error:
        raise FormatMismatch(str(error)) from error
    except BadParameters as error:
        raise PolicyError(str(error)) from error
    except OSError as error:
        raise unwritable("the filter" if folder is None else f"the filter in {folder}", error) from error
    except DedupError as error:
        raise StoreUnavailable(str(error)) from error


def _catch_up(seen: SeenFilter, store: FrontierStore, opening: Opening) -> None:
    """Add the keys that the filter may lack; close it if that fails."""
    try:
        catch_up(store, seen, opening)
    except FormatMismatch:
        store.close(clean=opening.clean)  # nothing was written
        _abandon(seen)
        raise
    except BaseException:
        _abandon(seen)
        raise


def _wake_by_budget(frontier: Frontier, order: FrontierOrder, store: FrontierStore, opening: Opening) -> None:
    """Queues that are retired may have budget left if the order was changed."""
    budgets = repr((order.budgets.total_budget, sorted(map(repr, order.overrides))))
    if opening.notes.get(_BUDGETS) != budgets:
        if opening.counters.retired:
            frontier.operations.wake_by_budget()
        store.note({_BUDGETS: budgets})
