"""Assignment policies: the work queue of a URL, by a string hash, its host, or a user function.

The hashes use 32-bit arithmetic and a 31-bit mask; BKDR with another seed keeps all 32 bits. "Fast hashing in an intelligent
mobile agent" (2013) names the three and picks BKDR; the functions are those of Arash Partow's "General Purpose Hash Function
Algorithms".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from anabranch.frontier.errors import PolicyError
from anabranch.frontier.policies.hosts import (
    KEPT,
    IpOf,
    address_of,
    authority,
    domain_of,
    host_of,
    host_of_surt_key,
    surt_key,
)
from anabranch.frontier.policies.shares import ShareRule, share_queue
from anabranch.frontier.policies.sheets import Sheets
from anabranch.frontier.policies.userfunctions import (
    Import,
    call_user_function,
    check_name,
    is_user_function,
    shown,
    user_function,
)
from anabranch.frontier.records import GateKey, QueueKey, name_id

BKDR_SEED = 131
#: The bounds of a seed that a policy names. It must be odd: high powers of an even one are 0 modulo 2^32, so that only the
#: last characters of a URL would count.
LEAST_SEED = 3
MOST_SEED = 0xFFFFFFFF
#: (h << 6) + (h << 16) - h
SDBM_FACTOR = 65599
MASK = 0x7FFFFFFF

_MASK_32 = 0xFFFFFFFF
_HIGH_FOUR = 0xF0000000
#: Bytes of a table of padded strings that is hashed at once.
_AT_ONCE = 1 << 20
#: A table wider than this may be at most so many times as large as its strings.
_WIDE = 256
_MOST_FILLED = 4
#: A vectorised step takes as long as so many steps of the loop.
_FEW = 30
#: The powers of the factor are cached for strings up to this length.
_KEPT_POWERS = 4096
#: More than the digits of any share.
_SHARE_DIGITS = 5
Hashes = npt.NDArray[np.uint32]


def bkdr(data: bytes) -> int:
    """BKDRHash: h = h × 131 + c over the bytes; O(len)."""
    return _polynomial(data, BKDR_SEED) & MASK


def sdbm(data: bytes) -> int:
    """SDBMHash: h = c + (h << 6) + (h << 16) - h over the bytes; O(len)."""
    return _polynomial(data, SDBM_FACTOR) & MASK


def elf(data: bytes) -> int:
    """ELFHash: h = (h << 4) + c over the bytes, with the four highest bits folded back at each; O(len)."""
    return _folded(0, data) & MASK


def bkdr_batch(batch: Sequence[bytes]) -> Hashes:
    """BKDRHash of each string: the sum of c_i × 131^(n-1-i) modulo 2^31."""
    return _polynomials(batch, BKDR_SEED) & np.uint32(MASK)


def sdbm_batch(batch: Sequence[bytes]) -> Hashes:
    """SDBMHash of each string."""
    return _polynomials(batch, SDBM_FACTOR) & np.uint32(MASK)


def elf_batch(batch: Sequence[bytes]) -> Hashes:
    """ELFHash of each string, O(bytes): vectorised per byte position while more than a few strings are that long."""
    lengths = np.fromiter(map(len, batch), np.int64, len(batch))
    order = np.argsort(-lengths, kind="stable")  # the longest first, so that those with a byte left are in front
    joined = np.frombuffer(b"".join(batch), np.uint8).astype(np.uint32)
    starts = (np.cumsum(lengths) - lengths)[order]
    longer = np.searchsorted(-lengths[order], -np.arange(lengths.max(initial=0)), side="left")
    values = np.zeros(len(batch), np.uint32)
    steps = int(np.count_nonzero(longer > _FEW))
    for place, count in enumerate(longer[:steps].tolist()):
        part = (values[:count] << np.uint32(4)) + joined[starts[:count] + place]
        high = part & np.uint32(_HIGH_FOUR)
        values[:count] = (part ^ high >> np.uint32(24)) & ~high
    for row, number in enumerate(order[: longer[steps] if steps < len(longer) else 0].tolist()):
        values[row] = _folded(int(values[row]), batch[number][steps:])
    hashed = np.empty_like(values)
    hashed[order] = values & np.uint32(MASK)
    return hashed


def _folded(value: int, data: bytes) -> int:
    for byte in data:
        value = (value << 4) + byte & _MASK_32
        high = value & _HIGH_FOUR
        value = (value ^ high >> 24) & ~high
    return value


def _polynomial(data: bytes, factor: int) -> int:
    """The sum of c_i × factor^(n-1-i) modulo 2^32."""
    if not data:
        return 0
    return int(np.frombuffer(data, np.uint8) @ _powers(factor, len(data)))


def _polynomials(batch: Sequence[bytes], factor: int) -> Hashes:
    """Hash a table of right-aligned strings: zeros before one add nothing. O(bytes): longer ones get a table apart."""
    count, width = len(batch), max(map(len, batch), default=0)
    if not width:
        return np.zeros(count, np.uint32)
    if width > _WIDE and count * width > _MOST_FILLED * sum(map(len, batch)):
        return _apart(batch, factor, width // _MOST_FILLED)
    if count > 1 and count * width > _AT_ONCE:
        halves = batch[: count // 2], batch[count // 2 :]
        return np.concatenate([_polynomials(half, factor) for half in halves])
    joined = b"".join([data.rjust(width, b"\0") for data in batch])
    table = np.frombuffer(joined, np.uint8).reshape(count, width).astype(np.uint32)
    sums: Hashes = table @ _powers(factor, width)
    return sums


def _apart(batch: Sequence[bytes], factor: int, longest: int) -> Hashes:
    is_long = np.fromiter((len(data) > longest for data in batch), np.bool_, len(batch))
    hashed = np.empty(len(batch), np.uint32)
    hashed[is_long] = _polynomials([data for data in batch if len(data) > longest], factor)
    hashed[~is_long] = _polynomials([data for data in batch if len(data) <= longest], factor)
    return hashed


def _powers(factor: int, count: int) -> Hashes:
    """The `count` lowest powers of the factor modulo 2^32, the highest first."""
    if count > _KEPT_POWERS:
        return _worked_out(factor, count)
    return _kept(factor, _KEPT_POWERS)[-count:]


def _worked_out(factor: int, count: int) -> Hashes:
    powers = np.full(count, factor, np.uint32)
    powers[0] = 1
    return np.multiply.accumulate(powers, dtype=np.uint32)[::-1].copy()


_kept = lru_cache(2)(_worked_out)


#: A user's `[frontier] policy`: URL -> name of its work queue. With the attribute `batch = True` it maps a list to a list.
QueuePolicy = Callable[[str], str]

Assign = Callable[[Sequence[str]], list[QueueKey]]

MOST_QUEUES = 1_000_000
_NO_HOST = QueueKey("")


class PolitenessScope(Enum):
    """The URLs that share a gate."""

    HOST = "host"  #: every URL of a host passes one gate, whatever its queue
    QUEUE = "queue"  #: a gate per queue: the published behaviour, with as many connections to a host as queues
    OFF = "off"  #: a gate per host without rests; only a Crawl-delay or a 429 closes it: for your own sites


def parse_policy(
    name: str,
    *,
    ip_of: IpOf | None = None,
    imported: Import | None = None,
    overrides: Sheets | None = None,
) -> Assign:
    """The assignment of this policy; queues that `overrides` name come first. A URL without host gets an empty key.

    The policy ip needs `ip_of`, a user function `imported`. Assigning raises PolicyError if a user function fails.
    Raises: PolicyError for a policy that does not exist or lacks what it needs, or overrides that do not fit it.
    """
    assign = _policy(name, ip_of, imported)
    if overrides is None:
        return assign
    if overrides.has_queue_settings and host_of_queue(name) is None:
        raise PolicyError(
            f"policy {shown(name)}: its queues hold many hosts; "
            "an override of a queue's budget or precedence must name the queue by `key`"
        )
    if not overrides.has_keys:
        return assign

    def assign_rest(urls: Sequence[str]) -> list[QueueKey]:
        named = [overrides.for_url(url).key for url in urls]
        others = iter(assign([url for url, key in zip(urls, named, strict=True) if key is None]))
        return [next(others) if key is None else key for key in named]

    return assign_rest


#: A URL's queue and gate: the queue's key, the ids of both, the gate's key. A plain tuple, because every new URL gets one.
AssignedLane = tuple[QueueKey, int, int, GateKey]


class Assignment:
    """The queue and the gate of a URL, as keys and as ids."""

    def __init__(
        self,
        assign: Assign,
        scope: PolitenessScope,
        shares: ShareRule | None = None,
        host_of: Callable[[QueueKey], str] | None = None,
    ) -> None:
        """`shares`: those of a job of several workers. Where queues hold many hosts, each share has queues of its own.

        `host_of`: the host of a queue; None: queues hold many hosts.
        """
        self.queues_of = assign  #: the queues that the policy assigns; raises PolicyError
        self._has_gate_per_queue = scope is PolitenessScope.QUEUE
        self._shares = shares
        self._host_of = host_of
        self._is_per_share = shares is not None and host_of is None
        self._is_plain = shares is None and not self._has_gate_per_queue

    def lanes_of(self, urls: Sequence[str], hosts: Sequence[str]) -> list[AssignedLane]:
        """For each URL, with its host, the lane that it goes to. Raises: PolicyError."""
        pairs = zip(self.queues_of(urls), hosts, strict=True)
        if self._is_plain:  # most are: this saves two calls a URL
            return [(queue, name_id(queue), name_id(host), GateKey(host)) for queue, host in pairs]
        return [self.lane(queue, host) for queue, host in pairs]

    def lane(self, queue: QueueKey, host: str) -> AssignedLane:
        """The lane of a URL with this host, which the policy assigns to this queue."""
        if self._shares is not None and self._is_per_share:
            queue = share_queue(self._shares.of_host(host), queue)
        gate = GateKey(host)
        if self._has_gate_per_queue:
            prefix = "" if self._shares is None or self._is_per_share else f"{self._shares.of_host(host)}/"
            gate = GateKey(f"queue:{prefix}{queue}")
        return queue, name_id(queue), name_id(gate), gate

    def share_of_queue(self, queue: QueueKey) -> int:
        """The share of a queue, in a job of several workers; -1 for a key that no queue can have."""
        assert self._shares is not None
        if not self._is_per_share:
            return -1 if self._host_of is None else self._shares.of_host(self._host_of(queue))
        share, slash, _ = queue.partition("/")
        return int(share) if slash and share.isascii() and share.isdigit() and len(share) < _SHARE_DIGITS else -1

    def of_url(self, url: str) -> tuple[QueueKey, GateKey] | None:
        """The keys of a URL's queue and gate; None if it has no host. Raises: PolicyError."""
        found = authority(url)
        if found is None:
            return None
        (queue,) = self.queues_of([url])
        queue, _, _, gate = self.lane(queue, found.host)
        return queue, gate

    def lane_of(self, url: str) -> tuple[int, int] | None:
        """Their ids. Raises: PolicyError."""
        found = authority(url)
        if found is None:
            return None
        (queue,) = self.queues_of([url])
        return self.lane(queue, found.host)[1:3]


def host_of_queue(name: str) -> Callable[[QueueKey], str] | None:
    """The function from a queue's key to its host, under this policy; None where queues hold many hosts."""
    return _HOSTS.get(name.partition(":")[0])


def policy_warning(names: Iterable[str]) -> str | None:
    """One line if one of these policies is a poor choice; None if none is."""
    return _LENGTH_WARNING if any(name.partition(":")[0] == "length" for name in names) else None


def _policy(name: str, ip_of: IpOf | None, imported: Import | None) -> Assign:
    kind, colon, number = name.partition(":")
    if kind == "bkdr" and ":" in number:
        return _seeded_bkdr(name, *number.split(":", 1))
    if kind in _NUMBERED:
        return _NUMBERED[kind](_queues(name, kind, number))
    if kind in _PLAIN and not colon:
        return _PLAIN[kind]
    if name == "ip":
        return _by_ip(ip_of)
    if is_user_function(name):
        return _by_user_function(name, user_function(name, "policy", imported))
    raise PolicyError(f"policy {shown(name)} is unknown; choose one of {known_policies()}")


def _queues(name: str, kind: str, number: str) -> int:
    queues = _number(number, MOST_QUEUES)
    if queues < 1:
        raise PolicyError(
            f"policy {shown(name)}: {kind} needs a number of queues from 1 to {MOST_QUEUES}, as in {kind}:997"
        )
    return queues


def _number(text: str, most: int) -> int:
    """The number that the text writes in ASCII digits; -1 if it writes none, or one above `most`."""
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(most))
    return number if is_number and (number := int(text)) <= most else -1


def _seeded_bkdr(name: str, number: str, seed_text: str) -> Assign:
    queues, seed = _queues(name, "bkdr", number), _number(seed_text, MOST_SEED)
    if seed < LEAST_SEED or seed % 2 == 0:
        raise PolicyError(
            f"policy {shown(name)}: the seed of bkdr must be an odd number from {LEAST_SEED} to {MOST_SEED}, as in bkdr:997:31"
        )
    function = _Hash(partial(_polynomial, factor=seed), partial(_polynomials, factor=seed), _BKDR.small)
    return _hashed("bkdr", function, queues)


def known_policies() -> str:
    """The policies that an order can name, in one line."""
    bkdr, *others = (f"{kind}:N" for kind in _NUMBERED)
    return ", ".join([*_PLAIN, "ip", bkdr, f"{bkdr}:SEED", *others, "package.module:function"])


def _each(key_of: Callable[[str], str]) -> Assign:
    """A policy by host[:port]."""
    return lambda urls: [QueueKey(key_of(found.name)) if (found := authority(url)) else _NO_HOST for url in urls]


def _by_host(urls: Sequence[str]) -> list[QueueKey]:
    return [QueueKey(found.name) if (found := authority(url)) else _NO_HOST for url in urls]


def _domain(name: str) -> str:
    host = host_of(name)
    return domain_of(host) or host


def _by_ip(ip_of: IpOf | None) -> Assign:
    if ip_of is None:
        raise PolicyError("policy ip needs the hosts' addresses; pass `ip_of`, which knows them")

    def assign(urls: Sequence[str]) -> list[QueueKey]:
        hosts = [found.host if (found := authority(url)) else "" for url in urls]
        return [QueueKey(host and (address_of(host, ip_of) or host)) for host in hosts]

    return assign


class _Numbered(dict[int, QueueKey]):
    """The names of numbered queues, with a cache of the first ones."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self._kind = kind

    def __missing__(self, number: int) -> QueueKey:
        name = QueueKey(f"{self._kind}:{number}")
        if len(self) < KEPT:
            self[number] = name
        return name


class _Hash(NamedTuple):
    """A string hash, for one string and for many."""

    one: Callable[[bytes], int]
    many: Callable[[Sequence[bytes]], Hashes]
    small: int  #: the size from which on a batch is faster

    def numbers(self, urls: Sequence[str], queues: int) -> list[int]:
        """The hash of each URL, mod `queues`."""
        if len(urls) < self.small:
            return [self.one(url.encode()) % queues for url in urls]
        numbers: list[int] = (self.many([url.encode() for url in urls]) % queues).tolist()
        return numbers


# For smaller batches numpy's calls cost more than they save; ELF needs some calls for each character.
_BKDR = _Hash(bkdr, bkdr_batch, 2)
_ELF = _Hash(elf, elf_batch, 32)
_SDBM = _Hash(sdbm, sdbm_batch, 2)


def _hashed(kind: str, function: _Hash, queues: int) -> Assign:
    names = _Numbered(kind)
    return lambda urls: [names[number] for number in function.numbers(urls, queues)]


def _by_bucket(queues: int) -> Assign:
    names = _Numbered("bucket")

    @lru_cache(KEPT)
    def bucket(host: str) -> QueueKey:
        return names[bkdr(host.encode()) % queues]

    return lambda urls: [bucket(found.host) if (found := authority(url)) else _NO_HOST for url in urls]


def _by_parallel(queues: int) -> Assign:
    def assign(urls: Sequence[str]) -> list[QueueKey]:
        keys = zip(_by_host(urls), _BKDR.numbers(urls, queues), strict=True)
        return [QueueKey(f"{host}+{number}") if number and host else host for host, number in keys]

    return assign


def _by_length(queues: int) -> Assign:
    names = _Numbered("length")
    return lambda urls: [names[len(url) % queues] for url in urls]


def _by_user_function(name: str, function: Callable[..., object]) -> Assign:
    def key_of(url: str) -> QueueKey:
        call = f"policy {name} for {shown(url)}"
        return QueueKey(check_name(call_user_function(function, url, call), call))

    def batch(urls: Sequence[str]) -> list[QueueKey]:
        if not urls:
            return []
        call = f"policy {name} for {len(urls)} URLs from {shown(urls[0])} on"
        keys = call_user_function(function, list(urls), call)
        if not isinstance(keys, Sequence) or isinstance(keys, str) or len(keys) != len(urls):
            raise PolicyError(f"{call} gave {shown(repr(keys))}; a list of as many keys is needed")
        pairs = zip(urls, keys, strict=True)
        return [QueueKey(check_name(key, f"policy {name} for {shown(url)}")) for url, key in pairs]

    return batch if getattr(function, "batch", False) else lambda urls: [key_of(url) for url in urls]


def _host_of_parallel(key: QueueKey) -> str:
    host, plus, number = key.rpartition("+")
    return host_of(host if plus and number.isdigit() else key)


_PLAIN: dict[str, Assign] = {"host": _by_host, "surt": _each(surt_key), "domain": _each(_domain)}
_NUMBERED: dict[str, Callable[[int], Assign]] = {
    "bkdr": partial(_hashed, "bkdr", _BKDR),
    "elf": partial(_hashed, "elf", _ELF),
    "sdbm": partial(_hashed, "sdbm", _SDBM),
    "bucket": _by_bucket,
    "parallel": _by_parallel,
    "length": _by_length,
}
_LENGTH_WARNING = (
    "policy length:N is a poor choice: URLs have few lengths, so a dozen queues hold most URLs, however large N is; "
    "each mixes many hosts, and a large host is spread over all of them; bkdr:N spreads URLs evenly"
)
_HOSTS: dict[str, Callable[[QueueKey], str]] = {
    "host": host_of,
    "surt": host_of_surt_key,
    "domain": str,
    "parallel": _host_of_parallel,
}
