"""Counts and statistics of a whole Frontier, and why it leases nothing. Snapshots without behaviour."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from anabranch.frontier.inspect.explain import STORE_BEHIND
from anabranch.frontier.parts import Parts
from anabranch.frontier.scheduling.lifecycle import QueueState
from anabranch.frontier.storelink import Behind
from anabranch.frontier.times import counted, in_time

#: States of queues in memory; the others are rows.
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
    queues: Mapping[str, int]  #: work queues: all that were ever named, and the active ones by state
    gates: int  #: gates in memory
    on_slow_hosts: int = 0  #: leases of hosts that are new or slow; 0 without limits of workers
    trouble: str = ""  #: why the store or the filter cannot write now, and how long it waits; empty if it can


class FrontierStatistics(NamedTuple):
    """The fields of `FrontierCounts`, and those that cost more."""

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
    parked: int  #: READY queues with all their gates in memory closed
    leases_lost: int
    unsynced_rows: int  #: rows sent to the store that were not durable at that time
    why_idle: str  #: why nothing can be leased now, in words; empty if something can
    seen: Mapping[str, float | str]  #: the filter's own figures
    retried: int = 0  #: failures that were queued again, and count as failed no more
    on_slow_hosts: int = 0  #: leases of hosts that are new or slow

    @property
    def accepted(self) -> int:
        """Every URL that was ever enqueued."""
        return self.pending + self.retired + self.in_flight + self.done + self.failed + self.disregarded


class ReadyQueues(NamedTuple):
    """Queues that have something to serve in memory and nothing in flight."""

    ready: int
    parked: int  #: of these, those with all their gates in memory closed


def count(parts: Parts, now_s: float) -> FrontierCounts:
    """The counts, which are kept up to date; of other workers of the job as they were a second ago. O(1)."""
    counters = parts.store_link.job_counters()
    states = parts.schedule.index.states
    return FrontierCounts(
        pending=counters.queued - counters.retired - len(parts.leases) + parts.schedule.placement.retired_out,
        waiting=counters.waiting,
        in_flight=len(parts.leases),
        done=counters.done,
        failed=counters.failed,
        disregarded=counters.disregarded,
        retired=counters.retired - parts.schedule.placement.retired_out,
        queues={"all": counters.queues, **{state.value: states[state] for state in ACTIVE}},
        gates=len(parts.schedule.window),
        on_slow_hosts=parts.schedule.window.heap.slow_out,
        trouble="" if parts.store_link.waiting is None else parts.store_link.waiting.words(now_s),
    )


def examine(parts: Parts, tally: Mapping[str, int], behind: Behind, now_s: float) -> FrontierStatistics:
    """All except the filter's figures; `tally` is the store's. Costs a look at every gate in memory."""
    # The store counts an active queue by its rows; here it counts by what it does.
    active = {state.value: parts.schedule.index.states[state] for state in ACTIVE}
    states = {state.value: tally.get(state.value, 0) for state in QueueState} | active
    states[QueueState.INACTIVE.value] = max(states[QueueState.INACTIVE.value] - sum(active.values()), 0)
    counts = count(parts, now_s)._replace(queues=states)._asdict()
    trouble = counts.pop("trouble")
    return FrontierStatistics(
        **counts,
        gates_open=sum(line.gate.opens_s() <= now_s for line in parts.schedule.window),
        parked=_parked(parts, now_s),
        leases_lost=parts.leases.lost,
        unsynced_rows=behind.rows,
        why_idle=_why(parts, behind, trouble, now_s),
        seen={},
        retried=parts.store_link.job_counters().retried,
    )


def ready(parts: Parts, now_s: float) -> ReadyQueues:
    """The ready queues. Costs a look at every lane in memory with an open gate."""
    return ReadyQueues(parts.schedule.index.states[QueueState.READY], _parked(parts, now_s))


def _parked(parts: Parts, now_s: float) -> int:
    """Ready queues without an open gate."""
    schedule = parts.schedule
    lanes = (lane for line in schedule.window.heap.open_lines(now_s) for lane in line.lanes.values())
    can_go = {lane.queue.id for lane in lanes if lane.queue.state is QueueState.READY}
    return schedule.index.states[QueueState.READY] - len(can_go)


def _why(parts: Parts, behind: Behind, trouble: str, now_s: float) -> str:
    """Why nothing can be leased, in words; empty if something can."""
    if (parts.can_lease(now_s) or parts.may_read_on) and not behind.is_full:
        return ""
    closed = [line for line in parts.schedule.window if line.has_work and line.opens_s() > now_s]
    opens_s = min((line.opens_s() for line in closed), default=math.inf)
    wakes_s = parts.schedule.window.stored.wakes_s
    counters = parts.store_link.counters()
    facts = IdleFacts(
        pending=max(parts.pending, 0) + counters.retired,
        waiting=counters.waiting,
        paused=counters.paused,
        retired=counters.retired,
        in_flight=len(parts.leases),
        trouble=trouble,
        store_behind=behind.is_full,
        reading=parts.is_reading,
        closed_gates=len(closed),
        opens_s=min(opens_s, wakes_s if wakes_s is not None else math.inf),
        due_s=parts.retries.next_time(),
    )
    return why_idle(facts, now_s)


NOTHING_QUEUED = "nothing is queued"


class IdleFacts(NamedTuple):
    """The state of the whole Frontier when `lease()` has just returned None."""

    pending: int  #: URLs queued and not leased; the next three are parts of it
    waiting: int = 0  #: for a retry
    paused: int = 0  #: in paused queues
    retired: int = 0  #: in retired queues
    in_flight: int = 0  #: leases out
    trouble: str = ""  #: what the store waits for, if it cannot write
    store_behind: bool = False  #: no lease is given until the store has caught up
    reading: bool = False  #: rows are being read from the store
    closed_gates: int = 0  #: gates in memory that have something to serve and are closed
    opens_s: float | None = None  #: when the first of these opens, or of those that are not in memory
    due_s: float | None = None  #: when the first retry is due


def why_idle(facts: IdleFacts, now_s: float) -> str:
    """Why `lease()` returns None, in one line; empty if there is no reason."""
    if facts.trouble:
        return f"the store {facts.trouble}"
    if facts.store_behind:
        return STORE_BEHIND
    if not facts.pending:
        return f"{counted(facts.in_flight, 'URL')} leased, none queued" if facts.in_flight else NOTHING_QUEUED
    held = _held_words(facts)
    words = _time_words(facts, now_s)
    if not words and facts.reading:
        words = "rows of the store are awaited"
    elif not words and facts.in_flight:
        words = f"one of {counted(facts.in_flight, 'lease')} must come back"
    elif not words and held:
        return f"all that is left: {held}; resume them, or raise their budgets"
    return f"{words}; {held}" if held else words


def _time_words(facts: IdleFacts, now_s: float) -> str:
    """Say what time alone will change; empty if nothing will."""
    if facts.closed_gates:
        gates = counted(facts.closed_gates, "gate that has URLs is", "gates that have URLs are")
        return f"{gates} closed, none is open" + in_time("the first opens", facts.opens_s, now_s)
    if facts.opens_s is not None and now_s < facts.opens_s < math.inf:
        return "every gate that has URLs is closed" + in_time("the first opens", facts.opens_s, now_s)
    if facts.waiting and facts.waiting + facts.paused + facts.retired >= facts.pending:
        return f"{counted(facts.waiting, 'URL')} wait for a retry" + in_time("the first is due", facts.due_s, now_s)
    return ""


def _held_words(facts: IdleFacts) -> str:
    counts = {"paused": facts.paused, "retired": facts.retired}
    return " and ".join(f"{counted(count, 'URL')} in {state} queues" for state, count in counts.items() if count)
