"""What the Frontier and its store have told each other: batches said, answers taken, totals kept."""

from __future__ import annotations

from collections.abc import Sequence

from frontier.backlog import Backlog
from frontier.errors import FrontierError, InvariantBroken, StoreFull
from frontier.intake import Intake
from frontier.models import Candidate, OutcomeKind, Verdict
from frontier.schedule import Schedule
from frontier.seen import SeenFilter
from frontier.stores.base import Batch, Counters, FrontierStore, HeadsRead, StoreFailed, Synced


class Books:
    """One side of the talk with the store: a call says one batch, and takes what was answered before it.

    After the store or the filter failed, every call raises what it failed with.
    """

    def __init__(
        self, store: FrontierStore, intake: Intake, schedule: Schedule, counters: Counters, max_unacknowledged: int
    ) -> None:
        self._store = store
        self._intake = intake
        self._schedule = schedule
        self.backlog = Backlog(max_unacknowledged)
        self.failure: FrontierError | None = None
        self.queued = counters.queued  #: rows in the store: queued, waiting and leased
        self.ended = {
            OutcomeKind.DONE: counters.done,
            OutcomeKind.FAILED: counters.failed,
            OutcomeKind.DISREGARDED: counters.disregarded,
        }

    def begin(self) -> Batch:
        """The batch of this call."""
        return Batch(number=self.backlog.said + 1)

    def accept(self, candidates: Sequence[Candidate], via: int, batch: Batch) -> list[Verdict]:
        """Add what is new to the batch."""
        verdicts = self._intake.accept(candidates, via, batch)
        self.queued += len(batch.new)
        return verdicts

    def say(self, batch: Batch, finishes: int = 0) -> None:
        """Hand the batch to the store, unless it is empty. The rows that end in it leave their queues for good."""
        if batch.is_empty:
            return
        for ended in batch.ended:
            self.ended[ended.outcome] += 1
            self.queued -= 1
        self.backlog.add(batch, finishes)
        self._store.write(batch)

    def ask_heads(self) -> bool:
        """Ask for the heads that the schedule wants; True if there were any."""
        wanted = self._schedule.take_wanted()
        for lane, limit in wanted:
            self._store.ask_heads(lane.id, limit)
        return bool(wanted)

    def drain(self) -> bool:
        """Take the store's answers; True if there were any. Raises what the store or the filter failed with."""
        if self.failure is not None:
            raise self.failure
        answers = self._store.take_answers()
        for answer in answers:
            match answer:
                case HeadsRead():
                    self._heads_read(answer)
                case Synced():
                    self._synced(answer)
                case StoreFailed():
                    self.failure = answer.error
                    raise answer.error
        return bool(answers)

    def counters(self) -> Counters:
        """The totals as they stand in memory."""
        return Counters(
            last_ordinal=self._intake.last_ordinal,
            queued=self.queued,
            done=self.ended[OutcomeKind.DONE],
            failed=self.ended[OutcomeKind.FAILED],
            disregarded=self.ended[OutcomeKind.DISREGARDED],
        )

    def flush(self) -> None:
        """Return when all that was said is durable (blocks). Raises: StoreUnavailable."""
        self._store.flush()
        self.drain()

    def close(self, seen: SeenFilter) -> None:
        """Write all, sync the filter, mark the state clean if nothing failed, let go (blocks)."""
        clean = False
        try:
            try:
                if self.failure is None:
                    self.flush()
                    seen.sync()
            finally:
                seen.close()
            clean = self.failure is None
        except OSError as error:
            raise StoreFull(f"the filter cannot be written: {error}") from error
        finally:
            self._store.close(clean=clean)

    def _heads_read(self, answer: HeadsRead) -> None:
        lane = self._schedule.index.get(answer.lane)
        if not self._schedule.heads_read(lane, answer.heads) and self.backlog.is_empty:
            raise InvariantBroken(f"{lane} should have {lane.stored} rows in the store, and none was found")

    def _synced(self, answer: Synced) -> None:
        self.backlog.synced(answer.number)
        for row in answer.duplicates:
            self.queued -= 1
            self._schedule.rows_lost(self._schedule.index.get((row.queue, row.gate)))
        try:
            self._intake.mark_synced(answer.number)
        except OSError as error:
            self.failure = StoreFull(f"the filter cannot be written: {error}")
            raise self.failure from error
