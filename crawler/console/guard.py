"""Which requests reach a console: the right Host, no foreign Origin; on HTTP and WebSocket alike.

A page of another site can have a browser send requests here, with cookies: it cannot choose their Host (unless its name leads
to this address, which is DNS rebinding), and not their Origin. So both are checked before anything else, by their names.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

#: Close code of a WebSocket that breaks a rule (RFC 6455, section 7.4.1).
_POLICY_VIOLATION = 1008
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})


def allowed_hosts(address: str, port: int, more: Iterable[str]) -> frozenset[str]:
    """Names by which this console may be called: its address with the port, and those that the operator names."""
    names = {*more}
    for name in {*_LOOPBACK, f"[{address}]" if ":" in address else address}:
        names |= {f"{name}:{port}", *([name] if port in {80, 443} else [])}
    return frozenset(name.lower() for name in names)


async def refuse(scope: Scope, send: Send, status: int, words: str) -> None:
    """Answer a request with this status and these words; a WebSocket is closed."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": _POLICY_VIOLATION})
        return
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": f"{words}\n".encode()})


class HostGuard:
    """Answers 403 to all other requests, and closes their WebSockets."""

    def __init__(self, app: App, hosts: Collection[str]) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] not in {"http", "websocket"} or self._is_allowed(scope):
            await self._app(scope, receive, send)
        else:
            await refuse(scope, send, 403, "this console is not called by that name")

    def _is_allowed(self, scope: Scope) -> bool:
        hosts = [value.decode("latin-1").lower() for name, value in scope["headers"] if name == b"host"]
        origins = [value.decode("latin-1").lower() for name, value in scope["headers"] if name == b"origin"]
        if len(hosts) != 1 or hosts[0] not in self._hosts or len(origins) > 1:
            return False
        return not origins or urlsplit(origins[0]).netloc == hosts[0]


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
