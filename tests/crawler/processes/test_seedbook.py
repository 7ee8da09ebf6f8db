"""The job's book of seeds as a share sees it."""

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from anabranch.crawler.job.seeds import Seed
from anabranch.crawler.outcomes.errors import StorageError
from anabranch.crawler.processes.channel import Channel, Message
from anabranch.crawler.processes.seedbook import SharedBook, seeds_of

KNOWN = Seed(url="http://a.test/", source="command line")
NEW = Seed(url="http://b.test/", source="redirect", via=KNOWN.url)


@asynccontextmanager
async def book(reply: Mapping[str, Any]) -> AsyncIterator[tuple[SharedBook, list[Seed]]]:
    """A book whose parent answers so, and what the parent was told."""
    told: list[Seed] = []

    async def write_down(message: Message) -> Mapping[str, Any]:
        told.extend(seeds_of(message.facts["seeds"]))
        return reply

    ends = [await Channel.over(end) for end in socket.socketpair()]
    running = [asyncio.create_task(end.run(write_down)) for end in ends]
    yield SharedBook([KNOWN], ends[0]), told
    for end in ends:
        await end.close()
    await asyncio.gather(*running)


async def test_a_new_seed_is_the_parents_to_write() -> None:
    """It is in the book when the parent says so to all, this share too: then all have it in one order."""
    async with book({}) as (shared, told):
        assert await asyncio.to_thread(shared.add, NEW)
        assert told == [NEW]
        assert NEW.url not in shared
        shared.note([NEW])
        assert list(shared) == [KNOWN, NEW]


async def test_a_known_seed_is_not_asked_about() -> None:
    """Its redirect may be met again and again."""
    async with book({}) as (shared, told):
        assert not await asyncio.to_thread(shared.add, KNOWN)
        assert told == []


async def test_a_seed_that_cannot_be_written_ends_no_page() -> None:
    """All that it leads to would be lost with it."""
    async with book({"error": "seeds.jsonl: no space left on device"}) as (shared, _):
        with pytest.raises(StorageError, match="no space"):
            await asyncio.to_thread(shared.add, NEW)
