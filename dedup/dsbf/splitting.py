"""How a full leaf of a DSBF is split while it serves, a little at a time, and forgets nothing at any crash.

To split a leaf is to insert its elements anew below it. Its states, and what brings the next one:

    LEAF       full: its log is flushed and frozen, its children's logs are made and synced, then a manifest that
               names the children and the split takes the old one's place. Some syncs; no element is touched.
    SPLITTING  new elements go to its children; a query asks it too. With every call that marks keys, some elements of
               its log are inserted anew. `moved` is the number of those done.
    DRAINED    all are moved: its bits are dropped, queries pass it by. Nothing on the disk has changed yet.
    INNER      at the next sync: the children's logs are durable, a manifest without the split takes the old one's
               place, and only then is the log removed.

What the manifest says is always true of the disk. `moved` is recorded there only up to what had been moved before a
sync of all logs began. So after a crash at any point each synced element is in the log of a leaf, or in that of a
splitting node at `moved` or later; elements that are moved a second time change nothing.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from anabranch.dedup.batch import BoolArray, Fingerprints, IntArray
from anabranch.dedup.dsbf.bloom import MOVES_PER_KEY, DsbfParameters
from anabranch.dedup.dsbf.manifest import Manifest, write_manifest
from anabranch.dedup.dsbf.tree import Tree
from anabranch.dedup.durablefiles import sync_folder
from anabranch.dedup.errors import FilterClosed
from anabranch.dedup.fingerprint import as_array, distinct
from anabranch.dedup.leaves.log import LeafLogs
from anabranch.dedup.leaves.table import LeafTable

#: Elements that are due before any is moved, unless they are a split's last: a step has a fixed cost, which to move
#: fewer would not repay. 1 ms [measured], so calls of a few keys stay short.
MOVE_AT_LEAST = 2048
#: Elements that are read, descended and logged in one step; with more its arrays outgrow the processor's cache.
_MOVE_AT_ONCE = 4096
#: A batch is taken in steps of this part of `split_above`, so that one step never fills a leaf beyond its capacity.
_STEPS_PER_LEAF = 40
_SMALLEST_STEP = 16


@dataclass(slots=True, kw_only=True)
class Split:
    """A node whose elements are on their way to the leaves below it."""

    node: int
    length: int  #: elements in its log, which is frozen
    moved: int = 0  #: of these, from the first on, so many were inserted anew
    recorded: int = 0  #: of these so many are durably in other logs

    @property
    def is_recorded(self) -> bool:
        """True if its log is not needed any more."""
        return self.recorded == self.length


class Splitter:
    """Takes elements into the leaves of one filter and splits those that fill up.

    `take`, `take_one` and `start` belong to one thread; `sync` may run in another one at the same time.
    """

    def __init__(self, folder: Path, parameters: DsbfParameters, logs: LeafLogs, table: LeafTable) -> None:
        self._folder = folder
        self._parameters = parameters
        self._logs = logs
        self._table = table
        self._step = max(_SMALLEST_STEP, parameters.split_above // _STEPS_PER_LEAF)
        self._splits: list[Split] = []
        self._moving: deque[Split] = deque()  # of these, those that are not drained
        self._ended: list[int] = []  # nodes whose log is to be removed
        self._credit = 0  # elements that may be moved
        self._lock = threading.Lock()  # over the manifest and `_splits`
        self._is_settled = True  # the folder was synced since the last rename
        self._is_starting = False  # a split is being started, or was broken off in that: memory and disk may differ
        self.image: dict[str, object] | None = None  #: the manifest's record of the kept bits, while they are true

    @property
    def splitting(self) -> int:
        """Splits under way."""
        return len(self._moving)

    @property
    def splits(self) -> tuple[Split, ...]:
        """All splits whose node still has its log, the oldest first."""
        return tuple(self._splits)

    def resume(self, splits: list[Split], image: dict[str, object] | None) -> None:
        """Go on with the splits that an earlier process began, and with its manifest's record of the bits."""
        self.image = image
        self._splits = list(splits)
        self._moving = deque(split for split in splits if split.moved < split.length)

    def take(self, elements: Fingerprints, is_first: BoolArray) -> None:
        """Set bits, count and log; start to split what is full, and move elements of what is splitting.

        For n elements taken, fewer than MOVE_AT_LEAST + MOVES_PER_KEY * n are moved. Raises: OSError; `Dsbf.mark`
        says what holds then.
        """
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

        Any other exception may break it off between the manifest and the table; then all calls that write a manifest
        raise FilterClosed, since it could leave out a log. What the disk says is true: open the filter again.
        """
        if not full:
            return
        self._logs.flush()
        tree = self._table.tree.split_all(full, self._parameters.split_fan_out)
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
        """Make all that was taken before this call durable, and end splits whose elements are. Raises: OSError.

        It may be repeated. One call at a time. Raises FilterClosed as `start` says, with all logs synced.
        """
        moved = [(split, split.moved) for split in self.splits]  # before the logs are flushed: see above
        self._logs.sync()
        with self._lock:
            self._require_whole()
            if any(split.recorded < count or count == split.length for split, count in moved):
                self._record(moved)
            self._settle()
            self._end_recorded()
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
        """Only the log's writing can fail, and then nothing is taken. Answers the leaf of each."""
        self._logs.make_room()
        leaves = self._table.mark(elements, is_first)
        self._logs.append(leaves, elements)
        return leaves

    def _move(self, keys: int) -> None:
        """Move what is due for so many keys, the oldest split first. What calls that failed left due does not add up."""
        self._credit = min(self._credit, MOVE_AT_LEAST - 1) + MOVES_PER_KEY * keys
        while self._moving and self._credit >= min(MOVE_AT_LEAST, self._moving[0].length - self._moving[0].moved):
            self._credit -= self._move_part(self._moving[0])
        if not self._moving:
            self._credit = 0

    def _move_part(self, split: Split) -> int:
        """Insert the next elements of a split's log anew; answers how many. What fails may be repeated."""
        count = min(self._credit, _MOVE_AT_ONCE, split.length - split.moved)
        part = self._logs.read(split.node, split.moved, split.moved + count)
        mine = distinct(part[self._table.tree.leads_through(split.node, part)])
        leaves = self._insert(mine, np.ones(len(mine), dtype=np.bool_))
        split.moved += count  # after the append, so that a sync that reads it finds the elements in the logs
        if split.moved == split.length:
            self._moving.remove(split)
            self._table.end_split(split.node)
        self.start(self._table.full(leaves))
        return count

    def _require_whole(self) -> None:
        if self._is_starting:
            raise FilterClosed(f"{self._folder}: a call was broken off while a split began; open the filter again")

    def _record(self, moved: list[tuple[Split, int]]) -> None:
        """So many elements of each split are durably elsewhere: say so in the manifest."""
        for split, count in moved:
            split.recorded = count
        self._replace_manifest(self._table.tree, self._splits)

    def _end_recorded(self) -> None:
        """The manifest, which lasts, does not name these splits any more."""
        self._ended += [split.node for split in self._splits if split.is_recorded]
        self._splits = [split for split in self._splits if not split.is_recorded]

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
