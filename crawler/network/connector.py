"""Where sockets are made: our resolver inside aiohttp, and the check of every address dialled.

aiohttp asks no resolver for an IP literal, and a name may resolve to anything. So the check stands in
the socket factory, which sees each address that a connection would go to, whenever a name was resolved.

Behind a proxy the socket goes to the proxy, which the operator chose, so its address may be private; it resolves the names, and
must itself refuse private addresses (see `crawler.fetching.proxies`).
"""

from __future__ import annotations

import errno
import ipaddress
import socket
from collections import OrderedDict
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, cast

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.connector import Connection

from anabranch.crawler.network.wire import DIAL, Dial, Wire
from anabranch.crawler.outcomes.errors import TOO_MANY_FILES

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp.client_proto import ResponseHandler
    from aiohttp.client_reqrep import ConnectionKey
    from aiohttp.connector import AddrInfoType

    from anabranch.crawler.network.dns import Resolver
    from anabranch.crawler.network.idle import IdleConnections

#: IPv6 addresses outside this block are no global unicast addresses: loopback, unspecified, mapped
#: IPv4, link-local, unique local, multicast (IANA IPv6 address space registry).
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")

#: Blocks that are not for the public (IANA special-purpose address registries, RFC 6890).
_NOT_PUBLIC: dict[int, tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]] = {
    4: tuple(
        ipaddress.IPv4Network(block)
        for block in (
            "0.0.0.0/8",  # unspecified, "this network"
            "10.0.0.0/8",  # private
            "100.64.0.0/10",  # carrier-grade NAT
            "127.0.0.0/8",  # loopback
            "169.254.0.0/16",  # link-local
            "172.16.0.0/12",  # private
            "192.0.0.0/24",  # protocol assignments
            "192.0.2.0/24",  # documentation
            "192.88.99.0/24",  # 6to4 relays
            "192.168.0.0/16",  # private
            "198.18.0.0/15",  # benchmarks
            "198.51.100.0/24",  # documentation
            "203.0.113.0/24",  # documentation
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, broadcast
        )
    ),
    6: tuple(
        ipaddress.IPv6Network(block)
        for block in (
            "2001::/23",  # protocol assignments, Teredo
            "2001:db8::/32",  # documentation
            "2002::/16",  # 6to4: an IPv4 address inside
            "3fff::/20",  # documentation
        )
    ),
}

#: The well-known prefix of NAT64: on a network without IPv4, DNS64 writes the site's IPv4 address behind it (RFC 6052).
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
#: The interface identifiers of ISATAP, with and without the universal bit: an IPv4 address follows (RFC 5214 section 6.1).
_ISATAP = frozenset({0x00005EFE, 0x02005EFE})

#: Idle connections are kept for as long as a host usually rests between two fetches.
KEEP_ALIVE_S = 30.0
#: No connection is kept to an origin for so long after one that was kept proved dead. Without this, a server that offers to
#: keep connections and closes each on the next request would cost a rest of its gate for every page.
DISTRUST_S = 600.0
MAX_DISTRUSTED = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Which connections may be made."""

    allow_private: bool = False  #: loopback and private addresses too
    tls_verify: bool = True  #: certificates must be valid
    ipv4: bool = True
    ipv6: bool = True
    max_busy: int = 0  #: connections with a fetch under way; who comes later waits; 0 = no limit
    connect_timeout_s: float | None = None  #: for one address: TCP and TLS


def is_public(address: str) -> bool:
    """True if the IP literal is a public unicast address.

    False for loopback, private, link-local, multicast, unspecified, reserved and carrier-grade NAT
    addresses, for those with a scope, and for IPv6 forms that hold an IPv4 address (mapped, compatible, 6to4,
    Teredo). An address of NAT64's well-known prefix or of ISATAP is as public as the IPv4 address in it.
    Raises: ValueError if it is no IP literal.
    """
    ip = ipaddress.ip_address(address)
    if ip.version == 6:
        inside = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if ip in _NAT64:
            return is_public(str(inside))
        if ip not in _GLOBAL_UNICAST or ip.scope_id is not None:
            return False
        if int(ip) >> 32 & 0xFFFFFFFF in _ISATAP and not is_public(str(inside)):
            return False
    return not any(ip in block for block in _NOT_PUBLIC[ip.version])


class Connector(aiohttp.TCPConnector):
    """Keep-alive, HTTP/1.1 only. How many connections a host gets is the Frontier's decision, how many wait that of `idle`.

    Whoever gets a connection gives it back (`leave`). The resolver stays the caller's to close.
    """

    def __init__(self, resolver: Resolver, network: Network, idle: IdleConnections) -> None:
        super().__init__(
            limit=network.max_busy,
            resolver=_HostResolver(resolver),
            use_dns_cache=False,
            keepalive_timeout=KEEP_ALIVE_S,
            socket_factory=socket_factory(network),
            ssl=network.tls_verify,
        )
        self._idle = idle
        self._distrusted: OrderedDict[ConnectionKey, float] = OrderedDict()  #: until when, oldest first
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=network.connect_timeout_s)
        self._factory = cast("partial[ResponseHandler]", partial(Wire, loop=self._loop, on_lost=idle.discard))

    def drop(self, key: ConnectionKey, connection: ResponseHandler) -> None:
        """Close a connection that waits, and forget it. O(connections that wait for its host), mostly O(1)."""
        waiting = self._conns.get(key)
        if waiting is not None:
            for place, (one, _) in enumerate(waiting):  # the first one, as a rule: the others came later
                if one is connection:
                    del waiting[place]
                    break
            if not waiting:
                del self._conns[key]
        connection.abort()

    def kept(self, key: ConnectionKey) -> Wire | None:
        """A connection that waits for its host's next fetch, if there is one that is not closed. O(1) for each that is."""
        waiting = self._conns.get(key)
        if waiting is None:
            return None
        found, oldest_s = None, monotonic() - KEEP_ALIVE_S
        while waiting and found is None:
            wire, since_s = waiting.popleft()
            self._idle.discard(wire)
            if wire.is_connected() and since_s >= oldest_s:
                self._acquired.add(wire)
                found = cast("Wire", wire)
            else:
                wire.close()
        if not waiting:
            del self._conns[key]
        return found

    async def connected(self, request: aiohttp.ClientRequest, dial: Dial) -> Wire:
        """A connection over which the request can be sent, TLS and a proxy's CONNECT behind it. It may have to wait for one.

        Raises: aiohttp's errors, what the resolver raises, ProxyFailed.
        """
        token = DIAL.set(dial)
        try:
            connection = await self.connect(request, [], self._timeout)
        except TimeoutError as error:
            raise aiohttp.ConnectionTimeoutError(f"Connection timeout to host {request.url}") from error
        finally:
            DIAL.reset(token)
        wire, connection._protocol = connection.protocol, None  # noqa: SLF001 - else aiohttp's object would close it
        assert isinstance(wire, Wire)
        return wire

    def leave(self, key: ConnectionKey, wire: Wire, *, is_over: bool) -> None:
        """Give a connection back. It is kept if the exchange `is_over`, all of the answer has come; else it is closed.

        It is closed, too, while its origin is not trusted with kept connections.
        """
        is_distrusted = bool(self._distrusted) and self._distrusted.get(key, 0.0) > monotonic()
        self._release(key, wire, should_close=is_distrusted or not is_over)

    def distrust(self, key: ConnectionKey) -> None:
        """A kept connection of this origin proved dead: close those that wait, and keep none for `DISTRUST_S`."""
        for wire, _ in self._conns.pop(key, ()):
            self._idle.discard(wire)
            wire.close()
        self._distrusted.pop(key, None)
        self._distrusted[key] = monotonic() + DISTRUST_S
        if len(self._distrusted) > MAX_DISTRUSTED:
            self._distrusted.popitem(last=False)

    async def _create_connection(self, req: aiohttp.ClientRequest, *args: Any) -> ResponseHandler:
        DIAL.get().is_fresh = True
        return await super()._create_connection(req, *args)

    async def _get(self, key: ConnectionKey, traces: list[Any]) -> Connection | None:
        del traces
        wire = self.kept(key)
        return None if wire is None else Connection(self, key, wire, self._loop)

    def _release(self, key: ConnectionKey, protocol: ResponseHandler, *, should_close: bool = False) -> None:
        super()._release(key, protocol, should_close=should_close)
        if protocol.transport is not None and not self._closed:  # not closed, so it is kept
            assert isinstance(protocol, Wire)
            protocol.rest()
            self._idle.add(protocol, self, key)


def socket_factory(network: Network) -> Callable[[AddrInfoType], socket.socket]:
    """What makes the socket for an address, or raises an OSError if the address may not be dialled."""
    families = {socket.AF_INET: network.ipv4, socket.AF_INET6: network.ipv6}

    def make(info: AddrInfoType) -> socket.socket:
        family, kind, proto, _, address = info
        host, dial = str(address[0]), DIAL.get()
        # OSErrors, since the dialler collects those and goes on to the next address.
        if not families.get(socket.AddressFamily(family), False):
            raise OSError(errno.EAFNOSUPPORT, f"{host} is of a family that the order has switched off")
        if not (network.allow_private or dial.is_proxied or is_public(host)):
            dial.refused = host
            raise OSError(errno.EACCES, f"{host} is not a public address")
        try:
            made = socket.socket(family, kind, proto)
        except OSError as error:
            dial.lacks_files = error.errno in TOO_MANY_FILES
            raise
        dial.made += 1
        dial.lacks_files = False
        return made

    return make


class _HostResolver(AbstractResolver):
    """Our resolver as aiohttp asks for it. Its errors pass through aiohttp as they are (no OSErrors)."""

    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        del family  # both families are wanted; the dialler races them (RFC 8305)
        return [
            ResolveResult(
                hostname=host,
                host=address.host,
                port=address.port or port,
                family=address.family,
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST,
            )
            for address in await self._resolver.resolve(host)
        ]

    async def close(self) -> None:
        """Nothing: the resolver is not ours."""
