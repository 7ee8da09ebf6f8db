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
        self.index = index
        self.schedule = schedule
        self._pending: set[bytes] = set()
        self._unmarked: deque[tuple[int, list[bytes]]] = deque()
        self.last_ordinal = 0

    def accept(self, candidates: Sequence[Candidate], via: int, batch: Batch) -> list[Verdict]:
        """One verdict per candidate, in order; new ones become rows of the batch."""
        verdicts = [_admissible(candidate) for candidate in candidates]
        self._drop_seen(candidates, verdicts)
        fresh = [candidate for candidate, verdict in zip(candidates, verdicts, strict=True) if verdict is NEW]
        queues = self._assign([candidate.url for candidate in fresh])
        for candidate, queue in zip(fresh, queues, strict=True):
            self._enqueue(candidate, queue, via, batch)
        if fresh:
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
        gate = self.schedule.gate(name_id(key))
        if gate is None:
            gate = self.make_gate(key)
            batch.gates.append(gate.row())
        return gate

    def make_gate(self, key: GateKey) -> Gate:
        """Make the gate of this key, which has none."""
        gate = Gate(name_id(key), key, self._politeness)
        self.schedule.add_gate(gate)
        return gate

    def _drop_seen(self, candidates: Sequence[Candidate], verdicts: list[Verdict]) -> None:
        keys = [
            candidate.dedup_key() if verdict is NEW else b""
            for candidate, verdict in zip(candidates, verdicts, strict=True)
        ]
        unseen = self._seen.unseen(keys)
        in_batch: set[bytes] = set()
        for place, (candidate, key) in enumerate(zip(candidates, keys, strict=True)):
            if verdicts[place] is not NEW:
                continue
            known = not unseen[place] or key in self._pending
            if key in in_batch or (known and not candidate.force):
                verdicts[place] = SEEN
            in_batch.add(key)

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
        self.schedule.rows_stored(lane, row.precedence)

    def _lane(self, url: str, queue_key: QueueKey, batch: Batch) -> Lane:
        authority = authority_of(url)
        assert authority is not None, "candidates without a host are refused before"
        gate = self.gate(gate_key(self._scope, queue_key, authority), batch)
        queue, is_new = self.index.queue(queue_key)
        if is_new:
            batch.queues.append(QueueRow(queue.id, queue_key))
        lane, is_new = self.index.lane(queue, gate.id)
        if is_new:
            batch.lanes.append(LaneRow(queue.id, gate.id, queue.precedence, lane.arrival, 0))
        return lane


def _admissible(candidate: Candidate) -> Verdict:
    """NEW as far as the URL itself can tell."""
    try:
        candidate.url.encode()
    except UnicodeEncodeError:
        return _NOT_UTF8
    return NEW if authority_of(candidate.url) else _NO_HOST
