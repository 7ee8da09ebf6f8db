"""Kept data is on disk, whatever happens; anything after it is cut off."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from pathlib import Path

import pytest

from anabranch.dedup.errors import DedupError, StoreFull
from anabranch.dedup.files import durable
from anabranch.dedup.files.durable import (
    AppendOnlyFile,
    FileMark,
    cut_back,
    replace_file,
    store_full_errors,
    sync_file,
    sync_file_system,
    sync_folder,
    write_all,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.log"


def refuse(*_: object) -> None:
    raise OSError(errno.EIO, "no")


def open_descriptors() -> int:
    return len(list(Path("/dev/fd").iterdir()))


def test_replacing_leaves_the_new_text_and_no_temporary_file(path: Path) -> None:
    """A replaced file holds the new text, and nothing else is left in the folder; a rest of a crash is overwritten."""
    path.write_bytes(b"old")
    path.with_name("a.log.new").write_bytes(b"a longer rest")
    replace_file(path, b"new")
    assert path.read_bytes() == b"new"
    assert list(path.parent.iterdir()) == [path]


def test_the_text_is_synced_before_the_rename_and_the_folder_after_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else power loss could leave an empty file, or the old one after all."""
    seen: list[tuple[str, bytes]] = []
    path.write_bytes(b"old")
    monkeypatch.setattr(durable, "sync_file", lambda _: seen.append(("file", path.read_bytes())))
    monkeypatch.setattr(durable, "sync_folder", lambda _: seen.append(("folder", path.read_bytes())))
    replace_file(path, b"new")
    assert seen == [("file", b"old"), ("folder", b"new")]


def test_names_are_synced_before_the_rename_too_if_the_new_text_needs_them(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else power loss could leave a manifest without its files."""
    seen: list[tuple[str, bytes]] = []
    path.write_bytes(b"old")
    monkeypatch.setattr(durable, "sync_file", lambda _: seen.append(("file", path.read_bytes())))
    monkeypatch.setattr(durable, "sync_folder", lambda _: seen.append(("folder", path.read_bytes())))
    replace_file(path, b"new", names_first=True)
    assert seen == [("file", b"old"), ("folder", b"old"), ("folder", b"new")]


def test_a_replacement_with_a_failed_rename_leaves_no_temporary_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor a changed text."""
    path.write_bytes(b"old")
    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(OSError, match="no"):
        replace_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(path.parent.iterdir()) == [path]


def test_a_failed_replacement_keeps_the_old_text(path: Path, small_files: int) -> None:
    """If the new text does not fit, the old one stays and the temporary file goes."""
    path.write_bytes(b"old")
    with pytest.raises(OSError, match="File too large"):
        replace_file(path, b"x" * (small_files + 1))
    assert path.read_bytes() == b"old"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("missing", ["fdatasync", "nothing"])
def test_files_are_synced_with_what_the_system_has(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    """A system without fdatasync gets fsync."""
    called: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda _: called.append("fsync"))
    monkeypatch.setattr(os, "fdatasync", lambda _: called.append("fdatasync"), raising=False)
    monkeypatch.delattr("anabranch.dedup.files.durable.fcntl.F_FULLFSYNC", raising=False)
    if missing != "nothing":
        monkeypatch.delattr(os, missing)
    sync_file(0)
    assert called == ["fsync" if missing == "fdatasync" else "fdatasync"]


def test_macos_files_are_synced_down_to_the_medium(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system with F_FULLFSYNC uses it, because fsync does not empty the drive's cache there."""
    called: list[int] = []
    monkeypatch.setattr("anabranch.dedup.files.durable.fcntl.F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr("anabranch.dedup.files.durable.fcntl.fcntl", lambda _, command: called.append(command))
    sync_file(0)
    assert called == [51]


def test_only_a_folder_is_synced_as_a_folder(path: Path) -> None:
    """And no descriptor is left open."""
    path.touch()
    before = open_descriptors()
    sync_folder(path.parent)
    with pytest.raises(NotADirectoryError):
        sync_folder(path)
    assert open_descriptors() == before


@pytest.mark.parametrize(
    ("found", "kept"),
    [
        (b"", b""),
        (b"a\n", b"a\n"),
        (b"a\ntorn", b"a\n"),
        (b"torn", b""),
        (b"a\n" + b"t" * 200_000, b"a\n"),
        (b"t" * 200_000, b""),
        (b"a" * 65_535 + b"\n" + b"t" * 65_536, b"a" * 65_535 + b"\n"),
    ],
)
def test_a_torn_last_line_is_cut_on_opening(found: bytes, kept: bytes, path: Path) -> None:
    """However long it is; the next line is whole."""
    path.write_bytes(found)
    file = AppendOnlyFile(path)
    assert path.read_bytes() == kept
    file.append(b"z\n")
    file.close()
    assert path.read_bytes() == kept + b"z\n"


def test_an_append_is_synced_and_no_data_is_not(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder on opening, then the file once per append, after it was written."""
    synced: list[bytes] = []
    monkeypatch.setattr(durable, "sync_file", lambda _: synced.append(path.read_bytes()))
    monkeypatch.setattr(durable, "sync_folder", lambda _: synced.append(b"folder"))
    file = AppendOnlyFile(path)
    for data in (b"a\n", b"", b"b\n"):
        file.append(data)
        file.keep()
    file.close()
    assert synced == [b"folder", b"a\n", b"a\nb\n"]


def test_what_was_not_kept_is_taken_back(path: Path) -> None:
    """Kept bytes stay, and a second call does nothing."""
    file = AppendOnlyFile(path)
    file.append(b"a\n")
    file.keep()
    file.append(b"b\n")
    for _ in range(2):
        file.take_back()
        assert path.read_bytes() == b"a\n"
    file.close()


def test_an_append_begins_behind_what_is_kept(path: Path, small_files: int) -> None:
    """A part that was written before the disk refused is gone before the next line."""
    file = AppendOnlyFile(path)
    file.append(b"a\n")
    file.keep()
    with pytest.raises(OSError, match="File too large"):
        file.append(b"b" * small_files + b"\n")
    assert path.stat().st_size == small_files
    file.append(b"c\n")
    file.close()
    assert path.read_bytes() == b"a\nc\n"


def test_a_disk_that_takes_nothing_back_is_asked_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The failure that led there is the one that counts."""
    file = AppendOnlyFile(path)
    file.append(b"a\n")
    with monkeypatch.context() as patch:
        patch.setattr(os, "ftruncate", refuse)
        file.take_back()
        with pytest.raises(OSError, match="no"):
            file.append(b"b\n")
    file.append(b"c\n")
    file.close()
    assert path.read_bytes() == b"c\n"


def test_a_cut_that_was_not_synced_is_made_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until it is, power loss could bring the line back."""
    file = AppendOnlyFile(path)
    file.append(b"a\n")
    synced: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr(durable, "sync_file", refuse)
        file.take_back()
        patch.setattr(durable, "sync_file", synced.append)
        file.take_back()
        file.take_back()
    file.close()
    assert len(synced) == 1


def test_a_file_that_cannot_be_cut_is_not_opened(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the next line would be glued to the torn one; no descriptor is left open."""
    path.write_bytes(b"torn")
    before = open_descriptors()
    monkeypatch.setattr(os, "ftruncate", refuse)
    with pytest.raises(OSError, match="no"):
        AppendOnlyFile(path)
    assert open_descriptors() == before


def test_closing_twice_closes_once(path: Path) -> None:
    """The number of the descriptor may be somebody else's by then."""
    file = AppendOnlyFile(path)
    file.close()
    with path.open("rb") as other:
        file.close()
        assert other.read() == b""


@pytest.mark.parametrize("then", ["gone", "new", "cut", "cut in a line"])
def test_a_file_that_was_rotated_is_followed(path: Path, then: str) -> None:
    """The kept lines stay complete in the moved file, and the file of the old name has only complete lines."""
    file = AppendOnlyFile(path)
    file.append(b"one\ntwo\n")
    file.keep()
    moved = path.with_name("a.log.1")
    if then.startswith("cut"):
        moved.write_bytes(path.read_bytes())
        os.truncate(path, 6 if then == "cut in a line" else 0)
    else:
        path.rename(moved)
        if then == "new":
            path.write_bytes(b"")
    file.follow()
    file.append(b"three\n")
    file.keep()
    file.follow()
    file.append(b"taken back\n")
    file.take_back()
    assert moved.read_bytes() == b"one\ntwo\n"
    assert path.read_bytes() == (b"one\nthree\n" if then == "cut in a line" else b"three\n")
    file.close()


@pytest.mark.parametrize("is_late", [True, False])
def test_a_cut_in_the_middle_of_a_group_leaves_no_hole(path: Path, *, is_late: bool) -> None:
    """Taking a group back must not stretch a file that somebody cut meanwhile: it would be filled with zeros."""
    file = AppendOnlyFile(path)
    file.append(b"kept\n")
    file.keep()
    file.follow()
    if not is_late:
        os.truncate(path, 0)
    file.append(b"taken back\n")
    if is_late:
        os.truncate(path, 0)
    file.take_back()
    assert path.read_bytes() == b""
    file.append(b"next\n")
    file.keep()
    assert path.read_bytes() == b"next\n"
    file.close()


def test_a_replacement_that_cannot_be_synced_keeps_the_old_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the new text cannot be synced, the old one stays and the temporary file goes."""

    def fail(fd: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    path = tmp_path / "a"
    path.write_bytes(b"old")
    monkeypatch.setattr("anabranch.dedup.files.durable.sync_file", fail)
    with pytest.raises(StoreFull), store_full_errors(path):
        replace_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_is_a_store_full_that_is_an_oserror(tmp_path: Path, number: int) -> None:
    """Callers may catch it as this room's error or as an OSError with errno and file name."""
    with pytest.raises(StoreFull) as caught, store_full_errors(tmp_path / "a"):
        raise OSError(number, "no room")
    assert isinstance(caught.value, DedupError)
    assert isinstance(caught.value, OSError)
    assert (caught.value.errno, caught.value.filename) == (number, str(tmp_path / "a"))


def test_other_errors_pass_unchanged(tmp_path: Path) -> None:
    """Only a lack of room is translated."""
    with pytest.raises(PermissionError), store_full_errors(tmp_path):
        raise PermissionError(errno.EACCES, "no")


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel may write less than it was given; the rest follows at its place."""
    whole = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: whole(fd, bytes(data)[:2], offset))
    path = tmp_path / "a"
    with path.open("wb") as file:
        write_all(file.fileno(), b"abcdefg", 1)
    assert path.read_bytes() == b"\0abcdefg"


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
    monkeypatch.setattr(durable, "_libc", object())
    assert not sync_file_system(tmp_path)


def test_a_failed_sync_is_an_oserror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the errno and the folder."""
    monkeypatch.setattr(durable, "_libc", Refusing)
    with pytest.raises(OSError, match="Input/output error") as caught:
        sync_file_system(tmp_path)
    assert caught.value.filename == str(tmp_path)


def marked(path: Path, data: bytes) -> FileMark:
    """The mark of a file with this content."""
    file = AppendOnlyFile(path)
    file.append(data)
    file.keep()
    mark = file.mark()
    file.close()
    return mark


@pytest.mark.parametrize("before", [b"a\n", b"line\n" * 200])
@pytest.mark.parametrize("more", [b"", b"b\n", b"torn"])
def test_a_file_is_cut_back_to_its_mark(path: Path, before: bytes, more: bytes) -> None:
    """A copy with another inode, too: the bytes before the end prove what it is."""
    mark = marked(path, before)
    copy = path.with_name("copy")
    copy.write_bytes(before + more)
    assert cut_back(copy, mark) == len(more)
    assert copy.read_bytes() == before


@pytest.mark.parametrize("now", [b"", b"line\n" * 199, b"other\n" * 200, None])
def test_a_file_that_is_not_the_marked_one_stays_as_it_is(path: Path, now: bytes | None) -> None:
    """It was shortened, replaced or moved away."""
    mark = marked(path, b"line\n" * 200)
    path.unlink() if now is None else path.write_bytes(now)
    assert cut_back(path, mark) is None
    assert (path.read_bytes() if path.exists() else None) == now


def test_an_empty_file_is_known_by_its_inode_alone(path: Path) -> None:
    """It has no bytes that could prove anything; nothing is cut of another one."""
    mark = marked(path, b"")
    path.write_bytes(b"a\n")
    copy = path.with_name("copy")
    copy.write_bytes(b"a\n")
    assert (cut_back(path, mark), cut_back(copy, mark), cut_back(path.with_name("none"), mark)) == (2, None, 0)
    copy.write_bytes(b"")
    assert cut_back(copy, mark) == 0


def test_a_mark_follows_what_is_written_cut_and_rotated(path: Path) -> None:
    """Each change of the file gives another one; without a change it is the same."""
    file = AppendOnlyFile(path)
    seen = [file.mark()]
    file.append(b"a\n")
    seen.append(file.mark())
    assert file.mark() is seen[-1]
    file.take_back()
    assert file.mark() == seen[0]
    file.append(b"b\n")
    seen.append(file.mark())
    path.rename(path.with_name("moved"))
    assert file.follow()
    assert not file.follow()
    seen.append(file.mark())
    file.close()
    assert len({*seen}) == 4
    assert [mark.size for mark in seen] == [0, 2, 2, 0]


@pytest.mark.parametrize("call", ["write", "fdatasync", "ftruncate"])
def test_an_error_of_a_descriptor_names_the_file(path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """The system's error has no name, and an operator has many files."""
    file = AppendOnlyFile(path)
    file.write(b"not kept\n")
    monkeypatch.setattr(os, call, refuse)
    with pytest.raises(OSError, match="no") as raised:
        file.append(b"a\n")
    assert raised.value.filename == str(path)
    file.close()
    with pytest.raises(OSError, match="no") as raised, durable.descriptor(path, os.O_RDWR) as fd:
        getattr(os, call)(fd, b"" if call == "write" else 0)
    assert raised.value.filename == str(path)
