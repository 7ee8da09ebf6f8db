"""Admission: from candidates to rows. Asks the filter, assigns queue, gate and number, and marks durable keys in the filter.

`frontier.Frontier` calls `Admission`, which asks the filter once per page. A new candidate becomes a row of the batch that
`storelink` hands to the store, and `scheduling.schedule` places it. `Marking` adds a key to the filter when its row is durable;
until then the key is pending, so the filter never knows more than the store. Keys are marked in slices, one per call, because a
commit may bring thousands of keys at some 30 µs each.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, compress, islice
from typing import TYPE_CHECKING, Final, NamedTuple

from anabranch.frontier.checkpoints import NO_FOLDER, LastBatch
from anabranch.frontier.policies.hosts import authority
from anabranch.frontier.policies.precedence import is_precedence
from anabranch.frontier.policies.shares import ShareRule
from anabranch.frontier.records import (
    LATER,
    NEW,
    SEEN,
    WAITING,
    Candidate,
    QueueKey,
    Row,
    Verdict,
    VerdictKind,
)
from anabranch.frontier.scheduling.queues import Charge, QueueRules
from anabranch.frontier.scheduling.readylist import Outbox
from anabranch.frontier.scheduling.schedule import Schedule
from anabranch.frontier.seen import KnownCounts, SeenFilter
from anabranch.frontier.stores.contract import FailedRecord, LaneId, LinkRow

if TYPE_CHECKING:  # numpy is slow to import
    from anabranch.frontier.policies.assignment import AssignedLane, Assignment

_NO_HOST = Verdict(VerdictKind.REFUSED, "it has no host; an absolute URL is needed")
_NOT_UTF8 = Verdict(VerdictKind.REFUSED, "it is not text that UTF-8 can hold")
_NUL = Verdict(VerdictKind.REFUSED, "it holds a NUL character")
_KEY = Verdict(VerdictKind.REFUSED, "its key is not bytes")
_HOPS = Verdict(VerdictKind.REFUSED, "its path from the seed is not plain ASCII text")
_PAYLOAD = Verdict(VerdictKind.REFUSED, "its payload is not bytes")
_PRECEDENCE = Verdict(VerdictKind.REFUSED, "its precedence is not a whole number from 0 to 255")

#: The hops of a failure that is queued again and was kept in a format without them. So it counts as one hop from a seed.
UNKNOWN_HOPS: Final = "?"


class Fresh:
    """New candidates, with their hosts and dedup keys."""

    __slots__ = ("candidates", "hosts", "keys")

    def __init__(self) -> None:
        self.candidates: list[Candidate] = []
        self.hosts: list[str] = []
        self.keys: list[bytes] = []

    def take(self, candidate: Candidate, key: bytes) -> Verdict | None:
        """Add a candidate; returns the verdict if it cannot be queued."""
        if (fault := _fault(candidate)) is not None:
            return fault
        found = authority(candidate.url)
        if found is None:
            return _NO_HOST
        self.candidates.append(candidate)
        self.hosts.append(found.host)
        self.keys.append(key)
        return None


class Prepared(NamedTuple):
    """The answers of the filter and the policies that the end of a page needs; asking for them changes nothing."""

    charge: Charge  #: for the page's lease
    verdicts: list[Verdict]  #: on its candidates
    fresh: Fresh  #: of these, the new ones
    lanes: list[AssignedLane]  #: of the new ones
    precedences: list[int]  #: of their rows


class Outbound:
    """Sorts out candidates of shares that others hold. Cost: 1 µs a new candidate."""

    def __init__(self, rule: ShareRule, outbox: Outbox) -> None:
        self.rule = rule
        self.serving: frozenset[int] = frozenset()  #: the shares whose URLs are queued here
        self._outbox = outbox

    def parted(self, fresh: Fresh) -> tuple[Fresh, Fresh]:
        """Our own candidates, and those of others. Changes nothing."""
        serving, of_host = self.serving, self.rule.of_host
        own, others = Fresh(), Fresh()
        for candidate, host, key in zip(fresh.candidates, fresh.hosts, fresh.keys, strict=True):
            part = own if of_host(host) in serving else others
            part.candidates.append(candidate)
            part.hosts.append(host)
            part.keys.append(key)
        return own, others

    def share_elsewhere(self, host: str) -> int | None:
        """The share of a host that another worker serves; None: its URLs are queued here."""
        share = self.rule.of_host(host)
        return None if share in self.serving else share

    def send(self, others: Fresh, precedences: Sequence[int], via: int) -> None:
        """Add links for others to the batch."""
        batch = self._outbox.batch
        outbound = batch.exchanging().outbound if others.candidates else []
        for candidate, host, precedence in zip(others.candidates, others.hosts, precedences, strict=True):
            ordinal = self._outbox.number()
            outbound.append(_link_row(candidate, ordinal, self.rule.of_host(host), via, precedence))
            if candidate.force:
                batch.forced.add(ordinal)


def _link_row(candidate: Candidate, ordinal: int, share: int, via: int, precedence: int) -> LinkRow:
    return LinkRow(share, ordinal, candidate.url, candidate.key, candidate.hops, via, precedence, candidate.payload)


class Admission:
    """Gives verdicts on candidates and adds the new ones to the batch. Cost: O(1) a candidate, vectorised where possible."""

    def __init__(
        self,
        assignment: Assignment,
        rules: QueueRules,
        marking: Marking,
        schedule: Schedule,
        outbox: Outbox,
        outbound: Outbound | None = None,
    ) -> None:
        """`outbound` sends candidates of shares that other workers hold; None in a job of one owner."""
        self.assignment = assignment  #: of queues and gates
        self._rules = rules
        self._seen = marking.seen
        self._schedule = schedule
        self._outbox = outbox
        self._plain_precedence = rules.plain_precedence
        self.marking = marking  #: the keys that are not in the filter yet
        self._outbound = outbound

    def accept(
        self, candidates: Sequence[Candidate], via: int, via_url: str | None = None, prepared: Prepared | None = None
    ) -> list[Verdict]:
        """One verdict per candidate, in order; new ones become rows of the batch. Raises: PolicyError, before any change.

        `prepared` is for the same candidates: of them, only those that were new then are judged again.
        """
        if prepared is None:
            verdicts, fresh = self._judge(candidates)
            lanes, precedences = self._lanes_and_precedences(fresh, via_url) if fresh.candidates else ([], [])
        else:
            verdicts, fresh, lanes, precedences = self._still_new(prepared)
        if not fresh.candidates:
            return verdicts
        if self._outbound is not None:
            self._accept_shared(self._outbound, fresh, lanes, precedences, via)
            return verdicts
        self._add_rows(fresh, lanes, precedences, via)
        self._remember(self._outbox.batch.new[-1].ordinal, fresh.keys)
        return verdicts

    def prepare(self, charge: Charge, candidates: Sequence[Candidate], via_url: str | None) -> Prepared:
        """The verdicts, lanes and precedences that `accept` needs, and the charge; changes nothing. Raises: PolicyError."""
        verdicts, fresh = self._judge(candidates)
        return Prepared(charge, verdicts, fresh, *self._lanes_and_precedences(fresh, via_url))

    def adopt(self, links: Sequence[LinkRow]) -> None:
        """Add links of other workers to the batch as rows; the store drops those whose keys are known."""
        found = [authority(link.url) for link in links]
        hosts = [one.host for one in found if one is not None]  # candidates without a host are refused before
        batch = self._outbox.batch
        adopted = batch.exchanging().adopted
        for link, lane in zip(links, self.assignment.lanes_of([link.url for link in links], hosts), strict=True):
            self._add_row(link, lane, link.precedence, link.via, ordinal=link.ordinal)
            adopted.append(link)
        if links:
            self._remember(self._outbox.last_number, [link.dedup_key() for link in links])

    def _accept_shared(
        self, outbound: Outbound, fresh: Fresh, lanes: Sequence[AssignedLane], precedences: Sequence[int], via: int
    ) -> None:
        """Queue candidates of our own shares and send the others, with their precedences, to their owners."""
        own, others = outbound.parted(fresh)
        lane_of = dict(zip(fresh.keys, lanes, strict=True))
        precedence_of = dict(zip(fresh.keys, precedences, strict=True))
        self._add_rows(own, [lane_of[key] for key in own.keys], [precedence_of[key] for key in own.keys], via)
        outbound.send(others, [precedence_of[key] for key in others.keys], via)
        self._remember(self._outbox.last_number, fresh.keys)

    def _add_rows(self, fresh: Fresh, lanes: Sequence[AssignedLane], precedences: Sequence[int], via: int) -> None:
        batch = self._outbox.batch
        for candidate, lane, precedence in zip(fresh.candidates, lanes, precedences, strict=True):
            ordinal = self._add_row(candidate, lane, precedence, via)
            if candidate.force:
                batch.forced.add(ordinal)

    def _add_row(
        self,
        accepted: Candidate | LinkRow,
        lane: AssignedLane,
        precedence: int,
        via: int,
        *,
        ordinal: int | None = None,
        attempts: int = 0,
        due_s: float | None = None,
    ) -> int:
        """Make the row of an accepted URL, add it to the batch and schedule it. Returns its ordinal, a new one unless given."""
        if ordinal is None:
            ordinal = self._outbox.number()
        queue, queue_id, gate_id, gate = lane
        url, key, hops, payload = accepted.url, accepted.key, accepted.hops, accepted.payload
        # By position, because every new URL becomes a row: with names it takes 0.65 µs instead of 0.3.
        row = Row(queue_id, gate_id, precedence, ordinal, url, key, hops, via, attempts, due_s, payload)
        self._outbox.batch.new.append(row)
        self._schedule.schedule_row(row, queue, gate)
        return ordinal

    def judge(self, candidates: Sequence[Candidate]) -> list[Verdict]:
        """One verdict per candidate, in order; changes nothing."""
        return self._judge(candidates)[0]

    def unseen(self, keys: Sequence[bytes]) -> Sequence[bool]:
        """Which of these keys may be new; changes nothing. With a filter that blocks: all."""
        pending, answers = self.marking.pending, self._unseen(keys)
        new = [is_unseen and key not in pending for key, is_unseen in zip(keys, answers, strict=True)]
        self._count_pending(sum(answers) - sum(new))
        return new

    def enqueue(
        self, candidate: Candidate, queue: QueueKey, precedence: int, via: int, attempts: int, due_s: float | None
    ) -> None:
        """Add a row of another Frontier to the batch and schedule it; with `due_s` it waits for its retry."""
        found = authority(candidate.url)
        assert found is not None, "candidates without a host are refused before"
        if due_s is not None:
            precedence += WAITING
        lane = self.assignment.lane(queue, found.host)
        ordinal = self._add_row(candidate, lane, precedence, via, attempts=attempts, due_s=due_s)
        if candidate.force:
            self._outbox.batch.forced.add(ordinal)

    def requeue(
        self, failures: Sequence[FailedRecord], payload_of: Callable[[bytes | None], bytes | None]
    ) -> list[LaneId]:
        """Add failures to the batch as new rows with no tries, each with what is known of it; the lane of each.

        `payload_of` gives each its payload. The filter knows their keys and is not asked.
        Raises: PolicyError, before any change.
        """
        hops = [UNKNOWN_HOPS if one.hops is None else one.hops for one in failures]
        candidates = [
            Candidate(one.url, one.key, path, payload_of(one.payload)) for one, path in zip(failures, hops, strict=True)
        ]
        urls = [failure.url for failure in failures]
        # Candidates without a host are refused before.
        hosts = [one.host for one in map(authority, urls) if one is not None]
        lanes = self.assignment.lanes_of(urls, hosts)
        precedences = [
            self._precedence_of(failure, candidate) for failure, candidate in zip(failures, candidates, strict=True)
        ]
        for place, failure in enumerate(failures):
            self._requeue(failure, candidates[place], hosts[place], lanes[place], precedences[place])
        if failures:
            self._remember(self._outbox.last_number, list(map(Candidate.dedup_key, candidates)))
        return [lane[1:3] for lane in lanes]

    def _precedence_of(self, failure: FailedRecord, candidate: Candidate) -> int:
        """Return what is known of it, or ask the policy."""
        if failure.precedence is not None:
            return failure.precedence
        return self._rules.in_row(candidate._replace(hops=failure.hops or ""), None)

    def _requeue(
        self, failure: FailedRecord, candidate: Candidate, host: str, lane: AssignedLane, precedence: int
    ) -> None:
        """Add a failure's new row to the batch, or send it to the worker that has its share."""
        batch, ordinal = self._outbox.batch, self._outbox.number()
        batch.forced.add(ordinal)
        batch.retried[ordinal] = failure.ordinal
        share = None if self._outbound is None else self._outbound.share_elsewhere(host)
        if share is not None:
            batch.exchanging().outbound.append(_link_row(candidate, ordinal, share, failure.via, precedence))
        else:
            self._add_row(candidate, lane, precedence, failure.via, ordinal=ordinal)

    def remember(self, first: int) -> None:
        """Treat the batch's new rows from this one on as known; the filter is marked when they are durable."""
        rows = self._outbox.batch.new
        if len(rows) > first:
            self._remember(rows[-1].ordinal, [] if self._seen.blocks else [row.dedup_key() for row in rows[first:]])

    def _judge(self, candidates: Sequence[Candidate]) -> tuple[list[Verdict], Fresh]:
        """Most links are known, so the filter is asked first and only new candidates are checked."""
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
            elif ((is_unseen and key not in pending) or candidate.force) and key not in in_batch:
                fault = fresh.take(candidate, key)
                if fault is None:
                    in_batch.add(key)
                verdict = fault or new
            verdicts.append(verdict)
        self._count_pending(sum(unseen) - len(verdicts) + verdicts.count(SEEN))
        return verdicts, fresh

    def _still_new(self, prepared: Prepared) -> tuple[list[Verdict], Fresh, list[AssignedLane], list[int]]:
        """The verdicts, and what is new of what was; other pages may have queued some of it since."""
        _, verdicts, before, lanes, precedences = prepared
        again, fresh = self._judge(before.candidates)
        if len(fresh.keys) == len(before.keys):
            return verdicts, fresh, lanes, precedences
        is_new = [verdict is not SEEN for verdict in again]
        later = iter(again)
        verdicts = [next(later) if verdict is NEW or verdict is LATER else verdict for verdict in verdicts]
        return verdicts, fresh, list(compress(lanes, is_new)), list(compress(precedences, is_new))

    def _count_pending(self, known: int) -> None:
        if known > 0:
            self.marking.counts.count_pending(known)

    def _unseen(self, keys: Sequence[bytes]) -> Sequence[bool]:
        return [True] * len(keys) if self._seen.blocks else self._seen.unseen(keys)

    def _remember(self, ordinal: int, keys: list[bytes]) -> None:
        """The batch's rows up to this one have these keys. The store marks a filter that blocks."""
        self.marking.remember(self._outbox.batch.number, ordinal, [] if self._seen.blocks else keys)

    def _lanes_and_precedences(self, fresh: Fresh, via_url: str | None) -> tuple[list[AssignedLane], list[int]]:
        """Ask the policies. Raises: PolicyError."""
        lanes = self.assignment.lanes_of([candidate.url for candidate in fresh.candidates], fresh.hosts)
        return lanes, self._precedences(fresh.candidates, via_url)

    def _precedences(self, fresh: list[Candidate], via_url: str | None) -> list[int]:
        plain = self._plain_precedence
        if plain is None:
            return [self._rules.in_row(candidate, via_url) for candidate in fresh]
        return [
            plain if candidate.precedence is None and not candidate.front else self._rules.in_row(candidate, via_url)
            for candidate in fresh
        ]


def _keys(candidates: Sequence[Candidate]) -> list[bytes]:
    """The dedup key of each candidate; empty if its URL cannot be stored."""
    try:
        return [candidate.url.encode() if candidate.key is None else _key(candidate) or b"" for candidate in candidates]
    except (UnicodeEncodeError, AttributeError):
        return [_key(candidate) or b"" for candidate in candidates]


def _key(candidate: Candidate) -> bytes | None:
    """The dedup key; None if the URL cannot be stored."""
    try:
        encoded = candidate.url.encode()
    except (UnicodeEncodeError, AttributeError):  # not text, such as bytes
        return None
    key = candidate.key
    if key is None:
        return encoded
    return key if isinstance(key, bytes) else None


def _keyless(candidate: Candidate) -> Verdict:
    key: object = candidate.key
    return _NOT_UTF8 if key is None or isinstance(key, bytes) else _KEY


def _fault(candidate: Candidate) -> Verdict | None:
    """The reason why the candidate cannot be queued, if any; `Fresh.take` checks its host."""
    if "\0" in candidate.url:
        return _NUL
    if candidate.precedence is not None and not is_precedence(candidate.precedence):
        return _PRECEDENCE
    hops = candidate.hops
    if not (isinstance(hops, str) and hops.isascii() and "\0" not in hops):
        return _HOPS
    payload: object = candidate.payload
    return None if payload is None or isinstance(payload, bytes) else _PAYLOAD


#: A call marks at most so many keys, plus as many as came in since the last one, so that they do not pile up.
SLICE: Final = 64


class Marking:
    """The keys that are not in the filter yet. The store's limit of unacknowledged rows bounds them."""

    def __init__(
        self,
        seen: SeenFilter,
        ordinal: int = 0,
        *,
        has_shared: bool = False,
        last_batch: LastBatch = NO_FOLDER,
        counts: KnownCounts | None = None,
    ) -> None:
        self.seen = seen
        self.last_batch = last_batch  #: beside the filter
        self.counts = KnownCounts() if counts is None else counts
        self._durable = self._noted = 0  #: numbers of batches
        self.pending: set[bytes] = set()  #: keys that are not marked
        self.ordinal = ordinal  #: the filter has every row up to this one
        self.has_shared = has_shared  #: the store asks another filter, too, and drops rows that other crawls have
        self._unsynced: deque[tuple[int, int, list[bytes]]] = deque()
        self._due: deque[bytes] = deque()  # of durable rows
        #: Durable rows that are not marked: (number of keys to mark, counted from the start, up to which ordinal).
        self.behind: deque[tuple[int, int]] = deque()
        self._ever_due = 0
        self._came = 0  # keys since the last slice
        self._left = ForeignKeys()  # keys of rows that were dropped

    @property
    def slices(self) -> int:
        """The number of slices that are left at most."""
        return -(-len(self._due) // SLICE)

    def remember(self, number: int, ordinal: int, keys: list[bytes]) -> None:
        """The rows of this batch up to `ordinal` have these keys; none if the store marks the filter."""
        self.pending.update(keys)
        self._unsynced.append((number, ordinal, keys))
        self._came += len(keys)

    def synced(self, number: int, died: Sequence[Row] = ()) -> None:
        """Batches up to `number` are durable, without the rows that `died`: their keys are due."""
        unsynced = self._unsynced
        if not unsynced or unsynced[0][0] > number:
            return
        keys: list[bytes] = []
        while unsynced and unsynced[0][0] <= number:
            _, ordinal, added = unsynced.popleft()
            keys.extend(added)
        self._durable = number
        if died and self.has_shared:
            keys, known = self._left.sort_out(keys, died, self._under_way)
            self.pending.difference_update(known.difference(keys))
        if not self.behind:
            self._came = 0  # nothing was due meanwhile
        self._due.extend(keys)
        self._ever_due += len(keys)
        self.behind.append((self._ever_due, ordinal))

    def mark_some(self) -> None:
        """Mark the next slice. Raises: OSError of the filter."""
        due, count = self._due, SLICE + self._came
        self._came = 0
        if due:
            if self._noted != self._durable:
                self.last_batch.note(self._durable)
                self._noted = self._durable
            keys = list(islice(due, count))
            self.seen.mark(keys)
            for _ in keys:
                due.popleft()
            self.pending.difference_update(keys)
        ends, known = self.behind, self._ever_due - len(due)
        while ends and ends[0][0] <= known:
            self.ordinal = ends.popleft()[1]

    def _under_way(self) -> chain[bytes]:
        return chain(self._due, chain.from_iterable(added for _, _, added in self._unsynced))


#: The most keys of other crawls that are remembered.
REMEMBERED_KEYS = 65_536


class ForeignKeys:
    """Keys of other crawls. They stay pending for a while, so that a popular link is not asked about each time."""

    def __init__(self) -> None:
        self._keys: set[bytes] = set()

    def sort_out(
        self, keys: Sequence[bytes], died: Sequence[Row], under_way: Callable[[], Iterable[bytes]]
    ) -> tuple[list[bytes], set[bytes]]:
        """Return the keys of synced rows that belong to this crawl, and those that are no longer pending. O(keys).

        A row that died removes its key once, since a forced row may have the same. If too many keys of other crawls are
        pending, the older ones are forgotten, except those that are `under_way` again.
        """
        dead = Counter(row.dedup_key() for row in died)
        own = list((Counter(keys) - dead).elements())
        left = dead.keys() - own
        self._keys.difference_update(own)
        if len(self._keys) + len(left) <= REMEMBERED_KEYS:
            self._keys |= left
            return own, set(own)
        before, self._keys = self._keys, left
        return own, before.difference(left, under_way()).union(own)
