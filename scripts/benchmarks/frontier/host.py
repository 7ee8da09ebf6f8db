"""A host program of a Frontier without a network: time is virtual, and it waits for the store as a crawler does.

The clock goes on by one step with each finish, such that all slots together allow a little more than that pace: rests are
long in virtual time, and some leases are asked for in vain. It jumps to the next opening when nothing else is left to do,
and goes on as real time does while the host waits for the store.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from threading import Event

from anabranch.crawler.runtime import tune_interpreter
from anabranch.frontier.composition import FrontierOrder, open_frontier
from anabranch.frontier.records import BUSY, Candidate, Lease, Outcome, OutcomeKind, WaitsFor
from anabranch.frontier.stores.contract import FrontierStore

#: Leases that are out at a time.
WORKERS = 40
#: When the virtual clock begins.
START_S = 1e9

#: Duration of a fetch in virtual time.
_FETCH_S = 0.2
#: How much more than the pace the gates allow.
_SLACK = 1.25
#: The longest that the store may take for an answer.
_PATIENCE_S = 60.0


class Clock:
    """Virtual time, epoch seconds."""

    def __init__(self, now_s: float) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s


class Host:
    """Schedules, leases and finishes. Raises: RuntimeError if it cannot continue."""

    def __init__(
        self,
        folder: Path | None,
        order: FrontierOrder,
        hosts: int,
        start_s: float = START_S,
        store: FrontierStore | None = None,
    ) -> None:
        """`hosts` is the number of hosts; `start_s` is after all times in the folder; `store` replaces its file."""
        self._changed = Event()
        self._clock = Clock(start_s)
        slots = order.politeness.slots * min(hosts, order.gates_in_memory)
        self._step_s = _SLACK * order.politeness.min_delay_s / max(slots - WORKERS, 1)
        self._out: deque[Lease] = deque()
        self.nones = 0  #: calls of `lease` without a lease
        self.frontier = open_frontier(folder, order, store=store, clock=self._clock, on_change=self._changed.set)
        self._switch_s = sys.getswitchinterval()
        self._collection = gc.get_threshold()
        tune_interpreter()  # as the crawl command does

    def __enter__(self) -> Host:
        return self

    def __exit__(self, *_: object) -> None:
        self.frontier.close()
        sys.setswitchinterval(self._switch_s)
        gc.set_threshold(*self._collection)

    def schedule(self, batches: Iterable[Sequence[Candidate]]) -> None:
        """Enqueue every batch; while the store is behind, wait for its answer."""
        for batch in batches:
            while True:
                self._changed.clear()
                if self.frontier.schedule(batch)[0] is not BUSY:
                    break
                self._await_store()

    def fetch(self, count: int) -> None:
        """Lease and finish so many URLs."""
        for _ in range(count):
            self._finish(self._next(), ())

    def fetch_pages(self, pages: Iterable[Sequence[Candidate]]) -> None:
        """For each page lease a URL and finish it with the page's links."""
        for links in pages:
            self._finish(self._next(), links)

    def flush(self) -> None:
        """Return when all changes are durable."""
        self.frontier.flush()

    def _next(self) -> Lease:
        """The oldest lease, after every idle worker has asked for one."""
        out, lease_one = self._out, self.frontier.lease
        while True:
            while len(out) < WORKERS:
                lease = lease_one()
                if lease is None:
                    self.nones += 1
                    break
                out.append(lease)
            if out:
                return out.popleft()
            self._wait()

    def _finish(self, lease: Lease, links: Sequence[Candidate]) -> None:
        clock = self._clock
        clock.now_s = now_s = clock.now_s + self._step_s
        self.frontier.finish(lease, Outcome(OutcomeKind.DONE, 200, now_s - _FETCH_S, now_s), links)

    def _wait(self) -> None:
        """No lease is out or available: wait for the store, or advance the clock."""
        self._changed.clear()
        lease = self.frontier.lease()  # the event reports what it requests now
        if lease is not None:
            self._out.append(lease)
            return
        wake = self.frontier.wake()
        if wake.at_s is not None and wake.at_s <= self._clock.now_s:
            return
        if WaitsFor.STORE in wake.waits_for:
            self._await_store()
        elif wake.at_s is not None:
            self._clock.now_s = wake.at_s
        else:
            raise RuntimeError(f"nothing can be leased any more: {wake.waits_for}, {self.frontier.pending:,} pending")

    def _await_store(self) -> None:
        started = time.perf_counter()
        if not self._changed.wait(_PATIENCE_S):
            raise RuntimeError(f"the store has not answered for {_PATIENCE_S:g} s")
        self._clock.now_s += time.perf_counter() - started


class Rounds:
    """Rates of repeated work."""

    def __init__(self) -> None:
        self.rates: list[float] = []  #: per second, one for each round

    def time(self, count: int, work: Callable[[], object]) -> None:
        """Time a round of so many URLs."""
        started = time.perf_counter()
        work()
        self.rates.append(count / (time.perf_counter() - started))

    @property
    def median(self) -> float:
        """The median of the rates."""
        return statistics.median(self.rates)


def both(scheduling: float, fetching: float) -> float:
    """URLs per second that are scheduled, leased and finished, from the rates of the two halves."""
    return 1 / (1 / scheduling + 1 / fetching)
