"""A DSBF verifies itself: logs, bits, counts and splits may not contradict each other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from anabranch.dedup.batch import Fingerprints
from anabranch.dedup.dsbf.splitting import Split
from anabranch.dedup.errors import InvariantBroken
from anabranch.dedup.fingerprint import distinct
from anabranch.dedup.leaves.log import LeafLogs
from anabranch.dedup.leaves.nodes import NONE
from anabranch.dedup.leaves.table import LeafTable


def check(folder: Path, table: LeafTable, logs: LeafLogs, splits: Sequence[Split]) -> None:
    """Read all logs and compare. Raises: InvariantBroken; FormatMismatch for a log cut off or replaced; OSError."""
    logs.flush()
    logs.require(logs.lengths())
    for leaf in table.tree.leaves:
        check_node(table, leaf, logs.read(leaf), logs.path(leaf))
    for split in splits:
        check_split(table, split, logs.read(split.node), logs.path(split.node))
    if table.elements != (total := int(table.nodes.counts.sum())):
        raise InvariantBroken(f"{folder}: {table.elements} elements, but its leaves count {total}")


def check_node(table: LeafTable, node: int, logged: Fingerprints, name: Path) -> None:
    """The node's bits are exactly those of the elements in its log, and it does not count more of them."""
    elements = distinct(logged)
    is_leaf = not table.tree.fan_out[node]
    count = int(table.nodes.counts[node] if is_leaf else table.nodes.loads[node])
    if not table.tree.leads_through(node, elements).all():
        raise InvariantBroken(f"{name} holds elements of another leaf")
    if count > len(elements):
        raise InvariantBroken(f"{name} holds {len(elements)} elements, {count} were counted")
    if not table.leaves.agrees(int(table.nodes.slots[node]), elements):
        raise InvariantBroken(f"{name} and the bits of its leaf disagree")


def check_split(table: LeafTable, split: Split, logged: Fingerprints, name: Path) -> None:
    """The bits are the log's until all is moved, and what was moved is known below."""
    if not split.recorded <= split.moved <= split.length == len(logged):
        raise InvariantBroken(f"{name}: of {len(logged)} elements {split.moved} are said to be moved")
    mine = table.tree.leads_through(split.node, logged)
    if split.moved < split.length:
        check_node(table, split.node, logged[mine], name)
    moved = logged[: split.moved][mine[: split.moved]]
    if lost := _not_below(table, split.node, moved):
        raise InvariantBroken(f"{name}: {lost} of the elements said to be moved are not known below")


def _not_below(table: LeafTable, node: int, elements: Fingerprints) -> int:
    """Number of elements that neither their leaf knows nor a splitting node between it and this one."""
    leaves = table.tree.descend(elements)
    asked = np.flatnonzero(table.leaves.unseen(table.nodes.slots[leaves], elements))
    keepers = table.keepers(leaves[asked], elements[asked])
    is_below = (keepers != NONE) & (table.tree.level[keepers] > table.tree.level[node])
    return int(np.count_nonzero(~is_below))
