from __future__ import annotations

import re
import zlib
from pathlib import Path, PurePosixPath

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.dedup.errors import BadParameters
from anabranch.dedup.smm.addresses import SIGNATURES, FileIndex, check_value, levels_for, signature_named
from tests.rows import each_row

LONG = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"


def sanity_buffer(length: int) -> bytes:
    """The bytes on which xxHash publishes its values (XSUM_fillTestBuffer in xsum_sanity_check.c)."""
    text, state = bytearray(), 2654435761
    for _ in range(length):
        text.append(state >> 56)
        state = state * 11400714785074694797 % 2**64
    return bytes(text)


@each_row(
    ("name", "key", "published"),
    [
        ("crc32", b"123456789", "cbf43926"),
        ("crc32", b"", "00000000"),
        ("md5", b"", "d41d8cd98f00b204e9800998ecf8427e"),
        ("md5", b"abc", "900150983cd24fb0d6963f7d28e17f72"),
        ("md5", b"message digest", "f96b697d7cb7938d525a2f31aaf161d0"),
        ("sha1", b"abc", "a9993e364706816aba3e25717850c26c9cd0d89d"),
        ("sha1", LONG, "84983e441c3bd26ebaae4aa1f95129e5e54670f1"),
        ("xxh3-64", sanity_buffer(0), "2d06800538d394c2"),
        ("xxh3-64", sanity_buffer(1), "c44bdff4074eecdb"),
        ("xxh3-64", sanity_buffer(6), "27b56a84cd2d7325"),
        ("xxh3-64", sanity_buffer(24), "a3fe70bf9d3510eb"),
        ("xxh3-64", sanity_buffer(403), "cdeb804d65c6dea4"),
    ],
)
def test_signatures_are_the_published_ones_and_big_endian(name: str, key: bytes, published: str) -> None:
    """CRC-32's check value, RFC 1321, FIPS 180, xxHash's sanity values; a prefix is the leading bytes, alone or in a batch."""
    signature, whole = signature_named(name), bytes.fromhex(published)
    assert signature.width_bytes == len(whole)
    for width in range(1, min(7, len(whole)) + 1):
        address = int.from_bytes(whole[:width])
        assert signature.address(key, width) == address
        assert signature.addresses([key, key], width).tolist() == [address, address]


@given(st.sampled_from(sorted(SIGNATURES)), st.lists(st.binary(max_size=20), max_size=8), st.integers(1, 4))
def test_a_batch_has_the_addresses_of_its_keys(name: str, keys: list[bytes], width: int) -> None:
    """Signed 64-bit integers, one per key and in order; an empty batch is a batch."""
    addresses = signature_named(name).addresses(keys, width)
    assert addresses.dtype == np.dtype(np.int64)
    assert addresses.tolist() == [signature_named(name).address(key, width) for key in keys]


def test_a_users_own_signature_is_imported_by_name() -> None:
    """A function from bytes to a digest; as wide as the digest."""
    own = signature_named("xxhash:xxh3_64_digest")
    assert own.width_bytes == 8
    assert own.addresses([b"a", b"b"], 7).tolist() == SIGNATURES["xxh3-64"].addresses([b"a", b"b"], 7).tolist()
    assert own.address(b"a", 3) == SIGNATURES["xxh3-64"].address(b"a", 3)


@each_row(
    ("name", "message"),
    [
        ("crc64", "signature 'crc64' is unknown; give package.module:function or crc32, md5, sha1, xxh3-64"),
        ("zlib:crc64", "cannot be imported"),
        ("zlib:crc32", "must give bytes, at least one; for an empty key it gave 0"),
        ("zlib:compressobj", "failed for b'': TypeError"),
        ("builtins:bytes", "must give bytes, at least one; for an empty key it gave b''"),
    ],
)
def test_what_is_no_signature_is_refused(name: str, message: str) -> None:
    """The message says what may be asked for, or what is wrong with what was."""
    with pytest.raises(BadParameters, match=message):
        signature_named(name)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("key or b'1234'", "'{}' must give digests of one length; it gave 4 bytes for an empty key and 3 for b'123'"),
        ("None if key else b'1234'", "'{}' must give bytes; for b'123' it gave None"),
        ("'1234' if key else b'1234'", "'{}' must give bytes; for b'123' it gave '1234'"),
        ("key[0] if key else b'1234'", "'{}' must give bytes; for b'123' it gave 49"),
        ("key[9].to_bytes(4) if key else b'1234'", "'{}' failed for b'123': IndexError: index out of range"),
    ],
)
def test_an_own_signature_that_fails_later_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, message: str
) -> None:
    """One key alone and in a batch, also where the lengths of a batch add up to the right sum."""
    name = f"own_{zlib.crc32(function.encode())}"
    (tmp_path / f"{name}.py").write_text(f"def digest(key): return {function}\n")
    monkeypatch.syspath_prepend(tmp_path)
    own = signature_named(f"{name}:digest")
    words = re.escape(message.format(f"{name}:digest"))
    with pytest.raises(BadParameters, match=words):
        own.addresses([b"123", b"12345"], 2)
    with pytest.raises(BadParameters, match=words):
        own.address(b"123", 2)


def test_the_check_value_tells_functions_apart() -> None:
    """Up to seven bytes of the signature of "123456789"."""
    assert check_value(signature_named("crc32")) == "cbf43926"
    assert check_value(signature_named("md5")) == "25f9e794323b45"  # 25f9e794323b453885f5181f1b624d0b


def located(index: FileIndex, address: int) -> tuple[PurePosixPath, int]:
    """File and bit of an address, by the index's two numbers."""
    return index.name(address // index.file_bits), address % index.file_bits


def test_the_default_levels_make_256_files_of_2_mib() -> None:
    """Two levels of 1 and 3 bytes: `00` to `FF`, 2^24 bits each."""
    index = FileIndex((1, 3))
    names = [str(name) for name in index.names()]
    assert (names[0], names[10], names[-1], len(names)) == ("00", "0A", "FF", 256)
    assert index.file_bytes == 2 << 20


def test_the_leading_byte_names_the_file_and_the_rest_the_bit() -> None:
    """Most significant bytes first, upper-case hex."""
    assert located(FileIndex((1, 3)), 0xABCDEF01) == (PurePosixPath("AB"), 0xCDEF01)
    assert located(FileIndex((2, 2)), 0xABCDEF01) == (PurePosixPath("ABCD"), 0xEF01)


def test_levels_before_the_last_but_one_are_folders() -> None:
    """Three levels: folder, file, bit; four: folder in folder."""
    assert located(FileIndex((1, 1, 2)), 0x0A0BFFFF) == (PurePosixPath("0A/0B"), 0xFFFF)
    assert located(FileIndex((1, 1, 1, 1)), 0x0A0B0C0D) == (PurePosixPath("0A/0B/0C"), 0x0D)


@given(st.lists(st.integers(1, 3), min_size=2, max_size=4).filter(lambda levels: sum(levels) <= 7), st.data())
def test_addresses_and_bits_are_one_to_one(levels: list[int], data: st.DataObject) -> None:
    """File name and bit, put together again, are the address."""
    index = FileIndex(tuple(levels))
    address = data.draw(st.integers(0, 256**index.address_bytes - 1))
    name, bit = located(index, address)
    assert int("".join(name.parts), 16) * index.file_bits + bit == address


@pytest.mark.parametrize("levels", [(), (4,), (0, 3), (4, 4), (1, 6)])
def test_levels_that_make_no_store_are_refused(levels: tuple[int, ...]) -> None:
    """At least two levels of at least one byte, at most seven bytes together, and five in the last."""
    with pytest.raises(BadParameters, match="levels"):
        FileIndex(levels)


@pytest.mark.parametrize(
    ("expected", "levels"),
    [
        (0, (1, 1)),
        (256, (1, 1)),
        (257, (1, 2)),
        (65_664, (1, 2)),
        (65_665, (1, 3)),
        (16_809_000, (1, 3)),
        (10**10, (1, 3)),
    ],
)
def test_levels_fit_the_number_of_keys(expected: int, levels: tuple[int, ...]) -> None:
    """The smallest store that stays below a fill of 1/256; none is larger than 2^32 bits."""
    assert levels_for(expected) == levels
