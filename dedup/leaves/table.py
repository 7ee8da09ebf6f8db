"""The leaves of a DSBF's tree in memory: where each one's bits are, and how many elements it counts.

Nothing here touches the disk, so nothing here fails halfway: the logs (`log.py`) are the set, this is its image.
"""

from __future__ import annotations

import numpy as np

from dedup.batch import BoolArray, Fingerprints, IntArray
from dedup.bloom import DsbfParameters, false_positive_rates
from dedup.errors import InvariantBroken
from dedup.leaves.arena import ArenaLeaves
from dedup.leaves.base import Leaves
from dedup.tree import DEEPEST, Tree


class LeafTable:
    """Per node of the tree its slot in the bit arrays (-1: none) and its count. Each leaf is to be `settle`d first."""

    def __init__(self, parameters: DsbfParameters, tree: Tree) -> None:
        self._parameters = parameters
        self._leaves: Leaves = ArenaLeaves(parameters.leaf_bits, parameters.hashes, len(tree.leaves))
        self._slots: IntArray = np.full(len(tree), -1, dtype=np.int64)
        self._counts: IntArray = np.zeros(len(tree), dtype=np.int64)
        self.tree = tree
        self.elements = 0  #: sum of all counts

    @property
    def memory_bytes(self) -> int:
        """Bit arrays in memory."""
        return self._leaves.memory_bytes

    def settle(self, leaf: int, elements: Fingerprints) -> None:
        """Let the leaf hold exactly these elements, which are distinct."""
        self._slots[leaf] = slot = self._leaves.take()
        self._leaves.fill(slot, elements)
        self._counts[leaf] = len(elements)
        self.elements += len(elements)

    def replace(self, leaf: int, tree: Tree, parts: dict[int, Fingerprints]) -> None:
        """Let the children that the leaf has in the new tree serve in its place, each with its part."""
        self._leaves.drop(int(self._slots[leaf]))
        self.elements -= int(self._counts[leaf])
        room = len(tree) - len(self.tree)
        self._slots = np.append(self._slots, np.full(room, -1, dtype=np.int64))
        self._counts = np.append(self._counts, np.zeros(room, dtype=np.int64))
        self._slots[leaf], self._counts[leaf] = -1, 0
        for child, elements in parts.items():
            self.settle(child, elements)
        self.tree = tree

    def unseen(self, elements: Fingerprints) -> BoolArray:
        """True where the element has a clear bit in its leaf."""
        return self._leaves.unseen(self._slots[self.tree.descend(elements)], elements)

    def is_unseen(self, element: int) -> bool:
        """`unseen` of one element."""
        return self._leaves.is_unseen(self._slots.item(self.tree.leaf_of(element)), element)

    def mark(self, elements: Fingerprints, is_first: BoolArray) -> IntArray:
        """Set the elements' bits, count those that are new and first in the batch, and answer the leaf of each."""
        leaves = self.tree.descend(elements)
        new = self._leaves.mark(self._slots[leaves], elements) & is_first
        np.add.at(self._counts, leaves[new], 1)
        self.elements += int(np.count_nonzero(new))
        return leaves

    def mark_one(self, element: int) -> int:
        """`mark` of one element."""
        leaf = self.tree.leaf_of(element)
        if self._leaves.mark_one(self._slots.item(leaf), element):
            self._counts[leaf] += 1
            self.elements += 1
        return leaf

    def full(self, leaves: IntArray) -> list[int]:
        """Those of the leaves (one at least) that hold too much, each once; none that is as deep as it may be."""
        is_full = self._counts[leaves] > self._parameters.split_above
        if not is_full.any():
            return []
        return [leaf for leaf in set(leaves[is_full].tolist()) if self.tree.level[leaf] < DEEPEST]

    def rates(self) -> tuple[float, float]:
        """False-positive rate that a random key meets, and that of the fullest leaf. Cost: O(leaves)."""
        given, leaves = self._parameters, self.tree.fan_out == 0
        rates = false_positive_rates(given.leaf_bits, given.hashes, self._counts[leaves])
        return float(rates @ self.tree.share[leaves]), float(rates.max())

    def check_leaf(self, leaf: int, elements: Fingerprints, name: object) -> None:
        """Compare a leaf with its distinct logged elements. Raises: InvariantBroken, with the name of the log."""
        count = int(self._counts[leaf])
        if not (self.tree.descend(elements) == leaf).all():
            raise InvariantBroken(f"{name} holds elements of another leaf")
        if count > len(elements):
            raise InvariantBroken(f"{name} holds {len(elements)} elements, {count} were counted")
        if not self._leaves.agrees(int(self._slots[leaf]), elements):
            raise InvariantBroken(f"{name} and the bits of its leaf disagree")

    def check_sum(self, name: object) -> None:
        """Compare the number of elements with the leaves' counts. Raises: InvariantBroken."""
        if self.elements != (total := int(self._counts.sum())):
            raise InvariantBroken(f"{name}: {self.elements} elements, but its leaves count {total}")
