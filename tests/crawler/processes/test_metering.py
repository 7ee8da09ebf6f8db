"""Limits that hold for a job of several processes."""

import asyncio

from anabranch.crawler.processes.metering import BytesLimit, PageTickets


async def settle() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def take(tickets: PageTickets, share: int) -> asyncio.Task[None]:
    task = asyncio.create_task(tickets.take(share))
    await settle()
    return task


async def test_there_are_as_many_tickets_as_pages_are_left() -> None:
    """In all shares together; one that is given back is another's."""
    reached: list[bool] = []
    tickets = PageTickets(5, 2, lambda: reached.append(True))
    tickets.begin(0, done=2)
    first = await take(tickets, 0)
    assert not first.done(), "it is not known yet what the other share has"
    tickets.begin(1, done=1)
    second, third = await take(tickets, 1), await take(tickets, 1)
    await settle()
    assert (first.done(), second.done(), third.done()) == (True, True, False)
    tickets.settle(0, is_page=False)
    await settle()
    assert third.done()
    assert not reached
    tickets.settle(1, is_page=True)
    tickets.settle(1, is_page=True)
    assert reached


async def test_tickets_of_a_process_that_died_count_no_more() -> None:
    """What it had done is what its store says when it begins anew."""
    tickets = PageTickets(2, 1, lambda: None)
    tickets.begin(0, done=0)
    await take(tickets, 0)
    await take(tickets, 0)
    waiting = await take(tickets, 0)
    assert not waiting.done()
    tickets.begin(0, done=1)
    await settle()
    assert waiting.done()


async def test_a_limit_that_is_lifted_lets_all_through() -> None:
    """The operator has the crawl go on."""
    tickets = PageTickets(1, 1, lambda: None)
    tickets.begin(0, done=1)
    waiting = await take(tickets, 0)
    assert not waiting.done()
    tickets.lift()
    await settle()
    assert waiting.done()
    await tickets.take(0)


def test_bytes_are_those_of_all_shares_and_runs() -> None:
    """A share that begins anew says what its earlier runs fetched."""
    reached: list[bool] = []
    limit = BytesLimit(100, lambda: reached.append(True))
    limit.begin(0, 30)
    limit.begin(1, 0)
    limit.fetched(1, {"bytes": 60})
    assert not reached
    limit.begin(1, 65)
    limit.fetched(0, {"bytes": 5})
    assert reached
