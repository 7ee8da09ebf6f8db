"""Proxies: how operators write them, and the SOCKS5 handshake (RFC 1928; user and password: RFC 1929).

Behind a proxy the crawl sees no addresses: the proxy resolves the names, so it must itself refuse private addresses. The order
says that it does (`proxy_resolves`), or allows them. URLs with a private address as their host are still refused here
(`requests`). The handshake is our own code, because aiohttp-socks makes
sockets and look-ups itself, past the bounds of `connections` and the resolver of the order.
"""

from __future__ import annotations

import asyncio
import base64
import errno
import ipaddress
import os
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from urllib import request
from urllib.parse import unquote, urlsplit

from anabranch.crawler.outcomes.failures import ConnectFailed, FetchError, ProxyRefused, ServiceAway, proxy_service

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from anabranch.crawler.fetch.addresses import Address

    #: What `socket.getaddrinfo` returns for an address: family, kind, protocol, canonical name, host and port.
    AddrInfo = tuple[int, int, int, str, tuple[str, int]]

#: Scheme -> default port.
_PORTS = {"http": 80, "https": 443, "socks5": 1080}
#: RFC 1929: user and password have a length of one byte.
_MAX_CREDENTIAL_BYTES = 255

#: Methods of authentication.
_NO_CREDENTIALS, _PASSWORD = 0, 2
#: Address types, and the bytes of an address; a name is preceded by a byte with its length.
_IPV4, _NAME, _IPV6 = 1, 3, 4
_ADDRESS_BYTES = {_IPV4: 4, _IPV6: 16}

#: The reply of a proxy whose rules forbid the connection; the others concern the host.
_FORBIDDEN = 2
_REPLIES = {
    1: "a general failure",
    _FORBIDDEN: "its rules do not allow it",
    3: "the network cannot be reached",
    4: "the host cannot be reached",
    5: "the connection was refused",
    6: "the time to live expired",
    7: "it cannot connect",
    8: "it does not know this type of address",
}


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy, and our credentials for it."""

    scheme: str  #: http, https (TLS to the proxy), socks5
    host: str  #: without brackets
    port: int
    user: str = ""  #: empty = no credentials
    password: str = field(default="", repr=False)

    @property
    def is_socks(self) -> bool:
        """It speaks SOCKS5, not HTTP."""
        return self.scheme == "socks5"

    @property
    def url(self) -> str:
        """The proxy's URL without credentials."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    @property
    def refusal(self) -> str:
        """Why it answers 407."""
        return f"{'refuses the user or the password' if self.user else 'wants a user and a password'} (407)"

    def away(self, reason: str) -> ServiceAway:
        """The error for a proxy that cannot be reached."""
        return ServiceAway(proxy_service(self.url), reason)

    def headers(self) -> dict[str, str]:
        """The header with the credentials for an HTTP proxy; empty without a user."""
        return {"Proxy-Authorization": basic_auth(self.user, self.password)} if self.user else {}


@dataclass(frozen=True, slots=True)
class Proxies:
    """The proxies that may fetch a URL, in turn. From the environment: those of its scheme, but for the hosts of `no_proxy`."""

    listed: tuple[Proxy, ...] = ()
    by_scheme: tuple[tuple[str, Proxy], ...] = ()  #: of the environment
    exceptions: str = ""  #: the variable `no_proxy`

    def __iter__(self) -> Iterator[Proxy]:
        return iter((*self.listed, *(proxy for _, proxy in self.by_scheme)))

    def of(self, url: str) -> tuple[Proxy, ...]:
        """Those for an absolute URL; none: its host is asked directly. Cost: some µs with those of the environment."""
        if not self.by_scheme:
            return self.listed
        scheme, _, rest = url.partition("://")
        proxy = dict(self.by_scheme).get(scheme)
        if proxy is None:
            return ()
        host = re.split(r"[/?#]", rest, maxsplit=1)[0].rpartition("@")[2]
        is_exempt = request.proxy_bypass_environment(host, {"no": self.exceptions})  # type: ignore[attr-defined]
        return () if is_exempt else (proxy,)


#: In place of a proxy's URL: the variables that other programs use.
ENVIRONMENT = "env"


def parse_proxies(texts: Sequence[str], passwords: Sequence[str] = ()) -> Proxies:
    """Parse proxies' URLs, with a password for each or none; `env` alone takes those of the variables HTTP_PROXY, HTTPS_PROXY,
    ALL_PROXY and NO_PROXY, in either case.

    Raises: ValueError, one line that shows no password.
    """
    if list(texts) != [ENVIRONMENT]:
        given = [*passwords, *[""] * len(texts)]
        return Proxies(tuple(parse_proxy(text, password) for text, password in zip(texts, given, strict=False)))
    named = request.getproxies_environment()
    found = {}
    for scheme in ("http", "https"):
        if text := named.get(scheme) or named.get("all"):
            try:
                found[scheme] = _with_its_password(text)
            except ValueError as error:
                raise ValueError(f"env: the variable for {scheme} {error}") from error
    return Proxies((), tuple(found.items()), named.get("no", ""))


def _with_its_password(text: str) -> Proxy:
    """A proxy of the environment, where URLs may hold a password and lack a scheme. Raises: ValueError without the text."""
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        bare = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl().replace("socks5h://", "socks5://")
        proxy = parse_proxy(bare)
    except ValueError:  # its message may have the text
        raise ValueError("is no URL of a proxy") from None
    return replace(proxy, user=unquote(parts.username or ""), password=unquote(parts.password or ""))


def system_message(error: Exception) -> str:
    """The system's message for a failed connection, such as `connection refused`; empty if the error is another one. Pure."""
    if not isinstance(error, OSError):
        return ""
    text = os.strerror(error.errno) if error.errno is not None and error.errno in errno.errorcode else ""
    is_systems = error.strerror == text or (error.strerror or "").startswith("Connect call failed")  # asyncio's text
    return text[:1].lower() + text[1:] if is_systems else ""


def parse_proxy(text: str, password: str = "") -> Proxy:
    """Parse a proxy's URL. Raises: ValueError, one line that shows no password."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"is no URL of a proxy: {error}") from error
    if parts.password is not None:
        raise ValueError("must not hold a password; name its variable in the key with _password_env")
    if parts.scheme not in _PORTS or not parts.hostname or parts.path.strip("/") or parts.query or parts.fragment:
        raise ValueError(f"must be like http://host:3128 or socks5://host:1080; not {text!r}")
    user = unquote(parts.username or "")
    if max(len(user.encode()), len(password.encode())) > _MAX_CREDENTIAL_BYTES:
        raise ValueError(f"user and password may have {_MAX_CREDENTIAL_BYTES} bytes")
    return Proxy(parts.scheme, parts.hostname, port or _PORTS[parts.scheme], user, password)


def basic_auth(user: str, password: str) -> str:
    """The value of Authorization or Proxy-Authorization (RFC 7617, UTF-8)."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


async def connect_through_socks(
    proxy: Proxy,
    resolve: Callable[[str], Awaitable[Sequence[Address]]],
    make_socket: Callable[[AddrInfo], socket.socket],
    host: str,
    port: int,
    timeout_s: float | None,
) -> socket.socket:
    """Connect to a host through a SOCKS5 proxy, by its first address that accepts, within `timeout_s` (None = no limit).

    Raises: ServiceAway if the proxy cannot be reached, ProxyRefused if it wants none of us, ConnectFailed of the host.
    """
    until_s = None if timeout_s is None else asyncio.get_running_loop().time() + timeout_s
    try:
        async with asyncio.timeout_at(until_s):
            connection = await _reach(proxy, resolve, make_socket)
    except TimeoutError as error:
        raise proxy.away("it was too slow") from error
    except OSError as error:
        raise proxy.away(f"it cannot be reached: {system_message(error) or error}") from error
    try:
        async with asyncio.timeout_at(until_s):
            await _request_connection(connection, proxy, host, port)
    except TimeoutError as error:
        connection.close()
        raise ConnectFailed("the proxy was too slow to connect") from error
    except OSError as error:
        connection.close()
        raise ConnectFailed(f"the proxy does not connect: {system_message(error) or error}") from error
    except BaseException:
        connection.close()
        raise
    return connection


async def _reach(
    proxy: Proxy,
    resolve: Callable[[str], Awaitable[Sequence[Address]]],
    make_socket: Callable[[AddrInfo], socket.socket],
) -> socket.socket:
    """Connect to the proxy itself, and be let in. Raises: OSError, ServiceAway, ProxyRefused."""
    error = OSError("no address may be dialled")
    try:
        addresses = await resolve(proxy.host)
    except FetchError as failure:
        raise proxy.away(str(failure)) from failure
    for address in addresses:
        target = (address.host, address.port or proxy.port)
        try:
            connection = make_socket((address.family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", target))
        except OSError as failure:
            error = failure
            continue
        try:
            connection.setblocking(False)
            try:
                await asyncio.get_running_loop().sock_connect(connection, target)
            except OSError as failure:
                connection.close()
                error = failure
                continue
            await _authenticate(connection, proxy)
        except BaseException:
            connection.close()
            raise
        return connection
    raise error


async def _authenticate(connection: socket.socket, proxy: Proxy) -> None:
    """Agree on a method, and send user and password if there are any."""
    loop = asyncio.get_running_loop()
    method = _PASSWORD if proxy.user else _NO_CREDENTIALS
    await loop.sock_sendall(connection, bytes((5, 1, method)))
    version, chosen = await _read_exactly(connection, 2)
    if version != 5:
        raise proxy.away("it does not speak SOCKS5")
    if chosen != method:
        raise ProxyRefused(proxy.url, "wants other credentials, or none")
    if method == _PASSWORD:
        user, password = proxy.user.encode(), proxy.password.encode()
        await loop.sock_sendall(connection, bytes((1, len(user))) + user + bytes((len(password),)) + password)
        if (await _read_exactly(connection, 2))[1]:
            raise ProxyRefused(proxy.url, "refuses the user or the password")


async def _request_connection(connection: socket.socket, proxy: Proxy, host: str, port: int) -> None:
    """Request the connection to the host, and read the whole reply. Raises: ConnectFailed, ProxyRefused, OSError."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        name = host.encode("idna" if not host.isascii() else "ascii")[:255]
        target = bytes((_NAME, len(name))) + name
    else:
        target = bytes((_IPV4 if address.version == 4 else _IPV6,)) + address.packed
    await asyncio.get_running_loop().sock_sendall(connection, bytes((5, 1, 0)) + target + port.to_bytes(2, "big"))
    _, reply, _, kind = await _read_exactly(connection, 4)
    if reply == _FORBIDDEN:
        raise ProxyRefused(proxy.url, f"does not connect: {_REPLIES[reply]}", is_rule=True)
    if reply:
        raise ConnectFailed(f"the proxy does not connect: {_REPLIES.get(reply, f'reply {reply}')}")
    length = _ADDRESS_BYTES.get(kind) or (await _read_exactly(connection, 1))[0]
    await _read_exactly(connection, length + 2)


async def _read_exactly(connection: socket.socket, size: int) -> bytes:
    """Read so many bytes and no more: the next ones are the host's."""
    found = b""
    while len(found) < size:
        piece = await asyncio.get_running_loop().sock_recv(connection, size - len(found))
        if not piece:
            raise ConnectionResetError("the proxy closed the connection")
        found += piece
    return found
