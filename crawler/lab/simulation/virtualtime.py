"""The engine: workers who share one Frontier, in a time that jumps to whatever happens next.

Nothing is waited for, so a crawl of days takes the processor time of the Frontier's own work and no more. The Frontier is
the real one; what a visit does between its lease and its end is `begin`'s to say, by events (`after`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from itertools import count
from typing import Protocol

from frontier.core import Frontier
from frontier.models import Candidate, Lease, Outcome

#: What happens at an event's time.
Happen = Callable[[], None]


class MovableClock(Protocol):
    """Epoch seconds that stand still until they are moved."""

    now_s: float

    def __call__(self) -> float:
        """The time."""

    def advance_to(self, at_s: float) -> None:
        """Let it be that late, or as late as it is."""


class VirtualClock:
    """Implements `MovableClock`."""

    def __init__(self, now_s: float) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        """The time."""
        return self.now_s

    def advance_to(self, at_s: float) -> None:
        """Let it be that late, or as late as it is."""
        self.now_s = max(self.now_s, at_s)


class VirtualCrawl:
    """Workers over a Frontier whose clock is this one. Each lease goes to `begin`, which sees to it that it ends.

    A store that answers inside the call is meant: nobody waits for one that answers later. Cost: O(log leases out) an event.
    """

    def __init__(self, core: Frontier, clock: MovableClock, workers: int, begin: Callable[[Lease], None]) -> None:
        self.core = core
        self.clock = clock
        self.workers = workers
        self.active = 0  #: workers that hold a URL
        self._begin = begin
        self._events: list[tuple[float, int, Happen]] = []
        self._numbers = count()
        self._was_full = True  # all workers were busy, or nothing is known yet
        self._wakes_s: float | None = None  # when a lease may be had, as was last said

    # What a visit may do

    def after(self, seconds: float, happen: Happen) -> None:
        """Let something happen so much later; what is due at the same time happens in the order of the calls."""
        heappush(self._events, (self.clock.now_s + seconds, next(self._numbers), happen))

    def end(self, lease: Lease, outcome: Outcome, discovered: Sequence[Candidate] = ()) -> None:
        """The visit ends; its worker is free."""
        self.core.finish(lease, outcome, discovered)
        self.active -= 1

    def give_back(self, lease: Lease) -> None:
        """The lease goes back unprocessed; its worker is free."""
        self.core.release(lease)
        self.active -= 1

    # How time goes by

    def may_lease(self) -> bool:
        """Whether it is worth asking for a lease: a worker is free, and a gate is open. False is certain.

        Costs half of a lease that is asked for in vain. If all workers were busy until now, a gate is open most likely.
        """
        if self.active == self.workers:
            self._was_full = True
            return False
        if self._was_full:
            self._was_full = False
            return True
        self._wakes_s = self.core.wake().at_s
        return self._wakes_s is None or self._wakes_s <= self.clock.now_s

    def lease(self) -> Lease | None:
        """The next lease for a free worker; None if all are busy, or there is none to be had now."""
        if self.active == self.workers:
            return None
        lease = self.core.lease()
        if lease is None:
            self._wakes_s = self.core.wake().at_s
        else:
            self.active += 1
            self._begin(lease)
        return lease

    def next_s(self) -> float | None:
        """When the next event is, or a lease may be had by a free worker; None: nothing will happen any more."""
        at_s = self._events[0][0] if self._events else None
        if self.active == self.workers:
            return at_s
        wakes_s = self._wakes_s
        if wakes_s is None or at_s is None:
            return at_s if wakes_s is None else wakes_s
        return min(at_s, wakes_s)

    def go_on(self, at_s: float) -> None:
        """Let it be that late, and let happen what is due."""
        self.clock.advance_to(at_s)
        events = self._events
        while events and events[0][0] <= self.clock.now_s:
            heappop(events)[2]()
