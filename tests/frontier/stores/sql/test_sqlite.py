"""Rules of SQLite alone: how the file is opened, which other processes it excludes, what its errors mean."""

from __future__ import annotations

import errno
import os
import re
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from anabranch.frontier.composition import FrontierOrder, open_frontier
from anabranch.frontier.errors import FormatMismatch, StoreDamaged, StoreFull, StoreInUse, StoreUnavailable
from anabranch.frontier.records import Candidate
from anabranch.frontier.stores.sql import sqlite
from anabranch.frontier.stores.sql.sqlite import (
    OwnerFile,
    SqliteFile,
    connected,
    fold_log,
    log_of,
    log_pages,
    owner_line,
    read_seal,
    seal_of,
    translated,
    write_seal,
)
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


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="only Linux tells who holds a lock")
def test_the_process_that_writes_is_named(path: Path) -> None:
    """It may be stopped in a commit, and nobody else can write until it goes on."""
    with connected(path, None, is_shared=True):
        pass
    code = """if True:
        import sqlite3, sys, time
        sqlite3.connect(sys.argv[1], isolation_level=None).execute("BEGIN IMMEDIATE")
        print(flush=True)
        time.sleep(99)
    """
    with subprocess.Popen([sys.executable, "-c", code, path], stdout=subprocess.PIPE) as other:
        try:
            assert other.stdout is not None
            other.stdout.readline()
            with closing(sqlite3.connect(path, timeout=0)) as mine, pytest.raises(sqlite3.OperationalError) as refused:
                mine.execute("BEGIN IMMEDIATE")
            assert str(translated(path, refused.value)) == f"{path}: process {other.pid} holds it; end that one first"
        finally:
            other.kill()


def test_a_lack_of_memory_is_told_with_what_to_do(path: Path) -> None:
    """The driver raises MemoryError, with no words of its own."""
    failure = translated(path, MemoryError())
    assert type(failure) is StoreUnavailable
    assert str(failure) == f"{path}: not enough memory; raise the limit (ulimit -v), or free some, and run again"


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


ORDER = FrontierOrder(policy="host")


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """With three queued URLs, closed in order."""
    with open_frontier(tmp_path, ORDER) as frontier:
        frontier.schedule([Candidate(f"http://a.test/{page}") for page in ("one", "two", "three")])
    return tmp_path / "frontier.db"


def _changed(database: Path) -> None:
    """One letter of a queued URL is another one."""
    content = database.read_bytes()
    assert content.count(b"http://a.test/two") >= 1
    database.write_bytes(content.replace(b"http://a.test/two", b"http://a.test/twn"))


def test_a_sealed_file_is_gone_on_with(database: Path) -> None:
    """And sealed again at its end."""
    before = read_seal(database)
    with open_frontier(database.parent, ORDER) as frontier:
        assert frontier.counts().pending == 3
    after = read_seal(database)
    assert before is not None
    assert after is not None
    assert before[1]
    assert after == (before[0] + 1, True)


def test_a_url_that_the_disk_changed_is_damage(database: Path) -> None:
    """Nothing in SQLite would tell, and the page would be missing."""
    _changed(database)
    with pytest.raises(
        StoreDamaged, match=f"^{re.escape(str(database))}: it is not what was written to it; restore it"
    ):
        open_frontier(database.parent, ORDER)


def test_a_file_that_the_disk_cannot_read_is_damaged(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no matter of room, and another run reads no better."""

    def refuse(_: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(sqlite, "read_seal", refuse)
    message = f"{database}: cannot be read: Input/output error; restore it from a copy"
    with pytest.raises(StoreDamaged, match=f"^{re.escape(message)}$"):
        open_frontier(database.parent, ORDER)


def test_a_copy_that_was_made_while_the_file_was_open_may_be_restored(database: Path) -> None:
    """It has the epoch of the seal, and is not the file that was sealed. Without the seal its rows are counted."""
    files = [database, log_of(database)]
    with open_frontier(database.parent, ORDER) as frontier:
        frontier.schedule([Candidate("http://a.test/four")])
        frontier.flush()
        frontier.wait_until_durable()
        copy = [file.read_bytes() for file in files]
        frontier.schedule([Candidate("http://a.test/five")])
    for file, content in zip(files, copy, strict=True):
        file.write_bytes(content)
    with pytest.raises(
        StoreDamaged, match=r"from a copy, and remove frontier\.db\.seal if that copy was made while .*counted"
    ):
        open_frontier(database.parent, ORDER)
    seal_of(database).unlink()
    with open_frontier(database.parent, ORDER) as frontier:
        assert frontier.counts().pending == 4


def test_without_a_seal_the_rows_are_counted(database: Path) -> None:
    """After a kill: a URL that the disk changed is not the one that was seen."""
    seal_of(database).unlink()
    _changed(database)
    with pytest.raises(StoreDamaged, match=r"it is damaged \(the key of row \d+ is seen at None\); restore it"):
        open_frontier(database.parent, ORDER)


def test_a_seal_of_an_earlier_owner_counts_for_nothing(database: Path) -> None:
    """Somebody has opened the file since, and was killed."""
    kept = seal_of(database).read_bytes()
    engine = create_engine(f"sqlite:///{database}")
    with engine.begin() as connection:
        connection.execute(text("UPDATE crawl SET value = '77' WHERE name = 'epoch'"))
    engine.dispose()
    assert seal_of(database).read_bytes() == kept
    with open_frontier(database.parent, ORDER) as frontier:
        assert frontier.counts().pending == 3


@pytest.mark.parametrize("said", [b"", b"anabranch seal 1\n", b"\0" * 60])
def test_a_seal_that_cannot_be_read_is_none(database: Path, said: bytes) -> None:
    """The file itself may be whole."""
    seal_of(database).write_bytes(said)
    assert read_seal(database) is None
    open_frontier(database.parent, ORDER).close()


def test_a_file_without_a_seal_has_none(tmp_path: Path) -> None:
    """Nor has one that is not there."""
    assert read_seal(tmp_path / "file") is None
    (tmp_path / "file").write_bytes(b"content")
    write_seal(tmp_path / "file", 3)
    assert read_seal(tmp_path / "file") == (3, True)


@pytest.fixture
def database_path(tmp_path: Path) -> Path:
    return tmp_path / "frontier.db"


def test_the_line_names_process_host_and_time() -> None:
    """All that an operator needs to find the owner."""
    assert owner_line(0.0) == f"process {os.getpid()} on host {socket.gethostname()} since 1970-01-01 00:00:00 UTC"


def test_what_was_written_is_read(database_path: Path) -> None:
    """A later owner replaces it."""
    file = OwnerFile(database_path)
    assert file.read() is None
    file.write("process 1")
    file.write("process 2")
    assert OwnerFile(database_path).read() == "process 2"


def test_a_removed_line_is_gone(database_path: Path) -> None:
    """Removing it twice is harmless."""
    file = OwnerFile(database_path)
    file.write("process 1")
    file.remove()
    file.remove()
    assert not list(database_path.parent.iterdir())


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"process 1",
        b"anabranch owner 2\nprocess 1\n",
        b"anabranch owner 1",
        b"anabranch owner 1\n\n",
        b"\xff\xfe\n\n",
    ],
)
def test_a_file_that_is_not_ours_says_nothing(database_path: Path, content: bytes) -> None:
    """Another version, half a file, or something else: the refusal goes without a name."""
    database_path.with_name("frontier.db.owner").write_bytes(content)
    assert OwnerFile(database_path).read() is None


def test_a_line_that_cannot_be_removed_stays(database_path: Path) -> None:
    """It is harmless."""
    database_path.with_name("frontier.db.owner").mkdir()
    OwnerFile(database_path).remove()
    assert database_path.with_name("frontier.db.owner").is_dir()


@pytest.mark.parametrize("is_shared", [False, True])
def test_a_worker_waits_for_the_transaction_of_another_one(
    tmp_path: Path, is_shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sole owner is refused at once; for one of several the lock is a trouble that passes."""
    monkeypatch.setattr(sqlite, "SHARED_BUSY_S", 0.01)
    file = tmp_path / "frontier.db"
    one, other = SqliteFile(file, None, is_shared=True), SqliteFile(file, None, is_shared=is_shared)
    with one.connected() as holder, holder.begin():
        waiting = other.connected()
        with pytest.raises(sqlite3.OperationalError, match="locked") as raised:
            waiting.__enter__()
    assert other.is_passing(raised.value) is is_shared


def test_the_log_takes_a_part_of_the_room_only() -> None:
    """64 MiB where there is plenty; on a small or filling disk a quarter, in powers of two, and never less than 4 MiB."""
    mib = 1 << 20
    assert [log_pages(room * mib) * 4096 // mib for room in (10_000, 256, 255, 60, 16, 3, 0)] == [
        64,
        64,
        32,
        8,
        4,
        4,
        4,
    ]


def test_the_log_of_a_store_on_a_small_disk_is_folded_early(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By what is free when a transaction begins; a disk that does not tell has room."""
    free = [1 << 40]

    def statvfs(_folder: object) -> os.statvfs_result:
        if free[0] < 0:
            raise OSError
        return os.statvfs_result((1, 1, free[0], free[0], free[0], 0, 0, 0, 0, 255))

    monkeypatch.setattr(sqlite.os, "statvfs", statvfs)
    with SqliteFile(path, None).connected() as connection:
        for room, pages in ((1 << 40, 16_384), (32 << 20, 2_048), (-1, 16_384)):
            free[0] = room
            with connection.begin():
                assert connection.exec_driver_sql("PRAGMA wal_autocheckpoint").scalar_one() == pages
