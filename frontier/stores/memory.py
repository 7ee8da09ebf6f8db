"""A store that forgets at the end of the process and answers inside the call.

It is a product store (crawls that need no resume, other programs' short runs), and the core's tests use it because nothing in
it takes time. Closed and opened again it behaves as the durable ones do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from anabranch.frontier.errors import FormatMismatch, InvariantBroken, StoreInUse
from anabranch.frontier.models import GateKey, Head, Row
from anabranch.frontier.stores.base import Opening
from anabranch.frontier.stores.memory_questions import MemoryQuestions, identity_of
from anabranch.frontier.stores.messages import (
    Answer,
    Batch,
    Exchanged,
    GateRead,
    GatesRead,
    HeadsRead,
    LaneId,
    LanesRead,
    Parcel,
    QueueRow,
    RetriesRead,
    Standing,
    Synced,
)
from anabranch.frontier.turns import Turn

_new: Final = tuple.__new__


class MemoryStore(MemoryQuestions):
    """Takes batches and gives answers at once, in the thread of the core."""

    def __init__(self) -> None:
        super().__init__()
        self._identity: dict[str, str] | None = None
        self._notes: dict[str, str] = {}
        self._epoch = 0
        self._is_open = False
        self._is_clean = True
        self._now_s = 0.0
        self._answers: list[Answer] = []
        self._parcels: dict[int, deque[Parcel]] = {}

    def open(self, identity: Mapping[str, str], now_s: float, on_change: Callable[[], None]) -> Opening:
        """Begin empty, or go on with what it held when it was closed; nobody is ever woken."""
        del on_change
        if self._is_open:
            raise StoreInUse("the store in memory is open already; close it first, or make another one")
        if self._identity is not None and self._identity != dict(identity):
            raise FormatMismatch(
                f"the store in memory was made for {self._identity}, and is opened for {dict(identity)}"
            )
        self._identity = dict(identity)
        if now_s < self._now_s:
            self._lanes.move_times(now_s - self._now_s)
            self._gates.move_times(now_s - self._now_s)
            self._now_s = now_s
        for gate in list(self._gates.held):
            self._gates.leave(gate, self._lanes.first_turn(gate), None)
        was_clean, self._is_clean, self._is_open = self._is_clean, False, True
        self._answers = []
        self._epoch += 1
        return Opening(clean=was_clean, counters=self.counters(), notes=dict(self._notes), epoch=self._epoch)

    def write(self, batch: Batch) -> None:
        """Take the batch at once; it is as durable as it will ever be.

        Raises: InvariantBroken for a row that is not where the batch says, or a lane that was not announced.
        """
        self._now_s = batch.now_s
        if batch.queue_names or batch.gate_names or batch.announced:
            self._announce(batch)
        try:
            if batch.ended or batch.moved:
                self._take_out(batch)
            duplicates = self._enter(batch) if batch.new else []
        except KeyError as error:
            raise InvariantBroken(f"batch {batch.number} names a row or a lane that is not there: {error}") from error
        self._take_facts(batch)
        _, paused, retired = self._lanes.rows_stopped
        # As for heads, half the price of the record's own constructor: both come with every page.
        self._answers.append(_new(Synced, (batch.number, duplicates, retired, paused, len(self._queues))))

    def ask_heads(self, lane: LaneId, limit: int, *, with_queue: bool) -> None:
        """O(limit), and O(log n) if rows came back from waiting."""
        found = self._lanes.lane(lane)
        rows = [] if found is None else found.heads(limit)
        ended = self._ended
        # Half the price of Head(...).
        heads = [_new(Head, (row, ended.url(row[7]) if row[7] else None)) for row in rows]
        self._answers.append(_new(HeadsRead, (lane, heads, self._queue_row(lane[0]) if with_queue else None)))

    def ask_lanes(self, gate: int, after: Turn | None, limit: int) -> None:
        """O(log lanes of the gate + limit)."""
        self._answers.append(LanesRead(gate, self._lanes.line(gate, after, limit)))

    def ask_gate(self, gate: int, key: GateKey, lanes: int) -> None:
        """O(log gates + lanes)."""
        self._gates.name(gate, key)
        self._answers.append(GatesRead([self._hold(gate, lanes)], gate, None))

    def ask_gates(self, now_s: float, limit: int, lanes: int) -> None:
        """O(log gates + lanes) for each gate; those that lost all they had to serve are passed over."""
        taken: list[GateRead] = []
        while (gate := self._gates.first_open(now_s)) is not None and len(taken) < limit:
            if self._lanes.first_turn(gate) is None:
                self._gates.rest(gate)
            else:
                taken.append(self._hold(gate, lanes))
        self._answers.append(GatesRead(taken, None, self._gates.next_opening()))

    def ask_retries(self, after: tuple[float, int] | None, limit: int) -> None:
        """O(log rows that wait + limit)."""
        self._answers.append(RetriesRead(self._lanes.retries(after, limit)))

    def hurry(self) -> None:
        """Nothing ever lingers."""

    def take_answers(self) -> list[Answer]:
        """Hand over what was answered."""
        answers = self._answers
        if answers:
            self._answers = []
        return answers

    def flush(self) -> None:
        """Nothing is ever behind."""

    def note(self, notes: Mapping[str, str]) -> None:
        """Keep the facts for the next opening."""
        self._notes.update(notes)

    def parcels(self, share: int, after: int, limit: int) -> list[Parcel]:
        """O(parcels of the share)."""
        kept = list(self._parcels.get(share, ()))
        return [parcel for parcel in kept if parcel.number > after][:limit]

    def close(self, *, clean: bool) -> None:
        """Let go; the next opening tells whether it was clean."""
        if self._is_open:
            self._is_open, self._is_clean = False, clean

    def _announce(self, batch: Batch) -> None:
        self._last_number = max(self._last_number, batch.last_number)
        for queue, queue_key, precedence in batch.queue_names:
            if queue not in self._queues:
                self._queues[queue] = QueueRow(queue, queue_key, Standing.OPEN, precedence, 0, None, 0, 0)
        for gate, gate_key in batch.gate_names:
            self._gates.name(gate, gate_key)
        for lane in batch.announced:
            self._lanes.announce(*lane)

    def _take_out(self, batch: Batch) -> None:
        """Rows that end or move."""
        lanes, ended = self._lanes, self._ended
        for row, status, kind in batch.ended:
            lanes.take_out(row)
            ended.add(row, status, kind)
        for old, new in batch.moved:
            lanes.take_out(old)
            lanes.put(new)

    def _enter(self, batch: Batch) -> list[Row]:
        """New rows; answers those that die because their key is known."""
        self._last_number = max(self._last_number, batch.last_number)
        seen, settled, lanes, duplicates = self._seen, batch.settled, self._lanes, []
        for row in batch.new:
            ordinal, key = row[3], row[5]
            identity = row[4] if key is None else identity_of(key)
            if seen.setdefault(identity, ordinal) != ordinal:
                if ordinal not in batch.forced:
                    duplicates.append(row)
                    continue
                seen[identity] = ordinal
            if ordinal in settled:
                self._ended.add(row, *settled[ordinal])
            else:
                lanes.put(row)
        return duplicates

    def _take_facts(self, batch: Batch) -> None:
        """What is known of queues and gates, and changes of turns, standings and windows."""
        for queue in batch.queues:
            self._queues[queue[0]] = queue
        for gate in batch.gates:
            self._gates.rows[gate[0]] = gate
        if batch.turns or batch.left or batch.standings or batch.removed or batch.woken:
            self._arrange(batch)
        if batch.exchanged is not None:
            self._last_number = max(self._last_number, batch.last_number)
            self._exchange(batch.exchanged)

    def _arrange(self, batch: Batch) -> None:
        """Turns, standings and the gates' windows, once the rows are there: a lane that opens wakes a gate that just left."""
        self._last_number = max(self._last_number, batch.last_number)
        for lane, turn in batch.turns:
            self._lanes.set_turn(lane, turn)
        for gate, gate_turn, wakes_s in batch.left:
            self._gates.leave(gate, gate_turn, wakes_s)
        for queue, standing in batch.standings:
            if queue in self._queues:
                for opened in self._lanes.set_standing(queue, standing):
                    self._wake(opened)
        for gate, turn in batch.woken:
            self._gates.wake(gate, turn)
        for lane in batch.removed:
            self._lanes.remove(lane)

    def _exchange(self, exchanged: Exchanged) -> None:
        for parcel in exchanged.parcels:
            self._parcels.setdefault(parcel.share, deque()).append(parcel)
        for share, number in exchanged.delivered:
            kept = self._parcels.get(share, deque())
            while kept and kept[0].number <= number:
                kept.popleft()
        for ordinal, url in exchanged.pages:
            self._ended.note_page(ordinal, url)

    def _wake(self, gate: int) -> None:
        """The gate gets the turn of its first servable lane."""
        turn = self._lanes.first_turn(gate)
        if turn is not None:
            self._gates.wake(gate, turn)

    def _hold(self, gate: int, lanes: int) -> GateRead:
        self._gates.hold(gate)
        return GateRead(self._gates.rows[gate], self._lanes.line(gate, None, lanes))
