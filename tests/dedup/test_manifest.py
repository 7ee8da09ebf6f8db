import json
from pathlib import Path

import pytest

from dedup.bloom import DsbfParameters
from dedup.errors import FormatMismatch
from dedup.manifest import NAME, read_manifest, write_manifest
from dedup.tree import Tree

SHAPE = DsbfParameters(expected=100, false_positive=0.01, leaf_bits=1024)


def test_the_tree_is_read_back(tmp_path: Path) -> None:
    """A written manifest gives the same tree; a missing one gives None."""
    assert read_manifest(tmp_path, SHAPE) is None
    write_manifest(tmp_path, SHAPE, Tree.rooted(3).split(2, 4))
    tree = read_manifest(tmp_path, SHAPE)
    assert tree is not None
    assert tree.leaves == [1, 3, 4, 5, 6, 7]


def test_other_parameters_are_refused_by_name(tmp_path: Path) -> None:
    """The message names the one that differs."""
    write_manifest(tmp_path, SHAPE, Tree.rooted(3))
    other = DsbfParameters(expected=100, false_positive=0.02, leaf_bits=1024)
    with pytest.raises(FormatMismatch, match=r"false_positive is 0.01 in the folder, 0.02 here$"):
        read_manifest(tmp_path, other)


def test_a_damaged_tree_is_refused_with_the_files_name(tmp_path: Path) -> None:
    """Lists that form no tree are damage of this file."""
    write_manifest(tmp_path, SHAPE, Tree.rooted(3))
    record = json.loads((tmp_path / NAME).read_text())
    (tmp_path / NAME).write_text(json.dumps(record | {"fan_out": [3, 0, 0]}))
    with pytest.raises(FormatMismatch, match="MANIFEST: the tree is damaged"):
        read_manifest(tmp_path, SHAPE)
