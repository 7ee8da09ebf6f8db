"""Ids and fingerprints: 64 bits of a named hash, signed as SQL integers are."""

import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.frontier.fingerprints import name_id, seen_fingerprint, seen_fingerprints


def test_a_fingerprint_is_the_low_half_of_xxh3_128() -> None:
    """The digest's last eight bytes (it is written big-endian), as a signed integer; XXH's own vector for nothing."""
    assert seen_fingerprint(b"") == int.from_bytes(bytes.fromhex("6001c324468d497f"), "big", signed=True)
    low = xxhash.xxh3_128_digest(b"http://a.test/")[8:]
    assert seen_fingerprint(b"http://a.test/") == int.from_bytes(low, "big", signed=True)


def test_an_id_is_xxh3_64_of_the_name() -> None:
    """XXH's own vector for the empty name; other names by their UTF-8 bytes."""
    assert name_id("") == 0x2D06800538D394C2
    digest = xxhash.xxh3_64_digest("Malmö".encode())
    assert name_id("Malmö") == int.from_bytes(digest, "big", signed=True)


@settings(max_examples=100)
@given(st.binary(max_size=40))
def test_ids_fit_a_signed_column(key: bytes) -> None:
    """Every value is a 64-bit signed integer."""
    for value in (seen_fingerprint(key), name_id(key.hex())):
        assert -(2**63) <= value < 2**63


@pytest.mark.parametrize("name", ["\ud800", "a\udfff"])
def test_a_name_that_utf_8_cannot_hold_is_refused(name: str) -> None:
    """A lone surrogate (bytes of a file name, say): no store could keep it."""
    with pytest.raises(TypeError, match="is text that UTF-8 can hold; not"):
        name_id(name)


@given(st.lists(st.binary(max_size=40), max_size=5))
def test_many_fingerprints_are_those_of_each_key(keys: list[bytes]) -> None:
    """The store's rows and its questions must mean the same number."""
    assert seen_fingerprints(keys) == [seen_fingerprint(key) for key in keys]
