"""Queues that may not be served: paused by the operator, or retired because their budget is spent."""

from __future__ import annotations

from anabranch.frontier.outbox import Outbox
from anabranch.frontier.scheduling.placement import Placement
from anabranch.frontier.scheduling.workqueues import Lane, WorkQueue
from anabranch.frontier.stores.messages import Standing


class Halting:
    """Stops queues in memory, and lets them go on. Every operation costs O(lanes of the queue in memory)."""

    def __init__(self, outbox: Outbox, placement: Placement) -> None:
        self._outbox = outbox
        self._placement = placement
        self.out = 0  #: leases out of queues that are retired

    def retire(self, queue: WorkQueue) -> None:
        """The queue has spent all that it may: say so, and serve it no more."""
        self._outbox.batch.standings.append((queue.id, Standing.RETIRED))
        self.halt(queue, Standing.RETIRED)

    def reopen(self, queue: WorkQueue) -> None:
        """The queue may be served again; what it has comes back when its gates are read."""
        self._stand(queue, Standing.OPEN)
        for lane in list(queue.lanes):
            self._placement.place(lane)
            lane.line.enlist()
        self._placement.index.settle(queue)

    def halt(self, queue: WorkQueue, standing: Standing) -> None:
        """The queue is paused or retired: its lanes leave memory, its leases may end."""
        self._stand(queue, standing)
        for lane in list(queue.lanes):
            self._placement.drop(lane)
            lane.line.enlist()  # the next lane of its gate takes its turn
        self._placement.index.settle(queue)

    def came_back(self, lane: Lane, *, keep: bool) -> None:
        """A lease of a queue that may not be served ended; its row stays if `keep`."""
        lane.more = lane.more or keep
        self.out -= lane.queue.standing is Standing.RETIRED

    def _stand(self, queue: WorkQueue, standing: Standing) -> None:
        if queue.standing is Standing.RETIRED:
            self.out -= queue.out
        if standing is Standing.RETIRED:
            self.out += queue.out
        queue.standing = standing
