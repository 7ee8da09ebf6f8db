"""How fast this machine is, by one fixed loop, so that rates of different machines can be compared.

The targets are for a machine on which one core does the bare crawl loop (aiohttp GET of a page of 12 KB from another
process on loopback, selectolax reads its 60 links) at 6,500 pages/s. A bench of filters does not crawl: it runs the loop
below, which does what filters spend their time on, for each batch of 64 keys some hashing in C, a dozen numpy steps,
random places in 16 MiB and a Python loop.

REFERENCE_ROUNDS is what this loop would do on a machine with 6,500 pages/s. Both loops were run in turns, by the CPU time
of their thread, on one machine (2 cores of an AMD EPYC, Python 3.11, numpy 2.4) at different hours; the pairs put it between
110 and 153. The lowest is taken: it flatters least. A machine of another make is placed only as well as the two loops slow
down alike there. Whoever changes the loop measures the reference anew.
"""

from __future__ import annotations

import statistics
import time
import zlib

import numpy as np
from numpy.typing import NDArray

#: Rounds per second of the machine that the targets are for.
REFERENCE_ROUNDS = 110.0

_TABLE_BYTES = 1 << 24
_BATCHES = 300
_BATCH = 64


def rounds_per_s(repetitions: int = 15) -> float:
    """The median speed of that many rounds, some 10 ms each, after one that does not count."""
    table = new_table()
    work(table)
    return statistics.median(1 / _seconds(table) for _ in range(repetitions))


def new_table() -> NDArray[np.uint8]:
    """The data of a round."""
    return np.zeros(_TABLE_BYTES, dtype=np.uint8)


def work(table: NDArray[np.uint8]) -> int:
    """One round: batches of keys set bits in the table. Returns how many keys had a clear bit."""
    new_keys = 0
    for batch in range(_BATCHES):
        keys = [b"http://calibration.example/%d/%d.html" % (batch, number) for number in range(_BATCH)]
        words = np.fromiter(map(zlib.crc32, keys), dtype=np.int64, count=_BATCH)
        steps = words + np.arange(10, dtype=np.int64)[:, None] * (words << 3 | 1)
        places = steps >> 3 & (_TABLE_BYTES - 1)
        bits = (1 << (steps & 7)).astype(np.uint8)
        new = ((table[places] & bits) != bits).any(axis=0)
        table[places] |= bits
        new_keys += sum(new.tolist())
    return new_keys


def _seconds(table: NDArray[np.uint8]) -> float:
    started = time.perf_counter()
    work(table)
    return time.perf_counter() - started
