import errno
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from anabranch.dedup.errors import FilterClosed, FilterInUse, FormatMismatch, StoreFull
from anabranch.dedup.files.formatfile import Parameters
from anabranch.dedup.similarity import url_db
from anabranch.dedup.similarity.url_db import UrlDb
from tests.patience import HANG_S

PARAMETERS: Parameters = {"features": "site tail", "expected": 10}


def opened(folder: Path) -> UrlDb:
    return UrlDb.open(folder / "db", PARAMETERS)


def test_urls_come_back_in_the_order_of_storing(tmp_path: Path) -> None:
    """The table keeps order and bytes as they are, also those that are no text."""
    with opened(tmp_path) as db:
        db.append([b"b/2", b"\xff\x00"], "site tail")
        db.append([b"", b"a/1"], "site tail")
        assert (list(db), len(db)) == ([b"b/2", b"\xff\x00", b"", b"a/1"], 4)
    with opened(tmp_path) as db:
        assert (list(db), len(db)) == ([b"b/2", b"\xff\x00", b"", b"a/1"], 4)


def test_the_table_is_as_published(tmp_path: Path) -> None:
    """Any SQLite reader finds URL_DB with the URL and the features used, and the FORMAT record."""
    with opened(tmp_path) as db:
        db.append([b"a/1"], "site tail")
    reader = sqlite3.connect(tmp_path / "db")
    assert reader.execute("SELECT url, features FROM URL_DB").fetchall() == [(b"a/1", "site tail")]
    ((record,),) = reader.execute("SELECT record FROM FORMAT").fetchall()
    assert json.loads(record) == {"magic": url_db.MAGIC, "version": url_db.VERSION, "parameters": PARAMETERS}
    reader.close()


def test_reading_goes_page_by_page_and_sees_what_is_stored_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unfinished reading holds no transaction: storing goes on meanwhile."""
    monkeypatch.setattr(url_db, "_READ_AT_ONCE", 2)
    with opened(tmp_path) as db:
        db.append([b"1", b"2", b"3"], "site")
        reading = iter(db)
        assert next(reading) == b"1"
        db.append([b"4"], "site")
        assert list(reading) == [b"2", b"3", b"4"]


def test_storing_nothing_opens_no_transaction(tmp_path: Path) -> None:
    """An empty batch costs nothing."""
    with opened(tmp_path) as db:
        before = (tmp_path / "db-wal").stat().st_size
        db.append([], "site")
        assert (len(db), (tmp_path / "db-wal").stat().st_size) == (0, before)


def test_what_append_stored_survives_a_kill(tmp_path: Path) -> None:
    """A batch that has returned is on the disk when the process dies at once; the lock dies with it."""
    program = (
        "import os, signal, sys; from pathlib import Path; from anabranch.dedup.similarity.url_db import UrlDb\n"
        f"db = UrlDb.open(Path(sys.argv[1]), {PARAMETERS!r})\n"
        "db.append([b'a', b'b'], 'site')\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    clone = Path(url_db.__file__).parents[2]
    command = [sys.executable, "-c", program, str(tmp_path / "db")]
    done = subprocess.run(command, check=False, env={**os.environ, "PYTHONPATH": str(clone)}, timeout=HANG_S)
    assert done.returncode == -signal.SIGKILL
    with opened(tmp_path) as db:
        assert list(db) == [b"a", b"b"]


def test_a_full_disk_stores_nothing_and_the_call_may_be_repeated(tmp_path: Path) -> None:
    """All or none: StoreFull names errno and file, and with room again the same call succeeds."""
    with opened(tmp_path) as db:
        db.append([b"first"], "site")
        url_db._set(db._connection, "PRAGMA max_page_count = 5")
        many = [b"%d" % number + b"x" * 1000 for number in range(100)]
        with pytest.raises(StoreFull, match="free space and repeat") as caught:
            db.append(many, "site")
        assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(tmp_path / "db"))
        assert (list(db), len(db)) == ([b"first"], 1)
        url_db._set(db._connection, "PRAGMA max_page_count = 1000")
        db.append(many, "site")
        assert len(list(db)) == len(db) == 101


def test_a_file_has_one_holder(tmp_path: Path) -> None:
    """A second opener is refused until the first one lets go."""
    first = opened(tmp_path)
    with pytest.raises(FilterInUse, match="open elsewhere"):
        opened(tmp_path)
    first.close()
    opened(tmp_path).close()


def test_a_closed_file_says_so(tmp_path: Path) -> None:
    """After close nothing is stored or read; closing twice is nothing."""
    db = opened(tmp_path)
    db.close()
    db.close()
    assert db._connection.closed
    with pytest.raises(FilterClosed, match="open it again"):
        db.append([b"a"], "site")
    with pytest.raises(FilterClosed):
        list(db)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"magic": "other"}, "is not the file of an anabranch URL_DB"),
        ({"version": 2}, "has version 2"),
        ({"parameters": {"features": "site tail", "expected": 11}}, "expected is 11 in the folder, 10 here"),
    ],
)
def test_another_format_is_refused_and_named(tmp_path: Path, change: dict[str, object], complaint: str) -> None:
    """Magic, version and each parameter must be equal."""
    opened(tmp_path).close()
    record = {"magic": url_db.MAGIC, "version": url_db.VERSION, "parameters": PARAMETERS} | change
    rewrite(tmp_path / "db", "UPDATE FORMAT SET record = ?", json.dumps(record))
    with pytest.raises(FormatMismatch, match=complaint):
        opened(tmp_path)


@pytest.mark.parametrize("text", ["no json", "[]", None])
def test_a_damaged_record_is_refused(tmp_path: Path, text: str | None) -> None:
    """The record is one JSON object."""
    opened(tmp_path).close()
    rewrite(tmp_path / "db", *(["DELETE FROM FORMAT"] if text is None else ["UPDATE FORMAT SET record = ?", text]))
    with pytest.raises(FormatMismatch, match="damaged"):
        opened(tmp_path)


def text_file(path: Path) -> None:
    path.write_text("not a database at all " * 100)


def database_of_others(path: Path) -> None:
    rewrite(path, "CREATE TABLE theirs (x)")


def format_of_others(path: Path) -> None:
    rewrite(path, "CREATE TABLE FORMAT (x)")


@pytest.mark.parametrize("make", [text_file, database_of_others, format_of_others])
def test_a_foreign_file_is_refused_and_left_as_it_was(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """Neither text nor the database of another program is touched."""
    make(tmp_path / "db")
    before = (tmp_path / "db").read_bytes()
    with pytest.raises(FormatMismatch, match="name another"):
        opened(tmp_path)
    assert (tmp_path / "db").read_bytes() == before


def test_an_empty_file_is_a_new_one(tmp_path: Path) -> None:
    """SQLite makes its file empty at first; a crash then leaves nothing to refuse."""
    (tmp_path / "db").touch()
    with opened(tmp_path) as db:
        assert len(db) == 0


def test_a_missing_folder_is_an_os_error_that_names_the_file(tmp_path: Path) -> None:
    """An error of opening carries errno and file name."""
    with pytest.raises(OSError, match="look at its folder") as caught:
        UrlDb.open(tmp_path / "none" / "db", PARAMETERS)
    assert (caught.value.errno, caught.value.filename) == (errno.EACCES, str(tmp_path / "none" / "db"))


def test_an_error_of_the_driver_itself_is_translated_too(tmp_path: Path) -> None:
    """Settings go past SQLAlchemy; an error without a code is an I/O error with errno and file name."""
    with pytest.raises(OSError, match="look at the disk") as caught, url_db._translating(tmp_path):
        raise sqlite3.InterfaceError("no code")
    assert (caught.value.errno, caught.value.filename) == (errno.EIO, str(tmp_path))


def rewrite(path: Path, statement: str, *values: str) -> None:
    writer = sqlite3.connect(path)
    writer.execute(statement, values)
    writer.commit()
    writer.close()
