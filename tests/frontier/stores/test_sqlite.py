"""What is SQLite's own: how the file is opened, whom it is kept from, what its errors mean."""

import sqlite3
from pathlib import Path

import pytest

from anabranch.frontier.errors import FormatMismatch, StoreDamaged, StoreFull, StoreInUse, StoreUnavailable
from anabranch.frontier.stores.sqlite import connected, fold_log, translated
from tests.frontier.stores.crawl_file import crawl
from tests.frontier.stores.rows import row


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "frontier.db"


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("journal_mode", "wal"),
        ("synchronous", 2),
        ("locking_mode", "exclusive"),
        ("secure_delete", 0),
        ("page_size", 4096),
    ],
)
def test_the_file_is_set_up_for_durable_commits(path: Path, setting: str, value: object) -> None:
    """A commit that has returned is on the disk, and nobody else looks into the file."""
    with connected(path, None) as connection:
        assert connection.exec_driver_sql(f"PRAGMA {setting}").scalar_one() == value


def test_a_second_connection_is_refused(path: Path) -> None:
    """In this process or in another: at its first statement."""
    with connected(path, None), pytest.raises(sqlite3.OperationalError) as refused, connected(path, None):
        pass
    failure = translated(path, refused.value)
    assert isinstance(failure, StoreInUse)
    assert str(failure) == f"{path}: another process holds it; end that one first"


def test_a_database_of_another_program_is_left_as_it_is(path: Path) -> None:
    """Its tables say nothing to us."""
    foreign = sqlite3.connect(path)
    foreign.execute("CREATE TABLE theirs (a)")
    foreign.close()
    before = path.read_bytes()
    with pytest.raises(FormatMismatch, match="database of another program"), connected(path, None):
        pass
    assert path.read_bytes() == before


def test_a_file_that_is_no_database_is_named(path: Path) -> None:
    """It is not overwritten."""
    path.write_bytes(b"a text, and long enough that it cannot be taken for an empty file" * 20)
    with pytest.raises(sqlite3.DatabaseError) as refused, connected(path, None):
        pass
    assert isinstance(translated(path, refused.value), StoreDamaged)


def test_a_full_file_is_told_as_full_and_keeps_what_it_had(path: Path) -> None:
    """The statement that finds no room comes past SQLAlchemy, so its error is the driver's own."""
    with crawl(path) as store:
        store.add(row(1))
        store.values("PRAGMA max_page_count = 40")
        with pytest.raises(sqlite3.OperationalError) as full:
            store.add(*[row(ordinal, payload=b"x" * 1000) for ordinal in range(2, 500)])
        failure = translated(path, full.value)
        assert isinstance(failure, StoreFull)
        assert "is full; make room and run again" in str(failure)
        assert store.values("SELECT count(*) FROM url") == [(1,)]


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    """SQLite itself would only say that it cannot open the file."""
    path = tmp_path / "nowhere" / "frontier.db"
    with pytest.raises(Exception) as refused, connected(path, None):  # noqa: PT011  SQLAlchemy's or the driver's
        pass
    failure = translated(path, refused.value)
    assert type(failure) is StoreUnavailable
    assert f"there is no folder {path.parent}" in str(failure)


def test_a_folded_log_is_empty(path: Path) -> None:
    """Everything is in the one file then."""
    with crawl(path) as store:
        store.add(row(1))
        log = path.with_name(path.name + "-wal")
        assert log.stat().st_size
        fold_log(store.connection)
        assert log.stat().st_size == 0
