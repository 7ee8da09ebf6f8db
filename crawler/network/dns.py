"""The addresses of a host: from the order's table, from the literal itself, or from DNS.

c-ares does the asking (through aiodns): it reads the hosts file and answers `localhost` by itself.
Around it stand a cache and single flight: however many workers ask for a host, one lookup is under way. c-ares sorts what it
finds by RFC 6724; the families then take turns (RFC 8305).
"""

from __future__ import annotations

import asyncio
import socket
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import aiodns
import pycares

from crawler.network.addresses import Address, interleaved, ip_literal, parse_address
from crawler.network.lookups import AddressRecord, Lookup, ResolverOptions
from crawler.outcomes.failures import NameNotFound, NameTimeout

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    NameFailure = type[NameNotFound] | type[NameTimeout]

#: c-ares codes that end the matter: no such name, or a name that cannot be one.
#: All other codes (time-out, SERVFAIL, a server that refuses, babbles or is not there) are a `NameTimeout`.
FINAL_CODES: dict[int, NameFailure] = {
    aiodns.error.ARES_ENOTFOUND: NameNotFound,
    aiodns.error.ARES_ENODATA: NameNotFound,
    aiodns.error.ARES_ENONAME: NameNotFound,
    aiodns.error.ARES_EBADNAME: NameNotFound,
}

#: How long a failure is kept. A `NameTimeout` is tried again after 10 s, which must be a new question.
FAILURE_TTL_S: dict[NameFailure, float] = {NameNotFound: 30.0, NameTimeout: 5.0}

#: Hosts that the cache holds.
MAX_HOSTS = 10_000
#: Addresses of a host that are kept: a hostile answer has thousands, and each would be dialled.
MAX_ADDRESSES = 16
#: Lookups that are kept for whoever notes them.
MAX_UNTAKEN = 1000

#: Questions per name server; c-ares doubles the wait of the second.
TRIES = 2

_DNS_PORT = 53

Kept = TypeVar("Kept")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    until_s: float  #: epoch seconds, good until then
    addresses: tuple[Address, ...] = ()
    records: tuple[AddressRecord, ...] = ()
    failure: NameFailure | None = None
    reason: str = ""  #: the failure's message


_BOTH_FAMILIES = ResolverOptions()


class Resolver:
    """Resolves host names; one object per crawl, used inside one event loop.

    `servers` are name servers as IP[:PORT] (none: the system's); `hosts` maps names to IP[:PORT] and
    is asked first. `clock` gives epoch seconds. A lookup of a silent server takes 3 x `timeout_s`, any
    lookup at most 1 s more.

    Raises: ValueError if a server or an address of the table is not IP[:PORT].
    """

    def __init__(
        self,
        servers: Sequence[str],
        hosts: Mapping[str, str],
        *,
        clock: Callable[[], float],
        timeout_s: float = 3.0,
        options: ResolverOptions = _BOTH_FAMILIES,
    ) -> None:
        self._servers = [_server(parse_address(text)) for text in servers]
        self._hosts = {name.lower(): (parse_address(text),) for name, text in hosts.items()}
        self._clock = clock
        self._timeout_s = timeout_s
        self._options = options
        self._untaken: OrderedDict[str, Lookup] = OrderedDict()
        self._cache: OrderedDict[str, _Answer] = OrderedDict()
        self._lookups: dict[str, asyncio.Task[_Answer]] = {}
        self._ares: aiodns.DNSResolver | None = None
        self._closed = False

    async def resolve(self, host: str) -> tuple[Address, ...]:
        """The host's addresses, at least one, best first, families in turn. IP literals are answered as they are.

        Raises: NameNotFound, NameTimeout. Cost: O(1) if known; else one lookup, shared with all who
        ask meanwhile. A cancelled caller does not stop it for the others.
        """
        host = host.lower()
        literal = ip_literal(host)
        fixed = self._hosts.get(host) or (literal and (literal,))
        if fixed:
            return self._wanted(host, fixed)
        answer = self._cached(host)
        if answer is None:
            answer = await asyncio.shield(self._lookup(host))
        if answer.failure is not None:
            raise answer.failure(answer.reason)
        return answer.addresses

    def known_address(self, host: str) -> str | None:
        """One of the addresses that the host was last found at, without asking anyone; None if there are none. O(1).

        Of several it is always the same one, in whatever order a server gives them.
        """
        host = host.lower()
        fixed = self._hosts.get(host)
        if fixed is not None:
            return fixed[0].host
        literal = ip_literal(host)
        if literal is not None:
            return literal.host
        answer = self._cache.get(host)
        return None if answer is None else min((address.host for address in answer.addresses), default=None)

    def take_lookup(self, host: str) -> Lookup | None:
        """The last lookup of the host that was really made, if nobody took it before; for who notes lookups. O(1).

        Lookups of more than `MAX_UNTAKEN` hosts that nobody takes are forgotten, the oldest first.
        """
        return self._untaken.pop(host.lower(), None)

    async def close(self) -> None:
        """End all lookups (their callers get `NameTimeout`) and leave no task behind."""
        self._closed = True
        if self._ares is not None:
            await self._ares.close()
        await asyncio.gather(*self._lookups.values())

    def _wanted(self, host: str, addresses: tuple[Address, ...]) -> tuple[Address, ...]:
        wanted = tuple(filter(self._options.wants, addresses))
        if not wanted:
            off = "IPv4" if addresses[0].family == socket.AF_INET else "IPv6"
            raise NameNotFound(f"no address for {host}: {off} is switched off")
        return wanted

    def _cached(self, host: str) -> _Answer | None:
        answer = self._cache.get(host)
        if answer is None or self._clock() >= answer.until_s:
            return None
        self._cache.move_to_end(host)
        return answer

    def _lookup(self, host: str) -> asyncio.Task[_Answer]:
        task = self._lookups.get(host)
        if task is None:
            task = self._lookups[host] = asyncio.create_task(self._look_up(host), name=f"dns {host}")
        return task

    async def _look_up(self, host: str) -> _Answer:
        """One lookup: asked, kept, and never raised, since its callers may all be gone."""
        try:
            start_s = self._clock()
            answer = await self._ask(host)
            _keep(self._cache, host, answer, MAX_HOSTS)
            made = Lookup(host=host, start_s=start_s, end_s=self._clock(), records=answer.records, reason=answer.reason)
            _keep(self._untaken, host, made, MAX_UNTAKEN)
            return answer
        finally:
            del self._lookups[host]

    async def _ask(self, host: str) -> _Answer:
        if self._closed:
            return self._failed(host, NameTimeout, "the resolver is closed")
        try:
            async with asyncio.timeout(3 * self._timeout_s + 1):
                found = await self._channel().getaddrinfo(host, family=self._options.family)
        except aiodns.error.DNSError as error:
            code, words = error.args
            return self._failed(host, FINAL_CODES.get(code, NameTimeout), words)
        except pycares.AresError as error:  # no channel could be made: no descriptors, no memory
            return self._failed(host, NameTimeout, str(error))
        except TimeoutError:
            return self._failed(host, NameTimeout, "no answer in time")
        except UnicodeError:
            return self._failed(host, NameNotFound, "not a host name")
        if not found.nodes:
            return self._failed(host, NameNotFound, "an answer without addresses")
        return self._found(found)

    def _channel(self) -> aiodns.DNSResolver:
        if self._ares is None:
            # A crawled name is a whole name: the system's search domains must not answer for it.
            self._ares = aiodns.DNSResolver(
                nameservers=self._servers,
                timeout=self._timeout_s,
                tries=TRIES,
                flags=pycares.ARES_FLAG_NOSEARCH,
            )
        return self._ares

    def _found(self, found: pycares.AddrInfoResult) -> _Answer:
        ttls = {parse_address(_text(node.addr[0])).host: node.ttl for node in found.nodes}
        ttl_s = min([*ttls.values(), *(name.ttl for name in found.cnames)])
        addresses = interleaved(map(parse_address, ttls))[:MAX_ADDRESSES]
        kinds = {socket.AF_INET: "A", socket.AF_INET6: "AAAA"}
        return _Answer(
            until_s=self._clock() + min(max(ttl_s, self._options.min_ttl_s), self._options.max_ttl_s),
            addresses=addresses,
            records=tuple(AddressRecord(kinds[one.family], one.host, ttls[one.host]) for one in addresses),
        )

    def _failed(self, host: str, failure: NameFailure, reason: str) -> _Answer:
        return _Answer(
            until_s=self._clock() + FAILURE_TTL_S[failure],
            failure=failure,
            reason=f"no address for {host}: {reason}",
        )


def _keep(table: OrderedDict[str, Kept], host: str, value: Kept, most: int) -> None:
    table[host] = value
    table.move_to_end(host)
    if len(table) > most:
        table.popitem(last=False)


def _server(address: Address) -> str:
    host = f"[{address.host}]" if address.family == socket.AF_INET6 else address.host
    return f"{host}:{address.port or _DNS_PORT}"


def _text(host: bytes | str) -> str:
    return host.decode("ascii") if isinstance(host, bytes) else host
