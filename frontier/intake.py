"""From candidates to rows: ask the filter, assign, number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from anabranch.frontier.fingerprints import name_id
from anabranch.frontier.marking import Marking
from anabranch.frontier.models import LATER, NEW, SEEN, Candidate, GateKey, QueueKey, Row, Verdict, VerdictKind
from anabranch.frontier.outbox import Outbox
from anabranch.frontier.policies.assignment import Assign, PolitenessScope
from anabranch.frontier.policies.authority import authority
from anabranch.frontier.policies.precedence import is_precedence
from anabranch.frontier.policies.queuerules import QueueRules
from anabranch.frontier.scheduling.schedule import Schedule
from anabranch.frontier.seen import SeenFilter
from anabranch.frontier.stores.messages import Announced
from anabranch.frontier.turns import Turn, turn_of

_NO_HOST = Verdict(VerdictKind.REFUSED, "it has no host; an absolute URL is needed")
_NOT_UTF8 = Verdict(VerdictKind.REFUSED, "it is not text that UTF-8 can hold")
_NUL = Verdict(VerdictKind.REFUSED, "it holds a NUL character")
_KEY = Verdict(VerdictKind.REFUSED, "its key is not bytes")
_HOPS = Verdict(VerdictKind.REFUSED, "its path from the seed is not plain ASCII text")
_PAYLOAD = Verdict(VerdictKind.REFUSED, "its payload is not bytes")
_PRECEDENCE = Verdict(VerdictKind.REFUSED, "its precedence is not a whole number from 0 to 255")

_new: Final = tuple.__new__
#: Ids of names that are remembered.
_REMEMBERED: Final = 65_536


class Fresh:
    """Candidates that are new, and what was found out of them on the way: their hosts and their dedup keys."""

    __slots__ = ("candidates", "hosts", "keys")

    def __init__(self) -> None:
        self.candidates: list[Candidate] = []
        self.hosts: list[str] = []
        self.keys: list[bytes] = []

    def take(self, candidate: Candidate, key: bytes) -> Verdict | None:
        """One more, unless the answer says why it cannot be queued."""
        if (fault := _fault(candidate)) is not None:
            return fault
        found = authority(candidate.url)
        if found is None:
            return _NO_HOST
        self.candidates.append(candidate)
        self.hosts.append(found[1])
        self.keys.append(key)
        return None


class Elsewhere(Protocol):
    """Takes what belongs to other shares of the crawl."""

    def parted(self, fresh: Fresh) -> tuple[Fresh, Fresh]:
        """What is this share's own, and what is others'. Changes nothing."""
        ...

    def consign(self, others: Fresh, page: str | None) -> None:
        """Send it to its owners. `page` is the URL it was all found on."""
        ...

    def is_owner_of(self, url: str) -> bool:
        """The URL is this share's, or has no host and is nobody's."""
        ...


class Intake:
    """Decides about candidates and adds what is new to the batch. Cost: O(1) a candidate, vectorised where it can be."""

    def __init__(
        self,
        assign: Assign,
        scope: PolitenessScope,
        rules: QueueRules,
        seen: SeenFilter,
        schedule: Schedule,
        outbox: Outbox,
    ) -> None:
        self._assign = assign
        self._has_gate_per_queue = scope is PolitenessScope.QUEUE
        self._rules = rules
        self._seen = seen
        self._schedule = schedule
        self._outbox = outbox
        self._ids: dict[str, int] = {}
        self.marking = Marking(seen)  #: what the filter does not know yet
        self.elsewhere: Elsewhere | None = None  #: who takes what is not this share's; None: all is

    def accept(self, candidates: Sequence[Candidate], via: int, via_url: str | None = None) -> list[Verdict]:
        """One verdict per candidate, in order; new ones become rows of the batch. Raises: PolicyError, before any change."""
        verdicts, fresh = self._judge(candidates)
        if not fresh.candidates:
            return verdicts
        others = None
        if self.elsewhere is not None:
            fresh, others = self.elsewhere.parted(fresh)
        queues = self.queues_of([candidate.url for candidate in fresh.candidates]) if fresh.candidates else ()
        precedences = self._precedences(fresh.candidates, via_url)
        if self.elsewhere is not None and others is not None:
            self.elsewhere.consign(others, via_url)
        if not fresh.candidates:
            return verdicts
        batch = self._outbox.batch
        for candidate, host, queue, precedence in zip(fresh.candidates, fresh.hosts, queues, precedences, strict=True):
            gate = self.gate_of(queue, host)
            row = self._row(candidate, self._id(queue), self._id(gate), precedence, via)
            self.enqueue(row, queue, gate)
            if candidate.force:
                batch.forced.add(row.ordinal)
        self._remember(batch.new[-1].ordinal, fresh.keys)
        return verdicts

    def judge(self, candidates: Sequence[Candidate]) -> tuple[list[Verdict], list[Candidate]]:
        """One verdict per candidate, in order, and those that are new; changes nothing."""
        verdicts, fresh = self._judge(candidates)
        return verdicts, fresh.candidates

    def unseen(self, keys: Sequence[bytes]) -> Sequence[bool]:
        """Which of these keys may be new; changes nothing. With a filter that blocks all may be."""
        pending = self.marking.pending
        return [is_unseen and key not in pending for key, is_unseen in zip(keys, self._unseen(keys), strict=True)]

    def queues_of(self, urls: Sequence[str]) -> Sequence[QueueKey]:
        """The queues that the policy assigns. Raises: PolicyError."""
        return self._assign(urls)

    def row(self, candidate: Candidate, queue_key: QueueKey, precedence: int, via: int) -> tuple[Row, GateKey]:
        """The next row, and its gate's key."""
        found = authority(candidate.url)
        assert found is not None, "candidates without a host are refused before"
        gate = self.gate_of(queue_key, found.host)
        return self._row(candidate, self._id(queue_key), self._id(gate), precedence, via), gate

    def remember(self, first: int) -> None:
        """The new rows of the batch, from this one on, are known from now on; the filter is marked when they are durable."""
        rows = self._outbox.batch.new
        if len(rows) > first:
            # A filter that blocks is marked by the store, before it calls the rows durable.
            self._remember(rows[-1].ordinal, [] if self._seen.blocks else [row.dedup_key() for row in rows[first:]])

    def gate_of(self, queue: QueueKey, host: str) -> GateKey:
        """The gate of a URL with this queue and host."""
        return GateKey(f"queue:{queue}" if self._has_gate_per_queue else host)

    def assign(self, url: str) -> tuple[QueueKey, GateKey] | None:
        """Where a URL would stand; None if it has no host."""
        found = authority(url)
        if found is None:
            return None
        (queue,) = self._assign([url])
        return queue, self.gate_of(queue, found.host)

    def _judge(self, candidates: Sequence[Candidate]) -> tuple[list[Verdict], Fresh]:
        """Most links are known, so the filter is asked first and only what is new is looked at closely."""
        keys = _keys(candidates)
        unseen = self._unseen(keys)
        new = LATER if self._seen.blocks or self.marking.has_shared else NEW
        pending = self.marking.pending
        in_batch: set[bytes] = set()
        verdicts: list[Verdict] = []
        fresh = Fresh()
        for candidate, key, is_unseen in zip(candidates, keys, unseen, strict=True):
            verdict = SEEN
            if not key and _key(candidate) is None:
                verdict = _keyless(candidate)
            elif ((is_unseen and key not in pending) or candidate[5]) and key not in in_batch:
                fault = fresh.take(candidate, key)
                if fault is None:
                    in_batch.add(key)
                verdict = fault or new
            verdicts.append(verdict)
        return verdicts, fresh

    def _unseen(self, keys: Sequence[bytes]) -> Sequence[bool]:
        return [True] * len(keys) if self._seen.blocks else self._seen.unseen(keys)

    def _row(self, candidate: Candidate, queue: int, gate: int, precedence: int, via: int) -> Row:
        url, key, hops, payload, _, _, _ = candidate
        outbox = self._outbox
        outbox.last_number = ordinal = outbox.last_number + 1
        # Half the price of Row(...): one is made for every URL.
        return _new(Row, (queue, gate, precedence, ordinal, url, key, hops, via, 0, None, payload))

    def _remember(self, ordinal: int, keys: list[bytes]) -> None:
        """The rows of the batch up to this one have these keys; a filter that blocks marks them itself."""
        self.marking.remember(self._outbox.batch.number, ordinal, [] if self._seen.blocks else keys)

    def _precedences(self, fresh: list[Candidate], via_url: str | None) -> list[int]:
        plain = self._rules.plain_precedence
        if plain is None:
            return [self._rules.in_row(candidate, via_url) for candidate in fresh]
        return [
            plain if candidate.precedence is None and not candidate.front else self._rules.in_row(candidate, via_url)
            for candidate in fresh
        ]

    def enqueue(self, row: Row, queue_key: QueueKey, gate_key: GateKey) -> None:
        """Add a row that can be served to the batch, and let its lane stand in line."""
        self._outbox.batch.new.append(row)
        queue_id, gate_id = row[:2]
        window = self._schedule.window
        line = window.get(gate_id)
        lane = None if line is None else line.lanes.get(queue_id)
        if lane is not None:
            self._schedule.row_stored(lane, row)
        elif line is None or queue_id not in line.waiting:
            turn = self._announce(row, queue_key)
            line = window.admit(gate_id, gate_key)
            if line is None or line.is_loading:
                self._outbox.batch.gate_names.append((gate_id, gate_key))
                window.wake(gate_id, turn, queue_id)
            if line is not None:
                self._schedule.lane_waits(line, queue_id, turn)

    def enqueue_waiting(self, row: Row, queue_key: QueueKey, gate_key: GateKey) -> None:
        """Add a row that waits for a retry to the batch: its lane is known, and stands in line when the row is due."""
        self._outbox.batch.new.append(row)
        line = self._schedule.window.get(row.gate)
        if line is None or line.is_loading:
            self._outbox.batch.gate_names.append((row.gate, gate_key))
        if line is not None and (row.queue in line.lanes or row.queue in line.waiting):
            return
        self._announce(row, queue_key)

    def _announce(self, row: Row, queue_key: QueueKey) -> Turn:
        """A lane gets a row that is not in memory, nor waits in its line there; the answer is the turn that it is to take."""
        batch = self._outbox.batch
        queue = self._schedule.index.get(row.queue)
        if queue is None or not queue.is_known:
            precedence = self._rules.first_precedence(queue_key)
            batch.queue_names.append((row.queue, queue_key, precedence))
        else:
            precedence = queue.precedence
        turn = turn_of(precedence, row.ordinal)
        batch.announced.append(_new(Announced, (row.queue, row.gate, turn)))
        return turn

    def _id(self, name: str) -> int:
        known = self._ids.get(name)
        if known is None:
            if len(self._ids) >= _REMEMBERED:
                self._ids.clear()
            known = self._ids[name] = name_id(name)
        return known


def _keys(candidates: Sequence[Candidate]) -> list[bytes]:
    """What the filter knows each candidate by; nothing for one whose URL cannot be kept."""
    try:
        return [candidate[0].encode() if candidate[1] is None else _key(candidate) or b"" for candidate in candidates]
    except (UnicodeEncodeError, AttributeError):
        return [_key(candidate) or b"" for candidate in candidates]


def _key(candidate: Candidate) -> bytes | None:
    """What the filter knows the candidate by; None if its URL cannot be kept."""
    try:
        encoded = candidate.url.encode()
    except (UnicodeEncodeError, AttributeError):  # no text at all, such as bytes
        return None
    key = candidate.key
    if key is None:
        return encoded
    return key if isinstance(key, bytes) else None


def _keyless(candidate: Candidate) -> Verdict:
    """Why it has nothing that the filter could know it by."""
    key: object = candidate.key
    return _NOT_UTF8 if key is None or isinstance(key, bytes) else _KEY


def _fault(candidate: Candidate) -> Verdict | None:
    """Why the candidate cannot be queued, if it cannot; its host is looked at elsewhere."""
    if "\0" in candidate.url:
        return _NUL
    if candidate.precedence is not None and not is_precedence(candidate.precedence):
        return _PRECEDENCE
    hops = candidate.hops
    if not (isinstance(hops, str) and hops.isascii() and "\0" not in hops):
        return _HOPS
    payload: object = candidate.payload
    return None if payload is None or isinstance(payload, bytes) else _PAYLOAD
