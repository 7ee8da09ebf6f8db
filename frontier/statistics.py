"""What can be seen of a Frontier from outside: snapshots, no behaviour."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class FrontierStatistics(NamedTuple):
    """What the Frontier holds at one moment."""

    pending: int  #: URLs queued and not leased, waiting ones included
    waiting: int  #: URLs of these that wait for a retry
    in_flight: int  #: leases out
    done: int
    failed: int
    disregarded: int
    queues: Mapping[str, int]  #: work queues by state
    gates: int
    gates_open: int  #: gates with a free slot now
    unsynced_rows: int  #: rows said to the store and not durable yet
    seen: Mapping[str, float]  #: the filter's own figures

    @property
    def accepted(self) -> int:
        """Every URL that was ever enqueued."""
        return self.pending + self.in_flight + self.done + self.failed + self.disregarded
