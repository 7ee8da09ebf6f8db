"""Builds a Frontier from an order: the one place of this room that knows dedup."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dedup.errors import BadParameters, DedupError
from dedup.errors import FormatMismatch as FilterMismatch
from dedup.uniq import UniqFilter, UniqParameters
from frontier.assignment import PolitenessScope, parse_policy
from frontier.books import Books
from frontier.core import Frontier
from frontier.errors import FormatMismatch, PolicyError, StoreFull, StoreUnavailable
from frontier.gates import Politeness
from frontier.intake import Intake
from frontier.models import WAITING
from frontier.schedule import Schedule
from frontier.seen import ExactFilter, SeenFilter
from frontier.stores.base import FrontierStore, Opening
from frontier.stores.memory import MemoryStore
from frontier.stores.sql import SqlStore
from frontier.workqueues import QueueIndex

#: The store's file in the state folder.
STORE_FILE = "frontier.db"
#: Keys that are marked again at a time after an unclean end.
MARK_CHUNK = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierOrder:
    """What a Frontier is asked to be. `policy`, `scope` and `uniq` may not change while a job lives."""

    policy: str = "bkdr:997"  #: assignment policy
    scope: PolitenessScope = PolitenessScope.HOST  #: whom a gate stands for
    politeness: Politeness = field(default_factory=Politeness)
    uniq: UniqParameters = field(default_factory=UniqParameters)  #: the filter
    max_unacknowledged: int = 1000  #: finished leases that may be not durable; set it to the number of workers


def open_frontier(
    state: Path | None,
    order: FrontierOrder,
    *,
    clock: Callable[[], float] | None = None,
    on_change: Callable[[], None] = lambda: None,
) -> Frontier:
    """Open the Frontier whose state lives in the folder `state` (None: in memory only); blocks.

    `on_change` is called from another thread when the store has answered; it may only wake the host.
    Raises: PolicyError, FormatMismatch (the state was made by another policy, filter or version), StoreInUse,
    StoreFull, StoreUnavailable.
    """
    check_order(order)
    clock = clock or steady_clock()
    store: FrontierStore = MemoryStore() if state is None else SqlStore(_made(state) / STORE_FILE)
    try:
        opening = store.open(_identity(order), on_change)
        seen = _open_filter(state, order, store, opening)
    except BaseException:
        store.close(clean=False)
        raise
    index = QueueIndex()
    schedule = Schedule(index)
    politeness = _politeness(order)
    intake = Intake(parse_policy(order.policy), order.scope, politeness, seen, index, schedule)
    intake.last_ordinal = opening.counters.last_ordinal
    _take_up(opening, index, schedule, intake, clock())
    books = Books(store, intake, schedule, opening.counters, order.max_unacknowledged)
    return Frontier(store=store, seen=seen, intake=intake, schedule=schedule, books=books, clock=clock)


def has_store(state: Path) -> bool:
    """The folder holds the store of a Frontier that was opened there before."""
    file = state / STORE_FILE
    return file.is_file() and file.stat().st_size > 0


def steady_clock() -> Callable[[], float]:
    """Epoch seconds that never go back: the epoch at this moment plus the monotonic time since."""
    offset_s = time.time() - time.monotonic()
    return lambda: offset_s + time.monotonic()


class DedupFilter:
    """The room `dedup`'s UniqFilter behind this room's seam."""

    def __init__(self, uniq: UniqFilter) -> None:
        self._uniq = uniq

    def unseen(self, keys: Sequence[bytes]) -> Sequence[bool]:
        """For each key, whether it was never marked."""
        answer: list[bool] = self._uniq.unseen(keys).tolist()
        return answer

    def mark(self, keys: Sequence[bytes]) -> None:
        """Mark the keys as seen."""
        self._uniq.mark(keys)

    def sync(self) -> None:
        """Make every mark durable."""
        self._uniq.sync()

    def close(self) -> None:
        """Let go of maps and files."""
        self._uniq.close()

    def facts(self) -> Mapping[str, float]:
        """The filter's statistics by name."""
        statistics = self._uniq.statistics()
        return {
            "keys": float(statistics.keys),
            "false_drop_probability": statistics.false_drop,
            "expected_lost": statistics.expected_lost,
        }


def check_order(order: FrontierOrder) -> None:
    """Raises: PolicyError for a policy that does not exist and for numbers that make no sense."""
    parse_policy(order.policy)
    politeness = order.politeness
    numbers = (politeness.delay_factor, politeness.min_delay_s, politeness.max_delay_s)
    if not all(math.isfinite(number) and number >= 0 for number in numbers):
        raise PolicyError("delays and the delay factor must be numbers that are not negative")
    if politeness.min_delay_s > politeness.max_delay_s:
        raise PolicyError(
            f"min_delay {politeness.min_delay_s:g} s is longer than max_delay {politeness.max_delay_s:g} s"
        )
    if politeness.slots < 1 or order.max_unacknowledged < 1:
        raise PolicyError("a gate needs at least one slot, and one lease must be allowed to end")


def _politeness(order: FrontierOrder) -> Politeness:
    if order.scope is not PolitenessScope.OFF:
        return order.politeness
    return Politeness(delay_factor=0.0, min_delay_s=0.0, max_delay_s=0.0, slots=1_000_000)


def _identity(order: FrontierOrder) -> dict[str, str]:
    return {"policy": order.policy, "politeness": order.scope.value}


def _made(state: Path) -> Path:
    try:
        state.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreUnavailable(f"{state}: {error.strerror}; choose a folder that can be written") from error
    return state


def _open_filter(state: Path | None, order: FrontierOrder, store: FrontierStore, opening: Opening) -> SeenFilter:
    """The filter, knowing all that the store knows: after an unclean end every key is marked again."""
    if state is None:
        return ExactFilter()
    try:
        seen = DedupFilter(UniqFilter.open(state / "seen", order.uniq))
        if not opening.clean:
            _mark_again(seen, store)
    except FilterMismatch as error:
        raise FormatMismatch(str(error)) from error
    except BadParameters as error:
        raise PolicyError(str(error)) from error
    except OSError as error:
        raise StoreFull(f"the filter in {state / 'seen'} cannot be written: {error.strerror}") from error
    except DedupError as error:
        raise StoreUnavailable(str(error)) from error
    return seen


def _mark_again(seen: SeenFilter, store: FrontierStore) -> None:
    """Tell the filter every key of the store; let go of it if that fails."""
    try:
        for keys in store.keys(MARK_CHUNK):
            seen.mark(keys)
    except BaseException:
        seen.close()
        raise


def _take_up(opening: Opening, index: QueueIndex, schedule: Schedule, intake: Intake, now_s: float) -> None:
    """Begin where the last owner ended: gates rest on, lanes have their rows, retries wait."""
    for gate in opening.gates:
        intake.make_gate(gate.key).restore(gate, now_s, clean=opening.clean)
    for queue in opening.queues:
        index.restore_queue(queue.id, queue.key)
    for row in opening.lanes:
        schedule.rows_stored(index.restore_lane(row), WAITING, row.rows)
    for head in opening.waiting:
        lane = index.get((head.row.queue, head.row.gate))
        schedule.row_waits(lane, head)
        schedule.rows_lost(lane, 0)
