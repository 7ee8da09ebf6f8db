"""The MANIFEST file of a DSBF: its parameters, its tree, which leaves are being split, and whether its bits were kept.

JSON: `magic`, `version`, `parameters`, the arrays `fan_out` and `first_child` of `tree.py`, `splitting` (pairs: a node
that is being split, and how many elements of its log are already, durably, in the logs below it; the oldest split
first) and `image`, null or the record of `leaves/image.py`. A node without children is a leaf; one with children is
SPLITTING if it is named so, else INNER (`splitting.py`). The file is replaced at once, so it is always one whole state.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from anabranch.dedup.dsbf.bloom import DsbfParameters
from anabranch.dedup.dsbf.tree import Tree
from anabranch.dedup.durablefiles import swap_file
from anabranch.dedup.errors import FormatMismatch
from anabranch.dedup.folderformat import Format, read_record

NAME = "MANIFEST"
MAGIC = "anabranch dsbf"
VERSION = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One durable state of a filter."""

    tree: Tree
    splitting: tuple[tuple[int, int], ...] = ()  #: node, elements of its log that are durably below it; oldest first
    image: dict[str, object] | None = None  #: what the kept bits must agree with; None: they are not to be trusted


def write_manifest(folder: Path, parameters: DsbfParameters, manifest: Manifest) -> None:
    """Put this manifest in place of the old one. It lasts a power loss only after the folder is synced."""
    tree = manifest.tree
    state = {
        "fan_out": tree.fan_out.tolist(),
        "first_child": tree.first_child.tolist(),
        "splitting": manifest.splitting,
        "image": manifest.image,
    }
    swap_file(folder / NAME, json.dumps(_format(parameters).record() | state).encode() + b"\n")


def read_manifest(folder: Path, parameters: DsbfParameters) -> Manifest | None:
    """The folder's manifest, None if it has none. Raises: FormatMismatch if it is of another kind or damaged."""
    path = folder / NAME
    if not path.exists():
        return None
    found = read_record(path)
    _format(parameters).require(path, found)
    try:
        tree = Tree.checked(found.get("fan_out"), found.get("first_child"))
        return Manifest(tree=tree, splitting=_splitting(found.get("splitting"), tree), image=_image(found.get("image")))
    except FormatMismatch as error:
        raise FormatMismatch(f"{path}: {error}") from error


def _splitting(found: object, tree: Tree) -> tuple[tuple[int, int], ...]:
    pairs = []
    for pair in found if isinstance(found, list) else [None]:
        match pair:
            case [int(node), int(moved)] if 0 < node < len(tree) and tree.fan_out[node] and moved >= 0:
                pairs.append((node, moved))
            case _:
                raise FormatMismatch("the list of splits is damaged: pairs of an inner node and a count are needed")
    if len({node for node, _ in pairs}) < len(pairs):
        raise FormatMismatch("the list of splits is damaged: it names a node twice")
    return tuple(pairs)


def _image(found: object) -> dict[str, object] | None:
    if found is None or isinstance(found, dict):
        return found
    raise FormatMismatch("the record of the bits is damaged: it is not an object")


def _format(parameters: DsbfParameters) -> Format:
    return Format(magic=MAGIC, version=VERSION, parameters=asdict(parameters))
