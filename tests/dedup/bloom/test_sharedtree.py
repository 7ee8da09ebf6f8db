from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest

from anabranch.dedup.bloom.formulas import DsbfParameters
from anabranch.dedup.bloom.sharedleaves import NO_LIMIT
from anabranch.dedup.bloom.sharedtree import Part, SharedTree
from anabranch.dedup.bloom.tree import DEEPEST
from anabranch.dedup.errors import FormatMismatch
from anabranch.dedup.keys import fingerprints
from tests.rows import each_row

TOKENS = ("a", "b", "c")


def paths(tree: SharedTree) -> list[str]:
    return [place.path for place in tree.places]


def test_paths_and_servers_do_not_depend_on_the_order_of_splits() -> None:
    """Two crawlers that split the same leaves in another order make the same children in the same places."""
    first = SharedTree.rooted(4, TOKENS)
    one = first.with_splits([1], 2).with_splits([3], 2)
    other = first.with_splits([3], 2).with_splits([1], 2)
    both = first.with_splits([3, 1], 2)
    assert paths(one) == ["", "0", "1", "2", "3", "0.0", "0.1", "2.0", "2.1"]
    assert set(one.places) == set(other.places) == set(both.places)
    assert len({one.revision, other.revision, both.revision, first.revision}) == 4
    assert first.children(1, 2) == one.places[5:7]
    elements = fingerprints([b"%d" % number for number in range(500)])
    ways = [[tree.places[node] for node in tree.tree.descend(elements).tolist()] for tree in (one, other, both)]
    assert ways[0] == ways[1] == ways[2]


def test_leaves_are_spread_evenly_over_the_servers() -> None:
    """At first, and when all of them have split."""
    tree = SharedTree.rooted(6, TOKENS)
    assert Counter(place.server for place in tree.places[1:]) == {0: 2, 1: 2, 2: 2}
    tree = tree.with_splits(range(1, 7), 4)
    assert Counter(place.server for place in tree.places[7:]) == {0: 8, 1: 8, 2: 8}


def test_all_splitting_nodes_on_the_way_to_a_leaf_are_named() -> None:
    """None, one, or several if a leaf below a splitting one splits, too; inner nodes are passed by."""
    tree = SharedTree.rooted(2, TOKENS).with_splits([1], 2)  # nodes 3, 4 below 1
    rows, nodes = tree.splitting_above(np.array([2, 3, 4]))
    assert (rows.tolist(), nodes.tolist()) == ([1, 2], [1, 1])
    tree = tree.with_splits([3], 2)  # nodes 5, 6 below 3
    rows, nodes = tree.splitting_above(np.array([5, 2]))
    assert (rows.tolist(), nodes.tolist()) == ([0, 0], [3, 1])
    tree = tree.with_ends([3])
    rows, nodes = tree.splitting_above(np.array([5, 2]))
    assert (rows.tolist(), nodes.tolist()) == ([0], [1])


def test_a_manifest_is_read_as_it_was_written() -> None:
    """Nodes, splits, tokens and places; the revision is kept separately."""
    tree = SharedTree.rooted(2, TOKENS).with_splits([1, 2], 3).with_ends([2])
    read = SharedTree.parsed(tree.revision, tree.body(), "h:1")
    assert (read.places, read.splitting, read.tokens) == (tree.places, tree.splitting, TOKENS)
    assert (read.revision, read.body()) == (tree.revision, tree.body())


@each_row(
    "body",
    ["", "[]", "{}", '{"magic": "x"}', '{"fan_out": [1, 0], "first_child": [1, 0], "splitting": [], "tokens": []}'],
)
def test_what_is_no_manifest_is_refused(body: str) -> None:
    """The message names the server."""
    with pytest.raises(FormatMismatch, match="h:1"):
        SharedTree.parsed("r", body, "h:1")


@each_row(
    "change",
    [{"version": 2}, {"tokens": []}, {"tokens": [1]}, {"splitting": [0]}, {"splitting": [[1]]}, {"splitting": ["1"]}],
)
def test_a_manifest_of_another_version_or_with_odd_entries_is_refused(change: dict[str, object]) -> None:
    """Each field is looked at before it is used."""
    body = json.loads(SharedTree.rooted(2, TOKENS).with_splits([1], 2).body())
    with pytest.raises(FormatMismatch, match="h:1 is damaged"):
        SharedTree.parsed("r", json.dumps(body | change), "h:1")


def test_only_a_leaf_that_cannot_split_takes_all() -> None:
    """All others count `split_above` at most."""
    tree = SharedTree.rooted(1, TOKENS)
    for _ in range(DEEPEST):
        tree = tree.with_splits([len(tree.places) - 1], 1)
    limits = tree.limits(9)
    assert (limits[:-2], limits[-1]) == ([9] * (len(limits) - 2), NO_LIMIT)


def test_a_part_names_what_differs() -> None:
    """Parameters, the server's number and how many there are; another format is recognised."""
    part = Part(parameters=DsbfParameters(), server=1, servers=3)
    part.require(part.text(), "h:1")
    other = Part(parameters=DsbfParameters(expected=5), server=1, servers=3)
    with pytest.raises(FormatMismatch, match="expected is 5 on the server, 10000000 here"):
        part.require(other.text(), "h:1")
    with pytest.raises(FormatMismatch, match="server 1 of 4"):
        part.require(Part(parameters=DsbfParameters(), server=1, servers=4).text(), "h:1")
    for text in ("no JSON", "[]", '{"magic": "x"}', part.text().replace('"version": 1', '"version": 2')):
        with pytest.raises(FormatMismatch):
            part.require(text, "h:1")


def test_redis_py_is_not_imported_before_a_filter_is_opened() -> None:
    """It is an extra, and takes a tenth of a second."""
    program = "import sys, anabranch.dedup.bloom.sharedfilter; sys.exit('redis' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
