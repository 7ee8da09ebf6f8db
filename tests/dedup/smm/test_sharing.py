from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from anabranch.dedup.errors import FilterClosed, FilterInUse, FormatMismatch
from anabranch.dedup.smm import sharing
from anabranch.dedup.smm.sharing import Ledger, Sharing
from tests.acceptance.blocking import Process
from tests.acceptance.forkserver import DEDUP

ROOT = Path(__file__).resolve().parents[3]

TURN_TAKER = """
import sys
from pathlib import Path
from anabranch.dedup.smm.sharing import Sharing
sharing = Sharing(Path(sys.argv[1]))
with sharing:
    print("turn", flush=True)
    sys.stdin.read()
"""


def attended(folder: Path, *, alone: bool = False) -> tuple[Sharing, bool]:
    sharing = Sharing(folder)
    (folder / "file").touch()
    with sharing:
        is_first = sharing.attend(folder / "file", alone=alone)
    if alone:
        sharing.end_turns()
    return sharing, is_first


def test_the_first_knows_that_it_is_the_first(tmp_path: Path) -> None:
    """Until the last has closed, those who come are not."""
    one, first = attended(tmp_path / "s")
    other, second = attended(tmp_path / "s")
    with other:
        assert not other.is_alone()
    one.close()
    one.close()
    with other:
        assert other.is_alone()
    third, is_first = attended(tmp_path / "s")
    assert (first, second, is_first) == (True, False, False)
    with other:
        assert not other.is_alone()
    other.close()
    third.close()
    last, is_first = attended(tmp_path / "s")
    assert is_first
    last.close()


@pytest.mark.parametrize(("alone", "other_alone"), [(True, False), (False, True), (True, True)])
def test_alone_is_alone(tmp_path: Path, alone: bool, other_alone: bool) -> None:
    """A holder alone keeps others out, and is refused while others hold the folder."""
    one, _ = attended(tmp_path / "s", alone=alone)
    other = Sharing(tmp_path / "s")
    with other, pytest.raises(FilterInUse, match="is open elsewhere; end the process"):
        other.attend(tmp_path / "s" / "file", alone=other_alone)
    other.close()
    with one:
        assert one.is_alone()
    one.close()


def test_a_turn_excludes_others_and_ends_with_its_process(tmp_path: Path) -> None:
    """While one process has its turn no other gets one; killing it hands the turn over."""
    with Process(["-c", TURN_TAKER, str(tmp_path)], cwd=ROOT, stderr=None, preload=DEDUP) as child:
        assert child.stdout.readline() == "turn\n"
        fd = os.open(tmp_path, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(fd)
        child.kill()
    sharing = Sharing(tmp_path)
    with sharing:
        pass
    sharing.close()


def test_a_process_forked_off_has_no_turns(tmp_path: Path) -> None:
    """It would share its parent's locks, and so exclude no other process."""
    sharing, _ = attended(tmp_path)
    sharing._process += 1
    assert not sharing.is_this_process
    with pytest.raises(FilterClosed, match="forked off"), sharing:
        pass
    sharing.close()


def made(folder: Path) -> Ledger:
    Ledger.create(folder, 10)
    return Ledger(folder, 10)


def again(folder: Path) -> Ledger:
    """The ledger, opened by no other process."""
    opened = Ledger(folder, 10)
    opened.open_first()
    return opened


def test_what_is_written_lasts_and_is_seen_by_all(tmp_path: Path) -> None:
    """The body and the number of bits are shared by all maps of the file."""
    one = made(tmp_path)
    other = Ledger(tmp_path, 10)
    one.body[3] = 7
    one.begin_batch()
    one.end_batch(5)
    assert (other.body[3], other.bits_set) == (7, 5)
    one.end()
    one.close()
    one.close()
    other.close()
    last = again(tmp_path)
    assert (last.bits_set, last.count_is_rough) == (5, False)
    last.close()


def test_a_writer_that_never_ended_leaves_a_rough_count(tmp_path: Path) -> None:
    """One of two writers dies between batches: the other goes on, and the next opening knows."""
    one, other = made(tmp_path), Ledger(tmp_path, 10)
    for writer in (one, other):
        writer.begin_batch()
        writer.end_batch(1)
    assert not other.count_is_rough
    other.end()
    one.close()
    other.close()
    last = again(tmp_path)
    assert last.count_is_rough
    last.correct(2, is_alone=True)
    assert not last.count_is_rough
    last.end()
    last.close()
    clean = again(tmp_path)
    assert (clean.bits_set, clean.count_is_rough) == (2, False)
    clean.close()


def test_an_unfinished_batch_is_found_by_the_next_one(tmp_path: Path) -> None:
    """The count is rough until it is corrected, even if all others end well."""
    one, other = made(tmp_path), Ledger(tmp_path, 10)
    one.begin_batch()
    other.begin_batch()
    other.end_batch(1)
    assert other.count_is_rough
    other.end()
    one.close()
    other.close()
    last = again(tmp_path)
    assert last.count_is_rough
    last.close()


def test_others_that_write_go_on_being_counted_after_a_correction(tmp_path: Path) -> None:
    """A correction while others write leaves their number alone."""
    one, other = made(tmp_path), Ledger(tmp_path, 10)
    one.begin_batch()
    one.end_batch(1)
    other.correct(1, is_alone=False)
    other.end()
    other.close()
    one.close()
    last = again(tmp_path)
    assert last.count_is_rough
    last.close()


def test_a_writer_that_cannot_record_itself_has_not_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is counted, and synced, at the next attempt, once."""

    def fail(path: Path) -> None:
        raise OSError(errno.EIO, "broken")

    writer = made(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(sharing, "sync_path", fail)
        for _ in range(2):
            with pytest.raises(OSError, match="broken"):
                writer.begin_batch()
    writer.begin_batch()
    writer.end_batch(1)
    writer.end()
    writer.end()
    writer.close()
    last = again(tmp_path)
    assert not last.count_is_rough
    last.close()


@pytest.mark.parametrize("text", [b"", b"x" * 74, bytes(74), b"x" * 73, b"GPMMSANA" + bytes(66)])
def test_a_damaged_ledger_is_refused(tmp_path: Path, text: bytes) -> None:
    """Another size, magic or version is damage."""
    (tmp_path / "PAGES").write_bytes(text)
    with pytest.raises(FormatMismatch, match="damaged"):
        Ledger(tmp_path, 10)
