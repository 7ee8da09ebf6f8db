"""An index that is lost or stale is made anew from the records."""

from __future__ import annotations

from pathlib import Path

from crawler.archiving.exchanges import NOT_MODIFIED, SAME_PAYLOAD, Original, Revisit
from crawler.archiving.reindexing import open_files, reindex
from crawler.jobs.journal import Entry
from tests.crawler.archiving.exchanges import Payload, exchange, warcs
from tests.crawler.archiving.test_files import opened, write


def archive(folder: Path) -> Path:
    """Four answers of different kinds in one file."""
    files = opened(folder)
    original = Original("http://a.test/first", "2026-01-01T00:00:00.000000Z", Payload(b"data").digest)
    files.append(
        [
            Entry(exchange=exchange("http://a.test/1", b"data", raw_headers=((b"CONTENT-type", b"Text/CSS ;x"),))),
            Entry(exchange=exchange("http://a.test/2", b"gone", status=404, reason="", raw_headers=())),
            Entry(exchange=exchange("http://a.test/3", b"data", revisit=Revisit(SAME_PAYLOAD, original))),
            Entry(exchange=exchange("http://a.test/4", b"", status=304, revisit=Revisit(NOT_MODIFIED, original))),
        ]
    )
    files.keep()
    files.close()
    return warcs(folder / "warc")[0]


def test_the_index_made_anew_is_the_one_that_was_written(tmp_path: Path) -> None:
    """What is read out of records and what was known when they were written is the same, to the byte."""
    path = archive(tmp_path)
    index = next((tmp_path / "warc").glob("*.cdxj"))
    written = index.read_bytes()
    index.write_bytes(b"stale")
    assert list(reindex(tmp_path / "warc")) == [(path, 4, None)]
    assert index.read_bytes() == written
    assert written.count(b"\n") == 4
    assert b'"warc/revisit"' in written


def test_a_damaged_file_is_indexed_up_to_the_damage(tmp_path: Path) -> None:
    """And where it begins is said."""
    path = archive(tmp_path)
    data = path.read_bytes()
    path.write_bytes(data[:-100])
    (done,) = reindex(tmp_path / "warc")
    assert (done.answers, done.damaged_from is not None) == (4, True)


def test_open_files_are_left_alone(tmp_path: Path) -> None:
    """A crawl writes them."""
    files = opened(tmp_path)
    write(files, "http://a.test/1")
    before = files.path.read_bytes()
    assert list(reindex(tmp_path / "warc")) == []
    assert [path.read_bytes() for path in open_files(tmp_path / "warc")] == [before]
    files.close()
