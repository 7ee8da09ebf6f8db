"""The leases that are out. They live in memory only: a process that dies leaves its URLs queued."""

from __future__ import annotations

from typing import NamedTuple

from frontier.errors import LeaseLost
from frontier.gates import Gate
from frontier.models import Head, Lease
from frontier.workqueues import Lane


class Held(NamedTuple):
    """What the Frontier keeps of a lease beside what the host got."""

    lease: Lease
    lane: Lane
    gate: Gate
    head: Head


class Leases:
    """Leases by the ordinal of their URL. Every operation is O(1)."""

    def __init__(self) -> None:
        self._held: dict[int, Held] = {}

    def __len__(self) -> int:
        return len(self._held)

    def ordinals(self) -> set[int]:
        """The URLs that are leased."""
        return set(self._held)

    def hand_out(self, lane: Lane, gate: Gate, head: Head, now_s: float) -> Lease:
        """Make the lease of a head that was taken from its lane."""
        row = head.row
        lease = Lease(
            ordinal=row.ordinal,
            url=row.url,
            key=row.dedup_key(),
            hops=row.hops,
            via=head.via,
            attempts=row.attempts,
            payload=row.payload,
            queue=lane.queue.key,
            gate=gate.key,
            since_s=now_s,
        )
        self._held[row.ordinal] = Held(lease, lane, gate, head)
        return lease

    def take_back(self, lease: Lease) -> Held:
        """End a lease. Raises: LeaseLost if it is not out."""
        held = self._held.get(lease.ordinal)
        if held is None or held.lease is not lease:
            raise LeaseLost(f"the lease of {lease.url} is not out")
        del self._held[lease.ordinal]
        return held
