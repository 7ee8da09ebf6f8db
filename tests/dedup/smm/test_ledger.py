import errno
from pathlib import Path

import pytest

from anabranch.dedup.errors import FormatMismatch
from anabranch.dedup.smm import ledger
from anabranch.dedup.smm.ledger import Ledger


def made(folder: Path) -> Ledger:
    Ledger.create(folder, 10)
    return Ledger(folder, 10)


def again(folder: Path) -> Ledger:
    """The ledger, opened with nobody else there."""
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
    """A correction beside other writers leaves their number alone."""
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
        patch.setattr(ledger, "sync_path", fail)
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
