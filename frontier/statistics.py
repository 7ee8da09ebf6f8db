"""What can be seen of a Frontier from outside: snapshots, no behaviour."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from frontier.books import Books
from frontier.intake import Intake
from frontier.lifecycle import QueueState


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


def snapshot(books: Books, intake: Intake, in_flight: int, now_s: float) -> FrontierStatistics:
    """All but the filter's figures. Costs a look at every gate."""
    gates = list(intake.schedule.gates())
    counters = books.counters()
    return FrontierStatistics(
        pending=counters.queued - in_flight,
        waiting=intake.schedule.waiting,
        in_flight=in_flight,
        done=counters.done,
        failed=counters.failed,
        disregarded=counters.disregarded,
        queues={state.value: intake.index.states[state] for state in QueueState},
        gates=len(gates),
        gates_open=sum(gate.opens_s() <= now_s for gate in gates),
        unsynced_rows=books.backlog.rows,
        seen={},
    )
