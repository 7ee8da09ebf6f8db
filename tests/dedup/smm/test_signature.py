import re
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.dedup.errors import BadParameters
from anabranch.dedup.smm.signature import SIGNATURES, check_value, signature_named

LONG = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"


def sanity_buffer(length: int) -> bytes:
    """The bytes on which xxHash publishes its values (XSUM_fillTestBuffer in xsum_sanity_check.c)."""
    text, state = bytearray(), 2654435761
    for _ in range(length):
        text.append(state >> 56)
        state = state * 11400714785074694797 % 2**64
    return bytes(text)


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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
