"""Stores in which workers share a job: a file, or a database on the tests' server."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.postgres_server import server


@contextmanager
def shared_store(kind: str, folder: Path) -> Iterator[Path | str]:
    """A new one of this kind, empty."""
    if kind == "file":
        yield folder / "frontier.db"
        return
    with server() as url:
        yield url.replace(":@", "@")
