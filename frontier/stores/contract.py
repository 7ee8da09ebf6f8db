"""What the core and its store tell each other: rows, the batch of one call, and the answers.

Every record has the columns of its table in their order, so that a store can write it as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, Protocol

from anabranch.frontier.errors import StoreUnavailable
from anabranch.frontier.records import GateKey, Head, OutcomeKind, QueueKey, Row, Turn, UrlRecord

#: Names of the two notes of a checkpoint: its ordinal S as a decimal number, and the filter's position.
CHECKPOINT = "checkpoint"
FILTER = "filter"

LaneId = tuple[int, int]  #: (queue id, gate id)
Place = tuple[int, int, int, int]  #: (queue, gate, precedence, ordinal): where a row stands in `url`


class Ended(NamedTuple):
    """A row that leaves its queue for the table `done`."""

    row: Row
    status: int
    outcome: OutcomeKind


class Moved(NamedTuple):
    """A row that goes to wait for its retry, or comes back from there: same queue, gate and ordinal."""

    old: Row
    new: Row


class Standing(IntEnum):
    """Whether a queue may be served at all; the value is what the table `queue` keeps."""

    OPEN = 0
    PAUSED = 1  #: by the operator
    RETIRED = 2  #: over its total budget, or by the operator


class QueueRow(NamedTuple):
    """What is known of a queue beside its URLs. Columns of the table `queue` in their order."""

    id: int
    key: QueueKey
    standing: Standing
    precedence: int  #: smaller is served first
    spent: int  #: cost units so far
    budget: int | None  #: its own total budget, -1 = without end; None = the order's
    successes: int
    errors: int


class GateRow(NamedTuple):
    """What of a gate must survive a restart. Columns of the table `gate` in their order; `held` and two more follow there."""

    id: int
    key: GateKey
    rests_until_s: float  #: when the last of its slots has rested
    blocked_until_s: float  #: closed for other reasons (429, an operator)
    spacing_s: float  #: the host's Crawl-delay, 0 = none
    last_rest_s: float  #: the latest rest d, kept for an unclean end
    throttle_s: float  #: starts are at least so far apart since a 429, 0 = none
    troubles: int  #: in a row, until forgiven
    troubled_s: float  #: when the last one was
    slots: int | None  #: set by the host or the operator; None = the order's


class LaneRow(NamedTuple):
    """One lane. Columns of the table `lane` in their order; `shelved` follows there.

    A lane is *servable* while `count > waiting` and its queue's standing is OPEN.
    """

    queue: int
    gate: int
    turn: Turn
    count: int  # type: ignore[assignment]  #: its rows, leased and waiting ones included; not what tuples count
    waiting: int  #: rows of these that wait for a retry


class Announced(NamedTuple):
    """A lane that is not in memory and gets rows: its row is made if there is none.

    The turn is taken if the lane is new or was not servable; a servable lane keeps its own.
    """

    queue: int
    gate: int
    turn: Turn


class LeftGate(NamedTuple):
    """A gate that leaves the core's memory: with a turn if lanes wait, and a time if it is closed, too; else with neither."""

    id: int
    turn: Turn | None
    wakes_s: float | None  #: when it may be read again; only together with a turn


class Parcel(NamedTuple):
    """Links for another share of the crawl, kept until it has them. Columns of the table `parcel` in their order."""

    share: int  #: for whom
    number: int  #: of the sequence; rises with each
    content: bytes  #: as `frontier.division.parcels` writes it; contents of several may be joined


class Exchanged:
    """What one call says of the exchange with other shares of the crawl; most crawls have none."""

    __slots__ = ("delivered", "pages", "parcels")

    def __init__(self) -> None:
        self.parcels: list[Parcel] = []  #: to be kept
        self.delivered: list[tuple[int, int]] = []  #: (share, number): it has all parcels up to this one
        #: Pages of other shares that rows were found on: (ordinal, URL). Those rows have the ordinal's negative as their `via`.
        self.pages: list[tuple[int, str]] = []


class Batch:
    """All that one call of the core says; committed together. A plain class of lists: one is made per call."""

    __slots__ = (
        "announced", "ended", "exchanged", "forced", "gate_names", "gates", "last_number", "left", "moved", "new", "now_s",
        "number", "queue_names", "queues", "removed", "settled", "standings", "turns", "woken",
    )  # fmt: skip

    def __init__(self, number: int, now_s: float = 0.0) -> None:
        self.number = number  #: rises by one with each batch
        self.now_s = now_s  #: the core's time; kept, so that an opening notices a clock that went back
        self.last_number = 0  #: how far the sequence of ordinals and turns has come; kept as `Counters.last_ordinal`
        self.new: list[Row] = []  #: rows to add, unless their key is in the table `seen`
        self.forced: set[int] = set()  #: ordinals in `new` that are added though seen
        #: Ordinals in `new` that go to `done` at once, if they are new: (status, kind). They need no lane and count in none.
        self.settled: dict[int, tuple[int, OutcomeKind]] = {}
        self.ended: list[Ended] = []
        self.moved: list[Moved] = []
        #: Names for ids that may be new: (id, key, precedence), (id, key). Known ones are left as they are.
        self.queue_names: list[tuple[int, QueueKey, int]] = []
        self.gate_names: list[tuple[int, GateKey]] = []
        self.announced: list[Announced] = []  #: before rows are counted
        self.turns: list[tuple[LaneId, Turn]] = []  #: lanes that changed their turn; unknown ones are ignored
        self.removed: list[LaneId] = []  #: lanes whose rows may be deleted if they count nothing
        self.queues: list[QueueRow] = []  #: queues that changed; `standing` is not taken from here
        self.standings: list[tuple[int, Standing]] = []  #: queues to open, pause, retire, with all their lanes
        self.gates: list[GateRow] = []  #: gates that are new or changed
        self.woken: list[tuple[int, Turn]] = []  #: gates not in memory, each with a row, that got something to serve
        self.left: list[LeftGate] = []  #: gates that leave memory
        self.exchanged: Exchanged | None = None  #: what other shares of the crawl get, have, and sent

    def seal(self, last_number: int, now_s: float) -> None:
        """It is complete: note how far the sequence has come, and the time."""
        self.last_number = last_number
        self.now_s = now_s

    @property
    def rows(self) -> int:
        """How many rows of URLs it writes."""
        return len(self.new) + len(self.ended) + len(self.moved)

    @property
    def bytes(self) -> int:
        """The size of the URLs and payloads that it adds, and of its parcels."""
        size = sum([len(row.url) + (len(row.payload) if row.payload else 0) for row in self.new])
        return size if self.exchanged is None else size + sum(len(parcel.content) for parcel in self.exchanged.parcels)

    @property
    def is_empty(self) -> bool:
        """Nothing is said."""
        return not (self.ended or self.new or self.moved or self.gates or self._says_of_lanes or self._says_of_names)

    @property
    def _says_of_lanes(self) -> bool:
        return bool(self.turns or self.left or self.woken or self.removed or self.announced or self.exchanged)

    @property
    def _says_of_names(self) -> bool:
        return bool(self.queues or self.standings or self.queue_names or self.gate_names)


class HeadsRead(NamedTuple):
    """Answer to `ask_heads`: the first rows of a lane, waiting ones left out, by (precedence, ordinal)."""

    lane: LaneId
    heads: list[Head]
    queue: QueueRow | None  #: if it was asked for


class LanesRead(NamedTuple):
    """Answer to `ask_lanes`: a gate's servable lanes behind a turn, by turn. Fewer than the limit: there are no more."""

    gate: int
    lanes: list[LaneRow]


class GateRead(NamedTuple):
    """One gate that is in the core's memory from now on (`held`), with the first of its servable lanes."""

    row: GateRow
    lanes: list[LaneRow]


class GatesRead(NamedTuple):
    """Answer to `ask_gate` (one gate) and `ask_gates` (by turn; fewer than the limit: no other one is servable now)."""

    gates: list[GateRead]
    asked: int | None  #: the gate that was asked for; None: answer to `ask_gates`
    wakes_s: float | None  #: answer to `ask_gates`: when the next gate that is not in memory opens, if one is closed


class RetriesRead(NamedTuple):
    """Answer to `ask_retries`: waiting rows behind a place, by (due_s, ordinal). Fewer than the limit: there are no more."""

    rows: list[Row]


class Synced(NamedTuple):
    """All batches up to `number` are committed and synced."""

    number: int
    duplicates: list[Row]  #: new rows of these batches that died because their key was known
    retired: int  #: `Counters.retired` after them
    paused: int  #: `Counters.paused` after them
    queues: int  #: `Counters.queues` after them


class Troubled(NamedTuple):
    """What was written is not kept yet: it failed for a reason that may pass, and is tried again. Empty: it is kept now."""

    what: str  #: what fails and how, such as `the filter: …`
    patience_s: float  #: how long it is tried again, from the first of these on


class StoreFailed(NamedTuple):
    """The store cannot go on; nothing after the last `Synced` is kept."""

    error: StoreUnavailable


Answer = HeadsRead | LanesRead | GatesRead | RetriesRead | Synced | Troubled | StoreFailed


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

    def queues(
        self, standing: Standing | None, after: int | None, limit: int, longest_first: bool = False
    ) -> list[QueueFacts]:
        """Queues that have rows (or are paused or retired), by id, after `after`; of one standing if given.

        `longest_first`: the queues with the most rows instead, of any standing and without `after`. Costs a look at every lane.
        """
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
