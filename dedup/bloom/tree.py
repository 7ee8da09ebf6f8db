"""The tree of a DSBF as arrays, so that a batch descends it in one pass per level.

Nodes are numbered in the order of their making, node 0 is the root; a number is never used again. The children of a node
have consecutive numbers. A node with a fan-out of 0 is a leaf. Trees do not change: a split makes a new one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self, TypeGuard

import numpy as np

from anabranch.dedup.errors import FormatMismatch
from anabranch.dedup.keys import (
    BoolArray,
    Fingerprints,
    HashArray,
    IntArray,
    loc_hash,
    loc_hash_of,
    location_of,
    locations,
)

#: A leaf this deep never splits: only elements with equal LocHash bits, forged ones, come so far together.
DEEPEST = 40


class Tree:
    """Nodes with their fan-out and first child, and what follows: parent, level and share of all keys."""

    def __init__(self, fan_out: Sequence[int], first_child: Sequence[int]) -> None:
        self.fan_out: IntArray = np.array(fan_out, dtype=np.int64)
        self.first_child: IntArray = np.array(first_child, dtype=np.int64)
        self.level: IntArray = np.zeros(len(fan_out), dtype=np.int64)
        self.parent: IntArray = np.full(len(fan_out), -1, dtype=np.int64)
        self.share = np.ones(len(fan_out))
        for node in np.flatnonzero(self.fan_out).tolist():  # parents come before their children
            below = self.children(node)
            self.level[below.start : below.stop] = self.level[node] + 1
            self.share[below.start : below.stop] = self.share[node] / len(below)
            self.parent[below.start : below.stop] = node
        self.height = int(self.level.max())
        self._width = self.fan_out.item(0)

    @classmethod
    def rooted(cls, fan_out: int) -> Self:
        """A root with that many leaves."""
        return cls([fan_out] + [0] * fan_out, [1] + [0] * fan_out)

    @classmethod
    def checked(cls, fan_out: object, first_child: object) -> Self:
        """A tree out of a file. Raises: FormatMismatch unless the two lists form one tree."""
        if not _are_counts(fan_out) or not _are_counts(first_child) or len(fan_out) != len(first_child):
            raise FormatMismatch("the tree is damaged: two lists of counts, equally long, are needed")
        if not _form_one_tree(fan_out, first_child):
            raise FormatMismatch("the tree is damaged: its nodes' children do not fit together")
        return cls(fan_out, first_child)

    def __len__(self) -> int:
        return len(self.fan_out)

    @property
    def leaves(self) -> list[int]:
        """Numbers of all leaves."""
        return np.flatnonzero(self.fan_out == 0).tolist()

    @property
    def splits(self) -> int:
        """Splits that made this tree: inner nodes other than the root."""
        return int(np.count_nonzero(self.fan_out)) - 1

    def children(self, node: int) -> range:
        """Numbers of a node's children."""
        first = int(self.first_child[node])
        return range(first, first + int(self.fan_out[node]))

    def descend(self, elements: Fingerprints) -> IntArray:
        """The leaf of each element. Cost: some ten vectorised steps per level."""
        return self._descend(elements, self.height)

    def leads_through(self, node: int, elements: Fingerprints) -> BoolArray:
        """True where the element's way from the root to its leaf goes through the node."""
        through: BoolArray = self._descend(elements, self.level.item(node)) == node
        return through

    def _descend(self, elements: Fingerprints, levels: int) -> IntArray:
        """The node of each element after so many levels, or the leaf before that."""
        location = locations(elements)
        if not levels:
            return np.zeros(len(elements), dtype=np.int64)
        # All elements are at the root, so the first step needs no look into the arrays.
        nodes = (loc_hash(location, 0) % np.uint64(self._width)).view(np.int64) + 1
        for level in range(1, levels):
            inner = self.fan_out[nodes] > 0
            if inner.all():
                nodes = self._step(location, nodes, level)
            else:
                nodes[inner] = self._step(location[inner], nodes[inner], level)
        return nodes

    def leaf_of(self, element: int) -> int:
        """The leaf of one element. Cost: 1 µs per level."""
        location, node, level = location_of(element), 0, 0
        while width := self.fan_out.item(node):
            node = self.first_child.item(node) + loc_hash_of(location, level) % width
            level += 1
        return node

    def split(self, leaves: Sequence[int], fan_out: int) -> Tree:
        """The tree in which each of these leaves has children."""
        below = [0] * (fan_out * len(leaves))
        widths, firsts = [*self.fan_out.tolist(), *below], [*self.first_child.tolist(), *below]
        for number, leaf in enumerate(leaves):
            widths[leaf], firsts[leaf] = fan_out, len(self) + number * fan_out
        return Tree(widths, firsts)

    def _step(self, location: HashArray, nodes: IntArray, level: int) -> IntArray:
        fan_out = self.fan_out[nodes].view(np.uint64)
        return self.first_child[nodes] + (loc_hash(location, level) % fan_out).view(np.int64)


def _are_counts(values: object) -> TypeGuard[list[int]]:
    """True for a list of numbers of nodes, or of places among them."""
    return isinstance(values, list) and all(type(value) is int and 0 <= value <= len(values) for value in values)


def _form_one_tree(fan_out: Sequence[int], first_child: Sequence[int]) -> bool:
    """True if the children of the inner nodes, side by side, are all nodes but the root, each below an older one."""
    inner = sorted((first_child[node], width, node) for node, width in enumerate(fan_out) if width)
    following = 1
    for first, width, node in inner:
        if first != following or node >= first:
            return False
        following += width
    return bool(inner) and following == len(fan_out)
