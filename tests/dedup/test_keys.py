from __future__ import annotations

import numpy as np
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from anabranch.dedup.keys import (
    are_distinct,
    as_array,
    distinct,
    fingerprint,
    fingerprints,
    first_of_each,
    from_bytes,
    loc_hash,
    loc_hash_of,
    location_of,
    locations,
    map_hashes,
    map_hashes_of,
    splitmix64,
    to_bytes,
)


@given(st.lists(st.integers(0, 5)))
def test_each_value_is_first_where_it_was_not_met_before(values: list[int]) -> None:
    """A value is first exactly where no earlier place holds it."""
    assert first_of_each(values).tolist() == [value not in values[:i] for i, value in enumerate(values)]


MASK_40 = (1 << 40) - 1


def test_the_fingerprint_is_the_published_xxh3_128() -> None:
    """The empty input's XXH3-128 as in the reference implementation's test vectors."""
    assert fingerprint(b"") == 0x99AA06D3014798D86001C324468D497F


@given(st.lists(st.binary()))
def test_scalar_and_batch_agree_and_bytes_are_the_digest(keys: list[bytes]) -> None:
    """One key or many: the same numbers; on disk the canonical digest."""
    batch = fingerprints(keys)
    assert [int(high) << 64 | int(low) for high, low in batch] == [fingerprint(key) for key in keys]
    assert to_bytes(batch) == b"".join(xxhash.xxh3_128_digest(key) for key in keys)
    assert np.array_equal(from_bytes(to_bytes(batch)), batch)


@given(st.lists(st.binary(), min_size=1))
def test_no_bit_serves_both_hashes(keys: list[bytes]) -> None:
    """MapHash is bits 0-39 and 40-79 (made odd), LocHash bits 80-127."""
    batch = fingerprints(keys)
    first, second = map_hashes(batch)
    for key, one, two, location in zip(keys, first, second, locations(batch), strict=True):
        whole = fingerprint(key)
        assert int(one) == whole & MASK_40
        assert int(two) == whole >> 40 & MASK_40 | 1
        assert int(location) == whole >> 80


@given(st.lists(st.binary(), min_size=1), st.integers(0, 40))
def test_hashes_of_one_are_those_of_many(keys: list[bytes], level: int) -> None:
    """Numbers and arrays give the same hashes, bit for bit."""
    batch = fingerprints(keys)
    elements = [fingerprint(key) for key in keys]
    assert [as_array(element).tolist() for element in elements] == [[row] for row in batch.tolist()]
    first, second = map_hashes(batch)
    assert [map_hashes_of(element) for element in elements] == list(zip(first, second, strict=True))
    ways = loc_hash(locations(batch), level).tolist()
    assert [loc_hash_of(location_of(element), level) for element in elements] == ways


def test_splitmix64_is_the_published_one() -> None:
    """The first outputs of splitmix64.c seeded with 1234567."""
    golden = 0x9E3779B97F4A7C15
    states = np.array([(1234567 + i * golden) % (1 << 64) for i in range(3)], dtype=np.uint64)
    assert splitmix64(states).tolist() == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_levels_have_independent_loc_hashes() -> None:
    """Elements that agree at one level spread evenly at the next: with one hash all would go to one child."""
    location = locations(fingerprints([b"%d" % i for i in range(40_000)]))
    together = location[loc_hash(location, 0) % np.uint64(4) == 2]
    spread = np.bincount((loc_hash(together, 1) % np.uint64(4)).astype(np.int64), minlength=4)
    assert (abs(spread - len(together) / 4) < 5 * np.sqrt(len(together) / 4)).all()


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3))))
def test_distinct_keeps_first_appearances_in_order(pairs: list[tuple[int, int]]) -> None:
    """Elements that share one half only are different."""
    elements = np.array(pairs, dtype=np.uint64).reshape(-1, 2)
    assert [tuple(pair) for pair in distinct(elements).tolist()] == list(dict.fromkeys(pairs))


@given(st.lists(st.integers(-5, 5)))
def test_numbers_are_distinct_if_none_is_there_twice(values: list[int]) -> None:
    """In any order."""
    assert are_distinct(np.array(values, dtype=np.int64)) == (len(set(values)) == len(values))
