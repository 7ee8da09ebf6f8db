"""Keys as numbers: the arrays that pass between the filters, 128-bit fingerprints, and the hashes cut out of them.

A fingerprint is XXH3-128 (xxHash 0.8, seed 0), the same on every machine. Bits 0-39 and 40-79 (0 is the least significant
one) serve MapHash (which bits of a leaf), bits 80-127 serve LocHash (which leaf). With shared bits a leaf would reach only
part of its positions, and the false-positive rate would double.

As an array, n fingerprints are (n, 2) unsigned 64-bit numbers, high half first. On disk each is its canonical digest,
16 bytes big-endian. Each hash exists for an array and (`..._of`) for one fingerprint as a Python number, since a numpy
step costs 1 µs however few elements it has. The SMM's hashes are in `smm/addresses.py`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TypeAlias, TypeVar

import numpy as np
import xxhash
from numpy.typing import NDArray

BoolArray: TypeAlias = NDArray[np.bool_]
ByteArray: TypeAlias = NDArray[np.uint8]
IntArray: TypeAlias = NDArray[np.int64]
HashArray: TypeAlias = NDArray[np.uint64]
#: Shape (n, 2): bits 64-127 and bits 0-63 of n fingerprints.
Fingerprints: TypeAlias = NDArray[np.uint64]


def first_of_each(values: Sequence[Hashable]) -> BoolArray:
    """True where a value occurs for the first time in the batch. Cost: one set if all values differ, else a Python loop."""
    first = np.ones(len(values), dtype=np.bool_)
    if len(set(values)) == len(values):
        return first
    met: set[Hashable] = set()
    for place, value in enumerate(values):
        first[place] = value not in met
        met.add(value)
    return first


def are_distinct(numbers: IntArray) -> bool:
    """Whether no number is there twice. Cost: a sort, 0.01 µs each; a set of them takes ten times as long [measured]."""
    in_order = np.sort(numbers)
    return not (in_order[1:] == in_order[:-1]).any()


#: Size of one fingerprint on disk.
FINGERPRINT_BYTES = 16

_HIGH, _LOW = 0, 1
_WORDS = 2
_MASK_40 = (1 << 40) - 1
_MASK_64 = (1 << 64) - 1
#: Of SplitMix64: the step of its state and the two factors of its output function.
_GAMMA, _MIX_1, _MIX_2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
#: The same and shifts as numpy's numbers: making one takes as long as a step with it.
_STEP, _FACTOR_1, _FACTOR_2, _LOW_40 = map(np.uint64, (_GAMMA, _MIX_1, _MIX_2, _MASK_40))
_1, _16, _24, _40 = map(np.uint64, (1, 16, 24, 40))
_27, _30, _31 = map(np.uint64, (27, 30, 31))
_T = TypeVar("_T", bound=np.generic)


def fingerprint(key: bytes) -> int:
    """The key's fingerprint as a number of 128 bits."""
    return xxhash.xxh3_128_intdigest(key)


def fingerprints(keys: Sequence[bytes]) -> Fingerprints:
    """The keys' fingerprints. Cost: 0.1 µs per key of 60 bytes."""
    return from_bytes(b"".join(map(xxhash.xxh3_128_digest, keys)))


def as_array(element: int) -> Fingerprints:
    """One fingerprint as an array of length 1."""
    return np.array([[element >> 64, element & _MASK_64]], dtype=np.uint64)


def from_bytes(digests: bytes) -> Fingerprints:
    """Fingerprints out of their digests, one after the other."""
    return np.frombuffer(digests, dtype=">u8").astype(np.uint64).reshape(-1, _WORDS)


def to_bytes(elements: Fingerprints) -> bytes:
    """The digests of fingerprints, one after the other."""
    return elements.astype(">u8").tobytes()


def map_hashes(elements: Fingerprints) -> tuple[IntArray, IntArray]:
    """The two 40-bit hashes of a leaf's positions: position i is (first + i * second) mod m, and the second one is odd."""
    high, low = elements[:, _HIGH], elements[:, _LOW]
    second = low >> _40
    second |= high << _24
    second &= _LOW_40
    second |= _1
    return (low & _LOW_40).view(np.int64), second.view(np.int64)


def map_hashes_of(element: int) -> tuple[int, int]:
    """`map_hashes` of one fingerprint."""
    return element & _MASK_40, element >> 40 & _MASK_40 | 1


def locations(elements: Fingerprints) -> HashArray:
    """Bits 80-127 of each fingerprint, from which every level's LocHash is made."""
    return elements[:, _HIGH] >> _16


def location_of(element: int) -> int:
    """`locations` of one fingerprint."""
    return element >> 80


def loc_hash(location: HashArray, level: int) -> HashArray:
    """LocHash of a level: splitmix64(location xor level), to be taken mod the fan-out of a node of that level."""
    return splitmix64(location ^ np.uint64(level) if level else location)


def loc_hash_of(location: int, level: int) -> int:
    """`loc_hash` of one location."""
    mixed = (location ^ level) + _GAMMA & _MASK_64
    mixed = (mixed ^ mixed >> 30) * _MIX_1 & _MASK_64
    mixed = (mixed ^ mixed >> 27) * _MIX_2 & _MASK_64
    return mixed ^ mixed >> 31


def splitmix64(numbers: HashArray) -> HashArray:
    """The output function of SplitMix64 (Steele, Lea, Flood 2014; Vigna's splitmix64.c), for states `numbers`."""
    mixed = numbers + _STEP
    mixed ^= mixed >> _30
    mixed *= _FACTOR_1
    mixed ^= mixed >> _27
    mixed *= _FACTOR_2
    mixed ^= mixed >> _31
    return mixed


def distinct(elements: Fingerprints) -> Fingerprints:
    """The elements, each once, in the order of their first appearance. Cost: one sort of the low halves."""
    low = elements[:, _LOW]
    order = np.argsort(low, kind="stable")  # of equal elements the earliest comes first
    equal_low = _repeats(low[order])
    if not equal_low.any():
        return elements
    again = equal_low & _repeats(elements[order, _HIGH])
    if not np.array_equal(again, equal_low):  # different elements share a low half: equal ones need not be neighbours
        order = np.lexsort((elements[:, _HIGH], low))
        again = _repeats(low[order]) & _repeats(elements[order, _HIGH])
    return elements[np.sort(order[np.concatenate(([True], ~again))])]


def _repeats(ranked: NDArray[_T]) -> NDArray[np.bool_]:
    """For all but the first: it equals the one before it."""
    again: NDArray[np.bool_] = ranked[1:] == ranked[:-1]
    return again
