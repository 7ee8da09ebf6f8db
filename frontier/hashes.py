"""String hashes that spread URLs over queues: 32-bit arithmetic, one 31-bit mask.

Source: "fast hashing in an intelligent mobile agent" (2013) names BKDR for speed and balance. Seed 131 is usual.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

SEED = 131
MASK = 0x7FFFFFFF


def bkdr(data: bytes) -> int:
    """BKDRHash: h = h × 131 + c over the bytes; O(len)."""
    value = 0
    for byte in data:
        value = (value * SEED + byte) & 0xFFFFFFFF
    return value & MASK


def bkdr_batch(batch: Sequence[bytes]) -> npt.NDArray[np.uint32]:
    """BKDRHash of each string at once, by numpy: the sum of c_i × 131^(n-1-i), which wraps as 32 bits do."""
    if not batch:
        return np.zeros(0, np.uint32)
    lengths = np.fromiter(map(len, batch), np.int64, len(batch))
    if not lengths.all():
        return np.fromiter((bkdr(data) for data in batch), np.uint32, len(batch))
    ends = np.cumsum(lengths)
    joined = np.frombuffer(b"".join(batch), np.uint8).astype(np.uint32)
    powers = _powers(int(lengths.max()))
    from_end = np.repeat(ends, lengths) - 1 - np.arange(len(joined))
    sums = np.add.reduceat(joined * powers[from_end], ends - lengths, dtype=np.uint32)
    return sums & np.uint32(MASK)


def _powers(count: int) -> npt.NDArray[np.uint32]:
    """131^0, 131^1, … modulo 2^32."""
    powers = np.full(count, SEED, np.uint32)
    powers[0] = 1
    return np.multiply.accumulate(powers, dtype=np.uint32)
