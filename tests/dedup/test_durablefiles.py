import errno
import os
from pathlib import Path

import pytest

from anabranch.dedup.durablefiles import FolderLock, replace_file, telling_full, write_all, write_file
from anabranch.dedup.errors import DedupError, FilterInUse, StoreFull


def test_replacing_leaves_the_new_text_and_no_temporary_file(tmp_path: Path) -> None:
    """A replaced file holds the new text, and nothing else is left in the folder."""
    path = tmp_path / "a"
    path.write_bytes(b"old")
    replace_file(path, b"new")
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_replacement_keeps_the_old_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the new text cannot be synced, the old one stays and the temporary file goes."""

    def fail(fd: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    path = tmp_path / "a"
    path.write_bytes(b"old")
    monkeypatch.setattr("anabranch.dedup.durablefiles.sync_file", fail)
    with pytest.raises(StoreFull):
        replace_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_is_a_store_full_that_is_an_oserror(tmp_path: Path, number: int) -> None:
    """Callers may catch it as this room's error or as an OSError with errno and file name."""
    with pytest.raises(StoreFull) as caught, telling_full(tmp_path / "a"):
        raise OSError(number, "no room")
    assert isinstance(caught.value, DedupError)
    assert isinstance(caught.value, OSError)
    assert (caught.value.errno, caught.value.filename) == (number, str(tmp_path / "a"))


def test_other_errors_pass_unchanged(tmp_path: Path) -> None:
    """Only a lack of room is translated."""
    with pytest.raises(PermissionError), telling_full(tmp_path):
        raise PermissionError(errno.EACCES, "no")


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel may write less than it was given; the rest follows at its place."""
    whole = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: whole(fd, bytes(data)[:2], offset))
    path = tmp_path / "a"
    with path.open("wb") as file:
        write_all(file.fileno(), b"abcdefg", 1)
    assert path.read_bytes() == b"\0abcdefg"


@pytest.mark.parametrize("missing", ["fdatasync", "nothing"])
def test_files_are_synced_with_what_the_system_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    """Where fdatasync is missing, fsync serves."""
    called: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda fd: called.append("fsync"))
    monkeypatch.setattr(os, "fdatasync", lambda fd: called.append("fdatasync"))
    monkeypatch.delattr("anabranch.dedup.durablefiles.fcntl.F_FULLFSYNC", raising=False)
    if missing != "nothing":
        monkeypatch.delattr(os, missing)
    write_file(tmp_path / "a", b"x")
    assert called == ["fsync" if missing == "fdatasync" else "fdatasync"]


def test_macos_files_are_synced_down_to_the_medium(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where F_FULLFSYNC exists, it is used: fsync does not empty the drive's cache there."""
    called: list[int] = []
    monkeypatch.setattr("anabranch.dedup.durablefiles.fcntl.F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr("anabranch.dedup.durablefiles.fcntl.fcntl", lambda fd, command: called.append(command))
    write_file(tmp_path / "a", b"x")
    assert called == [51]


def test_a_folder_has_one_holder_until_it_is_released(tmp_path: Path) -> None:
    """A second lock is refused, naming the folder, until the first is released."""
    first = FolderLock(tmp_path)
    with pytest.raises(FilterInUse, match=str(tmp_path)):
        FolderLock(tmp_path)
    first.release()
    first.release()
    FolderLock(tmp_path).release()


def test_a_lock_that_the_system_refuses_is_an_oserror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system without locks is not "in use"."""

    def refuse(fd: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr("anabranch.dedup.durablefiles.fcntl.flock", refuse)
    with pytest.raises(OSError, match="no locks"):
        FolderLock(tmp_path)
