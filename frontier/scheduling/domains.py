"""The registrable domains of the hosts in memory: their leases, and the domains that crowd the window. Pure.

A domain *crowds* the window if more than one in `CROWDED` of the gates in memory are its own. It makes room for the hosts of
other domains: `window` lets some of its gates leave, and a gate of it goes to the store behind the gates of others (`spread`).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from typing import Final

from anabranch.frontier.policies.hosts import domain_of
from anabranch.frontier.records import GateKey, Turn, postponed
from anabranch.frontier.scheduling.readylist import ReadyList

#: A domain with more than the window's gates divided by this crowds the window.
CROWDED: Final = 16
#: The turns in the store between two gates of a domain that crowds the window.
SPREAD: Final = 1000
#: How long after an exchange of gates the next one may come. One that brought nothing makes the wait half as long again.
SWAP_S: Final = 0.25
LONGEST_SWAP_S: Final = 60.0


class Domain:
    """The hosts in memory that have one limit, with their leases."""

    __slots__ = ("aside", "is_fast", "key", "limit", "lines", "out", "slow_out", "stored")

    def __init__(self, key: str, limit: int) -> None:
        self.key = key
        self.limit = limit  #: leases that it may have out while others are active
        self.out = 0  #: leases out
        self.slow_out = 0  #: of these, leases of new and slow hosts
        self.lines: dict[int, ReadyList] = {}  #: by gate, the latest last
        self.is_fast = False  #: one of its hosts was
        self.stored: set[int] = set()  #: its gates that went to the store with a turn while it crowded the window
        #: Its hosts that wait until it is below its limit, the slow ones first; some have left memory.
        self.aside: tuple[deque[ReadyList], deque[ReadyList]] = deque(), deque()

    def count(self, out: int, slow_out: int) -> None:
        """Add to its leases."""
        self.out += out
        self.slow_out += slow_out

    def raise_limit(self, limit: int) -> None:
        """Allow at least `limit` leases."""
        self.limit = max(self.limit, limit)

    def found_fast(self) -> None:
        """Note that one of its hosts was fast."""
        self.is_fast = True

    def __repr__(self) -> str:
        return f"<Domain {self.key}: {self.out}/{self.limit} out, {len(self.lines)} hosts>"


class Domains:
    """The domains with hosts in memory, by key, and those of them that crowd the window."""

    def __init__(self, most_gates: int) -> None:
        """Up to `most_gates` gates are in memory."""
        self.crowded_from = max(most_gates // CROWDED, 1)  #: a domain with more gates in memory crowds the window
        self._most_gates = most_gates
        self._by_key: dict[str, Domain] = {}
        self.by_gate: dict[int, Domain] = {}  #: the domain of each host whose leases are counted, by the id of its gate
        self._crowded: dict[Domain, None] = {}
        self._swaps_from_s = -math.inf  #: when gates may be exchanged next; infinity until an exchange is answered
        self._swap_s = SWAP_S  #: the wait after the next exchange

    def __len__(self) -> int:
        return len(self._by_key)

    def of(self, host: str) -> Domain | None:
        """The domain of this host, if it has hosts in memory."""
        return self._by_key.get(_key_of(host))

    def add(self, line: ReadyList, limit: int) -> Domain:
        """Count a host in memory; its domain, which has this limit if it is new."""
        key = _key_of(line.gate.key)
        domain = self._by_key.get(key)
        if domain is None:
            domain = self._by_key[key] = Domain(key, limit)
        self.by_gate[line.gate.id] = domain
        domain.lines[line.gate.id] = line
        if len(domain.lines) > self.crowded_from:
            self._crowded[domain] = None
        return domain

    def remove(self, line: ReadyList) -> None:
        """Remove a host that leaves memory."""
        domain = self.by_gate.pop(line.gate.id, None)
        if domain is not None:
            domain.lines.pop(line.gate.id, None)
            if len(domain.lines) <= self.crowded_from:
                self._crowded.pop(domain, None)
            if not domain.lines:
                del self._by_key[domain.key]

    @property
    def crowd(self) -> Domain | None:
        """The domain with most gates in memory, if these crowd the window."""
        return max(self._crowded, key=lambda domain: len(domain.lines), default=None)

    def crowd_before(self, host: GateKey) -> Domain | None:
        """The domain that crowds this host out: it has more than twice as many gates in memory as the host's own domain."""
        crowd = self.crowd
        if crowd is None:
            return None
        own = self._crowded_of(host) or self.of(host)
        is_first = own is not crowd and (own is None or 2 * len(own.lines) < len(crowd.lines))
        return crowd if is_first else None

    # Gates in the store

    def spread(self, gate_id: int, host: GateKey, turn: Turn) -> Turn:
        """The turn of a gate that is written to the store: the more gates its domain has there, the later.

        Each gate counts once, and up to as many as the window may have: behind those it makes no difference.
        """
        domain = self._crowded_of(host)
        if domain is None:
            return turn
        behind = len(domain.stored) - (gate_id in domain.stored)
        if behind < self._most_gates:
            domain.stored.add(gate_id)
        return postponed(turn, SPREAD * behind)

    def note_read(self, line: ReadyList) -> None:
        """Note that a gate was read from the store."""
        domain = self._crowded_of(line.gate.key)
        if domain is not None:
            domain.stored.discard(line.gate.id)

    # Exchanges: what is behind the gates of a crowd in the store would wait until all of these are served

    def crowd_to_swap(self, now_s: float) -> Domain | None:
        """The domain whose gates may be exchanged for others now, if any."""
        return self.crowd if self._crowded and self._swaps_from_s <= now_s else None

    def swap_began(self, now_s: float, *, is_asked: bool) -> None:
        """Note an exchange; if nothing is asked, nothing is answered, because no gate could leave."""
        self._swaps_from_s = math.inf if is_asked else now_s + self._swap_s

    def swap_answered(self, hosts: Iterable[GateKey], now_s: float) -> None:
        """Allow the next exchange soon if this one brought hosts that a crowd had kept out, else later and later."""
        if self._swaps_from_s == math.inf:
            if not self._crowded or any(self.crowd_before(host) for host in hosts):
                self._swap_s = SWAP_S
            self._swaps_from_s = now_s + self._swap_s
            self._swap_s = min(1.5 * self._swap_s, LONGEST_SWAP_S)

    def _crowded_of(self, host: str) -> Domain | None:
        """The domain that crowds the window and has this host, if any."""
        return next((one for one in self._crowded if host == one.key or host.endswith(f".{one.key}")), None)


def _key_of(host: str) -> str:
    return domain_of(host) or host
