"""Content codings: undone piece by piece, with a limit on what comes out, whatever the body claims."""

from __future__ import annotations

import gzip
import importlib.util
import random
import tracemalloc
import zlib
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.crawler.fetch.decoding import (
    CODINGS,
    INPUT_BYTES,
    MAX_CODINGS,
    MAX_MEMBERS,
    PIECE_BYTES,
    codings_in,
    decoded,
)
from tests.rows import each_row

HAS_BROTLI = importlib.util.find_spec("brotli") is not None
HAS_ZSTD = "zstd" in CODINGS
needs_brotli = pytest.mark.skipif(not HAS_BROTLI, reason="needs the package brotli")
needs_zstd = pytest.mark.skipif(not HAS_ZSTD, reason="needs compression.zstd or backports.zstd")

#: 300 KB that compress a little.
TEXT = "".join(random.Random(7).choices("abcdefgh <>\n", k=300_000)).encode()
LIMIT = 1 << 20


def raw_deflate(data: bytes) -> bytes:
    return zlib.compress(data)[2:-4]


def brotli(data: bytes) -> bytes:
    return bytes(importlib.import_module("brotli").compress(data, quality=5))


def zstd(data: bytes) -> bytes:
    name = "compression.zstd" if importlib.util.find_spec("compression") else "backports.zstd"
    return bytes(importlib.import_module(name).compress(data))


Encode = Callable[[bytes], bytes]
ENCODERS = [
    pytest.param("gzip", gzip.compress, id="gzip"),
    pytest.param("deflate", zlib.compress, id="zlib"),
    pytest.param("deflate", raw_deflate, id="raw deflate"),
    pytest.param("br", brotli, marks=needs_brotli, id="br"),
    pytest.param("zstd", zstd, marks=needs_zstd, id="zstd"),
]
every_coding = pytest.mark.parametrize(("name", "encode"), ENCODERS)


def pieces(data: bytes, size: int = 7000) -> Iterator[bytes]:
    return (data[start : start + size] for start in range(0, len(data), size))


@every_coding
@pytest.mark.parametrize("size", [1, 7000, 1 << 20])
def test_what_was_coded_is_undone(name: str, encode: Encode, size: int) -> None:
    """However it comes, in one piece or byte by byte."""
    data = TEXT if size > 1 else TEXT[:3000]
    assert decoded(pieces(encode(data), size), [name], LIMIT) == (data, False)
    assert decoded(pieces(encode(b""), size), [name], LIMIT) == (b"", False)


@every_coding
def test_no_more_is_decoded_than_is_wanted(name: str, encode: Encode) -> None:
    """Exactly the limit is whole; one byte less is a cut."""
    assert decoded([encode(TEXT)], [name], len(TEXT)) == (TEXT, False)
    assert decoded([encode(TEXT)], [name], len(TEXT) - 1) == (TEXT[:-1], True)
    assert decoded([encode(TEXT)], [name], 0) == (b"", True)


@every_coding
def test_a_bomb_costs_no_more_than_the_limit(name: str, encode: Encode) -> None:
    """64 MiB of zeros in some KiB, and the same once more inside of gzip."""
    bomb = encode(bytes(64 << 20))
    tracemalloc.start()
    assert decoded([bomb], [name], LIMIT) == (bytes(LIMIT), True)
    assert decoded([gzip.compress(bomb)], [name, "gzip"], LIMIT) == (bytes(LIMIT), True)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 << 20


def test_a_coding_inside_of_a_coding_gets_no_more_than_may_come_out() -> None:
    """64 MiB of gzip members that hold nothing: only so much of them is looked at."""
    empty = gzip.compress(b"")
    members = gzip.compress(empty * ((64 << 20) // len(empty)))
    assert decoded([members], ["gzip", "gzip"], 1 << 16) == (b"", True)


def test_a_coding_inside_that_brings_nothing_is_bounded_too() -> None:
    """64 MiB of empty blocks, which are well-formed, and nothing comes of them."""
    empty = b"\x00\x00\x00\xff\xff" * 13_000_000 + b"\x01\x00\x00\xff\xff"
    few = empty[:5000] + empty[-5:]
    assert decoded([gzip.compress(few, 1)], ["deflate", "gzip"], 1 << 16) == (b"", False)
    assert decoded([gzip.compress(empty, 1)], ["deflate", "gzip"], 1 << 16) == (b"", True)


@each_row("size", [PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 5 * PIECE_BYTES, 5 * PIECE_BYTES + 7])
def test_what_zlib_holds_back_is_fetched(size: int) -> None:
    """It may have read all bytes and still owe some of what they mean."""
    assert decoded([raw_deflate(bytes(size))], ["deflate"], LIMIT) == (bytes(size), False)


@pytest.mark.parametrize("first", [name for name in ("gzip", "deflate", "br", "zstd") if name in CODINGS])
@every_coding
def test_several_codings_are_undone_from_the_last_to_the_first(name: str, encode: Encode, first: str) -> None:
    """Content-Encoding names them in the order in which they were applied."""
    encoders = {"gzip": gzip.compress, "deflate": zlib.compress, "br": brotli, "zstd": zstd}
    assert decoded(pieces(encode(encoders[first](TEXT))), [first, name], LIMIT) == (TEXT, False)


def test_too_many_codings_are_not_undone() -> None:
    """They are a trick."""
    data = TEXT
    for _ in range(MAX_CODINGS):
        data = gzip.compress(data)
    assert decoded([data], ["gzip"] * MAX_CODINGS, LIMIT) == (TEXT, False)
    assert decoded([gzip.compress(data)], ["gzip"] * (MAX_CODINGS + 1), LIMIT) == (b"", True)


@every_coding
def test_a_body_that_ends_too_early_gives_what_came(name: str, encode: Encode) -> None:
    """Most of it, and that it is cut."""
    coded = encode(TEXT)
    found, is_cut = decoded(pieces(coded[: len(coded) // 2]), [name], LIMIT)
    assert is_cut
    assert TEXT.startswith(found)
    assert len(found) > len(TEXT) // 4


@pytest.mark.parametrize("encode", [gzip.compress, zlib.compress])
@pytest.mark.parametrize("size", [10, 1000, 300_000])
def test_a_wrong_check_sum_loses_nothing(encode: Encode, size: int) -> None:
    """All of the content is there before it."""
    name = "gzip" if encode is gzip.compress else "deflate"
    coded = bytearray(encode(TEXT[:size]))
    coded[-6 if name == "gzip" else -1] ^= 1
    assert decoded([bytes(coded)], [name], LIMIT) == (TEXT[:size], True)


@pytest.mark.parametrize(("name", "encode"), ENCODERS[:4])
def test_what_stands_before_a_fault_is_kept(name: str, encode: Encode) -> None:
    """In the middle the bytes are others. (zstd would not notice: its check sum is optional.)"""
    coded = encode(TEXT)
    middle = len(coded) // 2
    broken = coded[:middle] + b"\xff" * 100 + coded[middle + 100 :]
    found, is_cut = decoded([broken], [name], LIMIT)
    assert is_cut
    assert len(found) >= len(TEXT) // 2 - 16 * INPUT_BYTES


@pytest.mark.parametrize("name", sorted(CODINGS))
@given(data=st.binary(max_size=300))
def test_no_bytes_raise_anything(name: str, data: bytes) -> None:
    """Whatever a server says is gzip."""
    found, _ = decoded([data], [name], 100)
    assert len(found) <= 100


def test_members_one_after_the_other_are_one_content() -> None:
    """RFC 1952 section 2.2; what follows and is no member is left aside."""
    two = gzip.compress(b"ab") + gzip.compress(b"cd")
    assert decoded(pieces(two, 3), ["gzip"], LIMIT) == (b"abcd", False)
    assert decoded([two + b"\0" * 512], ["gzip"], LIMIT) == (b"abcd", False)


def test_endless_members_are_broken() -> None:
    """Each costs more than its bytes."""
    assert decoded([gzip.compress(b"") * MAX_MEMBERS], ["gzip"], LIMIT) == (b"", False)
    assert decoded([gzip.compress(b"") * (MAX_MEMBERS + 1)], ["gzip"], LIMIT) == (b"", True)


@needs_zstd
def test_frames_one_after_the_other_are_one_content() -> None:
    """RFC 8878 section 3."""
    assert decoded(pieces(zstd(b"ab") + zstd(b"cd"), 3), ["zstd"], LIMIT) == (b"abcd", False)


@each_row(
    ("values", "codings"),
    [
        ([], ()),
        (["gzip"], ("gzip",)),
        (["GZip , br"], ("gzip", "br")),
        (["deflate", "x-gzip"], ("deflate", "gzip")),
        (["identity"], ()),
        (["utf-8", ""], ()),
        (["compress"], ("compress",)),
    ],
)
def test_the_codings_of_an_answer_are_those_that_we_know(values: list[str], codings: tuple[str, ...]) -> None:
    """In any case, over several fields; names that mean nothing change nothing."""
    assert codings_in(values) == codings


def test_a_coding_that_cannot_be_undone_here_gives_nothing() -> None:
    """It was not asked for; its bytes are no content."""
    assert decoded([b"abc"], ["compress"], LIMIT) == (b"", True)
