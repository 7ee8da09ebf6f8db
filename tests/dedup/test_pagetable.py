import errno
from pathlib import Path

import numpy as np
import pytest

from dedup import pagetable
from dedup.errors import FormatMismatch, StoreFull
from dedup.pagetable import PageTable, allocate_by_fallocate, allocate_by_rewriting, allocate_pages


@pytest.mark.parametrize("allocate", [allocate_by_fallocate, allocate_by_rewriting])
def test_an_allocated_range_has_blocks_and_its_old_bytes(tmp_path: Path, allocate: pagetable.Allocate) -> None:
    """Both ways give a hole blocks, and change no byte of it or of its surroundings."""
    path = tmp_path / "a"
    with path.open("wb") as file:
        file.truncate(1 << 20)
        file.seek(70_000)
        file.write(b"here")
    with path.open("r+b") as file:
        before = path.stat().st_blocks
        allocate(file.fileno(), 1 << 16, 1 << 14)
        allocate(file.fileno(), 1 << 18, 1 << 14)
        file.flush()
    assert path.stat().st_blocks >= before + 8
    assert path.read_bytes() == bytes(70_000) + b"here" + bytes((1 << 20) - 70_004)


def test_pages_allocated_before_the_disk_was_full_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pages done are counted, and only a call that does none raises."""
    path = tmp_path / "a"
    path.write_bytes(bytes(100))
    left = [1, 1]

    def allocate(fd: int, offset: int, length: int) -> None:
        if not left:
            raise OSError(errno.ENOSPC, "full")
        left.pop()

    monkeypatch.setattr(pagetable, "_allocate", allocate)
    assert allocate_pages(path, [0, 1, 2], 1) == 2
    with pytest.raises(StoreFull):
        allocate_pages(path, [2], 1)


def test_the_table_lasts_and_knows_whether_its_writer_ended_well(tmp_path: Path) -> None:
    """Present pages and the count survive; the count is rough until a writer has ended."""
    PageTable.create(tmp_path, 10)
    table = PageTable(tmp_path, 10)
    assert not table.count_is_rough
    assert table.doubtful(np.array([7, 3, 7])) == [3, 7]
    table.begin()
    table.begin()
    table.record([3])
    table.bits_set = 5
    assert table.doubtful(np.array([7, 3, 7])) == [7]
    again = PageTable(tmp_path, 10)
    assert again.count_is_rough
    again.close()
    table.end()
    table.end()
    table.close()
    last = PageTable(tmp_path, 10)
    assert (last.count_is_rough, last.bits_set, last.present.tolist().index(True)) == (False, 5, 3)
    assert last.doubtful(np.array([3])) == [3]
    last.close()


def test_a_writer_that_cannot_record_itself_has_not_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mark of use is set again, and synced, at the next attempt."""
    PageTable.create(tmp_path, 1)
    table = PageTable(tmp_path, 1)

    def fail(path: Path) -> None:
        raise OSError(errno.EIO, "broken")

    with monkeypatch.context() as patch:
        patch.setattr(pagetable, "sync_path", fail)
        for _ in range(2):
            with pytest.raises(OSError, match="broken"):
                table.begin()
    table.begin()
    table.end()
    table.close()


@pytest.mark.parametrize("text", [b"", b"x" * 74, bytes(74), b"x" * 73])
def test_a_damaged_table_is_refused(tmp_path: Path, text: bytes) -> None:
    """Another size, magic or version is damage."""
    (tmp_path / "PAGES").write_bytes(text)
    with pytest.raises(FormatMismatch, match="damaged"):
        PageTable(tmp_path, 10)
