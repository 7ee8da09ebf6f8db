"""How crawlers split a leaf of a shared DSBF without stopping, without talking to each other, and exactly once.

Steps, each of which any crawler may take, or take over from one that died on the way:

1. *freeze*: the full leaf takes no elements any more; it still answers queries.
2. *create*: its children are made. Making them twice is harmless.
3. *manifest*, LEAF -> SPLITTING: replaced only if it is still the revision that was read. One crawler succeeds.
4. *move*: the crawler with the lease puts the leaf's log into the leaves below, a bounded part with each call that adds
   keys. The lease only saves work: a part that is moved twice changes nothing.
5. *manifest*, SPLITTING -> INNER, and then the leaf's bits and log are removed.

The truth is in the leaves: a frozen or gone leaf reports it to every caller, which loads the manifest anew, and takes the
missing steps if the manifest does not have it yet. One loss remains: elements moved to a server just before it crashed and
forgot its last second are reported as new again.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Sequence
from itertools import compress
from typing import Final

import numpy as np

from anabranch.dedup.bloom.formulas import MOVES_PER_KEY, DsbfParameters
from anabranch.dedup.bloom.sharedleaves import MISSING, MOVED, NO_LIMIT, NOT_TAKEN, LeafStep, Servers
from anabranch.dedup.bloom.sharedtree import SharedManifest
from anabranch.dedup.keys import ByteArray, IntArray

#: Elements that one call moves at most if it adds few keys; otherwise MOVES_PER_KEY for each key.
MOVE_AT_LEAST: Final = 2048
#: A mover that takes no step for so long has lost the lease.
LEASE_MS: Final = 2000
_SMALL_LEAF = 64  # elements: small leaves are moved several at a time
_AT_ONCE = 4096  # elements of one step when a split must end now


class SharedSplitter:
    """One crawler's part in the splits of a filter. All calls raise what the servers raise."""

    def __init__(self, servers: Servers, manifest: SharedManifest, parameters: DsbfParameters, lease_ms: int) -> None:
        self._servers = servers
        self._manifest = manifest
        self._leaves = manifest.leaves
        self._parameters = parameters
        self._lease_ms = lease_ms
        self._mover = uuid.uuid4().hex
        self._busy_until: dict[str, float] = {}  # paths that others move; monotonic seconds

    def move(self, keys: int) -> None:
        """Move elements of splitting leaves on, at most max(MOVE_AT_LEAST, MOVES_PER_KEY * keys)."""
        now, tree = time.monotonic(), self._manifest.tree
        mine = [node for node in sorted(tree.splitting) if self._busy_until.get(tree.places[node].path, 0) <= now]
        if not mine:
            return
        budget = max(MOVE_AT_LEAST, MOVES_PER_KEY * keys)
        size = max(_SMALL_LEAF, self._parameters.split_above)
        nodes = mine[: max(1, budget // size)]
        self._step(nodes, max(1, budget // len(nodes)), steal=False)

    def settle(self, nodes: IntArray, answers: ByteArray) -> None:
        """Do what the answers of leaves and splitting nodes require, so that the same question may be asked again."""
        if not len(nodes):
            return
        troubled = {code: np.unique(nodes[answers == code]).tolist() for code in (MOVED, MISSING, NOT_TAKEN)}
        if troubled[MISSING]:
            self._make_again(troubled[MISSING])
        elif troubled[MOVED]:
            self._catch_up(troubled[MOVED])
        else:
            self._make_room(troubled[NOT_TAKEN])

    def split(self, leaves: Sequence[int]) -> None:
        """Steps 1-3 for these leaves of the known tree. One that is not full any more stays as it is."""
        if not leaves:
            return
        tree, fan_out = self._manifest.tree, self._parameters.split_fan_out
        places = [tree.places[leaf] for leaf in leaves]
        is_frozen = self._leaves.freeze(places, self._parameters.split_above)
        frozen = [leaf for leaf, is_so in zip(leaves, is_frozen, strict=True) if is_so]
        if frozen:
            self._leaves.create([place for leaf in frozen for place in tree.children(leaf, fan_out)])
            self._manifest.replace(tree.with_splits(frozen, fan_out))

    def end(self, nodes: Iterable[int]) -> None:
        """Step 5 for splitting nodes, after all their elements have been moved."""
        paths = {self._manifest.tree.places[node].path for node in nodes}
        # What was moved must be on the disk before the leaf is removed. Only servers from Redis 7.2 on report it; on
        # others a crash within a second or two of the removal may cost what was moved last.
        while paths and self._servers.sync(self._leaves.key("synced")):
            tree = self._manifest.tree
            known = tree.nodes_at(paths)
            left = tree.splitting.intersection(known)
            if not left or self._manifest.replace(tree.with_ends(left)):
                self._leaves.drop([tree.places[node] for node in known])
                return

    def _step(self, nodes: Sequence[int], most: int, *, steal: bool) -> None:
        """Move up to `most` elements of each node, unless another crawler moves it now or the tree changes."""
        tree = self._manifest.tree
        places = [tree.places[node] for node in nodes]
        steps = self._leaves.fetch(places, self._mover, self._lease_ms, most, steal=steal)
        now = time.monotonic()
        busy = [place.path for place, step in zip(places, steps, strict=True) if step is None]
        self._busy_until = {path: until for path, until in self._busy_until.items() if until > now}
        self._busy_until |= dict.fromkeys(busy, now + self._lease_ms / 1000)  # their leases cannot end before that
        met = {node: step for node, step in zip(nodes, steps, strict=True) if step}
        moving = {node: step for node, step in met.items() if not step.is_gone}
        if self._put(list(moving.values())):
            is_last = self._leaves.advance([tree.places[node] for node in moving], list(moving.values()))
            self.end([*(met.keys() - moving.keys()), *compress(moving, is_last)])

    def _put(self, steps: Sequence[LeafStep]) -> bool:
        """Insert the steps' elements below; False if the tree had to be repaired first."""
        if not steps:
            return True
        tree = self._manifest.tree
        elements = np.concatenate([step.elements for step in steps])
        leaves = tree.tree.descend(elements)
        # All are logged, even if all their bits are set: without its log entry the next split would lose an element.
        answers = self._leaves.put(tree.places, leaves, elements, [NO_LIMIT] * len(tree.places), "all")
        has_moved = np.isin(answers, [MOVED, MISSING])
        self.settle(leaves[has_moved], answers[has_moved])
        return not has_moved.any()

    def _make_room(self, full: Sequence[int]) -> None:
        """Split full leaves; where a split above is under way, end it first, so that no query meets more than two."""
        tree = self._manifest.tree
        above = {int(tree.above[leaf]) for leaf in full} - {-1}
        if above:
            self._step(sorted(above), _AT_ONCE, steal=True)
        else:
            self.split(full)

    def _catch_up(self, moved: Sequence[int]) -> None:
        """Nodes report that the tree is old: load the newest, or take the steps that no crawler took."""
        before = self._manifest.tree
        if self._manifest.reload():
            return
        self.split([node for node in moved if not before.tree.fan_out[node]])
        ended = [before.places[node].path for node in moved if before.tree.fan_out[node]]
        self.end(self._manifest.tree.nodes_at(ended))

    def _make_again(self, missing: Sequence[int]) -> None:
        """Leaves are missing, since their server crashed soon after it made them. The splitting leaf above has their elements.

        `rewind` comes first: steps that began before it do not count, and after it none succeeds until the leaves exist.
        """
        if self._manifest.reload():
            return
        tree = self._manifest.tree
        above = [int(tree.tree.parent[node]) for node in missing]
        for node, parent in zip(missing, above, strict=True):
            if parent not in tree.splitting:
                raise self._leaves.lost(tree.places[node])
        parents = sorted(set(above))
        if all(self._leaves.rewind([tree.places[parent] for parent in parents])):
            self._leaves.create([tree.places[node] for node in missing])
        else:
            self._catch_up(parents)
