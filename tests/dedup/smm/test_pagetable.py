import errno
from pathlib import Path

import numpy as np
import pytest

from anabranch.dedup.errors import StoreFull
from anabranch.dedup.smm import pagetable
from anabranch.dedup.smm.pagetable import PageTable, allocate_by_fallocate, allocate_by_rewriting, allocate_pages


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


def table(present: str) -> PageTable:
    return PageTable(np.array([page == "1" for page in present]))


def test_a_page_is_doubtful_until_it_is_allocated_here() -> None:
    """Presence is no proof; doubtful pages are named once and in order."""
    pages = table("10000000")
    assert pages.doubtful(np.array([7, 0, 3, 7])) == [0, 3, 7]
    pages.record([3, 7])
    assert pages.doubtful(np.array([7, 0, 3, 7])) == [0]
    assert np.flatnonzero(pages.present).tolist() == [0, 3, 7]


def test_present_pages_of_full_files_are_sure() -> None:
    """A file with all its blocks cannot fail; its pages without presence stay doubtful."""
    pages = table("0110")
    pages.trust(0, 2)
    assert pages.doubtful(np.arange(4)) == [0, 2, 3]


def test_all_pages_are_present_or_sure_when_the_last_one_is() -> None:
    """Each page counts once, however often it is recorded."""
    pages = table("110")
    pages.record([2])
    pages.record([2])
    pages.trust(0, 1)
    pages.trust(0, 1)
    assert (pages.all_present, pages.all_sure) == (False, False)
    pages.record([0, 1])
    assert (pages.all_present, pages.all_sure) == (True, True)
    assert table("11").all_present


def test_forgotten_pages_are_neither_present_nor_sure() -> None:
    """A place that gets another file starts anew."""
    pages = table("11")
    pages.record([0, 1])
    pages.forget(1, 2)
    assert (pages.all_present, pages.all_sure) == (False, False)
    assert pages.doubtful(np.array([0, 1])) == [1]
    assert pages.present.tolist() == [True, False]
    pages.record([1])
    assert pages.all_sure
