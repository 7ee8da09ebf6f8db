"""Finished WARC files are copied elsewhere, once."""

from pathlib import Path

import pytest

from anabranch.crawler.archive.uploads import UPLOADED_FILE, Uploaded, UploadFailed, Uploads
from anabranch.crawler.outcomes.errors import OrderError


def finished(warc: Path, name: str, *urls: str, ending: str = ".warc.gz") -> None:
    warc.mkdir(exist_ok=True)
    (warc / f"{name}{ending}").write_bytes(b"records of " + name.encode())
    lines = [f'key 20260101000000 {{"url":"{url}","offset":"0"}}\n' for url in urls]
    (warc / f"{name}.cdxj").write_text("".join(lines))


def test_each_finished_file_is_copied_once_after_its_index(tmp_path: Path) -> None:
    """A file that still grows is not; a new process knows what was copied."""
    arrived: list[Uploaded] = []
    warc, there = tmp_path / "warc", tmp_path / "there" / "w1"
    finished(warc, "a", "http://a.test/", "http://b.test/")
    (warc / "b.warc.gz.open").touch()
    uploads = Uploads(warc, tmp_path, f"file://{there}", arrived.append)
    assert (uploads.left, uploads.copy(), uploads.copy(), uploads.left) == (1, 1, 0, 0)
    finished(warc, "c", ending=".warc.zst")
    assert Uploads(warc, tmp_path, f"file://{there}/", arrived.append).copy() == 1
    assert sorted(path.name for path in there.iterdir()) == ["a.cdxj", "a.warc.gz", "c.cdxj", "c.warc.zst"]
    assert [(one.file, one.address, one.urls) for one in arrived] == [
        ("a.warc.gz", f"file://{there}/a.warc.gz", {"http://a.test/", "http://b.test/"}),
        ("c.warc.zst", f"file://{there}/c.warc.zst", frozenset()),
    ]
    assert (tmp_path / UPLOADED_FILE).read_text() == "a.warc.gz\nc.warc.zst\n"


def test_what_fails_is_named_and_tried_again(tmp_path: Path) -> None:
    """The place may have come back."""
    warc, there = tmp_path / "warc", tmp_path / "there"
    finished(warc, "a")
    there.touch()  # no folder can have its name
    uploads = Uploads(warc, tmp_path, f"file://{there}", lambda _: None)
    with pytest.raises(UploadFailed, match=f"a.warc.gz: cannot be copied to file://{there}: "):
        uploads.copy()
    there.unlink()
    assert (uploads.left, uploads.copy()) == (1, 1)


def test_a_place_that_nothing_reaches_is_refused(tmp_path: Path) -> None:
    """Before the crawl begins."""
    with pytest.raises(OrderError, match=r"\[write\] upload 'nosuch://x/y': "):
        Uploads(tmp_path, tmp_path, "nosuch://x/y", lambda _: None)
