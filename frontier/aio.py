"""The asyncio face of a Frontier: leases go to waiting tasks, first come, first served.

One pump serves all waiting tasks. It runs after each call that may free a lease, after an answer of the store (`Bell`), and at
the Frontier's next wake-up time (`Alarm`, one timer). Call the methods here, not those of `core`, which wake no task.
"""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop, TimerHandle
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

from anabranch.frontier.admission import Prepared
from anabranch.frontier.errors import FrontierError, errors_after
from anabranch.frontier.frontier import Frontier
from anabranch.frontier.inspect.operations import Operations
from anabranch.frontier.inspect.statistics import FrontierStatistics
from anabranch.frontier.parts import Steps
from anabranch.frontier.records import Candidate, GateKey, Lease, Outcome, Verdict

T = TypeVar("T")


class Drained(Exception):
    """Nothing is queued and nothing is leased: no lease will come unless URLs are scheduled."""


class AsyncFrontier:
    """A Frontier for tasks of one event loop; usable inside `async with`.

    `open` runs in another thread, given the function that the store's thread may call; then `core` belongs to the loop.
    """

    core: Frontier

    def __init__(self, open: Callable[[Callable[[], None]], Frontier]) -> None:  # noqa: A002
        self._open = open
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[asyncio.Future[Lease]] = deque()
        self._bell = Bell(self._loop, self._hear)
        self._alarm = Alarm(self._loop, self._hear, lambda: self.core.now_s())  # noqa: PLW0108  there is no core yet
        self._is_stopped = False
        self._is_paused = False
        self._is_open = False

    async def __aenter__(self) -> AsyncFrontier:
        """Open the Frontier in another thread. Raises what `open` raises; a cancelled opening leaves nothing open."""
        self.core = await _opened(partial(self._open, self._bell.ring))
        self._is_open = True
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        with errors_after(error):
            await self.close()

    async def __aiter__(self) -> AsyncIterator[Lease]:
        """Leases until the Frontier is drained or stopped."""
        while True:
            try:
                yield await self.lease()
            except Drained:
                return

    def schedule(self, candidates: Sequence[Candidate], found_on: Lease | None = None) -> list[Verdict]:
        """Enqueue new candidates as `Frontier.schedule` does; wakes waiting tasks."""
        return self._then_pump(lambda: self.core.schedule(candidates, found_on))

    async def lease(self) -> Lease:
        """The next URL that may be fetched, first come, first served; waits. Raises: Drained, StoreUnavailable."""
        if not self._waiting and (lease := self._next()) is not None:
            return lease
        waiter: asyncio.Future[Lease] = self._loop.create_future()
        self._waiting.append(waiter)
        self._pump(was_asked=len(self._waiting) == 1)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                # Every other call reports a store that failed; this task was cancelled.
                with suppress(FrontierError):
                    self.release(waiter.result())
            raise

    def finish(
        self,
        lease: Lease,
        outcome: Outcome,
        discovered: Sequence[Candidate] = (),
        prepared: Prepared | None = None,
    ) -> list[Verdict]:
        """End a lease as `Frontier.finish` does; wakes waiting tasks."""
        try:  # as `_then_pump`, inlined because it runs for each page
            return self.core.finish(lease, outcome, discovered, prepared)
        finally:
            self._pump()

    def release(self, lease: Lease) -> None:
        """Give a lease back as `Frontier.release` does; wakes waiting tasks."""
        self._then_pump(lambda: self.core.release(lease))

    def renew(self, lease: Lease) -> Lease:
        """Extend a lease as `Frontier.renew` does."""
        return self.core.renew(lease)

    def set_delay(self, gate: GateKey, delay_s: float) -> None:
        """Set the delay of a gate as `Frontier.set_delay` does; wakes waiting tasks."""
        self._then_pump(lambda: self.core.set_delay(gate, delay_s))

    def set_slots(self, gate: GateKey, slots: int | None) -> None:
        """Set the slots of a gate as `Frontier.set_slots` does; wakes waiting tasks."""
        self._then_pump(lambda: self.core.set_slots(gate, slots))

    def block(self, gate: GateKey, until_s: float) -> None:
        """Block a gate as `Frontier.block` does; updates the timer."""
        self._then_pump(lambda: self.core.block(gate, until_s))

    def unblock(self, gate: GateKey) -> None:
        """Remove a block as `Frontier.unblock` does; wakes waiting tasks."""
        self._then_pump(lambda: self.core.unblock(gate))

    def let_pass(self, service: str) -> None:
        """Let one lease of a held service pass, by `core.holds.let_pass`; wakes a waiting task."""
        self._then_pump(lambda: self.core.holds.let_pass(service))

    def lift(self, service: str) -> None:
        """End the hold of a service, by `core.holds.lift`; wakes waiting tasks."""
        self._then_pump(lambda: self.core.holds.lift(service))

    def operate(self, command: Callable[[Operations], T]) -> T:
        """Run an operator's command on `core.operations` (blocks, some ms); wakes waiting tasks. Raises: its errors."""
        return self._then_pump(lambda: command(self.core.operations))

    async def look(self, steps: Steps[T]) -> T:
        """Run steps such as `core.operations.views.longest(20)`, their questions in other threads; leases continue meanwhile.

        Raises: what the steps raise; StoreUnavailable once closed.
        """
        resume: Callable[[], Callable[[], Any]] = partial(next, steps)
        try:
            while True:
                question = self._then_pump(resume)
                try:
                    resume = partial(steps.send, await asyncio.to_thread(question))
                except Exception as error:  # noqa: BLE001  the steps may handle it
                    resume = partial(steps.throw, error)
        except StopIteration as end:
            answer: T = end.value
            return answer
        finally:
            steps.close()

    async def statistics(self) -> FrontierStatistics:
        """Return the statistics of `Operations.statistics` while the crawl continues."""
        return await self.look(self.core.operations.views.statistics())

    def stop_leasing(self) -> None:
        """Hand out no more leases: every waiting and later `lease()` raises `Drained`."""
        self._is_stopped = True
        self._pump()

    def pause_leasing(self) -> None:
        """Hand out no lease until `resume_leasing`; waiting tasks keep waiting, but `Drained` is still raised. Idempotent."""
        self._is_paused = True
        self._pump()

    def resume_leasing(self) -> None:
        """Hand out leases again. Idempotent."""
        self._is_paused = False
        self._pump()

    async def flush(self) -> None:
        """Return when all changes so far are durable; waits in another thread. Raises: StoreUnavailable."""
        await asyncio.to_thread(self.core.wait_until_durable)
        self._then_pump(self.core.take_answers)

    async def close(self) -> None:
        """Stop leasing and close the Frontier in another thread."""
        self.stop_leasing()
        self._is_open = False
        self._alarm.stop()
        await asyncio.to_thread(self.core.close)

    def _then_pump(self, call: Callable[[], T]) -> T:
        """Make a call that may bring a lease, then serve the waiting tasks, also if it fails."""
        try:
            return call()
        finally:
            self._pump()

    def _hear(self) -> None:
        """The store has answered, or the alarm rang. Take the answers even if no task waits: they may report a trouble."""
        self._pump()
        if self._is_open:  # else the core belongs to the thread that opens or closes it
            with suppress(FrontierError):  # the next call raises it, too
                self.core.take_answers()

    def _pump(self, *, was_asked: bool = False) -> None:
        """Hand leases to waiting tasks (`was_asked`: there is none now), then set the alarm for the next wake-up."""
        if not self._waiting:
            return
        try:
            if was_asked or not self._serve():
                self._wait_on()
        except FrontierError as error:
            self._fail_all(error)

    def _serve(self) -> bool:
        """Hand out leases while there are any; True if no task waits any more."""
        while self._waiting:
            if not self._waiting[0].done():  # else its task was cancelled
                if (lease := self._next()) is None:
                    return False
                self._waiting[0].set_result(lease)
            self._waiting.popleft()
        return True

    @property
    def is_drained(self) -> bool:
        """Nothing is queued, nothing is leased, and nothing more will be sent."""
        return self.core.is_done

    def _next(self) -> Lease | None:
        if self._is_paused:
            self.core.take_answers()  # as `lease` does
        return None if self._is_paused or self._is_stopped else self.core.lease()

    def _wait_on(self) -> None:
        """No lease is ready: end the waiting tasks if none will come, else set the alarm.

        The core must have been asked for one before: this takes the store's answers, and the last URL may be a duplicate.
        """
        if self._is_stopped or self.is_drained:
            self._fail_all(Drained())
            return
        at_s = None if self._is_paused else self.core.wake().at_s
        if at_s is not None:
            self._alarm.set(at_s)

    def _fail_all(self, error: Exception) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_exception(error)


async def _opened(open_: Callable[[], Frontier]) -> Frontier:
    """Open it in another thread; a cancelled opening leaves nothing open."""
    loop = asyncio.get_running_loop()
    opening = loop.run_in_executor(None, open_)
    try:
        await asyncio.wait({opening})
    except asyncio.CancelledError as cancelled:
        await _done(opening)  # a thread cannot be stopped
        if opening.exception() is None:
            closing = loop.run_in_executor(None, opening.result().close)
            await _done(closing)
            raise cancelled from closing.exception()
        raise cancelled from opening.exception()
    return opening.result()


async def _done(work: asyncio.Future[Any]) -> None:
    """Wait until the work is done, however often the caller is cancelled."""
    while not work.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait({work})


class Bell:
    """Lets any thread call a function in the loop; several rings before that call make one call."""

    def __init__(self, loop: AbstractEventLoop, hear: Callable[[], None]) -> None:
        self._loop = loop
        self._hear = hear
        self._is_rung = False

    def ring(self) -> None:
        """Make the loop call `hear` after this moment. Never blocks; any thread."""
        if self._is_rung:
            return
        self._is_rung = True
        try:
            self._loop.call_soon_threadsafe(self._heard)
        except RuntimeError:
            return  # the loop is closed

    def _heard(self) -> None:
        self._is_rung = False  # before the call, which may miss what happens from now on
        self._hear()


class Alarm:
    """One timer for a changing time. It may ring too early, never late, so the listener sets it again."""

    def __init__(self, loop: AbstractEventLoop, hear: Callable[[], None], now_s: Callable[[], float]) -> None:
        self._loop = loop
        self._hear = hear
        self._now_s = now_s
        self._timer: TimerHandle | None = None
        self._at_s = 0.0  #: when it rings

    @property
    def is_set(self) -> bool:
        """Whether it will ring."""
        return self._timer is not None

    def set(self, at_s: float) -> None:
        """Ring at this time at the latest. O(1), and almost free for a later time than the one already set."""
        if self._timer is not None:
            if self._at_s <= at_s:
                return
            self._timer.cancel()
        self._at_s = at_s
        self._timer = self._loop.call_later(max(at_s - self._now_s(), 0.0), self._ring)

    def stop(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self) -> None:
        self._timer = None
        self._hear()
