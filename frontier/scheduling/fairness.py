"""Limits of workers: how many the hosts of one registrable domain, and hosts that are new or slow, may occupy. Pure.

A worker is one lease at a time. Two limits, with W workers:

    domain × W   leases of one domain, while another domain below its limit is *active*: one of its fast hosts opens within
                 `SOON_S`, or is being fetched. W is here what new and slow hosts leave
    slow × W     leases of hosts that are new or slow, while a fast host is open; else W - W/8, and if no fast host is known
                 one more each `slow_s`, since a fast host would have answered by then

A host is fast if its last fetch was answered within `slow_s`, and slow otherwise; new until it was fetched, unless another host
of its domain was fast. Each limit is at least one lease; that of a domain at least the connections of one of its hosts, up to
half of the workers. While one domain alone is in memory, nothing is limited.

A host belongs to its registrable domain; to itself if it has none, as an IP address. `FairHeap` replaces `window.HostHeap`.
New and slow hosts have a heap of their own in it. A host of a domain at its limit is set aside when it is looked at; one comes
back with each lease that ends, behind all hosts that are open by then. So a lease costs O(log hosts), amortised, and a look at
each domain with hosts set aside if no other host is open.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Final

from anabranch.frontier.records import Outcome, OutcomeKind
from anabranch.frontier.scheduling.domains import Domain, Domains
from anabranch.frontier.scheduling.heaps import GateHeap, Listed
from anabranch.frontier.scheduling.readylist import ReadyList
from anabranch.frontier.scheduling.window import HostHeap

#: A host that opens within this is as good as open: a worker that is given away would not be back by then.
SOON_S: Final = 1.0
#: For a host that rests for longer no worker is kept.
LONG_S: Final = 30.0
#: One in so many workers is kept for fast hosts.
KEPT: Final = 8
# Numbers of entries in the heap of slow hosts begin here: a host that moves leaves its old entry in the other heap.
_SLOW_HEAP: Final = 1 << 47
_NEVER: Final = math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLimits:
    """The parts of the workers that may be occupied; 1 = all."""

    domain: float = 0.125  #: by the hosts of one registrable domain
    slow: float = 0.25  #: by hosts that are new or slow
    slow_s: float = 1.0  #: a host is slow if its last fetch took longer


class FairHeap(HostHeap):
    """Hosts that have something to serve and a slot, by opening time, within limits of workers.

    Its own heap has the entries of fast hosts.
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
        self.slow: GateHeap[ReadyList] = GateHeap(_SLOW_HEAP)  #: entries of new and slow hosts
        self.newcomers = self.slow
        self._workers = workers
        self._limits = limits
        self._limit_of = limit_of
        self._most_slow = _part(workers, limits.slow)
        self._kept = 0 if limits.slow >= 1 else max(workers // KEPT, 1)
        self._counted_from = min(self._most_slow, _part(workers, limits.domain))
        self.domains: Domains = Domains(most_gates)
        self._domain_of = self.domains.by_gate
        self._uncounted: dict[int, ReadyList] = {}  #: hosts whose domain is not known yet, because no limit is near
        self._aside: tuple[dict[Domain, None], dict[Domain, None]] = {}, {}  #: domains with slow, fast hosts aside
        self.out = 0  #: leases out
        self._lends_s = -math.inf  #: when one more new or slow host may be tried if no other is known

    # Serving

    def first_open(self, now_s: float) -> ReadyList | None:
        """The list that has been open for longest, of those within their limits; else of all. It keeps its place."""
        if self._uncounted and self.out >= self._counted_from:
            self.count_all()
        while True:
            heap = self._first_heap(now_s)
            if heap is None:
                return self._first_above(now_s) if self._aside[0] or self._aside[1] else None
            line = GateHeap.first_open(heap, now_s)
            if line is None:
                return None
            domain = self._domain_of.get(line.gate.id)
            if domain is None or self._is_below(domain) or self._is_alone:
                return line
            self._set_aside(line, domain)

    def soonest(self, now_s: float) -> float | None:
        """When `first_open` may have an answer; None if time alone brings none."""
        if self.first_open(now_s) is not None:
            return now_s
        fast_s, slow_s = _time(self), _time(self.slow)
        if slow_s <= now_s:  # it is above its limit
            slow_s = self._lends_s if self._lends(now_s) else _NEVER
        at_s = min(fast_s, slow_s)
        return None if at_s == _NEVER else at_s

    def open_lines(self, now_s: float) -> Iterator[ReadyList]:
        """All lists that may serve something now, in no order, some twice. O(their number)."""
        domains = chain(*self._aside)
        aside = (line for domain in domains for line in chain(*domain.aside) if line.opens_s() <= now_s)
        return chain(super().open_lines(now_s), self.slow.open_lines(now_s), aside)

    def forget_left(self, listed: Iterable[Listed[ReadyList]]) -> None:
        """Recompute `opens_last_s` after gates have left; costs a look at each."""
        super().forget_left(listed)
        self.slow.forget_left(())

    @property
    def opens_last_s(self) -> float:
        """No gate with a slot opens later."""
        return max(self.latest_s, self.slow.latest_s)

    # Leases

    def taken(self, line: ReadyList, now_s: float) -> None:
        """Count a lease that is handed out."""
        self.out += 1
        is_slow = not (line.group or line).is_fast
        domain = self._domain_of.get(line.gate.id)
        if domain is not None:
            domain.count(1, is_slow)
        if is_slow:
            line.count_slow(1)
            self.slow_out += 1
            if self.slow_out >= self._workers - self._kept:
                self._lends_s = now_s + self._limits.slow_s

    def returned(self, line: ReadyList, now_s: float) -> None:
        """Count a lease that has ended. Call it after the slot was returned."""
        self.out -= 1
        was_slow = line.slow_out > 0
        if was_slow:
            line.count_slow(-1)
            self.slow_out -= 1
        domain = self._domain_of.get(line.gate.id)
        if domain is not None:
            domain.count(-1, -was_slow)
            if domain.aside[0] or domain.aside[1]:
                self._readmit(domain, now_s)

    def ended(self, line: ReadyList, outcome: Outcome, now_s: float) -> None:
        """Count a lease that has ended. Note how fast the host answered, if something was fetched."""
        kind, status, start_s, end_s, *_ = outcome
        if start_s is not None and end_s is not None:
            has_answered = kind is OutcomeKind.DONE or status > 0
            is_fast = has_answered and end_s - start_s <= self._limits.slow_s
            if (line.group or line).is_fast is not is_fast or not line.was_fetched:
                self._class(line, is_fast=is_fast)
        self.returned(line, now_s)

    def remember(self, line: ReadyList, rests_until_s: float) -> None:
        """Class a host whose row was read: its last rest says how long its last fetch took, if there was one."""
        self.domains.note_read(line)
        gate = line.gate
        if rests_until_s > 0 and not gate.troubles and line.group is None:
            self._class(line, is_fast=gate.last_rest_s < gate.politeness.rest_s(self._limits.slow_s))

    def passed_over(self, line: ReadyList, now_s: float) -> None:
        """Let another host of its domain be served in the place of one that is open and has nothing to serve."""
        domain = self._domain_of.get(line.gate.id)
        if domain is not None:
            self._readmit(domain, now_s)

    def _readmit(self, domain: Domain, now_s: float) -> None:
        """Let one host of a domain below its limit be served again."""
        if (
            (domain.aside[1] or domain.aside[0])
            and self._is_below(domain)
            and self._first_aside(domain, 1, now_s) is None
        ):
            self._first_aside(domain, 0, now_s)

    # Hosts in memory

    def enter(self, line: ReadyList) -> None:
        """Add a host that comes into memory."""
        self._uncounted[line.gate.id] = line
        if len(self._uncounted) > self.domains.crowded_from:
            self.count_all()

    def leave(self, line: ReadyList) -> None:
        """Remove a host without leases that leaves memory."""
        self._uncounted.pop(line.gate.id, None)
        self.domains.remove(line)

    # Inside

    @property
    def _is_alone(self) -> bool:
        return len(self.domains) == 1 and not self._uncounted

    def _is_below(self, domain: Domain) -> bool:
        """The domain is below its limit: a part of the workers that new and slow hosts leave, since these come back late."""
        limit = domain.limit
        if self.slow_out:
            limit = limit * (self._workers - self.slow_out) // self._workers or 1
        return domain.out < limit

    def _first_heap(self, now_s: float) -> GateHeap[ReadyList] | None:
        """The heap whose first list has been open for longest, and may be served by its class."""
        fast_s, slow_s = _time(self), _time(self.slow)
        is_open = fast_s <= now_s
        if slow_s <= now_s and (slow_s < fast_s or not is_open) and self._may_be_slow(now_s, is_fast_open=is_open):
            return self.slow
        return self if is_open else None

    def _may_be_slow(self, now_s: float, *, is_fast_open: bool) -> bool:
        """Whether a new or slow host may be served."""
        if self.slow_out < self._most_slow or self._is_alone:
            return True
        if is_fast_open or self._aside[1]:
            return False
        return self.slow_out < self._workers - self._kept or (self._lends(now_s) and self._lends_s <= now_s)

    def _lends(self, now_s: float) -> bool:
        """No fast host needs the workers that are kept for fast hosts."""
        return self.out == self.slow_out and not self._aside[1] and _time(self) > now_s + LONG_S

    def _first_above(self, now_s: float) -> ReadyList | None:
        """An open host that was set aside: of the domain with fewest leases, if it is below its limit or no other is active."""
        is_bound = self._is_another_active(now_s)
        for is_fast in (1, 0):
            domains = self._aside[is_fast]
            if not is_fast and domains and not self._may_be_slow(now_s, is_fast_open=False):
                break
            while domains:
                domain = min(domains, key=lambda one: one.out - one.limit)
                if is_bound and not self._is_below(domain):
                    break
                line = self._first_aside(domain, is_fast, now_s)
                if line is not None:
                    return line
        return None

    def _is_another_active(self, now_s: float) -> bool:
        """A domain that has no host aside is being fetched from fast, or has a fast host that is open soon."""
        if not self._is_alone:
            full = {**self._aside[0], **self._aside[1]}
            if self.out - self.slow_out > sum(domain.out - domain.slow_out for domain in full):
                return True
            while _time(self) <= now_s + SOON_S:
                line = self.first_line()
                domain = self._domain_of.get(line.gate.id)
                if domain is None or self._is_below(domain):
                    return True
                self._set_aside(line, domain)
        return False

    def _set_aside(self, line: ReadyList, domain: Domain) -> None:
        """Take the list out of its heap until its domain is below its limit."""
        is_fast = (line.group or line).is_fast
        line.set_aside()
        domain.aside[is_fast].append(line)
        self._aside[is_fast][domain] = None

    def _first_aside(self, domain: Domain, is_fast: int, now_s: float) -> ReadyList | None:
        """Return hosts that were set aside to their heap, up to the first open one, which is the answer."""
        aside = domain.aside[is_fast]
        found = None
        while aside and found is None:
            line = aside.popleft()
            line.readmit(now_s)
            if line.serves_s() <= now_s and line.opens_s() <= now_s:
                found = line
        if not aside:
            self._aside[is_fast].pop(domain, None)
        return found

    def count_all(self) -> None:
        """Find the domains of hosts that were not counted yet. 5 µs each."""
        for line in self._uncounted.values():
            self._count(line)
        self._uncounted.clear()

    def _count(self, line: ReadyList) -> None:
        own = self._limit_of(line.gate.key)
        slots = min(line.gate.politeness.slots, self._workers // 2)  # one host has all its connections
        limit = max(_part(self._workers, self._limits.domain if own is None else own), slots)
        domain = self.domains.add(line, limit)
        if own is not None:  # of the settings of several hosts the largest holds
            domain.raise_limit(limit)
        domain.count(line.gate.out, line.slow_out)
        if line.was_fetched and (line.group or line).is_fast:
            self._found_fast(domain)
        elif domain.is_fast and not line.was_fetched:
            self._move(line, is_fast=True)

    def _class(self, line: ReadyList, *, is_fast: bool) -> None:
        """Class the host, or its group, by its last fetch."""
        line.fetched()
        self._move(line, is_fast=is_fast)
        domain = self._domain_of.get(line.gate.id)
        if is_fast and domain is not None:
            self._found_fast(domain)

    def _found_fast(self, domain: Domain) -> None:
        """Take its new hosts for fast, too. This happens once in a domain's time in memory."""
        if not domain.is_fast:
            domain.found_fast()
            for line in domain.lines.values():
                if not line.was_fetched:
                    self._move(line, is_fast=True)

    def _move(self, line: ReadyList, *, is_fast: bool) -> None:
        """Put the host, or its group, into the heap of its class."""
        listed: Listed[ReadyList] = line.group or line
        if listed.is_fast is not is_fast:
            listed.move(self if is_fast else self.slow, is_fast=is_fast)
            line.enlist()


def _time(heap: GateHeap[ReadyList]) -> float:
    at_s = heap.next_time()
    return _NEVER if at_s is None else at_s


def _part(workers: int, part: float) -> int:
    return max(int(workers * part), 1)
