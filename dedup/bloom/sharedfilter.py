"""A DSBF with its leaves in Redis, shared by any number of crawlers, which do not talk to each other.

The leaves are spread over the servers; the tree is a manifest on the first one (`sharedtree.py`), of which each crawler
keeps a copy. A batch of keys descends that copy and is sent as one script call per leaf, to all servers at once
(`sharedleaves.py`, `redis.py`). A leaf that has split since then answers so; then the newest tree is loaded and the rest is
asked again. `sharedsplitting.py` splits full leaves.

Two crawlers never both find one key new: the bits of a leaf are tested and set in one script. A splitting leaf is
frozen before any crawler learns of its children; `add` asks it first, and then sends only the keys that it does not know
to the child, where the order of the scripts decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from anabranch.dedup.bloom.formulas import DsbfParameters, false_positive_rates
from anabranch.dedup.bloom.sharedleaves import KNOWN, MISSING, MOVED, NEW, Call, LeafAddress, LeafState, Servers
from anabranch.dedup.bloom.sharedsplitting import LEASE_MS, SharedSplitter
from anabranch.dedup.bloom.sharedtree import SharedManifest
from anabranch.dedup.errors import BadParameters, InvariantBroken, StoreUnavailable
from anabranch.dedup.files import Closing
from anabranch.dedup.keys import (
    FINGERPRINT_BYTES,
    BoolArray,
    ByteArray,
    Fingerprints,
    IntArray,
    distinct,
    fingerprints,
    first_of_each,
)
from anabranch.extras import install_command

#: A batch goes in by steps of this part of `split_above` per leaf: more than a leaf holds must not arrive there at once,
#: since what it cannot take is asked again below it, and each query may give a false answer.
_STEPS_PER_LEAF = 40
_SMALLEST_STEP = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedStatistics:
    """A shared filter at one moment; while others add, its numbers are taken at slightly different times."""

    elements: int  #: distinct elements, less those that were falsely taken for known
    leaves: int  #: leaves of the tree
    splitting: int  #: leaves that are being split
    splits: int  #: splits so far, those under way included
    height: int  #: levels of LocHash on the longest way down
    mean_rate: float  #: probability that a key never marked is taken for known
    worst_rate: float  #: the same in the worst leaf
    bits_bytes: int  #: bit arrays on all servers
    log_bytes: int  #: logs on all servers


class SharedDsbf(Closing):
    """The filter of one name on some Redis servers, as seen by one crawler. Use `SharedDsbf.open`. For one thread.

    An `add` that fails with StoreUnavailable may have been done in part; repeated, it calls its own keys known. Where
    no key may be lost, ask `unseen`, save the new keys, and then `mark` them: both may be repeated. No Redis Cluster.
    """

    def __init__(self, servers: Servers, name: str, parameters: DsbfParameters, lease_ms: int) -> None:
        self.name = name
        self._servers = servers
        self._parameters = parameters
        self._manifest = SharedManifest(servers, name, parameters)
        self._leaves = self._manifest.leaves
        self._splitter = SharedSplitter(servers, self._manifest, parameters, lease_ms)
        self._step = max(_SMALLEST_STEP, parameters.split_above // _STEPS_PER_LEAF)

    @classmethod
    def open(
        cls,
        urls: Sequence[str],
        name: str = "anabranch",
        parameters: DsbfParameters | None = None,
        *,
        timeout_s: float = 5.0,
        on_sent: Callable[[list[int]], None] | None = None,
    ) -> Self:
        """Open the filter of this name on these servers, or make it if none of them has anything of it.

        All crawlers name the servers in the same order. `timeout_s` bounds each wait; `on_sent` is called with the
        servers asked. Raises: BadParameters, FormatMismatch (also for other servers or foreign keys), StoreUnavailable,
        StoreFull.
        """
        if parameters is not None and parameters.is_blocked:
            raise BadParameters("leaf_kind is 'blocked'; leaves in Redis are classic")
        try:
            from anabranch.dedup.bloom.redis import RedisServers  # noqa: PLC0415  # redis-py is an extra
        except ModuleNotFoundError as error:
            if error.name != "redis":
                raise
            message = f"a filter in Redis needs the package redis: {install_command('redis')}"
            raise BadParameters(message) from error
        servers = RedisServers(urls, timeout_s, on_sent)
        try:
            return cls(servers, name, parameters or DsbfParameters(), LEASE_MS)
        except BaseException:
            servers.close()
            raise

    @property
    def generation(self) -> str:
        """A random text: a filter that was removed and made anew under the same name has another one."""
        return self._manifest.tree.tokens[0]

    def unseen(self, keys: Sequence[bytes]) -> BoolArray:
        """True where a key was certainly never put in; a key never put in is False with a probability of at most f.

        Cost: one round trip, more only if the tree is old. Raises: StoreUnavailable, StoreFull.
        """
        elements = fingerprints(keys)
        new: BoolArray = np.ones(len(elements), dtype=np.bool_)
        waiting: IntArray = np.arange(len(elements))
        while len(waiting):
            part = elements[waiting]
            leaves = self._manifest.tree.tree.descend(part)
            rows, above = self._manifest.tree.splitting_above(leaves)
            row, node = np.concatenate([np.arange(len(part)), rows]), np.concatenate([leaves, above])
            answers = self._test(node, part[row])
            new[waiting[row[answers == KNOWN]]] = False
            is_open = np.isin(answers, [MOVED, MISSING]) & new[waiting[row]]
            self._splitter.settle(node[is_open], answers[is_open])
            waiting = waiting[np.unique(row[is_open])]
        return new

    def add(self, keys: Sequence[bytes]) -> BoolArray:
        """Test and set: True where a key was new, for exactly one of all crawlers; a key twice in a batch is new once.

        Cost: one round trip, two for keys of a splitting leaf. Raises: StoreUnavailable, StoreFull: see the class.
        """
        return self._insert(keys, logged="new")

    def mark(self, keys: Sequence[bytes]) -> None:
        """Put the keys into the set, whatever their bits say: all are logged. It may be repeated. Raises as `add`."""
        self._insert(keys, logged="all")

    def keep(self, crawl: str, name: str, number: int, *, alone: bool = False) -> None:
        """Keep a number of a crawl by this name beside the filter, before what is marked next. One round trip.

        `alone`: the crawl's other numbers are forgotten. Raises: StoreUnavailable, also if the first server has lost the
        filter; StoreFull.
        """
        keys = (f"{self.name}:part", f"{self.name}:job:{crawl}")
        (reply,) = self._servers.call(
            [Call(0, "keep", keys, (self.generation, name, number, "alone" if alone else ""))]
        )
        if reply != b"O":
            raise StoreUnavailable(f"the Redis server {self._servers.addresses[0]} has lost the filter {self.name}")

    def kept(self, crawl: str) -> dict[str, int]:
        """The numbers that a crawl keeps, by name. Raises: as `keep`."""
        (reply,) = self._servers.call([Call(0, "kept", (f"{self.name}:job:{crawl}",), ())])
        assert isinstance(reply, list)
        texts = [bytes(one).decode(errors="replace") for one in reply]
        return {name: int(number) for name, number in zip(texts[::2], texts[1::2], strict=True)}

    def statistics(self) -> SharedStatistics:
        """The filter at this moment. Cost: one round trip for all leaves. Raises: StoreUnavailable."""
        self._manifest.reload()
        tree, given = self._manifest.tree, self._parameters
        nodes = sorted([*tree.tree.leaves, *tree.splitting])
        states = dict(zip(nodes, self._leaves.states([tree.places[node] for node in nodes]), strict=True))
        counts = np.array([states[node].counted if node in states else 0 for node in range(len(tree.places))])
        passed = 1 - false_positive_rates(given.leaf_bits, given.hashes, counts)
        for node in range(1, len(passed)):  # parents come before their children
            if tree.above[node] >= 0:
                passed[node] *= passed[tree.above[node]]
        is_leaf = tree.tree.fan_out == 0
        rates = 1 - passed[is_leaf]
        return SharedStatistics(
            elements=int(counts.sum()) - sum(states[node].counted_below for node in tree.splitting),
            leaves=len(tree.tree.leaves),
            splitting=len(tree.splitting),
            splits=tree.tree.splits,
            height=tree.tree.height,
            mean_rate=float(rates @ tree.tree.share[is_leaf]),
            worst_rate=float(rates.max()),
            bits_bytes=len(states) * given.leaf_bits // 8,
            log_bytes=sum(state.logged for state in states.values()) * FINGERPRINT_BYTES,
        )

    def check(self) -> None:
        """Read all leaves over the network and compare bits and logs. Raises: InvariantBroken, StoreUnavailable."""
        self._manifest.reload()
        tree = self._manifest.tree
        for node in sorted([*tree.tree.leaves, *tree.splitting]):
            place = tree.places[node]
            if found := self._leaves.read(place):
                self._check_leaf(place, *found)

    def close(self) -> None:
        """Disconnect from the servers, which keep the filter; a second call does nothing."""
        self._servers.close()

    def __repr__(self) -> str:
        tree = self._manifest.tree
        state = f"{len(tree.tree.leaves)} leaves on {len(self._servers)} servers, {len(tree.splitting)} splitting"
        return f"<SharedDsbf {self.name} {'closed' if self._servers.is_closed else state}>"

    def _insert(self, keys: Sequence[bytes], logged: str) -> BoolArray:
        elements = fingerprints(keys)
        new: BoolArray = np.zeros(len(elements), dtype=np.bool_)
        rest = np.flatnonzero(first_of_each(keys))
        while len(rest):
            step = self._step * len(self._manifest.tree.tree.leaves)
            waiting, rest = rest[:step], rest[step:]
            self._splitter.move(len(waiting))  # first, so that an error in it leaves nothing of the step half done
            while len(waiting):
                waiting = self._insert_some(elements, waiting, new, logged)
        return new

    def _insert_some(self, elements: Fingerprints, waiting: IntArray, new: BoolArray, logged: str) -> IntArray:
        """Put in what the known tree allows, set `new`, and return the indices to try again."""
        part = elements[waiting]
        tree = self._manifest.tree
        nodes = tree.tree.descend(part)
        answers = np.full(len(part), NEW, dtype=np.uint8)
        rows, above = tree.splitting_above(nodes)
        if len(rows) and logged == "new":
            asked = self._test(above, part[rows])
            for code in (MOVED, MISSING, KNOWN):  # to be known in one of them is enough
                answers[rows[asked == code]] = code
            nodes[rows[asked != NEW]] = above[asked != NEW]
        left = answers == NEW
        answers[left] = self._leaves.put(
            tree.places, nodes[left], part[left], tree.limits(self._parameters.split_above), logged
        )
        new[waiting[answers == NEW]] = True
        again = (answers != NEW) & (answers != KNOWN)
        self._splitter.settle(nodes[again], answers[again])
        left_over: IntArray = waiting[again]
        return left_over

    def _test(self, nodes: IntArray, elements: Fingerprints) -> ByteArray:
        return self._leaves.test(self._manifest.tree.places, nodes, elements, self._manifest.tree.splitting)

    def _check_leaf(self, place: LeafAddress, state: LeafState, bits: ByteArray, log: Fingerprints) -> None:
        name = f"leaf {place.path} on {self._servers.addresses[place.server]}"
        if state.logged != len(log) or state.moved > state.logged:
            raise InvariantBroken(f"{name} counts {state.logged} logged elements, its log has {len(log)}")
        elements = distinct(log)
        if state.counted > len(elements):
            raise InvariantBroken(f"{name} counts {state.counted} elements, its log has {len(elements)}")
        if not np.array_equal(bits, self._leaves.image(elements)):
            raise InvariantBroken(f"{name}: its bits are not those of its log")
        tree = self._manifest.tree
        if not all(tree.tree.leads_through(node, elements).all() for node in tree.nodes_at([place.path])):
            raise InvariantBroken(f"{name} holds elements of another leaf")
        if state.stage not in {"open", "frozen"}:
            raise StoreUnavailable(f"{name} is in the unknown state {state.stage}")
