"""How a full leaf of a DSBF is split while it serves, a little at a time, and forgets nothing at any crash.

The elements of the leaf are inserted anew below it. Its states, and what brings the next one:

    LEAF       full: its log is flushed and frozen, its children's logs are made and synced, then a manifest that
               names the children and the split replaces the old one. Some syncs; no element is touched.
    SPLITTING  new elements go to its children; a query asks it too. With every call that marks keys, some elements of
               its log are inserted anew. `moved` is the number of those done.
    DRAINED    all are moved: its bits are dropped, queries pass it by. Nothing on the disk has changed yet.
    INNER      at the next sync: the children's logs are durable, a manifest without the split replaces the old one,
               and only then is the log removed.

The manifest records `moved` only up to the elements moved before a sync of all logs began. So after any crash each synced
element is in the log of a leaf, or in that of a splitting node at `moved` or later; moving it again changes nothing.

File MANIFEST, JSON: `magic`, `version`, `parameters`, the arrays `fan_out` and `first_child` of `tree.py`, `splitting`
(pairs: a splitting node, and how many elements of its log are durably in the logs below it; the oldest split first) and
`image`, null or the record of `restoring.Image`. A node without children is a leaf; one with children is SPLITTING if it
is listed there, else INNER. The file is replaced at once, so it is always one whole state. Its version is 2, and 3 if the
leaves are blocked; then `parameters` has `leaf_kind`, too.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from anabranch.dedup.bloom.formulas import LEAF_KINDS, MOVES_PER_KEY, DsbfParameters
from anabranch.dedup.bloom.log import LeafLogs
from anabranch.dedup.bloom.table import LeafTable
from anabranch.dedup.bloom.tree import Tree
from anabranch.dedup.errors import FilterClosed, FormatMismatch
from anabranch.dedup.files.durable import store_full_errors, swap_file, sync_folder
from anabranch.dedup.files.formatfile import Format, read_record
from anabranch.dedup.keys import BoolArray, Fingerprints, IntArray, as_array, distinct

MANIFEST_FILE = "MANIFEST"
_MANIFEST_MAGIC = "anabranch dsbf"
_MANIFEST_VERSION = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One durable state of a filter."""

    tree: Tree
    splitting: tuple[tuple[int, int], ...] = ()  #: node, elements of its log that are durably below it; oldest first
    image: dict[str, object] | None = None  #: what the kept bits must agree with; None: they are not to be trusted


def write_manifest(folder: Path, parameters: DsbfParameters, manifest: Manifest) -> None:
    """Put this manifest in place of the old one. It lasts a power loss only after the folder is synced."""
    tree, path = manifest.tree, folder / MANIFEST_FILE
    nodes = {"fan_out": tree.fan_out.tolist(), "first_child": tree.first_child.tolist()}
    state = nodes | {"splitting": manifest.splitting, "image": manifest.image}
    with store_full_errors(path):
        swap_file(path, json.dumps(_format(parameters).record() | state).encode() + b"\n", names_first=True)


def read_manifest(folder: Path, parameters: DsbfParameters) -> Manifest | None:
    """The folder's manifest, None if it has none. Raises: FormatMismatch if it is of another kind or damaged."""
    path = folder / MANIFEST_FILE
    if not path.exists():
        return None
    found = read_record(path)
    _require_kind(path, found, parameters)
    _format(parameters).require(path, found)
    try:
        return _manifest(found)
    except FormatMismatch as error:
        raise FormatMismatch(f"{path}: {error}") from error


def _manifest(found: dict[str, object]) -> Manifest:
    tree = Tree.checked(found.get("fan_out"), found.get("first_child"))
    splitting, image = found.get("splitting"), found.get("image")
    pairs = []
    for pair in splitting if isinstance(splitting, list) else [None]:
        match pair:
            case [int(node), int(moved)] if 0 < node < len(tree) and tree.fan_out[node] and moved >= 0:
                pairs.append((node, moved))
            case _:
                raise FormatMismatch("the list of splits is damaged: pairs of an inner node and a count are needed")
    if len({node for node, _ in pairs}) < len(pairs):
        raise FormatMismatch("the list of splits is damaged: it names a node twice")
    if image is not None and not isinstance(image, dict):
        raise FormatMismatch("the record of the bits is damaged: it is not an object")
    return Manifest(tree=tree, splitting=tuple(pairs), image=image)


def _format(parameters: DsbfParameters) -> Format:
    version = _MANIFEST_VERSION + LEAF_KINDS[parameters.leaf_kind]
    return Format(magic=_MANIFEST_MAGIC, version=version, parameters=parameters.record())


def _require_kind(path: Path, found: dict[str, object], parameters: DsbfParameters) -> None:
    """Raise FormatMismatch if the leaves are of another kind that this program knows: the versions would say less."""
    for kind, step in LEAF_KINDS.items():
        if kind != parameters.leaf_kind and found.get("version") == _MANIFEST_VERSION + step:
            differs = f"leaf_kind is {kind!r} in the folder, {parameters.leaf_kind!r} here"
            raise FormatMismatch(f"{path} was made with other parameters: {differs}")


#: Elements that are due before any is moved, unless they are a split's last: a step has a fixed cost, which to move
#: fewer would not repay. 1 ms [measured], so calls of a few keys stay short.
MOVE_AT_LEAST = 2048
#: Elements that are read, descended and logged in one step; with more its arrays outgrow the processor's cache.
_MOVE_AT_ONCE = 4096
#: A batch is taken in steps of at most this part of `split_above`, so that one step never fills a leaf beyond its capacity.
_STEPS_PER_LEAF = 40
_SMALLEST_STEP = 16


@dataclass(slots=True, kw_only=True)
class Split:
    """A node with elements on their way to the leaves below it."""

    node: int
    length: int  #: elements in its log, which is frozen
    moved: int = 0  #: number of these, from the first on, that were inserted anew
    recorded: int = 0  #: number of these that are durably in other logs

    @property
    def is_recorded(self) -> bool:
        """True if its log is not needed any more."""
        return self.recorded == self.length

    def advance(self, count: int) -> None:
        """Count elements that were moved."""
        self.moved += count

    def record(self, count: int) -> None:
        """Note the number of elements that are durably in other logs."""
        self.recorded = count


class Splitter:
    """Takes elements into the leaves of one filter and splits those that fill up. Only `sync` may run in another thread."""

    def __init__(
        self,
        folder: Path,
        parameters: DsbfParameters,
        logs: LeafLogs,
        table: LeafTable,
        splits: list[Split],
        image: dict[str, object] | None,
    ) -> None:
        """`splits`: those that an earlier process began; `image`: its manifest's record of the bits."""
        self._folder = folder
        self._parameters = parameters
        self._logs = logs
        self._table = table
        room = parameters.capacity - parameters.split_above
        self._step = max(_SMALLEST_STEP, min(parameters.split_above // _STEPS_PER_LEAF, room))
        self._splits = list(splits)
        self._moving = deque(split for split in splits if split.moved < split.length)  # those that are not drained
        self._ended: list[int] = []  # nodes; their logs are to be removed
        self._credit = 0  # elements that may be moved
        self._lock = threading.Lock()  # over the manifest and `_splits`
        self._is_settled = True  # the folder was synced since the last rename
        self._is_starting = False  # a split is being started, or was broken off in that: memory and disk may differ
        self.image = image  #: the manifest's record of the kept bits, while they are true

    @property
    def splitting(self) -> int:
        """Splits under way."""
        return len(self._moving)

    @property
    def splits(self) -> tuple[Split, ...]:
        """All splits with a log, the oldest first."""
        return tuple(self._splits)

    def take(self, elements: Fingerprints, is_first: BoolArray) -> None:
        """Set bits, count and log; split full leaves, move some elements of splitting ones. Raises: as `Dsbf.mark`."""
        for start in range(0, len(elements), self._step):
            part = slice(start, start + self._step)
            if full := self._table.full(self._insert(elements[part], is_first[part])):
                self.start(full)
            if self._moving:
                self._move(len(elements[part]))

    def take_one(self, element: int) -> None:
        """`take` of one element."""
        self._logs.make_room()
        leaf = self._table.mark_one(element)
        self._logs.append(np.array([leaf]), as_array(element))
        if self._table.is_full(leaf):
            self.start([leaf])
        if self._moving:
            self._move(1)

    def start(self, full: list[int]) -> None:
        """Begin to split these leaves. Raises: OSError, with the splits begun or not.

        After another exception memory and disk may differ: writing a manifest raises FilterClosed, and the disk is
        right.
        """
        if not full:
            return
        self._logs.flush()
        tree = self._table.tree.split(full, self._parameters.split_fan_out)
        children = list(range(len(self._table.tree), len(tree)))
        splits = [Split(node=leaf, length=self._logs.count(leaf)) for leaf in full]
        with self._lock:
            self._require_whole()
            slots = self._table.take(len(children))
            self._is_starting = True
            try:
                self._logs.create(children)
                self._replace_manifest(tree, [*self._splits, *splits])
            except OSError:
                self._is_starting = False
                self._table.give_back(slots)
                self._logs.discard(children)
                raise
            self._table.begin_splits(full, tree, slots)
            self._splits += splits
            self._moving += splits
            self._is_starting = False
            self._settle()

    def sync(self) -> None:
        """Make all that was taken before this call durable, and end splits with all elements moved. One call at a time.

        Raises: OSError; it may be repeated. FilterClosed as `start`, with all logs synced.
        """
        moved = [(split, split.moved) for split in self.splits]  # before the logs are flushed: see above
        self._logs.sync()
        with self._lock:
            self._require_whole()
            if any(split.recorded < count or count == split.length for split, count in moved):
                for split, count in moved:
                    split.record(count)
                self._replace_manifest(self._table.tree, self._splits)
            self._settle()
            # The manifest, which lasts, does not name the recorded splits any more.
            self._ended += [split.node for split in self._splits if split.is_recorded]
            self._splits = [split for split in self._splits if not split.is_recorded]
        while self._ended:
            self._logs.discard(self._ended[-1:])
            self._ended.pop()

    def write(self, image: dict[str, object] | None) -> None:
        """Put a manifest with this record of the bits, or without one, durably in place. Raises: OSError."""
        with self._lock:
            self._require_whole()
            before, self.image = self.image, image
            try:
                self._replace_manifest(self._table.tree, self._splits)
                self._settle()
            except BaseException:
                self.image = before  # perhaps on the disk still: the next change takes it away again
                raise

    def _insert(self, elements: Fingerprints, is_first: BoolArray) -> IntArray:
        """Only the log's writing can fail, and then nothing is taken. Returns the leaf of each element."""
        self._logs.make_room()
        leaves = self._table.mark(elements, is_first)
        self._logs.append(leaves, elements)
        return leaves

    def _move(self, keys: int) -> None:
        """Move the elements due for this number of keys, the oldest split first. Debts of failed calls do not add up."""
        self._credit = min(self._credit, MOVE_AT_LEAST - 1) + MOVES_PER_KEY * keys
        while self._moving and self._credit >= min(MOVE_AT_LEAST, self._moving[0].length - self._moving[0].moved):
            split = self._moving[0]  # its next elements are inserted anew; what fails may be repeated
            count = min(self._credit, _MOVE_AT_ONCE, split.length - split.moved)
            part = self._logs.read(split.node, split.moved, split.moved + count)
            mine = distinct(part[self._table.tree.leads_through(split.node, part)])
            leaves = self._insert(mine, np.ones(len(mine), dtype=np.bool_))
            split.advance(count)  # after the append, so that a sync that reads it finds the elements in the logs
            if split.moved == split.length:
                self._moving.remove(split)
                self._table.end_split(split.node)
            self.start(self._table.full(leaves))
            self._credit -= count
        if not self._moving:
            self._credit = 0

    def _require_whole(self) -> None:
        if self._is_starting:
            raise FilterClosed(f"{self._folder}: a call was broken off while a split began; open the filter again")

    def _replace_manifest(self, tree: Tree, splits: list[Split]) -> None:
        """Put the present state in the manifest's place, by a rename that `_settle` makes durable."""
        splitting = tuple((split.node, split.recorded) for split in splits if not split.is_recorded)
        write_manifest(self._folder, self._parameters, Manifest(tree=tree, splitting=splitting, image=self.image))
        self._is_settled = False

    def _settle(self) -> None:
        """Make the last rename durable, if it is not."""
        if not self._is_settled:
            sync_folder(self._folder)
            self._is_settled = True
