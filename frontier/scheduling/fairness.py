"""Limits of workers: how many the hosts of one registrable domain, and hosts that are new or slow, may occupy. Pure.

A worker is one lease at a time. Two limits, with W workers:

    domain × W   leases of one domain, while another domain below its limit is *active*: one of its hosts opens within
                 `SOON_S`, or is being fetched and answered the last time. For hosts that are neither new nor slow W is what
                 those leave.
    slow × W     leases of hosts that are new or slow, while another host is open; else W - W/8, and if no other host is known
                 one more each `slow_s`, since a fast host would have answered by then

A host is slow if its last fetch failed or took longer than `slow_s`. It is new until it was fetched, if the last fetch of its
domain was slow, too. Each limit is at least one lease. What is above a limit is served if the limit does not bind, the domain
with fewest leases first, so that two portals grow together. Domains take turns, however many of their hosts are open.

A host belongs to its registrable domain; to itself if it has none, as an IP address. A group of hosts is counted for itself.
`FairHeap` replaces `readylist.GateHeap`. In it the hosts of a domain are at most three entries (`Lot`), so a domain at its
limit is set aside and comes back in O(log hosts).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Final

from anabranch.frontier.policies.hosts import domain_of
from anabranch.frontier.records import GateKey, Outcome, OutcomeKind, Turn, postponed
from anabranch.frontier.scheduling.gates import Gate, Politeness
from anabranch.frontier.scheduling.readylist import GateHeap, Group, Listed, ReadyList

#: A domain that opens within this is ready: a worker that is given away would not be back by then.
SOON_S: Final = 5.0
#: For a host that rests for longer no worker is kept.
LONG_S: Final = 30.0
#: This part of the workers is kept for hosts that are neither new nor slow.
KEPT: Final = 8
#: A domain with more than this part of the window crowds it.
CROWDED: Final = 16
#: In the store each gate of a domain comes so many turns after the one before it.
SPREAD: Final = 1000

# Numbers of entries begin here, because a host that moves leaves an old entry in the heap that it was in.
_SLOW_HEAP: Final = 1 << 45
_LOT_HEAPS: Final = (1 << 46, 1 << 47, 3 << 46)
# The lots of a domain: hosts that were not fetched yet, slow ones, and the others.
_NEW, _SLOW, _PROMPT = range(3)
_ALWAYS_OPEN: Final = Politeness(delay_factor=0.0, min_delay_s=0.0, max_delay_s=0.0, slots=1_000_000)
_NEVER: Final = math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLimits:
    """The parts of the workers that may be occupied; 1 = all."""

    domain: float = 0.125  #: by the hosts of one registrable domain
    slow: float = 0.25  #: by hosts that are new or slow
    slow_s: float = 1.0  #: a host is slow if its last fetch took longer


class Domain:
    """The hosts in memory that have one limit, with their leases; or one group of hosts."""

    __slots__ = ("answering", "aside", "is_prompt", "key", "limit", "lines", "lots", "out", "stored")

    def __init__(self, key: str, limit: int) -> None:
        self.key = key
        self.limit = limit  #: leases that it may have out while others are ready
        self.out = 0  #: leases out, without those of hosts in groups
        self.answering = 0  #: of these, leases of hosts that answered the last time
        self.lines: dict[int, ReadyList] = {}  #: by gate, the latest last
        self.lots: tuple[Lot, ...] = ()  #: of new, slow and prompt hosts; none as long as it has one host
        self.aside: list[Listed] = []  #: its entries that wait until it is below its limit
        self.is_prompt = False  #: the last fetch from any of its hosts was answered, and fast
        self.stored = 0  #: its gates that went to the store with a turn while it was in memory

    def __repr__(self) -> str:
        return f"<Domain {self.key}: {self.out}/{self.limit} out, {len(self.lines)} hosts>"

    @property
    def active(self) -> int:
        """Leases for which other domains are kept within their limits."""
        return self.answering if self.out < self.limit else 0

    def count(self, out: int, answering: int) -> int:
        """Add to its leases; returns how `active` changes."""
        before = self.active
        self.out += out
        self.answering += answering
        return self.active - before

    def raise_limit(self, limit: int) -> None:
        """Allow at least so many leases."""
        self.limit = max(self.limit, limit)

    def count_stored(self, change: int) -> int:
        """Add to its gates in the store; returns how many there were."""
        before, self.stored = self.stored, max(self.stored + change, 0)
        return before

    def take_lots(self, lots: tuple[Lot, ...]) -> None:
        """List its hosts in these."""
        self.lots = lots

    def class_new(self, *, is_prompt: bool) -> None:
        """Take its new hosts for as fast as the last one that was fetched."""
        self.is_prompt = is_prompt
        self.lots[_NEW].class_as(is_prompt=is_prompt)

    def take_aside(self) -> list[Listed]:
        """Its entries that were set aside; it has none from now on."""
        aside, self.aside = self.aside, []
        return aside


class Lot(Listed):
    """The hosts of one domain that have something to serve, as one entry of the heap. Its gate is always open."""

    __slots__ = ("heap", "served_s")

    def __init__(self, domain: Domain, outer: GateHeap, turns_from: int, *, is_prompt: bool) -> None:
        super().__init__(Gate(0, GateKey(domain.key), _ALWAYS_OPEN), outer)
        self.heap = GateHeap(turns_from)
        self.served_s = 0.0  #: when it was last
        self.domain = domain
        self.is_prompt = is_prompt

    def serves_s(self) -> float:
        """When its first host opens, but not before it was served last: domains take turns."""
        member_s = self.heap.next_time()
        return _NEVER if member_s is None else max(member_s, self.served_s)

    def served(self, now_s: float) -> None:
        """Let other domains come first."""
        self.served_s = now_s

    def open_line(self, now_s: float) -> ReadyList | None:
        """The host that has been open for longest, if any."""
        return self.heap.first_open(now_s)

    def open_lines(self, now_s: float) -> Iterator[ReadyList]:
        """All open hosts."""
        return self.heap.open_lines(now_s)


class FairHeap(GateHeap):
    """Gates that have something to serve and a slot, by opening time, within limits of workers.

    Its own heap has the entries of hosts that are neither new nor slow. Every operation costs O(log gates), amortised.
    """

    def __init__(
        self,
        workers: int,
        limits: WorkerLimits,
        most_gates: int,
        limit_of: Callable[[str], float | None] = lambda _: None,
    ) -> None:
        """`workers` leases are out at a time; `limit_of` gives a host's own limit of its domain, None = the order's."""
        super().__init__()
        self._slow = GateHeap(_SLOW_HEAP)  #: entries of new and slow hosts
        self._workers = workers
        self._limits = limits
        self._limit_of = limit_of
        self._most_slow = _part(workers, limits.slow)
        self._kept = 0 if limits.slow >= 1 else max(workers // KEPT, 1)  #: workers that new and slow hosts never occupy
        self._crowded_from = max(most_gates // CROWDED, 1)
        self._crowded: dict[Domain, None] = {}
        self._aside: dict[Domain, None] = {}  #: domains at their limit that have entries
        self.domains: dict[str, Domain] = {}  #: with hosts in memory
        self.slow_out = 0  #: leases of new and slow hosts
        self.prompt_out = 0  #: leases of the others
        self._full: dict[Domain, None] = {}  #: domains at or above their limit: a few, because they have so many leases
        self._active = 0  #: the sum of `Domain.active`
        self._probes_s = -math.inf  #: when one more new or slow host may be tried if no other host is known

    # Serving

    def enlist(self, listed: Listed) -> None:
        """Enter it if it has something to serve and a slot; one that is set aside stays there."""
        if listed.is_aside:
            return
        if type(listed) is Lot and listed.heap.latest_s > self.latest_s:
            self.latest_s = listed.heap.latest_s
        if listed.is_prompt:
            super().enlist(listed)
        else:
            self._slow.enlist(listed)
            self.latest_s = max(self.latest_s, self._slow.latest_s)

    def forget_left(self, listed: Iterable[Listed]) -> None:
        """Recompute `latest_s` after gates have left; costs a look at each."""
        super().forget_left(listed)
        self._slow.forget_latest()
        for domain in self.domains.values():
            for lot in domain.lots:
                lot.heap.forget_latest()

    def first_open(self, now_s: float) -> ReadyList | None:
        """The list that has been open for longest, of those within their limits; else of all. It keeps its place."""
        while True:
            prompt_s, slow_s = self._times(now_s)
            heap: GateHeap
            if slow_s <= now_s and (slow_s < prompt_s or prompt_s > now_s) and self._may_be_slow(prompt_s, now_s):
                heap = self._slow
            elif prompt_s <= now_s:
                heap = self
            elif self._aside:
                return self._first_above(prompt_s, slow_s, now_s)
            else:
                return None
            listed = heap.first_listed()
            line = listed.open_line(now_s)
            if line is not None:
                return line
            heap.drop_first()
            self.enlist(listed)
            if listed.serves_s() <= now_s:
                return None  # it is open without an open list: the next look decides

    def soonest(self, now_s: float) -> float | None:
        """When `first_open` may have an answer; None if time alone brings none."""
        if self.first_open(now_s) is not None:
            return now_s
        prompt_s, slow_s = self._times(now_s)
        may_be_slow = self._may_be_slow(prompt_s, now_s)
        at_s = min(prompt_s, slow_s) if may_be_slow else prompt_s
        at_s = min([at_s, *(listed.serves_s() for listed, _ in self._unbound(prompt_s, slow_s, now_s))])
        if slow_s <= now_s and not may_be_slow:
            at_s = min(at_s, self._slow_from_s(prompt_s, now_s))
        return None if at_s == _NEVER else at_s

    def open_lines(self, now_s: float) -> Iterator[ReadyList]:
        """All lists that may serve something now, in no order, some twice. O(their number)."""
        aside = (listed.open_lines(now_s) for listed in self._set_aside_ones())
        return chain(super().open_lines(now_s), self._slow.open_lines(now_s), *aside)

    # Leases

    def taken(self, line: ReadyList, now_s: float) -> None:
        """Count a lease that is handed out. Call it before the list is entered again."""
        entry: Listed = line.group or line
        assert entry.domain is not None
        self._add(entry.domain, 1, entry.has_answered)
        if entry.is_prompt if line.lot is None else line.lot.is_prompt:
            self.prompt_out += 1
        else:
            line.count_slow(1)
            self.slow_out += 1
            if self.slow_out >= self._workers - self._kept and self._probes_s <= now_s:
                self._probes_s = now_s + self._limits.slow_s
        if line.lot is not None:
            line.lot.served(now_s)

    def returned(self, line: ReadyList) -> None:
        """Count a lease that has ended. Call it after the slot was returned."""
        entry: Listed = line.group or line
        assert entry.domain is not None
        self._add(entry.domain, -1, -entry.has_answered)
        if line.slow_out:
            line.count_slow(-1)
            self.slow_out -= 1
        else:
            self.prompt_out -= 1
        if entry.domain.aside:
            self._bring_back(entry.domain)

    def ended(self, line: ReadyList, outcome: Outcome) -> None:
        """Count a lease that has ended. Note whether the host answered, and how fast, if something was fetched."""
        self.returned(line)
        kind, status, start_s, end_s, *_ = outcome
        if start_s is not None and end_s is not None:
            has_answered = kind is OutcomeKind.DONE or status > 0
            is_prompt = has_answered and end_s - start_s <= self._limits.slow_s
            self._class(line, has_answered=has_answered, is_prompt=is_prompt)
            if line.lot is not None and line.domain is not None and is_prompt is not line.domain.is_prompt:
                new = line.domain.lots[_NEW]
                self._move(new)
                line.domain.class_new(is_prompt=is_prompt)
                self.enlist(new)

    def remember(self, line: ReadyList, rests_until_s: float) -> None:
        """Count a host whose row was read as prompt, if it was: its last rest says how long the fetch took."""
        gate = line.gate
        was_fetched = rests_until_s > 0 and not gate.troubles
        if was_fetched and line.group is None:
            is_prompt = gate.last_rest_s < gate.politeness.rest_s(self._limits.slow_s)
            self._class(line, has_answered=True, is_prompt=is_prompt)

    # Hosts in memory

    def enter(self, line: ReadyList) -> None:
        """A host comes into memory."""
        host = line.gate.key
        key = _key_of(host)
        own = self._limit_of(host)
        limit = _part(self._workers, self._limits.domain if own is None else own)
        domain = self.domains.get(key)
        if domain is None:
            domain = self.domains[key] = Domain(key, limit)
        elif own is not None:  # of the settings of several hosts the largest holds
            domain.raise_limit(limit)
        domain.lines[line.gate.id] = line
        self._add(domain, line.gate.out, 0)
        self.prompt_out += line.gate.out  # of a view, which shows leases of another process
        line.belong_to(domain)
        if len(domain.lines) > 1:
            self._join_lot(line, domain)
        if len(domain.lines) > self._crowded_from:
            self._crowded[domain] = None

    def came_back(self, line: ReadyList) -> None:
        """Note that a gate was read from the store."""
        if line.domain is not None:
            line.domain.count_stored(-1)

    def join(self, line: ReadyList, group: Group) -> None:
        """Count the host's leases for its group from now on."""
        assert line.domain is not None
        counted = group.domain or Domain(group.gate.key, _part(self._workers, self._limits.domain))
        group.belong_to(counted)
        self._move(line)
        out = line.gate.out
        self._add(line.domain, -out, -out * line.has_answered)
        self._add(counted, out, out * group.has_answered)
        line.put_into(None)
        line.join(group)

    def leave(self, line: ReadyList) -> None:
        """A host without leases leaves memory."""
        domain = line.domain
        if domain is None:
            return
        self._move(line)
        del domain.lines[line.gate.id]
        if len(domain.lines) <= self._crowded_from:
            self._crowded.pop(domain, None)
        if not domain.lines:
            for lot in domain.lots:
                self._move(lot)
            del self.domains[domain.key]

    @property
    def crowd(self) -> Domain | None:
        """The domain with most gates in memory, if these crowd the window."""
        return max(self._crowded, key=lambda domain: len(domain.lines), default=None)

    def is_crowded_out(self, key: GateKey, crowd: Domain) -> bool:
        """The host's domain has less than half as many gates in memory as the one that crowds the window."""
        own = self.domains.get(_key_of(key))
        return own is not crowd and (own is None or 2 * len(own.lines) < len(crowd.lines))

    def spread(self, key: GateKey, turn: Turn) -> Turn:
        """The turn of a gate that is written to the store: the more gates its domain has there, the later."""
        domain = self.domains.get(_key_of(key))
        if domain is None:
            return turn
        return postponed(turn, SPREAD * domain.count_stored(1))

    # Inside

    def _times(self, now_s: float) -> tuple[float, float]:
        """When the first prompt host opens, and the first new or slow one, of domains below their limit."""
        soon_s = now_s + SOON_S
        return self._first_below(self, soon_s), self._first_below(self._slow, soon_s)

    def _first_below(self, heap: GateHeap, soon_s: float) -> float:
        """When the first entry of a domain below its limit opens; those before it that are ready are set aside."""
        while (at_s := heap.next_time()) is not None:
            if at_s > soon_s:
                return at_s
            listed = heap.first_listed()
            domain = listed.domain
            if domain is None or domain.out < (self._limit_now(domain) if listed.is_prompt else domain.limit):
                return at_s
            heap.drop_first()
            listed.set_aside(is_aside=True)
            domain.aside.append(listed)
            self._aside[domain] = None
        return _NEVER

    def _limit_now(self, domain: Domain) -> int:
        """The limit for prompt hosts: a part of the workers that new and slow ones leave, since these come back late."""
        return (
            max(domain.limit * (self._workers - self.slow_out) // self._workers, 1) if self.slow_out else domain.limit
        )

    def _may_be_slow(self, prompt_s: float, now_s: float) -> bool:
        """Whether a new or slow host may be served, if the first prompt one below its limit opens then."""
        return self.slow_out < self._most_slow or self._slow_from_s(prompt_s, now_s) <= now_s

    def _slow_from_s(self, prompt_s: float, now_s: float) -> float:
        """From when on one may be served above the limit; infinity: not before something else happens."""
        if self._aside:
            aside = (listed.serves_s() for listed in self._set_aside_ones() if listed.is_prompt)
            prompt_s = min(prompt_s, *aside, _NEVER)
        if prompt_s <= now_s:
            return _NEVER
        if self.slow_out < self._workers - self._kept:
            return now_s
        return _NEVER if self.prompt_out or prompt_s <= now_s + LONG_S else self._probes_s

    def _first_above(self, prompt_s: float, slow_s: float, now_s: float) -> ReadyList | None:
        """The list that comes first of the domains at their limit, unless another domain is active."""
        first: tuple[int, float] | None = None
        found: ReadyList | None = None
        for listed, domain in self._unbound(prompt_s, slow_s, now_s):
            place = domain.out, listed.serves_s()
            if place[1] <= now_s and (first is None or place < first):
                line = listed.open_line(now_s)
                first, found = (place, line) if line is not None else (first, found)
        return found

    def _unbound(self, prompt_s: float, slow_s: float, now_s: float) -> Iterator[tuple[Listed, Domain]]:
        """The entries of domains at their limit that may have more leases now."""
        may_be_slow = self._may_be_slow(prompt_s, now_s)
        if min(prompt_s, slow_s if may_be_slow else _NEVER) <= now_s + SOON_S:
            return
        for domain in self._aside:
            # No other domain is active; and of those at their limits none that is fetched from has fewer leases.
            if self._active == domain.active and all(one.out >= domain.out or not one.answering for one in self._full):
                for listed in domain.aside:
                    if may_be_slow or listed.is_prompt:
                        yield listed, domain

    def _set_aside_ones(self) -> Iterator[Listed]:
        """The entries of domains at their limit: a few, because the domains have so many leases out."""
        return (listed for domain in self._aside for listed in domain.aside)

    def _bring_back(self, domain: Domain) -> None:
        """Enter the entries of a domain that is below its limit again."""
        if domain.out < domain.limit:
            self._aside.pop(domain, None)
            for listed in domain.take_aside():
                listed.set_aside(is_aside=False)
                self.enlist(listed)

    def _add(self, domain: Domain, out: int, answering: int) -> None:
        """Add to the domain's leases."""
        self._active += domain.count(out, answering)
        if domain.out < domain.limit:
            self._full.pop(domain, None)
        else:
            self._full[domain] = None

    def _class(self, line: ReadyList, *, has_answered: bool, is_prompt: bool) -> None:
        """Class the host, or its group, by its last fetch."""
        entry: Listed = line.group or line
        if has_answered is not entry.has_answered:
            entry.answered(has_answered=has_answered)
            if entry.gate.out and entry.domain is not None:
                self._add(entry.domain, 0, entry.gate.out if has_answered else -entry.gate.out)
        if line.lot is None:
            is_new = is_prompt is not entry.is_prompt
        else:
            assert line.domain is not None
            lot = line.domain.lots[_PROMPT if is_prompt else _SLOW]
            is_new = lot is not line.lot
            line.put_into(lot)
        if is_new:
            self._move(entry)
            entry.class_as(is_prompt=is_prompt)
            line.enlist()
        line.fetched()

    def _move(self, listed: Listed) -> None:
        """Invalidate its entry and its turn, wherever it is."""
        listed.move()
        if listed.is_aside and listed.domain is not None:
            listed.set_aside(is_aside=False)
            listed.domain.aside.remove(listed)
            if not listed.domain.aside:
                self._aside.pop(listed.domain, None)

    def _join_lot(self, line: ReadyList, domain: Domain) -> None:
        """Put a new host into a lot. The second host makes the lots; the first one joins them, too."""
        if not domain.lots:
            lots = (Lot(domain, self, first, is_prompt=kind == _PROMPT) for kind, first in enumerate(_LOT_HEAPS))
            domain.take_lots(tuple(lots))
            for other in domain.lines.values():
                if other is not line and other.group is None:
                    self._move(other)
                    other.put_into(domain.lots[(_PROMPT if other.is_prompt else _SLOW) if other.was_fetched else _NEW])
                    if other.was_fetched:
                        domain.class_new(is_prompt=other.is_prompt)
                    other.enlist()
        line.put_into(domain.lots[_NEW])


def _key_of(host: GateKey) -> str:
    return domain_of(host) or host


def _part(workers: int, part: float) -> int:
    return max(int(workers * part), 1)
