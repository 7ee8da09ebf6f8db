"""The tree of a DSBF that crawlers share, and its manifest: which nodes split, and on which server each one is.

A node's path names it for ever: the leaves of the root are "0", "1" ..., the children of "3" are "3.0", "3.1" ... Its
server follows from the path, so that two crawlers that split the same leaf make the same children. Node numbers follow
the order of splits, and serve within one manifest only.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Self, TypeGuard

import numpy as np

from anabranch.dedup.batch import Fingerprints, IntArray
from anabranch.dedup.dsbf.bloom import DsbfParameters
from anabranch.dedup.dsbf.tree import DEEPEST, Tree
from anabranch.dedup.errors import FormatMismatch
from anabranch.dedup.folderformat import differences
from anabranch.dedup.leaves.remote import NO_LIMIT, Place

MAGIC = "anabranch shared dsbf"
VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What each server records of the filter when it is made."""

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
    """One revision of the tree. Trees do not change: a split makes a new one.

    A node without children is a leaf; one with children is in `splitting`, or an inner node.
    """

    def __init__(self, tree: Tree, splitting: frozenset[int], tokens: tuple[str, ...], revision: str) -> None:
        self.tree = tree
        self.splitting = splitting
        self.tokens = tokens  #: generation of each server's part
        self.revision = revision
        self._limits: list[int] = []
        self.places = [Place(0, "")] * len(tree)
        #: The nearest splitting node above each node, -1 if there is none.
        self.above: IntArray = np.full(len(tree), -1, dtype=np.int64)
        for node in np.flatnonzero(tree.fan_out).tolist():  # parents come before their children
            for number, child in enumerate(tree.children(node)):
                self.places[child] = self._place_below(node, number)
                self.above[child] = node if node in splitting else self.above[node]

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
        if not _are_texts(tokens):
            raise FormatMismatch(f"the manifest on {address} is damaged: tokens are needed")
        if not _are_of(splitting, np.flatnonzero(tree.fan_out).tolist()[1:]):
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
        wider = self.tree.split_all(leaves, fan_out)
        return SharedTree(wider, self.splitting | set(leaves), self.tokens, uuid.uuid4().hex)

    def with_ends(self, nodes: Iterable[int]) -> SharedTree:
        """The tree in which these splitting nodes are inner nodes."""
        return SharedTree(self.tree, self.splitting - set(nodes), self.tokens, uuid.uuid4().hex)

    def children(self, node: int, fan_out: int) -> list[Place]:
        """Where the children of a node are, or would be."""
        return [self._place_below(node, number) for number in range(fan_out)]

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

    def descend(self, elements: Fingerprints) -> IntArray:
        """The leaf of each element."""
        return self.tree.descend(elements)

    def limits(self, split_above: int) -> list[int]:
        """How many elements each node may count before it splits; a leaf that cannot split takes all."""
        if not self._limits:
            self._limits = np.where(self.tree.level >= DEEPEST, NO_LIMIT, split_above).tolist()
        return self._limits

    def _place_below(self, node: int, number: int) -> Place:
        if not node:
            return Place(number % len(self.tokens), str(number))
        server, path = self.places[node]
        return Place((server + 1 + number) % len(self.tokens), f"{path}.{number}")


def _are_of(found: object, nodes: Sequence[int]) -> TypeGuard[list[int]]:
    return isinstance(found, list) and all(node in nodes for node in found)


def _are_texts(found: object) -> TypeGuard[list[str]]:
    return isinstance(found, list) and bool(found) and all(isinstance(text, str) for text in found)


def _object(text: str, address: str) -> dict[str, object]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise FormatMismatch(f"the filter on {address} is damaged: a record is not JSON") from error
    if not isinstance(found, dict):
        raise FormatMismatch(f"the filter on {address} is damaged: a record is not a JSON object")
    return found
