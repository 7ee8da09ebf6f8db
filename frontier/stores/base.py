"""The seam between the core and what keeps its rows.

A store takes batches and questions in one order (FIFO) and never makes the core wait: answers are fetched with
`take_answers`. A read sees every batch that was written before it. A batch is one transaction at most: all of it is kept,
or nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from frontier.errors import StoreUnavailable
from frontier.models import GateKey, Head, OutcomeKind, QueueKey, Row, UrlRecord

LaneId = tuple[int, int]  # (queue id, gate id)


class Ended(NamedTuple):
    """A row that leaves its queue for the table `done`."""

    row: Row
    status: int
    outcome: OutcomeKind


class Moved(NamedTuple):
    """A row that takes another place in its lane (a retry): same queue, gate and ordinal."""

    old: Row
    new: Row


class GateRow(NamedTuple):
    """What of a gate must survive a restart. Columns of the table `gate` in their order."""

    id: int
    key: GateKey
    rests_until_s: float  #: when the last of its slots has rested
    blocked_until_s: float  #: closed for other reasons (429, an operator)
    spacing_s: float  #: the host's Crawl-delay, 0 = none
    last_rest_s: float  #: the latest rest d, kept for an unclean end


class QueueRow(NamedTuple):
    """The name behind a queue's id."""

    id: int
    key: QueueKey


class LaneRow(NamedTuple):
    """How many rows a lane holds, leased and waiting ones included."""

    queue: int
    gate: int
    precedence: int  #: the queue's
    arrival: int  #: FIFO among equals
    rows: int


@dataclass(slots=True)
class Batch:
    """All that one call of the core says; committed together."""

    number: int  #: rises by one with each batch
    new: list[Row] = field(default_factory=list)  #: rows to add, unless their key is in the table `seen`
    forced: set[int] = field(default_factory=set)  #: ordinals in `new` that are added though seen
    ended: list[Ended] = field(default_factory=list)
    moved: list[Moved] = field(default_factory=list)
    queues: list[QueueRow] = field(default_factory=list)  #: queues named for the first time
    lanes: list[LaneRow] = field(default_factory=list)  #: lanes made for the first time (count 0)
    gates: list[GateRow] = field(default_factory=list)  #: gates that are new or changed

    @property
    def rows(self) -> int:
        """How many rows it writes."""
        return len(self.new) + len(self.ended) + len(self.moved)

    @property
    def is_empty(self) -> bool:
        """Nothing is said."""
        return not (self.rows or self.queues or self.lanes or self.gates)


class Counters(NamedTuple):
    """Totals of the crawl; they change in the transaction that changes what they count."""

    last_ordinal: int = 0
    queued: int = 0  #: rows in `url`: queued, waiting and leased
    done: int = 0
    failed: int = 0
    disregarded: int = 0

    @property
    def accepted(self) -> int:
        """Every URL that was ever enqueued."""
        return self.queued + self.done + self.failed + self.disregarded


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What a store holds when it is opened."""

    clean: bool  #: the last owner closed it; else every key must be marked again
    counters: Counters
    queues: list[QueueRow]
    lanes: list[LaneRow]
    gates: list[GateRow]
    waiting: list[Head]  #: rows that wait for their retry


class HeadsRead(NamedTuple):
    """Answer to `ask_heads`: the first rows of a lane, waiting ones left out, by (precedence, ordinal)."""

    lane: LaneId
    heads: list[Head]


class Synced(NamedTuple):
    """All batches up to `number` are committed and synced."""

    number: int
    duplicates: list[Row]  #: new rows of these batches that died because their key was known


class StoreFailed(NamedTuple):
    """The store cannot go on; nothing after the last `Synced` is kept."""

    error: StoreUnavailable


Answer = HeadsRead | Synced | StoreFailed


class FrontierStore(Protocol):
    """Keeps rows, counts and gate times. Methods marked (blocks) may wait for the disk; the others never do."""

    def open(self, identity: dict[str, str], on_change: Callable[[], None]) -> Opening:
        """Create or open the store and mark it unclean (blocks).

        `identity` names what may not change between openings (policy, filter …). `on_change` is called from any
        thread when there are answers to take, unless they came inside the very call that asked for them.

        Raises: FormatMismatch for another version or identity, StoreInUse, StoreFull, StoreUnavailable.
        """
        ...

    def write(self, batch: Batch) -> None:
        """Take a batch; `Synced` will tell when it is durable."""
        ...

    def ask_heads(self, lane: LaneId, limit: int) -> None:
        """Ask for the first `limit` rows of a lane that do not wait; `HeadsRead` answers."""
        ...

    def take_answers(self) -> list[Answer]:
        """All answers since the last call, oldest first."""
        ...

    def flush(self) -> None:
        """Return when every batch written so far is durable (blocks). Raises: StoreUnavailable."""
        ...

    def look_up(self, key: bytes) -> UrlRecord | None:
        """What is known of the URL with this dedup key (blocks; may cost a scan)."""
        ...

    def ended(self, keys: Sequence[bytes]) -> dict[bytes, UrlRecord]:
        """What is known of those of these URLs that have ended, by dedup key (blocks; seeks only, never a scan)."""
        ...

    def keys(self, chunk: int) -> Iterator[list[bytes]]:
        """Every dedup key in the store, ended rows included, in chunks (blocks)."""
        ...

    def counters(self) -> Counters:
        """The totals as committed, recounted from the rows (blocks; costs a scan; for `check`)."""
        ...

    def close(self, *, clean: bool) -> None:
        """Write all, mark the store clean if asked, let go of it (blocks). Calling it twice is harmless."""
        ...
