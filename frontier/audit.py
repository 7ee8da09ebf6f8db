"""What must be true of lanes and queues at any moment: the invariants I1, I2 and I6 of `docs/invariants.md`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Set

from frontier.errors import InvariantBroken
from frontier.lifecycle import RESTS_IN
from frontier.schedule import Schedule
from frontier.stores.base import Counters
from frontier.workqueues import PER_QUEUE, Lane, Place, WorkQueue


def check_lanes(schedule: Schedule, leases: Set[int]) -> None:
    """Recount everything from the lanes up. Cost: one pass over lanes and windows. Raises: InvariantBroken."""
    by_queue: defaultdict[int, list[Lane]] = defaultdict(list)
    out_by_gate: defaultdict[int, int] = defaultdict(int)
    leased: set[int] = set()
    for lane in schedule.index:
        by_queue[lane.queue.id].append(lane)
        out_by_gate[lane.gate] += len(lane.leased)
        leased |= lane.leased
        _check_lane(lane)
    if leased != leases:
        raise InvariantBroken(f"lanes and leases disagree about {leased ^ leases}")
    for queue in schedule.index.queues():
        _check_queue(queue, by_queue[queue.id])
    for gate in schedule.gates():
        if gate.out != out_by_gate[gate.id]:
            raise InvariantBroken(f"{gate} should have {out_by_gate[gate.id]} leases out")


def check_counters(kept: Counters, here: Counters) -> None:
    """Compare the store's totals with those in memory. Raises: InvariantBroken."""
    # A duplicate that died took its ordinal with it.
    if kept._replace(last_ordinal=0) != here._replace(last_ordinal=0):
        raise InvariantBroken(f"the store counts {kept}, the Frontier {here}")


def _check_lane(lane: Lane) -> None:
    ordinals = [head.row.ordinal for head in lane.window]
    if len(set(ordinals)) != len(ordinals) or lane.leased.intersection(ordinals):
        raise InvariantBroken(f"{lane} holds a URL twice")
    if lane.stored < 0:
        raise InvariantBroken(f"{lane} counts {lane.stored} rows in the store")
    if lane.place is Place.READY and not lane.window:
        raise InvariantBroken(f"{lane} is ready with nothing to serve")
    if lane.place is Place.NOWHERE and not lane.queue.is_busy and (lane.window or lane.stored):
        raise InvariantBroken(f"{lane} has URLs and stands in no line")


def _check_queue(queue: WorkQueue, lanes: list[Lane]) -> None:
    sums = {
        "rows": sum(lane.rows for lane in lanes),
        "waiting": sum(lane.waiting for lane in lanes),
        "out": sum(len(lane.leased) for lane in lanes),
        "heads": sum(len(lane.window) for lane in lanes),
        "asked": sum(lane.is_asked for lane in lanes),
    }
    for name, value in sums.items():
        if getattr(queue, name) != value:
            raise InvariantBroken(f"{queue} counts {getattr(queue, name)} {name}, its lanes {value}")
    if queue.out > PER_QUEUE:
        raise InvariantBroken(f"{queue} has {queue.out} leases out")
    if queue.state is not RESTS_IN[queue.holds()]:
        raise InvariantBroken(f"{queue} holds {queue.holds().value}")
