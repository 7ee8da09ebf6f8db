"""The core's link to its store: hands over batches and questions, takes answers, keeps the totals."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from anabranch.frontier.admission import Admission
from anabranch.frontier.checkpoints import Checkpoints
from anabranch.frontier.completion import Completion
from anabranch.frontier.errors import FrontierError, StoreSetBack, unwritable
from anabranch.frontier.records import Lease, OutcomeKind, Row
from anabranch.frontier.scheduling.heaps import RETRIES_AT_ONCE, Retries
from anabranch.frontier.scheduling.readylist import LANES_AT_ONCE, Lane, Outbox, ReadyList
from anabranch.frontier.scheduling.schedule import Schedule
from anabranch.frontier.shares.hosting import Hosting
from anabranch.frontier.stores.contract import (
    Answer,
    Counters,
    FrontierStore,
    GatesRead,
    HeadsRead,
    JobRead,
    LanesRead,
    LinksRead,
    RetriesRead,
    SharesHeld,
    StoreFailed,
    Synced,
    Troubled,
)

#: Lanes of a line that are read at a time, once it has more than it brought along.
LANES_NEXT = 500


class Loaded(NamedTuple):
    """The part of a batch that was loaded from another Frontier."""

    number: int  #: of the batch
    settled: Mapping[int, tuple[int, OutcomeKind]]
    waiting: Sequence[Row]  #: rows that wait for a retry


@dataclass(frozen=True, slots=True, kw_only=True)
class Receivers:
    """The parts that the store's answers go to and that the batches come from."""

    admission: Admission
    schedule: Schedule
    retries: Retries
    completion: Completion
    outbox: Outbox


class StoreLink:
    """Sends the core's batches to the store and gives the store's answers to the parts of the core.

    After the store or the filter failed, every call raises that failure.
    """

    def __init__(
        self,
        store: FrontierStore,
        receivers: Receivers,
        counters: Counters,
        max_unacknowledged: int,
        clock: Callable[[], float],
        checkpoints: Checkpoints,
        hosting: Hosting | None = None,
    ) -> None:
        """`hosting`: the Frontier is one of many workers on the job."""
        self.hosting = hosting
        self._store = store
        self._admission = receivers.admission
        self._schedule = receivers.schedule
        self._retries = receivers.retries
        self._completion = receivers.completion
        self._outbox = receivers.outbox
        self._clock = clock
        self._checkpoints = checkpoints
        self._heads: deque[Lane] = deque()  #: lanes that wait for their heads, in the order of the questions
        self._lanes: deque[ReadyList] = deque()
        self._loaded: deque[Loaded] = deque()  #: batches that are not durable and that hold what was loaded
        self.asked = 0  #: questions under way, those for heads left out
        self.unacknowledged = Unacknowledged(max_unacknowledged)
        self.waiting: StoreTrouble | None = None  #: for what, if a write failed and is tried again
        self._report_trouble: Callable[[str], None] | None = None
        self.failure: FrontierError | None = None
        self.queued = counters.queued  #: rows in the store: queued, waiting and leased
        self.retired = counters.retired  #: of these, rows of retired queues, by its last answer
        self.paused = counters.paused
        self.queues = counters.queues
        self.retried = counters.retried  #: failures that were queued again
        self.ended = {
            OutcomeKind.DONE: counters.done,
            OutcomeKind.FAILED: counters.failed + counters.retried,
            OutcomeKind.DISREGARDED: counters.disregarded,
        }

    def on_trouble(self, report: Callable[[str], None]) -> None:
        """Call `report` with the reason when a write failed and is tried again, with "" when it has succeeded."""
        self._report_trouble = report

    def await_loaded(self, waiting: Sequence[Row]) -> None:
        """The batch under way holds rows that have ended, or that wait: what they count for is known when it is durable."""
        batch = self._outbox.batch
        self._completion.count_waiting(len(waiting))
        self._loaded.append(Loaded(batch.number, batch.settled, waiting))

    def send(self, finishes: int = 0) -> None:
        """Hand the batch to the store, unless it is empty, and then ask what there is to ask."""
        outbox, store, unacknowledged = self._outbox, self._store, self.unacknowledged
        now_s = self._clock()
        heads, lanes, gates = outbox.heads, outbox.lanes, outbox.gates
        next_gates, retries = outbox.next_gates, outbox.retries
        asked = len(gates) + len(lanes) + bool(next_gates) + (retries is not False)
        if asked or heads:
            self.asked += asked
            outbox.questions_taken()
        batch = outbox.take_batch(now_s)
        if batch is not None:
            unacknowledged.add(batch.number, batch.rows, batch.bytes, finishes)
            self.queued += len(batch.new) - len(batch.settled) - len(batch.ended)
            for ended in batch.ended:
                self.ended[ended.outcome] += 1
            for _, kind in batch.settled.values():
                self.ended[kind] += 1
            begins = unacknowledged.begins()
            store.write(batch)
            if begins:
                store.hurry()
        for lane in heads:
            self._heads.append(lane)
            store.ask_heads(lane.id, lane.limit, with_queue=not lane.queue.is_known)
        for gate in gates:
            store.ask_gate(gate.gate.id, gate.gate.key, LANES_AT_ONCE)
        for line, after in lanes:
            self._lanes.append(line)
            store.ask_lanes(line.gate.id, after, LANES_NEXT)
        if next_gates:
            store.ask_gates(now_s, next_gates, LANES_AT_ONCE)
        if retries is not False:
            store.ask_retries(retries, RETRIES_AT_ONCE)

    def ask(self) -> bool:
        """If there is anything to ask, send what comes before it, then ask; True if there was."""
        if not self._outbox.has_questions():
            return False
        self.send()
        return True

    def drain(self) -> bool:
        """Take the store's answers; True if there were any. Marks a slice of what is durable.

        Raises: the error with which the store, the filter or a checkpoint failed.
        """
        self.failure = self.failure or self._checkpoints.failure
        if self.failure is not None:
            raise self.failure
        answers = self._store.take_answers()
        if not (answers or self._admission.marking.behind):
            return False  # as at most calls
        try:
            for answer in answers:
                self._take(answer)
            if self.hosting is not None:
                self._give_back(self.hosting)
            marking = self._admission.marking
            try:
                marking.mark_some()
            except OSError as error:
                raise unwritable("the filter", error) from error
            self._checkpoints.marked(marking.ordinal)
        except FrontierError as error:
            self.failure = error  # the other answers are lost: nothing can go on from here
            if isinstance(error, StoreSetBack):
                self._admission.marking.last_batch.distrust()
            raise
        return bool(answers)

    def counters(self) -> Counters:
        """The totals as they stand in memory."""
        return Counters(
            last_ordinal=self._outbox.last_number,
            queued=self.queued,
            done=self.ended[OutcomeKind.DONE],
            failed=self.ended[OutcomeKind.FAILED] - self.retried,
            disregarded=self.ended[OutcomeKind.DISREGARDED],
            retired=self.retired,
            paused=self.paused,
            waiting=self._completion.waiting,
            queues=self.queues,
            retried=self.retried,
        )

    def job_counters(self) -> Counters:
        """The totals of the whole job: with those of its other workers, as they were seen last."""
        own = self.counters()
        if self.hosting is None:
            return own
        return Counters._make(here + there for here, there in zip(own, self.hosting.others, strict=True))

    def _take(self, answer: Answer) -> None:
        match answer:
            case Synced():
                self._synced(answer)
            case HeadsRead():
                self._schedule.heads_read(self._heads.popleft(), answer.heads, answer.queue)
            case LanesRead():
                self.asked -= 1
                self._schedule.placement.lanes_read(self._lanes.popleft(), answer, LANES_NEXT)
            case GatesRead():
                self.asked -= 1
                self._schedule.window.gates_read(answer, self._clock())
            case RetriesRead():
                self.asked -= 1
                self._retries.read(answer.rows)
            case SharesHeld() | LinksRead() | JobRead():
                assert self.hosting is not None
                if isinstance(answer, SharesHeld):
                    self._count_shares(answer)
                waited_for = self.hosting.waits_for
                self.hosting.take(answer)
                if self.hosting.waits_for != waited_for:
                    self._note_trouble(self.hosting.waits_for, math.inf)
            case Troubled(what, patience_s):
                self._note_trouble(what, patience_s)
            case StoreFailed():
                raise answer.error

    def _note_trouble(self, what: str, patience_s: float) -> None:
        """Note for what this waits, empty: for nothing. Its time counts from the first failure, whatever the reason is."""
        since_s = self._clock() if self.waiting is None else self.waiting.since_s
        self.waiting = StoreTrouble(what, since_s, patience_s) if what else None
        if self._report_trouble is not None:
            self._report_trouble(what)

    @property
    def is_job_done(self) -> bool:
        """Nothing is queued at any other worker or on its way; what this one said last is part of that."""
        return self.hosting is None or self.hosting.done_at >= self.unacknowledged.last

    def lease_ended(self, lease: Lease) -> None:
        """A lease has ended; its share may be the next to be given back."""
        if self.hosting is not None and self.hosting.is_leaving(lease.gate):
            self._give_back(self.hosting)

    def _give_back(self, hosting: Hosting) -> None:
        """Send what was adopted and gates that leave, and only then give back the shares that have nothing left."""
        hosting.let_go(self._clock())
        self.send()
        hosting.give_back()

    @property
    def may_lease(self) -> bool:
        """The store is not too far behind, and this worker's lease has not ended."""
        return not self.unacknowledged.is_full and (self.hosting is None or self.hosting.may_lease())

    def _count_shares(self, answer: SharesHeld) -> None:
        """The rows of shares that came are counted here now, those of shares that went are not."""
        gained, released = answer.gained, answer.released
        self.queued += gained.queued - released.queued
        self.retired += gained.retired - released.retired
        self.paused += gained.paused - released.paused

    def _synced(self, answer: Synced) -> None:
        number, duplicates = answer.number, answer.duplicates
        self.retired, self.paused = answer.retired, answer.paused
        self.queues, self.retried = answer.queues, answer.retried
        self.unacknowledged.synced(number)
        if duplicates:
            self.queued -= len(duplicates)
            self._admission.marking.counts.count_store(len(duplicates))
        if self._loaded:  # what dead rows counted for is taken back; rows that wait may come due from now on
            dead = {row.ordinal for row in duplicates}
            while self._loaded and self._loaded[0].number <= number:
                loaded = self._loaded.popleft()
                for ordinal in dead & loaded.settled.keys():
                    self.queued += 1
                    self.ended[loaded.settled[ordinal][1]] -= 1
                for row in loaded.waiting:
                    if row.ordinal in dead:
                        self._completion.count_waiting(-1)
                    else:
                        self._retries.add(row)
        self._admission.marking.synced(number, duplicates)


#: Rows that may be written and not durable before the Frontier waits for the store.
MAX_ROWS: Final = 20_000
#: The same for what these rows hold: URLs and payloads.
MAX_BYTES: Final = 64 << 20


class Behind(NamedTuple):
    """How far the store was behind at one moment."""

    rows: int  #: rows handed over and not durable
    is_full: bool  #: so many that nothing new was begun


class StoreTrouble(NamedTuple):
    """The store cannot write now and tries again."""

    what: str  #: what fails and how
    since_s: float  #: epoch seconds
    patience_s: float  #: so long at most; then the store fails

    def words(self, now_s: float) -> str:
        """`waits for the filter: the Redis server … does not answer (12 s of 30 s)`."""
        most = "" if self.patience_s == math.inf else f" of {self.patience_s:.0f} s"
        return f"waits for {self.what} ({max(now_s - self.since_s, 0):.0f} s{most})"


class Unacknowledged:
    """Numbers the batches and counts those that are not durable. O(1) a batch."""

    def __init__(self, max_unacknowledged: int) -> None:
        self._max_finishes = max_unacknowledged
        self._batches: deque[tuple[int, int, int, int]] = deque()
        self.rows = 0  #: rows not durable
        self.bytes = 0  #: URLs and payloads of new rows that are not durable
        self.finishes = 0  #: finished leases not durable
        self.last = 0  #: number of the last batch
        self.durable = 0  #: number of the last durable batch
        self.is_full = False  #: the store must catch up before anything new is begun
        #: Rows, bytes and finishes since `begins` last asked the store to begin.
        self._gathered = (0, 0, 0)

    @property
    def behind(self) -> Behind:
        """How far the store is behind now: taken before a flush, after which it never is."""
        return Behind(self.rows, self.is_full)

    @property
    def is_empty(self) -> bool:
        """Whether every batch is durable."""
        return self.durable == self.last

    def add(self, number: int, rows: int, size: int, finishes: int) -> None:
        """A batch of so many rows and bytes is written that ends so many leases."""
        self.last = number
        self._batches.append((number, rows, size, finishes))
        gathered = self._gathered
        self._gathered = (gathered[0] + rows, gathered[1] + size, gathered[2] + finishes)
        self.rows += rows
        self.bytes += size
        self.finishes += finishes
        self._weigh()

    def synced(self, number: int) -> None:
        """Every batch up to `number` is durable."""
        self.durable = max(self.durable, number)
        batches = self._batches
        while batches and batches[0][0] <= number:
            _, rows, size, finishes = batches.popleft()
            self.rows -= rows
            self.bytes -= size
            self.finishes -= finishes
        if not batches:
            self._gathered = (0, 0, 0)
        if self.is_full:
            self._weigh()

    def begins(self) -> bool:
        """Whether the store should begin with what it has gathered: half of what may be behind. Says so once for each half."""
        rows, size, finishes = self._gathered
        if 2 * finishes >= self._max_finishes or 2 * rows >= MAX_ROWS or 2 * size >= MAX_BYTES:
            self._gathered = (0, 0, 0)
            return True
        return False

    def _weigh(self) -> None:
        self.is_full = self.finishes >= self._max_finishes or self.rows >= MAX_ROWS or self.bytes >= MAX_BYTES
