"""String hashes that spread URLs over queues: 32-bit arithmetic, one 31-bit mask for all.

Source: "fast hashing in an intelligent mobile agent" (2013) names the three and picks BKDR for speed and balance. The published
functions are those of Arash Partow's "General Purpose Hash Function Algorithms"; BKDR's usual seed is 131.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

BKDR_SEED = 131
#: (h << 6) + (h << 16) - h
SDBM_FACTOR = 65599
MASK = 0x7FFFFFFF

_MASK_32 = 0xFFFFFFFF
_HIGH_FOUR = 0xF0000000
#: Bytes of strings, each filled up to the longest, that are hashed at once.
_AT_ONCE = 1 << 20
#: Filled up they may be so many times as large as they are, if the longest is longer than the other bound.
_MOST_FILLED = 4
_WIDE = 256
#: A vectorised step takes as long as so many steps of the loop.
_FEW = 30
#: Of strings up to this length the powers of the factor are kept.
_KEPT_POWERS = 4096
Hashes = npt.NDArray[np.uint32]


def bkdr(data: bytes) -> int:
    """BKDRHash: h = h × 131 + c over the bytes; O(len)."""
    return _polynomial(data, BKDR_SEED)


def sdbm(data: bytes) -> int:
    """SDBMHash: h = c + (h << 6) + (h << 16) - h over the bytes; O(len)."""
    return _polynomial(data, SDBM_FACTOR)


def elf(data: bytes) -> int:
    """ELFHash: h = (h << 4) + c over the bytes, with the four highest bits folded back at each; O(len)."""
    return _folded(0, data) & MASK


def bkdr_batch(batch: Sequence[bytes]) -> Hashes:
    """BKDRHash of each string at once: the sum of c_i × 131^(n-1-i), which wraps as 32 bits do."""
    return _polynomials(batch, BKDR_SEED)


def sdbm_batch(batch: Sequence[bytes]) -> Hashes:
    """SDBMHash of each string at once."""
    return _polynomials(batch, SDBM_FACTOR)


def elf_batch(batch: Sequence[bytes]) -> Hashes:
    """ELFHash of each string at once: one vectorised step for each byte, as long as more than a few strings have one.

    Cost: O(bytes); a byte of a string that is longer than nearly all others costs as much as in `elf`.
    """
    lengths = np.fromiter(map(len, batch), np.int64, len(batch))
    order = np.argsort(-lengths, kind="stable")  # the longest first: who still has a byte stands in front
    joined = np.frombuffer(b"".join(batch), np.uint8).astype(np.uint32)
    starts = (np.cumsum(lengths) - lengths)[order]
    longer = np.searchsorted(-lengths[order], -np.arange(lengths.max(initial=0)), side="left")
    values = np.zeros(len(batch), np.uint32)
    steps = int(np.count_nonzero(longer > _FEW))
    for place, count in enumerate(longer[:steps].tolist()):
        part = (values[:count] << np.uint32(4)) + joined[starts[:count] + place]
        high = part & np.uint32(_HIGH_FOUR)
        values[:count] = (part ^ high >> np.uint32(24)) & ~high
    for row, number in enumerate(order[: longer[steps] if steps < len(longer) else 0].tolist()):
        values[row] = _folded(int(values[row]), batch[number][steps:])
    hashed = np.empty_like(values)
    hashed[order] = values & np.uint32(MASK)
    return hashed


def _folded(value: int, data: bytes) -> int:
    for byte in data:
        value = (value << 4) + byte & _MASK_32
        high = value & _HIGH_FOUR
        value = (value ^ high >> 24) & ~high
    return value


def _polynomial(data: bytes, factor: int) -> int:
    if not data:
        return 0
    return int(np.frombuffer(data, np.uint8) @ _powers(factor, len(data))) & MASK


def _polynomials(batch: Sequence[bytes], factor: int) -> Hashes:
    """The strings stand in a table, flush right: zeros before a string add nothing to its hash.

    Cost: O(bytes), however unequal they are: the long ones have a table of their own where one table would be zeros for the
    most part. A table is at most four times as large as its strings, or has 256 bytes for each.
    """
    count, width = len(batch), max(map(len, batch), default=0)
    if not width:
        return np.zeros(count, np.uint32)
    if width > _WIDE and count * width > _MOST_FILLED * sum(map(len, batch)):
        return _apart(batch, factor, width // _MOST_FILLED)
    if count > 1 and count * width > _AT_ONCE:
        halves = batch[: count // 2], batch[count // 2 :]
        return np.concatenate([_polynomials(half, factor) for half in halves])
    joined = b"".join([data.rjust(width, b"\0") for data in batch])
    table = np.frombuffer(joined, np.uint8).reshape(count, width).astype(np.uint32)
    sums: Hashes = table @ _powers(factor, width)
    return sums & np.uint32(MASK)


def _apart(batch: Sequence[bytes], factor: int, longest: int) -> Hashes:
    """The hashes of strings up to this length, and of the longer ones, each in a table of their own."""
    is_long = np.fromiter((len(data) > longest for data in batch), np.bool_, len(batch))
    hashed = np.empty(len(batch), np.uint32)
    hashed[is_long] = _polynomials([data for data in batch if len(data) > longest], factor)
    hashed[~is_long] = _polynomials([data for data in batch if len(data) <= longest], factor)
    return hashed


def _powers(factor: int, count: int) -> Hashes:
    """The `count` lowest powers of the factor modulo 2^32, the highest first."""
    if count > _KEPT_POWERS:
        return _worked_out(factor, count)
    return _kept(factor, _KEPT_POWERS)[-count:]


def _worked_out(factor: int, count: int) -> Hashes:
    powers = np.full(count, factor, np.uint32)
    powers[0] = 1
    return np.multiply.accumulate(powers, dtype=np.uint32)[::-1].copy()


_kept = lru_cache(2)(_worked_out)
