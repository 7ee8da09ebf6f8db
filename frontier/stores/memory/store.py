"""The store in memory, over the tables of `tables`: the embedded twin of the store in SQL, with the same contract."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import nlargest
from itertools import chain, islice

from anabranch.frontier.errors import FormatMismatch, InvariantBroken, StoreInUse
from anabranch.frontier.records import WAITING, GateKey, Head, OutcomeKind, Row, Turn, UrlRecord
from anabranch.frontier.stores.contract import (
    Answer,
    Batch,
    Counters,
    EndedRecord,
    GateRead,
    GateRow,
    GatesRead,
    HeadsRead,
    LaneId,
    LaneRow,
    LanesRead,
    Opening,
    Place,
    QueueFacts,
    QueueRow,
    RetriesRead,
    RetryReads,
    Standing,
    Synced,
)
from anabranch.frontier.stores.memory.tables import (
    EndedRows,
    FailuresInMemory,
    Gates,
    Lanes,
    SortedKeys,
    StoredLane,
    place_in_lane,
)


def check_lanes(lanes: Lanes) -> None:
    """Compare counts, order and lines with the rows, all of them. Raises: InvariantBroken, naming the first difference."""
    by_standing: Counter[Standing] = Counter()
    waiting = 0
    for lane in lanes.all():
        _check_lane(lane)
        by_standing[lane.standing] += lane.count
        waiting += lane.waiting
        if lane.standing is not lanes.standing(lane.queue):
            raise InvariantBroken(f"{lane.as_row()} is {lane.standing.name}, its queue is not")
        if lane.is_servable != (lane.as_row() in lanes.line(lane.gate, Turn(lane.turn - 1), 1)):
            raise InvariantBroken(f"{lane.as_row()} is servable or in line, but not both")
    for standing in (Standing.PAUSED, Standing.RETIRED):
        if by_standing[standing] != lanes.rows_stopped[standing]:
            raise InvariantBroken(
                f"{by_standing[standing]} rows are {standing.name}, counted are {lanes.rows_stopped[standing]}"
            )
    timed = len(lanes.retries(None, waiting + 1))
    if timed != waiting:
        raise InvariantBroken(f"{waiting} rows wait, {timed} have a time")


def _check_lane(lane: StoredLane) -> None:
    rows = lane.rows()
    waiting = sum(row.precedence >= WAITING for row in rows)
    if (len(rows), waiting) != (lane.count, lane.waiting):
        raise InvariantBroken(f"{lane.as_row()} holds {len(rows)} rows, {waiting} of them wait")
    heads = [place_in_lane(row) for row in lane.heads(len(rows))]
    if heads != sorted(place_in_lane(row) for row in rows if row.precedence < WAITING):
        raise InvariantBroken(f"{lane.as_row()} has its heads out of order")


def identity_of(key: bytes) -> str | bytes:
    """The key decoded from UTF-8, else the key itself: so a URL's own text serves as its key, without a copy."""
    try:
        return key.decode()
    except UnicodeDecodeError:
        return key


class MemoryStore:
    """A `FrontierStore` without a disk: it takes batches and answers at once, in the thread of the core.

    Listing costs O(what is listed), unless a method has another cost in its docstring.
    """

    def __init__(self) -> None:
        self._lanes = Lanes()
        self._gates = Gates()
        self._queues: dict[int, QueueRow] = {}
        self._queue_ids = SortedKeys(self._queues)
        self._ended = EndedRows()
        self._seen: dict[str | bytes, int] = {}  # from a key's identity to the ordinal of its row
        self.retry_reads: RetryReads = FailuresInMemory(self._ended, self._gates)
        self._retried = 0  # failures that were queued again
        self._last_number = 0  # of the sequence that ordinals and turns come from
        self._identity: dict[str, str] | None = None
        self._notes: dict[str, str] = {}
        self._epoch = 0
        self._is_open = False
        self._is_clean = True
        self._now_s = 0.0
        self._answers: list[Answer] = []

    def open(self, identity: Mapping[str, str], now_s: float, on_change: Callable[[], None]) -> Opening:
        """Begin empty, or continue with the state of the last close; `on_change` is never called."""
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
        return Opening(
            clean=was_clean, counters=self.counters(), notes=dict(self._notes), epoch=self._epoch, first_format="memory"
        )

    def write(self, batch: Batch) -> None:
        """Take the batch at once; it is as durable as it will ever be.

        Raises: InvariantBroken for a row that is not at its place, or a lane that was not announced.
        """
        self._now_s = batch.now_s
        self._last_number = max(self._last_number, batch.last_number)
        if batch.queue_names or batch.gate_names or batch.announced:
            self._announce(batch)
        try:
            for row, status, kind in batch.ended:
                self._lanes.take_out(row)
                self._ended.add(row, status, kind, batch.now_s)
            for old, new in batch.moved:
                self._lanes.take_out(old)
                self._lanes.put(new)
            duplicates = self._enter(batch) if batch.new else []
        except KeyError as error:
            raise InvariantBroken(f"batch {batch.number} names a row or a lane that is not there: {error}") from error
        self._take_facts(batch)
        _, paused, retired = self._lanes.rows_stopped
        self._answers.append(Synced(batch.number, duplicates, retired, paused, len(self._queues), self._retried))

    def ask_heads(self, lane: LaneId, limit: int, *, with_queue: bool) -> None:
        """O(limit), and O(log n) if rows came back from waiting."""
        found = self._lanes.lane(lane)
        rows = [] if found is None else found.heads(limit)
        ended = self._ended
        heads = [Head(row, ended.url(row.via) if row.via else None) for row in rows]
        self._answers.append(HeadsRead(lane, heads, self._queue_row(lane[0]) if with_queue else None))

    def ask_lanes(self, gate: int, after: Turn | None, limit: int) -> None:
        """O(log lanes of the gate + limit)."""
        self._answers.append(LanesRead(gate, self._lanes.line(gate, after, limit)))

    def ask_gate(self, gate: int, key: GateKey, lanes: int) -> None:
        """O(log gates + lanes)."""
        self._gates.name(gate, key)
        self._answers.append(GatesRead([self._hold(gate, lanes)], gate, None))

    def ask_gates(self, now_s: float, limit: int, lanes: int) -> None:
        """O(log gates + lanes) for each gate; gates without servable lanes are skipped."""
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

    def limit_retries(self) -> None:
        """Nothing: it is never away."""

    def take_answers(self) -> list[Answer]:
        """The answers since the last call."""
        answers = self._answers
        if answers:
            self._answers = []
        return answers

    def flush(self) -> None:
        """Nothing is ever behind."""

    def note(self, notes: Mapping[str, str]) -> None:
        """Keep the facts for the next opening."""
        self._notes.update(notes)

    def close(self, *, clean: bool) -> None:
        """Let go; the next opening reports whether it was clean."""
        if self._is_open:
            self._is_open, self._is_clean = False, clean

    # Questions of others

    def look_up(self, key: bytes, lane: LaneId | None = None) -> UrlRecord | None:
        """O(1) for a URL that has ended or comes with its lane, else a look at each lane."""
        ordinal = self._seen.get(identity_of(key))
        if ordinal is None:
            return None
        if (ended := self._ended.record(ordinal)) is not None:
            return ended
        row = self._find(ordinal, lane)
        return None if row is None else row.record()

    def ended(self, keys: Sequence[bytes]) -> dict[bytes, UrlRecord]:
        """O(1) per key."""
        records = ((key, self._ended.record(self._seen.get(identity_of(key), 0))) for key in keys)
        return {key: record for key, record in records if record is not None}

    def of_url(self, url: str, limit: int) -> list[UrlRecord]:
        """O(rows)."""
        queued = (row for lane in self._lanes.all() for row in lane.rows() if row.url == url)
        records = [(row.dedup_key(), row.record()) for row in nlargest(limit, queued, key=lambda row: row.ordinal)]
        records += nlargest(limit, self._ended.of_url(url), key=lambda known: known[1].ordinal)
        found = (record for key, record in records if self._seen.get(identity_of(key)) == record.ordinal)
        return sorted(found, key=lambda record: record.ordinal)

    def keys(self, chunk: int, after: int = 0) -> Iterator[list[bytes]]:
        """Queued rows first. Holds the keys of one queue, and the ordinals of ended rows, while it runs."""
        queued = ((row.ordinal, row.dedup_key()) for lane in self._lanes.all() for row in lane.rows())
        keys = (key for ordinal, key in chain(queued, self._ended.keys()) if ordinal > after)
        while found := list(islice(keys, chunk)):
            yield found

    def queue(self, queue: int) -> QueueFacts | None:
        """O(lanes of the queue)."""
        row = self._queue_row(queue)
        return None if row is None else _facts(row, self._lanes.of_queue(queue))

    def queues(
        self, standing: Standing | None, after: int | None, limit: int, longest_first: bool = False
    ) -> list[QueueFacts]:
        """The ids are sorted again if there are more than at the last question; `longest_first` costs O(lanes)."""
        if longest_first:
            every = (self.queue(queue) for queue in list(self._queues))
            return nlargest(limit, (fact for fact in every if fact and fact.count), key=lambda fact: fact.count)
        facts = (self.queue(queue) for queue in self._queue_ids.behind(after))
        return list(islice((fact for fact in facts if fact is not None and _is_listed(fact, standing)), limit))

    def lanes(self, queue: int, after: int | None, limit: int) -> list[LaneRow]:
        """O(lanes of the queue)."""
        lanes = [lane for lane in self._lanes.of_queue(queue) if lane.count and (after is None or lane.gate > after)]
        return [lane.as_row() for lane in sorted(lanes, key=lambda lane: lane.gate)[:limit]]

    def gate(self, gate: int) -> GateRow | None:
        """O(1)."""
        return self._gates.rows.get(gate)

    def queued(self, after: Place | None, limit: int) -> list[Head]:
        """O(rows of the queues that are listed)."""
        found: list[Row] = []
        first = None if after is None else after[0] - 1
        for queue in self._queue_ids.behind(first):
            rows = [
                row for lane in self._lanes.of_queue(queue) for row in lane.rows() if after is None or row[:4] > after
            ]
            found += sorted(rows, key=lambda row: row[:4])
            if len(found) >= limit:
                break
        return [Head(row, self._ended.url(row.via)) for row in found[:limit]]

    def ended_after(self, after: int, limit: int) -> list[EndedRecord]:
        """The ordinals are sorted again if there are more than at the last question."""
        return self._ended.after(after, limit)

    def tally(self) -> Mapping[str, int]:
        """O(lanes)."""
        facts = (self.queue(queue) for queue in list(self._queues))
        return Counter(_state_of(fact) for fact in facts if fact is not None)

    def counters(self) -> Counters:
        """Count the rows; only while the core does nothing. Raises: InvariantBroken if they contradict what is counted."""
        check_lanes(self._lanes)
        kinds = self._ended.kinds()
        lanes = list(self._lanes.all())
        return Counters(
            last_ordinal=self._last_number,
            queued=sum(lane.count for lane in lanes),
            done=kinds[OutcomeKind.DONE],
            failed=kinds[OutcomeKind.FAILED],
            disregarded=kinds[OutcomeKind.DISREGARDED],
            retired=self._lanes.rows_stopped[Standing.RETIRED],
            paused=self._lanes.rows_stopped[Standing.PAUSED],
            waiting=sum(lane.waiting for lane in lanes),
            queues=len(self._queues),
            retried=self._retried,
        )

    # Batches

    def _announce(self, batch: Batch) -> None:
        for queue, queue_key, precedence in batch.queue_names:
            if queue not in self._queues:
                self._queues[queue] = QueueRow(queue, queue_key, Standing.OPEN, precedence, 0, None, 0, 0)
        for gate, gate_key in batch.gate_names:
            self._gates.name(gate, gate_key)
        for lane in batch.announced:
            self._lanes.announce(*lane)

    def _enter(self, batch: Batch) -> list[Row]:
        """New rows; the result is the rows that die because their key is known."""
        seen, settled, lanes, duplicates = self._seen, batch.settled, self._lanes, []
        for row in batch.new:
            ordinal, key = row.ordinal, row.key
            identity = row.url if key is None else identity_of(key)
            last = seen.setdefault(identity, ordinal)
            if last != ordinal:
                if ordinal not in batch.forced or batch.retried.get(ordinal, last) != last:
                    duplicates.append(row)
                    continue
                seen[identity] = ordinal
                self._retried += self._ended.take_failed(last)
            if ordinal in settled:
                self._ended.add(row, *settled[ordinal], row.due_s)
            else:
                lanes.put(row)
        return duplicates

    def _take_facts(self, batch: Batch) -> None:
        """Facts of queues and gates, and changes of turns, standings and windows."""
        for queue in batch.queues:
            self._queues[queue[0]] = queue
        for gate in batch.gates:
            self._gates.rows[gate[0]] = gate
        if batch.turns or batch.left or batch.standings or batch.removed or batch.woken:
            self._arrange(batch)

    def _arrange(self, batch: Batch) -> None:
        """Turns, standings and the gates' windows, after the rows: a lane that opens wakes a gate that just left."""
        for lane, turn in batch.turns:
            self._lanes.set_turn(lane, turn)
        for gate, gate_turn, wakes_s in batch.left:
            self._gates.leave(gate, gate_turn, wakes_s)
        for queue, standing in batch.standings:
            if queue in self._queues:
                for opened in self._lanes.set_standing(queue, standing):
                    if (first := self._lanes.first_turn(opened)) is not None:
                        self._gates.wake(opened, first)
        for gate, turn in batch.woken:
            self._gates.wake(gate, turn)
        for lane in batch.removed:
            self._lanes.remove(lane)

    def _hold(self, gate: int, lanes: int) -> GateRead:
        self._gates.hold(gate)
        return GateRead(self._gates.rows[gate], self._lanes.line(gate, None, lanes))

    # Lookups

    def _queue_row(self, queue: int) -> QueueRow | None:
        row = self._queues.get(queue)
        standing = self._lanes.standing(queue)
        return row if row is None or row.standing == standing else row._replace(standing=standing)

    def _find(self, ordinal: int, hint: LaneId | None) -> Row | None:
        """A queued row by its number, looked for in the lane `hint` first."""
        likely = None if hint is None else self._lanes.lane(hint)
        row = None if likely is None else likely.find(ordinal)
        if row is None:
            found = (lane.find(ordinal) for lane in self._lanes.all())
            row = next((row for row in found if row is not None), None)
        return row


def _facts(row: QueueRow, lanes: Sequence[StoredLane]) -> QueueFacts:
    counts = [lane.count for lane in lanes if lane.count]
    return QueueFacts(row, sum(counts), sum(lane.waiting for lane in lanes), len(counts))


def _is_listed(fact: QueueFacts, standing: Standing | None) -> bool:
    is_wanted = standing is None or fact.row.standing is standing
    return is_wanted and (fact.count > 0 or fact.row.standing is not Standing.OPEN)


def _state_of(fact: QueueFacts) -> str:
    """The state of a queue by its rows."""
    if fact.row.standing is not Standing.OPEN:
        return fact.row.standing.name.lower()
    if not fact.count:
        return "empty"
    return "snoozed" if fact.count == fact.waiting else "inactive"
