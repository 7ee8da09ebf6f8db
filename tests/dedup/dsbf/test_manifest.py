import json
from pathlib import Path

import pytest

from anabranch.dedup.dsbf.bloom import DsbfParameters
from anabranch.dedup.dsbf.manifest import NAME, Manifest, read_manifest, write_manifest
from anabranch.dedup.dsbf.tree import Tree
from anabranch.dedup.errors import FormatMismatch

SHAPE = DsbfParameters(expected=100, false_positive=0.01, leaf_bits=1024)


def test_the_tree_is_read_back(tmp_path: Path) -> None:
    """A written manifest gives the same tree, splits in their order, and image; a missing one gives None."""
    assert read_manifest(tmp_path, SHAPE) is None
    tree = Tree.rooted(3).split(2, 4).split(1, 4)
    write_manifest(tmp_path, SHAPE, Manifest(tree=tree, splitting=((2, 5), (1, 0)), image={"size": 3}))
    found = read_manifest(tmp_path, SHAPE)
    assert found is not None
    assert found.tree.leaves == tree.leaves == [3, *range(4, 12)]
    assert found.splitting == ((2, 5), (1, 0))
    assert found.image == {"size": 3}


def test_other_parameters_are_refused_by_name(tmp_path: Path) -> None:
    """The message names the one that differs."""
    write_manifest(tmp_path, SHAPE, Manifest(tree=Tree.rooted(3)))
    other = DsbfParameters(expected=100, false_positive=0.02, leaf_bits=1024)
    with pytest.raises(FormatMismatch, match=r"false_positive is 0.01 in the folder, 0.02 here$"):
        read_manifest(tmp_path, other)


def test_a_damaged_tree_is_refused_with_the_files_name(tmp_path: Path) -> None:
    """Lists that form no tree are damage of this file."""
    write_manifest(tmp_path, SHAPE, Manifest(tree=Tree.rooted(3)))
    record = json.loads((tmp_path / NAME).read_text())
    (tmp_path / NAME).write_text(json.dumps(record | {"fan_out": [3, 0, 0]}))
    with pytest.raises(FormatMismatch, match="MANIFEST: the tree is damaged"):
        read_manifest(tmp_path, SHAPE)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ({"splitting": None}, "list of splits"),
        ({"splitting": [[1, 0, 0]]}, "list of splits"),
        ({"splitting": [[1, "0"]]}, "list of splits"),
        ({"splitting": [[1, -1]]}, "list of splits"),
        ({"splitting": [[0, 0]]}, "list of splits"),
        ({"splitting": [[2, 0]]}, "list of splits"),
        ({"splitting": [[9, 0]]}, "list of splits"),
        ({"splitting": [[1, 0], [1, 2]]}, "names a node twice"),
        ({"image": []}, "record of the bits"),
    ],
)
def test_splits_and_images_that_are_none_are_refused(tmp_path: Path, damage: dict[str, object], message: str) -> None:
    """Only a node below the root that has children can be splitting, and only once."""
    write_manifest(tmp_path, SHAPE, Manifest(tree=Tree.rooted(3).split(1, 2), splitting=((1, 0),)))
    record = json.loads((tmp_path / NAME).read_text())
    (tmp_path / NAME).write_text(json.dumps(record | damage))
    with pytest.raises(FormatMismatch, match=f"MANIFEST: the .*{message}"):
        read_manifest(tmp_path, SHAPE)
