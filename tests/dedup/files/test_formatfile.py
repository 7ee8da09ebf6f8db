from __future__ import annotations

import json
from pathlib import Path

import pytest

from anabranch.dedup.errors import FormatMismatch
from anabranch.dedup.files.formatfile import NAME, Format, adopt, complete, differences

WANTED = Format(magic="test thing", version=1, parameters={"levels": [1, 3], "name": "x"})


def write(folder: Path, **changes: object) -> None:
    record = WANTED.record() | {"complete": True} | changes
    (folder / NAME).write_text(json.dumps(record))


def test_a_folder_is_complete_only_after_it_was_completed(tmp_path: Path) -> None:
    """A new folder and a half-made one are to be filled."""
    folder = tmp_path / "a" / "b"
    assert not adopt(folder, WANTED)
    assert not adopt(folder, WANTED)
    complete(folder, WANTED)
    assert adopt(folder, WANTED)


def test_a_folder_of_someone_else_is_refused(tmp_path: Path) -> None:
    """Files without FORMAT are not ours; what a crash of ours left unfinished is."""
    (tmp_path / "FORMAT.new").touch()
    assert not adopt(tmp_path, WANTED)
    (tmp_path / NAME).unlink()
    (tmp_path / "letter.txt").touch()
    with pytest.raises(FormatMismatch, match="has no FORMAT"):
        adopt(tmp_path, WANTED)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"magic": "other"}, "is not the file of"),
        ({"version": 2}, "has version 2, this program reads 1"),
        ({"parameters": {"levels": [2, 2], "name": "x"}}, r"levels is \[2, 2\] in the folder, \[1, 3\] here$"),
        ({"parameters": {"levels": [1, 3]}}, "name is None in the folder, 'x' here"),
        ({"parameters": 5}, "parameters are missing"),
    ],
)
def test_a_folder_of_another_format_is_refused(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    """The message names what differs, on both sides, and nothing that agrees."""
    write(tmp_path, **changes)
    with pytest.raises(FormatMismatch, match=message):
        adopt(tmp_path, WANTED)


@pytest.mark.parametrize("text", [b"", b"{", b"[1]", b"[" * 100_000, b"\xff\xfe"])
def test_a_damaged_format_file_is_refused(tmp_path: Path, text: bytes) -> None:
    """Any content but a JSON object counts as damage."""
    (tmp_path / NAME).write_bytes(text)
    with pytest.raises(FormatMismatch, match="damaged"):
        adopt(tmp_path, WANTED)


def test_every_difference_is_named() -> None:
    """Names on one side only count as differences, too."""
    assert len(differences({"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 3, "d": 4})) == 3
