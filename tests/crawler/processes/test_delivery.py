"""A share's links on their way to another share."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from anabranch.crawler.processes import delivery
from anabranch.crawler.processes.delivery import Delivery
from anabranch.frontier.aio import AsyncShare
from anabranch.frontier.division.ownership import Division
from anabranch.frontier.division.parcels import unpacked
from anabranch.frontier.frontier import Frontier
from tests.frontier.builder import HASTE, build, candidates

DIVISION = Division(shares=2, share=0)
#: Hosts of the other share.
THERE = [host for host in (f"h{number}.test" for number in range(40)) if DIVISION.owner_of(host) == 1]


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is gathered: no test waits for time."""
    monkeypatch.setattr(delivery, "GATHER_S", 0.0)
    monkeypatch.setattr(delivery, "BUSY_GATHER_S", 0.0)


@asynccontextmanager
async def share() -> AsyncIterator[AsyncShare]:
    def open_(on_change: Callable[[], None]) -> Frontier:
        return build(politeness=HASTE, division=DIVISION, on_change=on_change).core

    async with AsyncShare(open_) as opened:
        yield opened  # type: ignore[misc]


class Receiver:
    """The other share; it takes what comes if it is there."""

    def __init__(self) -> None:
        self.is_there = True
        self.urls: list[str] = []
        self.asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def __call__(self, content: bytes) -> bool:
        self.asked.set()
        await self.may_answer.wait()
        if self.is_there:
            self.urls += [candidate.url for page in unpacked(content) for candidate in page.candidates]
        return self.is_there


@asynccontextmanager
async def sending(
    frontier: AsyncShare, receiver: Receiver
) -> AsyncIterator[tuple[Delivery, Callable[[], Awaitable[None]]]]:
    """A delivery at work, and what waits until it is clear."""
    clear = asyncio.Event()
    made = Delivery(frontier, 1, receiver)
    frontier.exchange.on_parcel(lambda _: made.wake())
    running = asyncio.create_task(made.run(clear.set))

    async def until_clear() -> None:
        while not made.is_clear:
            clear.clear()
            await clear.wait()

    try:
        yield made, until_clear
    finally:
        running.cancel()


def url(number: int) -> str:
    return f"http://{THERE[number % len(THERE)]}/{number}"


async def test_what_an_earlier_run_left_goes_first() -> None:
    """Nobody has to wake a delivery that begins."""
    receiver = Receiver()
    async with share() as frontier:
        frontier.schedule(candidates(url(1), url(2)))
        async with sending(frontier, receiver) as (_, until_clear):
            await until_clear()
        assert receiver.urls == [url(1), url(2)]
        assert frontier.exchange.waiting(1, 0, 10) == [], "what has arrived is taken away"


async def test_what_comes_while_one_is_under_way_goes_with_the_next() -> None:
    """One at a time; it is not clear before all are there."""
    receiver = Receiver()
    async with share() as frontier, sending(frontier, receiver) as (made, until_clear):
        await until_clear()
        receiver.may_answer.clear()
        frontier.schedule(candidates(url(1)))
        await receiver.asked.wait()
        frontier.schedule(candidates(url(2)))
        frontier.schedule(candidates(url(3)))
        assert not made.is_clear
        receiver.may_answer.set()
        await until_clear()
        assert receiver.urls == [url(1), url(2), url(3)]


async def test_what_a_share_does_not_take_is_kept_until_it_is_there_again() -> None:
    """It has died, or it is being opened: nothing is lost, and nobody asks again and again."""
    receiver = Receiver()
    async with share() as frontier, sending(frontier, receiver) as (made, until_clear):
        await until_clear()
        receiver.is_there = False
        frontier.schedule(candidates(url(1)))
        await receiver.asked.wait()
        await asyncio.sleep(0)
        assert not made.is_clear
        receiver.is_there = True
        made.wake()
        await until_clear()
        assert receiver.urls == [url(1)]
