"""What is known of each node of a DSBF's tree: its place, its count, and who is to be asked beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from anabranch.dedup.batch import IntArray
from anabranch.dedup.dsbf.bloom import DsbfParameters, false_positive_rates
from anabranch.dedup.dsbf.tree import Tree

#: Instead of a slot: the node has no bits. Instead of a node: there is none.
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
        """So many nodes without bits."""
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
        """False-positive rate that a random key meets, and that of the worst leaf.

        Where a query asks several nodes their rates add up: a bound of the true rate. It may be called while another
        thread extends the nodes: `tree` may be the one before.
        """
        m, k, above = parameters.leaf_bits, parameters.hashes, self.above
        leaves = np.flatnonzero(tree.fan_out == 0)
        rates = false_positive_rates(m, k, self.counts[leaves])
        if above is not None:
            above, of_node = np.append(above, NONE), np.append(false_positive_rates(m, k, self.loads), 0)
            nodes = above[leaves]
            while (nodes != NONE).any():  # at NONE, the last place, the rate is 0 and the next node NONE again
                rates += of_node[nodes]
                nodes = above[nodes]
        return float(rates @ tree.share[leaves]), float(rates.max())
