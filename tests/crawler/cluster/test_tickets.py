"""Limits of a whole job as rows: the tickets of its workers."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection

from anabranch.crawler.cluster.tickets import granted, keep_tickets, take_tickets, used
from anabranch.crawler.job.database import JobDatabase, execute, make_tables, put_fact
from anabranch.crawler.order.sections import UsedLimits
from tests.crawler.cluster.stores import shared_store


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
    assert used(connection) == UsedLimits(3, 300)


def test_blocks_shrink_with_what_is_left(connection: Connection) -> None:
    """So that few wait at a worker that does not need them."""
    assert take_tickets(connection, 1, 803, 1) == 100
    assert take_tickets(connection, 2, 803, 1) == 87
