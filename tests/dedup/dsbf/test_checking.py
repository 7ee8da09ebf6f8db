from pathlib import Path

import numpy as np
import pytest

from anabranch.dedup.batch import Fingerprints
from anabranch.dedup.dsbf.bloom import DsbfParameters
from anabranch.dedup.dsbf.checking import check_node, check_split
from anabranch.dedup.dsbf.splitting import Split
from anabranch.dedup.dsbf.tree import Tree
from anabranch.dedup.errors import InvariantBroken
from anabranch.dedup.fingerprint import fingerprints
from anabranch.dedup.leaves.arena import ArenaLeaves
from anabranch.dedup.leaves.table import LeafTable

SMALL = DsbfParameters(expected=300, false_positive=0.001, leaf_bits=2048)
ELEMENTS = fingerprints([b"http://a.example/%d" % i for i in range(60)])
OTHERS = fingerprints([b"other %d" % i for i in range(40)])
LOG = Path("leaf.log")


def table(tree: Tree) -> LeafTable:
    """A table whose leaves hold the elements."""
    made = LeafTable(SMALL, tree, ArenaLeaves(SMALL.leaf_bits, SMALL.hashes))
    for leaf in tree.leaves:
        made.settle(leaf, of(made, leaf, ELEMENTS))
    return made


def of(table_: LeafTable, node: int, elements: Fingerprints) -> Fingerprints:
    return elements[table_.tree.leads_through(node, elements)]


def test_a_leaf_agrees_with_its_log_however_often_an_element_stands_there() -> None:
    """Logs may hold equal elements; counts are of distinct ones, less the falsely known."""
    checked = table(Tree.rooted(3))
    own = of(checked, 1, ELEMENTS)
    checked.nodes.counts[1] -= 1
    check_node(checked, 1, np.concatenate((own, own)), LOG)


def test_each_contradiction_of_a_leaf_and_its_log_is_named() -> None:
    """Elements of another leaf, fewer than were counted, other bits."""
    checked = table(Tree.rooted(3))
    own, other = of(checked, 1, ELEMENTS), of(checked, 2, ELEMENTS)
    for logged, message in (
        (other, "^leaf.log holds elements of another leaf"),
        (own[1:], f"^leaf.log holds {len(own) - 1} elements, {len(own)} were counted"),
        (np.concatenate((own, of(checked, 1, OTHERS))), "^leaf.log and the bits of its leaf disagree"),
    ):
        with pytest.raises(InvariantBroken, match=message):
            check_node(checked, 1, logged, LOG)


def splitting(moved: int) -> tuple[LeafTable, Split, Fingerprints]:
    """Node 1 is splitting; the first elements of its log were moved."""
    checked = LeafTable(SMALL, Tree.rooted(2), ArenaLeaves(SMALL.leaf_bits, SMALL.hashes))
    logged = of(checked, 1, ELEMENTS)
    for leaf in (1, 2):
        checked.settle(leaf, of(checked, leaf, ELEMENTS))
    checked.begin_splits([1], checked.tree.split(1, 2), checked.take(2))
    checked.mark(logged[:moved], np.ones(moved, dtype=np.bool_))
    return checked, Split(node=1, length=len(logged), moved=moved), logged


def test_what_was_moved_is_known_below() -> None:
    """In the leaf of its way, or in a splitting node between."""
    checked, split, logged = splitting(moved=10)
    check_split(checked, split, logged, LOG)
    checked.begin_splits([3, 4], checked.tree.split_all([3, 4], 2), checked.take(4))
    check_split(checked, split, logged, LOG)
    split.moved = 12
    with pytest.raises(InvariantBroken, match="2 of the elements said to be moved are not known below"):
        check_split(checked, split, logged, LOG)


@pytest.mark.parametrize("change", [{"moved": 100}, {"recorded": 11}, {"length": 9}])
def test_a_split_cannot_have_moved_more_than_there_is(change: dict[str, int]) -> None:
    """It holds that recorded <= moved <= length, and that is the log's."""
    checked, split, logged = splitting(moved=10)
    for name, value in change.items():
        setattr(split, name, value)
    with pytest.raises(InvariantBroken, match="are said to be moved"):
        check_split(checked, split, logged, LOG)


def test_the_bits_of_a_splitting_node_are_its_logs_until_all_is_moved() -> None:
    """After that it has none."""
    checked, split, logged = splitting(moved=10)
    with pytest.raises(InvariantBroken, match="bits of its leaf disagree"):
        check_split(checked, split, np.concatenate((logged[:-1], of(checked, 1, OTHERS)[:1])), LOG)
    checked.mark(logged, np.ones(len(logged), dtype=np.bool_))
    checked.end_split(1)
    split.moved = split.length
    check_split(checked, split, logged, LOG)
