"""An index that is lost or stale is made anew from the records."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from anabranch.crawler.archiving.exchanges import NOT_MODIFIED, SAME_PAYLOAD, Exchange, Original, Revisit
from anabranch.crawler.archiving.members import HEAD_BYTES
from anabranch.crawler.archiving.reindexing import open_files, reindex
from anabranch.crawler.jobs.journal import Entry
from tests.crawler.archiving.exchanges import HTML, Payload, exchange, warcs
from tests.crawler.archiving.test_files import opened, write

ORIGINAL = Original("http://a.test/first", "2026-01-01T00:00:00.000000Z", Payload(b"data").digest)


def archive(folder: Path) -> Path:
    """Four answers of different kinds in one file."""
    files = opened(folder)
    files.append(
        [
            Entry(exchange=exchange("http://a.test/1", b"data", raw_headers=((b"CONTENT-type", b"Text/CSS ;x"),))),
            Entry(exchange=exchange("http://a.test/2", b"gone", status=404, reason="", raw_headers=())),
            Entry(exchange=exchange("http://a.test/3", b"data", revisit=Revisit(SAME_PAYLOAD, ORIGINAL))),
            Entry(exchange=exchange("http://a.test/4", b"", status=304, revisit=Revisit(NOT_MODIFIED, ORIGINAL))),
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


def typed(value: bytes, name: bytes = b"Content-Type") -> Exchange:
    """An answer whose type is written so."""
    return exchange(raw_headers=((b"Server", b"x"), (name, value), (b"Content-Type", b"the/second")))


ODD = {
    "charset of utf-8": typed("text/html; charset=ütf".encode()),
    "charset of latin-1": typed("text/ü; charset=ü".encode("latin-1")),
    "type that is no text": typed(b"\xff\xfe\x80"),
    "space that is not ASCII": typed("\u3000text/html\x85".encode()),
    "NUL": typed(b"text/html\x00charset"),
    "folded": typed(b"\r\n text/html"),
    "a lone CR": typed(b"text/html\rx"),
    "nothing": typed(b""),
    "name with a space": typed(b"text/html", b"Content-Type "),
    "name in capitals": typed(b"text/html", b"CONTENT-TYPE"),
    "type far behind": exchange(raw_headers=((b"X", b"x" * HEAD_BYTES), (b"Content-Type", b"text/html"))),
    "type across the end of what is read": exchange(raw_headers=((b"X", b"x" * (HEAD_BYTES - 500)), *[HTML[0]] * 20)),
    "type in the body": exchange(data=b"\r\nContent-Type: text/plain\r\n\r\n", raw_headers=()),
    "redirect": exchange(data=b"", status=302, raw_headers=((b"Location", "/ü".encode()),)),
    "empty body": exchange(data=b"", raw_headers=((b"Content-Length", b"0"), *HTML)),
    "robots.txt": replace(exchange("http://a.test/robots.txt", b"User-agent: *", raw_headers=()), hops="P"),
    "unasked 304": exchange(data=b"", status=304),
    "reason of many words": exchange(status=404, reason="Nicht gefunden \udcfc"),
    "old version": exchange(version="1.0"),
    "URL that is not ASCII": exchange("http://a.test/ü b\r\nc?\ud800"),
    "revisit": exchange(raw_headers=HTML, revisit=Revisit(SAME_PAYLOAD, ORIGINAL)),
    "revisit of a 304": exchange(data=b"", status=304, raw_headers=HTML, revisit=Revisit(NOT_MODIFIED, ORIGINAL)),
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD.keys())
def test_whatever_a_server_says_is_indexed_alike_now_and_later(tmp_path: Path, odd: Exchange) -> None:
    """One function makes the line, from the same bytes: in a finished file, and in one whose index was lost with a crash."""
    files = opened(tmp_path)
    files.append([Entry(exchange=odd)])
    files.keep()
    growing = next((tmp_path / "warc").glob("*.cdxj.open"))
    written = growing.read_bytes()
    growing.unlink()
    opened(tmp_path).close()
    index = next((tmp_path / "warc").glob("*.cdxj"))
    mended = index.read_bytes()
    index.unlink()
    list(reindex(tmp_path / "warc"))
    assert index.read_bytes() == mended == written
    assert written.count(b"\n") == 1


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
