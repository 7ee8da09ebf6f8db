"""DSBF: the dynamic splittable Bloom filter, a tree whose leaves are Bloom filters that split when they are full.

An element is its key's 128-bit fingerprint. LocHash, one per level, leads it down to a leaf; MapHash gives its k bits
there. Each leaf also logs its elements, so that it can be split and rebuilt: bits are a cache, logs are the set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from dedup.batch import BoolArray, Fingerprints, first_of_each
from dedup.bloom import DsbfParameters
from dedup.durablefiles import UNFINISHED, FolderLock, sync_folder
from dedup.errors import FilterClosed, FormatMismatch
from dedup.fingerprint import as_array, distinct, fingerprint, fingerprints
from dedup.leaves.log import LeafLogs
from dedup.leaves.table import LeafTable
from dedup.manifest import read_manifest, write_manifest
from dedup.splitting import Splitter
from dedup.tree import Tree


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
        tree = read_manifest(folder, parameters) or self._found()
        self._table = LeafTable(parameters, tree)
        self._splitter = Splitter(folder, parameters, self._logs, self._table)
        self._strays = 0
        self.is_closed = False
        for leaf in tree.leaves:
            self._load(leaf)
        self._logs.remove_strangers()
        self._splitter.split_full(np.array(tree.leaves))

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
        return self._table.elements

    def unseen(self, keys: Sequence[bytes]) -> BoolArray:
        """True where a key was certainly never marked; a key never marked is False with a probability of at most f."""
        self._require_open()
        return self._table.unseen(fingerprints(keys))

    def is_unseen(self, key: bytes) -> bool:
        """`unseen` of one key, several times as fast as a batch of one."""
        self._require_open()
        return self._table.is_unseen(fingerprint(key))

    def mark(self, keys: Sequence[bytes]) -> None:
        """Put the keys into the set, whatever their bits say.

        A key whose bits are all set already is logged all the same: another filter may have found it new, and without
        its fingerprint the next split would lose it. Raises: StoreFull (an OSError), with the keys taken or not
        taken; the filter stays sound and the call may be repeated.
        """
        self._require_open()
        self._insert(fingerprints(keys), first_of_each(keys))

    def mark_one(self, key: bytes) -> None:
        """`mark` of one key, several times as fast as a batch of one."""
        self._require_open()
        element = fingerprint(key)
        self._logs.make_room()
        leaves = np.array([self._table.mark_one(element)])
        self._logs.append(leaves, as_array(element))
        self._splitter.split_full(leaves)

    def add(self, keys: Sequence[bytes]) -> BoolArray:
        """Test and set: True where a key was new; a key twice in one batch is new once. Raises as `mark`."""
        self._require_open()
        elements = fingerprints(keys)
        new = self._table.unseen(elements) & first_of_each(keys)
        self._insert(elements[new], np.ones(np.count_nonzero(new), dtype=np.bool_))
        return new

    def sync(self) -> None:
        """Make all that was marked before this call durable (fdatasync, log by log). Raises: OSError."""
        self._require_open()
        self._logs.sync()

    def rates(self) -> tuple[float, float]:
        """False-positive rate that a random key meets, and that of the fullest leaf. Cost: O(leaves)."""
        return self._table.rates()

    def statistics(self) -> DsbfStatistics:
        """The filter at this moment. Cost: O(leaves)."""
        self._require_open()
        tree, (mean, worst) = self._table.tree, self._table.rates()
        return DsbfStatistics(
            elements=self._table.elements,
            leaves=len(tree.leaves),
            splits=tree.splits,
            height=tree.height,
            mean_rate=mean,
            worst_rate=worst,
            memory_bytes=self._table.memory_bytes,
            log_bytes=self._logs.log_bytes,
            strays=self._strays,
        )

    def check(self) -> None:
        """Read all logs and compare: each leaf's bits are exactly its elements', and its count is not above them.

        Cost: as opening. Raises: InvariantBroken, OSError.
        """
        self._require_open()
        self._logs.flush()
        for leaf in self._table.tree.leaves:
            self._table.check_leaf(leaf, distinct(self._logs.read(leaf)), self._logs.path(leaf))
        self._table.check_sum(self._folder)

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

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else f"{len(self)} elements in {len(self._table.tree.leaves)} leaves"
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
        """Let a leaf hold what its log says; what would lead to another leaf is dropped."""
        found = self._logs.open(leaf)
        mine = found[self._table.tree.descend(found) == leaf]
        elements = distinct(mine)
        if len(elements) < len(found):
            self._logs.rewrite(leaf, elements)
        self._strays += len(found) - len(mine)
        self._table.settle(leaf, elements)

    def _insert(self, elements: Fingerprints, is_first: BoolArray) -> None:
        """Set bits, count and log; then split what is full. Only the log's writing and a split can fail."""
        if not len(elements):
            return
        self._logs.make_room()
        leaves = self._table.mark(elements, is_first)
        self._logs.append(leaves, elements)
        self._splitter.split_full(leaves)
