"""String hashes that spread URLs over queues: 32-bit arithmetic, one 31-bit mask for all.

Source: "fast hashing in an intelligent mobile agent" (2013) names the three and picks BKDR for speed and balance. The published
functions are those of Arash Partow's "General Purpose Hash Function Algorithms"; BKDR's usual seed is 131.
"""

from __future__ import annotations

from collections import Counter
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
from anabranch.frontier.policies.sheets import Sheets
from anabranch.frontier.policies.userfunctions import (
    Import,
    call_own,
    check_name,
    is_user_function,
    shown,
    user_function,
)
from anabranch.frontier.records import QueueKey

BKDR_SEED = 131
#: (h << 6) + (h << 16) - h
SDBM_FACTOR = 65599
MASK = 0x7FFFFFFF

_MASK_32 = 0xFFFFFFFF
_HIGH_FOUR = 0xF0000000
#: Bytes of strings, each filled up to the longest, that are hashed at once.
_AT_ONCE = 1 << 20
#: Filled up they may be so many times as large as they are, if the longest is longer than the other bound.
_MOST_FILLED = 4
_WIDE = 256
#: A vectorised step takes as long as so many steps of the loop.
_FEW = 30
#: Of strings up to this length the powers of the factor are kept.
_KEPT_POWERS = 4096
Hashes = npt.NDArray[np.uint32]


def bkdr(data: bytes) -> int:
    """BKDRHash: h = h × 131 + c over the bytes; O(len)."""
    return _polynomial(data, BKDR_SEED)


def sdbm(data: bytes) -> int:
    """SDBMHash: h = c + (h << 6) + (h << 16) - h over the bytes; O(len)."""
    return _polynomial(data, SDBM_FACTOR)


def elf(data: bytes) -> int:
    """ELFHash: h = (h << 4) + c over the bytes, with the four highest bits folded back at each; O(len)."""
    return _folded(0, data) & MASK


def bkdr_batch(batch: Sequence[bytes]) -> Hashes:
    """BKDRHash of each string at once: the sum of c_i × 131^(n-1-i), which wraps as 32 bits do."""
    return _polynomials(batch, BKDR_SEED)


def sdbm_batch(batch: Sequence[bytes]) -> Hashes:
    """SDBMHash of each string at once."""
    return _polynomials(batch, SDBM_FACTOR)


def elf_batch(batch: Sequence[bytes]) -> Hashes:
    """ELFHash of each string at once: one vectorised step for each byte, as long as more than a few strings have one.

    Cost: O(bytes); a byte of a string that is longer than nearly all others costs as much as in `elf`.
    """
    lengths = np.fromiter(map(len, batch), np.int64, len(batch))
    order = np.argsort(-lengths, kind="stable")  # the longest first: who still has a byte stands in front
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
    if not data:
        return 0
    return int(np.frombuffer(data, np.uint8) @ _powers(factor, len(data))) & MASK


def _polynomials(batch: Sequence[bytes], factor: int) -> Hashes:
    """The strings stand in a table, flush right: zeros before a string add nothing to its hash.

    Cost: O(bytes), however unequal they are: the long ones have a table of their own where one table would be zeros for the
    most part. A table is at most four times as large as its strings, or has 256 bytes for each.
    """
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
    return sums & np.uint32(MASK)


def _apart(batch: Sequence[bytes], factor: int, longest: int) -> Hashes:
    """The hashes of strings up to this length, and of the longer ones, each in a table of their own."""
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


Assign = Callable[[Sequence[str]], list[QueueKey]]

MOST_QUEUES = 1_000_000
#: Smaller batches are hashed one by one: numpy's calls cost more than they spare. ELF takes some for each character.
_SMALL_BATCH = 2
_SMALL_BATCH_ELF = 32
_NO_HOST = QueueKey("")


class PolitenessScope(Enum):
    """Whom a gate stands for."""

    HOST = "host"  #: every URL of a host passes one gate, whatever its queue
    QUEUE = "queue"  #: a gate per queue: the published behaviour, which hits a host with as many connections as queues
    OFF = "off"  #: a gate per host without rests; only a Crawl-delay or a 429 closes it: for one's own sites


def parse_policy(
    name: str,
    *,
    ip_of: IpOf | None = None,
    imported: Import | None = None,
    overrides: Sheets | None = None,
    lab: bool = False,
) -> Assign:
    """The assignment of a policy's name, behind the overrides that name a queue themselves.

    `ip_of` is what the policy ip needs, `imported` what a function of one's own does; `lab` allows length:N. A URL without
    host gets an empty key from policies that ask for it. Assigning raises PolicyError if a function of one's own fails.

    Raises: PolicyError for a policy that does not exist or lacks what it needs, and for overrides of a queue's budget or
    precedence where a queue is no host's.
    """
    assign = _policy(name, ip_of, imported, lab)
    if overrides is None:
        return assign
    if overrides.has_queue_settings and host_of_queue(name) is None:
        raise PolicyError(
            f"policy {shown(name)}: its queues hold many hosts; "
            "an override of a queue's budget or precedence must name the queue by `key`"
        )
    return _with_keys(overrides, assign) if overrides.has_keys else assign


def host_of_queue(name: str) -> Callable[[QueueKey], str] | None:
    """How a queue's key tells its host, under this policy; None where queues hold many hosts. A domain counts as a host."""
    kind, _, _ = name.partition(":")
    return _HOSTS.get(kind)


def _policy(name: str, ip_of: IpOf | None, imported: Import | None, lab: bool) -> Assign:
    kind, colon, number = name.partition(":")
    if kind == "length" and not lab:
        raise PolicyError(f"policy {shown(name)} is for experiments only; choose {known_policies()}")
    if kind in _NUMBERED:
        return _NUMBERED[kind](_queues(name, kind, number))
    if kind in _PLAIN and not colon:
        return _PLAIN[kind]
    if name == "ip":
        return _by_ip(ip_of)
    if is_user_function(name):
        return _by_own(name, user_function(name, "policy", imported))
    raise PolicyError(f"policy {shown(name)} is unknown; choose one of {known_policies()}")


def _queues(name: str, kind: str, number: str) -> int:
    is_number = number.isascii() and number.isdigit() and len(number) <= len(str(MOST_QUEUES))
    if not (is_number and 1 <= int(number) <= MOST_QUEUES):
        raise PolicyError(
            f"policy {shown(name)}: {kind} needs a number of queues from 1 to {MOST_QUEUES}, as in {kind}:997"
        )
    return int(number)


def known_policies() -> str:
    """The policies that an order can name, in one line."""
    numbered = [f"{kind}:N" for kind in _NUMBERED if kind != "length"]
    return ", ".join([*_PLAIN, "ip", *numbered, "package.module:function"])


def _with_keys(sheets: Sheets, assign: Assign) -> Assign:
    """Queues that overrides name, before those of the policy."""

    def assign_rest(urls: Sequence[str]) -> list[QueueKey]:
        named = [sheets.for_url(url).key for url in urls]
        rest = [url for url, key in zip(urls, named, strict=True) if key is None]
        others = iter(assign(rest))
        return [next(others) if key is None else key for key in named]

    return assign_rest


def _each(key_of: Callable[[str], str]) -> Assign:
    """A policy that looks at host[:port] alone."""

    def assign(urls: Sequence[str]) -> list[QueueKey]:
        return [QueueKey(key_of(found.name)) if (found := authority(url)) else _NO_HOST for url in urls]

    return assign


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
    """The names of numbered queues. The first that are asked for are kept."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self._kind = kind

    def __missing__(self, number: int) -> QueueKey:
        name = QueueKey(f"{self._kind}:{number}")
        if len(self) < KEPT:
            self[number] = name
        return name


class _Hash(NamedTuple):
    """A string hash, by the piece and by the batch."""

    one: Callable[[bytes], int]
    many: Callable[[Sequence[bytes]], Hashes]
    small: int  #: the size from which on a batch is faster

    def numbers(self, urls: Sequence[str], queues: int) -> list[int]:
        """The hash of each URL, mod `queues`."""
        if len(urls) < self.small:
            return [self.one(url.encode()) % queues for url in urls]
        numbers: list[int] = (self.many([url.encode() for url in urls]) % queues).tolist()
        return numbers


_BKDR = _Hash(bkdr, bkdr_batch, _SMALL_BATCH)
_ELF = _Hash(elf, elf_batch, _SMALL_BATCH_ELF)
_SDBM = _Hash(sdbm, sdbm_batch, _SMALL_BATCH)


def _hashed(kind: str, function: _Hash, queues: int) -> Assign:
    """A policy that hashes whole URLs."""
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


def _by_own(name: str, function: Callable[..., object]) -> Assign:
    def key_of(url: str) -> QueueKey:
        whose = f"policy {name} for {shown(url)}"
        return QueueKey(check_name(call_own(function, url, whose), whose))

    def each(urls: Sequence[str]) -> list[QueueKey]:
        return [key_of(url) for url in urls]

    def batch(urls: Sequence[str]) -> list[QueueKey]:
        if not urls:
            return []
        whose = f"policy {name} for {len(urls)} URLs from {shown(urls[0])} on"
        keys = call_own(function, list(urls), whose)
        if not isinstance(keys, Sequence) or isinstance(keys, str) or len(keys) != len(urls):
            raise PolicyError(f"{whose} gave {shown(repr(keys))}; a list of as many keys is needed")
        pairs = zip(urls, keys, strict=True)
        return [QueueKey(check_name(key, f"policy {name} for {shown(url)}")) for url, key in pairs]

    return batch if getattr(function, "batch", False) else each


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
_HOSTS: dict[str, Callable[[QueueKey], str]] = {
    "host": host_of,
    "surt": host_of_surt_key,
    "domain": str,
    "parallel": _host_of_parallel,
}


class Balance(NamedTuple):
    """How many URLs came to how many queues."""

    urls: int
    queues: int  #: queues that got any
    longest: int  #: URLs of the longest

    @property
    def mean(self) -> float:
        """URLs per queue that got any; 0 if there are none."""
        return self.urls / self.queues if self.queues else 0.0

    @property
    def max_over_mean(self) -> float:
        """The longest queue in shares: 1 is perfect; the number of queues, if one has nearly all. 0 if there are none."""
        return self.longest / self.mean if self.queues else 0.0


def balance(keys: Iterable[QueueKey]) -> Balance:
    """The balance of an assignment, from the key of each URL. Cost: O(URLs)."""
    lengths = Counter(keys)
    return Balance(lengths.total(), len(lengths), max(lengths.values(), default=0))
