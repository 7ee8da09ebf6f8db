"""The invariants I1, I2 and I6 of `docs/reference/invariants.md`, as far as memory and store show them."""

from __future__ import annotations

from collections import defaultdict

from anabranch.frontier.errors import InvariantBroken
from anabranch.frontier.parts import Parts
from anabranch.frontier.scheduling.lifecycle import RESTS_IN
from anabranch.frontier.scheduling.readylist import Lane, LanePlace, ReadyList, WorkQueue
from anabranch.frontier.stores.contract import Counters, FrontierStore


def audit(parts: Parts, store: FrontierStore) -> None:
    """Recount memory, then compare it with the store's recounted rows (blocks). Raises: InvariantBroken."""
    check_memory(parts)
    kept = store.counters()
    if parts.store_link.hosting is None:  # a worker's totals are a part of the job's
        check_counters(kept, parts.store_link.counters())


def check_memory(parts: Parts) -> None:
    """Recount everything from the lanes up. Cost: one pass over memory. Raises: InvariantBroken."""
    schedule, placement = parts.schedule, parts.schedule.placement
    out_by_gate: defaultdict[int, int] = defaultdict(int)
    leased: set[int] = set()
    loading = 0
    for line in schedule.window:
        for lane in line.lanes.values():
            out_by_gate[line.gate.id] += len(lane.leased)
            if line.group is not None:
                out_by_gate[line.group.gate.id] += len(lane.leased)
            leased |= lane.leased
            loading += lane.place is LanePlace.LOADING
            _check_lane(lane)
        _check_line(line)
    if leased != parts.leases.ordinals():
        raise InvariantBroken(f"lanes and leases disagree about {leased ^ parts.leases.ordinals()}")
    for queue in schedule.index:
        _check_queue(queue)
    for gated in (*schedule.window, *schedule.window.groups.values()):
        if gated.gate.out != out_by_gate[gated.gate.id]:
            raise InvariantBroken(f"{gated.gate} should have {out_by_gate[gated.gate.id]} leases out")
    if placement.loading != loading:
        raise InvariantBroken(f"{placement.loading} lanes are counted as loading, and {loading} are")
    asked = sum(queue.asked for queue in schedule.index)
    if placement.asked != asked:
        raise InvariantBroken(f"{placement.asked} lanes are counted as asked for, and {asked} are")


def check_counters(kept: Counters, here: Counters) -> None:
    """Compare the store's totals with those in memory. Raises: InvariantBroken."""
    # A number may belong to a duplicate that died, or to a turn that was never written.
    if kept._replace(last_ordinal=0) != here._replace(last_ordinal=0):
        raise InvariantBroken(f"the store counts {kept}, the Frontier {here}")


def _check_line(line: ReadyList) -> None:
    active = sum(lane.place in (LanePlace.READY, LanePlace.LOADING) for lane in line.lanes.values())
    if active != line.active:
        raise InvariantBroken(f"{line} has {active} active lanes")
    for queue_id, lane in line.lanes.items():
        waits = queue_id in line.waiting
        if waits != (lane.place is LanePlace.STORED) and (waits or line.waiting.is_complete):
            raise InvariantBroken(f"{lane} waits in its ready list, or not, against its place")


def _check_lane(lane: Lane) -> None:
    ordinals = [head.row.ordinal for head in lane.window]
    if len(set(ordinals)) != len(ordinals) or lane.leased.intersection(ordinals):
        raise InvariantBroken(f"{lane} holds a URL twice")
    if lane.place is LanePlace.READY and not lane.window:
        raise InvariantBroken(f"{lane} is ready with nothing to serve")
    if lane.place is LanePlace.NOWHERE and _may_be_served(lane):
        raise InvariantBroken(f"{lane} has URLs and is in no ready list")
    if lane.is_dropped or lane not in lane.queue.lanes:
        raise InvariantBroken(f"{lane} left memory, and its ready list keeps it")


def _may_be_served(lane: Lane) -> bool:
    return not (lane.queue.is_busy or lane.queue.standing) and bool(lane.window or lane.more)


def _check_queue(queue: WorkQueue) -> None:
    sums = {
        "out": sum(len(lane.leased) for lane in queue.lanes),
        "heads": sum(len(lane.window) for lane in queue.lanes),
        "asked": sum(lane.is_asked for lane in queue.lanes),
    }
    for name, value in sums.items():
        if getattr(queue, name) != value:
            raise InvariantBroken(f"{queue} counts {getattr(queue, name)} {name}, its lanes {value}")
    if queue.out > queue.per_queue:
        raise InvariantBroken(f"{queue} has {queue.out} leases out")
    if queue.state is not RESTS_IN[queue.holds()]:
        raise InvariantBroken(f"{queue} holds {queue.holds().value}")
    if not queue.lanes and not queue.out:
        raise InvariantBroken(f"{queue} has nothing active")
