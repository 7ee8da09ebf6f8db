"""The engine: workers who share one Frontier, in a time that jumps to whatever happens next.

Nothing is waited for, so a crawl of days takes the processor time of the Frontier's own work and no more. The Frontier is
the real one; what a visit does between its lease and its end is `begin`'s to say, by events (`after`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from itertools import count
from typing import Any, Protocol

from anabranch.frontier.core import Frontier
from anabranch.frontier.models import Candidate, Lease, Outcome, WaitsFor

#: What happens at an event's time.
Happen = Callable[..., None]


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

    def time_s(self) -> float:
        """The time; half the price of calling the clock itself."""
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
        self.leases = 0  #: that were handed out so far
        self._begin = begin
        self._events: list[tuple[float, int, Happen, tuple[Any, ...]]] = []
        self._numbers = count()
        self._was_full = True  # all workers were busy, or nothing is known yet
        self._has_changed = True  # something happened since the Frontier was asked when a lease may be had
        self._wakes_s: float | None = None  # what it said

    # What a visit may do

    def after(self, seconds: float, happen: Happen, *facts: Any) -> None:
        """Let `happen(*facts)` be so much later; what is due at the same time happens in the order of the calls."""
        heappush(self._events, (self.clock.now_s + seconds, next(self._numbers), happen, facts))

    def end(self, lease: Lease, outcome: Outcome, discovered: Sequence[Candidate] = ()) -> None:
        """The visit ends; its worker is free."""
        self.core.finish(lease, outcome, discovered)
        self.active -= 1
        self._has_changed = True

    def give_back(self, lease: Lease) -> None:
        """The lease goes back unprocessed; its worker is free."""
        self.core.release(lease)
        self.active -= 1
        self._has_changed = True

    # How time goes by

    def lease_all(self) -> None:
        """Hand out every lease that may be had now, as long as a worker is free.

        A gate opens at its time, or by what happens: as long as neither came about, the Frontier is not asked again. If all
        workers were busy until now, a gate is open most likely.
        """
        now_s = self.clock.now_s
        while self.active < self.workers:
            if self._was_full:
                self._was_full = False
            else:
                if self._has_changed:
                    self._ask()
                wakes_s = self._wakes_s
                if wakes_s is None or wakes_s > now_s:
                    return
            if self.lease() is None:
                return
        self._was_full = True

    def lease(self) -> Lease | None:
        """The next lease for a free worker; None if all are busy, or there is none to be had now."""
        if self.active == self.workers:
            return None
        lease = self.core.lease()
        if lease is None:
            self._wakes_s, _ = self.core.wake()
            self._has_changed = False
        else:
            self.active += 1
            self.leases += 1
            self._has_changed = True
            self._begin(lease)
        return lease

    def next_s(self) -> float | None:
        """When the next event is, or a lease may be had by a free worker; None: nothing will happen any more.

        As the last `lease` or `lease_all` left it.
        """
        events, wakes_s = self._events, self._wakes_s
        if wakes_s is None or self.active == self.workers:
            return events[0][0] if events else None
        return wakes_s if not events or wakes_s < events[0][0] else events[0][0]

    def go_on(self, at_s: float) -> None:
        """Let it be that late, and let happen what is due."""
        self.clock.advance_to(at_s)
        now_s, events = self.clock.now_s, self._events
        while events and events[0][0] <= now_s:
            _, _, happen, facts = heappop(events)
            happen(*facts)

    def _ask(self) -> None:
        """When a lease may be had, or asked for: now, if the Frontier has yet to ask its store for something."""
        self._wakes_s, waits_for = self.core.wake()
        if self._wakes_s is None and waits_for & WaitsFor.STORE:
            self._wakes_s = self.clock.now_s
        self._has_changed = False
