"""Ids, fingerprints and turns: 64-bit numbers that SQL can hold."""

from __future__ import annotations

import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.frontier.records import (
    name_id,
    precedence_of,
    seen_fingerprint,
    seen_fingerprints,
    turn_of,
    with_precedence,
)


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


PRECEDENCES = st.integers(0, 255)
ARRIVALS = st.integers(1, (1 << 48) - 1)


@given(PRECEDENCES, ARRIVALS, PRECEDENCES, ARRIVALS)
def test_turns_are_ordered_by_precedence_and_then_by_arrival(a: int, first: int, b: int, second: int) -> None:
    """Whole numbers compare as the pairs do, so a database can sort by them."""
    assert (turn_of(a, first) < turn_of(b, second)) == ((a, first) < (b, second))


@given(PRECEDENCES, ARRIVALS)
def test_a_turn_fits_a_signed_integer_of_64_bits_and_tells_its_precedence(precedence: int, arrival: int) -> None:
    """For every precedence there is, and 2**48 arrivals."""
    turn = turn_of(precedence, arrival)
    assert 0 <= turn < 1 << 63
    assert precedence_of(turn) == precedence


@given(PRECEDENCES, ARRIVALS, PRECEDENCES)
def test_another_precedence_keeps_the_arrival(before: int, arrival: int, after: int) -> None:
    """Among its new equals it stands where it came."""
    assert with_precedence(turn_of(before, arrival), after) == turn_of(after, arrival)
