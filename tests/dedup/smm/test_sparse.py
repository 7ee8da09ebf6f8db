import errno
import os
from pathlib import Path

import pytest

from anabranch.dedup.errors import FormatMismatch
from anabranch.dedup.smm.sparse import count_bits, data_ranges

SIZE = 1 << 20


@pytest.fixture
def sparse(tmp_path: Path) -> Path:
    """A file of 1 MiB with 3 bits at 300,000 and one at its end."""
    path = tmp_path / "a"
    with path.open("wb") as file:
        file.truncate(SIZE)
        file.seek(300_000)
        file.write(b"\x07")
        file.seek(SIZE - 1)
        file.write(b"\x80")
    return path


def ranges(path: Path) -> list[tuple[int, int]]:
    fd = os.open(path, os.O_RDONLY)
    try:
        return list(data_ranges(fd, path.stat().st_size))
    finally:
        os.close(fd)


def test_the_ranges_hold_all_data_and_leave_holes_out(sparse: Path) -> None:
    """Two places written, two ranges around them."""
    first, last = ranges(sparse)
    assert first[0] <= 300_000 < first[1] < last[0] < last[1] == SIZE
    assert first[1] - first[0] < SIZE // 2


def test_a_hole_has_no_ranges(tmp_path: Path) -> None:
    """Nothing written, nothing to read, whatever the size."""
    (tmp_path / "a").touch()
    os.truncate(tmp_path / "a", SIZE)
    assert ranges(tmp_path / "a") == []


def test_allocated_pages_count_as_holes_until_they_hold_bits(tmp_path: Path) -> None:
    """Bits written through a map into allocated blocks are found at once, before the system wrote them back."""
    import mmap

    path = tmp_path / "a"
    path.touch()
    os.truncate(path, SIZE)
    fd = os.open(path, os.O_RDWR)
    os.posix_fallocate(fd, 1 << 16, 1 << 14)
    with mmap.mmap(fd, SIZE) as mapped:
        mapped[(1 << 16) + 5] = 1
        found = ranges(path)
    os.close(fd)
    assert any(start <= (1 << 16) + 5 < stop for start, stop in found)
    assert count_bits(path, SIZE) == 1


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EIO])
def test_a_system_that_cannot_tell_gets_the_whole_file_read(
    sparse: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """EINVAL says that holes are not known; any other error is one."""

    def fail(*args: int) -> int:
        raise OSError(number, "no")

    monkeypatch.setattr(os, "lseek", fail)
    if number == errno.EINVAL:
        assert ranges(sparse) == [(0, SIZE)]
    else:
        with pytest.raises(OSError, match="no"):
            ranges(sparse)


def test_bits_are_counted_and_a_cut_file_is_damage(sparse: Path, tmp_path: Path) -> None:
    """An empty file has no bits; any other size but the right one is damage."""
    assert count_bits(sparse, SIZE) == 4
    (tmp_path / "b").touch()
    assert count_bits(tmp_path / "b", SIZE) == 0
    with pytest.raises(FormatMismatch, match=f"a has {SIZE} bytes instead of 5"):
        count_bits(sparse, 5)
