"""Figure 7 of the DSBF paper (2016): the false-positive rate against the number of URLs, for trees of c leaves.

Height 1 and no splits: the parts of the DSBF itself (LocHash, MapHash, leaves) without the part that splits. c = 1 is
the classic Bloom filter. n URLs are inserted and n/10 others asked for; the share taken for known is held against the
formulas: (8), (1 - e^(-kn/(ms)))^k, for the mean query, and (7), the worst leaf's rate.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from anabranch.crawler.lab.filters.fpr_report import Asked, Point, report, same_leaf_size, same_memory
from anabranch.crawler.lab.report import Report, Tell
from anabranch.crawler.lab.urls import distinct_urls
from anabranch.crawler.outcomes.errors import UsageError
from anabranch.dedup.batch import BoolArray, Fingerprints, IntArray
from anabranch.dedup.dsbf.bloom import best_hashes, capacity_with, false_positive_rates
from anabranch.dedup.dsbf.tree import Tree
from anabranch.dedup.fingerprint import fingerprints
from anabranch.dedup.leaves.arena import ArenaLeaves

_FEWEST_URLS, _MOST_LEAVES = 10_000, 100  # so the smallest leaf has 64 bits
_MOST_POINTS = 100
_PART = 10  # as published: one probe for ten URLs inserted
_AT_ONCE = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class FprOptions:
    """What `anabranch lab fpr` may be told."""

    urls: Path | None = None  #: one URL a line, for n + n/10 distinct ones; `n` and `seed` are not used then
    n: int = 2_000_000  #: URLs inserted at the last point
    leaves: tuple[int, ...] = (1, 2, 3, 5, 10)  #: the values of c
    points: int = 10  #: of each curve, evenly spaced up to n
    false_positive: float = 1e-3  #: f_max: sets k, and the filters' sizes such that n goes beyond what they hold
    seed: int = 1  #: of the generated URLs


class FixedTree:
    """A DSBF of height 1 in memory that never splits, however full it gets."""

    def __init__(self, leaves: int, leaf_bits: int, hashes: int) -> None:
        self.leaf_bits, self.hashes = leaf_bits, hashes
        self._tree = Tree.rooted(leaves)
        self._bits = ArenaLeaves(leaf_bits, hashes, leaves)
        self._slots: IntArray = np.array([-1, *(self._bits.take() for _ in range(leaves))], dtype=np.int64)
        self.counts: IntArray = np.zeros(leaves, dtype=np.int64)  #: elements per leaf

    def mark(self, elements: Fingerprints) -> None:
        """Insert elements that are distinct."""
        nodes = self._tree.descend(elements)
        self.counts += np.bincount(nodes - 1, minlength=len(self.counts))
        for part in _parts(len(elements)):
            self._bits.mark(self._slots[nodes[part]], elements[part])

    def ask(self, elements: Fingerprints) -> tuple[IntArray, BoolArray]:
        """The leaf of each element, the first is 0, and whether it is taken for known."""
        nodes, known = self._tree.descend(elements), np.zeros(len(elements), dtype=np.bool_)
        for part in _parts(len(elements)):
            known[part] = ~self._bits.unseen(self._slots[nodes[part]], elements[part])
        return nodes - 1, known


def run(options: FprOptions, tell: Tell) -> Report:
    """Measure both halves of the figure. Raises: UsageError. Cost: 5 µs and 300 bytes per URL."""
    _refuse(options)
    steps = 1 + 2 * len(options.leaves)
    tell(0, steps, "URLs")
    elements = fingerprints(distinct_urls(options.urls, options.n + -(-options.n // _PART), options.seed))
    n, hashes = len(elements) * _PART // (_PART + 1), best_hashes(1 << 30, options.false_positive)
    if n < _FEWEST_URLS:
        raise UsageError(f"{n} distinct URLs to insert are too few: give {_FEWEST_URLS} and a tenth more to ask for")
    whole = whole_bits(n, hashes, options.false_positive)
    equal, fixed = [], []
    for step, leaves in enumerate(options.leaves):
        tell(1 + 2 * step, steps, f"c = {leaves}, the same memory")
        share = FixedTree(leaves, 1 << (whole // leaves).bit_length() - 1, hashes)
        stops = _stops(n * leaves * share.leaf_bits // whole, options.points)
        equal.append(tuple(measured(share, elements, stops)))
        tell(2 + 2 * step, steps, f"c = {leaves}, the same leaf size")
        fixed.append(tuple(measured(FixedTree(leaves, whole // 4, hashes), elements, _stops(n, options.points))))
    tell(steps, steps, "done")
    return report([same_memory(whole, equal), same_leaf_size(whole // 4, fixed)], hashes, options.false_positive)


def whole_bits(n: int, hashes: int, false_positive: float) -> int:
    """The largest power of two of bits that n URLs overfill: its capacity is n or less."""
    bits = 64
    while capacity_with(2 * bits, hashes, false_positive) <= n:
        bits *= 2
    return bits


def measured(tree: FixedTree, elements: Fingerprints, stops: Sequence[int]) -> Iterator[Point]:
    """Fill the tree up to each stop, and there ask for the elements that follow, a tenth as many."""
    held = 0
    for stop in stops:
        tree.mark(elements[held:stop])
        held = stop
        yield _point(tree, stop, *tree.ask(elements[stop : stop + stop // _PART]))


def _point(tree: FixedTree, urls: int, leaves: IntArray, known: BoolArray) -> Point:
    number, fullest = len(tree.counts), int(tree.counts.argmax())
    there = leaves == fullest
    loads = np.array([urls / number, tree.counts[fullest]])
    equal, most = false_positive_rates(tree.leaf_bits, tree.hashes, loads).tolist()
    return Point(
        leaves=number,
        bits=number * tree.leaf_bits,
        urls=urls,
        fullest=int(tree.counts[fullest]),
        mean=Asked(probes=len(known), hits=int(known.sum()), formula=equal),
        worst=Asked(probes=int(there.sum()), hits=int(known[there].sum()), formula=most),
    )


def _refuse(options: FprOptions) -> None:
    if options.urls is None and options.n < _FEWEST_URLS:
        raise UsageError(f"--n is {options.n}: rates of less than {_FEWEST_URLS} URLs say little; ask for more")
    if not options.leaves or not all(1 <= leaves <= _MOST_LEAVES for leaves in options.leaves):
        raise UsageError(f"--leaves {options.leaves}: name one number or more, each from 1 to {_MOST_LEAVES}")
    if not 1 <= options.points <= _MOST_POINTS:
        raise UsageError(f"--points {options.points}: a curve has from 1 to {_MOST_POINTS}")
    if not 0 < options.false_positive <= 0.5:
        raise UsageError(f"--false-positive {options.false_positive}: it must be above 0 and at most 0.5")


def _stops(last: int, points: int) -> list[int]:
    return [last * number // points for number in range(1, points + 1)]


def _parts(count: int) -> Iterator[slice]:
    return (slice(start, start + _AT_ONCE) for start in range(0, count, _AT_ONCE))
