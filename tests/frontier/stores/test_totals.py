"""The totals of a store, read from its file."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from anabranch.frontier.errors import StoreUnavailable
from anabranch.frontier.stores.totals import closed_rows, kept_totals

ALL = "SELECT value FROM number"


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """A file in WAL mode whose last row is in the log, as SIGKILL leaves them."""
    file = tmp_path / "running.db"
    with closing(sqlite3.connect(file, isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("CREATE TABLE number (value)")
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        database.execute("INSERT INTO number VALUES (1)")
        for ending in ("", "-wal"):
            shutil.copyfile(f"{file}{ending}", tmp_path / f"killed.db{ending}")
    return tmp_path / "killed.db"


def files(of: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in of.parent.glob(f"{of.name}*")}


def test_the_log_of_a_killed_process_is_read_and_nothing_is_left(killed: Path) -> None:
    """Neither the file nor its log is changed."""
    before = files(killed)
    assert closed_rows(killed, ALL) == [(1,)]
    assert files(killed) == before


def test_a_file_without_a_log_is_read_alone(killed: Path) -> None:
    """SQLite would make a log and an index, where it may."""
    killed.with_name(f"{killed.name}-wal").write_bytes(b"")
    before = files(killed)
    assert closed_rows(killed, ALL) == []
    assert files(killed) == before


@pytest.mark.parametrize("content", [None, b"", b"no database" * 500])
def test_what_cannot_be_read_has_no_totals(tmp_path: Path, content: bytes | None) -> None:
    """Whoever needs them opens the store, which names the fault."""
    file = tmp_path / "frontier.db"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(StoreUnavailable):
        closed_rows(file, ALL)
    assert kept_totals(file) is None
    assert (file.exists(), [*tmp_path.iterdir()]) == (content is not None, [] if content is None else [file])
