from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from anabranch.dedup.bloom.bits import LeafBits
from anabranch.dedup.bloom.filter import check_node
from anabranch.dedup.bloom.formulas import DsbfParameters, false_positive_rates
from anabranch.dedup.bloom.table import NONE, LeafTable, Nodes
from anabranch.dedup.bloom.tree import DEEPEST, Tree
from anabranch.dedup.keys import fingerprint, fingerprints

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
    tree = Tree.rooted(2).split([1], 2).split([3], 2).split([4], 2)
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
    tree = Tree.rooted(2).split([1], 2).split([3], 2)
    chain = nodes([0, 10, 0, 90, 50, 40])
    chain.loads[[1, 3]] = 80, 70
    chain.look_above(tree)
    mean, worst = chain.rates(SHAPE, tree)
    ways = [one(10), one(80) + one(90), one(80) + one(70) + one(50), one(80) + one(70) + one(40)]
    assert worst == pytest.approx(max(ways))
    assert mean == pytest.approx(ways[0] / 2 + ways[1] / 4 + ways[2] / 8 + ways[3] / 8)


#: Leaves that are full above nine elements.
TINY = DsbfParameters(expected=0, false_positive=0.05, leaf_bits=64, split_fan_out=2)
SMALL = DsbfParameters(expected=300, false_positive=0.001, leaf_bits=2048)
KEYS = [b"http://a.example/%d" % i for i in range(60)]
ALL_FIRST = np.ones(len(KEYS), dtype=np.bool_)


def table(*contents: list[bytes], parameters: DsbfParameters = SMALL) -> LeafTable:
    """A table with these keys in its leaves."""
    made = LeafTable(parameters, Tree.rooted(len(contents)), LeafBits(parameters.leaf_bits, parameters.hashes))
    for leaf, keys in zip(made.tree.leaves, contents, strict=True):
        made.settle(leaf, fingerprints(keys))
    return made


def assert_sound(checked: LeafTable) -> None:
    assert checked.elements == checked.nodes.counts.sum()


def rates(of: LeafTable) -> tuple[float, float]:
    return of.nodes.rates(SMALL, of.tree)


def split(parent: LeafTable, *nodes: int) -> list[int]:
    """Begin to split these leaves in two; answers the children."""
    tree = parent.tree.split(nodes, 2)
    children = list(range(len(parent.tree), len(tree)))
    parent.begin_splits(list(nodes), tree, parent.take(len(children)))
    return children


def test_a_mark_is_known_in_the_leaf_of_its_way_and_counted_there() -> None:
    """The leaves are those of the tree; only what is new, and first in its batch, counts."""
    marked, elements = table([], [], []), fingerprints(KEYS)
    is_first = ALL_FIRST.copy()
    is_first[7] = False
    assert marked.mark(elements, is_first).tolist() == marked.tree.descend(elements).tolist()
    assert not marked.unseen(elements).any()
    assert marked.elements == 59
    marked.mark(elements, ALL_FIRST)
    assert marked.elements == 59
    assert_sound(marked)
    for leaf in marked.tree.leaves:
        check_node(marked, leaf, elements[marked.tree.descend(elements) == leaf], Path("x"))


def test_one_element_is_asked_marked_and_counted_as_in_a_batch() -> None:
    """The two ways differ in cost alone."""
    one, many = table([], [], []), table([], [], [])
    for key in KEYS + KEYS[:5]:
        element = fingerprint(key)
        assert one.is_unseen(element) == many.unseen(fingerprints([key]))[0]
        assert one.mark_one(element) == many.mark(fingerprints([key]), ALL_FIRST[:1])[0]
        assert not one.is_unseen(element)
    assert one.elements == many.elements == 60
    assert rates(one) == rates(many)
    assert_sound(one)


def test_a_leaf_is_full_above_its_threshold_unless_it_is_as_deep_as_it_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each full leaf is named once, however often it is asked for."""
    most = TINY.split_above
    full = table(KEYS[:most], KEYS[: most + 1], parameters=TINY)
    assert full.full(np.array([2, 1, 2])) == [2]
    assert full.full(np.array([1])) == []
    assert [full.is_full(leaf) for leaf in (1, 2)] == [False, True]
    monkeypatch.setattr("anabranch.dedup.bloom.table.DEEPEST", 1)
    assert full.full(np.array([2])) == []
    assert not full.is_full(2)
    assert DEEPEST > 1


def test_a_splitting_node_is_asked_with_the_empty_leaves_below_it() -> None:
    """Its elements stay known, in batches and one by one; new elements go to its children."""
    splitting, elements = table([], []), fingerprints(KEYS)
    splitting.mark(elements[:30], ALL_FIRST[:30])
    split(splitting, 1, 2)
    assert splitting.unseen(elements).tolist() == [False] * 30 + [True] * 30
    assert [splitting.is_unseen(fingerprint(key)) for key in KEYS] == [False] * 30 + [True] * 30
    leaves = splitting.mark(elements[30:], ALL_FIRST[30:])
    assert set(leaves.tolist()) == {3, 4, 5, 6}
    assert not splitting.unseen(elements).any()
    assert splitting.elements == 60
    assert splitting.full(np.array([1, 2])) == []


def test_a_split_begins_and_ends_with_the_rate_of_what_is_asked() -> None:
    """Empty children change nothing, and the splitting node's load stays whatever its children take over."""
    splitting, elements = table(KEYS[:50], []), fingerprints(KEYS[:50])
    mean, worst = rates(splitting)
    split(splitting, 1)
    assert rates(splitting) == pytest.approx((mean, worst))
    mine = elements[splitting.tree.leads_through(1, elements)]
    splitting.mark(mine, ALL_FIRST[: len(mine)])
    assert splitting.nodes.loads[1] == 50
    assert rates(splitting)[1] > worst
    splitting.end_split(1)
    assert rates(splitting)[1] < worst


def test_an_element_is_counted_once_wherever_it_is_known() -> None:
    """Marked again during a split, and moved after that, it counts as before; the end of a split drops no element."""
    splitting, elements = table([], []), fingerprints(KEYS)
    splitting.mark(elements[:40], ALL_FIRST[:40])
    split(splitting, 1)
    splitting.mark(elements[:10], ALL_FIRST[:10])
    for key in KEYS[10:15]:
        splitting.mark_one(fingerprint(key))
    assert splitting.elements == 40
    splitting.mark(elements[40:], ALL_FIRST[40:])
    assert splitting.elements == 60
    splitting.mark(elements[:40], ALL_FIRST[:40])
    assert (splitting.elements, splitting.nodes.counts[1]) == (60, 0)
    splitting.end_split(1)
    assert_sound(splitting)
    assert splitting.elements == 60
    assert not splitting.unseen(elements).any()
    assert splitting.nodes.above is None


def test_a_chain_of_splitting_nodes_is_asked_up_to_the_oldest() -> None:
    """A child may fill up before its parent is done; each of them answers for what it alone holds."""
    chain, elements = table([]), fingerprints(KEYS)
    chain.mark(elements[:20], ALL_FIRST[:20])
    for node in (1, 2):
        split(chain, node)
        chain.mark(elements[20 * node : 20 * node + 20], ALL_FIRST[:20])
    split(chain, 3)
    assert not chain.unseen(elements).any()
    assert not any(chain.is_unseen(fingerprint(key)) for key in KEYS)
    for key in KEYS[:20]:
        chain.mark_one(fingerprint(key))
    chain.mark(elements[20:], ALL_FIRST[20:])
    assert chain.elements == 60
    for node in (2, 1, 3):
        chain.end_split(node)
        assert not chain.unseen(elements).any()
    assert chain.elements == 60
    assert_sound(chain)


def test_the_end_of_a_split_puts_the_sum_right() -> None:
    """An element that the parent falsely claims is taken over from it, so that its count may even fall below 0."""
    splitting = table([], parameters=TINY)
    splitting.mark(fingerprints(KEYS[:8]), ALL_FIRST[:8])
    split(splitting, 1)
    others = fingerprints([b"other %d" % i for i in range(3000)])
    falsely = others[~splitting.unseen(others)][:3]
    assert len(falsely) == 3
    before = splitting.elements
    splitting.mark(falsely, ALL_FIRST[:3])
    assert splitting.elements == before
    for element in fingerprints(KEYS[:8]):
        splitting.mark(element[None, :], ALL_FIRST[:1])
    splitting.end_split(1)
    assert_sound(splitting)
    assert before < splitting.elements <= before + 3


def test_slots_of_a_split_that_does_not_begin_are_given_back() -> None:
    """All or none are taken, as when a disk is full; the next split takes the same ones."""
    given = table([], [])
    taken = given.take(3)
    given.give_back(taken)
    assert sorted(given.take(3)) == sorted(taken)

    def fail() -> int:
        if len(refused) == 2:
            raise OSError("full")
        refused.append(real())
        return refused[-1]

    refused: list[int] = []
    real = given.leaves.take
    given.leaves.take = fail
    with pytest.raises(OSError, match="full"):
        given.take(3)
    assert sorted(real() for _ in range(2)) == sorted(refused)


def test_a_table_takes_over_the_state_of_another() -> None:
    """Slots, counts and loads are all there is; each leaf must have a slot of its own."""
    old, elements = table([], []), fingerprints(KEYS)
    old.mark(elements, ALL_FIRST)
    split(old, 1)
    nodes = old.nodes
    new = LeafTable(SMALL, old.tree, old.leaves)
    new.adopt(Nodes(nodes.slots.copy(), nodes.counts.copy(), nodes.loads.copy()))
    assert not new.unseen(elements).any()
    assert (new.elements, rates(new)) == (60, rates(old))
    for wrong in (-1, -2, 99, int(nodes.slots[1])):
        slots = nodes.slots.copy()
        slots[3] = wrong
        with pytest.raises(ValueError, match="slot"):
            LeafTable(SMALL, old.tree, old.leaves).adopt(Nodes(slots, nodes.counts, nodes.loads))


def test_a_splitting_node_is_settled_with_what_the_leaves_below_do_not_know() -> None:
    """After a crash, elements that were moved already count in their leaves and not in the splitting node."""
    tree, elements = Tree.rooted(1).split([1], 2), fingerprints(KEYS)
    settled = LeafTable(SMALL, tree, LeafBits(SMALL.leaf_bits, SMALL.hashes))
    ways = tree.descend(elements[:20])
    for leaf in tree.leaves:
        settled.settle(leaf, elements[:20][ways == leaf])
    settled.settle(1, elements[:50])
    assert (settled.elements, settled.nodes.counts[1], settled.nodes.loads[1]) == (50, 30, 50)
    assert settled.unseen(elements).tolist() == [False] * 50 + [True] * 10
    assert_sound(settled)
