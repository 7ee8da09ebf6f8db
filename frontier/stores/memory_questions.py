"""What others ask the store in memory: one URL, the lists by id, the totals.

The questions may come from any thread: each container is copied in one step before it is looked through, so the core goes on
meanwhile, and an answer may mix what was before and after one of its calls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from heapq import nlargest
from itertools import islice

from anabranch.frontier.models import WAITING, Head, OutcomeKind, Row, UrlRecord, UrlState
from anabranch.frontier.stores.base import Counters, EndedRecord, QueueFacts
from anabranch.frontier.stores.memory_audit import check_lanes
from anabranch.frontier.stores.memory_ended import EndedRows, SortedKeys
from anabranch.frontier.stores.memory_gates import Gates
from anabranch.frontier.stores.memory_lane import Lane
from anabranch.frontier.stores.memory_lanes import Lanes
from anabranch.frontier.stores.messages import GateRow, LaneId, LaneRow, Place, QueueRow, Standing


def identity_of(key: bytes) -> str | bytes:
    """The text of which a key is the UTF-8, else the key itself: a URL's own text then serves as its key, without a copy."""
    try:
        return key.decode()
    except UnicodeDecodeError:
        return key


class MemoryQuestions:
    """The tables of the store in memory and the answers about them. Listing costs O(what is listed), but where it is said."""

    def __init__(self) -> None:
        self._lanes = Lanes()
        self._gates = Gates()
        self._queues: dict[int, QueueRow] = {}
        self._ended = EndedRows()
        self._seen: dict[str | bytes, int] = {}  # from a key's identity to the ordinal that it stands for
        self._last_number = 0  # of the sequence that ordinals and turns come from
        self._queue_ids = SortedKeys(self._queues)

    def look_up(self, key: bytes, lane: LaneId | None = None) -> UrlRecord | None:
        """O(1) for a URL that has ended or whose lane is given, else a look at each lane."""
        ordinal = self._seen.get(identity_of(key))
        if ordinal is None:
            return None
        if (ended := self._ended.record(ordinal)) is not None:
            return ended
        row = self._find(ordinal, lane)
        if row is None:
            return None
        return _queued_record(row)

    def ended(self, keys: Sequence[bytes]) -> dict[bytes, UrlRecord]:
        """O(1) per key."""
        records = ((key, self._ended.record(self._seen.get(identity_of(key), 0))) for key in keys)
        return {key: record for key, record in records if record is not None}

    def of_url(self, url: str, limit: int) -> list[UrlRecord]:
        """O(rows)."""
        queued = (row for lane in self._lanes.all() for row in lane.rows() if row.url == url)
        records = [
            (row.dedup_key(), _queued_record(row)) for row in nlargest(limit, queued, key=lambda row: row.ordinal)
        ]
        records += nlargest(limit, self._ended.of_url(url), key=lambda known: known[1].ordinal)
        found = (record for key, record in records if self._seen.get(identity_of(key)) == record.ordinal)
        return sorted(found, key=lambda record: record.ordinal)

    def keys(self, chunk: int, after: int = 0) -> Iterator[list[bytes]]:
        """Queued rows first. Holds the keys of one queue, and the ordinals of what has ended, while it goes on."""
        keys: list[bytes] = []
        for ordinal, key in self._all_keys():
            if ordinal > after:
                keys.append(key)
            if len(keys) == chunk:
                yield keys
                keys = []
        if keys:
            yield keys

    def queue(self, queue: int) -> QueueFacts | None:
        """O(lanes of the queue)."""
        row = self._queue_row(queue)
        return None if row is None else _facts(row, self._lanes.of_queue(queue))

    def queues(self, standing: Standing | None, after: int | None, limit: int) -> list[QueueFacts]:
        """The ids are sorted again if there are more than at the last question."""
        facts = (self.queue(queue) for queue in self._queue_ids.behind(after))
        return list(islice((fact for fact in facts if fact is not None and _is_listed(fact, standing)), limit))

    def longest(self, limit: int) -> list[QueueFacts]:
        """O(lanes)."""
        facts = (self.queue(queue) for queue in list(self._queues))
        return nlargest(limit, (fact for fact in facts if fact is not None and fact.count), key=lambda fact: fact.count)

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
        )

    def _queue_row(self, queue: int) -> QueueRow | None:
        row = self._queues.get(queue)
        standing = self._lanes.standing(queue)
        return row if row is None or row.standing == standing else row._replace(standing=standing)

    def _find(self, ordinal: int, hint: LaneId | None) -> Row | None:
        """A queued row by its number: in the lane it is said to be in, else in any."""
        likely = None if hint is None else self._lanes.lane(hint)
        row = None if likely is None else likely.find(ordinal)
        if row is None:
            found = (lane.find(ordinal) for lane in self._lanes.all())
            row = next((row for row in found if row is not None), None)
        return row

    def _all_keys(self) -> Iterator[tuple[int, bytes]]:
        for lane in self._lanes.all():
            for row in lane.rows():
                yield row.ordinal, row.dedup_key()
        yield from self._ended.keys()


def _queued_record(row: Row) -> UrlRecord:
    state = UrlState.WAITING if row.precedence >= WAITING else UrlState.QUEUED
    place = (row.queue, row.gate, row.due_s)
    record = UrlRecord(row.url, state, 0, "", row.attempts, row.ordinal, *place, row.hops)
    return record._replace(payload=row.payload, precedence=row.precedence, via=row.via)


def _facts(row: QueueRow, lanes: Sequence[Lane]) -> QueueFacts:
    counts = [lane.count for lane in lanes if lane.count]
    return QueueFacts(row, sum(counts), sum(lane.waiting for lane in lanes), len(counts))


def _is_listed(fact: QueueFacts, standing: Standing | None) -> bool:
    is_wanted = standing is None or fact.row.standing is standing
    return is_wanted and (fact.count > 0 or fact.row.standing is not Standing.OPEN)


def _state_of(fact: QueueFacts) -> str:
    """What the rows of a queue say of it."""
    if fact.row.standing is not Standing.OPEN:
        return fact.row.standing.name.lower()
    if not fact.count:
        return "empty"
    return "snoozed" if fact.count == fact.waiting else "inactive"
