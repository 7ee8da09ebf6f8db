"""Connections through a SOCKS5 proxy (RFC 1928, user and password by RFC 1929). The proxy resolves the names.

Our own page of code, not aiohttp-socks: that makes its protocol object, its sockets and its look-ups itself, past the bounds of
`wire` and the resolver of the order.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import TYPE_CHECKING, Any, NamedTuple

from aiohttp.abc import ResolveResult

from anabranch.crawler.network.connector import Connector, Network, socket_factory
from anabranch.crawler.outcomes.failures import ProxyFailed

if TYPE_CHECKING:
    from aiohttp import ClientRequest, ClientTimeout
    from aiohttp.client_proto import ResponseHandler
    from aiohttp.connector import AddrInfoType

    from anabranch.crawler.network.dns import Resolver
    from anabranch.crawler.network.idle import IdleConnections

_NO_CREDENTIALS, _PASSWORD = 0, 2
#: Address type -> bytes of the address; a name has a byte of length before it.
_IPV4, _NAME, _IPV6 = 1, 3, 4
_ADDRESS_BYTES = {_IPV4: 4, _IPV6: 16}

_REPLIES = {
    1: "a general failure",
    2: "its rules do not allow it",
    3: "the network cannot be reached",
    4: "the host cannot be reached",
    5: "the connection was refused",
    6: "the time to live expired",
    7: "it cannot connect",
    8: "it does not know this type of address",
}


class SocksProxy(NamedTuple):
    """Where the proxy is, and who we are to it."""

    host: str
    port: int
    user: str = ""  #: empty = no credentials
    password: str = ""


class SocksConnector(Connector):
    """A connector that dials through one SOCKS5 proxy."""

    def __init__(self, resolver: Resolver, network: Network, idle: IdleConnections, proxy: SocksProxy) -> None:
        super().__init__(resolver, network, idle)
        self._proxy = proxy
        self._proxy_resolver = resolver
        self._make_socket = socket_factory(network)

    async def _resolve_host(self, host: str, port: int, traces: Any = None) -> list[ResolveResult]:
        """The name as it is: the proxy resolves it."""
        del traces
        return [ResolveResult(hostname=host, host=host, port=port, family=socket.AF_INET, proto=0, flags=0)]

    async def _wrap_create_connection(
        self,
        *args: Any,
        addr_infos: list[AddrInfoType],
        req: ClientRequest,
        timeout: ClientTimeout,  # noqa: ASYNC109 - the library's signature
        **kwargs: Any,
    ) -> tuple[asyncio.Transport, ResponseHandler]:
        host, port = str(addr_infos[0][4][0]), int(addr_infos[0][4][1])
        try:
            async with asyncio.timeout(timeout.sock_connect):
                connection = await self._through(host, port)
        except TimeoutError as error:
            raise ProxyFailed("the proxy was too slow") from error
        except OSError as error:
            raise ProxyFailed(f"the proxy cannot be reached: {error}") from error
        return await self._wrap_existing_connection(*args, req=req, timeout=timeout, sock=connection, **kwargs)

    async def _through(self, host: str, port: int) -> socket.socket:
        """A socket whose other end is the host's. Raises: ProxyFailed, OSError."""
        connection = await self._dialled()
        try:
            await self._greet(connection)
            await self._ask(connection, host, port)
        except BaseException:
            connection.close()
            raise
        return connection

    async def _dialled(self) -> socket.socket:
        """A connection to the first of the proxy's addresses that answers."""
        error = OSError("no address may be dialled")
        for address in await self._proxy_resolver.resolve(self._proxy.host):
            target = (address.host, address.port or self._proxy.port)
            try:
                connection = self._make_socket((address.family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", target))
            except OSError as failure:
                error = failure
                continue
            connection.setblocking(False)
            try:
                await self._loop.sock_connect(connection, target)
            except OSError as failure:
                connection.close()
                error = failure
            except BaseException:
                connection.close()
                raise
            else:
                return connection
        raise error

    async def _greet(self, connection: socket.socket) -> None:
        """Agree on a method; prove who we are if that is asked for."""
        method = _PASSWORD if self._proxy.user else _NO_CREDENTIALS
        await self._loop.sock_sendall(connection, bytes((5, 1, method)))
        version, chosen = await self._exactly(connection, 2)
        if version != 5:
            raise ProxyFailed("the proxy does not speak SOCKS5")
        if chosen != method:
            raise ProxyFailed("the proxy wants other credentials, or none")
        if method == _PASSWORD:
            user, password = self._proxy.user.encode(), self._proxy.password.encode()
            await self._loop.sock_sendall(connection, bytes((1, len(user))) + user + bytes((len(password),)) + password)
            if (await self._exactly(connection, 2))[1]:
                raise ProxyFailed("the proxy refuses the user or the password")

    async def _ask(self, connection: socket.socket, host: str, port: int) -> None:
        """Have it connect."""
        await self._loop.sock_sendall(connection, bytes((5, 1, 0)) + _written(host) + port.to_bytes(2, "big"))
        _, reply, _, kind = await self._exactly(connection, 4)
        if reply:
            raise ProxyFailed(f"the proxy does not connect: {_REPLIES.get(reply, f'reply {reply}')}")
        length = _ADDRESS_BYTES.get(kind) or (await self._exactly(connection, 1))[0]
        await self._exactly(connection, length + 2)

    async def _exactly(self, connection: socket.socket, size: int) -> bytes:
        """So many bytes, and not one more: what follows is the host's."""
        found = b""
        while len(found) < size:
            piece = await self._loop.sock_recv(connection, size - len(found))
            if not piece:
                raise ProxyFailed("the proxy closed the connection")
            found += piece
        return found


def _written(host: str) -> bytes:
    """A host as SOCKS5 has it."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        name = host.encode("idna" if not host.isascii() else "ascii")[:255]
        return bytes((_NAME, len(name))) + name
    return bytes((_IPV4 if address.version == 4 else _IPV6,)) + address.packed
