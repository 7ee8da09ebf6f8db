"""Whether what every fetch needs can be reached: a route, other hosts, a proxy. Each look is bounded by `PATIENCE_S`.

A failed fetch does not tell whose fault it was. These looks tell the host's trouble from that of this machine's network or of
the proxy, and find out when it is over.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from typing import TYPE_CHECKING

from anabranch.crawler.fetch.proxy import connect_through_socks, system_message
from anabranch.crawler.outcomes.errors import TOO_MANY_FILES
from anabranch.crawler.outcomes.failures import ConnectFailed, ProxyRefused, ServiceAway

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from anabranch.crawler.fetch.addresses import Address
    from anabranch.crawler.fetch.proxy import Proxy

#: How long one look waits.
PATIENCE_S = 5.0
#: The root server a, which any machine with a default route has a route to.
_ANYWHERE = ("198.41.0.4", "2001:503:ba3e::2:30")
#: Errors that an answer has caused: there is a way to the other end.
_ANSWERED = (ConnectionRefusedError, ConnectionResetError)

#: Host and port.
Place = tuple[str, int]

#: "HTTP/1.1 502", and the statuses of a proxy that reaches nothing (RFC 9110 section 15.6).
_STATUS_BYTES = 12
_REACHES_NOTHING = frozenset({"502", "503", "504"})


def has_route(places: Iterable[Place]) -> bool:
    """Whether the system has a route to one of these places, or to anywhere. Sends nothing."""
    return any(map(_is_routed, [host for host, _ in places])) or any(map(_is_routed, _ANYWHERE))


def _is_routed(host: str) -> bool:
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, 53))  # UDP: it only looks for a route
    except OSError as error:
        return error.errno in TOO_MANY_FILES or error.errno in {errno.EACCES, errno.EPERM}
    return True


async def is_anybody_there(places: Sequence[Place]) -> bool:
    """Whether one of these places accepts or refuses a connection; False if all are silent."""
    looks = [asyncio.create_task(_answers(*place)) for place in places]
    try:
        for look in asyncio.as_completed(looks):
            if await look:
                return True
        return False
    finally:
        for task in looks:
            task.cancel()


async def _answers(host: str, port: int) -> bool:
    try:
        await _connect(host, port)
    except _ANSWERED:
        return True
    except (OSError, TimeoutError):
        return False
    return True


async def proxy_fault(proxy: Proxy, resolve: Callable[[str], Awaitable[Sequence[Address]]], *, verify: bool) -> str:
    """Why no connection to the proxy can be made, its TLS included; empty if one can. Raises: FetchError of its name."""
    context = _context(verify=verify) if proxy.scheme == "https" else None
    fault = "it has no address"
    for address in await resolve(proxy.host):
        try:
            await _connect(address.host, address.port or proxy.port, context, proxy.host)
        except (OSError, TimeoutError) as error:
            fault = system_message(error) or str(error) or "it does not answer"
        else:
            return ""
    return fault


async def tunnel_fault(
    proxy: Proxy, resolve: Callable[[str], Awaitable[Sequence[Address]]], place: Place, *, verify: bool, is_known: bool
) -> str:
    """Why the proxy, which can be reached, makes no tunnel to this place; empty if it does, or if it may be the place's fault.

    `is_known`: the place has answered through the proxy before; else an answer of any kind will do. Nothing is sent to the
    place. Raises: FetchError of the proxy's name.
    """
    fault = ""
    try:
        if proxy.is_socks:
            tunnel = await connect_through_socks(
                proxy, resolve, lambda info: socket.socket(*info[:3]), *place, PATIENCE_S
            )
            tunnel.close()
        else:
            fault = await _refused_tunnel(proxy, (await resolve(proxy.host))[0], place, verify=verify)
    except ConnectFailed as error:
        fault = str(error)
    except ProxyRefused:
        return ""
    except ServiceAway as error:
        return error.reason
    except (OSError, TimeoutError) as error:
        return f"it gives no answer{f': {error}' if str(error) else ''}"
    return fault if is_known else ""


async def _refused_tunnel(proxy: Proxy, address: Address, place: Place, *, verify: bool) -> str:
    """The answer of an HTTP proxy that reaches nothing; empty for any other. Raises: OSError, TimeoutError if it has none."""
    async with asyncio.timeout(PATIENCE_S):
        context = _context(verify=verify) if proxy.scheme == "https" else None
        reader, writer = await asyncio.open_connection(
            address.host, address.port or proxy.port, ssl=context, server_hostname=proxy.host if context else None
        )
        try:
            host, port = place
            target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            fields = "".join(f"{name}: {value}\r\n" for name, value in proxy.headers().items())
            writer.write(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{fields}\r\n".encode())
            line = await reader.readexactly(_STATUS_BYTES)  # `read` may return after the first of several packets
        except asyncio.IncompleteReadError as error:
            line = error.partial
        finally:
            writer.transport.abort()
    if not line:
        raise ConnectionResetError("it closes the connection")
    status = line[9:12].decode("ascii", "replace")
    return f"it answers {status} for hosts that it has reached before" if status in _REACHES_NOTHING else ""


def _context(*, verify: bool) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if not verify:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


async def _connect(host: str, port: int, context: ssl.SSLContext | None = None, name: str = "") -> None:
    async with asyncio.timeout(PATIENCE_S):
        _, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname=name if context else None)
    writer.transport.abort()
