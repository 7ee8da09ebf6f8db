"""The asyncio face: one pump, one timer, a first-come-first-served line of waiters."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping

import pytest

from anabranch.frontier.aio import Alarm, AsyncFrontier, Bell, Drained
from anabranch.frontier.errors import LeaseLost, StoreUnavailable, UnknownQueue
from anabranch.frontier.frontier import Frontier
from anabranch.frontier.parts import Steps, asked
from anabranch.frontier.policies.budgets import Budgets
from anabranch.frontier.records import GateKey, Lease, Outcome, OutcomeKind, QueueKey
from anabranch.frontier.scheduling.gates import Politeness
from anabranch.frontier.seen import SeenFilter
from anabranch.frontier.stores.contract import Answer, StoreFailed, Troubled
from anabranch.frontier.stores.memory.store import MemoryStore
from tests.frontier.builder import (
    HASTE,
    START_S,
    CountingStore,
    DelayingStore,
    ForgetfulFilter,
    Rig,
    build,
    candidates,
    pages,
)
from tests.patience import HANG_S

DONE = Outcome(kind=OutcomeKind.DONE)


async def opened(
    store: MemoryStore | None = None, seen: SeenFilter | None = None, *, haste: bool = True, **order: object
) -> tuple[AsyncFrontier, Rig]:
    """The face and what is behind it."""
    rigs: list[Rig] = []

    def open_(on_change: Callable[[], None]) -> Frontier:
        politeness = HASTE if haste else Politeness()
        rigs.append(build(store=store, seen=seen, on_change=on_change, **{"politeness": politeness, **order}))
        return rigs[0].core

    frontier = await AsyncFrontier(open_).__aenter__()
    return frontier, rigs[0]


async def settle() -> None:
    """Let everything run that can run without time."""
    for _ in range(5):
        await asyncio.sleep(0)


def waiters(frontier: AsyncFrontier, count: int) -> list[asyncio.Task[Lease]]:
    return [asyncio.create_task(frontier.lease()) for _ in range(count)]


async def caught_up(store: DelayingStore) -> None:
    """Let the store do all that it is told, and what follows from its answers."""
    for _ in range(6):
        store.flush()
        await settle()


async def test_a_lease_that_is_there_comes_at_once() -> None:
    """Nobody waits, no timer is armed."""
    frontier, _ = await opened()
    frontier.schedule(candidates("http://a.test/"))
    lease = await frontier.lease()
    assert lease.url == "http://a.test/"
    assert frontier._alarm._timer is None
    frontier.finish(lease, DONE)
    await frontier.close()


async def test_a_lease_that_is_there_is_handed_over_without_a_turn_of_the_loop() -> None:
    """A task that goes on at once costs neither a future nor a wake-up."""
    frontier, _ = await opened()
    frontier.schedule(candidates("http://a.test/"))
    with pytest.raises(StopIteration) as end:
        frontier.lease().send(None)
    assert end.value.value.url == "http://a.test/"
    await frontier.close()


async def test_who_comes_later_stands_behind_those_who_wait() -> None:
    """Though there is a lease by then: the pump has not run since."""
    frontier, rig = await opened()
    frontier.schedule(candidates("http://a.test/0"))
    lease = await frontier.lease()
    (early,) = waiters(frontier, 1)
    await settle()
    rig.core.schedule(candidates("http://b.test/1", "http://c.test/2"))
    late = await frontier.lease()
    assert (await early).url == "http://b.test/1"
    assert late.url == "http://c.test/2"
    frontier.finish(lease, DONE)
    await frontier.close()


async def test_a_store_that_fails_when_asked_for_a_lease_leaves_nobody_waiting() -> None:
    """The one who asked gets the error, and is not in the line any more."""
    store = MemoryStore()
    frontier, _ = await opened(store)
    store._answers.append(StoreFailed(StoreUnavailable("gone")))
    with pytest.raises(StoreUnavailable, match="gone"):
        await frontier.lease()
    assert not frontier._waiting
    await frontier.close()


async def test_leases_go_to_those_who_wait_in_their_order() -> None:
    """First come, first served."""
    frontier, _ = await opened()
    frontier.schedule(candidates("http://a.test/0"))
    first = await frontier.lease()
    tasks = waiters(frontier, 3)
    await settle()
    frontier.schedule(candidates("http://b.test/1"))
    frontier.schedule(candidates("http://c.test/2"))
    frontier.finish(first, DONE, candidates("http://a.test/3"))
    assert [(await task).url for task in tasks] == ["http://b.test/1", "http://c.test/2", "http://a.test/3"]
    await frontier.close()


async def test_many_waiters_are_served_by_one_pump_and_one_timer() -> None:
    """1000 tasks wait; each lease that comes back costs one look, not a thousand."""
    frontier, rig = await opened()
    frontier.schedule(candidates(*pages("a.test", 1000)))
    looks = 0
    lease_of_core = rig.core.lease

    def counted() -> Lease | None:
        nonlocal looks
        looks += 1
        return lease_of_core()

    rig.core.lease = counted  # type: ignore[method-assign]
    served = []

    async def work() -> None:
        lease = await frontier.lease()
        served.append(lease.url)
        await asyncio.sleep(0)
        frontier.finish(lease, DONE)

    async with asyncio.TaskGroup() as group:
        for _ in range(1000):
            group.create_task(work())
    assert served == pages("a.test", 1000)
    assert looks <= 1000 * 3, "one look to wait, two to be served and to find nothing more"
    await frontier.close()


async def test_a_cancelled_waiter_leaves_the_line() -> None:
    """The next one gets the lease."""
    frontier, _ = await opened()
    frontier.schedule(candidates(*pages("a.test", 2)))
    out = await frontier.lease()
    one, two = waiters(frontier, 2)
    await settle()
    one.cancel()
    await asyncio.gather(one, return_exceptions=True)
    frontier.finish(out, DONE)
    assert (await two).url == "http://a.test/page1"
    await frontier.close()


async def test_a_waiter_that_is_cancelled_with_its_lease_gives_it_back() -> None:
    """The lease was handed out in the same turn of the loop: it goes to the next in line."""
    frontier, rig = await opened()
    frontier.schedule(candidates(*pages("a.test", 2)))
    out = await frontier.lease()
    one, two = waiters(frontier, 2)
    await settle()
    frontier.finish(out, DONE)
    one.cancel()
    with pytest.raises(asyncio.CancelledError):
        await one
    assert (await two).url == "http://a.test/page1"
    assert rig.core.in_flight == 1
    await frontier.close()


async def served_by(store: DelayingStore, rig: Rig) -> None:
    """Go on until a lease was handed out; its task has not run yet."""
    for _ in range(50):
        store.flush()
        await asyncio.sleep(0)
        if rig.core.in_flight:
            return
    raise AssertionError("no lease")


async def test_a_cancelled_waiter_stays_cancelled_though_the_store_has_failed() -> None:
    """Giving its lease back fails; that error is told to others, this task was cancelled."""
    store = DelayingStore()
    frontier, rig = await opened(store)
    frontier.schedule(candidates("http://a.test/"))
    (task,) = waiters(frontier, 1)
    await settle()
    await served_by(store, rig)
    store.fail(StoreUnavailable("gone"))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(StoreUnavailable, match="gone"):
        await frontier.lease()
    await frontier.close()


async def test_a_waiter_that_is_cancelled_with_an_error_stays_cancelled() -> None:
    """There is no lease to give back."""
    store = DelayingStore()
    frontier, _ = await opened(store)
    frontier.schedule(candidates("http://a.test/"))
    (task,) = waiters(frontier, 1)
    await settle()
    store.fail(StoreUnavailable("gone"))
    frontier._pump()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await frontier.close()


async def test_when_all_is_done_every_waiter_is_told() -> None:
    """The last finish ends them, and whoever asks later."""
    frontier, _ = await opened()
    frontier.schedule(candidates("http://a.test/"))
    lease = await frontier.lease()
    tasks = waiters(frontier, 3)
    await settle()
    assert not any(task.done() for task in tasks)
    frontier.finish(lease, DONE)
    for task in tasks:
        with pytest.raises(Drained):
            await task
    with pytest.raises(Drained):
        await frontier.lease()
    await frontier.close()


async def test_when_the_last_url_dies_as_a_duplicate_every_waiter_is_told() -> None:
    """The store's answer is what ends the crawl: nobody waits for a gate that nothing stands behind."""
    store = DelayingStore()
    frontier, rig = await opened(store, ForgetfulFilter())
    frontier.schedule(candidates("http://a.test/"))
    (task,) = waiters(frontier, 1)
    await settle()
    await caught_up(store)
    lease = await task
    frontier.block(GateKey("a.test"), START_S + 3600.0)
    (task,) = waiters(frontier, 1)
    frontier.finish(lease, DONE, candidates("http://a.test/"))
    await settle()
    assert not task.done()
    assert rig.core.pending == 1
    store.flush()
    with pytest.raises(Drained):
        async with asyncio.timeout(HANG_S):
            await task
    await frontier.close()


async def test_stopping_ends_all_waiters_and_refuses_new_ones() -> None:
    """Though URLs are queued."""
    frontier, rig = await opened()
    frontier.schedule(candidates(*pages("a.test", 5)))
    out = await frontier.lease()
    (task,) = waiters(frontier, 1)
    await settle()
    frontier.stop_leasing()
    with pytest.raises(Drained):
        await task
    with pytest.raises(Drained):
        await frontier.lease()
    frontier.finish(out, DONE)
    assert rig.core.pending == 4
    await frontier.close()


async def test_iterating_gives_leases_until_all_is_done() -> None:
    """The loop ends by itself."""
    frontier, _ = await opened()
    frontier.schedule(candidates("http://a.test/"))
    fetched = []
    async for lease in frontier:
        fetched.append(lease.url)
        frontier.finish(lease, DONE, candidates("http://a.test/1", "http://b.test/"))
    assert sorted(fetched) == ["http://a.test/", "http://a.test/1", "http://b.test/"]
    await frontier.close()


async def test_the_timer_is_set_for_the_moment_that_the_core_names() -> None:
    """One timer, moved when the moment comes earlier, none when no time helps; rung too early it is set again."""
    frontier, rig = await opened(haste=False)
    frontier.schedule(candidates(*pages("a.test", 2)))
    lease = await frontier.lease()
    (task,) = waiters(frontier, 1)
    await settle()
    assert frontier._alarm._timer is None, "only the finish helps"
    frontier.finish(lease, Outcome(kind=OutcomeKind.DONE, start_s=START_S, end_s=START_S))
    first = frontier._alarm._timer
    assert first is not None
    assert first.when() - asyncio.get_running_loop().time() == pytest.approx(3.0, abs=1.0)
    frontier.set_delay(GateKey("a.test"), 20.0)
    rig.core.block(GateKey("a.test"), START_S + 60.0)
    frontier._pump()
    assert frontier._alarm._timer is first, "one that rings too early will do"
    frontier._alarm._ring()
    assert not task.done()
    assert frontier._alarm._timer.when() - asyncio.get_running_loop().time() == pytest.approx(60.0, abs=1.0)
    rig.clock.advance(60.0)
    frontier._pump()
    assert (await task).url == "http://a.test/page1"
    await frontier.close()


async def test_the_timer_wakes_the_line() -> None:
    """A gate that rests for a few milliseconds serves the next waiter by itself."""

    def open_(on_change: Callable[[], None]) -> Frontier:
        rig = build(politeness=Politeness(min_delay_s=0.005, max_delay_s=0.005), on_change=on_change)
        rig.core._clock = time.monotonic
        return rig.core

    async with AsyncFrontier(open_) as frontier:
        frontier.schedule(candidates(*pages("a.test", 3)))
        ends: list[float] = []
        async for lease in frontier:
            assert not ends or lease.since_s >= ends[-1] + 0.005
            ends.append(frontier.core.now_s())
            frontier.finish(lease, Outcome(kind=OutcomeKind.DONE, start_s=lease.since_s, end_s=ends[-1]))
        assert len(ends) == 3


async def test_answers_of_the_store_wake_the_line_from_its_thread() -> None:
    """The heads were on their way; the store's thread says that they are there."""
    store = DelayingStore()
    frontier, _ = await opened(store)
    frontier.schedule(candidates("http://a.test/"))
    (task,) = waiters(frontier, 1)
    await settle()
    for _ in range(2):  # the gate, then its lane's heads
        assert not task.done()
        thread = threading.Thread(target=store.flush)
        thread.start()
        thread.join()
        await settle()
    assert (await task).url == "http://a.test/"
    await frontier.close()


async def test_an_error_of_the_store_reaches_every_waiter() -> None:
    """Not only the next caller."""
    store = DelayingStore()
    frontier, _ = await opened(store)
    frontier.schedule(candidates("http://a.test/"))
    tasks = waiters(frontier, 3)
    await settle()
    tasks[1].cancel()
    store.fail(StoreUnavailable("gone"))
    for task in (tasks[0], tasks[2]):
        with pytest.raises(StoreUnavailable, match="gone"):
            await task
    await asyncio.gather(tasks[1], return_exceptions=True)
    gate = GateKey("a.test")
    for call in (
        lambda: frontier.schedule([]),
        lambda: frontier.set_delay(gate, 1.0),
        lambda: frontier.set_slots(gate, 1),
        lambda: frontier.block(gate, 1.0),
        lambda: frontier.unblock(gate),
        lambda: frontier.operate(lambda operations: operations.pause(QueueKey("a.test"))),
    ):
        with pytest.raises(StoreUnavailable, match="gone"):
            call()
    await frontier.close()


async def test_a_released_lease_goes_to_the_next_in_line() -> None:
    """Unprocessed, at once."""
    frontier, _ = await opened(haste=False)
    frontier.schedule(candidates("http://a.test/"))
    lease = await frontier.lease()
    (task,) = waiters(frontier, 1)
    await settle()
    frontier.release(lease)
    assert (await task).url == lease.url
    await frontier.close()


# What wakes those who wait


async def waiting_for_a(**order: object) -> tuple[AsyncFrontier, Rig, Lease, asyncio.Task[Lease]]:
    """One URL of a.test is leased, and a task waits for one of the others; nothing but a change helps."""
    frontier, rig = await opened(haste=False, policy="bkdr:97", **order)
    frontier.schedule(candidates(*pages("a.test", 5)))
    lease = await frontier.lease()
    (task,) = waiters(frontier, 1)
    await settle()
    assert not task.done()
    return frontier, rig, lease, task


async def test_a_slot_that_is_added_serves_the_next_in_line() -> None:
    """At once."""
    frontier, _, lease, task = await waiting_for_a()
    frontier.set_slots(GateKey("a.test"), 2)
    assert (await task).url != lease.url
    await frontier.close()


async def test_a_gate_that_is_unblocked_serves_the_next_in_line() -> None:
    """At once; while it was blocked, the timer stood at its end."""
    frontier, _ = await opened()
    frontier.schedule(candidates(*pages("a.test", 2)))
    frontier.block(GateKey("a.test"), START_S + 60.0)
    (task,) = waiters(frontier, 1)
    await settle()
    timer = frontier._alarm._timer
    assert timer is not None
    assert timer.when() - asyncio.get_running_loop().time() == pytest.approx(60.0, abs=1.0)
    frontier.unblock(GateKey("a.test"))
    assert (await task).url == "http://a.test/page0"
    await frontier.close()


async def test_a_block_moves_the_timer() -> None:
    """At most once somebody is woken for a moment at which nothing will happen."""
    frontier, _, lease, task = await waiting_for_a()
    frontier.finish(lease, Outcome(OutcomeKind.DONE, start_s=START_S, end_s=START_S))
    first = frontier._alarm._timer
    assert first is not None
    frontier.block(GateKey("a.test"), START_S + 600.0)
    frontier._alarm._ring()
    assert frontier._alarm._timer is not None
    assert frontier._alarm._timer.when() - first.when() == pytest.approx(597.0, abs=1.0)
    frontier.stop_leasing()
    await asyncio.gather(task, return_exceptions=True)
    await frontier.close()


async def test_a_crawl_delay_that_is_taken_back_serves_the_next_in_line() -> None:
    """With it the gate has one slot, without it two."""
    frontier, rig = await opened(policy="bkdr:97", politeness=Politeness(slots=2))
    frontier.set_delay(GateKey("a.test"), 20.0)
    frontier.schedule(candidates(*pages("a.test", 5)))
    lease = await frontier.lease()
    (task,) = waiters(frontier, 1)
    await settle()
    assert not task.done()
    frontier.set_delay(GateKey("a.test"), 0.0)
    assert (await task).url != lease.url
    assert rig.core.in_flight == 2
    await frontier.close()


async def test_an_operators_command_wakes_those_who_wait() -> None:
    """A queue that is resumed is served at once; the command's answer comes back."""
    frontier, _ = await opened()
    frontier.schedule(candidates("http://a.test/"))
    frontier.operate(lambda operations: operations.pause(QueueKey("a.test")))
    (task,) = waiters(frontier, 1)
    await settle()
    assert not task.done()
    assert frontier.operate(lambda operations: operations.explain("a.test")).state == "paused"
    frontier.operate(lambda operations: operations.resume(QueueKey("a.test")))
    assert (await task).url == "http://a.test/"
    await frontier.close()


async def test_an_operators_command_ends_those_who_wait_if_nothing_is_left() -> None:
    """The last URLs are removed, or their queue is retired."""
    frontier, rig = await opened()
    frontier.schedule(candidates("http://a.test/", "http://b.test/"))
    frontier.block(GateKey("a.test"), START_S + 60.0)
    frontier.block(GateKey("b.test"), START_S + 60.0)
    (task,) = waiters(frontier, 1)
    await settle()
    assert frontier.operate(lambda operations: operations.remove(lambda url: "a.test" in url)) == 1
    assert not task.done()
    frontier.operate(lambda operations: operations.retire(QueueKey("b.test")))
    with pytest.raises(Drained):
        await task
    assert rig.core.operations.statistics().retired == 1
    await frontier.close()


async def test_a_command_that_fails_is_the_operators_error() -> None:
    """Those who wait go on waiting."""
    frontier, _, _, task = await waiting_for_a()
    with pytest.raises(UnknownQueue):
        frontier.operate(lambda operations: operations.pause(QueueKey("nobody")))
    assert not task.done()
    frontier.stop_leasing()
    await asyncio.gather(task, return_exceptions=True)
    await frontier.close()


async def test_a_crawl_whose_last_queue_is_over_its_budget_ends() -> None:
    """That is found only when its row is read; nobody waits for ever."""
    frontier, rig = await opened(budgets=Budgets(total_budget=0))
    frontier.schedule(candidates("http://a.test/"))
    with pytest.raises(Drained):
        async with asyncio.timeout(HANG_S):
            await frontier.lease()
    assert rig.core.operations.statistics().retired == 1
    await frontier.close()


async def test_a_crawl_whose_last_queue_is_over_its_budget_ends_though_the_store_is_slow() -> None:
    """It ends when the store has answered how much is retired."""
    store = DelayingStore()
    frontier, _ = await opened(store, budgets=Budgets(total_budget=0))
    frontier.schedule(candidates("http://a.test/"))
    (task,) = waiters(frontier, 1)
    await settle()
    await caught_up(store)
    assert task.done()
    with pytest.raises(Drained):
        await task
    await frontier.close()


async def test_a_lease_that_expires_goes_to_the_next_in_line() -> None:
    """The timer stands at its end; a renewal moves it, and what was lost cannot be finished."""
    frontier, rig = await opened(lease_s=2400.0)
    frontier.schedule(candidates("http://a.test/"))
    lease = await frontier.lease()
    rig.clock.advance(2000.0)
    lease = frontier.renew(lease)
    (task,) = waiters(frontier, 1)
    await settle()
    assert frontier._alarm._timer is not None
    assert frontier._alarm._timer.when() - asyncio.get_running_loop().time() == pytest.approx(2400.0, abs=1.0)
    rig.clock.advance(2400.0)
    frontier._pump()
    again = await task
    assert again.url == lease.url
    with pytest.raises(LeaseLost):
        frontier.finish(lease, DONE)
    with pytest.raises(LeaseLost):
        frontier.renew(lease)
    frontier.finish(again, DONE)
    with pytest.raises(Drained):
        await frontier.lease()
    await frontier.close()


class HeldStore(DelayingStore):
    """Catches up when the test lets it; counts those who wait for that."""

    def __init__(self) -> None:
        super().__init__()
        self.may_write = threading.Event()
        self.flushes = 0

    def flush(self) -> None:
        self.flushes += 1
        self.may_write.wait()
        super().flush()


async def test_a_flush_waits_off_the_loop_for_what_was_said_before_it() -> None:
    """The loop runs on, the store is asked once, and what is said meanwhile is not waited for."""
    store = HeldStore()
    frontier, rig = await opened(store)
    frontier.schedule(candidates("http://a.test/"))
    flushing = asyncio.create_task(frontier.flush())
    while not store.flushes:
        await asyncio.sleep(0)
    assert not flushing.done()
    store.may_write.set()
    await flushing
    assert (store.flushes, rig.core.unacknowledged.durable) == (1, 1)
    await frontier.close()


async def test_a_flush_of_a_store_that_failed_says_so_to_all() -> None:
    """To the caller, and to those who wait for a lease."""
    store = DelayingStore()
    frontier, _ = await opened(store)
    frontier.schedule(candidates("http://a.test/"))
    (task,) = waiters(frontier, 1)
    await settle()
    store._told.append(StoreFailed(StoreUnavailable("gone")))
    with pytest.raises(StoreUnavailable, match="gone"):
        await frontier.flush()
    with pytest.raises(StoreUnavailable, match="gone"):
        await task
    await frontier.close()


async def test_flush_returns_when_all_is_durable() -> None:
    """Off the loop; afterwards everything said is acknowledged."""
    store = DelayingStore()
    frontier, rig = await opened(store)
    frontier.schedule(candidates("http://a.test/"))
    assert rig.core.unacknowledged.durable == 0
    await frontier.flush()
    assert rig.core.unacknowledged.durable == rig.core.unacknowledged.last == 1
    await frontier.close()


async def test_leaving_the_block_ends_waiters_cancels_the_timer_and_closes() -> None:
    """The store is closed clean."""
    store = CountingStore()
    core = build(store=store).core
    async with AsyncFrontier(lambda on_change: core) as frontier:
        frontier.schedule(candidates("http://a.test/"))
        core.block(GateKey("a.test"), START_S + 60.0)
        (task,) = waiters(frontier, 1)
        await settle()
        timer = frontier._alarm._timer
        assert timer is not None
    with pytest.raises(Drained):
        await task
    assert timer.cancelled()
    assert store.closed == [True]


async def test_a_trouble_of_the_store_is_told_though_nobody_waits_for_a_lease() -> None:
    """Every worker may be at a page when the disk is full; a failure is then for the next call, not for the loop."""
    store, told = DelayingStore(), list[str]()
    frontier, _ = await opened(store)
    frontier.core.on_trouble(told.append)
    store._told += [Troubled("the store: the disk is full", 30.0)]
    frontier._bell.ring()
    await settle()
    assert told == ["the store: the disk is full"]
    store._told += [StoreFailed(StoreUnavailable("full"))]
    frontier._bell.ring()
    await settle()
    with pytest.raises(StoreUnavailable, match="full"):
        frontier.schedule(candidates("http://a.test/"))
    await frontier.close()


class SlowToClose(CountingStore):
    """Closes when the test lets it; notes who takes its answers from then on."""

    def __init__(self) -> None:
        super().__init__()
        self.is_closing = threading.Event()
        self.may_close = threading.Event()
        self.askers: list[threading.Thread] = []

    def take_answers(self) -> list[Answer]:
        if self.is_closing.is_set():
            self.askers.append(threading.current_thread())
        return super().take_answers()

    def close(self, *, clean: bool) -> None:
        self.is_closing.set()
        assert self.may_close.wait(10)
        super().close(clean=clean)


async def test_a_store_that_answers_while_it_is_closed_is_not_heard_on_the_loop() -> None:
    """The core belongs to the thread that closes it, and two threads must not take answers at once."""
    store = SlowToClose()
    frontier, _ = await opened(store)
    closing = asyncio.create_task(frontier.close())
    while not store.is_closing.is_set():
        await asyncio.sleep(0)
    frontier._bell.ring()
    await settle()
    store.may_close.set()
    await closing
    assert threading.main_thread() not in store.askers


# The opening


class HeldOpening:
    """An opening that ends when the test lets it, with a core over a store that counts how often it is closed."""

    def __init__(self, error: Exception | None = None) -> None:
        self.store = CountingStore()
        self.thread: threading.Thread | None = None
        self.has_begun = threading.Event()
        self.may_end = threading.Event()
        self._error = error

    def __call__(self, on_change: Callable[[], None]) -> Frontier:
        self.thread = threading.current_thread()
        self.has_begun.set()
        self.may_end.wait()
        if self._error is not None:
            raise self._error
        return build(store=self.store, on_change=on_change).core

    async def begun(self) -> None:
        while not self.has_begun.is_set():
            await asyncio.sleep(0)


async def entered(opening: HeldOpening) -> None:
    """Open, and leave at once."""
    async with AsyncFrontier(opening):
        pass


async def test_the_opening_is_off_the_loop() -> None:
    """However long it takes, signals and other tasks have their turn."""
    opening = HeldOpening()
    task = asyncio.create_task(entered(opening))
    await opening.begun()
    assert not task.done()
    opening.may_end.set()
    await task
    assert opening.thread is not threading.main_thread()
    assert opening.store.closed == [True]


async def test_an_opening_that_fails_is_the_callers_error() -> None:
    """The error is raised unchanged, and nothing is left to close."""
    opening = HeldOpening(StoreUnavailable("gone"))
    opening.may_end.set()
    with pytest.raises(StoreUnavailable, match="gone"):
        await entered(opening)
    assert opening.store.closed == []


async def test_a_cancelled_opening_is_awaited_and_what_it_opened_is_closed() -> None:
    """However often it is cancelled: a thread cannot be stopped, and an open store would bar the next owner."""
    opening = HeldOpening()
    task = asyncio.create_task(entered(opening))
    await opening.begun()
    for _ in range(2):
        task.cancel()
        await settle()
        assert not task.done()
    opening.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert opening.store.closed == [True]


async def test_a_cancelled_opening_that_fails_stays_cancelled() -> None:
    """The failure is told as the cause."""
    opening = HeldOpening(StoreUnavailable("gone"))
    task = asyncio.create_task(entered(opening))
    await opening.begun()
    task.cancel()
    await settle()
    opening.may_end.set()
    with pytest.raises(asyncio.CancelledError) as cancelled:
        await task
    assert isinstance(cancelled.value.__cause__, StoreUnavailable)


class AskedStore(MemoryStore):
    """Answers one kind of question only when the test says so; notes in which thread it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.may_answer = threading.Event()
        self.threads: list[threading.Thread] = []

    def tally(self) -> Mapping[str, int]:
        self.threads.append(threading.current_thread())
        assert self.may_answer.wait(10)
        return super().tally()

    async def asked(self) -> None:
        """The question has come to the store."""
        while not self.threads:
            await settle()


async def test_leases_go_on_while_the_store_is_asked_a_long_question() -> None:
    """The crawl stands still for nobody who only looks."""
    store = AskedStore()
    frontier, _ = await opened(store)
    frontier.schedule(candidates(*pages("a.test", 3)))
    looking = asyncio.create_task(frontier.statistics())
    await store.asked()
    async for lease in frontier:
        frontier.finish(lease, DONE)
    assert not looking.done()
    store.may_answer.set()
    statistics = await looking
    assert (statistics.done, store.threads[0] is threading.main_thread()) == (3, False)
    await frontier.close()


async def test_a_look_wakes_those_who_wait_for_what_it_brought() -> None:
    """Whatever the core learns between two of its steps, a lease may be in it."""
    frontier, _ = await opened()
    frontier.schedule(candidates("http://out.test/"))
    out = await frontier.lease()  # so that there is hope
    first, second = waiters(frontier, 2)
    await settle()
    was_served: list[bool] = []

    def steps() -> Steps[None]:
        frontier.core.schedule(candidates("http://a.test/"))
        yield from asked(int)
        was_served.append(first.done())
        frontier.core.schedule(candidates("http://b.test/"))

    await frontier.look(steps())
    await settle()
    assert (was_served, second.done()) == ([True], True)
    for lease in (out, first.result(), second.result()):
        frontier.finish(lease, DONE)
    await frontier.close()


async def test_a_look_may_meet_the_error_of_its_question_and_ask_another() -> None:
    """Steps in a loop may do it as steps without one do."""
    frontier, _ = await opened()

    def steps() -> Steps[str]:
        try:
            yield from asked(int, "x")
        except ValueError:
            return (yield from asked(str, 5))
        return "no error"

    assert await frontier.look(steps()) == "5"
    with pytest.raises(UnknownQueue, match="nobody"):
        await frontier.look(frontier.core.operations.views.view(QueueKey("nobody")))
    await frontier.close()


async def test_a_cancelled_look_leaves_the_frontier_as_it_was() -> None:
    """Its question is answered to nobody."""
    store = AskedStore()
    frontier, rig = await opened(store)
    frontier.schedule(candidates("http://a.test/"))
    looking = asyncio.create_task(frontier.statistics())
    await store.asked()
    looking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await looking
    store.may_answer.set()
    rig.core.operations.check()
    frontier.finish(await frontier.lease(), DONE)
    await frontier.close()


async def test_a_paused_frontier_hands_out_nothing_until_it_goes_on() -> None:
    """Tasks keep waiting, without a timer, and in their order."""
    frontier, _ = await opened(haste=False)
    frontier.pause_leasing()
    frontier.schedule(candidates("http://a.test/", "http://b.test/"))
    first, second = waiters(frontier, 2)
    await settle()
    assert not first.done()
    assert not second.done()
    assert frontier._alarm._timer is None
    frontier.resume_leasing()
    assert {(await first).url, (await second).url} == {"http://a.test/", "http://b.test/"}
    await frontier.close()


async def test_what_was_leased_before_a_pause_may_be_finished_in_it() -> None:
    """And what it discovers is queued, but not handed out."""
    frontier, _ = await opened()
    frontier.schedule(candidates("http://a.test/"))
    lease = await frontier.lease()
    frontier.pause_leasing()
    (waiting,) = waiters(frontier, 1)
    frontier.finish(lease, DONE, candidates("http://b.test/"))
    await settle()
    assert not waiting.done()
    assert frontier.core.counts().pending == 1
    frontier.resume_leasing()
    assert (await waiting).url == "http://b.test/"
    await frontier.close()


async def test_a_paused_frontier_that_is_drained_says_so() -> None:
    """Nothing would come of going on."""
    frontier, _ = await opened()
    frontier.schedule(candidates("http://a.test/"))
    lease = await frontier.lease()
    (waiting,) = waiters(frontier, 1)
    frontier.pause_leasing()
    frontier.finish(lease, DONE)
    with pytest.raises(Drained):
        await waiting
    await frontier.close()


async def test_a_paused_frontier_hears_that_its_last_url_was_a_duplicate() -> None:
    """The store's answers are taken in a pause, too: the Frontier is drained by one of them."""
    store = DelayingStore()
    frontier, _ = await opened(store, ForgetfulFilter())
    frontier.schedule(candidates("http://a.test/"))
    (first,) = waiters(frontier, 1)
    await caught_up(store)
    lease = await first
    frontier.pause_leasing()
    (waiting,) = waiters(frontier, 1)
    frontier.finish(lease, DONE, candidates("http://a.test/"))
    await settle()
    await caught_up(store)
    with pytest.raises(Drained):
        await waiting
    store.flush()
    await frontier.close()


async def test_a_paused_frontier_can_be_stopped() -> None:
    """The end of a crawl does not wait for the operator."""
    frontier, _ = await opened()
    frontier.schedule(candidates("http://a.test/"))
    frontier.pause_leasing()
    (waiting,) = waiters(frontier, 1)
    frontier.stop_leasing()
    with pytest.raises(Drained):
        await waiting
    await frontier.close()


async def test_a_bell_that_is_rung_often_is_heard_once() -> None:
    """The store's thread may answer many times before the loop has its turn."""
    heard: list[int] = []
    bell = Bell(asyncio.get_running_loop(), lambda: heard.append(1))
    for _ in range(100):
        bell.ring()
    await settle()
    assert heard == [1]
    bell.ring()
    await settle()
    assert heard == [1, 1]


async def test_what_was_said_before_a_ring_is_seen_by_who_hears_it() -> None:
    """Also if the bell was rung while an earlier ring was being heard: no answer is left lying."""
    said: list[int] = []
    seen: list[int] = []
    has_all = asyncio.Event()

    def hear() -> None:
        seen.extend(said[len(seen) :])
        if len(seen) == 5000:
            has_all.set()

    bell = Bell(asyncio.get_running_loop(), hear)

    def say() -> None:
        for number in range(5000):
            said.append(number)
            bell.ring()

    thread = threading.Thread(target=say)
    thread.start()
    await asyncio.wait_for(has_all.wait(), HANG_S)
    thread.join()


def test_a_bell_rung_after_the_loop_has_ended_is_not_heard() -> None:
    """Nobody waits any more: no error in the store's thread."""
    ended = asyncio.new_event_loop()
    ended.close()
    Bell(ended, lambda: pytest.fail("heard")).ring()


async def test_an_alarm_moves_to_an_earlier_moment_only() -> None:
    """A moment that becomes later costs nothing: who hears the early ring sets it again."""
    rings: list[int] = []
    loop = asyncio.get_running_loop()
    alarm = Alarm(loop, lambda: rings.append(1), lambda: 100.0)
    alarm.set(160.0)
    first = alarm._timer
    assert first is not None
    assert first.when() - loop.time() == pytest.approx(60.0, abs=1.0)
    alarm.set(200.0)
    assert alarm._timer is first
    alarm.set(110.0)
    assert first.cancelled()
    assert alarm._timer is not None
    assert alarm._timer.when() - loop.time() == pytest.approx(10.0, abs=1.0)
    alarm.stop()
    assert not alarm.is_set


async def test_an_alarm_for_a_moment_that_is_over_rings_at_once() -> None:
    """And can be set again by who hears it."""
    rung = asyncio.Event()
    alarm = Alarm(asyncio.get_running_loop(), rung.set, lambda: 100.0)
    alarm.set(40.0)
    await asyncio.wait_for(rung.wait(), HANG_S)
    assert not alarm.is_set
