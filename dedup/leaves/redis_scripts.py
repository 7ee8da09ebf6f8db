"""What Redis does for the DSBF that crawlers share: one Lua script per step, each of which is atomic on its server.

Keys of a filter, all beginning with its name:

- `NAME:part` (hash, one per server): the format, which server of how many this is, and `token`, the generation: a random
  text made with the part. Each leaf of the server carries it, and each call names it. A server that was flushed has no
  part, one that was made anew has another token; both refuse every call.
- `NAME:manifest` (hash, first server): `revision`, a random text, and `body`, the tree as JSON (`dedup/dsbf/sharedtree.py`).
- `NAME:leaf:PATH` (hash): `token`, `stage`, `count` (elements that found a bit clear), `logged` (bytes in the log), and
  while it splits `moved` (bytes of the log that are in the children) and `round` (how often `moved` began anew).
- `NAME:leaf:PATH:bits`, `...:log`, `...:mover`: the bits; 16 bytes per element; who moves the elements now (a lease).

A leaf's `stage` goes from open to frozen to gone and never back. Open: it is asked and takes elements. Frozen: it
splits; it is asked and takes nothing. Gone: its elements are in its children, its bits and its log are removed; the hash
stays, so that whoever comes late with an old tree is told so, and nobody makes the leaf a second time.

A reply begins with one letter: O done, M moved (the caller's tree is old), N not there, L the server lost data that
it should have, F frozen, G gone, B busy (another one is at it), D done to the end, S the same as before.
"""

from __future__ import annotations

from typing import NamedTuple


class Call(NamedTuple):
    """One run of a script on one server."""

    server: int
    script: str
    keys: tuple[str, ...]
    arguments: tuple[str | bytes | int, ...]


#: Begins the scripts that look at bits.
_HASHES = """
local elements = ARGV[#ARGV]
local m, k = tonumber(ARGV[2]), tonumber(ARGV[3])
local call, bits, answers = redis.call, KEYS[2], {}
-- Of a 16-byte element: bits 0-39, and 40-79 made odd; MapHash as in dedup/fingerprint.py.
local function hashes(start)
  local second, first = struct.unpack('>xxxxxxI5I5', elements, start)
  return first % m, (second % 2 == 0 and second + 1 or second) % m
end
"""

#: KEYS leaf, bits. ARGV token, m, k, "leaf" or "parent" (what the caller takes it for), elements. O and the answers.
#: A parent that is open is frozen: its server forgot that when it crashed, and from now on it must not change.
_TEST = (
    _HASHES
    + """
local held = call('HMGET', KEYS[1], 'token', 'stage')
if not held[1] then return 'N' end
if held[1] ~= ARGV[1] then return 'L' end
if ARGV[4] == 'leaf' and held[2] ~= 'open' or held[2] == 'gone' then return 'M' end
if call('STRLEN', bits) * 8 ~= m then return 'L' end
if ARGV[4] == 'parent' and held[2] == 'open' then call('HSET', KEYS[1], 'stage', 'frozen') end
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
"""
)

#: KEYS leaf, bits, log. ARGV token, m, k, most elements, "new" or "all" (what is logged), elements. O and the answers.
#: Bits are looked at before they are set, so that elements known already cost no line in the append-only file.
_PUT = (
    _HASHES
    + """
local held = call('HMGET', KEYS[1], 'token', 'stage', 'count', 'logged')
if not held[1] then return 'N' end
if held[1] ~= ARGV[1] then return 'L' end
if held[2] ~= 'open' then return 'M' end
local count, logged, most, logs_all = tonumber(held[3]), tonumber(held[4]), tonumber(ARGV[4]), ARGV[5] == 'all'
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
"""
)

#: KEYS part, leaf, bits, log. ARGV token, bytes of the bits. O, also if the leaf is there already, in whatever stage.
_CREATE = """
if redis.call('HGET', KEYS[1], 'token') ~= ARGV[1] then return 'L' end
local token = redis.call('HGET', KEYS[2], 'token')
if token then return token == ARGV[1] and 'O' or 'L' end
if redis.call('EXISTS', KEYS[3], KEYS[4]) > 0 then return 'L' end
redis.call('SETRANGE', KEYS[3], ARGV[2] - 1, string.char(0))
redis.call('HSET', KEYS[2], 'token', ARGV[1], 'stage', 'open', 'count', 0, 'logged', 0, 'moved', 0, 'round', 0)
return 'O'
"""

#: KEYS leaf. ARGV token, elements from which on it may be frozen. F, G, or O if it is open and stays so.
_FREEZE = """
local held = redis.call('HMGET', KEYS[1], 'token', 'stage', 'count')
if not held[1] then return 'N' end
if held[1] ~= ARGV[1] then return 'L' end
if held[2] == 'gone' then return 'G' end
if held[2] == 'open' then
  if tonumber(held[3]) < tonumber(ARGV[2]) then return 'O' end
  redis.call('HSET', KEYS[1], 'stage', 'frozen')
end
return 'F'
"""

#: KEYS leaf, log, mover. ARGV token, mover, lease in ms, most bytes, "steal" or "". Takes or renews the lease: O, a line
#: with round and bytes moved before, and the elements that are to be moved next.
_FETCH = """
local held = redis.call('HMGET', KEYS[1], 'token', 'stage', 'round', 'moved', 'logged')
if not held[1] then return 'N' end
if held[1] ~= ARGV[1] then return 'L' end
if held[2] == 'gone' then return 'G' end
local mover = redis.call('GET', KEYS[3])
if mover and mover ~= ARGV[2] and ARGV[5] ~= 'steal' then return 'B' end
if redis.call('STRLEN', KEYS[2]) ~= tonumber(held[5]) then return 'L' end
if held[2] == 'open' then redis.call('HSET', KEYS[1], 'stage', 'frozen') end
redis.call('SET', KEYS[3], ARGV[2], 'PX', ARGV[3])
local stop = string.format('%.0f', held[4] + ARGV[4] - 1)
return 'O' .. held[3] .. ' ' .. held[4] .. '\\n' .. redis.call('GETRANGE', KEYS[2], held[4], stop)
"""

#: KEYS leaf. ARGV token, round, moved before, moved now. O, D at the end of the log, B if another one was faster.
_ADVANCE = """
local held = redis.call('HMGET', KEYS[1], 'token', 'stage', 'round', 'moved', 'logged')
if not held[1] then return 'N' end
if held[1] ~= ARGV[1] then return 'L' end
if held[2] == 'gone' then return 'G' end
if held[3] ~= ARGV[2] or held[4] ~= ARGV[3] then return 'B' end
if ARGV[3] ~= ARGV[4] then redis.call('HSET', KEYS[1], 'moved', ARGV[4]) end
return ARGV[4] == held[5] and 'D' or 'O'
"""

#: KEYS leaf. ARGV token. O: moving begins anew, and steps under way do not count; G.
_REWIND = """
local held = redis.call('HMGET', KEYS[1], 'token', 'stage')
if not held[1] then return 'N' end
if held[1] ~= ARGV[1] then return 'L' end
if held[2] == 'gone' then return 'G' end
redis.call('HINCRBY', KEYS[1], 'round', 1)
redis.call('HSET', KEYS[1], 'moved', 0, 'stage', 'frozen')
return 'O'
"""

#: KEYS leaf, bits, log, mover. ARGV token. Only after the manifest says that the leaf is an inner node.
_DROP = """
local token = redis.call('HGET', KEYS[1], 'token')
if not token then return 'N' end
if token ~= ARGV[1] then return 'L' end
redis.call('UNLINK', KEYS[2], KEYS[3], KEYS[4])
redis.call('HSET', KEYS[1], 'stage', 'gone')
return 'O'
"""

#: KEYS leaf. ARGV token. O and a line with stage, count, logged, moved.
_STATE = """
local held = redis.call('HMGET', KEYS[1], 'token', 'stage', 'count', 'logged', 'moved')
if not held[1] then return 'N' end
if held[1] ~= ARGV[1] then return 'L' end
return 'O' .. held[2] .. ' ' .. held[3] .. ' ' .. held[4] .. ' ' .. held[5]
"""

#: KEYS leaf, bits, log. ARGV token. O, a line as that of `state`, the bits, the log; M if it is gone.
_READ = """
local held = redis.call('HMGET', KEYS[1], 'token', 'stage', 'count', 'logged', 'moved')
if not held[1] then return 'N' end
if held[1] ~= ARGV[1] then return 'L' end
if held[2] == 'gone' then return 'M' end
local bits = redis.call('GET', KEYS[2])
if not bits then return 'L' end
local line = held[2] .. ' ' .. held[3] .. ' ' .. held[4] .. ' ' .. held[5]
return 'O' .. line .. '\\n' .. bits .. (redis.call('GET', KEYS[3]) or '')
"""

#: KEYS part. ARGV record of the format (JSON), token. Makes the part if there is none. The record, token, sealed or not.
_FOUND = """
if redis.call('EXISTS', KEYS[1]) == 0 then redis.call('HSET', KEYS[1], 'record', ARGV[1], 'token', ARGV[2]) end
return redis.call('HMGET', KEYS[1], 'record', 'token', 'sealed')
"""

#: KEYS part. ARGV none. As `found`, but makes nothing.
_PART = "return redis.call('HMGET', KEYS[1], 'record', 'token', 'sealed')"

#: KEYS part. ARGV token. From now on the filter may hold elements: O.
_SEAL = """
if redis.call('HGET', KEYS[1], 'token') ~= ARGV[1] then return 'L' end
if not redis.call('HGET', KEYS[1], 'sealed') then redis.call('HSET', KEYS[1], 'sealed', 1) end
return 'O'
"""

#: KEYS part, manifest. ARGV token ("" for any), revision that the caller has. S, or O, a line with the revision, and
#: the body, both empty if it is another program's; N if there is no manifest.
_LOAD = """
if ARGV[1] ~= '' and redis.call('HGET', KEYS[1], 'token') ~= ARGV[1] then return 'L' end
local held = redis.call('HMGET', KEYS[2], 'revision', 'body')
if not held[2] then return redis.call('EXISTS', KEYS[2]) == 0 and 'N' or 'O\\n' end
if held[1] == ARGV[2] then return 'S' end
return 'O' .. held[1] .. '\\n' .. held[2]
"""

#: KEYS part, manifest. ARGV token, revision that is to be replaced ("" for none), its successor, body. O, or M.
_SWAP = """
if redis.call('HGET', KEYS[1], 'token') ~= ARGV[1] then return 'L' end
local revision = redis.call('HGET', KEYS[2], 'revision')
if (revision or '') ~= ARGV[2] then return 'M' end
redis.call('HSET', KEYS[2], 'revision', ARGV[3], 'body', ARGV[4])
return 'O'
"""

#: Name -> text.
SCRIPTS = {
    "test": _TEST,
    "put": _PUT,
    "create": _CREATE,
    "freeze": _FREEZE,
    "fetch": _FETCH,
    "advance": _ADVANCE,
    "rewind": _REWIND,
    "drop": _DROP,
    "state": _STATE,
    "read": _READ,
    "found": _FOUND,
    "part": _PART,
    "seal": _SEAL,
    "load": _LOAD,
    "swap": _SWAP,
}
