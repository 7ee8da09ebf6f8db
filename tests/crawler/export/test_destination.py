"""The place of an export: whole under its name, or not there; nothing is replaced unless the operator wants it."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.crawler.export.destination import Destination
from anabranch.crawler.outcomes.errors import NoFolder, UsageError


def target(path: Path, *, is_folder: bool = False, force: bool = False) -> Destination:
    (path.parent / "job").mkdir(exist_ok=True)
    return Destination(path, path.parent / "job", is_folder=is_folder, force=force)


def test_a_file_appears_when_it_is_whole(tmp_path: Path) -> None:
    """Under another name until then."""
    with target(tmp_path / "x.wacz") as place:
        place.file().write_bytes(b"whole")
        assert not (tmp_path / "x.wacz").exists()
    assert (tmp_path / "x.wacz").read_bytes() == b"whole"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job", "x.wacz"]


@pytest.mark.parametrize("is_folder", [False, True])
def test_after_an_error_nothing_is_left(tmp_path: Path, is_folder: bool) -> None:
    """Neither a part of a file nor an empty folder."""

    def fail() -> None:
        with target(tmp_path / "x", is_folder=is_folder) as place:
            place.file("a" if is_folder else "").write_bytes(b"half")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert [path.name for path in tmp_path.iterdir()] == ["job"]


def test_what_is_there_is_replaced_only_by_force(tmp_path: Path) -> None:
    """A file, a link that leads nowhere, or a folder that has files; others in the folder stay."""
    (tmp_path / "x").write_bytes(b"old")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "other").write_bytes(b"other")
    for name, is_folder in (("x", False), ("link", False), ("folder", True)):
        with pytest.raises(UsageError, match=r"exists; name another place with --out, or replace it with --force"):
            target(tmp_path / name, is_folder=is_folder).__enter__()
    with target(tmp_path / "x", force=True) as place:
        place.file().write_bytes(b"new")
    assert (tmp_path / "x").read_bytes() == b"new"
    with target(tmp_path / "folder", is_folder=True, force=True) as place:
        place.file("a").write_bytes(b"a")
    assert sorted(path.name for path in (tmp_path / "folder").iterdir()) == ["a", "other"]
    with target(tmp_path / "link", force=True) as place:
        place.file().write_bytes(b"new")
    assert not (tmp_path / "nowhere").exists()
    assert (tmp_path / "link").read_bytes() == b"new"


def test_what_was_made_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    """By another command, say."""

    def write() -> None:
        with target(tmp_path / "x") as place:
            place.file().write_bytes(b"ours")
            (tmp_path / "x").write_bytes(b"theirs")

    with pytest.raises(UsageError, match="exists"):
        write()
    assert (tmp_path / "x").read_bytes() == b"theirs"


def test_nothing_is_written_into_the_job(tmp_path: Path) -> None:
    """Not by a link either."""
    (tmp_path / "job").mkdir()
    (tmp_path / "alias").symlink_to(tmp_path / "job")
    for path in (tmp_path / "job" / "pages.jsonl", tmp_path / "alias" / "x", tmp_path / "job"):
        with pytest.raises(UsageError, match="is in the folder of the job"):
            Destination(path, tmp_path / "job", is_folder=False, force=True).__enter__()


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    """By force neither."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="exists, and a file is to be written"):
        target(tmp_path / "folder", force=True).__enter__()
    with pytest.raises(UsageError, match="exists, and a folder is to be written"):
        target(tmp_path / "file", is_folder=True, force=True).__enter__()


def test_a_place_without_a_folder_is_one_line(tmp_path: Path) -> None:
    """Folders above the place are not made."""
    with pytest.raises(NoFolder, match="choose another --out"):
        Destination(tmp_path / "no" / "x", tmp_path / "job", is_folder=True, force=False).__enter__()


def test_what_a_killed_export_left_is_written_anew(tmp_path: Path) -> None:
    """Files that are not whole mean nothing."""
    (tmp_path / "x.new").write_bytes(b"of a killed one, longer")
    with target(tmp_path / "x") as place, place.file().open("x") as file:
        file.write("new")
    assert (tmp_path / "x").read_text() == "new"
