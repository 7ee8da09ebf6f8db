"""What the Frontier and its store have told each other: batches said, answers taken, totals kept."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from anabranch.frontier.backlog import Backlog, Waiting
from anabranch.frontier.endings import Endings
from anabranch.frontier.errors import FrontierError, unwritable
from anabranch.frontier.intake import Intake
from anabranch.frontier.models import Candidate, OutcomeKind, Row, Verdict
from anabranch.frontier.outbox import LANES_AT_ONCE, RETRIES_AT_ONCE, Outbox
from anabranch.frontier.scheduling.gatelines import Line
from anabranch.frontier.scheduling.retries import Retries
from anabranch.frontier.scheduling.schedule import Schedule
from anabranch.frontier.scheduling.workqueues import Lane
from anabranch.frontier.stores.base import Counters, FrontierStore
from anabranch.frontier.stores.messages import (
    Answer,
    Batch,
    GatesRead,
    HeadsRead,
    LanesRead,
    RetriesRead,
    StoreFailed,
    Synced,
    Troubled,
)

#: Lanes of a line that are read at a time, once it has more than it brought along.
LANES_NEXT = 500


class Loaded(NamedTuple):
    """What a batch brings from another Frontier."""

    number: int  #: of the batch
    settled: Mapping[int, tuple[int, OutcomeKind]]
    waiting: Sequence[Row]  #: rows that wait for a retry


@dataclass(frozen=True, slots=True, kw_only=True)
class Receivers:
    """Those whom the store's answers concern, and whose changes go into the batches."""

    intake: Intake
    schedule: Schedule
    retries: Retries
    endings: Endings
    outbox: Outbox


class Books:
    """One side of the talk with the store: a call says one batch, and takes what was answered before it.

    After the store or the filter failed, every call raises what it failed with.
    """

    def __init__(
        self,
        store: FrontierStore,
        receivers: Receivers,
        counters: Counters,
        max_unacknowledged: int,
        clock: Callable[[], float],
    ) -> None:
        self._store = store
        self._intake = receivers.intake
        self._schedule = receivers.schedule
        self._retries = receivers.retries
        self._endings = receivers.endings
        self._outbox = receivers.outbox
        self._clock = clock
        self._heads: deque[Lane] = deque()  #: whose heads are on their way, in the order of the questions
        self._lanes: deque[Line] = deque()
        self._loaded: deque[Loaded] = deque()  #: batches that are not durable and that hold what was loaded
        self.asked = 0  #: questions under way, those for heads left out
        self.backlog = Backlog(max_unacknowledged)
        self.waiting: Waiting | None = None  #: for what, if a write failed and is tried again
        self.tell: Callable[[str], None] = lambda _: None  #: hears of that, and by an empty text of its end
        self.failure: FrontierError | None = None
        self.queued = counters.queued  #: rows in the store: queued, waiting and leased
        self.retired = counters.retired  #: of these, rows of retired queues, as the store last said
        self.paused = counters.paused
        self.queues = counters.queues
        self.ended = {
            OutcomeKind.DONE: counters.done,
            OutcomeKind.FAILED: counters.failed,
            OutcomeKind.DISREGARDED: counters.disregarded,
        }

    def accept(self, candidates: Sequence[Candidate], via: int, via_url: str | None = None) -> list[Verdict]:
        """Add what is new to the batch."""
        rows = self._outbox.batch.new
        before = len(rows)
        verdicts = self._intake.accept(candidates, via, via_url)
        self.queued += len(rows) - before
        return verdicts

    def await_loaded(self, waiting: Sequence[Row]) -> None:
        """The batch under way holds rows that have ended, or that wait: what they count for is known when it is durable."""
        batch = self._outbox.batch
        self.queued += len(waiting)
        self._endings.waiting += len(waiting)
        self._loaded.append(Loaded(batch.number, batch.settled, waiting))

    def say(self, finishes: int = 0) -> None:
        """Hand the batch to the store, unless it is empty, and then ask what there is to ask."""
        outbox = self._outbox
        batch = outbox.batch
        if not batch.is_empty:
            for ended in batch.ended:
                self.ended[ended[2]] += 1
                self.queued -= 1
            if batch.settled:
                for _, kind in batch.settled.values():
                    self.ended[kind] += 1
            batch.now_s = self._clock()
            batch.last_number = outbox.last_number
            self.backlog.add(batch, finishes)
            outbox.batch = Batch(batch.number + 1)
            self._store.write(batch)
            if self.backlog.begins():
                self._store.hurry()
        if outbox.has_questions():
            self._ask()

    def ask(self) -> bool:
        """If there is anything to ask, say what comes before it, then ask; True if there was."""
        if not self._outbox.has_questions():
            return False
        self.say()
        return True

    def drain(self) -> bool:
        """Take the store's answers; True if there were any. Marks a slice of what is durable.

        Raises what the store or the filter failed with.
        """
        if self.failure is not None:
            raise self.failure
        answers = self._store.take_answers()
        if not (answers or self._intake.marking.is_behind):
            return False  # as at most calls
        try:
            for answer in answers:
                self._take(answer)
            self.mark_some()
        except FrontierError as error:
            self.failure = error  # the other answers are lost: nothing can go on from here
            raise
        return bool(answers)

    def mark_some(self) -> None:
        """Mark a slice of what is durable. Raises: StoreUnavailable."""
        try:
            self._intake.marking.mark_some()
        except OSError as error:
            raise unwritable("the filter", error) from error

    def counters(self) -> Counters:
        """The totals as they stand in memory."""
        return Counters(
            last_ordinal=self._outbox.last_number,
            queued=self.queued,
            done=self.ended[OutcomeKind.DONE],
            failed=self.ended[OutcomeKind.FAILED],
            disregarded=self.ended[OutcomeKind.DISREGARDED],
            retired=self.retired,
            paused=self.paused,
            waiting=self._endings.waiting,
            queues=self.queues,
        )

    def _ask(self) -> None:
        outbox, store = self._outbox, self._store
        self.asked += len(outbox.gates) + len(outbox.lanes) + bool(outbox.next_gates) + (outbox.retries is not False)
        for lane in outbox.heads:
            self._heads.append(lane)
            store.ask_heads(lane.id, lane.limit, with_queue=not lane.queue.is_known)
        for gate in outbox.gates:
            store.ask_gate(gate.gate.id, gate.gate.key, LANES_AT_ONCE)
        for line, after in outbox.lanes:
            self._lanes.append(line)
            store.ask_lanes(line.gate.id, after, LANES_NEXT)
        if outbox.next_gates:
            store.ask_gates(self._clock(), outbox.next_gates, LANES_AT_ONCE)
        if outbox.retries is not False:
            store.ask_retries(outbox.retries, RETRIES_AT_ONCE)
        outbox.questions_asked()

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
            case Troubled():
                self._troubled(answer)
            case StoreFailed():
                raise answer.error

    def _troubled(self, answer: Troubled) -> None:
        """The time counts from the first failure, however its reason changes."""
        what, patience_s = answer
        since_s = self._clock() if self.waiting is None else self.waiting.since_s
        self.waiting = Waiting(what, since_s, patience_s) if what else None
        self.tell(what)

    def _synced(self, answer: Synced) -> None:
        number, duplicates, self.retired, self.paused, self.queues = answer
        self.backlog.synced(number)
        if duplicates:
            self.queued -= len(duplicates)
        if self._loaded:
            self._loaded_synced(answer)
        self._intake.marking.synced(number, duplicates)

    def _loaded_synced(self, answer: Synced) -> None:
        """Make good what dead rows counted for that are no plain ones; those that wait may come due from now on."""
        dead = {row.ordinal for row in answer.duplicates}
        while self._loaded and self._loaded[0].number <= answer.number:
            loaded = self._loaded.popleft()
            for ordinal in dead & loaded.settled.keys():
                self.queued += 1
                self.ended[loaded.settled[ordinal][1]] -= 1
            for row in loaded.waiting:
                if row.ordinal in dead:
                    self._endings.waiting -= 1
                else:
                    self._retries.add(row)
