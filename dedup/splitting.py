"""How a full leaf of a DSBF is split, so that a crash or a full disk at any moment forgets nothing.

Until the manifest is renamed the parent's log counts, from then on the children's, which are synced before. So a crash
at any point leaves one whole set of logs; what is left of the other is removed at the next opening.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dedup.batch import IntArray
from dedup.bloom import DsbfParameters
from dedup.fingerprint import distinct
from dedup.leaves.log import LeafLogs
from dedup.leaves.table import LeafTable
from dedup.manifest import write_manifest


class Splitter:
    """Splits the leaves of one filter: their logs, their table and the folder's manifest."""

    def __init__(self, folder: Path, parameters: DsbfParameters, logs: LeafLogs, table: LeafTable) -> None:
        self._folder = folder
        self._parameters = parameters
        self._logs = logs
        self._table = table

    def split_full(self, leaves: IntArray) -> None:
        """Split those of the leaves that hold too much, and their children if need be.

        Cost: 1 µs per element of a split leaf, and some syncs. Raises: OSError, with each leaf whole or split.
        """
        waiting = self._table.full(leaves)
        while waiting:
            waiting.extend(self._table.full(self._split(waiting.pop())))

    def _split(self, leaf: int) -> IntArray:
        """Divide a leaf's elements among new children, and answer these."""
        self._logs.flush()
        elements = distinct(self._logs.read(leaf))
        tree = self._table.tree.split(leaf, self._parameters.split_fan_out)
        ways = tree.descend(elements)
        parts = {child: elements[ways == child] for child in tree.children(leaf)}
        self._logs.create(parts)
        try:
            write_manifest(self._folder, self._parameters, tree)
        except OSError:
            self._logs.discard(parts)
            raise
        self._logs.retire(leaf)
        self._table.replace(leaf, tree, parts)
        self._logs.settle()
        return np.array(tree.children(leaf))
