"""What a killed process left of WARC files is mended and finished."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crawler.archiving.exchanges import (
    urls_in,
)
from tests.crawler.archiving.folders import index_of, opened, write


def leave(folder: Path, *urls: str) -> tuple[Path, Path]:
    """What a killed process leaves: an open file and its index."""
    files = opened(folder)
    write(files, *urls)
    path = files.path
    return path, path.with_name(path.name.replace(".warc.gz", ".cdxj"))


@pytest.mark.parametrize("cut", [1, 10, 300, 1200])
@pytest.mark.parametrize("lines", [0, 1, 2, 3])
def test_a_torn_file_is_cut_after_its_last_whole_visit_and_finished(tmp_path: Path, cut: int, lines: int) -> None:
    """Whatever the index knew, it is complete afterwards, and the file has its name; no answer is without its request."""
    warc, index = leave(tmp_path, *(f"http://a.test/{n}" for n in range(3)))
    os.truncate(warc, warc.stat().st_size - cut)
    index.write_bytes(b"".join(index.read_bytes().splitlines(keepends=True)[:lines]))
    opened(tmp_path).close()
    found = urls_in(tmp_path / "warc")
    assert found == [f"http://a.test/{n}" for n in range(len(found))]
    assert len(found) == (2 if cut < 1200 else 1)
    assert sorted(fields["url"] for fields in index_of(tmp_path)) == found
    assert not list((tmp_path / "warc").glob("*.open"))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda warc, index: index.unlink(),
        lambda warc, index: index.write_bytes(bytes(500)),
        lambda warc, index: index.write_bytes(index.read_bytes() + b"torn"),
        lambda warc, index: index.write_bytes(index.read_bytes().replace(b'"offset":"', b'"offset":"1')),
        lambda warc, index: warc.write_bytes(warc.read_bytes() + bytes(70_000)),
        lambda warc, index: warc.write_bytes(warc.read_bytes() + os.urandom(70_000)),
    ],
)
def test_what_a_power_failure_leaves_behind_is_not_believed(
    tmp_path: Path, spoil: Callable[[Path, Path], object]
) -> None:
    """Zeros, noise, an index that lies or is gone: the records decide."""
    spoil(*leave(tmp_path, "http://a.test/1", "http://a.test/2"))
    opened(tmp_path).close()
    assert urls_in(tmp_path / "warc") == ["http://a.test/1", "http://a.test/2"]
    assert len(index_of(tmp_path)) == 2


def test_an_open_file_without_a_whole_record_is_removed(tmp_path: Path) -> None:
    """Nobody was told that anything in it counts."""
    warc, _ = leave(tmp_path, "http://a.test/1")
    os.truncate(warc, 20)
    opened(tmp_path).close()
    assert list((tmp_path / "warc").iterdir()) == []


def test_finishing_that_was_broken_off_is_gone_on_with(tmp_path: Path) -> None:
    """The sorted index was there already, or the file had its name already."""
    warc, index = leave(tmp_path, "http://a.test/1")
    warc.with_name(index.name.removesuffix(".open")).write_bytes(b"half")
    opened(tmp_path).close()
    assert len(index_of(tmp_path)) == 1
    index.write_bytes(b"left behind")
    opened(tmp_path).close()
    assert len(index_of(tmp_path)) == 1
    assert not index.exists()
