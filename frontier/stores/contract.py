"""The contract between the core and its store: rows, the batch of one call, the answers, and `FrontierStore` itself.

Each row has the columns of its table in their order, so that a store can write it as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple, Protocol

from anabranch.frontier.errors import StoreUnavailable
from anabranch.frontier.records import GateKey, Head, OutcomeKind, QueueKey, Row, Turn, UrlRecord

#: Names of the two notes of a checkpoint: its ordinal S as a decimal number, and the filter's position.
CHECKPOINT = "checkpoint"
FILTER = "filter"

LaneId = tuple[int, int]  #: (queue id, gate id)
Place = tuple[int, int, int, int]  #: (queue, gate, precedence, ordinal): the key of a row in `url`


#: The share of a gate.
ShareOf = Callable[[GateKey], int]


def in_one_share(_: GateKey) -> int:
    """Return 0, the only share of a job that has one."""
    return 0


class Ended(NamedTuple):
    """A row that leaves its queue for the table `done`."""

    row: Row
    status: int
    outcome: OutcomeKind


class Moved(NamedTuple):
    """A row that begins or ends to wait for its retry: same queue, gate and ordinal."""

    old: Row
    new: Row


class Standing(IntEnum):
    """Whether a queue may be served at all; the table `queue` keeps the value."""

    OPEN = 0
    PAUSED = 1  #: by the operator
    RETIRED = 2  #: over its total budget, or by the operator


class QueueRow(NamedTuple):
    """A queue without its URLs. Columns of the table `queue` in their order."""

    id: int
    key: QueueKey
    standing: Standing
    precedence: int  #: smaller is served first
    spent: int  #: cost units so far
    budget: int | None  #: its own total budget, -1 = unlimited; None = the order's
    successes: int
    errors: int


class GateRow(NamedTuple):
    """The state of a gate that survives a restart. The first columns of the table `gate` in their order."""

    id: int
    key: GateKey
    rests_until_s: float  #: end of the last rest of its slots
    blocked_until_s: float  #: closed for other reasons (429, an operator)
    spacing_s: float  #: the host's Crawl-delay, 0 = none
    last_rest_s: float  #: length of the latest rest, kept for an unclean end
    throttle_s: float  #: least time between starts since a 429, 0 = none
    troubles: int  #: in a row, until forgiven
    troubled_s: float  #: when the last one was
    slots: int | None  #: set by the host or the operator; None = the order's


class LaneRow(NamedTuple):
    """One lane. The first columns of the table `lane`. It is *servable* while `count > waiting` and its queue is OPEN."""

    queue: int
    gate: int
    turn: Turn
    count: int  # type: ignore[assignment]  #: its rows, leased and waiting ones included (not `tuple.count`)
    waiting: int  #: rows of these that wait for a retry


class Announced(NamedTuple):
    """A lane that is not in memory and gets rows: it is made if it is new. A servable lane keeps its own turn."""

    queue: int
    gate: int
    turn: Turn


class LeftGate(NamedTuple):
    """A gate that leaves the core's memory: with a turn if it has lanes to serve, and with a time if it is closed, too."""

    id: int
    turn: Turn | None
    wakes_s: float | None  #: when it may be read again; only together with a turn


class LinkRow(NamedTuple):
    """An accepted URL on its way to a share of another worker, in the table `link`. Its columns in their order."""

    share: int  #: the receiver
    ordinal: int  #: of its row, given by the sender
    url: str
    key: bytes | None  #: None = the URL in UTF-8
    hops: str
    via: int  #: ordinal of the page it was found on, 0 = none
    precedence: int  #: of its row
    payload: bytes | None

    def dedup_key(self) -> bytes:
        """The bytes by which the filter knows this URL."""
        return self.url.encode() if self.key is None else self.key


class LinkChanges:
    """The links that one call sends to other workers and takes from them; most calls do neither."""

    __slots__ = ("adopted", "outbound")

    def __init__(self) -> None:
        self.outbound: list[LinkRow] = []  #: URLs for shares of other workers, unless their key is known to be seen
        #: Links for shares of ours whose rows are in the batch's `new`. They go, also if their keys are seen.
        self.adopted: list[LinkRow] = []


class Batch:
    """All changes of one call of the core; committed together. A plain class of lists: each call makes one."""

    __slots__ = (
        "announced", "ended", "exchange", "forced", "gate_names", "gates", "last_number", "left", "moved", "new",
        "now_s", "number", "queue_names", "queues", "removed", "retried", "settled", "standings", "turns", "woken",
    )  # fmt: skip

    def __init__(self, number: int, now_s: float = 0.0) -> None:
        self.number = number  #: rises by one with each batch
        self.now_s = now_s  #: the core's time; kept, so that an opening notices a clock that went back
        self.last_number = 0  #: the last number of the sequence of ordinals and turns; kept as `Counters.last_ordinal`
        self.new: list[Row] = []  #: rows to add, unless their key is in the table `seen`
        #: Ordinals in `new` that are added though seen. The failed row of such a key goes, if that is its last one.
        self.forced: set[int] = set()
        #: Of these, those that are failures queued again: new ordinal -> that of the failed row. A row whose key belongs to
        #: another row by now is dropped, so that two commands at the same time queue a URL once.
        self.retried: dict[int, int] = {}
        #: Ordinals in `new` that go to `done` at once, unless seen: (status, kind). They need no lane. The `due_s` of a failure
        #: is when it failed; None: its way there is not known.
        self.settled: dict[int, tuple[int, OutcomeKind]] = {}
        self.exchange: LinkChanges | None = None  #: with other workers
        self.ended: list[Ended] = []
        self.moved: list[Moved] = []
        #: Names for ids that may be new: (id, key, precedence), (id, key). Known ones are left as they are.
        self.queue_names: list[tuple[int, QueueKey, int]] = []
        self.gate_names: list[tuple[int, GateKey]] = []
        self.announced: list[Announced] = []  #: before rows are counted
        self.turns: list[tuple[LaneId, Turn]] = []  #: lanes with a new turn; unknown ones are ignored
        self.removed: list[LaneId] = []  #: lanes to delete if they count no rows
        self.queues: list[QueueRow] = []  #: queues that changed; their `standing` is ignored
        self.standings: list[tuple[int, Standing]] = []  #: queues to open, pause, retire, with all their lanes
        self.gates: list[GateRow] = []  #: gates that are new or changed
        self.woken: list[tuple[int, Turn]] = []  #: gates with a row, not in memory, that now have something to serve
        self.left: list[LeftGate] = []  #: gates that leave memory

    def exchanging(self) -> LinkChanges:
        """The exchange; the first call makes it."""
        if self.exchange is None:
            self.exchange = LinkChanges()
        return self.exchange

    def seal(self, last_number: int, now_s: float) -> None:
        """Complete it with the last number of the sequence and the time."""
        self.last_number = last_number
        self.now_s = now_s

    @property
    def rows(self) -> int:
        """The number of URL rows that it writes."""
        rows = len(self.new) + len(self.ended) + len(self.moved)
        return rows if self.exchange is None else rows + len(self.exchange.outbound)

    @property
    def bytes(self) -> int:
        """Bytes of the URLs and payloads that it adds."""
        return sum([len(row.url) + (len(row.payload) if row.payload else 0) for row in self.new])

    @property
    def is_empty(self) -> bool:
        """It changes nothing."""
        if self.ended or self.new or self.moved or self.gates:  # most are decided here
            return False
        of_lanes = (self.turns, self.left, self.woken, self.removed, self.announced, self.exchange)
        return not any(of_lanes) and not any((self.queues, self.standings, self.queue_names, self.gate_names))


class HeadsRead(NamedTuple):
    """Answer to `ask_heads`: the first rows of a lane without the waiting ones, by (precedence, ordinal)."""

    lane: LaneId
    heads: list[Head]
    queue: QueueRow | None  #: if it was requested


class LanesRead(NamedTuple):
    """Answer to `ask_lanes`: a gate's servable lanes after a turn, by turn. Fewer than the limit: these are all."""

    gate: int
    lanes: list[LaneRow]


class GateRead(NamedTuple):
    """One gate that the core holds in memory from now on, with the first of its servable lanes."""

    row: GateRow
    lanes: list[LaneRow]


class GatesRead(NamedTuple):
    """Answer to `ask_gate` (one gate) and `ask_gates` (by turn; fewer than the limit: no other gate is servable now)."""

    gates: list[GateRead]
    asked: int | None  #: the gate of `ask_gate`; None: answer to `ask_gates`
    wakes_s: float | None  #: of `ask_gates`: when the next closed gate that is not in memory opens


class RetriesRead(NamedTuple):
    """Answer to `ask_retries`: waiting rows by (due_s, ordinal). Fewer than the limit: these are all."""

    rows: list[Row]


class Synced(NamedTuple):
    """All batches up to `number` are committed and synced."""

    number: int
    duplicates: list[Row]  #: new rows of these batches that were dropped because their key was known
    retired: int  #: `Counters.retired` after them
    paused: int  #: `Counters.paused` after them
    queues: int  #: `Counters.queues` after them
    retried: int  #: `Counters.retried` after them


class LinksRead(NamedTuple):
    """Links for shares that this worker serves; several may have one key, and it may be seen.

    Each comes once: it is gone from the store when a batch has adopted it.
    """

    links: list[LinkRow]


class SharesHeld(NamedTuple):
    """The shares that this worker holds changed. What was held and is not named any more was released."""

    serving: frozenset[int]  #: their gates may be served
    leaving: frozenset[int]  #: to be given back: nothing of them may be begun
    gained: Counters  #: rows of those that are new, as `queued`, `waiting`, `retired`, `paused`
    released: Counters  #: rows of those that are gone, the same way
    #: Of those that are new: until when fetches of a worker that died may have lasted; 0 = it did not die.
    died_s: Mapping[int, float]


class JobRead(NamedTuple):
    """The whole job, as this worker's store has seen it last."""

    others: Counters  #: the totals, less those of this worker
    done_at: int | None  #: this worker's last batch when the job was done; None: it is not


class Troubled(NamedTuple):
    """A commit failed for a reason that may pass, and is tried again. An empty `what`: it succeeded."""

    what: str  #: the failing part and its error, such as `the filter: …`
    patience_s: float  #: it is tried again for so long, from the first of these on


class StoreFailed(NamedTuple):
    """The store cannot continue; nothing after the last `Synced` is kept."""

    error: StoreUnavailable


Answer = (
    HeadsRead | LanesRead | GatesRead | RetriesRead | Synced | LinksRead | SharesHeld | JobRead | Troubled | StoreFailed
)


class Counters(NamedTuple):
    """Totals of the crawl; they change in the same transaction as the rows that they count."""

    last_ordinal: int = 0  #: the highest number of the sequence that rows and turns come from
    queued: int = 0  #: rows in `url`: queued, waiting and leased
    done: int = 0
    failed: int = 0
    disregarded: int = 0
    retired: int = 0  #: rows of these `queued` that are in retired queues
    paused: int = 0  #: rows of these `queued` that are in paused queues
    waiting: int = 0  #: rows of these `queued` that wait for a retry
    queues: int = 0  #: rows of the table `queue`
    retried: int = 0  #: failures that were queued again, and so are no more among `failed`

    @property
    def accepted(self) -> int:
        """Every URL that was ever enqueued."""
        return self.queued + self.done + self.failed + self.disregarded


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """The state of a store when it is opened."""

    clean: bool  #: the last owner closed it; otherwise every key above the checkpoint must be marked again
    counters: Counters
    notes: Mapping[str, str]  #: the facts that `note` kept
    epoch: int = 1  #: how often it was opened; every write of this owner checks it
    server_s: float | None = None  #: the server's time, if workers of several machines share the store
    identity: str = ""  #: a name of the store that its copies have, too; empty: it has none
    first_format: str = ""  #: in which the store was made, whatever it was converted to; empty: before this was kept
    history: str = ""  #: a name of this opening that no other one has; empty: the store names none
    #: Earlier openings that this state of the store comes from, by name: the number of the last batch of each.
    earlier: Mapping[str, int] = field(default_factory=dict)


class JobCounts(NamedTuple):
    """A whole job of several workers, as committed at one moment."""

    counters: Counters  #: of all workers that ever joined
    links: int  #: URLs on their way to the worker that holds their share, which drops those that are known

    @property
    def is_done(self) -> bool:
        """Nothing is queued or on its way. Since a page ends together with its links, nothing can come any more."""
        return self.counters.queued - self.counters.retired == 0 and not self.links


class WorkerFacts(NamedTuple):
    """One worker of a job."""

    epoch: int
    name: str
    shares: int  #: that it holds
    left_s: float  #: until its lease ends, by the server's clock; below 0: it is late


class QueueFacts(NamedTuple):
    """A queue with the sums over its lanes."""

    row: QueueRow
    count: int  # type: ignore[assignment]  #: its rows, leased and waiting ones included (not `tuple.count`)
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


class FailedRecord(NamedTuple):
    """A row of the table `done` that failed, with what it takes to queue it again."""

    ordinal: int
    url: str
    key: bytes | None
    status: int
    hops: str | None  #: None: it failed in an older format or elsewhere, and this and what follows is not known
    via: int = 0  #: ordinal of the page it was found on, 0 = none
    precedence: int | None = None  #: of its row
    ended_s: float | None = None  #: when it failed
    payload: bytes | None = None


class RetryReads(Protocol):
    """The questions that a retry of failures asks a store. All of them block, and may be asked from any thread."""

    def failed_after(self, after: int, limit: int) -> list[FailedRecord]:
        """Failed rows of `done` by ordinal, above `after`. Costs a look at these rows, not at those that succeeded."""
        ...

    def by_status(self) -> Mapping[int, int]:
        """How many rows have failed, by their status. Costs a look at each of them."""
        ...

    def blocked(self, now_s: float) -> set[int]:
        """The gates that are blocked longer than `now_s`, as last written. Costs a look at every gate."""
        ...


class FrontierStore(Protocol):
    """Keeps rows, counts and times. Methods marked (blocks) may wait for the disk; the others never do."""

    retry_reads: RetryReads

    def open(self, identity: Mapping[str, str], now_s: float, on_change: Callable[[], None]) -> Opening:
        """Create or open the store and mark it unclean (blocks).

        `identity` has the settings that may not change between openings (policy, …). `on_change` is called from any thread
        when there are answers to take, unless the call that asked has them already. Gates that a former owner held get their
        turns again. If `now_s` is before the time of the last write, the clock went back: all times in the store are moved back
        by as much, so nothing is delayed forever and nothing opens too early.

        Raises: FormatMismatch for another version or identity, StoreInUse naming the owner, StoreFull, StoreUnavailable.
        """

    def write(self, batch: Batch) -> None:
        """Take a batch; `Synced` answers when it is durable."""
        ...

    def ask_heads(self, lane: LaneId, limit: int, *, with_queue: bool) -> None:
        """Ask for the first `limit` rows of a lane that do not wait; `HeadsRead` answers."""

    def ask_lanes(self, gate: int, after: Turn | None, limit: int) -> None:
        """Ask for the servable lanes of a gate after a turn; `LanesRead` answers."""
        ...

    def ask_gate(self, gate: int, key: GateKey, lanes: int) -> None:
        """Take one gate into memory, made if it is new; `GatesRead` answers, with up to `lanes` of its lanes."""
        ...

    def ask_gates(self, now_s: float, limit: int, lanes: int) -> None:
        """Take up to `limit` gates into memory that have something to serve and are not known to be closed.

        Smallest turns first; a gate is closed until its `wakes_s`. `GatesRead` answers.
        """

    def ask_retries(self, after: tuple[float, int] | None, limit: int) -> None:
        """Ask for waiting rows after (due_s, ordinal); `RetriesRead` answers."""
        ...

    def hurry(self) -> None:
        """Begin the next transaction soon, for a store that lingers to gather more for it."""
        ...

    def limit_retries(self) -> None:
        """The crawl ends: wait no longer than usual for a store that is away, even if several workers have it."""

    def take_answers(self) -> list[Answer]:
        """All answers since the last call, oldest first."""

    def flush(self) -> None:
        """Return when every batch written so far is durable (blocks, any thread). Raises: StoreUnavailable."""

    def note(self, notes: Mapping[str, str]) -> None:
        """Store these facts by name, durably (blocks, any thread). Raises: StoreUnavailable."""

    def close(self, *, clean: bool) -> None:
        """Write all, mark the store clean if asked, and release it (blocks). A second call does nothing."""

    # Look-ups for inspection: all block, any thread

    def look_up(self, key: bytes, lane: LaneId | None = None) -> UrlRecord | None:
        """The record of the URL with this dedup key; the right `lane` of a queued URL spares a scan."""
        ...

    def ended(self, keys: Sequence[bytes]) -> dict[bytes, UrlRecord]:
        """The records of those of these URLs that have ended, by dedup key (seeks only, never a scan)."""
        ...

    def of_url(self, url: str, limit: int) -> list[UrlRecord]:
        """The records of the keys under which this URL is known, by ordinal: several if a host made several requests of it.

        Looks at the latest `limit` queued rows and as many ended ones. Costs a look at every row.
        """

    def keys(self, chunk: int, after: int = 0) -> Iterator[list[bytes]]:
        """The dedup keys of all rows with an ordinal above `after`, ended rows included, in chunks."""

    def queue(self, queue: int) -> QueueFacts | None:
        """One queue."""

    def queues(
        self, standing: Standing | None, after: int | None, limit: int, longest_first: bool = False
    ) -> list[QueueFacts]:
        """Queues that have rows (or are paused or retired), by id, after `after`; of one standing if given.

        `longest_first`: the queues with the most rows instead, of any standing and without `after`. Costs a look at every lane.
        """
        ...

    def lanes(self, queue: int, after: int | None, limit: int) -> list[LaneRow]:
        """The lanes of a queue that have rows, by gate id, after `after`."""
        ...

    def gate(self, gate: int) -> GateRow | None:
        """One gate as last written."""

    def queued(self, after: Place | None, limit: int) -> list[Head]:
        """Rows of `url` by place, after `after`."""
        ...

    def ended_after(self, after: int, limit: int) -> list[EndedRecord]:
        """Rows of `done` by ordinal, above `after`."""
        ...

    def tally(self) -> Mapping[str, int]:
        """How many queues are "empty", "inactive" (servable), "snoozed" (all rows wait), "paused" and "retired"."""
        ...

    def counters(self) -> Counters:
        """The totals as committed, recounted from the rows (costs a scan; for `check`)."""
