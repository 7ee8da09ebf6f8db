from __future__ import annotations

import ctypes
import errno
import mmap
import os
import resource
from pathlib import Path

import numpy as np
import pytest

from anabranch.dedup.errors import FormatMismatch, StoreFull
from anabranch.dedup.files import mapped
from anabranch.dedup.files.mapped import (
    MappedFiles,
    MappedLimit,
    MappedPlaces,
    allocate_by_fallocate,
    allocate_by_rewriting,
    allocate_pages,
    count_bits,
    data_ranges,
    resident_file_bytes,
)

PAGE = mmap.PAGESIZE


def test_files_lie_side_by_side_and_changes_reach_them(tmp_path: Path) -> None:
    """Byte j of file i is at i * stride + j; both maps of one file see each other."""
    paths = [tmp_path / str(i) for i in range(3)]
    for path in paths:
        path.write_bytes(bytes(PAGE))
    one, other = MappedFiles(paths, PAGE, 2 * PAGE), MappedFiles(paths, PAGE, PAGE)
    assert (one.stride, other.stride) == (2 * PAGE, PAGE)
    one.data[2 * one.stride + 5] = 7
    assert other.data[2 * other.stride + 5] == 7
    assert one.is_full == [True] * 3
    one.close()
    one.close()
    other.close()
    assert paths[2].read_bytes()[5] == 7
    assert paths[0].read_bytes() == paths[1].read_bytes() == bytes(PAGE)


def test_an_empty_file_gets_its_size_and_is_sparse(tmp_path: Path) -> None:
    """An empty file becomes one of full size without blocks."""
    path = tmp_path / "a"
    path.touch()
    files = MappedFiles([path], 100, PAGE)
    assert path.stat().st_size == 100
    assert files.is_full == [False]
    assert not files.data[:100].any()
    files.close()


def test_a_place_may_get_another_file(tmp_path: Path) -> None:
    """The place shows the file that was put there last; what was written to the one before has reached it."""
    places = MappedPlaces(2, PAGE, PAGE)
    for number, name in enumerate("abc"):
        (tmp_path / name).write_bytes(bytes(PAGE))
        fd = os.open(tmp_path / name, os.O_RDWR)
        assert places.put(1, tmp_path / name, fd)
        places.advise(1)
        os.close(fd)
        assert places.data[PAGE + 3] == 0
        places.data[PAGE + 3] = number + 1
    places.close()
    assert [(tmp_path / name).read_bytes()[3] for name in "abc"] == [1, 2, 3]


def test_a_size_that_may_not_be_is_said(tmp_path: Path) -> None:
    """A limit on file size is StoreFull, as a full disk is."""
    (tmp_path / "a").touch()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(StoreFull):
            MappedFiles([tmp_path / "a"], PAGE, PAGE)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_descriptors_are_closed_after_mapping(tmp_path: Path) -> None:
    """A map holds no descriptor: a process may have few of them."""
    paths = [tmp_path / str(i) for i in range(20)]
    for path in paths:
        path.touch()
    before = len(list(Path("/dev/fd").iterdir()))
    files = MappedFiles(paths, PAGE, PAGE)
    assert len(list(Path("/dev/fd").iterdir())) == before
    files.close()


def test_a_file_of_another_size_or_none_is_damage(tmp_path: Path) -> None:
    """The message names the file and both sizes."""
    path = tmp_path / "a"
    with pytest.raises(FormatMismatch, match="missing"):
        MappedFiles([path], PAGE, PAGE)
    path.write_bytes(b"12345")
    with pytest.raises(FormatMismatch, match=f"a has 5 bytes instead of {PAGE}"):
        MappedFiles([path], PAGE, PAGE)


def test_a_refused_map_is_an_oserror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of mmap(2) carries its errno."""

    class Refusing:
        @staticmethod
        def mmap(*args: object) -> int:
            ctypes.set_errno(errno.ENOMEM)
            return -1

    (tmp_path / "a").touch()
    monkeypatch.setattr(mapped, "_libc", Refusing)
    with pytest.raises(OSError, match="Cannot allocate"):
        MappedFiles([tmp_path / "a"], PAGE, PAGE)


def test_a_system_without_madvise_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MADV_RANDOM is advice, asked for where there is one."""
    (tmp_path / "a").touch()
    monkeypatch.delattr(mmap, "MADV_RANDOM", raising=False)
    files = MappedFiles([tmp_path / "a"], PAGE, PAGE)
    assert files.data.dtype == np.uint8
    files.close()


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


@pytest.mark.parametrize("allocate", [allocate_by_fallocate, allocate_by_rewriting])
def test_an_allocated_range_has_blocks_and_its_old_bytes(tmp_path: Path, allocate: mapped.Allocate) -> None:
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

    monkeypatch.setattr(mapped, "_allocate", allocate)
    assert allocate_pages(path, [0, 1, 2], 1) == 2
    with pytest.raises(StoreFull):
        allocate_pages(path, [2], 1)


needs_proc = pytest.mark.skipif(not resident_file_bytes(), reason="this system does not tell resident pages")


@needs_proc
def test_released_pages_are_not_resident_and_come_back_as_they_were(tmp_path: Path) -> None:
    """Also those that were changed and never synced; the file has them, too."""
    size = 1 << 24
    (tmp_path / "a").write_bytes(bytes(size))
    files = MappedFiles([tmp_path / "a"], size, PAGE)
    files.data[::PAGE] = 7
    full = resident_file_bytes()
    files.release_pages()
    assert full - resident_file_bytes() > size // 2
    assert (files.data[::PAGE] == 7).all()
    assert not files.data[1::PAGE].any()
    files.release_pages()
    files.close()
    assert (tmp_path / "a").read_bytes()[::PAGE] == bytes([7]) * (size // PAGE)


@needs_proc
def test_a_limit_releases_pages_only_when_more_of_them_are_resident(tmp_path: Path) -> None:
    """What is resident of others does not count. At the begin all are released, since an opening touches some."""
    size = 1 << 24
    (tmp_path / "a").write_bytes(bytes(size))
    files, released = MappedFiles([tmp_path / "a"], size, PAGE), []
    small, large = MappedLimit(size // 4, [files.release_pages, lambda: released.append(1)]), MappedLimit(2 * size, [])
    small.look()
    assert (small.times, released) == (0, [1])
    for turn in (1, 2):
        files.data[::PAGE] = turn
        small.look()
        small.look()
        large.look()
        assert (small.times, len(released), large.times) == (turn, turn + 1, 0)
    files.close()


def test_without_proc_nothing_is_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit has no effect there."""
    monkeypatch.setattr(mapped, "_STATM", tmp_path / "none")
    limit = MappedLimit(1, [])
    limit.look()
    assert resident_file_bytes() == limit.times == 0
