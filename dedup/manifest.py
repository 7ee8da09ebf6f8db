"""The MANIFEST file of a DSBF: its parameters and its tree, replaced at once when a leaf splits.

JSON: `magic`, `version`, `parameters`, and the arrays `fan_out` and `first_child` of `tree.py`.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from dedup.bloom import DsbfParameters
from dedup.durablefiles import swap_file
from dedup.errors import FormatMismatch
from dedup.folderformat import Format, read_record
from dedup.tree import Tree

NAME = "MANIFEST"
MAGIC = "anabranch dsbf"
VERSION = 1


def write_manifest(folder: Path, parameters: DsbfParameters, tree: Tree) -> None:
    """Put this tree in place of the old one. It lasts a power loss only after the folder is synced."""
    arrays = {"fan_out": tree.fan_out.tolist(), "first_child": tree.first_child.tolist()}
    record = _format(parameters).record() | arrays
    swap_file(folder / NAME, json.dumps(record).encode() + b"\n")


def read_manifest(folder: Path, parameters: DsbfParameters) -> Tree | None:
    """The folder's tree, None if it has no manifest. Raises: FormatMismatch if it is of another kind or damaged."""
    path = folder / NAME
    if not path.exists():
        return None
    found = read_record(path)
    _format(parameters).require(path, found)
    try:
        return Tree.checked(found.get("fan_out"), found.get("first_child"))
    except FormatMismatch as error:
        raise FormatMismatch(f"{path}: {error}") from error


def _format(parameters: DsbfParameters) -> Format:
    return Format(magic=MAGIC, version=VERSION, parameters=asdict(parameters))
