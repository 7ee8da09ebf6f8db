"""Book-keeping goes to its end, whatever happens to whoever awaits it."""

import asyncio

import pytest

from anabranch.crawler.outcomes.errors import DiskFull
from anabranch.frontier.cancellation import or_closed, to_the_end
from tests.crawler.builder import settle


class Work:
    """Book-keeping that ends when the test says how: with a result, or with an error to raise."""

    def __init__(self) -> None:
        self._end = asyncio.get_running_loop().create_future()
        self.is_done = False

    async def __call__(self):
        result = await self._end
        self.is_done = True
        if isinstance(result, Exception):
            raise result
        return result

    def end(self, result=None):
        self._end.set_result(result)


async def awaited(work, *, cancels):
    """A task that awaits the work to its end, and was cancelled so often meanwhile."""
    task = asyncio.create_task(to_the_end(work()))
    await settle()
    for _ in range(cancels):
        task.cancel()
        await settle()
    return task


async def test_undisturbed_work_answers_as_it_is() -> None:
    """The result is the work's."""
    work = Work()
    task = await awaited(work, cancels=0)
    work.end(7)
    assert await task == 7


@pytest.mark.parametrize("cancels", [1, 2, 5])
async def test_work_is_finished_however_often_it_is_cancelled(cancels) -> None:
    """Only then the cancellation goes on."""
    work = Work()
    task = await awaited(work, cancels=cancels)
    assert not task.done()
    work.end(7)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert work.is_done
    assert task.cancelled()


@pytest.mark.parametrize("cancels", [0, 1, 2])
async def test_what_the_work_raises_comes_before_the_cancellation(cancels) -> None:
    """The error is not lost in it."""
    work = Work()
    task = await awaited(work, cancels=cancels)
    work.end(DiskFull("full"))
    with pytest.raises(DiskFull, match="full"):
        await task


async def test_a_cancellation_that_comes_with_the_end_goes_on() -> None:
    """Work that ended in the same turn has not swallowed it."""
    work = Work()
    task = await awaited(work, cancels=0)
    work.end(7)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert work.is_done


async def test_work_that_waits_often_is_finished_though_it_is_cancelled_each_time() -> None:
    """Also where it only lets others run."""
    turns = []

    async def work():
        for turn in range(3):
            await asyncio.sleep(0)
            turns.append(turn)
            await asyncio.to_thread(turns.append, turn)
        return turns

    task = asyncio.create_task(to_the_end(work()))
    await asyncio.sleep(0)
    while not task.done():
        task.cancel()
        await asyncio.sleep(0)
    assert task.cancelled()
    assert turns == [0, 0, 1, 1, 2, 2]


async def test_work_within_work_is_finished_too() -> None:
    """The cancellation goes on from the outer one."""
    work = Work()
    results = []

    async def outer():
        results.append(await to_the_end(work()))

    task = asyncio.create_task(to_the_end(outer()))
    await settle()
    task.cancel()
    await settle()
    work.end(7)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert results == [7]


@pytest.mark.parametrize("cancels", [0, 1])
async def test_what_the_work_waits_for_may_be_cancelled_by_others(cancels) -> None:
    """The work is told and may go on; that is no cancellation of its caller."""
    waited = asyncio.get_running_loop().create_future()

    async def work():
        try:
            await waited
        except asyncio.CancelledError:
            return "told"

    task = asyncio.create_task(to_the_end(work()))
    await settle()
    for _ in range(cancels):
        task.cancel()
    waited.cancel()
    await settle()
    if cancels:
        assert task.cancelled()
    else:
        assert task.result() == "told"


async def test_a_time_out_around_the_work_comes_after_its_end() -> None:
    """It is told from a cancellation by who set it, and leaves none behind."""
    work = Work()
    asyncio.get_running_loop().call_later(0.001, work.end)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await to_the_end(work())
    assert work.is_done
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()


async def test_work_whose_caller_is_thrown_away_is_closed() -> None:
    """Closing a coroutine that is no longer awaited closes the work inside."""
    closed = []

    async def work():
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            closed.append(True)

    caller = to_the_end(work())
    caller.send(None)
    caller.close()
    assert closed


class Opened:
    """Something that counts how often it is closed."""

    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


@pytest.mark.parametrize("cancels", [0, 1, 2])
async def test_what_was_opened_for_a_caller_that_was_cancelled_is_closed(cancels) -> None:
    """Nobody else knows of it; for one that was not it stays open."""
    work, opened = Work(), Opened()
    task = asyncio.create_task(or_closed(work()))
    await settle()
    for _ in range(cancels):
        task.cancel()
        await settle()
    assert not task.done()
    work.end(opened)
    if cancels:
        with pytest.raises(asyncio.CancelledError):
            await task
    else:
        assert await task is opened
    assert opened.closed == bool(cancels)


async def test_an_opening_that_fails_while_its_caller_is_cancelled_tells_why() -> None:
    """There is nothing to close."""
    work = Work()
    task = asyncio.create_task(or_closed(work()))
    await settle()
    task.cancel()
    work.end(DiskFull("full"))
    with pytest.raises(DiskFull, match="full"):
        await task
