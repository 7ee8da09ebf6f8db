"""Leaves of a DSBF on Redis servers: the Lua scripts, each atomic on its server, and `RemoteLeaves`, which calls them.

Keys of a filter, all beginning with its name:

- `NAME:part` (hash, one per server): the format, which server of how many this is, and `token`, the generation: a random
  text made with the part. Each leaf of the server carries it, and each call names it. So a server that was flushed, or
  made anew, refuses every call.
- `NAME:manifest` (hash, first server): `revision`, a random text, and `body`, the tree as JSON (`sharedtree.py`).
- `NAME:job:ID` (hash, first server): what the crawl of this id keeps beside the filter, numbers by name.
- `NAME:leaf:PATH` (hash): `token`, `stage`, `count` (elements that found a bit clear), `logged` (bytes in the log), and
  while it splits `moved` (bytes of the log that are in the children) and `round` (how often `moved` began anew).
- `NAME:leaf:PATH:bits`, `...:log`, `...:mover`: the bits; 16 bytes per element; who moves the elements now (a lease).

A leaf's `stage` goes from open (answers queries and takes elements) to frozen (splits: answers queries only) to gone
(its children have its elements). The hash of a gone leaf stays, so that a crawler with an old tree learns of it.

A reply begins with one letter: O done, M moved (the caller's tree is old), N not there, L the server lost data that
it should have, F frozen, G gone, B busy (another crawler has the lease), D done to the end, S the same as before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from typing import Final, NamedTuple, Protocol

import numpy as np

from anabranch.dedup.bloom.bits import bits_of
from anabranch.dedup.errors import StoreUnavailable
from anabranch.dedup.keys import FINGERPRINT_BYTES, ByteArray, Fingerprints, IntArray, from_bytes, to_bytes


class Call(NamedTuple):
    """One run of a script on one server."""

    server: int
    script: str
    keys: tuple[str, ...]
    arguments: tuple[str | bytes | int, ...]


class Servers(Protocol):
    """The servers that run the scripts: `redis.RedisServers`, whose library is an extra."""

    addresses: list[str]  #: by server, without user and password

    def __len__(self) -> int: ...

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        ...

    def call(self, calls: Sequence[Call]) -> list[object]:
        """Run the scripts, in order on each server, and return the replies."""
        ...

    def sync(self, key: str) -> bool:
        """Have all servers sync all earlier writes; False if one is late."""
        ...

    def close(self) -> None:
        """Disconnect."""


#: Begins the scripts of one leaf, which is KEYS[1]; ARGV[1] is the token.
_LEAF = """
local token, stage, count, logged, moved, round =
  unpack(redis.call('HMGET', KEYS[1], 'token', 'stage', 'count', 'logged', 'moved', 'round'))
if not token then return 'N' end
if token ~= ARGV[1] then return 'L' end
"""

#: Begins the scripts that look at bits, after that.
_HASHES = """
local elements = ARGV[#ARGV]
local m, k = tonumber(ARGV[2]), tonumber(ARGV[3])
local call, bits, answers = redis.call, KEYS[2], {}
-- Of a 16-byte element: bits 0-39, and 40-79 made odd; MapHash as in dedup/keys.py.
local function hashes(start)
  local second, first = struct.unpack('>xxxxxxI5I5', elements, start)
  return first % m, (second % 2 == 0 and second + 1 or second) % m
end
"""

_BITS_SCRIPTS = {
    # KEYS leaf, bits. ARGV token, m, k, "leaf" or "parent" (what the caller takes it for), elements. O and the answers.
    # A parent that is open is frozen: its server forgot that when it crashed, and from now on it must not change.
    "test": """
if ARGV[4] == 'leaf' and stage ~= 'open' or stage == 'gone' then return 'M' end
if call('STRLEN', bits) * 8 ~= m then return 'L' end
if ARGV[4] == 'parent' and stage == 'open' then call('HSET', KEYS[1], 'stage', 'frozen') end
for start = 1, #elements, 16 do
  local place, step = hashes(start)
  local answer = '0'
  for _ = 1, k do
    if call('GETBIT', bits, place) == 0 then answer = '1' break end
    place = place + step
    if place >= m then place = place - m end
  end
  answers[#answers + 1] = answer
end
return 'O' .. table.concat(answers)
""",
    # KEYS leaf, bits, log. ARGV token, m, k, most elements, "new" or "all" (what is logged), elements. O and the answers.
    # Bits are looked at before they are set, so that elements known already cost no line in the append-only file.
    "put": """
if stage ~= 'open' then return 'M' end
count, logged = tonumber(count), tonumber(logged)
local most, logs_all = tonumber(ARGV[4]), ARGV[5] == 'all'
if call('STRLEN', bits) * 8 ~= m or call('STRLEN', KEYS[3]) ~= logged then return 'L' end
local log, is_whole = {}, true
for start = 1, #elements, 16 do
  local place, step = hashes(start)
  local answer = '0'
  for _ = 1, k do
    if answer == '1' then
      call('SETBIT', bits, place, '1')
    elseif call('GETBIT', bits, place) == 0 then
      if count >= most then answer = '2' break end
      call('SETBIT', bits, place, '1')
      count = count + 1
      answer = '1'
    end
    place = place + step
    if place >= m then place = place - m end
  end
  answers[#answers + 1] = answer
  if answer == '1' or logs_all and answer == '0' then log[#log + 1] = start else is_whole = false end
end
if #log > 0 then
  for i = 1, is_whole and 0 or #log do log[i] = string.sub(elements, log[i], log[i] + 15) end
  logged = call('APPEND', KEYS[3], is_whole and elements or table.concat(log))
  call('HSET', KEYS[1], 'count', count, 'logged', logged)
end
return 'O' .. table.concat(answers)
""",
}

_LEAF_SCRIPTS = {
    # KEYS leaf. ARGV token, elements from which on it may be frozen. F, G, or O if it is open and stays so.
    "freeze": """
if stage == 'gone' then return 'G' end
if stage == 'open' then
  if tonumber(count) < tonumber(ARGV[2]) then return 'O' end
  redis.call('HSET', KEYS[1], 'stage', 'frozen')
end
return 'F'
""",
    # KEYS leaf, log, mover. ARGV token, mover, lease in ms, most bytes, "steal" or "". Takes or renews the lease: O, a line
    # with round and bytes moved before, and the elements that are to be moved next.
    "fetch": """
if stage == 'gone' then return 'G' end
local mover = redis.call('GET', KEYS[3])
if mover and mover ~= ARGV[2] and ARGV[5] ~= 'steal' then return 'B' end
if redis.call('STRLEN', KEYS[2]) ~= tonumber(logged) then return 'L' end
if stage == 'open' then redis.call('HSET', KEYS[1], 'stage', 'frozen') end
redis.call('SET', KEYS[3], ARGV[2], 'PX', ARGV[3])
local stop = string.format('%.0f', moved + ARGV[4] - 1)
return 'O' .. round .. ' ' .. moved .. '\\n' .. redis.call('GETRANGE', KEYS[2], moved, stop)
""",
    # KEYS leaf. ARGV token, round, moved before, moved now. O, D at the end of the log, B if another one was faster.
    "advance": """
if stage == 'gone' then return 'G' end
if round ~= ARGV[2] or moved ~= ARGV[3] then return 'B' end
if ARGV[3] ~= ARGV[4] then redis.call('HSET', KEYS[1], 'moved', ARGV[4]) end
return ARGV[4] == logged and 'D' or 'O'
""",
    # KEYS leaf. ARGV token. O: moving begins anew, and steps under way do not count; G.
    "rewind": """
if stage == 'gone' then return 'G' end
redis.call('HINCRBY', KEYS[1], 'round', 1)
redis.call('HSET', KEYS[1], 'moved', 0, 'stage', 'frozen')
return 'O'
""",
    # KEYS leaf, bits, log, mover. ARGV token. Only after the manifest says that the leaf is an inner node.
    "drop": """
redis.call('UNLINK', KEYS[2], KEYS[3], KEYS[4])
redis.call('HSET', KEYS[1], 'stage', 'gone')
return 'O'
""",
    # KEYS leaf. ARGV token. O and a line with stage, count, logged, moved.
    "state": """
return 'O' .. stage .. ' ' .. count .. ' ' .. logged .. ' ' .. moved
""",
    # KEYS leaf, bits, log. ARGV token. O, a line as that of `state`, the bits, the log; M if it is gone.
    "read": """
if stage == 'gone' then return 'M' end
local bits = redis.call('GET', KEYS[2])
if not bits then return 'L' end
local line = stage .. ' ' .. count .. ' ' .. logged .. ' ' .. moved
return 'O' .. line .. '\\n' .. bits .. (redis.call('GET', KEYS[3]) or '')
""",
}

_OTHER_SCRIPTS = {
    # KEYS part, leaf, bits, log. ARGV token, bytes of the bits. O, also if the leaf is there already, in whatever stage.
    "create": """
if redis.call('HGET', KEYS[1], 'token') ~= ARGV[1] then return 'L' end
local token = redis.call('HGET', KEYS[2], 'token')
if token then return token == ARGV[1] and 'O' or 'L' end
if redis.call('EXISTS', KEYS[3], KEYS[4]) > 0 then return 'L' end
redis.call('SETRANGE', KEYS[3], ARGV[2] - 1, string.char(0))
redis.call('HSET', KEYS[2], 'token', ARGV[1], 'stage', 'open', 'count', 0, 'logged', 0, 'moved', 0, 'round', 0)
return 'O'
""",
    # KEYS part, job. ARGV token, name, number, "alone" or "": a crawl keeps it beside the filter, alone or with others. O, L.
    "keep": """
if redis.call('HGET', KEYS[1], 'token') ~= ARGV[1] then return 'L' end
if ARGV[4] == 'alone' then redis.call('DEL', KEYS[2]) end
redis.call('HSET', KEYS[2], ARGV[2], ARGV[3])
return 'O'
""",
    # KEYS job. All names and numbers, in turn.
    "kept": """
return redis.call('HGETALL', KEYS[1])
""",
    # KEYS part. ARGV record of the format (JSON), token. Makes the part if there is none. The record, token, sealed or not.
    "found": """
if redis.call('EXISTS', KEYS[1]) == 0 then redis.call('HSET', KEYS[1], 'record', ARGV[1], 'token', ARGV[2]) end
return redis.call('HMGET', KEYS[1], 'record', 'token', 'sealed')
""",
    # KEYS part. ARGV none. As `found`, but makes nothing.
    "part": "return redis.call('HMGET', KEYS[1], 'record', 'token', 'sealed')",
    # KEYS part. ARGV token. From now on the filter may hold elements: O.
    "seal": """
if redis.call('HGET', KEYS[1], 'token') ~= ARGV[1] then return 'L' end
if not redis.call('HGET', KEYS[1], 'sealed') then redis.call('HSET', KEYS[1], 'sealed', 1) end
return 'O'
""",
    # KEYS part, manifest. ARGV token ("" for any), revision that the caller has. S, or O, a line with the revision, and
    # the body, both empty if it is another program's; N if there is no manifest.
    "load": """
if ARGV[1] ~= '' and redis.call('HGET', KEYS[1], 'token') ~= ARGV[1] then return 'L' end
local held = redis.call('HMGET', KEYS[2], 'revision', 'body')
if not held[2] then return redis.call('EXISTS', KEYS[2]) == 0 and 'N' or 'O\\n' end
if held[1] == ARGV[2] then return 'S' end
return 'O' .. held[1] .. '\\n' .. held[2]
""",
    # KEYS part, manifest. ARGV token, revision that is to be replaced ("" for none), its successor, body. O, or M.
    "swap": """
if redis.call('HGET', KEYS[1], 'token') ~= ARGV[1] then return 'L' end
local revision = redis.call('HGET', KEYS[2], 'revision')
if (revision or '') ~= ARGV[2] then return 'M' end
redis.call('HSET', KEYS[2], 'revision', ARGV[3], 'body', ARGV[4])
return 'O'
""",
}

#: Name -> text of each script.
SCRIPTS = {
    **{name: _LEAF + _HASHES + text for name, text in _BITS_SCRIPTS.items()},
    **{name: _LEAF + text for name, text in _LEAF_SCRIPTS.items()},
    **_OTHER_SCRIPTS,
}

#: Answers for elements: all bits set; a bit was clear; a bit is clear, and the leaf is full.
KNOWN, NEW, NOT_TAKEN = b"012"
#: Answers of leaves, which hold for all of their elements: the caller's tree is old; the leaf is missing.
MOVED, MISSING = b"MN"
#: No leaf is ever so full.
NO_LIMIT: Final = 1 << 52

_AT_ONCE = 2048  # elements of one script call, which takes some 20 ms; a server answers no other client meanwhile


class LeafAddress(NamedTuple):
    """The address of a leaf: its server's number and its path there."""

    server: int
    path: str  #: its name, never used for another leaf


class LeafStep(NamedTuple):
    """The elements that the mover of a splitting leaf moves next."""

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

    @property
    def counted_below(self) -> int:
        """About how many of a splitting leaf's counted elements are counted below it, too."""
        return self.counted * self.moved // self.logged if self.logged else 0


class RemoteLeaves:
    """The leaves of one filter. `tokens` are the generations of its parts, one per server. Raises: as `RedisServers.call`."""

    def __init__(self, servers: Servers, name: str, tokens: Sequence[str], leaf_bits: int, hashes: int) -> None:
        self.name = name
        self.tokens = list(tokens)
        self._servers = servers
        self._leaf_bits = leaf_bits
        self._hashes = hashes

    def test(
        self, places: Sequence[LeafAddress], of: IntArray, elements: Fingerprints, splitting: Collection[int] = ()
    ) -> ByteArray:
        """For each element, KNOWN, NEW, MOVED or MISSING in place number `of[i]`. Places in `splitting` must be frozen."""
        return self._ask("test", places, of, elements, lambda n: ("parent" if n in splitting else "leaf",))

    def put(
        self, places: Sequence[LeafAddress], of: IntArray, elements: Fingerprints, most: Sequence[int], logged: str
    ) -> ByteArray:
        """Test and set, and log "new" elements or "all". Answers as `test`; NOT_TAKEN where a place counts `most` already."""
        return self._ask("put", places, of, elements, lambda n: (most[n], logged))

    def create(self, places: Sequence[LeafAddress]) -> None:
        """Make leaves with clear bits; existing ones stay as they are, in whatever stage."""
        calls = [self._call("create", place, (self._leaf_bits // 8,), "leaf", "bits", "log") for place in places]
        part = self.key("part")
        self._run([call._replace(keys=(part, *call.keys)) for call in calls], places)

    def freeze(self, places: Sequence[LeafAddress], count: int) -> list[bool]:
        """Close leaves that count so many elements for good; False where a leaf counts less and stays open."""
        replies = self._run([self._call("freeze", place, (count,), "leaf") for place in places], places, "FGO")
        return [reply[:1] != b"O" for reply in replies]

    def fetch(
        self, places: Sequence[LeafAddress], mover: str, lease_ms: int, most: int, *, steal: bool
    ) -> list[LeafStep | None]:
        """Take the leases and read up to `most` elements to move next of each leaf; None where another mover has the lease."""
        arguments = (mover, lease_ms, most * FINGERPRINT_BYTES, "steal" if steal else "")
        calls = [self._call("fetch", place, arguments, "leaf", "log", "mover") for place in places]
        steps: list[LeafStep | None] = []
        for reply in self._run(calls, places, "OBG"):
            line, _, data = reply[1:].partition(b"\n")
            if reply == b"B":
                steps.append(None)
            elif reply == b"G":
                steps.append(LeafStep(0, 0, from_bytes(b""), is_gone=True))
            else:
                turn, before = map(int, line.split())
                steps.append(LeafStep(turn, before, from_bytes(data)))
        return steps

    def advance(self, places: Sequence[LeafAddress], steps: Sequence[LeafStep]) -> list[bool]:
        """Record that steps are done; True where that was the last one. Those that another mover did count as his."""
        calls = [
            self._call("advance", place, (step.turn, step.before, step.stop), "leaf")
            for place, step in zip(places, steps, strict=True)
        ]
        return [reply in {b"D", b"G"} for reply in self._run(calls, places, "ODBG")]

    def rewind(self, places: Sequence[LeafAddress]) -> list[bool]:
        """Let all elements of splitting leaves be moved anew; False where the leaf is gone."""
        calls = [self._call("rewind", place, (), "leaf") for place in places]
        return [reply == b"O" for reply in self._run(calls, places, "OG")]

    def drop(self, places: Sequence[LeafAddress]) -> None:
        """Remove bits and logs of leaves that the manifest calls inner nodes."""
        self._run([self._call("drop", place, (), "leaf", "bits", "log", "mover") for place in places], places)

    def states(self, places: Sequence[LeafAddress]) -> list[LeafState]:
        """Each leaf at this moment."""
        replies = self._run([self._call("state", place, (), "leaf") for place in places], places)
        return [_state(reply[1:]) for reply in replies]

    def read(self, place: LeafAddress) -> tuple[LeafState, ByteArray, Fingerprints] | None:
        """A leaf's state, bits and log, of one moment; None if it is gone."""
        (reply,) = self._run([self._call("read", place, (), "leaf", "bits", "log")], [place], "OM")
        if reply == b"M":
            return None
        line, _, data = reply[1:].partition(b"\n")
        size = self._leaf_bits // 8
        return _state(line), np.frombuffer(data[:size], dtype=np.uint8), from_bytes(data[size:])

    def image(self, elements: Fingerprints) -> ByteArray:
        """The bits of a leaf that holds exactly these elements."""
        return np.packbits(bits_of(elements, self._leaf_bits, self._hashes))

    def key(self, *names: str) -> str:
        """The name of a key of the filter."""
        return ":".join((self.name, *names))

    def lost(self, place: LeafAddress) -> StoreUnavailable:
        """The error for a server that lost data of the filter."""
        return StoreUnavailable(
            f"the Redis server {self._servers.addresses[place.server]} has lost its part of the filter {self.name} "
            f"(leaf {place.path}): it was flushed or restarted without its data, or the filter was made anew. Restore "
            f"its data, or remove all keys {self.name}:* from all servers of the filter to begin with an empty one"
        )

    def _ask(
        self,
        script: str,
        places: Sequence[LeafAddress],
        of: IntArray,
        elements: Fingerprints,
        arguments: Callable[[int], tuple[str | int, ...]],
    ) -> ByteArray:
        order = np.argsort(of, kind="stable")
        data, answers = to_bytes(elements[order]), np.zeros(len(of), dtype=np.uint8)
        names = ("leaf", "bits", "log") if script == "put" else ("leaf", "bits")
        parts, calls, asked = [], [], []
        bounds = [0, *(np.flatnonzero(np.diff(of[order])) + 1).tolist(), len(of)]
        for first, end in pairwise(bounds):  # elements of one place
            for start in range(first, end, _AT_ONCE):
                number, stop = int(of[order[start]]), min(end, start + _AT_ONCE)
                mine = data[start * FINGERPRINT_BYTES : stop * FINGERPRINT_BYTES]
                given = (self._leaf_bits, self._hashes, *arguments(number), mine)
                calls.append(self._call(script, places[number], given, *names))
                asked.append(places[number])
                parts.append((start, stop))
        for (start, stop), reply in zip(parts, self._run(calls, asked, "OMN"), strict=True):
            is_answered = reply.startswith(b"O")
            answers[order[start:stop]] = np.frombuffer(reply[1:], dtype=np.uint8) if is_answered else reply[0]
        return answers

    def _call(self, script: str, place: LeafAddress, arguments: tuple[str | bytes | int, ...], *names: str) -> Call:
        leaf = self.key("leaf", place.path)
        keys = tuple(leaf if name == "leaf" else f"{leaf}:{name}" for name in names)
        return Call(place.server, script, keys, (self.tokens[place.server], *arguments))

    def _run(self, calls: Sequence[Call], places: Sequence[LeafAddress], expected: str = "O") -> list[bytes]:
        replies = []
        for place, reply in zip(places, self._servers.call(calls), strict=True):
            assert isinstance(reply, bytes)
            if chr(reply[0]) not in expected:
                raise self.lost(place)
            replies.append(reply)
        return replies


def _state(line: bytes) -> LeafState:
    stage, *numbers = line.split()
    count, logged, moved = map(int, numbers)
    return LeafState(stage.decode(), count, logged // FINGERPRINT_BYTES, moved // FINGERPRINT_BYTES)
