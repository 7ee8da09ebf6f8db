"""Resolves hosts to addresses: by the order's [hosts] table, from an IP literal, or by DNS.

c-ares asks the name servers (through aiodns); it reads the hosts file and answers `localhost` itself. Answers are cached, and
workers share one lookup of a host. Addresses are sorted by RFC 6724, with alternating families (RFC 8305).
"""

from __future__ import annotations

import asyncio
import socket
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import aiodns
import pycares

from anabranch.crawler.fetch.addresses import (
    Address,
    AddressRecord,
    Lookup,
    ResolverOptions,
    hosts_key,
    interleaved,
    ip_literal,
    parse_address,
)
from anabranch.crawler.outcomes.failures import NameNotFound, NameTimeout

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    NameFailure = type[NameNotFound] | type[NameTimeout]

#: c-ares codes that are final: no such name, or an impossible one. All others are a `NameTimeout`.
FINAL_CODES: dict[int, NameFailure] = {
    aiodns.error.ARES_ENOTFOUND: NameNotFound,
    aiodns.error.ARES_ENODATA: NameNotFound,
    aiodns.error.ARES_ENONAME: NameNotFound,
    aiodns.error.ARES_EBADNAME: NameNotFound,
}
#: How long a failure is cached. A `NameTimeout` is tried again after 10 s, which must be a new lookup.
FAILURE_TTL_S: dict[NameFailure, float] = {NameNotFound: 30.0, NameTimeout: 5.0}

#: The most hosts in the cache.
MAX_HOSTS = 10_000
#: The most addresses of a host: a hostile answer has thousands, and each would be tried.
MAX_ADDRESSES = 16
#: The most lookups that wait for `take_lookup`.
MAX_UNTAKEN = 1000

#: Queries per name server; c-ares waits twice as long for the second.
TRIES = 2

#: The most lookups at once in a channel of their own. Each takes a thread and two sockets.
MAX_ISOLATED = 16

_DNS_PORT = 53

Value = TypeVar("Value")


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

    `servers` are name servers as IP[:PORT] (none: the system's); `hosts` maps names, or `*.NAME` for all below NAME, to
    IP[:PORT] and has precedence. `clock` gives epoch seconds. A lookup takes at most 3 x `timeout_s` + 1 s.

    c-ares closes the socket that received a malformed answer, and so fails all lookups under way. So each of them is repeated
    in its own channel, `MAX_ISOLATED` at a time. Raises: ValueError if a server or an address of the table is not IP[:PORT].
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
        self._servers = [_server(text) for text in servers]
        self._hosts = {hosts_key(name): (parse_address(text),) for name, text in hosts.items()}
        self._has_wildcards = any(name.startswith("*.") for name in self._hosts)
        self._clock = clock
        self._timeout_s = timeout_s
        self._options = options
        self._untaken: OrderedDict[str, Lookup] = OrderedDict()
        self._cache: OrderedDict[str, _Answer] = OrderedDict()
        self._lookups: dict[str, asyncio.Task[_Answer]] = {}
        self._ares: aiodns.DNSResolver | None = None
        self._isolated = asyncio.Semaphore(MAX_ISOLATED)
        self._channels: set[aiodns.DNSResolver] = set()  # open ones
        self._closed = False
        self.lookups = 0  #: that name servers were asked for
        self.failures = 0  #: of these, without an address
        self.cache_hits = 0  #: hosts whose answer was cached

    async def resolve(self, host: str) -> tuple[Address, ...]:
        """The host's addresses, at least one, best first, with alternating families. Raises: NameNotFound, NameTimeout.

        Cost: O(1) if cached; else one lookup, shared with all callers. A caller's cancellation does not cancel it for others.
        """
        host = host.lower()
        literal = ip_literal(host)
        fixed = self._fixed(host) or (literal and (literal,))
        if fixed:
            wanted = tuple(filter(self._options.wants, fixed))
            if not wanted:
                off = "IPv4" if fixed[0].family == socket.AF_INET else "IPv6"
                raise NameNotFound(f"no address for {host}: {off} is switched off")
            return wanted
        answer = self._cached(host)
        if answer is None:
            if (task := self._lookups.get(host)) is None:
                task = self._lookups[host] = asyncio.create_task(self._look_up(host), name=f"dns {host}")
            answer = await asyncio.shield(task)
        else:
            self.cache_hits += 1
        if answer.failure is not None:
            raise answer.failure(answer.reason)
        return answer.addresses

    def known_address(self, host: str) -> str | None:
        """A cached address of the host, expired or not, always the same of several; None without one. Asks no server. O(1)."""
        host = host.lower()
        if fixed := self._fixed(host):
            return fixed[0].host
        if literal := ip_literal(host):
            return literal.host
        answer = self._cache.get(host)
        return None if answer is None else min((address.host for address in answer.addresses), default=None)

    def _fixed(self, host: str) -> tuple[Address] | None:
        """The entry of the [hosts] table: for the name, else for the longest wildcard. O(labels)."""
        host = hosts_key(host)
        fixed = self._hosts.get(host)
        if fixed is not None or not self._has_wildcards:
            return fixed
        while (dot := host.find(".")) >= 0:
            host = host[dot + 1 :]
            if (fixed := self._hosts.get(f"*.{host}")) is not None:
                return fixed
        return None

    def take_lookup(self, host: str) -> Lookup | None:
        """Remove and return the last DNS lookup of the host, to log and archive it; None if it was taken or dropped. O(1)."""
        return self._untaken.pop(host.lower(), None)

    async def close(self) -> None:
        """End all lookups (their callers get `NameTimeout`) and wait for their tasks."""
        self._closed = True
        for channel in list(self._channels):
            await channel.close()
        await asyncio.gather(*self._lookups.values())

    def _cached(self, host: str) -> _Answer | None:
        answer = self._cache.get(host)
        if answer is None or self._clock() >= answer.until_s:
            return None
        self._cache.move_to_end(host)
        return answer

    async def _look_up(self, host: str) -> _Answer:
        """Look up and cache. Never raises, since all its callers may have been cancelled."""
        try:
            start_s = self._clock()
            answer = await self._ask_servers(host)
            self.lookups += 1
            self.failures += answer.failure is not None
            _store(self._cache, host, answer, MAX_HOSTS)
            made = Lookup(host=host, start_s=start_s, end_s=self._clock(), records=answer.records, reason=answer.reason)
            _store(self._untaken, host, made, MAX_UNTAKEN)
            return answer
        finally:
            del self._lookups[host]

    async def _ask_servers(self, host: str) -> _Answer:
        if self._closed:
            return self._failed(host, NameTimeout, "the resolver is closed")
        try:
            if self._ares is None:
                self._ares = self._new_channel()
            try:
                found = await self._query(self._ares, host)
            except aiodns.error.DNSError as error:
                if error.args[0] != aiodns.error.ARES_EBADRESP or self._closed:
                    raise
                found = await self._query_isolated(host)
        except aiodns.error.DNSError as error:
            code, message = error.args
            return self._failed(host, FINAL_CODES.get(code, NameTimeout), message)
        except pycares.AresError as error:  # no channel could be made: no descriptors, no memory
            return self._failed(host, NameTimeout, str(error))
        except TimeoutError:
            return self._failed(host, NameTimeout, "no answer in time")
        except UnicodeError:
            return self._failed(host, NameNotFound, "not a host name")
        if not found.nodes:
            return self._failed(host, NameNotFound, "an answer without addresses")
        return self._found(found)

    async def _query(self, channel: aiodns.DNSResolver, host: str) -> pycares.AddrInfoResult:
        """Raises: DNSError, AresError, TimeoutError, UnicodeError."""
        async with asyncio.timeout(3 * self._timeout_s + 1):
            return await channel.getaddrinfo(host, family=self._options.family)

    async def _query_isolated(self, host: str) -> pycares.AddrInfoResult:
        """Look up through sockets of its own. Raises: as `_query`."""
        async with self._isolated:
            if self._closed:
                raise TimeoutError
            channel = self._new_channel()
            try:
                return await self._query(channel, host)
            finally:
                self._channels.discard(channel)
                await channel.close()

    def _new_channel(self) -> aiodns.DNSResolver:
        # A crawled name is fully qualified: the system's search domains must not be appended.
        channel = aiodns.DNSResolver(
            nameservers=self._servers, timeout=self._timeout_s, tries=TRIES, flags=pycares.ARES_FLAG_NOSEARCH
        )
        self._channels.add(channel)
        return channel

    def _found(self, found: pycares.AddrInfoResult) -> _Answer:
        texts = ((node.addr[0], node.ttl) for node in found.nodes)
        ttls = {
            parse_address(text.decode("ascii") if isinstance(text, bytes) else text).host: ttl_s
            for text, ttl_s in texts
        }
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
            until_s=self._clock() + FAILURE_TTL_S[failure], failure=failure, reason=f"no address for {host}: {reason}"
        )


def _store(table: OrderedDict[str, Value], host: str, value: Value, most: int) -> None:
    table[host] = value
    table.move_to_end(host)
    if len(table) > most:
        table.popitem(last=False)


def _server(text: str) -> str:
    address = parse_address(text)
    host = f"[{address.host}]" if address.family == socket.AF_INET6 else address.host
    return f"{host}:{address.port or _DNS_PORT}"
