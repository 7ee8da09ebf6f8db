"""What can be seen of a Frontier from outside: snapshots, no behaviour."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from anabranch.frontier.backlog import Behind
from anabranch.frontier.operating.idleness import IdleFacts, why_idle
from anabranch.frontier.parts import Parts
from anabranch.frontier.scheduling.lifecycle import QueueState

#: States of queues that are in memory; the others are rows.
ACTIVE = (QueueState.LOADING, QueueState.READY, QueueState.IN_FLIGHT)


class FrontierCounts(NamedTuple):
    """How much the Frontier holds at one moment."""

    pending: int  #: URLs queued and not leased, waiting ones included, those of retired queues left out
    waiting: int  #: URLs that wait for a retry
    in_flight: int  #: leases out
    done: int
    failed: int
    disregarded: int
    retired: int  #: URLs of retired queues
    queues: Mapping[str, int]  #: work queues: all that were ever named, and those that are active by state
    gates: int  #: gates in memory


class FrontierStatistics(NamedTuple):
    """The fields of `FrontierCounts`, and what takes a closer look."""

    pending: int
    waiting: int
    in_flight: int
    done: int
    failed: int
    disregarded: int
    retired: int
    queues: Mapping[str, int]  #: work queues by state
    gates: int
    gates_open: int  #: gates in memory with a free slot now
    parked: int  #: READY queues all of whose gates in memory are closed
    leases_lost: int
    unsynced_rows: int  #: rows said to the store that were not durable when this was asked
    why_idle: str  #: why nothing can be leased now, in words; empty if something may
    seen: Mapping[str, float]  #: the filter's own figures

    @property
    def accepted(self) -> int:
        """Every URL that was ever enqueued."""
        return self.pending + self.retired + self.in_flight + self.done + self.failed + self.disregarded


class ReadyQueues(NamedTuple):
    """Queues that have something to serve in memory and nothing in flight."""

    ready: int
    parked: int  #: of these, those all of whose gates in memory are closed


def count(parts: Parts) -> FrontierCounts:
    """The counts, which are kept up to date. Costs O(1)."""
    counters = parts.books.counters()
    states = parts.schedule.index.states
    return FrontierCounts(
        pending=parts.pending,
        waiting=counters.waiting,
        in_flight=len(parts.leases),
        done=counters.done,
        failed=counters.failed,
        disregarded=counters.disregarded,
        retired=counters.retired - parts.schedule.halting.out,
        queues={"all": counters.queues, **{state.value: states[state] for state in ACTIVE}},
        gates=len(parts.schedule.window),
    )


def examine(parts: Parts, tally: Mapping[str, int], behind: Behind, now_s: float) -> FrontierStatistics:
    """All but the filter's figures; `tally` is the store's. Costs a look at every gate in memory."""
    counts = count(parts)
    lines = list(parts.schedule.window)
    return FrontierStatistics(
        *counts._replace(queues=_states(parts, tally)),
        gates_open=sum(line.gate.opens_s() <= now_s for line in lines),
        parked=_parked(parts, now_s),
        leases_lost=parts.leases.lost,
        unsynced_rows=behind.rows,
        why_idle=_why(parts, behind, now_s),
        seen={},
    )


def ready(parts: Parts, now_s: float) -> ReadyQueues:
    """The ready queues. Costs a look at every lane in memory whose gate is open."""
    return ReadyQueues(parts.schedule.index.states[QueueState.READY], _parked(parts, now_s))


def _states(parts: Parts, tally: Mapping[str, int]) -> dict[str, int]:
    """The store counts an active queue by its rows; here it counts by what it does."""
    active = {state.value: parts.schedule.index.states[state] for state in ACTIVE}
    states = {state.value: tally.get(state.value, 0) for state in QueueState} | active
    states[QueueState.INACTIVE.value] = max(states[QueueState.INACTIVE.value] - sum(active.values()), 0)
    return states


def _parked(parts: Parts, now_s: float) -> int:
    """Ready queues that no gate lets through now."""
    schedule = parts.schedule
    lanes = (lane for line in schedule.window.heap.open_lines(now_s) for lane in line.lanes.values())
    can_go = {lane.queue.id for lane in lanes if lane.queue.state is QueueState.READY}
    return schedule.index.states[QueueState.READY] - len(can_go)


def _why(parts: Parts, behind: Behind, now_s: float) -> str:
    """In words, why no lease can be had; the answer is empty if one may be had."""
    if (parts.can_lease(now_s) or parts.may_read_on) and not behind.is_full:
        return ""
    closed = [line for line in parts.schedule.window if line.has_work and line.opens_s() > now_s]
    opens_s = min((line.opens_s() for line in closed), default=math.inf)
    wakes_s = parts.schedule.window.stored.wakes_s
    counters = parts.books.counters()
    facts = IdleFacts(
        pending=max(parts.pending, 0) + counters.retired,
        waiting=counters.waiting,
        paused=counters.paused,
        retired=counters.retired,
        in_flight=len(parts.leases),
        trouble=parts.trouble(now_s),
        store_behind=behind.is_full,
        reading=parts.is_reading,
        closed_gates=len(closed),
        opens_s=min(opens_s, wakes_s if wakes_s is not None else math.inf),
        due_s=parts.retries.next_time(),
    )
    return why_idle(facts, now_s)
