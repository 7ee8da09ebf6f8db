"""A file or folder has one holder, until that lets go or ends."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from anabranch.dedup.errors import FilterInUse
from anabranch.dedup.files.locks import FolderLock, LockHeld, lock_file, lock_holder, try_lock


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

    monkeypatch.setattr("anabranch.dedup.files.locks.fcntl.flock", refuse)
    with pytest.raises(OSError, match="no locks"):
        FolderLock(tmp_path)


def test_a_locked_file_names_its_holder(tmp_path: Path) -> None:
    """A second holder is refused with the first one's id; once that closed the file, it is free."""
    path = tmp_path / "lock"
    fd = lock_file(path)
    with pytest.raises(LockHeld) as held:
        lock_file(path)
    assert held.value.process == os.getpid()
    assert path.stat().st_mode & 0o777 == 0o600
    os.close(fd)
    os.close(lock_file(path))


def test_a_holder_that_has_not_written_its_id_is_unknown(tmp_path: Path) -> None:
    """Whatever else the file says."""
    path = tmp_path / "lock"
    fd = lock_file(path)
    path.write_text("no number")
    with pytest.raises(LockHeld) as held:
        lock_file(path)
    assert held.value.process is None
    assert lock_holder(fd) is None
    os.close(fd)


def test_the_lock_of_a_file_that_was_removed_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next file of that name is locked instead: a lock without a name keeps no process out."""
    path = tmp_path / "lock"
    removed: list[int] = []

    def remove_first(fd: int) -> bool:
        if not removed:
            path.unlink()
        removed.append(fd)
        return try_lock(fd)

    monkeypatch.setattr("anabranch.dedup.files.locks.try_lock", remove_first)
    fd = lock_file(path)
    assert len(removed) == 2
    assert os.path.samestat(os.fstat(fd), path.stat())
    os.close(fd)


def test_a_disk_that_takes_half_leaves_no_wrong_holder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first digits would be the id of another process. An error names the file."""
    whole = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: whole(fd, data[: len(data) // 2 or 1], at))
    fd = lock_file(tmp_path / "lock")
    assert lock_holder(fd) == os.getpid()
    os.close(fd)

    def refuse(fd: int, length: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "ftruncate", refuse)
    with pytest.raises(OSError, match="full") as raised:
        lock_file(tmp_path / "lock")
    assert raised.value.filename == str(tmp_path / "lock")
