"""Leaves that live on servers: steps on many of them at once, and what they answer.

`RemoteLeaves` is what the shared tree asks: leaves are named by paths, and an answer may be that the caller's tree is
old. `RedisLeaves` serves the `Leaves` protocol with it.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import numpy as np

from anabranch.dedup.batch import BoolArray, ByteArray, Fingerprints, IntArray
from anabranch.dedup.errors import FormatMismatch, StoreUnavailable
from anabranch.dedup.fingerprint import FINGERPRINT_BYTES, from_bytes, map_hashes, to_bytes
from anabranch.dedup.leaves.redis_scripts import Call

if TYPE_CHECKING:
    from anabranch.dedup.leaves.redis import RedisServers

#: Answers for elements: all bits set; a bit was clear; a bit is clear, and the leaf is full.
KNOWN, NEW, NOT_TAKEN = b"012"
#: Answers of leaves, which stand for each of their elements: the caller's tree is old; the leaf is not there.
MOVED, MISSING = b"MN"
#: No leaf is ever so full.
NO_LIMIT: Final = 1 << 52

_AT_ONCE = 2048  # elements of one script call, which takes some 20 ms; a server answers nobody else meanwhile


class Place(NamedTuple):
    """Where a leaf is."""

    server: int
    path: str  #: its name, never used for another leaf


class Step(NamedTuple):
    """What the mover of a splitting leaf has to move next."""

    turn: int  #: how often moving began anew
    before: int  #: bytes of the log that were moved before
    elements: Fingerprints
    is_gone: bool = False  #: the leaf is gone: nothing is left to be moved

    @property
    def stop(self) -> int:
        """Bytes that are moved after this step."""
        return self.before + len(self.elements) * FINGERPRINT_BYTES


class LeafState(NamedTuple):
    """A leaf at one moment."""

    stage: str  #: open, frozen or gone
    counted: int  #: elements that found a bit clear
    logged: int  #: elements in the log
    moved: int  #: of these, elements that are in the children


class RemoteLeaves:
    """The leaves of one filter. `tokens` are the generations of its parts, one per server; see `redis_scripts.py`.

    All calls raise StoreUnavailable, StoreFull, FormatMismatch; StoreUnavailable also if a leaf is not of the token.
    """

    def __init__(self, servers: RedisServers, name: str, tokens: Sequence[str], leaf_bits: int, hashes: int) -> None:
        self.name = name
        self.tokens = list(tokens)
        self._servers = servers
        self._leaf_bits = leaf_bits
        self._hashes = hashes

    def test(
        self, places: Sequence[Place], of: IntArray, elements: Fingerprints, splitting: Collection[int] = ()
    ) -> ByteArray:
        """For each element KNOWN, NEW, MOVED or MISSING in the place with the number beside it.

        Places whose numbers are in `splitting` must be frozen, all others open.
        """
        return self._ask("test", places, of, elements, lambda n: ("parent" if n in splitting else "leaf",))

    def put(
        self, places: Sequence[Place], of: IntArray, elements: Fingerprints, most: Sequence[int], logged: str
    ) -> ByteArray:
        """Test and set. For each element KNOWN, NEW, MOVED, MISSING or NOT_TAKEN.

        `most`: how many elements each place may count. `logged`: "new" elements, or "all" that are taken.
        """
        return self._ask("put", places, of, elements, lambda n: (most[n], logged))

    def create(self, places: Sequence[Place]) -> None:
        """Make leaves with clear bits. Those that are there stay as they are, in whatever stage."""
        part = self.key("part")
        calls = [
            self._call("create", place, (self._leaf_bits // 8,), "leaf", "bits", "log")._replace(
                keys=(part, *self._keys(place, "leaf", "bits", "log"))
            )
            for place in places
        ]
        self._run(calls, places)

    def freeze(self, places: Sequence[Place], count: int) -> list[bool]:
        """Close leaves that count so many elements for good; False where a leaf counts less and stays open."""
        replies = self._run([self._call("freeze", place, (count,), "leaf") for place in places], places, "FGO")
        return [reply[:1] != b"O" for reply in replies]

    def fetch(self, places: Sequence[Place], mover: str, lease_ms: int, most: int, *, steal: bool) -> list[Step | None]:
        """Take or renew the lease on splitting leaves and read what is to be moved next, at most `most` elements.

        Where another mover has the lease, and it is not to be stolen: None. Where the leaf is gone: a step that says so.
        """
        arguments = (mover, lease_ms, most * FINGERPRINT_BYTES, "steal" if steal else "")
        calls = [self._call("fetch", place, arguments, "leaf", "log", "mover") for place in places]
        return [_step(reply) for reply in self._run(calls, places, "OBG")]

    def advance(self, places: Sequence[Place], steps: Sequence[Step]) -> list[bool]:
        """Record that steps are done; True where that was the last one. Those that another mover did count as his."""
        calls = [
            self._call("advance", place, (step.turn, step.before, step.stop), "leaf")
            for place, step in zip(places, steps, strict=True)
        ]
        return [reply in {b"D", b"G"} for reply in self._run(calls, places, "ODBG")]

    def rewind(self, places: Sequence[Place]) -> list[bool]:
        """Let all elements of splitting leaves be moved anew; False where the leaf is gone."""
        calls = [self._call("rewind", place, (), "leaf") for place in places]
        return [reply == b"O" for reply in self._run(calls, places, "OG")]

    def drop(self, places: Sequence[Place]) -> None:
        """Remove bits and logs of leaves that the manifest calls inner nodes."""
        self._run([self._call("drop", place, (), "leaf", "bits", "log", "mover") for place in places], places)

    def states(self, places: Sequence[Place]) -> list[LeafState]:
        """Each leaf at this moment."""
        replies = self._run([self._call("state", place, (), "leaf") for place in places], places)
        return [_state(reply[1:]) for reply in replies]

    def read(self, place: Place) -> tuple[LeafState, ByteArray, Fingerprints] | None:
        """A leaf's state, bits and log, of one moment; None if it is gone."""
        (reply,) = self._run([self._call("read", place, (), "leaf", "bits", "log")], [place], "OM")
        if reply == b"M":
            return None
        line, _, data = reply[1:].partition(b"\n")
        size = self._leaf_bits // 8
        return _state(line), np.frombuffer(data[:size], dtype=np.uint8), from_bytes(data[size:])

    def image(self, elements: Fingerprints) -> ByteArray:
        """The bits of a leaf that holds exactly these elements."""
        first, second = map_hashes(elements)
        bits = np.zeros(self._leaf_bits, dtype=np.bool_)
        for step in range(self._hashes):
            bits[(first + second * step) & (self._leaf_bits - 1)] = True
        return np.packbits(bits)

    def key(self, *names: str) -> str:
        """The name of a key of the filter."""
        return ":".join((self.name, *names))

    def lost(self, place: Place) -> StoreUnavailable:
        """The error that says that a server has not what the filter put there."""
        return StoreUnavailable(
            f"the Redis server {self._servers.addresses[place.server]} has lost its part of the filter {self.name} "
            f"(leaf {place.path}): it was flushed or restarted without its data, or the filter was made anew. Restore "
            f"its data, or remove all keys {self.name}:* from all servers of the filter to begin with an empty one"
        )

    def _ask(
        self,
        script: str,
        places: Sequence[Place],
        of: IntArray,
        elements: Fingerprints,
        arguments: Callable[[int], tuple[str | int, ...]],
    ) -> ByteArray:
        order = np.argsort(of, kind="stable")
        data, answers = to_bytes(elements[order]), np.zeros(len(of), dtype=np.uint8)
        parts = list(_parts(of[order]))
        names = ("leaf", "bits", "log") if script == "put" else ("leaf", "bits")
        calls, asked = [], []
        for start, stop in parts:
            number = int(of[order[start]])
            mine = data[start * FINGERPRINT_BYTES : stop * FINGERPRINT_BYTES]
            given = (self._leaf_bits, self._hashes, *arguments(number), mine)
            calls.append(self._call(script, places[number], given, *names))
            asked.append(places[number])
        for (start, stop), reply in zip(parts, self._run(calls, asked, "OMN"), strict=True):
            is_answered = reply.startswith(b"O")
            answers[order[start:stop]] = np.frombuffer(reply[1:], dtype=np.uint8) if is_answered else reply[0]
        return answers

    def _call(self, script: str, place: Place, arguments: tuple[str | bytes | int, ...], *names: str) -> Call:
        keys = self._keys(place, *names)
        return Call(place.server, script, keys, (self.tokens[place.server], *arguments))

    def _keys(self, place: Place, *names: str) -> tuple[str, ...]:
        leaf = self.key("leaf", place.path)
        return tuple(leaf if name == "leaf" else f"{leaf}:{name}" for name in names)

    def _run(self, calls: Sequence[Call], places: Sequence[Place], expected: str = "O") -> list[bytes]:
        replies = []
        for place, reply in zip(places, self._servers.call(calls), strict=True):
            assert isinstance(reply, bytes)
            if chr(reply[0]) not in expected:
                raise self.lost(place)
            replies.append(reply)
        return replies


class RedisLeaves:
    """Leaves of one process on servers, as the `Leaves` protocol has them; slots are spread over the servers in turn."""

    def __init__(self, leaves: RemoteLeaves) -> None:
        self._leaves = leaves
        self._name = uuid.uuid4().hex  # so that no slot is ever another process's
        self._places: list[Place] = []

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
        place = Place(slot % len(self._leaves.tokens), f"{self._name}-{slot}")
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

    def _used(self, slots: IntArray) -> tuple[list[Place], IntArray]:
        used, of = np.unique(slots, return_inverse=True)
        return [self._places[slot] for slot in used.tolist()], of

    def _is_new(self, slots: IntArray, answers: ByteArray) -> BoolArray:
        for slot in slots[(answers != KNOWN) & (answers != NEW)].tolist():
            raise self._leaves.lost(self._places[slot])
        new: BoolArray = answers == NEW
        return new


def _parts(ranked: IntArray) -> Iterator[tuple[int, int]]:
    """Where the runs of equal numbers begin and end, long runs in several parts."""
    bounds = [0, *(np.flatnonzero(np.diff(ranked)) + 1).tolist(), len(ranked)]
    for start, stop in pairwise(bounds):
        for first in range(start, stop, _AT_ONCE):
            yield first, min(stop, first + _AT_ONCE)


def _step(reply: bytes) -> Step | None:
    if reply == b"B":
        return None
    if reply == b"G":
        return Step(0, 0, from_bytes(b""), is_gone=True)
    line, _, data = reply[1:].partition(b"\n")
    turn, before = map(int, line.split())
    return Step(turn, before, from_bytes(data))


def _state(line: bytes) -> LeafState:
    stage, *numbers = line.split()
    count, logged, moved = map(int, numbers)
    return LeafState(stage.decode(), count, logged // FINGERPRINT_BYTES, moved // FINGERPRINT_BYTES)
