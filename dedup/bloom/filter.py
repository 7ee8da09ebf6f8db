"""DSBF: the dynamic splittable Bloom filter, a tree of Bloom filters that split when they are full.

An element is its key's 128-bit fingerprint. LocHash, one per level, leads it down to a leaf; MapHash gives its k bits
there. Each leaf also logs its elements, so that it can be split and rebuilt: bits are a cache, logs are the set.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from anabranch.dedup.bloom.bits import BITS_FILE, STAMP_BYTES, STORAGES, BlockedPositions
from anabranch.dedup.bloom.formulas import BLOCK_BITS, DsbfParameters, block_rates
from anabranch.dedup.bloom.log import LeafLogs
from anabranch.dedup.bloom.restoring import Image, restore
from anabranch.dedup.bloom.splitting import Split, Splitter
from anabranch.dedup.bloom.table import NONE, LeafTable
from anabranch.dedup.errors import BadParameters, FilterClosed, InvariantBroken
from anabranch.dedup.files import Closing
from anabranch.dedup.files.locks import FolderLock
from anabranch.dedup.keys import BoolArray, Fingerprints, IntArray, distinct, fingerprint, fingerprints, first_of_each


def check_node(table: LeafTable, node: int, logged: Fingerprints, name: Path) -> None:
    """The node's bits are exactly those of the elements in its log, and it does not count more of them."""
    elements = distinct(logged)
    is_leaf = not table.tree.fan_out[node]
    count = int(table.nodes.counts[node] if is_leaf else table.nodes.loads[node])
    if not table.tree.leads_through(node, elements).all():
        raise InvariantBroken(f"{name} holds elements of another leaf")
    if count > len(elements):
        raise InvariantBroken(f"{name} holds {len(elements)} elements, {count} were counted")
    if not table.leaves.agrees(int(table.nodes.slots[node]), elements):
        raise InvariantBroken(f"{name} and the bits of its leaf disagree")


#: With fewer blocks chance alone may load a leaf unevenly.
_MANY_BLOCKS = 1024
_DEVIATIONS = 6


def check_loads(parameters: DsbfParameters, elements: Fingerprints, name: Path) -> None:
    """The rate of a blocked leaf that holds these elements, by the load of each block, is f at most, but for chance.

    A leaf that is as deep as it may be, and one of few blocks, is not judged.
    """
    blocks = parameters.leaf_bits // BLOCK_BITS
    if not parameters.is_blocked or blocks < _MANY_BLOCKS or len(elements) > parameters.capacity:
        return
    loads = np.bincount(BlockedPositions(parameters.leaf_bits, parameters.hashes).blocks(elements), minlength=blocks)
    rates = block_rates(parameters.hashes, loads)
    rate, chance = float(rates.mean()), _DEVIATIONS * float(rates.std()) / math.sqrt(blocks)
    if rate > parameters.false_positive + chance:
        bound = parameters.false_positive
        raise InvariantBroken(
            f"{name}: its elements load the blocks so unevenly that the rate is {rate:.2g}, not {bound}"
        )


def check_split(table: LeafTable, split: Split, logged: Fingerprints, name: Path) -> None:
    """The bits are the log's until all is moved, and what was moved is known below."""
    if not split.recorded <= split.moved <= split.length == len(logged):
        raise InvariantBroken(f"{name}: of {len(logged)} elements {split.moved} are recorded as moved")
    mine = table.tree.leads_through(split.node, logged)
    if split.moved < split.length:
        check_node(table, split.node, logged[mine], name)
    moved = logged[: split.moved][mine[: split.moved]]
    leaves = table.tree.descend(moved)
    asked = np.flatnonzero(table.leaves.unseen(table.nodes.slots[leaves], moved))
    keepers = table.keepers(leaves[asked], moved[asked])
    is_below = (keepers != NONE) & (table.tree.level[keepers] > table.tree.level[split.node])
    if lost := np.count_nonzero(~is_below):
        raise InvariantBroken(f"{name}: {lost} of the elements recorded as moved are not known below")


#: Bytes of bits that are read at an opening in the time in which one element of a log is inserted: 1 ms a MiB, 0.3 µs.
_BYTES_READ_PER_ELEMENT = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class DsbfStatistics:
    """A filter at one moment."""

    elements: int  #: distinct elements, less those that were falsely taken for known since the leaf was made
    leaves: int  #: leaves of the tree
    splits: int  #: splits so far, those before the last opening and those under way included
    splitting: int  #: splits under way
    height: int  #: levels of LocHash on the longest way down
    mean_rate: float  #: probability that a key never marked is taken for known
    worst_rate: float  #: the same in the fullest leaf
    planned_rate: float  #: the mean rate once the expected elements are there
    rate_bound: float  #: no leaf's rate is ever above this: false_positive
    memory_bytes: int  #: bit arrays, in memory or mapped
    log_bytes: int  #: logs on disk
    strays: int  #: elements dropped at opening since they stood in a wrong leaf's log, as after a power loss


class Dsbf(Closing):
    """The filter of one folder. Use `Dsbf.open`."""

    def __init__(self, folder: Path, parameters: DsbfParameters, lock: FolderLock, leaves: str) -> None:
        self._folder = folder
        self._parameters = parameters
        self._lock = lock
        self._logs = LeafLogs(folder, parameters)
        self._storage = STORAGES[leaves](
            folder / BITS_FILE, parameters.leaf_bits, parameters.hashes, parameters.leaf_kind
        )
        self._are_mapped = leaves == "mapped"
        self._syncing = threading.Lock()  # one sync at a time, and none after the end
        self._is_torn = False  # a call that marks was broken off: bits and logs may differ
        self.is_closed = False
        self._table, splits, self._strays, image = restore(folder, parameters, self._logs, self._storage)
        self._splitter = Splitter(folder, parameters, self._logs, self._table, splits, image)
        if full := self._table.full(np.array(self._table.tree.leaves)):
            self._begin_change()
            self._splitter.start(full)

    @classmethod
    def open(cls, folder: Path, parameters: DsbfParameters | None = None, leaves: str = "memory") -> Self:
        """Open a folder's filter, or make it if the folder is new or empty. Raises: as `UniqFilter.open`.

        `leaves` is where the bits are while it is open: "memory", or "mapped" in a file, for filters larger than memory.
        Cost after a clean end: 1 ms per MiB in memory, nothing mapped; of a small filter, and after any other end, 0.3 µs per
        element, read from the logs.
        """
        if leaves not in STORAGES:
            raise BadParameters(f"leaves is {leaves!r}; it must be one of {', '.join(STORAGES)}")
        folder.mkdir(parents=True, exist_ok=True)
        lock = FolderLock(folder)
        try:
            return cls(folder, parameters or DsbfParameters(), lock, leaves)
        except BaseException:
            lock.release()
            raise

    def __len__(self) -> int:
        """Distinct elements, as `DsbfStatistics.elements` counts them."""
        return self._table.elements

    @property
    def memory_bytes(self) -> int:
        """Bytes of leaves in memory."""
        return 0 if self._are_mapped else self._table.leaves.memory_bytes

    @property
    def mapped_bytes(self) -> int:
        """Bytes of leaves in a mapped file."""
        return self._table.leaves.memory_bytes if self._are_mapped else 0

    def unseen(self, keys: Sequence[bytes]) -> BoolArray:
        """True where a key was certainly never marked; a key never marked is False with a probability of at most f."""
        return self.unseen_elements(fingerprints(keys))

    def unseen_elements(self, elements: Fingerprints) -> BoolArray:
        """`unseen` of keys with these `fingerprints`."""
        self._require_open()
        return self._table.unseen(elements)

    def is_unseen(self, key: bytes) -> bool:
        """`unseen` of one key, several times as fast as a batch of one."""
        self._require_open()
        return self._table.is_unseen(fingerprint(key))

    def mark(self, keys: Sequence[bytes]) -> None:
        """Put the keys into the set, even those with all bits set: the next split would lose them.

        Moves fewer than 2048 + 32 n elements of splitting leaves. Raises: StoreFull (an OSError); it may be repeated.
        After another exception while a split begins, writing raises FilterClosed: open the filter again.
        """
        self.mark_elements(fingerprints(keys), first_of_each(keys))

    def mark_elements(self, elements: Fingerprints, is_first: BoolArray) -> None:
        """`mark` of keys with these `fingerprints` and `first_of_each`; do not change the array."""
        self._require_open()
        if not len(elements):
            return
        self._begin_change()
        try:
            self._splitter.take(elements, is_first)
        except BaseException:
            self._is_torn = True
            raise

    def mark_one(self, key: bytes) -> None:
        """`mark` of one key, several times as fast as a batch of one."""
        self._require_open()
        self._begin_change()
        try:
            self._splitter.take_one(fingerprint(key))
        except BaseException:
            self._is_torn = True
            raise

    def add(self, keys: Sequence[bytes]) -> BoolArray:
        """Test and set: True where a key was new; a key twice in one batch is new once. Raises as `mark`."""
        elements = fingerprints(keys)
        new = self.unseen_elements(elements)
        new &= first_of_each(keys)
        self.mark_elements(elements[new], np.ones(np.count_nonzero(new), dtype=np.bool_))
        return new

    def sync(self) -> None:
        """Make all that was marked before this call durable, and end splits with all elements moved. Raises: OSError."""
        with self._syncing:
            self._require_open()
            self._splitter.sync()

    def release_pages(self) -> None:
        """Give resident pages of mapped leaves back to the kernel; answers stay."""
        self._require_open()
        self._storage.release_pages()

    def rates(self) -> tuple[float, float]:
        """False-positive rate that a random key meets, and that of the worst leaf. Cost: O(leaves)."""
        return self._table.nodes.rates(self._parameters, self._table.tree)

    def leaf_loads(self) -> IntArray:
        """The number of elements of each leaf. Cost: O(leaves)."""
        self._require_open()
        loads: IntArray = self._table.nodes.counts[np.array(self._table.tree.leaves)]
        return loads

    def statistics(self) -> DsbfStatistics:
        """The filter at this moment. Cost: O(leaves)."""
        self._require_open()
        tree, (mean, worst) = self._table.tree, self.rates()
        return DsbfStatistics(
            elements=self._table.elements,
            leaves=len(tree.leaves),
            splits=tree.splits,
            splitting=self._splitter.splitting,
            height=tree.height,
            mean_rate=mean,
            worst_rate=worst,
            planned_rate=self._parameters.planned_rate,
            rate_bound=self._parameters.false_positive,
            memory_bytes=self._table.leaves.memory_bytes,
            log_bytes=self._logs.log_bytes,
            strays=self._strays,
        )

    def check(self) -> None:
        """Read all logs and compare. Cost: as opening from the logs. Raises: InvariantBroken, FormatMismatch, OSError."""
        with self._syncing:
            self._require_open()
            table, logs = self._table, self._logs
            logs.flush()
            logs.require(logs.lengths())
            for leaf in table.tree.leaves:
                logged = logs.read(leaf)
                check_node(table, leaf, logged, logs.path(leaf))
                check_loads(self._parameters, distinct(logged), logs.path(leaf))
            for split in self._splitter.splits:
                check_split(table, split, logs.read(split.node), logs.path(split.node))
            if table.elements != (total := int(table.nodes.counts.sum())):
                raise InvariantBroken(f"{self._folder}: {table.elements} elements, but its leaves count {total}")

    def close(self) -> None:
        """Sync, keep the bits for the next opening, and unlock the folder, even after an error. Raises: as `sync`."""
        with self._syncing:
            if self.is_closed:
                return
            try:
                self._splitter.sync()
                if self._splitter.image is None and not self._is_torn:  # else they are kept already, or may be wrong
                    self._keep_bits()
            finally:
                self.is_closed = True
                self._storage.close()
                self._lock.release()

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else f"{len(self)} elements in {len(self._table.tree.leaves)} leaves"
        return f"<Dsbf {state}>"

    def _require_open(self) -> None:
        if self.is_closed:
            raise FilterClosed(f"the filter {self._folder} is closed")

    def _begin_change(self) -> None:
        """Durably mark the kept bits as outdated before the first change. Raises: OSError."""
        if self._splitter.image is not None:
            self._splitter.write(None)

    def _keep_bits(self) -> None:
        """Write the bits, and then the manifest that declares them valid; not if the logs are read as quickly."""
        if self._table.elements < self._table.leaves.memory_bytes // _BYTES_READ_PER_ELEMENT:
            return
        stamp, nodes = os.urandom(STAMP_BYTES), self._table.nodes
        image = Image(
            stamp=stamp,
            size=self._table.leaves.memory_bytes,
            checksum=self._storage.save(stamp),
            slots=nodes.slots.tolist(),
            counts=nodes.counts.tolist(),
            loads=nodes.loads.tolist(),
            lengths=self._logs.lengths(),
        )
        self._splitter.write(image.record())
