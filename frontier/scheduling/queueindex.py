"""The queues in memory, by id: each comes with its first active lane and goes, its row written, with the last."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from anabranch.frontier.scheduling.lifecycle import RESTS_IN, STEPS, QueueState, next_state
from anabranch.frontier.scheduling.workqueues import WorkQueue


class QueueIndex:
    """The queues in memory, by id."""

    def __init__(self, per_queue: int, save: Callable[[WorkQueue], None]) -> None:
        """`save` gets a queue whose row must be written before it leaves memory."""
        self._queues: dict[int, WorkQueue] = {}
        self._per_queue = per_queue
        self._save = save
        self.states = dict.fromkeys(QueueState, 0)  #: queues in memory by state

    def __len__(self) -> int:
        return len(self._queues)

    def __iter__(self) -> Iterator[WorkQueue]:
        return iter(self._queues.values())

    def get(self, queue_id: int) -> WorkQueue | None:
        """The queue, if it is in memory."""
        return self._queues.get(queue_id)

    def take_up(self, queue_id: int) -> WorkQueue:
        """The queue; made if it is not in memory."""
        queue = self._queues.get(queue_id)
        if queue is None:
            queue = self._queues[queue_id] = WorkQueue(queue_id, self._per_queue)
            self.states[queue.state] += 1
        return queue

    def settle(self, queue: WorkQueue) -> None:
        """Bring the queue's state in line with what it holds, by the table of `lifecycle`; let go of an idle one."""
        before, holds = queue.state, queue.holds()
        state = RESTS_IN[holds]
        if state is not before:
            if holds not in STEPS[before]:  # a call for what never happens would cost half of this one
                next_state(before, holds)
            states = self.states
            states[before] -= 1
            states[state] += 1
            queue.state = state
        if not (queue.lanes or queue.out) and self._queues.get(queue.id) is queue:
            self.states[state] -= 1
            del self._queues[queue.id]
            self.save(queue)

    def save(self, queue: WorkQueue) -> None:
        """Write what was spent since it was written last, if anything was."""
        if queue.unsaved:
            queue.unsaved = 0
            self._save(queue)

    def save_all(self) -> None:
        """Write what all queues in memory spent since they were written."""
        for queue in self._queues.values():
            self.save(queue)
