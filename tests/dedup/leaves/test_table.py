import numpy as np
import pytest

from dedup.bloom import DsbfParameters
from dedup.errors import InvariantBroken
from dedup.fingerprint import fingerprint, fingerprints
from dedup.leaves.table import LeafTable
from dedup.tree import DEEPEST, Tree

#: Leaves that are full above nine elements.
TINY = DsbfParameters(expected=0, false_positive=0.05, leaf_bits=64, split_fan_out=2)
SMALL = DsbfParameters(expected=300, false_positive=0.001, leaf_bits=2048)
KEYS = [b"http://a.example/%d" % i for i in range(60)]
ALL_FIRST = np.ones(len(KEYS), dtype=np.bool_)


def table(*contents: list[bytes], parameters: DsbfParameters = SMALL) -> LeafTable:
    """A table whose leaves hold these keys."""
    made = LeafTable(parameters, Tree.rooted(len(contents)))
    for leaf, keys in zip(made.tree.leaves, contents, strict=True):
        made.settle(leaf, fingerprints(keys))
    return made


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
    marked.check_sum("x")
    for leaf in marked.tree.leaves:
        marked.check_leaf(leaf, elements[marked.tree.descend(elements) == leaf], "x")


def test_one_element_is_asked_marked_and_counted_as_in_a_batch() -> None:
    """The two ways differ in cost alone."""
    one, many = table([], [], []), table([], [], [])
    for key in KEYS + KEYS[:5]:
        element = fingerprint(key)
        assert one.is_unseen(element) == many.unseen(fingerprints([key]))[0]
        assert one.mark_one(element) == many.mark(fingerprints([key]), ALL_FIRST[:1])[0]
        assert not one.is_unseen(element)
    assert one.elements == many.elements == 60
    assert one.rates() == many.rates()
    one.check_sum("x")


def test_a_leaf_is_full_above_its_threshold_unless_it_is_as_deep_as_it_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each full leaf is named once, however often it is asked for."""
    most = TINY.split_above
    full = table(KEYS[:most], KEYS[: most + 1], parameters=TINY)
    assert full.full(np.array([2, 1, 2])) == [2]
    assert full.full(np.array([1])) == []
    monkeypatch.setattr("dedup.leaves.table.DEEPEST", 1)
    assert full.full(np.array([2])) == []
    assert DEEPEST > 1


def test_children_serve_in_the_place_of_their_parent() -> None:
    """After a replacement the tree is the new one, the parent counts nothing, and its bits are used again."""
    replaced, elements = table([], []), fingerprints(KEYS)
    replaced.mark(elements, ALL_FIRST)
    bits = replaced.memory_bytes
    tree = replaced.tree.split(2, 2)
    ways = tree.descend(elements)
    replaced.replace(2, tree, {child: elements[ways == child] for child in tree.children(2)})
    assert replaced.tree is tree
    assert not replaced.unseen(elements).any()
    assert replaced.elements == 60
    assert replaced.memory_bytes <= 1.5 * bits
    replaced.check_sum("x")
    for leaf in tree.leaves:
        replaced.check_leaf(leaf, elements[ways == leaf], "x")


def test_the_rate_is_the_mean_over_ways_and_the_worst_of_leaves() -> None:
    """One leaf of two full: a random key meets half of its rate."""
    mean, worst = table([b"%d" % i for i in range(SMALL.capacity)], []).rates()
    assert worst == pytest.approx(SMALL.false_positive, rel=0.05)
    assert worst <= SMALL.false_positive
    assert mean == pytest.approx(worst / 2)


def test_a_check_names_the_log_and_what_contradicts_it() -> None:
    """Elements of another leaf, fewer than were counted, other bits, another sum."""
    checked, elements = table([], [], []), fingerprints(KEYS)
    ways = checked.mark(elements, ALL_FIRST)
    own, other = elements[ways == 1], elements[ways == 2]
    for logged, message in (
        (other, "^x holds elements of another leaf"),
        (own[1:], f"^x holds {len(own) - 1} elements, {len(own)} were counted"),
        (np.concatenate((own, next_own(checked))), "^x and the bits of its leaf disagree"),
    ):
        with pytest.raises(InvariantBroken, match=message):
            checked.check_leaf(1, logged, "x")
    checked.elements += 1
    with pytest.raises(InvariantBroken, match=r"^x: 61 elements, but its leaves count 60"):
        checked.check_sum("x")


def next_own(checked: LeafTable) -> np.ndarray:
    """Elements of leaf 1 that were never marked."""
    others = fingerprints([b"other %d" % i for i in range(20)])
    return others[checked.tree.descend(others) == 1]
