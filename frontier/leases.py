"""The leases that are out. They live in memory only: a process that dies leaves its URLs queued."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from heapq import heappop, heappush
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from anabranch.frontier.errors import LeaseLost
from anabranch.frontier.models import Head, Lease
from anabranch.frontier.scheduling.workqueues import Lane

_new: Final = tuple.__new__
_FOREVER: Final = math.inf


#: Pages that sent links ahead of their end and are remembered: those of the last minutes.
MAX_PAGES = 1000

#: What the Frontier keeps of a lease beside what the host got. A plain tuple, because one is made for every page.
Held = tuple[Lease, Lane, Head]


class LeaseElsewhere(NamedTuple):
    """A lease of the process whose state this one has a copy of."""

    ordinal: int
    queue: int
    gate: int
    since_s: float


class Board(Protocol):
    """Where other processes see what is leased here. Neither verb waits or raises."""

    def out(self, ordinal: int, queue: int, gate: int, since_s: float) -> None:
        """A lease is handed out."""
        ...

    def back(self, ordinal: int, gate: int, opens_s: float, now_s: float) -> None:
        """It has ended, and its gate lets nothing through before `opens_s` (infinity: as long as others are out)."""
        ...


class Leases:
    """Leases by the ordinal of their URL. Every operation is O(1), with an expiry O(log leases).

    Without `lease_s` a lease ends only with its process: the owner is the one who fetches. With it a lease that is neither
    ended nor renewed for so long is lost: its URL can be leased again.
    """

    def __init__(self, lease_s: float | None = None) -> None:
        self._lease_s = lease_s
        self.may_expire = lease_s is not None  #: leases are lost when their time is over
        self._held: dict[int, Held] = {}
        self._expiries: list[tuple[float, int]] = []  #: heap; may hold stale entries
        self._pages: dict[int, str] = {}  #: URLs of pages whose links may be read before their end is written
        self.lost = 0  #: leases that expired
        self.board: Board | None = None
        self.elsewhere: Mapping[int, LeaseElsewhere] = MappingProxyType({})  #: by ordinal; only looked at

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

    def remember(self, page: Lease) -> None:
        """Some links of this page go ahead of its end: until that is written, the store does not know the page's URL."""
        self._pages[page.ordinal] = page.url
        if len(self._pages) > MAX_PAGES:
            del self._pages[next(iter(self._pages))]

    def hand_out(self, lane: Lane, head: Head, now_s: float) -> Lease:
        """Make the lease of a head that was taken from its lane."""
        row, via = head
        _, _, _, ordinal, url, key, hops, page, attempts, _, payload = row
        if via is None and page:
            via = self._pages.get(page)
        if key is None:
            key = url.encode()
        until_s = _FOREVER if self._lease_s is None else now_s + self._lease_s
        gate = lane.line.gate.key
        # Half the price of Lease(...): one is made for every page.
        lease = _new(Lease, (ordinal, url, key, hops, via, attempts, payload, lane.queue.key, gate, now_s, until_s))
        self._held[ordinal] = (lease, lane, head)
        if self.board is not None:
            self.board.out(ordinal, row[0], row[1], now_s)
        if self._lease_s is not None:
            heappush(self._expiries, (until_s, ordinal))
        return lease

    def find(self, lease: Lease) -> Held:
        """What is kept of a lease. Raises: LeaseLost if it is not out."""
        held = self._held.get(lease[0])
        # One that was renewed differs in its last field only.
        if held is None or not (held[0] is lease or held[0][:10] == lease[:10]):
            raise LeaseLost(f"the lease of {lease.url} is not out")
        return held

    def take_back(self, lease: Lease) -> Held:
        """End a lease. Raises: LeaseLost if it is not out."""
        held = self.find(lease)
        del self._held[lease[0]]
        return held

    def drop(self, held: Held) -> None:
        """End a lease that was found out just now."""
        del self._held[held[0][0]]

    def renew(self, lease: Lease, now_s: float) -> Lease:
        """Keep it for as long again from now on; answers the lease with its new end. Raises: LeaseLost."""
        held, lane, head = self.take_back(lease)
        until_s = _FOREVER if self._lease_s is None else now_s + self._lease_s
        renewed = held._replace(until_s=until_s)
        self._held[lease.ordinal] = renewed, lane, head
        if self._lease_s is not None:
            heappush(self._expiries, (until_s, lease.ordinal))
        return renewed

    def next_expiry(self) -> float | None:
        """When the next lease is lost; None if none can be."""
        while self._expiries and not self._is_valid(self._expiries[0]):
            heappop(self._expiries)
        return self._expiries[0][0] if self._expiries else None

    def take_expired(self, now_s: float) -> Iterator[Held]:
        """Take every lease whose time is over."""
        while (at_s := self.next_expiry()) is not None and at_s <= now_s:
            _, ordinal = heappop(self._expiries)
            self.lost += 1
            yield self._held.pop(ordinal)

    def _is_valid(self, expiry: tuple[float, int]) -> bool:
        held = self._held.get(expiry[1])
        return held is not None and held[0].until_s == expiry[0]
