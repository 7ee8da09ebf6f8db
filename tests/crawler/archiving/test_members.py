"""Where records end in a file that may be torn anywhere."""

from __future__ import annotations

import gzip
import os
import zlib
from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.crawler.archiving.members import HEAD_BYTES, Member, index_line, whole_members


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
    found = list(whole_members(BytesIO(data if cut else data + noise)))
    assert found[: len(expected)] == expected
    assert cut == 0 or found == expected


@pytest.mark.parametrize("where", [-1, -5, 12])
def test_a_member_with_a_wrong_byte_is_none(where: int) -> None:
    """Its check sum and its size are looked at."""
    data = bytearray(gzip.compress(os.urandom(200)))
    data[where] ^= 1
    assert list(whole_members(BytesIO(gzip.compress(b"good") + bytes(data)))) == [
        Member(0, len(gzip.compress(b"good")), b"good")
    ]


def test_a_member_of_zeros_is_read_in_pieces() -> None:
    """Of a record only the beginning is kept."""
    data = zlib.compress(bytes(50 << 20), 9, 31)
    (member,) = whole_members(BytesIO(data))
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
