from __future__ import annotations

import numpy as np
import pytest

from anabranch.dedup.bloom.bits import LeafBits
from anabranch.dedup.bloom.tree import Tree
from anabranch.dedup.errors import FormatMismatch
from anabranch.dedup.keys import fingerprint, fingerprints, loc_hash, locations, map_hashes
from tests.rows import each_row

KEYS = [b"http://a.example/%d" % i for i in range(3000)]
MASK = (1 << 64) - 1


def way(tree: Tree, key: bytes) -> int:
    """The scalar descent, step by step."""
    node, level, location = 0, 0, np.array([fingerprint(key) >> 80], dtype=np.uint64)
    while tree.fan_out[node]:
        below = tree.children(node)
        node = below[int(loc_hash(location, level)[0]) % len(below)]
        level += 1
    return node


def test_a_batch_goes_the_way_of_each_key() -> None:
    """Leaves of different depth, in one batch: the vectorised descent is the scalar one."""
    tree = Tree.rooted(3).split([2], 2).split([5], 4)
    assert tree.descend(fingerprints(KEYS)).tolist() == [way(tree, key) for key in KEYS]
    assert [tree.leaf_of(fingerprint(key)) for key in KEYS] == [way(tree, key) for key in KEYS]
    assert sorted(set(tree.descend(fingerprints(KEYS)).tolist())) == tree.leaves == [1, 3, 4, 6, 7, 8, 9]
    assert (tree.height, tree.splits, len(tree)) == (3, 2, 10)


def test_a_split_moves_only_the_keys_of_its_leaf() -> None:
    """The others keep their leaf, and the old tree stays as it was."""
    old = Tree.rooted(4)
    new = old.split([3], 2)
    before, after = old.descend(fingerprints(KEYS)), new.descend(fingerprints(KEYS))
    assert (before[before != 3] == after[before != 3]).all()
    assert set(after[before == 3].tolist()) == {5, 6}
    assert old.leaves == [1, 2, 3, 4]


def test_several_leaves_split_at_once_as_one_after_the_other() -> None:
    """Both ways give the same tree, with the same node numbers."""
    at_once, one_by_one = Tree.rooted(4).split([3, 1], 2), Tree.rooted(4).split([3], 2).split([1], 2)
    assert at_once.fan_out.tolist() == one_by_one.fan_out.tolist()
    assert at_once.first_child.tolist() == one_by_one.first_child.tolist()


def test_a_way_leads_through_the_nodes_above_its_leaf() -> None:
    """Each element passes the root, its leaf, and the parents of that leaf; no other node."""
    tree = Tree.rooted(3).split([2], 2).split([5], 4)
    elements = fingerprints(KEYS)
    leaves = tree.descend(elements)
    for node in range(len(tree)):
        above = [node == leaf or node in ancestors(tree, leaf) for leaf in leaves.tolist()]
        assert tree.leads_through(node, elements).tolist() == above


def ancestors(tree: Tree, node: int) -> list[int]:
    above = []
    while (node := int(tree.parent[node])) >= 0:
        above.append(node)
    return above


def counts_below(tree: Tree, node: int, keys: int = 40_000) -> np.ndarray:
    """How many of the keys reach each child of the node."""
    elements = fingerprints([b"%d" % i for i in range(keys)])
    below = tree.children(node)
    return np.bincount(tree.descend(elements), minlength=len(tree))[below.start : below.stop]


def test_the_children_of_a_leaf_share_its_keys_evenly() -> None:
    """Every level has a LocHash of its own."""
    counts, expected = counts_below(Tree.rooted(4).split([1], 4), 1), 40_000 / 16
    assert (abs(counts - expected) < 5 * np.sqrt(expected)).all()


def test_one_lochash_for_two_levels_sends_all_keys_to_one_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first trap: were the level left out of LocHash, a split would divide nothing."""
    monkeypatch.setattr("anabranch.dedup.bloom.tree.loc_hash", lambda location, level: loc_hash(location, 0))
    counts = counts_below(Tree.rooted(4).split([1], 4), 1)
    assert np.count_nonzero(counts) == 1
    assert abs(counts.sum() - 10_000) < 500


def test_shares_add_up_to_one() -> None:
    """A leaf's share is the product of one over each fan-out above it."""
    tree = Tree.rooted(3).split([2], 2)
    assert tree.share[[1, 3, 4, 5]] == pytest.approx([1 / 3, 1 / 3, 1 / 6, 1 / 6])
    assert tree.share[tree.leaves].sum() == pytest.approx(1)


def test_a_tree_survives_its_lists() -> None:
    """The arrays of a tree, checked, are the same tree."""
    tree = Tree.rooted(3).split([3], 2).split([1], 3)
    again = Tree.checked(tree.fan_out.tolist(), tree.first_child.tolist())
    assert again.leaves == tree.leaves
    assert (again.level == tree.level).all()


@each_row(
    ("fan_out", "first_child"),
    [
        (None, None),
        ([1, 0], None),
        ([1, 0], [1]),
        ([1, -1], [1, 0]),
        ([1.0, 0], [1, 0]),
        ([1, 0], [1, 10**30]),
        ([0], [0]),
        ([], []),
        ([2, 0], [1, 0]),
        ([1, 0, 0], [1, 0, 0]),
        ([1, 0, 1, 0], [1, 0, 1, 0]),
        ([1, 1, 0], [2, 1, 0]),
        ([0, 1, 0], [0, 1, 0]),
    ],
)
def test_lists_that_form_no_tree_are_refused(fan_out: object, first_child: object) -> None:
    """Missing, overlapping, circular or unreachable nodes are damage."""
    with pytest.raises(FormatMismatch, match="damaged"):
        Tree.checked(fan_out, first_child)


def rate_of_a_leaf(chosen: np.ndarray, fingerprints_: np.ndarray) -> float:
    """False-positive rate, measured, of a leaf that holds the first 3,300 of the chosen, asked for the others."""
    mine = fingerprints_[chosen]
    leaves = LeafBits(1 << 15, 7)
    slot = leaves.take()
    leaves.fill(slot, mine[:3300])
    asked = mine[3300:]
    return 1 - leaves.unseen(np.full(len(asked), slot), asked).mean()


def test_one_value_for_lochash_and_maphash_spoils_the_rate() -> None:
    """The second trap: among 64 leaves, one chosen by its elements' MapHash mod 64 favours a part of its positions.

    Its rate is nearly doubled, while ours keeps to the formula.
    """
    elements = fingerprints([b"%d" % i for i in range(1_500_000)])
    formula = (1 - np.exp(-7 * 3300 / (1 << 15))) ** 7
    ours = rate_of_a_leaf(Tree.rooted(64).descend(elements) == 1, elements)
    trapped = rate_of_a_leaf(map_hashes(elements)[0] % 64 == 1, elements)
    sigma = np.sqrt(formula / 20_000)
    assert abs(ours - formula) < 4 * sigma
    assert trapped > 1.5 * formula + 4 * sigma


def test_the_location_is_not_shared_with_positions() -> None:
    """In each of 4 leaves, elements reach all residues mod 4 alike."""
    elements = fingerprints([b"%d" % i for i in range(20_000)])
    leaf = Tree.rooted(4).descend(elements)
    for low_bits in (elements[:, 1] & np.uint64(3), elements[:, 1] >> np.uint64(40) & np.uint64(3)):
        table = np.histogram2d(leaf, low_bits.astype(np.int64), bins=(4, 4))[0]
        assert (abs(table - 1250) < 5 * np.sqrt(1250)).all()
    assert locations(elements).max() < 1 << 48
