"""The nodes of a DSBF's tree: where the bits of each are, how many elements it counts, and which nodes a query asks.

A SPLITTING node keeps its bits: it knows the elements marked before the split until they are moved. So an element is
known if its leaf or a splitting node above knows it. It is counted once, in the deepest of these: a leaf takes over the
count of an element that a node above it still counts. The logs (`log.py`) are not touched here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from anabranch.dedup.bloom.bits import LeafBits
from anabranch.dedup.bloom.formulas import DsbfParameters
from anabranch.dedup.bloom.tree import DEEPEST, Tree
from anabranch.dedup.keys import BoolArray, Fingerprints, IntArray

#: In place of a slot: the node has no bits. In place of a node: there is no such node.
NONE = -1


@dataclass(slots=True)
class Nodes:
    """Arrays over the nodes of a tree."""

    slots: IntArray  #: where the node's bits are, or NONE; leaves have bits, and so have splitting nodes
    counts: IntArray  #: elements that count here; their sum is the filter's
    loads: IntArray  #: of a splitting node, the elements that set its bits; of others 0
    #: The nearest splitting node above each node, or NONE; None while no node is splitting, which is the usual case.
    above: IntArray | None = None

    @classmethod
    def empty(cls, number: int) -> Self:
        """Nodes without bits."""
        return cls(
            np.full(number, NONE, dtype=np.int64), np.zeros(number, dtype=np.int64), np.zeros(number, dtype=np.int64)
        )

    def extend(self, slots: list[int]) -> None:
        """Add leaves that count nothing, with their bits in these slots."""
        nothing = np.zeros(len(slots), dtype=np.int64)
        self.slots = np.append(self.slots, np.array(slots, dtype=np.int64))
        self.counts = np.append(self.counts, nothing)
        self.loads = np.append(self.loads, nothing)

    def look_above(self, tree: Tree) -> None:
        """Find the splitting nodes above each node anew: a node that has children and bits is one."""
        inner = np.flatnonzero(tree.fan_out).tolist()
        if (self.slots[inner] == NONE).all():
            self.above = None
            return
        above = np.full(len(tree), NONE, dtype=np.int64)
        for node in inner:  # parents come before their children
            below = tree.children(node)
            above[below.start : below.stop] = node if self.slots[node] != NONE else above[node]
        self.above = above

    def rates(self, parameters: DsbfParameters, tree: Tree) -> tuple[float, float]:
        """False-positive rate that a random key meets, as a bound, and that of the worst leaf.

        The rates of the nodes that a query asks add up. Another thread may extend the nodes: `tree` may be the one before.
        """
        above = self.above
        leaves = np.flatnonzero(tree.fan_out == 0)
        rates = parameters.rates(self.counts[leaves])
        if above is not None:
            above, of_node = np.append(above, NONE), np.append(parameters.rates(self.loads), 0)
            nodes = above[leaves]
            while (nodes != NONE).any():  # at NONE, the last place, the rate is 0 and the next node NONE again
                rates += of_node[nodes]
                nodes = above[nodes]
        return float(rates @ tree.share[leaves]), float(rates.max())


class LeafTable:
    """The nodes of a tree and their bits. `settle` each leaf, then each splitting node of a new table, or `adopt` all."""

    def __init__(self, parameters: DsbfParameters, tree: Tree, leaves: LeafBits) -> None:
        self._parameters = parameters
        self.leaves = leaves  #: the bits
        self.tree = tree
        self.nodes = Nodes.empty(len(tree))
        self.elements = 0  #: sum of all counts

    def settle(self, node: int, elements: Fingerprints) -> None:
        """Let the node hold exactly these distinct elements, the deepest splitting node first. Raises: OSError."""
        is_splitting = self.tree.fan_out.item(node) > 0
        count = int(np.count_nonzero(self.unseen(elements))) if is_splitting else len(elements)
        self.nodes.slots[node] = slot = self.leaves.take()
        self.leaves.fill(slot, elements)
        self._count(node, count)
        if is_splitting:
            self.nodes.loads[node] = len(elements)
            self.nodes.look_above(self.tree)

    def adopt(self, nodes: Nodes) -> None:
        """Take over the state of a table of the same tree, with its bits in place. Raises: ValueError if it does not fit."""
        used = nodes.slots[nodes.slots != NONE].tolist()
        if len(set(used)) < len(used) or (nodes.slots[self.tree.fan_out == 0] == NONE).any():
            raise ValueError("each leaf needs a slot of its own")
        self.leaves.claim(used)
        self.nodes = nodes
        self.elements = int(nodes.counts.sum())
        nodes.look_above(self.tree)

    def take(self, number: int) -> list[int]:
        """Take clear slots for a split's children. Raises: OSError, with nothing taken."""
        taken: list[int] = []
        try:
            while len(taken) < number:
                taken.append(self.leaves.take())
        except OSError:
            self.give_back(taken)
            raise
        return taken

    def give_back(self, slots: list[int]) -> None:
        """The split for which the slots were taken did not begin."""
        for slot in slots:
            self.leaves.drop(slot)

    def begin_splits(self, splitting: list[int], tree: Tree, slots: list[int]) -> None:
        """The nodes have children in this tree, its last nodes: they serve from now on, empty, in these slots."""
        self.nodes.extend(slots)
        self.nodes.loads[splitting] = self.nodes.counts[splitting]
        self.nodes.look_above(tree)
        self.tree = tree  # last: another thread finds nodes for all of its tree

    def end_split(self, node: int) -> None:
        """Drop the bits of a node with all elements known below. What it still counts was falsely known, so it counts 0 now."""
        self.leaves.drop(self.nodes.slots.item(node))
        self._count(node, 0)
        self.nodes.slots[node], self.nodes.loads[node] = NONE, 0
        self.nodes.look_above(self.tree)

    def unseen(self, elements: Fingerprints) -> BoolArray:
        """True where the element has a clear bit in its leaf and in each splitting node on its way."""
        leaves = self.tree.descend(elements)
        new = self.leaves.unseen(self.nodes.slots[leaves], elements)
        if self.nodes.above is not None:
            asked = np.flatnonzero(new)
            new[asked] = self.keepers(leaves[asked], elements[asked]) == NONE
        return new

    def is_unseen(self, element: int) -> bool:
        """`unseen` of one element."""
        leaf = self.tree.leaf_of(element)
        return self.leaves.is_unseen(self.nodes.slots.item(leaf), element) and self._keeper(leaf, element) == NONE

    def mark(self, elements: Fingerprints, is_first: BoolArray) -> IntArray:
        """Set the elements' bits, count those that are new and first in the batch, and answer the leaf of each."""
        nodes, leaves = self.nodes, self.tree.descend(elements)
        new = self.leaves.mark(nodes.slots[leaves], elements)
        new &= is_first
        found = leaves[new]
        np.add.at(nodes.counts, found, 1)
        self.elements += len(found)
        if nodes.above is not None:
            keepers = self.keepers(found, elements[new])
            kept = keepers[keepers != NONE]
            np.subtract.at(nodes.counts, kept, 1)
            self.elements -= len(kept)
        return leaves

    def mark_one(self, element: int) -> int:
        """`mark` of one element."""
        leaf = self.tree.leaf_of(element)
        if self.leaves.mark_one(self.nodes.slots.item(leaf), element):
            self.nodes.counts[leaf] += 1
            keeper = self._keeper(leaf, element)
            if keeper == NONE:
                self.elements += 1
            else:
                self.nodes.counts[keeper] -= 1
        return leaf

    def full(self, leaves: IntArray) -> list[int]:
        """Those of the leaves that are over their limit, each once, without leaves at the largest depth."""
        is_full = self.nodes.counts[leaves] > self._parameters.split_above
        if not is_full.any():
            return []
        return [leaf for leaf in sorted(set(leaves[is_full].tolist())) if self._may_split(leaf)]

    def is_full(self, leaf: int) -> bool:
        """`full` of one leaf."""
        return self.nodes.counts.item(leaf) > self._parameters.split_above and self._may_split(leaf)

    def keepers(self, leaves: IntArray, elements: Fingerprints) -> IntArray:
        """The deepest splitting node above each element's leaf that knows it; NONE if none does."""
        keepers = np.full(len(leaves), NONE, dtype=np.int64)
        above = self.nodes.above
        if above is None:
            return keepers
        places, nodes = np.arange(len(leaves)), above[leaves]
        while True:
            has_one = nodes != NONE
            places, nodes = places[has_one], nodes[has_one]
            if not len(places):
                return keepers
            is_new = self.leaves.unseen(self.nodes.slots[nodes], elements[places])
            keepers[places[~is_new]] = nodes[~is_new]
            places, nodes = places[is_new], above[nodes[is_new]]

    def _keeper(self, node: int, element: int) -> int:
        """`keepers` of one element."""
        above = self.nodes.above
        if above is None:
            return NONE
        while (node := above.item(node)) != NONE:
            if not self.leaves.is_unseen(self.nodes.slots.item(node), element):
                return node
        return NONE

    def _count(self, node: int, count: int) -> None:
        self.elements += count - self.nodes.counts.item(node)
        self.nodes.counts[node] = count

    def _may_split(self, leaf: int) -> bool:
        return self.tree.fan_out.item(leaf) == 0 and self.tree.level.item(leaf) < DEEPEST
