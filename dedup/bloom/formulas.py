"""The arithmetic of Bloom filters, applied to a DSBF's three numbers n, m and f (Bloom 1970 and the DSBF papers).

Classic leaves: n elements in m bits under k hashes leave a bit clear with probability p0 = e^(-kn/m); a key never inserted
is taken for known with (1 - p0)^k.

Blocked leaves (Putze, Sanders, Singler 2007, "Cache-, Hash- and Space-Efficient Bloom Filters", section 3): all k positions
of an element are in one block of B = 512 bits, a cache line. The number i of elements in a block is Poisson distributed with
the mean Bn/m; i elements leave a bit of the block clear with (1 - 1/B)^(ki). So the rate is the mean over the blocks' loads,
sum over i of Poisson(i) (1 - (1 - 1/B)^(ki))^k: not a function of the share of bits that are set in the whole leaf.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from anabranch.dedup.errors import BadParameters
from anabranch.dedup.keys import IntArray

#: A leaf splits at this share of its capacity at the latest: the rest is room for what one step of a batch adds. Blocked
#: leaves hold fewer elements, and leave less room to them: 19 hold the default number, where 18 classic ones do.
SPLIT_SHARE = 0.97
BLOCKED_SPLIT_SHARE = 0.98
#: Elements of splitting leaves that move on for each key that is marked. More of them end a split sooner and make each
#: call dearer; with 32 a leaf's children take 1/32 of its load in new keys until the split ends.
MOVES_PER_KEY = 32

#: Each first leaf is a file and its bits in memory: 64 GiB with the default leaves, for 36,000 million keys.
MOST_FIRST_LEAVES = 1 << 16

#: The two kinds of leaves: how far an element's positions lie apart.
CLASSIC, BLOCKED = "classic", "blocked"
#: By kind: what its files add to their version, so that a program which does not know the kind refuses them.
LEAF_KINDS = {CLASSIC: 0, BLOCKED: 1}
#: B: bits of a block, a cache line of all current processors.
BLOCK_BITS = 512

_FEWEST_BITS = 64
_MOST_BITS = 1 << 40  # MapHash has 40 bits
_FEWEST_CHILDREN = 2


def false_positive_rates(m: int, k: int, n: IntArray | NDArray[np.float64]) -> NDArray[np.float64]:
    """Rates of filters of m bits and k hashes that hold n elements each: (1 - e^(-kn/m))^k."""
    return np.asarray((-np.expm1(-k * n / m)) ** k, dtype=np.float64)


def block_rates(k: int, loads: IntArray | NDArray[np.float64]) -> NDArray[np.float64]:
    """Rates of single blocks that hold so many elements each: (1 - (1 - 1/B)^(ki))^k."""
    return np.asarray((-np.expm1(k * math.log1p(-1 / BLOCK_BITS) * loads)) ** k, dtype=np.float64)


#: Blocks are loaded so unevenly that it matters up to this mean; above it a rate is next to 1, whatever k is.
_HIGHEST_MEAN = 2048
_DEVIATIONS, _MORE_LOADS = 12, 30


def blocked_rates(m: int, k: int, n: IntArray | NDArray[np.float64]) -> NDArray[np.float64]:
    """Rates of blocked filters of m bits and k hashes that hold n elements each: means over the loads of their blocks."""
    means = np.asarray(n, dtype=np.float64) * (BLOCK_BITS / m)
    few = (means > 0) & (means <= _HIGHEST_MEAN)
    rates = np.empty_like(means) if few.all() else block_rates(k, means)
    if few.any():
        mean = means[few][:, None]
        highest = float(mean.max())
        loads = np.arange(math.ceil(highest + _DEVIATIONS * math.sqrt(highest)) + _MORE_LOADS)
        log_factorials = np.cumsum(np.log(np.maximum(loads, 1)))
        rates[few] = np.exp(loads * np.log(mean) - mean - log_factorials) @ block_rates(k, loads)
    return rates


def capacity_with(m: int, k: int, f: float) -> int:
    """Most elements that m bits hold under k hashes at a rate of at most f: floor(-(m/k) ln(1 - f^(1/k)))."""
    return math.floor(-(m / k) * math.log1p(-(f ** (1 / k))))


#: Numbers whose rates are computed at once.
_AT_ONCE = 64


def last_within(most: int, f: float, rates: Callable[[IntArray], NDArray[np.float64]]) -> int:
    """The largest number from 0 to `most` whose rate is at most f, or -1; rates grow with it. Cost: log64(most) calls."""
    below, above = -1, most + 1
    while above - below > 1:
        asked = np.linspace(below + 1, above - 1, min(_AT_ONCE, above - below - 1)).astype(np.int64)
        within = int(np.searchsorted(rates(asked), f, side="right"))
        if within < len(asked):
            above = asked[within].item()
        if within:
            below = asked[within - 1].item()
    return below


@lru_cache(maxsize=64)
def blocked_capacity(m: int, k: int, f: float) -> int:
    """`capacity_with` of blocked filters, by search."""
    return last_within(2 * capacity_with(m, k, f) + 1, f, partial(blocked_rates, m, k))


def best_hashes(m: int, f: float) -> int:
    """The whole number of hashes with the largest capacity: floor or ceiling of log2(1/f), at least 1."""
    exact = -math.log2(f)
    return max({max(1, math.floor(exact)), math.ceil(exact)}, key=lambda k: (capacity_with(m, k, f), -k))


def best_blocked_hashes(m: int, f: float) -> int:
    """`best_hashes` of blocked filters: the lower the rate, the fewer they are in comparison."""
    best = math.ceil(-math.log2(f)) + 1
    while best > 1 and blocked_capacity(m, best - 1, f) >= blocked_capacity(m, best, f):
        best -= 1
    return best


def leaves_for(n: int, capacity: int) -> int:
    """Least number c of leaves with n/c + 3 sqrt(n/c) <= capacity: three standard deviations for uneven leaves."""
    if n <= 0:
        return 1
    share = ((math.sqrt(9 + 4 * capacity) - 3) / 2) ** 2  # the x with x + 3 sqrt(x) = capacity
    c = max(1, math.floor(n / share) if share else n)
    while n / c + 3 * math.sqrt(n / c) > capacity:
        c += 1
    return c


@dataclass(frozen=True, kw_only=True)  # no slots: they would leave no room for cached properties
class DsbfParameters:
    """The user's parameters of a DSBF, and the sizes computed from them. Raises: BadParameters."""

    expected: int = 10_000_000  #: n: elements that fit before the first split
    false_positive: float = 1e-3  #: f: a leaf's rate never exceeds it
    leaf_bits: int = 1 << 23  #: m: bits of one leaf, a power of two, 64 to 2^40
    split_fan_out: int = 4  #: children that a full leaf gets
    leaf_kind: str = CLASSIC  #: a name in `LEAF_KINDS`

    def __post_init__(self) -> None:
        if self.expected < 0:
            raise BadParameters(f"expected is {self.expected}; it must be 0 or more")
        if not 0 < self.false_positive <= 0.5:
            raise BadParameters(f"false_positive is {self.false_positive}; it must be in (0, 0.5]")
        if not _FEWEST_BITS <= self.leaf_bits <= _MOST_BITS or self.leaf_bits & (self.leaf_bits - 1):
            bounds = f"{_FEWEST_BITS} to {_MOST_BITS}"
            raise BadParameters(f"leaf_bits is {self.leaf_bits}; it must be a power of two from {bounds}")
        if self.split_fan_out < _FEWEST_CHILDREN:
            raise BadParameters(f"split_fan_out is {self.split_fan_out}; it must be 2 or more")
        if self.leaf_kind not in LEAF_KINDS:
            raise BadParameters(f"leaf_kind is {self.leaf_kind!r}; it must be one of {', '.join(LEAF_KINDS)}")
        if self.is_blocked and self.leaf_bits < BLOCK_BITS:
            raise BadParameters(f"leaf_bits is {self.leaf_bits}; blocked leaves have {BLOCK_BITS} or more")
        if self.split_above < 1:
            raise BadParameters(f"leaf_bits {self.leaf_bits} hold nothing at a rate of {self.false_positive}")

    @property
    def is_blocked(self) -> bool:
        """All positions of an element are in one block of its leaf."""
        return self.leaf_kind == BLOCKED

    @cached_property
    def hashes(self) -> int:
        """k: positions of an element in its leaf."""
        best = best_blocked_hashes if self.is_blocked else best_hashes
        return best(self.leaf_bits, self.false_positive)

    @cached_property
    def capacity(self) -> int:
        """u: elements that a leaf holds at a rate of f."""
        capacity = blocked_capacity if self.is_blocked else capacity_with
        return capacity(self.leaf_bits, self.hashes, self.false_positive)

    def rates(self, n: IntArray | NDArray[np.float64]) -> NDArray[np.float64]:
        """False-positive rates of leaves that hold n elements each. Cost: O(n)."""
        rates = blocked_rates if self.is_blocked else false_positive_rates
        return rates(self.leaf_bits, self.hashes, n)

    def record(self) -> dict[str, str | int | float]:
        """The parameters as files record them: a classic filter's as they were before there were kinds."""
        recorded: dict[str, str | int | float] = asdict(self)
        if not self.is_blocked:
            del recorded["leaf_kind"]
        return recorded

    @cached_property
    def split_above(self) -> int:
        """s: a leaf splits when its count exceeds this; the largest number that keeps three promises, at least 1.

        1. s <= SPLIT_SHARE u, or BLOCKED_SPLIT_SHARE u.
        2. s <= (1 - f) u. The count leaves out elements that the leaf took for known, at most f of the true number N
           at every moment: N <= count / (1 - f) <= u.
        3. f(s) + f(load of a child at the split's end) <= f. While a leaf splits, a query asks it and one child. The child
           gets s / fan-out elements, unevenly (three standard deviations), and the keys marked meanwhile: s / MOVES_PER_KEY,
           twice that if the leaf waits behind others, since evenly loaded leaves fill in waves.
        """
        share = BLOCKED_SPLIT_SHARE if self.is_blocked else SPLIT_SHARE
        most = math.floor(min(share, 1 - self.false_positive) * self.capacity)
        return max(min(1, most), last_within(most, self.false_positive, self._rates_while_splitting))

    def _rates_while_splitting(self, s: IntArray) -> NDArray[np.float64]:
        """Rates of leaves of s elements and of their fullest children, added up; they grow with s."""
        share = s / self.split_fan_out
        children = share + 3 * np.sqrt(share) + 2 * s / MOVES_PER_KEY
        return np.asarray(self.rates(np.stack([s, children])).sum(axis=0), dtype=np.float64)

    @cached_property
    def first_leaves(self) -> int:
        """c: leaves below the root, so that the expected elements need no split."""
        return leaves_for(self.expected, self.split_above)

    def require_few_leaves(self) -> None:
        """Raise BadParameters if a new filter would begin with too many leaves."""
        if self.first_leaves > MOST_FIRST_LEAVES:
            raise BadParameters(
                f"expected is {self.expected}; it asks for {self.first_leaves:,} leaves of {self.leaf_bits} bits at once, and "
                f"{MOST_FIRST_LEAVES:,} are the most: expect fewer, since the filter grows, or raise leaf_bits"
            )

    @property
    def planned_rate(self) -> float:
        """The mean rate of the leaves once the expected elements are there."""
        return float(self.rates(np.array([self.expected / self.first_leaves]))[0])
