"""Assignment policies: which work queue a URL goes to, and whose gate it passes.

A policy is a function from a batch of URLs to their queues' keys. The order names it:

    host                      host[:port]
    surt                      the same turned round, as Heritrix writes it: com,example,www,#8080
    domain                    the registrable domain by the public suffix list; the host if it has none
    ip                        the host's address; the host while it is not known
    bucket:N                  BKDR of the host, mod N
    bkdr:N  elf:N  sdbm:N     that hash of the whole URL, mod N; a prime N spreads best
    parallel:N                N queues per host[:port]: BKDR of the whole URL mod N behind a plus, none for 0
    length:N                  the URL's length in characters, mod N; for experiments only
    package.module:function   a function of one's own: URL to key, or, if its attribute `batch` is true, URLs to keys

A gate's key is the lower-case host without port or scheme.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from functools import lru_cache, partial
from typing import NamedTuple

from anabranch.frontier.errors import PolicyError
from anabranch.frontier.models import QueueKey
from anabranch.frontier.policies.authority import KEPT, IpOf, address_of, authority, host_of
from anabranch.frontier.policies.domains import domain_of
from anabranch.frontier.policies.hashes import Hashes, bkdr, bkdr_batch, elf, elf_batch, sdbm, sdbm_batch
from anabranch.frontier.policies.names import check_name
from anabranch.frontier.policies.ownfunctions import Import, call_own, is_own, own_function, shown
from anabranch.frontier.policies.sheets import Sheets
from anabranch.frontier.policies.surt import host_of_surt_key, surt_key

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
    if is_own(name):
        return _by_own(name, own_function(name, "policy", imported))
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
