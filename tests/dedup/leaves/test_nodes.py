import numpy as np
import pytest

from anabranch.dedup.dsbf.bloom import DsbfParameters, false_positive_rates
from anabranch.dedup.dsbf.tree import Tree
from anabranch.dedup.leaves.nodes import NONE, Nodes

SHAPE = DsbfParameters(expected=300, false_positive=0.001, leaf_bits=2048)


def nodes(counts: list[int]) -> Nodes:
    """All leaves of a root, with these counts."""
    made = Nodes.empty(len(counts) + 1)
    made.slots[1:] = np.arange(len(counts))
    made.counts[1:] = counts
    return made


def one(count: int) -> float:
    return float(false_positive_rates(SHAPE.leaf_bits, SHAPE.hashes, np.array([count]))[0])


def test_the_rate_is_the_mean_over_ways_and_the_worst_of_leaves() -> None:
    """One leaf of two full: a random key meets half of its rate."""
    mean, worst = nodes([SHAPE.capacity, 0]).rates(SHAPE, Tree.rooted(2))
    assert worst == pytest.approx(SHAPE.false_positive, rel=0.05)
    assert worst <= SHAPE.false_positive
    assert mean == pytest.approx(worst / 2)


def test_new_nodes_have_bits_and_count_nothing() -> None:
    """The old ones stay as they were."""
    grown = nodes([5, 6])
    grown.extend([7, 8])
    assert grown.slots.tolist() == [NONE, 0, 1, 7, 8]
    assert grown.counts.tolist() == [0, 5, 6, 0, 0]
    assert grown.loads.tolist() == [0] * 5


def test_the_nearest_node_above_with_bits_is_the_one_to_ask() -> None:
    """A chain: node 1 and its child 3 are splitting, node 4 below that has ended, its children ask node 1."""
    tree = Tree.rooted(2).split(1, 2).split(3, 2).split(4, 2)
    chain = nodes([0] * 8)
    chain.slots[4] = NONE
    chain.look_above(tree)
    assert chain.above is not None
    assert chain.above.tolist() == [NONE, NONE, NONE, 1, 1, 3, 3, 1, 1]
    chain.slots[[1, 3]] = NONE
    chain.look_above(tree)
    assert chain.above is None


def test_rates_of_all_nodes_that_a_query_asks_add_up() -> None:
    """The way to a leaf through two splitting nodes may err in three places."""
    tree = Tree.rooted(2).split(1, 2).split(3, 2)
    chain = nodes([0, 10, 0, 90, 50, 40])
    chain.loads[[1, 3]] = 80, 70
    chain.look_above(tree)
    mean, worst = chain.rates(SHAPE, tree)
    ways = [one(10), one(80) + one(90), one(80) + one(70) + one(50), one(80) + one(70) + one(40)]
    assert worst == pytest.approx(max(ways))
    assert mean == pytest.approx(ways[0] / 2 + ways[1] / 4 + ways[2] / 8 + ways[3] / 8)
