"""Leaves on Redis servers behind the calls of `LeafBits`, so that one suite compares both."""

from __future__ import annotations

import json
import uuid
from typing import Self

import numpy as np

from anabranch.dedup.bloom.redis import RedisServers
from anabranch.dedup.bloom.sharedleaves import KNOWN, NEW, NO_LIMIT, Call, LeafAddress, RemoteLeaves
from anabranch.dedup.errors import FormatMismatch
from anabranch.dedup.keys import BoolArray, ByteArray, Fingerprints, IntArray


class RedisLeaves:
    """Leaves of one process on servers, as the `Leaves` protocol has them; slots are spread over the servers in turn."""

    def __init__(self, leaves: RemoteLeaves) -> None:
        self._leaves = leaves
        self._name = uuid.uuid4().hex  # so that no slot is ever another process's
        self._places: list[LeafAddress] = []

    @classmethod
    def open(cls, servers: RedisServers, name: str, leaf_bits: int, hashes: int) -> Self:
        """Leaves beside those of others of this name. Raises: FormatMismatch if they are of another shape."""
        record = json.dumps({"magic": "anabranch redis leaves", "leaf_bits": leaf_bits, "hashes": hashes})
        calls = [Call(server, "found", (f"{name}:part",), (record, uuid.uuid4().hex)) for server in range(len(servers))]
        tokens = []
        for address, reply in zip(servers.addresses, servers.call(calls), strict=True):
            match reply:
                case [bytes(found), bytes(token), _] if found.decode(errors="replace") == record:
                    tokens.append(token.decode())
                case _:
                    raise FormatMismatch(f"{name}:part on {address} is not that of leaves of {leaf_bits} bits")
        return cls(RemoteLeaves(servers, name, tokens, leaf_bits, hashes))

    def take(self) -> int:
        """A slot with all bits clear."""
        slot = len(self._places)
        place = LeafAddress(slot % len(self._leaves.tokens), f"{self._name}-{slot}")
        self._leaves.create([place])
        self._places.append(place)
        return slot

    def drop(self, slot: int) -> None:
        """Give a slot back; its bits are forgotten."""
        self._leaves.drop([self._places[slot]])

    def unseen(self, slots: IntArray, elements: Fingerprints) -> BoolArray:
        """True where the element, looked up in the slot beside it, has a clear bit."""
        places, of = self._used(slots)
        return self._is_new(slots, self._leaves.test(places, of, elements))

    def mark(self, slots: IntArray, elements: Fingerprints) -> BoolArray:
        """Set the elements' bits, each in the slot beside it; True where a bit was clear before the batch."""
        places, of = self._used(slots)
        new = self.unseen(slots, elements)
        self._is_new(slots, self._leaves.put(places, of, elements, [NO_LIMIT] * len(places), "all"))
        return new

    def _used(self, slots: IntArray) -> tuple[list[LeafAddress], IntArray]:
        used, of = np.unique(slots, return_inverse=True)
        return [self._places[slot] for slot in used.tolist()], of

    def _is_new(self, slots: IntArray, answers: ByteArray) -> BoolArray:
        for slot in slots[(answers != KNOWN) & (answers != NEW)].tolist():
            raise self._leaves.lost(self._places[slot])
        new: BoolArray = answers == NEW
        return new
