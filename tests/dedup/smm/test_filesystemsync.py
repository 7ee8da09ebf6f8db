import ctypes
import errno
import sys
from pathlib import Path

import pytest

from anabranch.dedup.smm import filesystemsync
from anabranch.dedup.smm.filesystemsync import sync_file_system


class Refusing:
    @staticmethod
    def syncfs(fd: int) -> int:
        ctypes.set_errno(errno.EIO)
        return -1


def test_linux_has_the_call(tmp_path: Path) -> None:
    """Elsewhere the files are synced one by one."""
    assert sync_file_system(tmp_path) == (sys.platform == "linux")


def test_a_system_without_the_call_is_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No error, but the answer that nothing was done."""
    monkeypatch.setattr(filesystemsync, "_libc", object())
    assert not sync_file_system(tmp_path)


def test_a_failed_sync_is_an_oserror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the errno and the folder."""
    monkeypatch.setattr(filesystemsync, "_libc", Refusing)
    with pytest.raises(OSError, match="Input/output error") as caught:
        sync_file_system(tmp_path)
    assert caught.value.filename == str(tmp_path)
