"""A database file that was closed in order has a seal; what a disk changes later is told as damage."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from anabranch.frontier.composition import FrontierOrder, open_frontier
from anabranch.frontier.errors import StoreDamaged
from anabranch.frontier.models import Candidate
from anabranch.frontier.stores import database as stores_database
from anabranch.frontier.stores.seal import read_seal, seal_of, write_seal
from anabranch.frontier.stores.sqlite import log_of

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
    assert before.is_whole
    assert after.is_whole
    assert after.epoch == before.epoch + 1


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

    monkeypatch.setattr(stores_database, "read_seal", refuse)
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
