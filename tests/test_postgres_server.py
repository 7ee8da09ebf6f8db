"""Databases for tests: each test has an empty one, which nobody of an earlier test can reach."""

from __future__ import annotations

import pytest

from anabranch.frontier.errors import StoreUnavailable
from anabranch.frontier.stores.sql.store import SqlStore
from scripts.postgres_server import administer
from tests import postgres_server
from tests.frontier.stores.batches import batch, opened

ITSELF = "SELECT oid FROM pg_database WHERE datname = current_database()"
TABLES = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"


def test_a_store_that_a_test_has_left_open_cannot_reach_the_database_of_the_next_test() -> None:
    """The database is used again, empty. The store lost its connection, and its URL leads nowhere."""
    with postgres_server.server() as url:
        left = opened(SqlStore(url, retry_s=0.2))
        before = administer(url, ITSELF)
    with postgres_server.server() as url:
        assert administer(url, ITSELF) == before
        left.write(batch(1, [1]))
        with pytest.raises(StoreUnavailable, match=r'database "\w+" does not exist'):
            left.flush()
        assert administer(url, TABLES) == [(0,)]
    left.close(clean=False)


@pytest.mark.parametrize(
    "change", ["DROP DATABASE {} WITH (FORCE)", "CREATE SCHEMA more", "ALTER DATABASE {} SET work_mem = '1MB'"]
)
def test_a_database_that_cannot_be_emptied_is_not_used_again(change: str) -> None:
    """Its tables are not all that the test has changed."""
    with postgres_server.server() as url:
        before = administer(url, ITSELF)
        where = postgres_server._shared_server() if change.startswith("DROP") else url
        administer(where, change.format(url.rpartition("/")[2].partition("?")[0]))
    with postgres_server.server() as url:
        assert administer(url, ITSELF) != before
        assert administer(url, TABLES) == [(0,)]
