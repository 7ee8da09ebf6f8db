"""Messages between two processes, over a socket pair."""

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from anabranch.crawler.processes.channel import Channel, ChannelClosed, Handle, Message


async def nothing(message: Message) -> None:
    """Nobody is listening."""


@asynccontextmanager
async def pair(handle: Handle) -> AsyncIterator[tuple[Channel, Channel]]:
    """Two ends; what comes to the second is handled."""
    one, other = socket.socketpair()
    ends = await Channel.over(one), await Channel.over(other)
    running = [asyncio.create_task(ends[0].run(nothing)), asyncio.create_task(ends[1].run(handle))]
    try:
        yield ends
    finally:
        for end in ends:
            await end.close()
        await asyncio.gather(*running)


async def test_a_question_gets_its_own_answer() -> None:
    """However many are under way, and whichever is answered first."""
    gates = {number: asyncio.Event() for number in range(3)}

    async def answer(message: Message) -> Mapping[str, Any]:
        await gates[message.facts["number"]].wait()
        return {"number": message.facts["number"], "size": len(message.body)}

    async with pair(answer) as (asker, _):
        asked = [asyncio.create_task(asker.ask("number", b"." * (number << 20), number=number)) for number in gates]
        for number in reversed(gates):
            gates[number].set()
            assert await asked[number] == {"number": number, "size": number << 20}


async def test_messages_are_begun_in_their_order() -> None:
    """What is said first is handled first, as far as it waits for nothing."""
    heard: list[int] = []
    all_heard = asyncio.Event()

    async def hear(message: Message) -> None:
        heard.append(message.facts["number"])
        if len(heard) == 50:
            all_heard.set()

    async with pair(hear) as (sayer, _):
        for number in range(50):
            sayer.post("number", number=number)
        await all_heard.wait()
    assert heard == list(range(50))


async def test_a_last_word_is_heard() -> None:
    """Also if its sender hangs up at once."""
    heard: list[str] = []

    async def hear(message: Message) -> None:
        heard.append(message.kind)

    one, other = socket.socketpair()
    sayer, hearer = await Channel.over(one), await Channel.over(other)
    sayer.post("ended")
    await sayer.close()
    await hearer.run(hear)
    await hearer.close()
    assert heard == ["ended"]


async def test_who_asks_a_process_that_goes_is_told() -> None:
    """Nobody waits for an answer that cannot come; later questions fail at once, and what is said is lost."""
    asked = asyncio.Event()

    async def never(message: Message) -> None:
        asked.set()
        await asyncio.Event().wait()

    async with pair(never) as (asker, other):
        question = asyncio.create_task(asker.ask("anything"))
        await asked.wait()
        await other.close()
        with pytest.raises(ChannelClosed):
            await question
        asker.post("nothing")
        with pytest.raises(ChannelClosed):
            await asker.ask("more")
