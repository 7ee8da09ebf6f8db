"""Lanes that are parked at a busy queue, and how they come back. Pure; the time is an argument.

A queue may have lanes at many open gates, and is busy again as soon as one of them is served: had all come back when its lease
ended, the others would be parked anew at the next looks. So the first one whose gate is open comes back at once, all of them if
none is. The others are *held*, until nothing else can be leased or somebody asks when something can.
"""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.frontier.scheduling.placement import Placement
from anabranch.frontier.scheduling.workqueues import Lane, WorkQueue


class Parking:
    """Brings parked lanes back. Costs O(1) a lease, and a placing for each lane that comes back."""

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self._held: dict[int, WorkQueue] = {}  #: queues that are free, with lanes that are parked all the same

    def freed(self, queue: WorkQueue, now_s: float) -> None:
        """A lease of the queue ended, or it may be served again."""
        parked = queue.parked
        if not parked:
            return
        if queue.per_queue == 1 and not queue.standing:
            for lane in parked:
                if lane.line.opens_s() <= now_s and not lane.line.is_leaving:
                    self._come_back([lane])
                    self._held[queue.id] = queue
                    return
        self._come_back(parked)

    def taken(self, queue: WorkQueue) -> None:
        """The queue is busy: what is parked there stays."""
        if self._held:
            self._held.pop(queue.id, None)

    def end(self) -> bool:
        """All lanes that are parked at free queues come back; False if there are none."""
        if not self._held:
            return False
        held, self._held = self._held, {}
        for queue in held.values():
            if not queue.is_busy:
                self._come_back(queue.parked)
        return True

    def _come_back(self, lanes: Sequence[Lane]) -> None:
        for lane in list(lanes):
            self._placement.unplace(lane)
            self._placement.place(lane)
            lane.line.enlist()
