import ctypes
import errno
import mmap
import os
import resource
from pathlib import Path

import numpy as np
import pytest

from anabranch.dedup import mappedfiles
from anabranch.dedup.errors import FormatMismatch, StoreFull
from anabranch.dedup.mappedfiles import MappedFiles, MappedPlaces

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
    """What mmap(2) refuses is told with its errno."""

    class Refusing:
        @staticmethod
        def mmap(*args: object) -> int:
            ctypes.set_errno(errno.ENOMEM)
            return -1

    (tmp_path / "a").touch()
    monkeypatch.setattr(mappedfiles, "_libc", Refusing)
    with pytest.raises(OSError, match="Cannot allocate"):
        MappedFiles([tmp_path / "a"], PAGE, PAGE)


def test_a_system_without_madvise_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MADV_RANDOM is advice, asked for where there is one."""
    (tmp_path / "a").touch()
    monkeypatch.delattr(mmap, "MADV_RANDOM", raising=False)
    files = MappedFiles([tmp_path / "a"], PAGE, PAGE)
    assert files.data.dtype == np.uint8
    files.close()
