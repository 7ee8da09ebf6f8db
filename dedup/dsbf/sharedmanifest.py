"""Where crawlers agree on one tree: the manifest on the first server, and the parts that make each server one of a filter.

A filter is made in this order: a part on the first server, parts on the others, the leaves, the manifest; then the parts
are sealed. Whoever opens it does what is missing of that, so that a crash in between stops nobody, and two may do it
at once. A sealed part without a manifest, or a manifest whose parts are missing or others, means lost data.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING

from anabranch.dedup.dsbf.bloom import DsbfParameters
from anabranch.dedup.dsbf.sharedtree import Part, SharedTree
from anabranch.dedup.errors import FormatMismatch, StoreUnavailable
from anabranch.dedup.leaves.redis_scripts import Call
from anabranch.dedup.leaves.remote import Place, RemoteLeaves

if TYPE_CHECKING:
    from anabranch.dedup.leaves.redis import RedisServers


class SharedManifest:
    """The manifest of one filter, as one crawler sees it. `tree` is the newest revision that it knows."""

    def __init__(self, servers: RedisServers, name: str, parameters: DsbfParameters) -> None:
        """Open the filter of this name, or make it if no server has anything of it. Errors as `SharedDsbf.open`."""
        self._servers = servers
        self._name = name
        self._address = servers.addresses[0]
        self._parts = [
            Part(parameters=parameters, server=server, servers=len(servers)) for server in range(len(servers))
        ]
        self.tree: SharedTree = self._open() or self._found(parameters)
        self.leaves = RemoteLeaves(servers, name, self.tree.tokens, parameters.leaf_bits, parameters.hashes)
        self._seal()

    def reload(self) -> bool:
        """Take over the newest tree; False if it is the one that is known. Raises: StoreUnavailable if it is lost."""
        newest = self._load(self.tree.tokens[0], self.tree.revision)
        if newest is None:
            raise self._lost("its manifest")
        is_newer = newest.revision != self.tree.revision
        if newest.tokens != self.tree.tokens:
            raise self._lost("all of it, and was made anew")
        self.tree = newest
        return is_newer

    def replace(self, tree: SharedTree) -> bool:
        """Put this tree in the place of the known one; False if another crawler was faster, whose tree is then known."""
        keys = (self._key("part"), self._key("manifest"))
        arguments = (self.tree.tokens[0], self.tree.revision, tree.revision, tree.body())
        (reply,) = self._servers.call([Call(0, "swap", keys, arguments)])
        if reply == b"L":
            raise self._lost("its part")
        if reply == b"O":
            self.tree = tree
            return True
        self.reload()
        return False

    def _open(self) -> SharedTree | None:
        """The tree of the filter; None if it is not yet there, or not completely."""
        tree = self._load("", "")
        _, is_sealed = self._read_parts()
        if tree and len(tree.tokens) != len(self._servers):
            raise FormatMismatch(f"the manifest on {self._address} is damaged: one token for each server is needed")
        if tree is None and is_sealed:
            tree = self._load("", "")  # it may have been made between the two looks
            if tree is None:
                raise self._lost("its manifest")
        return tree

    def _load(self, token: str, revision: str) -> SharedTree | None:
        """The manifest's tree; the known one if the revision is still that; None if there is no manifest."""
        (reply,) = self._servers.call(
            [Call(0, "load", (self._key("part"), self._key("manifest")), (token, revision))],
        )
        assert isinstance(reply, bytes)
        if reply == b"S":
            return self.tree
        if reply == b"L":
            raise self._lost("its part")
        if reply == b"N":
            return None
        line, _, body = reply[1:].decode(errors="replace").partition("\n")
        return SharedTree.parsed(line, body, self._address)

    def _read_parts(self) -> tuple[list[str], bool]:
        """The servers' tokens, "" where there is no part, and whether one is sealed. Raises: FormatMismatch."""
        calls = [Call(server, "part", (self._key("part"),), ()) for server in range(len(self._servers))]
        read = [self._checked(server, reply) for server, reply in enumerate(self._servers.call(calls))]
        return [token for token, _ in read], any(is_sealed for _, is_sealed in read)

    def _checked(self, server: int, reply: object) -> tuple[str, bool]:
        assert isinstance(reply, list)
        record, token, sealed = reply
        if record is None or token is None:
            return "", False
        self._parts[server].require(record.decode(errors="replace"), self._servers.addresses[server])
        return token.decode(), sealed is not None

    def _found(self, parameters: DsbfParameters) -> SharedTree:
        """Make what is missing of a new filter, up to its manifest."""
        servers = range(len(self._servers))
        tokens = [*self._found_parts(servers[:1]), *self._found_parts(servers[1:])]
        tree = SharedTree.rooted(parameters.first_leaves, tokens)
        leaves = RemoteLeaves(self._servers, self._name, tokens, parameters.leaf_bits, parameters.hashes)
        leaves.create(tree.places[1:])
        keys = (self._key("part"), self._key("manifest"))
        (reply,) = self._servers.call([Call(0, "swap", keys, (tokens[0], "", tree.revision, tree.body()))])
        if reply == b"L":
            raise self._lost("its part")
        found = tree if reply == b"O" else self._load(tokens[0], "")
        if found is None:
            raise self._lost("its manifest")
        return found

    def _found_parts(self, servers: Sequence[int]) -> list[str]:
        """Make these servers' parts, as far as there are none, and answer their tokens."""
        keys = (self._key("part"),)
        calls = [Call(server, "found", keys, (self._parts[server].text(), uuid.uuid4().hex)) for server in servers]
        replies = self._servers.call(calls)
        tokens = [self._checked(server, reply)[0] for server, reply in zip(servers, replies, strict=True)]
        for server, token in zip(servers, tokens, strict=True):
            if not token:
                raise FormatMismatch(f"{self._key('part')} on {self._servers.addresses[server]} is another program's")
        return tokens

    def _seal(self) -> None:
        calls = [Call(server, "seal", (self._key("part"),), (token,)) for server, token in enumerate(self.tree.tokens)]
        for server, reply in enumerate(self._servers.call(calls)):
            if reply != b"O":
                raise self.leaves.lost(Place(server, "all"))

    def _key(self, name: str) -> str:
        return f"{self._name}:{name}"

    def _lost(self, what: str) -> StoreUnavailable:
        return StoreUnavailable(
            f"the Redis server {self._address} has lost {what} of the filter {self._name}: it was flushed or restarted "
            f"without its data. Restore its data, or remove all keys {self._name}:* from all servers of the filter to "
            "begin with an empty one, and open the filter again"
        )
