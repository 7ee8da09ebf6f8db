"""How an opened DSBF gets its leaves back: from the bits kept at a clean end (file BITS, `bits.py`), or from the logs.

The record `image` in the MANIFEST (`splitting.py`) says whether the kept bits count. It is written last, and removed
durably before the first change. It has the stamp of the file's header, the slot and count of each node, and the length
of each log. If any of them disagrees, the bits are rebuilt from the logs; but a log shorter than recorded is damage, and
the filter is refused: no synced log becomes shorter while there is an image. Bits read into memory must have the
recorded CRC-32; mapped bits are not read at opening, so they have no checksum.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Self, TypeAlias

import numpy as np

from anabranch.dedup.bloom.bits import BITS_FILE, STAMP_BYTES, BitStorage, LeafBits
from anabranch.dedup.bloom.formulas import DsbfParameters
from anabranch.dedup.bloom.log import LeafLogs, are_empty, remove_strangers
from anabranch.dedup.bloom.splitting import Manifest, Split, read_manifest, write_manifest
from anabranch.dedup.bloom.table import NONE, LeafTable, Nodes
from anabranch.dedup.bloom.tree import Tree
from anabranch.dedup.errors import FormatMismatch
from anabranch.dedup.files.durable import UNFINISHED, sync_folder
from anabranch.dedup.keys import distinct

_STAMP = re.compile(f"[0-9a-f]{{{2 * STAMP_BYTES}}}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """The record of the kept bits in a MANIFEST."""

    stamp: bytes  #: ties the file to the manifest
    size: int  #: bytes of all slots
    checksum: int | None  #: CRC-32 of these bytes; None: not taken, the file was mapped
    slots: list[int]  #: per node of the tree its slot, -1 for none
    counts: list[int]  #: per node
    loads: list[int]  #: per node
    lengths: dict[int, int]  #: bytes of each log, by node

    def record(self) -> dict[str, object]:
        """The image as a JSON object."""
        return asdict(self) | {"stamp": self.stamp.hex(), "lengths": sorted(self.lengths.items())}

    @classmethod
    def of_record(cls, record: dict[str, object], nodes: int) -> Self | None:
        """The image in a record, for a tree of `nodes` nodes; None if it is damaged."""
        match record:
            case {
                "stamp": str(stamp),
                "size": int(size),
                "checksum": int() | None as checksum,
                "slots": list(slots),
                "counts": list(counts),
                "loads": list(loads),
                "lengths": list(lengths),
            } if _STAMP.fullmatch(stamp) and all(_are_numbers(pair, 2) for pair in lengths):
                if not all(_are_numbers(row, nodes) for row in (slots, counts, loads)):
                    return None
                rows = {"slots": slots, "counts": counts, "loads": loads}
                return cls(stamp=bytes.fromhex(stamp), size=size, checksum=checksum, lengths=dict(lengths), **rows)
        return None


def _are_numbers(row: object, length: int) -> bool:
    """True for a list of `length` whole numbers that an array can hold."""
    return isinstance(row, list) and len(row) == length and all(type(n) is int and abs(n) < 1 << 63 for n in row)


#: A filter at its opening: table, splits, number of elements dropped from a wrong leaf's log, and the manifest's record of
#: the kept bits, None if they do not count.
Restored: TypeAlias = tuple[LeafTable, list[Split], int, dict[str, object] | None]


def restore(folder: Path, parameters: DsbfParameters, logs: LeafLogs, storage: BitStorage) -> Restored:
    """The state of the folder's filter, which is made if the folder is empty. Cost: 0.3 µs per element, or loading the bits.

    Raises: OSError; FormatMismatch, with the folder unchanged if a log has lost elements of the last clean end.
    """
    manifest = read_manifest(folder, parameters) or _founded(folder, parameters, logs)
    if image := Image.of_record(manifest.image or {}, len(manifest.tree)):
        named = _nodes_with_logs(manifest)
        logs.require({leaf: length for leaf, length in image.lengths.items() if leaf in named})
        if kept := _from_image(parameters, manifest, image, logs, storage):
            return kept
    if manifest.image is not None:
        manifest = replace(manifest, image=None)
        write_manifest(folder, parameters, manifest)
    # A kill may have come between the manifest's rename and its sync; all that follows depends on that name.
    sync_folder(folder)
    sync_folder(folder.parent)
    restored = _from_logs(parameters, manifest, logs, storage)
    remove_strangers(folder, logs)
    return restored


def _founded(folder: Path, parameters: DsbfParameters, logs: LeafLogs) -> Manifest:
    """Make the files of an empty filter; the manifest comes last, so that half of it is made anew."""
    names = [entry.name for entry in folder.iterdir() if not entry.name.endswith(UNFINISHED)]
    is_ours = all(name.startswith("leaf-") or name == BITS_FILE for name in names)
    if not is_ours or not are_empty(folder):
        raise FormatMismatch(f"{folder} is not empty and has no MANIFEST file: it is damaged or not ours")
    parameters.require_few_leaves()
    manifest = Manifest(tree=Tree.rooted(parameters.first_leaves))
    logs.create(manifest.tree.leaves)
    write_manifest(folder, parameters, manifest)
    return manifest


def _from_image(
    parameters: DsbfParameters, manifest: Manifest, image: Image, logs: LeafLogs, storage: BitStorage
) -> Restored | None:
    """The state at the last clean end, of which this is the image; None if anything disagrees. No log is read."""
    with_bits = {node for node, slot in enumerate(image.slots) if slot != NONE}
    if not image.lengths.keys() == with_bits == _nodes_with_logs(manifest) or not logs.adopt(image.lengths):
        return None
    splits = _splits(manifest, logs)
    if any(split.moved >= split.length for split in splits):
        return None
    if (leaves := kept_leaves(parameters, image, storage)) is None:
        return None
    table = LeafTable(parameters, manifest.tree, leaves)
    try:
        table.adopt(Nodes(*(np.array(row, dtype=np.int64) for row in (image.slots, image.counts, image.loads))))
    except ValueError:
        return None
    return table, splits, 0, manifest.image


def kept_leaves(parameters: DsbfParameters, image: Image, storage: BitStorage) -> LeafBits | None:
    """The leaves of the image, with their bits; None if the file is of another image. Raises: OSError."""
    if image.size <= 0 or image.size % (parameters.leaf_bits // 8):
        return None
    if not storage.load(image.size, image.stamp, image.checksum):
        return None
    return _leaves(parameters, image.size // (parameters.leaf_bits // 8), storage)


def _leaves(parameters: DsbfParameters, slots: int, storage: BitStorage) -> LeafBits:
    return LeafBits(parameters.leaf_bits, parameters.hashes, slots, storage, parameters.leaf_kind)


def _from_logs(parameters: DsbfParameters, manifest: Manifest, logs: LeafLogs, storage: BitStorage) -> Restored:
    """The state as the logs have it. Torn tails are cut, equal elements and strays dropped."""
    tree = manifest.tree
    storage.begin()
    slots = len(tree.leaves) + len(manifest.splitting)
    table = LeafTable(parameters, tree, _leaves(parameters, slots, storage))
    strays = 0
    for leaf in tree.leaves:
        found = logs.open(leaf)
        mine = found[tree.leads_through(leaf, found)]
        elements = distinct(mine)
        if len(elements) < len(found):
            logs.rewrite(leaf, elements)
        table.settle(leaf, elements)
        strays += len(found) - len(mine)
    for node, moved in manifest.splitting:
        if moved > len(logs.open(node)):
            raise FormatMismatch(f"{logs.path(node)} is damaged: it holds fewer elements than were moved out of it")
    splits = _splits(manifest, logs)
    # A node counts what no node below it knows, so the deepest come first. Their logs are frozen: nothing is dropped.
    for split in sorted(splits, key=lambda split: -tree.level.item(split.node)):
        found = logs.read(split.node)
        is_mine = tree.leads_through(split.node, found)
        if split.moved < split.length:
            table.settle(split.node, distinct(found[is_mine]))
        strays += int(np.count_nonzero(~is_mine))
    return table, splits, strays, None


def _splits(manifest: Manifest, logs: LeafLogs) -> list[Split]:
    return [Split(node=node, length=logs.count(node), moved=n, recorded=n) for node, n in manifest.splitting]


def _nodes_with_logs(manifest: Manifest) -> set[int]:
    return {*manifest.tree.leaves, *(node for node, _ in manifest.splitting)}
