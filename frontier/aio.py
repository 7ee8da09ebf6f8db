"""The asyncio face of a Frontier: leases go to waiting tasks, first come, first served.

`AsyncFrontier` drives one `frontier.Frontier` in one event loop. One pump serves all waiting tasks: it runs after each call
that may free a lease, after the store has answered (`Bell`), and at the next moment that the Frontier names (`Alarm`, at most
one timer). No task polls or has a time-out of its own; a task that finds a lease ready and no other task waiting gets it at
once. Call the methods here, not those of `core`: changes made through `core` wake no task.

`AsyncShare` is the face of one share of a divided crawl (`frontier.division`).
"""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop, TimerHandle
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from anabranch.frontier.cancellation import outlast
from anabranch.frontier.division.exchange import LinkExchange
from anabranch.frontier.division.parcels import Consigned
from anabranch.frontier.errors import FrontierError
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

    `open` gets the function that the store's thread may call, and answers the opened Frontier. It is called in another
    thread, for it may take its time; from then on `core` belongs to the loop.
    """

    core: Frontier  #: what this is the face of

    def __init__(self, open: Callable[[Callable[[], None]], Frontier]) -> None:  # noqa: A002 - it is what it does
        self._open = open
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[asyncio.Future[Lease]] = deque()
        self._bell = Bell(self._loop, self._hear)
        self._alarm = Alarm(self._loop, self._hear, lambda: self.core.now_s())  # noqa: PLW0108  there is no core yet
        self._is_stopped = False
        self._is_paused = False
        self._is_open = False

    async def __aenter__(self) -> AsyncFrontier:
        """Open the Frontier, off the loop. Raises what `open` raises; a cancelled opening leaves nothing open."""
        self.core = await _opened(partial(self._open, self._bell.ring))
        self._is_open = True
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def __aiter__(self) -> AsyncIterator[Lease]:
        """Leases until the Frontier is drained or stopped."""
        while True:
            try:
                yield await self.lease()
            except Drained:
                return

    def schedule(self, candidates: Sequence[Candidate], found_on: Lease | None = None) -> list[Verdict]:
        """As `Frontier.schedule`; wakes waiting tasks."""
        return self._then_pump(lambda: self.core.schedule(candidates, found_on))

    async def lease(self) -> Lease:
        """The next URL that may be fetched, at once if there is one and nobody waits; waits as long as there is hope.

        A cancelled caller's lease is released. Raises: Drained, StoreUnavailable.
        """
        if not self._waiting and (lease := self._next()) is not None:
            return lease
        waiter: asyncio.Future[Lease] = self._loop.create_future()
        self._waiting.append(waiter)
        self._pump(was_asked=len(self._waiting) == 1)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                # A store that failed says so at every other call; this task was cancelled.
                with suppress(FrontierError):
                    self.release(waiter.result())
            raise

    def finish(self, lease: Lease, outcome: Outcome, discovered: Sequence[Candidate] = ()) -> list[Verdict]:
        """As `Frontier.finish`; wakes waiting tasks."""
        try:  # `_then_pump` in a page's way: the call is made for each
            return self.core.finish(lease, outcome, discovered)
        finally:
            self._pump()

    def release(self, lease: Lease) -> None:
        """As `Frontier.release`; wakes waiting tasks."""
        self._then_pump(lambda: self.core.release(lease))

    def renew(self, lease: Lease) -> Lease:
        """As `Frontier.renew`."""
        return self.core.renew(lease)

    def set_delay(self, gate: GateKey, delay_s: float) -> None:
        """As `Frontier.set_delay`; wakes waiting tasks."""
        self._then_pump(lambda: self.core.set_delay(gate, delay_s))

    def set_slots(self, gate: GateKey, slots: int | None) -> None:
        """As `Frontier.set_slots`; wakes waiting tasks."""
        self._then_pump(lambda: self.core.set_slots(gate, slots))

    def block(self, gate: GateKey, until_s: float) -> None:
        """As `Frontier.block`; the timer follows."""
        self._then_pump(lambda: self.core.block(gate, until_s))

    def unblock(self, gate: GateKey) -> None:
        """As `Frontier.unblock`; wakes waiting tasks."""
        self._then_pump(lambda: self.core.unblock(gate))

    def operate(self, command: Callable[[Operations], T]) -> T:
        """Let an operator's command run, such as `lambda operations: operations.resume(queue)`; wakes waiting tasks.

        The loop stands still until the store has written, mostly for some milliseconds. Raises: what the command raises.
        """
        return self._then_pump(lambda: command(self.core.operations))

    async def look(self, steps: Steps[T]) -> T:
        """What an operator looks at, such as `core.operations.looking.longest(20)`; meanwhile leases go on.

        Only questions that block leave the loop. Raises: what is looked at raises; StoreUnavailable once closed.
        """
        return await _beside(steps, self._then_pump)

    async def statistics(self) -> FrontierStatistics:
        """As `Frontier.statistics`, beside the crawl."""
        return await self.look(self.core.operations.looking.statistics())

    def stop_leasing(self) -> None:
        """Hand out no more leases: every waiting and later `lease()` raises `Drained`."""
        self._is_stopped = True
        self._pump()

    def pause_leasing(self) -> None:
        """Hand out no lease until `resume_leasing`; who waits goes on waiting. What is leased may be finished.

        A Frontier that is drained or stopped says so all the same. Idempotent.
        """
        self._is_paused = True
        self._pump()

    def resume_leasing(self) -> None:
        """Hand out leases again. Idempotent."""
        self._is_paused = False
        self._pump()

    async def flush(self) -> None:
        """Return when all that was said before is durable; the waiting is done off the loop. Raises: StoreUnavailable."""
        await asyncio.to_thread(self.core.wait_until_durable)
        self._then_pump(self.core.take_answers)

    async def close(self) -> None:
        """Stop leasing and close the Frontier, off the loop."""
        self.stop_leasing()
        self._is_open = False
        self._alarm.stop()
        await asyncio.to_thread(self.core.close)

    def _then_pump(self, call: Callable[[], T]) -> T:
        """Make a call that may bring a lease; whoever waits is served, or told of the error, whatever becomes of it."""
        try:
            return call()
        finally:
            self._pump()

    def _hear(self) -> None:
        """The store has answered, or a moment has come. If nobody waits for a lease there may still be a trouble to tell."""
        self._pump()
        if self._is_open:  # else the core belongs to the thread that opens or closes it
            with suppress(FrontierError):  # the next call says it, too
                self.core.take_answers()

    def _pump(self, *, was_asked: bool = False) -> None:
        """Hand leases to those who wait (`was_asked`: there is none just now), then set the alarm for the next moment."""
        if not self._waiting:
            return
        try:
            if was_asked or not self._serve():
                self._wait_on()
        except FrontierError as error:
            self._fail_all(error)  # it concerns all who wait

    def _serve(self) -> bool:
        """True if nobody waits any more."""
        while self._waiting:
            if not self._waiting[0].done():  # else its task was cancelled
                if (lease := self._next()) is None:
                    return False
                self._waiting[0].set_result(lease)
            self._waiting.popleft()
        return True

    @property
    def is_drained(self) -> bool:
        """Nothing is queued and nothing is leased, and nobody sends anything more."""
        return self.core.is_done

    def _next(self) -> Lease | None:
        if self._is_paused:
            self.core.take_answers()  # as `lease` does
        return None if self._is_paused or self._is_stopped else self.core.lease()

    def _wait_on(self) -> None:
        """There is no lease for those who wait: tell them if none will come, else set the alarm.

        Called after the core was asked for one, which takes the store's answers: the last URL may have died as a duplicate.
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


class AsyncShare(AsyncFrontier):
    """An `AsyncFrontier` to which others may send something. `open` must answer a Frontier with a `division`."""

    def __init__(self, open: Callable[[Callable[[], None]], Frontier]) -> None:  # noqa: A002 - as the base
        super().__init__(open)
        self._is_kept_open = True
        #: Called whenever it is noticed that nothing is queued, nothing is leased and somebody waits for a lease. It may not
        #: call the Frontier.
        self.on_drained: Callable[[], None] = lambda: None

    @property
    def exchange(self) -> LinkExchange:
        """With the other shares."""
        exchange = self.core.exchange
        assert exchange is not None, "a Frontier without a division has nobody to exchange with"
        return exchange

    def receive(self, consigned: Sequence[Consigned]) -> bool:
        """As `LinkExchange.receive`; wakes waiting tasks."""
        return self._then_pump(lambda: self.exchange.receive(consigned))

    def delivered(self, share: int, number: int) -> None:
        """As `LinkExchange.delivered`."""
        self._then_pump(lambda: self.exchange.delivered(share, number))

    def let_end(self) -> None:
        """Nobody sends anything more: from now on it is drained when nothing is queued and nothing is leased."""
        self._is_kept_open = False
        self._pump()

    @property
    def is_drained(self) -> bool:
        """Never before `let_end`."""
        return not self._is_kept_open and self.core.is_done

    def _wait_on(self) -> None:
        if self._is_kept_open and self.core.is_done:
            self.on_drained()
        super()._wait_on()


async def _opened(open_: Callable[[], Frontier]) -> Frontier:
    """Open it off the loop; a cancelled opening leaves nothing open."""
    loop = asyncio.get_running_loop()
    opening = loop.run_in_executor(None, open_)
    try:
        await asyncio.wait({opening})
    except asyncio.CancelledError as cancelled:
        await outlast(opening)  # a thread cannot be stopped
        if opening.exception() is None:
            closing = loop.run_in_executor(None, opening.result().close)
            await outlast(closing)
            raise cancelled from closing.exception()
        raise cancelled from opening.exception()
    return opening.result()


async def _beside(steps: Steps[T], call: Callable[[Callable[[], Any]], Any]) -> T:
    """Run the steps by `call`, their questions in other threads."""
    resume: Callable[[], Callable[[], Any]] = partial(next, steps)
    try:
        while True:
            question = call(resume)
            try:
                resume = partial(steps.send, await asyncio.to_thread(question))
            except Exception as error:  # noqa: BLE001  the steps may know what to do
                resume = partial(steps.throw, error)
    except StopIteration as end:
        answer: T = end.value
        return answer
    finally:
        steps.close()


class Bell:
    """Any thread rings, the loop hears. However often it is rung before it is heard, it is heard once."""

    def __init__(self, loop: AbstractEventLoop, hear: Callable[[], None]) -> None:
        self._loop = loop
        self._hear = hear
        self._is_rung = False

    def ring(self) -> None:
        """Have `hear` called by the loop; what was true before this call, it will see. Never waits, any thread."""
        if self._is_rung:
            return
        self._is_rung = True
        try:
            self._loop.call_soon_threadsafe(self._heard)
        except RuntimeError:
            return  # the loop is closed: nobody hears any more

    def _heard(self) -> None:
        self._is_rung = False  # before the look: whoever rings from now on may have come too late for it
        self._hear()


class Alarm:
    """One timer for a moment that moves. It never rings late; too early it may, so whoever hears it sets it again."""

    def __init__(self, loop: AbstractEventLoop, hear: Callable[[], None], now_s: Callable[[], float]) -> None:
        """`now_s` reads the clock that the moments are of."""
        self._loop = loop
        self._hear = hear
        self._now_s = now_s
        self._timer: TimerHandle | None = None
        self._at_s = 0.0  #: when it rings

    @property
    def is_set(self) -> bool:
        """It will ring."""
        return self._timer is not None

    def set(self, at_s: float) -> None:
        """Ring at this moment at the latest. O(1), and for a later moment than it is set to already next to nothing."""
        if self._timer is not None:
            if self._at_s <= at_s:
                return
            self._timer.cancel()
        self._at_s = at_s
        self._timer = self._loop.call_later(max(at_s - self._now_s(), 0.0), self._ring)

    def stop(self) -> None:
        """Ring no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self) -> None:
        self._timer = None
        self._hear()
