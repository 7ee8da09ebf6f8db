"""What can be seen of a Frontier from outside: snapshots, no behaviour."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from frontier.books import Books
from frontier.lifecycle import QueueState
from frontier.schedule import Schedule


class FrontierCounts(NamedTuple):
    """How much the Frontier holds at one moment."""

    pending: int  #: URLs queued and not leased, waiting ones included
    waiting: int  #: URLs of these that wait for a retry
    in_flight: int  #: leases out
    done: int
    failed: int
    disregarded: int
    queues: Mapping[str, int]  #: work queues by state
    gates: int


class FrontierStatistics(NamedTuple):
    """The fields of `FrontierCounts`, and what takes a closer look."""

    pending: int
    waiting: int
    in_flight: int
    done: int
    failed: int
    disregarded: int
    queues: Mapping[str, int]
    gates: int
    gates_open: int  #: gates with a free slot now
    unsynced_rows: int  #: rows said to the store and not durable yet
    seen: Mapping[str, float]  #: the filter's own figures

    @property
    def accepted(self) -> int:
        """Every URL that was ever enqueued."""
        return self.pending + self.in_flight + self.done + self.failed + self.disregarded


def count(books: Books, schedule: Schedule, in_flight: int) -> FrontierCounts:
    """The counts, which are kept up to date. Costs O(1)."""
    counters = books.counters()
    return FrontierCounts(
        pending=counters.queued - in_flight,
        waiting=schedule.waiting,
        in_flight=in_flight,
        done=counters.done,
        failed=counters.failed,
        disregarded=counters.disregarded,
        queues={state.value: schedule.index.states[state] for state in QueueState},
        gates=schedule.gate_count,
    )


def examine(counts: FrontierCounts, books: Books, schedule: Schedule, now_s: float) -> FrontierStatistics:
    """All but the filter's figures. Costs a look at every gate."""
    return FrontierStatistics(
        *counts,
        gates_open=sum(gate.opens_s() <= now_s for gate in schedule.gates()),
        unsynced_rows=books.backlog.rows,
        seen={},
    )
