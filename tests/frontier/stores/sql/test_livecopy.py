"""A copy of a store that another process writes to."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from anabranch.frontier.composition import open_frontier
from anabranch.frontier.errors import StoreDamaged, StoreInUse
from anabranch.frontier.frontier import Frontier
from anabranch.frontier.order import FrontierOrder
from anabranch.frontier.records import Candidate
from anabranch.frontier.stores.sql import livecopy, sqlite
from anabranch.frontier.stores.sql.livecopy import StoreDecides, copy_live

ORDER = FrontierOrder(policy="bkdr:8")


@pytest.fixture
def live(tmp_path: Path) -> Frontier:
    frontier = open_frontier(tmp_path / "live", ORDER)
    add(frontier, 0, 500)
    return frontier


def add(frontier: Frontier, first: int, last: int) -> None:
    frontier.schedule([Candidate(f"http://a.test/{number}") for number in range(first, last)])
    frontier.flush()


def copied(tmp_path: Path) -> int:
    """How many URLs a copy has, all of which fit together."""
    (tmp_path / "copy").mkdir(exist_ok=True)
    copy_live(tmp_path / "live" / "frontier.db", tmp_path / "copy" / "frontier.db")
    with open_frontier(tmp_path / "copy", ORDER, seen=StoreDecides()) as frontier:
        frontier.operations.check()
        return frontier.pending


def test_a_copy_has_all_that_is_durable(live: Frontier, tmp_path: Path) -> None:
    """Whether it is in the log or was folded into the file; the owner goes on."""
    assert copied(tmp_path) == 500
    add(live, 500, 600)
    shutil.rmtree(tmp_path / "copy")
    assert copied(tmp_path) == 600
    live.close()
    shutil.rmtree(tmp_path / "copy")
    assert copied(tmp_path) == 600


def test_what_is_written_during_the_copy_is_in_it_wholly_or_not_at_all(
    live: Frontier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log grows between the two files, and its end may be cut."""
    copy = shutil.copyfile

    def slow(source: Path, target: Path) -> None:
        copy(source, target)
        if source.name.endswith("-wal"):
            with target.open("r+b") as cut:
                cut.truncate(target.stat().st_size - 1000)
        else:
            add(live, 500, 1000)

    monkeypatch.setattr(livecopy.shutil, "copyfile", slow)
    assert 500 <= copied(tmp_path) <= 1000
    live.close()


def log_header(tmp_path: Path) -> bytes:
    return (tmp_path / "live" / "frontier.db-wal").read_bytes()[:32]


class Copying:
    """Copies made, with something said to happen after each of the store's file."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, happens: Callable[[], None]) -> None:
        self.sources: list[str] = []
        self._happens = happens
        self._copy = shutil.copyfile
        monkeypatch.setattr(livecopy.shutil, "copyfile", self._copied)

    def _copied(self, source: Path, target: Path) -> None:
        self._copy(source, target)
        self.sources.append(source.name)
        if not source.name.endswith("-wal"):
            self._happens()


def write_pages(live: Frontier, tmp_path: Path, pages: int) -> None:
    """Write so many pages to the log, and begin one transaction more."""
    log = tmp_path / "live" / "frontier.db-wal"
    written, first, header = 0, live.pending, log_header(tmp_path)
    while written < pages * 4096 and log_header(tmp_path) == header:
        before = log.stat().st_size
        add(live, first, first + 100)
        first += 100
        written += log.stat().st_size - before
    add(live, first, first + 1)


def test_the_log_is_begun_anew_later_while_a_copy_is_made(
    live: Frontier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the first copy is whole, however often the owner would have begun it anew; afterwards he does so as ever."""
    monkeypatch.setattr(sqlite, "LOG_PAGES", 40)
    add(live, 500, 501)
    add(live, 501, 502)  # the log is short
    copying = Copying(monkeypatch, lambda: write_pages(live, tmp_path, 200))
    before = log_header(tmp_path)
    assert copied(tmp_path) >= 502
    assert copying.sources == ["frontier.db", "frontier.db-wal"]
    assert log_header(tmp_path) == before
    write_pages(live, tmp_path, 400)
    assert log_header(tmp_path) != before
    live.close()


def test_a_log_that_was_begun_anew_is_copied_again(
    live: Frontier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may not grow for ever. The file of before and the log of now do not fit together; after some tries it is told."""
    monkeypatch.setattr(sqlite, "LOG_PAGES", 40)
    monkeypatch.setattr(sqlite, "COPIED_LOG_PAGES", 80)
    writing = [400]
    copying = Copying(monkeypatch, lambda: write_pages(live, tmp_path, writing.pop() if writing else 0))
    assert copied(tmp_path) > 500
    assert copying.sources == ["frontier.db", "frontier.db-wal"] * 2
    writing += [400] * 100
    with pytest.raises(StoreInUse, match="written too fast"):
        copied(tmp_path)
    live.close()


def test_a_file_that_is_no_store_is_told(tmp_path: Path) -> None:
    """By its own name."""
    (tmp_path / "file").write_bytes(b"no database" * 1000)
    with pytest.raises(StoreDamaged, match=rf"^{tmp_path}/file: "):
        copy_live(tmp_path / "file", tmp_path / "copy")
