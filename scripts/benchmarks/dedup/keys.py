"""Keys for the filters, and the time that calls with them take."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

Keys = list[bytes]
Call = Callable[[Keys], object]

_HOSTS = 1000


def urls(numbers: Sequence[int]) -> Keys:
    """One URL per number, some 40 bytes long; different numbers give different URLs."""
    return [b"http://host%d.example/path/%d.html" % (number % _HOSTS, number) for number in numbers]


def parts(count: int, number: int = 20) -> Iterator[range]:
    """0 to `count` in that many ranges: the keys of all at once would fill the memory."""
    edges = [count * part // number for part in range(number + 1)]
    return (range(start, end) for start, end in pairwise(edges))


def scattered(numbers: Sequence[int], count: int) -> list[int]:
    """Other numbers below `count`, which lie all over them. They are all different if the numbers are."""
    stride = 7_368_787  # a prime that divides no round number
    return [number * stride % count for number in numbers]


def batches(keys: Keys, size: int) -> list[Keys]:
    """The keys in batches of that size; the last one may be shorter."""
    return [keys[start : start + size] for start in range(0, len(keys), size)]


def keys_per_s(call: Call, in_batches: Sequence[Keys]) -> float:
    """Speed of one call per batch, one after the other."""
    started = time.perf_counter()
    for batch in in_batches:
        call(batch)
    return sum(map(len, in_batches)) / (time.perf_counter() - started)


class Speeds:
    """The speeds of one call over several parts of the keys."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self.cpu_us: list[float] = []  #: CPU time of a key, of each part
        self._speeds: list[float] = []
        self._keys = 0
        self._seconds = 0.0

    def time(self, in_batches: Sequence[Keys]) -> None:
        """Add a part."""
        cpu_s = time.process_time()
        speed, keys = keys_per_s(self._call, in_batches), sum(map(len, in_batches))
        self.cpu_us.append(1e6 * (time.process_time() - cpu_s) / keys)
        self._speeds.append(speed)
        self._keys += keys
        self._seconds += keys / speed

    @property
    def median(self) -> float:
        """The median of the parts' speeds, in keys per second."""
        return statistics.median(self._speeds)

    @property
    def spread(self) -> str:
        """The slowest and the fastest part, and the speed over all, in words."""
        slowest, fastest = min(self._speeds), max(self._speeds)
        return (
            f"median of {len(self._speeds)} parts, {slowest:,.0f} to {fastest:,.0f}; "
            f"{self._keys / self._seconds:,.0f} over all {self._keys:,} keys"
        )
