"""DSBF: the dynamic splittable Bloom filter, a tree whose leaves are Bloom filters that split when they are full.

An element is its key's 128-bit fingerprint. LocHash, one per level, leads it down to a leaf; MapHash gives its k bits
there. Each leaf also logs its elements, so that it can be split and rebuilt: bits are a cache, logs are the set.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from dedup.arrays import BoolArray, Fingerprints, IntArray, first_of_each
from dedup.bloom import DsbfParameters, false_positive_rates
from dedup.durable import UNFINISHED, FolderLock, sync_folder
from dedup.errors import FilterClosed, FormatMismatch, InvariantBroken
from dedup.fingerprint import distinct, fingerprints
from dedup.leaflog import LeafLogs
from dedup.leaves.arena import ArenaLeaves
from dedup.leaves.base import Leaves
from dedup.manifest import read_manifest, write_manifest
from dedup.tree import DEEPEST, Tree


@dataclass(frozen=True, slots=True, kw_only=True)
class DsbfStatistics:
    """A filter at one moment."""

    elements: int  #: distinct elements, less those that were falsely taken for known since the leaf was made
    leaves: int  #: leaves of the tree
    splits: int  #: splits so far, those before the last opening included
    height: int  #: levels of LocHash on the longest way down
    mean_rate: float  #: probability that a key never marked is taken for known
    worst_rate: float  #: the same in the fullest leaf
    memory_bytes: int  #: bit arrays in memory
    log_bytes: int  #: logs on disk
    strays: int  #: elements dropped at opening since they stood in a wrong leaf's log, as after a power loss


class Dsbf:
    """The filter of one folder. Use `Dsbf.open`.

    Marking and asking belong to one thread; `sync` may run in another one at the same time.
    """

    def __init__(self, folder: Path, parameters: DsbfParameters, lock: FolderLock) -> None:
        self._folder = folder
        self._parameters = parameters
        self._lock = lock
        self._logs = LeafLogs(folder, parameters)
        self._tree = read_manifest(folder, parameters) or self._found()
        leaves = self._tree.leaves
        self._leaves: Leaves = ArenaLeaves(parameters.leaf_bits, parameters.hashes, len(leaves))
        self._slots: IntArray = np.full(len(self._tree), -1, dtype=np.int64)
        self._counts: IntArray = np.zeros(len(self._tree), dtype=np.int64)
        self._strays = 0
        self.is_closed = False
        for leaf in leaves:
            self._load(leaf)
        self._elements = int(self._counts.sum())
        self._logs.remove_strangers()
        self._split_full(leaves)

    @classmethod
    def open(cls, folder: Path, parameters: DsbfParameters | None = None) -> Self:
        """Open a folder's filter, or make it if the folder is new or empty.

        The bits are rebuilt from the logs: 0.3 µs per element. Torn tails are cut; a log with equal elements is
        written anew without them. Raises: FormatMismatch if the folder is not ours, is damaged or was made with
        other parameters; FilterInUse; OSError.
        """
        folder.mkdir(parents=True, exist_ok=True)
        lock = FolderLock(folder)
        try:
            return cls(folder, parameters or DsbfParameters(), lock)
        except BaseException:
            lock.release()
            raise

    def __len__(self) -> int:
        """Distinct elements, as `DsbfStatistics.elements` counts them."""
        return self._elements

    def unseen(self, keys: Sequence[bytes]) -> BoolArray:
        """True where a key was certainly never marked; a key never marked is False with a probability of at most f."""
        self._require_open()
        return self._is_unseen(fingerprints(keys))

    def mark(self, keys: Sequence[bytes]) -> None:
        """Put the keys into the set, whatever their bits say.

        A key whose bits are all set already is logged all the same: another filter may have found it new, and without
        its fingerprint the next split would lose it. Raises: StoreFull (an OSError), with the keys taken or not
        taken; the filter stays sound and the call may be repeated.
        """
        self._require_open()
        self._insert(fingerprints(keys), first_of_each(keys))

    def add(self, keys: Sequence[bytes]) -> BoolArray:
        """Test and set: True where a key was new; a key twice in one batch is new once. Raises as `mark`."""
        self._require_open()
        elements = fingerprints(keys)
        new = self._is_unseen(elements) & first_of_each(keys)
        self._insert(elements[new], np.ones(np.count_nonzero(new), dtype=np.bool_))
        return new

    def sync(self) -> None:
        """Make all that was marked before this call durable (fdatasync, log by log). Raises: OSError."""
        self._require_open()
        self._logs.sync()

    def rates(self) -> tuple[float, float]:
        """False-positive rate that a random key meets, and that of the fullest leaf. Cost: O(leaves)."""
        leaves = self._tree.fan_out == 0
        given = self._parameters
        rates = false_positive_rates(given.leaf_bits, given.hashes, self._counts[leaves])
        return float(rates @ self._tree.share[leaves]), float(rates.max())

    def statistics(self) -> DsbfStatistics:
        """The filter at this moment. Cost: O(leaves)."""
        self._require_open()
        mean, worst = self.rates()
        return DsbfStatistics(
            elements=self._elements,
            leaves=len(self._tree.leaves),
            splits=self._tree.splits,
            height=self._tree.height,
            mean_rate=mean,
            worst_rate=worst,
            memory_bytes=self._leaves.memory_bytes,
            log_bytes=self._logs.log_bytes,
            strays=self._strays,
        )

    def check(self) -> None:
        """Read all logs and compare: each leaf's bits are exactly its elements', and its count is not above them.

        Cost: as opening. Raises: InvariantBroken, OSError.
        """
        self._require_open()
        self._logs.flush()
        for leaf in self._tree.leaves:
            self._check_leaf(leaf, self._logs.read(leaf))
        if self._elements != (total := int(self._counts.sum())):
            raise InvariantBroken(f"{self._folder}: {self._elements} elements, but its leaves count {total}")

    def close(self) -> None:
        """Sync and let go of the folder; a second call does nothing. Raises: OSError, with the folder let go."""
        if self.is_closed:
            return
        try:
            self._logs.sync()
        finally:
            self.is_closed = True
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else f"{self._elements} elements in {len(self._tree.leaves)} leaves"
        return f"<Dsbf {state}>"

    def _require_open(self) -> None:
        if self.is_closed:
            raise FilterClosed(f"the filter {self._folder} is closed")

    def _found(self) -> Tree:
        """Make the files of an empty filter; the manifest comes last, so that half of it is made anew."""
        names = [entry.name for entry in self._folder.iterdir() if not entry.name.endswith(UNFINISHED)]
        if any(not name.startswith("leaf-") for name in names) or not self._logs.are_empty():
            raise FormatMismatch(f"{self._folder} is not empty and has no MANIFEST file: it is damaged or not ours")
        tree = Tree.rooted(self._parameters.first_leaves)
        self._logs.create({leaf: fingerprints(()) for leaf in tree.leaves})
        write_manifest(self._folder, self._parameters, tree)
        sync_folder(self._folder)
        sync_folder(self._folder.parent)
        return tree

    def _load(self, leaf: int) -> None:
        found = self._logs.open(leaf)
        mine = found[self._tree.descend(found) == leaf]
        elements = distinct(mine)
        if len(elements) < len(found):
            self._logs.rewrite(leaf, elements)
        self._strays += len(found) - len(mine)
        self._settle_in(leaf, elements)

    def _settle_in(self, leaf: int, elements: Fingerprints) -> None:
        self._slots[leaf] = slot = self._leaves.take()
        self._leaves.fill(slot, elements)
        self._counts[leaf] = len(elements)

    def _is_unseen(self, elements: Fingerprints) -> BoolArray:
        return self._leaves.unseen(self._slots[self._tree.descend(elements)], elements)

    def _insert(self, elements: Fingerprints, is_first: BoolArray) -> None:
        """Set bits, log and count; then split what is full. Only the log's writing and a split can fail."""
        if not len(elements):
            return
        self._logs.make_room()
        nodes = self._tree.descend(elements)
        new = self._leaves.mark(self._slots[nodes], elements) & is_first
        self._logs.append(nodes, elements)
        np.add.at(self._counts, nodes[new], 1)
        self._elements += int(np.count_nonzero(new))
        if self._counts[nodes].max() > self._parameters.split_above:
            self._split_full(set(nodes.tolist()))

    def _split_full(self, leaves: Iterable[int]) -> None:
        """Split those of the leaves that hold too much, and their children if need be."""
        waiting = list(leaves)
        while waiting:
            leaf = waiting.pop()
            if self._counts[leaf] > self._parameters.split_above and self._tree.level[leaf] < DEEPEST:
                waiting.extend(self._split(leaf))

    def _split(self, leaf: int) -> range:
        """Divide a leaf's elements among new children, and answer these.

        Until the manifest is renamed the parent's log counts, from then on the children's, which are synced before.
        So a crash at any point leaves one whole set. Raises: OSError, with the leaf as it was or already split.
        """
        self._logs.flush()
        elements = distinct(self._logs.read(leaf))
        tree = self._tree.split(leaf, self._parameters.split_fan_out)
        ways = tree.descend(elements)
        parts = {child: elements[ways == child] for child in tree.children(leaf)}
        self._logs.create(parts)
        try:
            write_manifest(self._folder, self._parameters, tree)
        except OSError:
            self._logs.discard(parts)
            raise
        self._replace(leaf, tree, parts)
        self._logs.settle()
        return tree.children(leaf)

    def _replace(self, leaf: int, tree: Tree, parts: dict[int, Fingerprints]) -> None:
        """Let the children serve in the leaf's place; memory only, so it cannot fail halfway."""
        self._logs.retire(leaf)
        self._leaves.drop(int(self._slots[leaf]))
        self._elements += sum(map(len, parts.values())) - int(self._counts[leaf])
        room = len(tree) - len(self._tree)
        self._slots = np.append(self._slots, np.full(room, -1, dtype=np.int64))
        self._counts = np.append(self._counts, np.zeros(room, dtype=np.int64))
        self._slots[leaf], self._counts[leaf] = -1, 0
        for child, elements in parts.items():
            self._settle_in(child, elements)
        self._tree = tree

    def _check_leaf(self, leaf: int, logged: Fingerprints) -> None:
        elements = distinct(logged)
        count, name = int(self._counts[leaf]), self._logs.path(leaf)
        if not (self._tree.descend(elements) == leaf).all():
            raise InvariantBroken(f"{name} holds elements of another leaf")
        if count > len(elements):
            raise InvariantBroken(f"{name} holds {len(elements)} elements, {count} were counted")
        if not self._leaves.agrees(int(self._slots[leaf]), elements):
            raise InvariantBroken(f"{name} and the bits of its leaf disagree")
