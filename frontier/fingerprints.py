"""Ids and fingerprints of 64 bits, signed as SQL integers are."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import xxhash

_SIGN = 1 << 63
_RANGE = 1 << 64


def seen_fingerprint(key: bytes) -> int:
    """The low 64 bits of the key's XXH3-128, as a signed integer.

    Two different keys share one with probability 2**-64: at 10 million URLs one in 370,000 crawls loses one URL.
    """
    return _signed(xxhash.xxh3_128_intdigest(key) & (_RANGE - 1))


def seen_fingerprints(keys: Sequence[bytes]) -> list[int]:
    """The fingerprint of each key; half the price of one by one."""
    digest = xxhash.xxh3_128_digest  # big-endian: the low 64 bits are the last 8 bytes
    return list(struct.unpack(">" + "8xq" * len(keys), b"".join([digest(key) for key in keys])))


def name_id(name: str) -> int:
    """The id of a queue or gate: XXH3-64 of its key in UTF-8, as a signed integer. Raises: TypeError if it is no such text."""
    try:
        encoded = name.encode()
    except (AttributeError, UnicodeEncodeError):
        raise TypeError(f"the key of a queue or gate is text that UTF-8 can hold; not {name!r}") from None
    return _signed(xxhash.xxh3_64_intdigest(encoded))


def _signed(value: int) -> int:
    return value - _RANGE if value >= _SIGN else value
