"""Leases and their completion: the lease ends with its outcome, its slot rests, its row ends, waits for a retry or stays.

`frontier.Frontier` calls `Leases` to hand out and find leases, and `Completion` to end them. Leases are in memory only: if a
process dies, its URLs are still queued.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from heapq import heappop, heappush
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from anabranch.frontier.errors import LeaseLost, PolicyError
from anabranch.frontier.policies.budgets import NOTHING_MORE
from anabranch.frontier.records import ENDING, WAITING, Head, HostTrouble, Lease, Outcome, OutcomeKind
from anabranch.frontier.scheduling.heaps import Retries
from anabranch.frontier.scheduling.queues import Charge, is_over_total
from anabranch.frontier.scheduling.readylist import Lane, Outbox, ReadyList
from anabranch.frontier.scheduling.schedule import Schedule
from anabranch.frontier.stores.contract import Ended, Moved

_FOREVER: Final = math.inf

#: The most pages that sent links before their end and are remembered: those of the last minutes.
MAX_PAGES = 1000

#: A lease with its lane and head. A plain tuple, because one is made for every page.
Held = tuple[Lease, Lane, Head]


class LeaseElsewhere(NamedTuple):
    """A lease of another process, which owns the state that this one has a copy of."""

    ordinal: int
    queue: int
    gate: int
    since_s: float


class Board(Protocol):
    """Shows the leases to other processes. The methods neither block nor raise."""

    def out(self, ordinal: int, queue: int, gate: int, since_s: float) -> None:
        """A lease is handed out."""

    def back(self, ordinal: int, gate: int, opens_s: float, now_s: float) -> None:
        """It has ended, and its gate lets nothing through before `opens_s` (infinity: as long as others are out)."""


class Leases:
    """Leases by the ordinal of their URL; one not renewed for `lease_s` is lost. O(1), with an expiry O(log leases)."""

    def __init__(self, lease_s: float | None = None, board: Board | None = None) -> None:
        self._lease_s = lease_s
        self.may_expire = lease_s is not None  #: leases are lost when their time is over
        self._held: dict[int, Held] = {}
        self._expiries: list[tuple[float, int]] = []  #: heap; may hold stale entries
        self._pages: dict[int, str] = {}  #: URLs of pages that sent links before their end was written
        self.lost = 0  #: leases that expired
        self._board = board
        self.elsewhere: Mapping[int, LeaseElsewhere] = MappingProxyType({})  #: by ordinal; only counted and shown

    def __len__(self) -> int:
        return len(self._held) + len(self.elsewhere)

    def __iter__(self) -> Iterator[Held]:
        return iter(self._held.values())

    def ordinals(self) -> set[int]:
        """The URLs that are leased."""
        return {*self._held, *self.elsewhere}

    def since_s(self, ordinal: int) -> float | None:
        """When this URL was leased, if it is out."""
        held = self._held.get(ordinal) or self.elsewhere.get(ordinal)
        if held is None:
            return None
        return held.since_s if isinstance(held, LeaseElsewhere) else held[0].since_s

    def show_elsewhere(self, leases: Iterable[LeaseElsewhere]) -> None:
        """Count these leases of another process, too."""
        self.elsewhere = {lease.ordinal: lease for lease in leases}

    def remember(self, page: Lease) -> None:
        """Keep the URL of a page that sends links before its end, because the store does not have it yet."""
        self._pages[page.ordinal] = page.url
        if len(self._pages) > MAX_PAGES:
            del self._pages[next(iter(self._pages))]

    def hand_out(self, lane: Lane, head: Head, now_s: float) -> Lease:
        """Make the lease of a head that was taken from its lane."""
        row, via = head
        ordinal, url, key = row.ordinal, row.url, row.key
        if via is None and row.via:
            via = self._pages.get(row.via)
        if key is None:
            key = url.encode()
        until_s = _FOREVER if self._lease_s is None else now_s + self._lease_s
        gate = lane.line.gate.key
        lease = Lease(ordinal, url, key, row.hops, via, row.attempts, row.payload, lane.queue.key, gate, now_s, until_s)
        self._held[ordinal] = (lease, lane, head)
        if self._board is not None:
            self._board.out(ordinal, row.queue, row.gate, now_s)
        if self._lease_s is not None:
            heappush(self._expiries, (until_s, ordinal))
        return lease

    def find(self, lease: Lease) -> Held:
        """The lease with its lane and head. Raises: LeaseLost if it is not out."""
        held = self._held.get(lease.ordinal)
        # A renewed lease differs in `until_s` only.
        if held is None or not (held[0] is lease or held[0]._replace(until_s=lease.until_s) == lease):
            raise LeaseLost(f"the lease of {lease.url} is not out")
        return held

    def take_back(self, lease: Lease) -> Held:
        """End a lease. Raises: LeaseLost if it is not out."""
        held = self.find(lease)
        del self._held[lease.ordinal]
        return held

    def drop(self, held: Held) -> None:
        """End a lease that `find` returned."""
        del self._held[held[0].ordinal]

    def renew(self, lease: Lease, now_s: float) -> Lease:
        """Extend a lease by its full time from now on. Raises: LeaseLost."""
        held, lane, head = self.take_back(lease)
        until_s = _FOREVER if self._lease_s is None else now_s + self._lease_s
        renewed = held._replace(until_s=until_s)
        self._held[lease.ordinal] = renewed, lane, head
        if self._lease_s is not None:
            heappush(self._expiries, (until_s, lease.ordinal))
        return renewed

    def next_expiry(self) -> float | None:
        """When the next lease is lost, if any can be."""
        while self._expiries:
            at_s, ordinal = self._expiries[0]
            held = self._held.get(ordinal)
            if held is not None and held[0].until_s == at_s:
                return at_s
            heappop(self._expiries)
        return None

    def take_expired(self, now_s: float) -> Iterator[Held]:
        """Take every expired lease."""
        while (at_s := self.next_expiry()) is not None and at_s <= now_s:
            _, ordinal = heappop(self._expiries)
            self.lost += 1
            yield self._held.pop(ordinal)


#: The row of a queue without total budget is written after so many leases; a crash loses the count of the last ones.
UNSAVED: Final = 16

# By these names, because reading a member of an Enum's class costs as much as a call.
_DONE: Final = OutcomeKind.DONE
_RETRY: Final = OutcomeKind.RETRY
_DEFERRED: Final = OutcomeKind.DEFERRED
_RETIRE: Final = OutcomeKind.RETIRE
_NO_TROUBLE: Final = HostTrouble.NONE
_INFINITY: Final = math.inf
_NUMBER: Final = (float, int)
#: A status is a signed integer of 64 bits, as SQL's.
_MOST: Final = 1 << 63


class Completion:
    """Takes leases back. Every operation costs O(log active)."""

    def __init__(
        self,
        outbox: Outbox,
        schedule: Schedule,
        retries: Retries,
        waiting: int = 0,
        board: Board | None = None,
    ) -> None:
        self._outbox = outbox
        self._schedule = schedule
        self.retries = retries
        self.waiting = waiting  #: rows that wait for a retry
        self._board = board

    def end(self, held: Held, outcome: Outcome, charge: Charge, now_s: float) -> None:
        """End a lease with this outcome; all changes go into the batch."""
        _, lane, head = held
        row, queue, kind = head.row, lane.queue, outcome.kind
        self._end_slot(lane.line, outcome, now_s)
        if kind is _DONE or kind in ENDING:
            self._outbox.batch.ended.append(Ended(row, outcome.status, kind))
        elif kind is _RETRY:
            waits = row._replace(
                precedence=row.precedence % WAITING + WAITING, attempts=row.attempts + 1, due_s=now_s + outcome.after_s
            )
            self._outbox.batch.moved.append(Moved(row, waits))
            self.retries.add(waits)
            self.waiting += 1
            queue.waits += 1
        queue.pay(kind, charge[0])
        if kind is _RETIRE and not queue.standing:
            queue.set_budget(NOTHING_MORE, NOTHING_MORE)
        if queue.unsaved >= UNSAVED or queue.total_budget >= 0:
            self._schedule.index.save(queue)
            if is_over_total(queue.spent, queue.total_budget) and not queue.standing:
                self._schedule.placement.retire(queue)
        self._schedule.come_back(lane, head, charge, now_s, keep=kind is _DEFERRED or kind is _RETIRE)
        if self._board is not None:
            gate = lane.line.gate
            self._board.back(row.ordinal, gate.id, gate.opens_s(), now_s)

    def release(self, held: Held, now_s: float) -> None:
        """End a lease that did nothing: the URL is first again, and the slot does not rest."""
        _, lane, head = held
        line = lane.line
        line.gate.give_back(now_s)
        if line.group is not None:
            line.group.gate.give_back(now_s)
        self._schedule.window.heap.returned(line, now_s)
        self._schedule.come_back(lane, head, FREE, now_s, keep=True)
        if self._board is not None:
            self._board.back(head.row.ordinal, line.gate.id, line.gate.opens_s(), now_s)

    def expire(self, held: Held, now_s: float) -> None:
        """End a lease that was lost: the URL is first again, and the slot rests, as the fetch may have lasted until now."""
        self.end(held, Outcome(OutcomeKind.DEFERRED, 0, held[0].since_s, now_s), FREE, now_s)

    def wake_retries(self, now_s: float) -> None:
        """Make the rows servable that are due for a retry."""
        for row in self.retries.take_due(now_s):
            back = row._replace(precedence=row.precedence % WAITING, due_s=None)
            self._outbox.batch.moved.append(Moved(row, back))
            self.waiting -= 1
            self._schedule.schedule_row(back)

    def count_waiting(self, change: int) -> None:
        """Add to the number of rows that wait for a retry."""
        self.waiting += change

    def _end_slot(self, line: ReadyList, outcome: Outcome, now_s: float) -> None:
        """Let the slots rest if something was fetched; close the host's gate if there was trouble."""
        start_s, end_s, trouble, retry_after_s = outcome.start_s, outcome.end_s, outcome.trouble, outcome.retry_after_s
        gate, group = line.gate, line.group
        if start_s is None or end_s is None:
            gate.give_back(now_s)
            if group is not None:
                group.gate.give_back(now_s)
        else:
            if gate.troubles and _is_well(outcome):
                gate.well(now_s)
            gate.rest(start_s, end_s, now_s)
            if group is not None:
                group.gate.rest(start_s, end_s, now_s)
                if group.gate.must_be_written:
                    self._outbox.batch.gates.append(group.gate.row())
        self._schedule.window.heap.ended(line, outcome, now_s)
        if trouble is not _NO_TROUBLE or retry_after_s > 0:
            gate.trouble(trouble, retry_after_s, now_s)
        if gate.must_be_written:
            self._outbox.batch.gates.append(gate.row())


def check_outcome(lease: Lease, outcome: Outcome) -> None:
    """Raises: PolicyError for values that a gate cannot apply or a store cannot hold."""
    kind, trouble, status = outcome.kind, outcome.trouble, outcome.status
    start_s, end_s, retry_after_s = outcome.start_s, outcome.end_s, outcome.retry_after_s
    if not (isinstance(kind, OutcomeKind) and isinstance(trouble, HostTrouble)):
        raise PolicyError(f"{lease.url}: it ended as {kind!r} with {trouble!r}: give an OutcomeKind and a HostTrouble")
    if not isinstance(status, int) or not -_MOST <= status < _MOST:
        raise PolicyError(f"{lease.url}: status {status!r}: give a whole number of 64 bits")
    if not ((start_s is None or _is_finite(start_s)) and (end_s is None or _is_finite(end_s))):
        raise PolicyError(f"{lease.url}: fetched from {start_s!r} to {end_s!r}: give times in epoch seconds, or None")
    if not _is_finite(outcome.after_s):
        raise PolicyError(f"{lease.url}: a retry after {outcome.after_s!r} s: give a finite number")
    # A host may ask for any time; the backoff limits it.
    if not isinstance(retry_after_s, _NUMBER) or math.isnan(retry_after_s):
        raise PolicyError(f"{lease.url}: its host asks for {retry_after_s!r} s: give a number, 0 for none")


def _is_finite(number: float) -> bool:
    return isinstance(number, _NUMBER) and -_INFINITY < number < _INFINITY


def _is_well(outcome: Outcome) -> bool:
    """The host has answered without trouble. A lost lease or an unknown name proves nothing."""
    has_answered = outcome.kind is OutcomeKind.DONE or outcome.status > 0
    return has_answered and outcome.trouble is HostTrouble.NONE


#: The charge for a lease that tried nothing.
FREE: Final[Charge] = (0, 0)

#: HTTP status -> the host's trouble.
HOST_BUSY: Mapping[int, HostTrouble] = MappingProxyType({429: HostTrouble.THROTTLED, 503: HostTrouble.UNAVAILABLE})


def trouble_of(status: int, retry_after: str, now_s: float) -> tuple[HostTrouble, float]:
    """The host's trouble by the status and Retry-After of a response, and the seconds it asks for (0 = none).

    429 is THROTTLED; 503, and any error with a Retry-After, is UNAVAILABLE. A redirect's Retry-After counts, but is no trouble;
    that of a success is ignored (RFC 9110 section 10.2.3). `now_s` is epoch seconds.
    """
    asked_s = asked_rest_s(retry_after, now_s) if status >= 300 else 0.0
    trouble = HOST_BUSY.get(status, HostTrouble.NONE)
    if trouble is HostTrouble.NONE and asked_s and status >= 400:
        trouble = HostTrouble.UNAVAILABLE
    return trouble, asked_s


def asked_rest_s(retry_after: str, now_s: float) -> float:
    """The seconds of a `Retry-After`, a number or an HTTP date; 0 if it is empty, unreadable or in the past."""
    text = retry_after.strip()
    if text.isascii() and text.isdecimal():
        return float(text)
    try:
        at = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return 0.0
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return max((at - datetime.fromtimestamp(now_s, UTC)).total_seconds(), 0.0)
