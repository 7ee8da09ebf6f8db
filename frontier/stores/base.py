"""The seam between the core and what keeps its rows.

A store takes batches and questions in one order (FIFO) and never makes the core wait: answers are fetched with
`take_answers`. A read sees every batch that was written before it, and may see some that came after it. A batch is one
transaction at most: all of it is kept, or nothing.

What the store holds beyond URLs is what lets an idle queue cost nothing in memory: a row per queue, a row per lane with its
turn at its gate, a row per gate with its turn among the gates that are not in memory. The core has the first of each in
memory and reads on when few remain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from anabranch.frontier.models import GateKey, Head, OutcomeKind, UrlRecord
from anabranch.frontier.stores.messages import (
    Answer,
    Batch,
    GateRow,
    LaneId,
    LaneRow,
    Parcel,
    Place,
    QueueRow,
    Standing,
)
from anabranch.frontier.turns import Turn


class Counters(NamedTuple):
    """Totals of the crawl; they change in the transaction that changes what they count."""

    last_ordinal: int = 0  #: the highest number of the sequence that rows and turns come from
    queued: int = 0  #: rows in `url`: queued, waiting and leased
    done: int = 0
    failed: int = 0
    disregarded: int = 0
    retired: int = 0  #: rows of these `queued` that are in retired queues
    paused: int = 0  #: rows of these `queued` that are in paused queues
    waiting: int = 0  #: rows of these `queued` that wait for a retry
    queues: int = 0  #: rows of the table `queue`

    @property
    def accepted(self) -> int:
        """Every URL that was ever enqueued."""
        return self.queued + self.done + self.failed + self.disregarded


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What a store holds when it is opened."""

    clean: bool  #: the last owner closed it; else every key above the checkpoint must be marked again
    counters: Counters
    notes: Mapping[str, str]  #: what `note` kept
    epoch: int = 1  #: how often it was opened; every write of this owner carries it


class QueueFacts(NamedTuple):
    """A queue with the sums over its lanes."""

    row: QueueRow
    count: int  # type: ignore[assignment]  #: its rows, leased and waiting ones included; not what tuples count
    waiting: int
    lanes: int  #: lanes that have rows


class EndedRecord(NamedTuple):
    """A row of the table `done`."""

    ordinal: int
    url: str
    key: bytes | None
    status: int
    outcome: OutcomeKind
    attempts: int


class FrontierStore(Protocol):
    """Keeps rows, counts and times. Methods marked (blocks) may wait for the disk; the others never do."""

    # The core's

    def open(self, identity: Mapping[str, str], now_s: float, on_change: Callable[[], None]) -> Opening:
        """Create or open the store and mark it unclean (blocks).

        `identity` names what may not change between openings (policy, …). `on_change` is called from any thread when there
        are answers to take, unless they came inside the very call that asked for them. Gates that an owner held when it died
        get their turns again. If `now_s` lies before the time of the last write, the clock went back: all times in
        the store are moved back by as much, so nothing is delayed for ever and nothing opens too early.

        Raises: FormatMismatch for another version or identity, StoreInUse naming the owner, StoreFull, StoreUnavailable.
        """
        ...

    def write(self, batch: Batch) -> None:
        """Take a batch; `Synced` will tell when it is durable."""
        ...

    def ask_heads(self, lane: LaneId, limit: int, *, with_queue: bool) -> None:
        """Ask for the first `limit` rows of a lane that do not wait; `HeadsRead` answers."""
        ...

    def ask_lanes(self, gate: int, after: Turn | None, limit: int) -> None:
        """Ask for the servable lanes of a gate behind a turn; `LanesRead` answers."""
        ...

    def ask_gate(self, gate: int, key: GateKey, lanes: int) -> None:
        """Take one gate into memory, make its row if there is none; `GatesRead` answers, with up to `lanes` of its lanes."""
        ...

    def ask_gates(self, now_s: float, limit: int, lanes: int) -> None:
        """Take up to `limit` gates into memory that are not there, have something to serve and are not known to be closed.

        Those with the smallest turns come first; one whose `wakes_s` has come counts with its turn. `GatesRead` answers.
        """
        ...

    def ask_retries(self, after: tuple[float, int] | None, limit: int) -> None:
        """Ask for waiting rows behind (due_s, ordinal); `RetriesRead` answers."""
        ...

    def hurry(self) -> None:
        """What was written and asked is wanted soon: a store that lingers, so that more shares a transaction, begins now."""
        ...

    def take_answers(self) -> list[Answer]:
        """All answers since the last call, oldest first."""
        ...

    def flush(self) -> None:
        """Return when every batch written so far is durable (blocks, any thread). Raises: StoreUnavailable."""
        ...

    def note(self, notes: Mapping[str, str]) -> None:
        """Keep these facts by name, durably (blocks, any thread). Raises: StoreUnavailable."""
        ...

    def close(self, *, clean: bool) -> None:
        """Write all, mark the store clean if asked, let go of it (blocks). Calling it twice is harmless."""
        ...

    def parcels(self, share: int, after: int, limit: int) -> list[Parcel]:
        """What is kept for another share of the crawl, by number, behind one; durable when answered (blocks, any thread)."""
        ...

    # Questions of others: all block, any thread

    def look_up(self, key: bytes, lane: LaneId | None = None) -> UrlRecord | None:
        """What is known of the URL with this dedup key; `lane`, if it is known where it stands, spares a scan."""
        ...

    def ended(self, keys: Sequence[bytes]) -> dict[bytes, UrlRecord]:
        """What is known of those of these URLs that have ended, by dedup key (seeks only, never a scan)."""
        ...

    def of_url(self, url: str, limit: int) -> list[UrlRecord]:
        """The latest rows of the keys under which this URL is known, by ordinal: as many as a host has requests of it.

        Of the queued rows and of the ended ones the latest `limit` each are looked at. Costs a look at every row.
        """
        ...

    def keys(self, chunk: int, after: int = 0) -> Iterator[list[bytes]]:
        """Every dedup key of a row with an ordinal above `after`, ended rows included, in chunks."""
        ...

    def queue(self, queue: int) -> QueueFacts | None:
        """One queue."""
        ...

    def queues(self, standing: Standing | None, after: int | None, limit: int) -> list[QueueFacts]:
        """Queues that have rows (or are paused or retired), by id, behind one; of one standing if given."""
        ...

    def longest(self, limit: int) -> list[QueueFacts]:
        """The queues with most rows, longest first. Costs a look at every lane."""
        ...

    def lanes(self, queue: int, after: int | None, limit: int) -> list[LaneRow]:
        """The lanes of a queue that have rows, by gate id, behind one."""
        ...

    def gate(self, gate: int) -> GateRow | None:
        """One gate, as it was last written."""
        ...

    def queued(self, after: Place | None, limit: int) -> list[Head]:
        """Rows of `url` by place, behind one."""
        ...

    def ended_after(self, after: int, limit: int) -> list[EndedRecord]:
        """Rows of `done` by ordinal, above one."""
        ...

    def tally(self) -> Mapping[str, int]:
        """Queues by what their rows say: "empty", "inactive" (servable), "snoozed" (all wait), "paused", "retired"."""
        ...

    def counters(self) -> Counters:
        """The totals as committed, recounted from the rows (costs a scan; for `check`)."""
        ...
