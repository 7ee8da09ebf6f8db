"""The shares as processes: what each is told, and when."""

import asyncio
import socket
from collections.abc import Mapping
from typing import Any

from anabranch.crawler.processes.channel import Channel, Message
from anabranch.crawler.processes.nursery import Nursery
from anabranch.crawler.processes.share import ENDED, START
from anabranch.crawler.processes.shares import Shares


class Born(Nursery):
    """Starts nothing: the test has the other ends."""

    def __init__(self) -> None:
        self.ends: asyncio.Queue[socket.socket] = asyncio.Queue()
        self.begun = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self.may_start = asyncio.Event()

    def start(self, end: socket.socket, loop: str) -> int:
        self._loop.call_soon_threadsafe(self.begun.set)
        asyncio.run_coroutine_threadsafe(self.may_start.wait(), self._loop).result()
        self._loop.call_soon_threadsafe(self.ends.put_nowait, end.dup())
        return 1


async def nothing(share: int, message: Message) -> None:
    """What shares say is of no interest."""


async def heard(end: socket.socket, count: int) -> list[tuple[str, Mapping[str, Any]]]:
    """The first messages of a process; then it ends in order."""
    said: list[tuple[str, Mapping[str, Any]]] = []
    has_all = asyncio.Event()

    async def hear(message: Message) -> None:
        said.append((message.kind, message.facts))
        if len(said) == count:
            has_all.set()

    channel = await Channel.over(end)
    listening = asyncio.create_task(channel.run(hear))
    await has_all.wait()
    channel.post(ENDED)
    await channel.close()
    await listening
    return said


async def test_what_is_said_to_all_while_a_process_is_started_is_among_what_it_is_told_first() -> None:
    """Such as a seed that another share has found: it stands in the book then, or comes after it."""
    nursery, book = Born(), ["a"]
    shares = Shares(1, "asyncio", nursery, lambda _: {"seeds": list(book)}, nothing)
    running = asyncio.create_task(shares.run())
    await nursery.begun.wait()
    book.append("b")
    await shares.tell_all("noted", seeds=["b"])
    nursery.may_start.set()
    (told,) = await heard(await nursery.ends.get(), 1)
    assert told == (START, {"share": 0, "seeds": ["a", "b"]})
    await running
