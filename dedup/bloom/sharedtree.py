"""The tree of a DSBF that crawlers share, and where they agree on it: a manifest on the first Redis server.

A node's path names it for ever: the leaves of the root are "0", "1" ..., the children of "3" are "3.0", "3.1" ... Its
server follows from the path, so crawlers that split the same leaf make the same children. Node numbers follow the order
of splits, and hold within one manifest only.

A filter is made in this order: a part on the first server, parts on the others, the leaves, the manifest; then the parts
are sealed. Every crawler that opens it does the missing steps. Sealed parts and manifest that do not fit mean lost data.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Self

import numpy as np

from anabranch.dedup.bloom.formulas import DsbfParameters
from anabranch.dedup.bloom.sharedleaves import NO_LIMIT, Call, LeafAddress, RemoteLeaves, Servers
from anabranch.dedup.bloom.tree import DEEPEST, Tree
from anabranch.dedup.errors import FormatMismatch, StoreUnavailable
from anabranch.dedup.files.formatfile import differences
from anabranch.dedup.keys import IntArray

MAGIC = "anabranch shared dsbf"
VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The record that each server gets of a filter when the filter is made."""

    parameters: DsbfParameters
    server: int  #: which of the servers this is, from 0 on
    servers: int  #: how many there are

    def text(self) -> str:
        """The record as JSON."""
        record = {"magic": MAGIC, "version": VERSION, "parameters": asdict(self.parameters)}
        return json.dumps(record | {"server": self.server, "servers": self.servers})

    def require(self, text: str, address: str) -> None:
        """Raise `FormatMismatch`, naming each difference, unless the server's record is this one."""
        found = _object(text, address)
        if found.get("magic") != MAGIC or found.get("version") != VERSION:
            raise FormatMismatch(f"the part on {address} is not that of an {MAGIC} of version {VERSION}")
        there = found.get("parameters")
        if wrong := differences(there if isinstance(there, dict) else {}, asdict(self.parameters)):
            phrases = "; ".join(wrong).replace("in the folder", "on the server")
            raise FormatMismatch(f"the filter on {address} was made with other parameters: {phrases}")
        place = (found.get("server"), found.get("servers"))
        if place != (self.server, self.servers):
            raise FormatMismatch(
                f"{address} was made as server {place[0]} of {place[1]} (counted from 0) and is given as "
                f"{self.server} of {self.servers}: name the servers of the filter, all and in the same order"
            )


class SharedTree:
    """One immutable revision of the tree. Nodes with children are in `splitting`, or inner nodes; the others are leaves."""

    def __init__(self, tree: Tree, splitting: frozenset[int], tokens: tuple[str, ...], revision: str) -> None:
        self.tree = tree
        self.splitting = splitting
        self.tokens = tokens  #: generation of each server's part
        self.revision = revision
        self._limits: list[int] = []
        self.places = [LeafAddress(0, "")] * len(tree)
        #: The nearest splitting node above each node, or -1.
        self.above: IntArray = np.full(len(tree), -1, dtype=np.int64)
        for node in np.flatnonzero(tree.fan_out).tolist():  # parents come before their children
            below = tree.children(node)
            self.places[below.start : below.stop] = self.children(node, len(below))
            self.above[below.start : below.stop] = node if node in splitting else self.above[node]

    @classmethod
    def rooted(cls, leaves: int, tokens: Sequence[str]) -> Self:
        """The first tree of a filter."""
        return cls(Tree.rooted(leaves), frozenset(), tuple(tokens), uuid.uuid4().hex)

    @classmethod
    def parsed(cls, revision: str, body: str, address: str) -> Self:
        """A tree out of a manifest. Raises: FormatMismatch if it is damaged."""
        found = _object(body, address)
        try:
            tree = Tree.checked(found.get("fan_out"), found.get("first_child"))
        except FormatMismatch as error:
            raise FormatMismatch(f"the manifest on {address}: {error}") from error
        if found.get("magic") != MAGIC or found.get("version") != VERSION:
            raise FormatMismatch(f"the manifest on {address} is damaged: not that of an {MAGIC} of version {VERSION}")
        splitting, tokens = found.get("splitting"), found.get("tokens")
        if not isinstance(tokens, list) or not tokens or not all(isinstance(token, str) for token in tokens):
            raise FormatMismatch(f"the manifest on {address} is damaged: tokens are needed")
        inner = np.flatnonzero(tree.fan_out).tolist()[1:]
        if not isinstance(splitting, list) or not all(node in inner for node in splitting):
            raise FormatMismatch(
                f"the manifest on {address} is damaged: splitting nodes, all with children, are needed"
            )
        return cls(tree, frozenset(splitting), tuple(tokens), revision)

    def body(self) -> str:
        """The text of the manifest, JSON."""
        arrays = {"fan_out": self.tree.fan_out.tolist(), "first_child": self.tree.first_child.tolist()}
        nodes = {"splitting": sorted(self.splitting), "tokens": self.tokens}
        return json.dumps({"magic": MAGIC, "version": VERSION} | arrays | nodes)

    def with_splits(self, leaves: Sequence[int], fan_out: int) -> SharedTree:
        """The tree in which these leaves are splitting and have children."""
        wider = self.tree.split(leaves, fan_out)
        return SharedTree(wider, self.splitting | set(leaves), self.tokens, uuid.uuid4().hex)

    def with_ends(self, nodes: Iterable[int]) -> SharedTree:
        """The tree in which these splitting nodes are inner nodes."""
        return SharedTree(self.tree, self.splitting - set(nodes), self.tokens, uuid.uuid4().hex)

    def children(self, node: int, fan_out: int) -> list[LeafAddress]:
        """Return the addresses of a node's children; they follow from its path, so the children need not exist yet."""
        servers = len(self.tokens)
        if not node:
            return [LeafAddress(number % servers, str(number)) for number in range(fan_out)]
        server, path = self.places[node]
        return [LeafAddress((server + 1 + number) % servers, f"{path}.{number}") for number in range(fan_out)]

    def nodes_at(self, paths: Iterable[str]) -> list[int]:
        """The nodes with these paths, as far as the tree has them."""
        numbers = {place.path: node for node, place in enumerate(self.places)}
        return [numbers[path] for path in paths if path in numbers]

    def splitting_above(self, leaves: IntArray) -> tuple[IntArray, IntArray]:
        """Pairs: a place in the batch, and a splitting node on the way to its leaf; nested splits give several."""
        rows, nodes = [], []
        row: IntArray = np.arange(len(leaves))
        node = self.above[leaves]
        while len(row := row[node >= 0]):
            node = node[node >= 0]
            rows.append(row)
            nodes.append(node)
            node = self.above[node]
        none: IntArray = np.zeros(0, dtype=np.int64)
        return np.concatenate([none, *rows]), np.concatenate([none, *nodes])

    def limits(self, split_above: int) -> list[int]:
        """How many elements each node may count before it splits; a leaf that cannot split takes all."""
        if not self._limits:
            self._limits = np.where(self.tree.level >= DEEPEST, NO_LIMIT, split_above).tolist()
        return self._limits


def _object(text: str, address: str) -> dict[str, object]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise FormatMismatch(f"the filter on {address} is damaged: a record is not JSON") from error
    if not isinstance(found, dict):
        raise FormatMismatch(f"the filter on {address} is damaged: a record is not a JSON object")
    return found


class SharedManifest:
    """The manifest of one filter, as seen by one crawler. `tree` is the newest revision that it knows."""

    def __init__(self, servers: Servers, name: str, parameters: DsbfParameters) -> None:
        """Open the filter of this name, or make it if no server has anything of it. Raises: as `SharedDsbf.open`."""
        self._servers = servers
        self._name = name
        self._address = servers.addresses[0]
        self._part, self._both = (f"{name}:part",), (f"{name}:part", f"{name}:manifest")
        numbers = range(len(servers))
        self._parts = [Part(parameters=parameters, server=server, servers=len(servers)) for server in numbers]
        self.tree: SharedTree = self._open() or self._found(parameters)
        self.leaves = RemoteLeaves(servers, name, self.tree.tokens, parameters.leaf_bits, parameters.hashes)
        seals = [Call(server, "seal", self._part, (token,)) for server, token in enumerate(self.tree.tokens)]
        for server, reply in enumerate(servers.call(seals)):
            if reply != b"O":
                raise self.leaves.lost(LeafAddress(server, "all"))

    def reload(self) -> bool:
        """Take over the newest tree; False if it is the known one. Raises: StoreUnavailable if it is lost."""
        newest = self._load(self.tree.tokens[0], self.tree.revision)
        if newest is None:
            raise self._lost("its manifest")
        is_newer = newest.revision != self.tree.revision
        if newest.tokens != self.tree.tokens:
            raise self._lost("all of it, and was made anew")
        self.tree = newest
        return is_newer

    def replace(self, tree: SharedTree) -> bool:
        """Put this tree in the place of the known one; False if another crawler was faster; its tree is then the known one."""
        if self._swap(self.tree.revision, tree):
            self.tree = tree
            return True
        self.reload()
        return False

    def _swap(self, before: str, tree: SharedTree) -> bool:
        """Make this tree the manifest; False if the manifest's revision is not the one `before`, "" for none."""
        arguments = (tree.tokens[0], before, tree.revision, tree.body())
        (reply,) = self._servers.call([Call(0, "swap", self._both, arguments)])
        if reply == b"L":
            raise self._lost("its part")
        return reply == b"O"

    def _open(self) -> SharedTree | None:
        """The tree of the filter; None if the filter is new or half made."""
        tree = self._load("", "")
        replies = self._servers.call([Call(part.server, "part", self._part, ()) for part in self._parts])
        sealed = [self._checked(server, reply)[1] for server, reply in enumerate(replies)]
        if tree and len(tree.tokens) != len(self._servers):
            raise FormatMismatch(f"the manifest on {self._address} is damaged: one token for each server is needed")
        if tree is None and any(sealed):
            tree = self._load("", "")  # it may have been made between the two looks
            if tree is None:
                raise self._lost("its manifest")
        return tree

    def _load(self, token: str, revision: str) -> SharedTree | None:
        """The manifest's tree; the known one if the revision is still that; None if there is no manifest."""
        (reply,) = self._servers.call([Call(0, "load", self._both, (token, revision))])
        assert isinstance(reply, bytes)
        if reply == b"S":
            return self.tree
        if reply == b"L":
            raise self._lost("its part")
        if reply == b"N":
            return None
        line, _, body = reply[1:].decode(errors="replace").partition("\n")
        return SharedTree.parsed(line, body, self._address)

    def _checked(self, server: int, reply: object) -> tuple[str, bool]:
        """The token of the server's part, "" for no part, and whether it is sealed. Raises: FormatMismatch."""
        assert isinstance(reply, list)
        record, token, sealed = reply
        if record is None or token is None:
            return "", False
        self._parts[server].require(record.decode(errors="replace"), self._servers.addresses[server])
        return token.decode(), sealed is not None

    def _found(self, parameters: DsbfParameters) -> SharedTree:
        """Make the missing parts of a new filter, up to its manifest."""
        servers = range(len(self._servers))
        tokens = [*self._found_parts(servers[:1]), *self._found_parts(servers[1:])]
        tree = SharedTree.rooted(parameters.first_leaves, tokens)
        leaves = RemoteLeaves(self._servers, self._name, tokens, parameters.leaf_bits, parameters.hashes)
        leaves.create(tree.places[1:])
        found = tree if self._swap("", tree) else self._load(tokens[0], "")
        if found is None:
            raise self._lost("its manifest")
        return found

    def _found_parts(self, servers: Sequence[int]) -> list[str]:
        """Make these servers' parts, as far as there are none, and answer their tokens."""
        texts = [(self._parts[server].text(), uuid.uuid4().hex) for server in servers]
        calls = [Call(server, "found", self._part, text) for server, text in zip(servers, texts, strict=True)]
        tokens = []
        for server, reply in zip(servers, self._servers.call(calls), strict=True):
            token, _ = self._checked(server, reply)
            if not token:
                raise FormatMismatch(f"{self._part[0]} on {self._servers.addresses[server]} is another program's")
            tokens.append(token)
        return tokens

    def _lost(self, what: str) -> StoreUnavailable:
        return StoreUnavailable(
            f"the Redis server {self._address} has lost {what} of the filter {self._name}: it was flushed or restarted "
            f"without its data. Restore its data, or remove all keys {self._name}:* from all servers of the filter to "
            "begin with an empty one, and open the filter again"
        )
