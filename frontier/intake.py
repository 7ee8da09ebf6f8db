"""From candidates to rows: assign, ask the filter, number.

The filter is marked only after a row is committed and synced; in between the key is in a pending set. So the filter may know
less than the store, never more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from frontier.assignment import Assign, PolitenessScope, authority_of, gate_key
from frontier.fingerprints import name_id
from frontier.gates import Gate, Politeness
from frontier.models import (
    FRONT,
    NEW,
    NORMAL,
    SEEN,
    Candidate,
    GateKey,
    QueueKey,
    Row,
    Verdict,
    VerdictKind,
)
from frontier.schedule import Schedule
from frontier.seen import SeenFilter
from frontier.stores.base import Batch, LaneRow, QueueRow
from frontier.workqueues import Lane, QueueIndex

_NO_HOST = Verdict(VerdictKind.REFUSED, "it has no host; an absolute URL is needed")
_NOT_UTF8 = Verdict(VerdictKind.REFUSED, "it is not text that UTF-8 can hold")


class Intake:
    """Decides about candidates and adds what is new to a batch. Cost: O(1) a candidate, vectorised where it can be."""

    def __init__(
        self,
        assign: Assign,
        scope: PolitenessScope,
        politeness: Politeness,
        seen: SeenFilter,
        index: QueueIndex,
        schedule: Schedule,
    ) -> None:
        self._assign = assign
        self._scope = scope
        self._politeness = politeness
        self._seen = seen
        self._index = index
        self._schedule = schedule
        self._pending: set[bytes] = set()
        self._unmarked: deque[tuple[int, list[bytes]]] = deque()
        self.last_ordinal = 0

    def accept(self, candidates: Sequence[Candidate], via: int, batch: Batch) -> list[Verdict]:
        """One verdict per candidate, in order; new ones become rows of the batch."""
        verdicts = self._judge(candidates)
        fresh = [candidate for candidate, verdict in zip(candidates, verdicts, strict=True) if verdict is NEW]
        if not fresh:
            return verdicts
        queues = self._assign([candidate.url for candidate in fresh])
        for candidate, queue in zip(fresh, queues, strict=True):
            self._enqueue(candidate, queue, via, batch)
        keys = [row.dedup_key() for row in batch.new]
        self._pending.update(keys)
        self._unmarked.append((batch.number, keys))
        return verdicts

    def mark_synced(self, number: int) -> None:
        """Batches up to `number` are durable: tell the filter. Raises: OSError of the filter."""
        keys: list[bytes] = []
        while self._unmarked and self._unmarked[0][0] <= number:
            keys.extend(self._unmarked.popleft()[1])
        if keys:
            self._seen.mark(keys)
            self._pending.difference_update(keys)

    def gate(self, key: GateKey, batch: Batch) -> Gate:
        """The gate of this key; made, and noted in the batch, if it is new."""
        gate = self._schedule.gate(name_id(key))
        if gate is None:
            gate = self.make_gate(key)
            batch.gates.append(gate.row())
        return gate

    def make_gate(self, key: GateKey) -> Gate:
        """Make the gate of this key, which has none."""
        gate = Gate(name_id(key), key, self._politeness)
        self._schedule.add_gate(gate)
        return gate

    def _judge(self, candidates: Sequence[Candidate]) -> list[Verdict]:
        """Most links are known, so the filter is asked first and only what is new is looked at closely."""
        keys = [_key(candidate) for candidate in candidates]
        unseen = self._seen.unseen([b"" if key is None else key for key in keys])
        in_batch: set[bytes] = set()
        facts = zip(candidates, keys, unseen, strict=True)
        return [self._verdict(candidate, key, is_unseen, in_batch) for candidate, key, is_unseen in facts]

    def _verdict(self, candidate: Candidate, key: bytes | None, is_unseen: bool, in_batch: set[bytes]) -> Verdict:
        if key is None:
            return _NOT_UTF8
        is_known = not is_unseen or key in self._pending
        verdict = SEEN if key in in_batch or (is_known and not candidate.force) else NEW
        if verdict is NEW and authority_of(candidate.url) is None:
            return _NO_HOST
        in_batch.add(key)
        return verdict

    def _enqueue(self, candidate: Candidate, queue_key: QueueKey, via: int, batch: Batch) -> None:
        lane = self._lane(candidate.url, queue_key, batch)
        self.last_ordinal += 1
        row = Row(
            queue=lane.queue.id,
            gate=lane.gate,
            precedence=FRONT if candidate.front else NORMAL,
            ordinal=self.last_ordinal,
            url=candidate.url,
            key=candidate.key,
            hops=candidate.hops,
            via=via,
            attempts=0,
            due_s=None,
            payload=candidate.payload,
        )
        batch.new.append(row)
        if candidate.force:
            batch.forced.add(row.ordinal)
        self._schedule.rows_stored(lane, row.precedence)

    def _lane(self, url: str, queue_key: QueueKey, batch: Batch) -> Lane:
        authority = authority_of(url)
        assert authority is not None, "candidates without a host are refused before"
        gate = self.gate(gate_key(self._scope, queue_key, authority), batch)
        queue, is_new = self._index.queue(queue_key)
        if is_new:
            batch.queues.append(QueueRow(queue.id, queue_key))
        lane, is_new = self._index.lane(queue, gate.id)
        if is_new:
            batch.lanes.append(LaneRow(queue.id, gate.id, queue.precedence, lane.arrival, 0))
        return lane


def _key(candidate: Candidate) -> bytes | None:
    """What the filter knows the candidate by; None if its URL cannot be kept."""
    try:
        encoded = candidate.url.encode()
    except UnicodeEncodeError:
        return None
    return encoded if candidate.key is None else candidate.key
