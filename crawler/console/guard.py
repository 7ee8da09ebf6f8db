"""Which requests reach a console: the right Host, no foreign Origin; on HTTP and WebSocket alike.

A page of another site can have a browser send requests here, with cookies: it cannot choose their Host (unless its name leads
to this address, which is DNS rebinding), and not their Origin. So both are checked before anything else, by their names.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, MutableMapping
from contextlib import contextmanager
from ipaddress import ip_address, ip_network
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

#: Set in the `state` of a request that has a session or a token. The server keeps such connections longest.
IS_KNOWN = "is_known"
#: Close code of a WebSocket that breaks a rule (RFC 6455, section 7.4.1).
_POLICY_VIOLATION = 1008
_REFUSED = "this Host or Origin is not allowed; add a host name with anabranch console --allow-host"
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})

#: What browsers may do with a page of ours. NiceGUI compiles its templates in the browser, and has scripts and styles in its
#: pages; but nothing comes from, or goes to, another site.
_POLICY = "; ".join((
    "default-src 'self'", "script-src 'self' 'unsafe-inline' 'unsafe-eval'", "style-src 'self' 'unsafe-inline'",
    "img-src 'self' data:", "font-src 'self' data:", "worker-src 'self' blob:", "object-src 'none'", "base-uri 'none'",
    "form-action 'self'", "frame-ancestors 'none'",
))  # fmt: skip
#: Headers of each answer that does not set them itself.
_HEADERS = {
    b"content-security-policy": _POLICY.encode(),
    b"x-frame-options": b"DENY",
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"same-origin",  # with no-referrer, the Origin of our own forms would be null
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"cache-control": b"no-store",
}


def allowed_hosts(address: str, port: int, more: Iterable[str]) -> frozenset[str]:
    """Names by which this console may be called: its address with the port, and those that the operator names."""
    names = {*more}
    for name in {*_LOOPBACK, f"[{address}]" if ":" in address else address}:
        names |= {f"{name}:{port}", *([name] if port in {80, 443} else [])}
    return frozenset(name.lower() for name in names)


def remote_address(scope: Scope, proxy_hosts: Collection[str]) -> str:
    """Return the client's address; of IPv6, its /64. Behind a proxy, the last address in `X-Forwarded-For`. Pure.

    The field counts only if the request names the proxy as its host: other clients could choose their address.
    """
    client = scope.get("client")
    address = _network(client[0]) if client else ""
    host = next((value.decode("latin-1").lower() for name, value in scope["headers"] if name == b"host"), "")
    forwarded = [value for name, value in scope["headers"] if name == b"x-forwarded-for"]
    if host in proxy_hosts and forwarded:
        return _network(forwarded[-1].decode("latin-1").rpartition(",")[2].strip()) or address
    return address


def _network(text: str) -> str:
    try:
        address = ip_address(text)
    except ValueError:
        return ""
    return str(address if address.version == 4 else ip_network((address, 64), strict=False))


async def refuse(scope: Scope, send: Send, status: int, words: str) -> None:
    """Answer a request with this status and these words; a WebSocket is closed."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": _POLICY_VIOLATION})
        return
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": f"{words}\n".encode()})


class Shares:
    """Counts what is under way by who asks, and lets nobody have more than a share."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._under_way: Counter[str] = Counter()

    @contextmanager
    def taken(self, who: str) -> Iterator[bool]:
        """Whether there was room for one more; it counts until the block ends. An empty name has no bound."""
        if not who or self._under_way[who] >= self._most:
            yield not who
            return
        self._under_way[who] += 1
        try:
            yield True
        finally:
            self._under_way[who] -= 1
            if not self._under_way[who]:
                del self._under_way[who]


class HostGuard:
    """Answers 403 to all other requests, and closes their WebSockets."""

    def __init__(self, app: App, hosts: Collection[str], schemes: Collection[str] = ("http", "https")) -> None:
        """`schemes` are those of the console's own pages."""
        self._app = app
        self._hosts = hosts
        self._schemes = schemes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] not in {"http", "websocket"} or self._is_allowed(scope):
            await self._app(scope, receive, send)
        else:
            await refuse(scope, send, 403, _REFUSED)

    def _is_allowed(self, scope: Scope) -> bool:
        hosts = [value.decode("latin-1").lower() for name, value in scope["headers"] if name == b"host"]
        origins = [value.decode("latin-1").lower() for name, value in scope["headers"] if name == b"origin"]
        if len(hosts) != 1 or hosts[0] not in self._hosts or len(origins) > 1:
            return False
        return not origins or origins[0] in {f"{scheme}://{hosts[0]}" for scheme in self._schemes}


class BasePath:
    """Takes the path of a console behind a reverse proxy off each request, whether the proxy leaves it there or not."""

    def __init__(self, app: App, base_path: str) -> None:
        """`base_path` begins with a slash; empty: the console is at the root."""
        self._app = app
        self._base = base_path.rstrip("/")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if self._base and scope["type"] in {"http", "websocket"}:
            path = scope["path"]
            inner = path.removeprefix(self._base) if path == self._base or path.startswith(f"{self._base}/") else path
            scope = {**scope, "root_path": self._base, "path": f"{self._base}{inner or '/'}"}
        await self._app(scope, receive, send)


class SafeHeaders:
    """Gives each answer the headers by which browsers keep other sites out of our pages, and our pages out of caches."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = [*message.get("headers", ())]
                names = {name.lower() for name, _ in given}
                message = {**message, "headers": [*given, *(one for one in _HEADERS.items() if one[0] not in names)]}
            await send(message)

        await self._app(scope, receive, send_safely)


class HeadRequests:
    """Answers HEAD as GET, without the body; a stream of events ends with its head."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return
        begun = asyncio.Event()

        async def send_head(message: Message) -> None:
            if message["type"] != "http.response.start":
                return
            await send(message)
            await send({"type": "http.response.body"})
            begun.set()

        async def receive_until_begun() -> Message:
            if begun.is_set():
                return {"type": "http.disconnect"}
            waiting, ended = asyncio.create_task(_received(receive)), asyncio.create_task(begun.wait())
            try:
                await asyncio.wait({waiting, ended}, return_when=asyncio.FIRST_COMPLETED)
                return waiting.result() if waiting.done() else {"type": "http.disconnect"}
            finally:
                waiting.cancel()
                ended.cancel()

        await self._app({**scope, "method": "GET"}, receive_until_begun, send_head)


async def _received(receive: Receive) -> Message:
    return await receive()


class _BodyTooLarge(Exception):
    """A body has more bytes than it may."""


async def bounded(
    app: App, scope: Scope, receive: Receive, send: Send, most_bytes: int, most_s: float | None = None
) -> None:
    """Pass a request on, and read at most `most_bytes` of its body: a larger one is answered by 413, a late one by 408."""
    read, has_begun, is_gone = 0, False, False

    async def receive_part() -> Message:
        nonlocal read, is_gone
        message = await receive()
        is_gone = message["type"] == "http.disconnect"
        read += len(message.get("body", b""))
        if read > most_bytes:
            raise _BodyTooLarge
        return message

    async def note_begin(message: Message) -> None:
        nonlocal has_begun
        has_begun = True
        await send(message)

    async def pass_on() -> None:
        async with asyncio.timeout(most_s):
            await app(scope, receive_part, note_begin)

    declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
    try:
        if int(declared) <= most_bytes:
            await pass_on()
            return
    except TimeoutError:
        if most_s is None:
            raise
        await refuse(scope, send, 408, "the request body took too long")
        return
    except _BodyTooLarge:
        if has_begun:
            return
    except RuntimeError:
        if is_gone:  # the window was closed while its page was made
            return
        raise
    await refuse(scope, send, 413, f"the body has more than {most_bytes} bytes")
