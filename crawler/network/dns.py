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

from anabranch.crawler.network.addresses import Address, hosts_key, interleaved, ip_literal, parse_address
from anabranch.crawler.network.lookups import AddressRecord, Lookup, ResolverOptions
from anabranch.crawler.outcomes.failures import NameNotFound, NameTimeout

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

#: Lookups that run at once in a channel of their own. Each takes a thread and two sockets while it runs.
MAX_ALONE = 16

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
    is asked first; `*.NAME` stands for every name below NAME.
    `clock` gives epoch seconds. A lookup of a silent server takes 3 x `timeout_s`, any
    lookup at most 1 s more.

    A malformed answer fails only the name that it answers. c-ares drops the socket that the answer came through, and with it
    all questions under way; it names no culprit. So every name that fails in this way is asked again in a channel of its own,
    `MAX_ALONE` at a time, and takes as long again.

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
        self._hosts = {hosts_key(name): (parse_address(text),) for name, text in hosts.items()}
        self._has_wildcards = any(name.startswith("*.") for name in self._hosts)
        self._clock = clock
        self._timeout_s = timeout_s
        self._options = options
        self._untaken: OrderedDict[str, Lookup] = OrderedDict()
        self._cache: OrderedDict[str, _Answer] = OrderedDict()
        self._lookups: dict[str, asyncio.Task[_Answer]] = {}
        self._ares: aiodns.DNSResolver | None = None
        self._alone = asyncio.Semaphore(MAX_ALONE)
        self._channels: set[aiodns.DNSResolver] = set()  # open ones
        self._closed = False

    async def resolve(self, host: str) -> tuple[Address, ...]:
        """The host's addresses, at least one, best first, families in turn. IP literals are answered as they are.

        Raises: NameNotFound, NameTimeout. Cost: O(1) if known; else one lookup, shared with all who
        ask meanwhile. A cancelled caller does not stop it for the others.
        """
        host = host.lower()
        literal = ip_literal(host)
        fixed = self._fixed(host) or (literal and (literal,))
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
        fixed = self._fixed(host)
        if fixed is not None:
            return fixed[0].host
        literal = ip_literal(host)
        if literal is not None:
            return literal.host
        answer = self._cache.get(host)
        return None if answer is None else min((address.host for address in answer.addresses), default=None)

    def _fixed(self, host: str) -> tuple[Address] | None:
        """The table's entry: of the name itself, else of the longest wildcard above it. O(labels)."""
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
        """The last lookup of the host that was really made, if nobody took it before; for who notes lookups. O(1).

        Lookups of more than `MAX_UNTAKEN` hosts that nobody takes are forgotten, the oldest first.
        """
        return self._untaken.pop(host.lower(), None)

    async def close(self) -> None:
        """End all lookups (their callers get `NameTimeout`) and leave no task behind."""
        self._closed = True
        for channel in list(self._channels):
            await channel.close()
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
            if self._ares is None:
                self._ares = self._new_channel()
            try:
                found = await self._ask_through(self._ares, host)
            except aiodns.error.DNSError as error:
                if error.args[0] != aiodns.error.ARES_EBADRESP or self._closed:
                    raise
                found = await self._ask_alone(host)
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

    async def _ask_through(self, channel: aiodns.DNSResolver, host: str) -> pycares.AddrInfoResult:
        """Raises: DNSError, AresError, TimeoutError, UnicodeError."""
        async with asyncio.timeout(3 * self._timeout_s + 1):
            return await channel.getaddrinfo(host, family=self._options.family)

    async def _ask_alone(self, host: str) -> pycares.AddrInfoResult:
        """Ask through sockets that no other question uses. Raises: as `_ask_through`."""
        async with self._alone:
            if self._closed:
                raise TimeoutError
            channel = self._new_channel()
            try:
                return await self._ask_through(channel, host)
            finally:
                self._channels.discard(channel)
                await channel.close()

    def _new_channel(self) -> aiodns.DNSResolver:
        # A crawled name is a whole name: the system's search domains must not answer for it.
        channel = aiodns.DNSResolver(
            nameservers=self._servers, timeout=self._timeout_s, tries=TRIES, flags=pycares.ARES_FLAG_NOSEARCH
        )
        self._channels.add(channel)
        return channel

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
