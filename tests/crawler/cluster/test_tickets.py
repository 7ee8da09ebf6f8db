"""Limits of a whole job: tickets of workers, in memory and as rows."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection

from anabranch.crawler.cluster.database import JobDatabase, execute, make_tables, put_fact
from anabranch.crawler.cluster.tickets import WorkerTickets, granted, keep_tickets, take_tickets, used
from tests.crawler.cluster.stores import shared_store


async def test_a_visit_waits_until_its_worker_has_a_ticket() -> None:
    """One that brings no page gives its ticket to the next."""
    short: list[bool] = []
    tickets = WorkerTickets(lambda: short.append(True))
    first, second = (asyncio.create_task(tickets.take()) for _ in range(2))
    await asyncio.sleep(0)
    assert (tickets.short, len(short)) == (2, 2)
    tickets.grant(1)
    assert await first
    assert not second.done()
    tickets.settle(is_page=False)
    assert await second
    tickets.settle(is_page=True)
    tickets.grant(1)
    third = asyncio.create_task(tickets.take())
    await asyncio.sleep(0)
    assert not third.done()
    tickets.end()
    assert not await third


async def test_tickets_that_nothing_wants_are_given_back() -> None:
    """Not before a while without a want; those at visits stay."""
    tickets = WorkerTickets(lambda: None)
    tickets.grant(5)
    assert await tickets.take()
    assert tickets.give_back() is None
    assert tickets.give_back() == 1
    assert tickets.give_back() is None


async def test_without_a_limit_all_pass() -> None:
    """After the operator has resumed a crawl that its limit had paused."""
    tickets = WorkerTickets(lambda: None)
    waiting = asyncio.create_task(tickets.take())
    await asyncio.sleep(0)
    tickets.lift()
    assert await waiting
    assert await tickets.take()


@pytest.fixture(params=["file", "server"])
def connection(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Connection]:
    """A job of two workers that live, 1 and 2, and one that died with 3 pages."""
    with shared_store(request.param, tmp_path) as store, JobDatabase(store) as database:
        make_tables(database)
        with database.transaction() as opened:
            put_fact(opened, "id", "x")
            execute(opened, "CREATE TABLE worker (epoch bigint, done bigint, until_s float8)")
            for epoch, done, until_s in ((1, 0, 9e9), (2, 0, 9e9), (3, 3, 0.0)):
                execute(opened, "INSERT INTO worker VALUES (:e, :d, :u)", e=epoch, d=done, u=until_s)
                execute(
                    opened,
                    "INSERT INTO job_worker VALUES (:e, 'w', :t, 100, 0, 0, NULL, 0)",
                    e=epoch,
                    t=7 if epoch == 3 else 0,
                )
            yield opened


def test_no_more_tickets_than_pages_are_left(connection: Connection) -> None:
    """Those of a dead worker that brought no page are free again."""
    assert take_tickets(connection, 1, 10, 2) == 2
    assert take_tickets(connection, 2, 10, 4) == 2  # half of those that are left
    for _ in range(5):
        take_tickets(connection, 1, 10, 4)
        take_tickets(connection, 2, 10, 4)
    assert granted(connection, 1) + granted(connection, 2) == 7
    keep_tickets(connection, 2, 1)
    assert granted(connection, 2) == 1
    for _ in range(5):
        take_tickets(connection, 1, 10, 9)
    assert granted(connection, 1) == 6
    assert used(connection) == (3, 300)


def test_blocks_shrink_with_what_is_left(connection: Connection) -> None:
    """So that few wait at a worker that does not need them."""
    assert take_tickets(connection, 1, 803, 1) == 100
    assert take_tickets(connection, 2, 803, 1) == 87
