"""Tests of finding the ends of records in a file that may be torn anywhere, and of the index."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.crawler.archive import cdxj
from anabranch.crawler.archive.cdxj import (
    HEAD_BYTES,
    IndexLine,
    Member,
    index_line,
    place_of,
    urlkey,
    whole_members,
    write_sorted,
)
from anabranch.crawler.archive.compression import MemberReader
from tests.rows import each_row


def members_of(data: bytes) -> MemberReader:
    return MemberReader(BytesIO(data), "f.warc.gz")


@given(
    st.lists(st.binary(max_size=300), max_size=6),
    st.integers(min_value=0, max_value=200),
    st.binary(max_size=40),
)
def test_members_up_to_the_first_torn_one_are_found(texts: list[bytes], cut: int, noise: bytes) -> None:
    """Wherever the file ends and whatever stands behind it."""
    packed = [gzip.compress(text) for text in texts]
    data = b"".join(packed)
    data = data[: len(data) - min(cut, len(data))]
    offset, expected = 0, []
    for text, member in zip(texts, packed, strict=True):
        if offset + len(member) <= len(data):
            expected.append(Member(offset, len(member), text))
        offset += len(member)
    found = list(whole_members(members_of(data if cut else data + noise)))
    assert found[: len(expected)] == expected
    assert cut == 0 or found == expected


@pytest.mark.parametrize("where", [-1, -5, 12])
def test_a_member_with_a_wrong_byte_is_none(where: int) -> None:
    """Its check sum and its size are looked at."""
    data = bytearray(gzip.compress(os.urandom(200)))
    data[where] ^= 1
    assert list(whole_members(members_of(gzip.compress(b"good") + bytes(data)))) == [
        Member(0, len(gzip.compress(b"good")), b"good")
    ]


def test_a_member_of_zeros_is_read_in_pieces() -> None:
    """Only the beginning of a record is kept."""
    data = zlib.compress(bytes(50 << 20), 9, 31)
    (member,) = whole_members(members_of(data))
    assert (member.length, len(member.head)) == (len(data), HEAD_BYTES)


@pytest.mark.parametrize(
    "head", [b"", b"no record", b"WARC/1.1\r\nWARC-Type: request\r\n\r\nGET / HTTP/1.1\r\n\r\n", bytes(100)]
)
def test_what_is_no_answer_is_not_indexed(head: bytes) -> None:
    """Requests, metadata, and what is no record at all."""
    assert index_line(Member(0, 10, head), "f.warc.gz") is None


def test_an_answer_without_a_status_is_indexed_with_none() -> None:
    """The file may be another program's."""
    line = index_line(Member(5, 10, b"WARC/1.1\r\nWARC-Type: response\r\nWARC-Target-URI: http://a.test/\r\n\r\n"), "f")
    assert line is not None
    assert (line.url, line.status, line.offset, line.length) == ("http://a.test/", 0, 5, 10)


LINE = IndexLine(
    url="http://www.example.com/B?b=1&a=2",
    date="2026-01-01T12:34:56.250000Z",
    mime="Text/HTML; charset=utf-8",
    status=200,
    digest="sha1:ABC",
    length=10,
    offset=20,
    filename="f.warc.gz",
)


@each_row(
    ("url", "key"),
    [  # what `surt` 0.3.1 says, which pywb asks
        ("https://www.example.com/A/?b=2&a=1", "com,example)/a?a=1&b=2"),
        ("http://www2.example.com:8080/a//b/", "com,example:8080)/a/b"),
        ("https://example.com:443/", "com,example)/"),
        ("http://127.0.0.1:8080/a", "1,0,0,127:8080)/a"),
        ("http://[::1]/a", "::1)/a"),
        ("http://example.com/%7Euser/a%2Fb%20%25y", "com,example)/~user/a/b%20%25y"),
        ("http://example.com/%C3%BC?%C3%BC=1", "com,example)/%c3%bc?%c3%bc=1"),
        ("http://example.com/a?", "com,example)/a"),
        ("http://example.com/?PHPSESSID=0123456789abcdef0123456789abcdef&a=1", "com,example)/?a=1"),
        ("http://example.com/a?cfid=1&cftoken=2&x=3", "com,example)/a?x=3"),
        ("http://example.com/(S(4hqa0555fwsecu455xqckv45))/m.aspx", "com,example)/m.aspx"),
        ("http://example.com/?%3D=%26", "com,example)/?&=="),
        ("http://wwww.example.com/", "com,example,wwww)/"),
        ("http://example.com./a", "com,example)/a"),
        ("http://www.example.com..:81/", "com,example:81)/"),
        ("http://example..com/", "com,example)/"),
    ],
)
def test_a_url_has_the_key_that_it_is_looked_up_by(url: str, key: str) -> None:
    """One spelling for many."""
    assert urlkey(url) == key


@given(st.text(alphabet="ab%25/?&=()A:@;ü", max_size=60))
def test_a_key_is_printable_ascii_without_blanks(path: str) -> None:
    """A line of index is split at blanks."""
    key = urlkey(f"http://example.com/{path}")
    assert key.isascii()
    assert key.isprintable()
    assert " " not in key


def test_percent_signs_without_end_cost_no_time() -> None:
    """A URL of 8,000 characters of `%25` is taken apart a few times only."""
    assert urlkey("http://example.com/" + "%25" * 2600).startswith("com,example)/%25")


def test_a_line_says_where_the_record_is() -> None:
    """Key, time and an object whose values are text, as pywb writes them."""
    key, stamp, fields = LINE.to_bytes().split(b" ", 2)
    assert (key, stamp) == (b"com,example)/b?a=2&b=1", b"20260101123456")
    assert json.loads(fields) == {
        "url": LINE.url,
        "mime": "text/html",
        "status": "200",
        "digest": "sha1:ABC",
        "length": "10",
        "offset": "20",
        "filename": "f.warc.gz",
    }
    assert place_of(LINE.to_bytes()) == (20, 10)


@pytest.mark.parametrize(("mime", "is_revisit", "shown"), [("", False, "unk"), ("text/css", True, "warc/revisit")])
def test_types_are_never_empty(mime: str, is_revisit: bool, shown: str) -> None:
    """A revisit has its own."""
    line = LINE._replace(mime=mime, is_revisit=is_revisit).to_bytes()
    assert json.loads(line.split(b" ", 2)[2])["mime"] == shown


@each_row(
    "line", [b"", b"\n", bytes(50), b"a b\n", b"a b {}\n", b'a b {"offset":"x"}\n', LINE.to_bytes()[:-1], b"a b [1]\n"]
)
def test_what_is_no_whole_line_has_no_place(line: bytes) -> None:
    """A crash may leave anything."""
    assert place_of(line) is None


def test_many_lines_are_sorted_in_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded; nothing else is left in the folder."""
    monkeypatch.setattr(cdxj, "RUN_LINES", 7)
    lines = [os.urandom(4).hex().encode() + b"\n" for _ in range(100)]
    write_sorted(iter(lines), tmp_path / "i.cdxj")
    assert (tmp_path / "i.cdxj").read_bytes() == b"".join(sorted(lines))
    assert [path.name for path in tmp_path.iterdir()] == ["i.cdxj"]


def test_an_index_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    """At once or not at all."""

    def lines() -> object:
        yield b"a\n"
        raise OSError(28, "full")

    (tmp_path / "i.cdxj").write_bytes(b"old\n")
    with pytest.raises(OSError, match="full"):
        write_sorted(lines(), tmp_path / "i.cdxj")  # type: ignore[arg-type]
    assert (tmp_path / "i.cdxj").read_bytes() == b"old\n"
    assert [path.name for path in tmp_path.iterdir()] == ["i.cdxj"]


TEXT = st.text(max_size=30) | st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=30)


@given(url=TEXT, mime=TEXT, digest=TEXT, filename=TEXT)
def test_the_fields_of_a_line_are_what_the_library_makes_of_them(
    url: str, mime: str, digest: str, filename: str
) -> None:
    """Byte for byte; a revisit has a type of its own, so that the server's words stand in no line of index."""
    line = LINE._replace(url=f"http://a.test/{url}", digest=digest, filename=filename, is_revisit=not mime.isalnum())
    kind = cdxj.REVISIT_TYPE if line.is_revisit else mime.lower()
    fields = {"url": line.url, "mime": kind, "status": "200", "digest": digest, "length": "10", "offset": "20"}
    text = json.dumps(fields | {"filename": filename}, separators=(",", ":"))
    assert line._replace(mime=mime).to_bytes() == f"{urlkey(line.url)} 20260101123456 {text}\n".encode()
