"""Which requests reach a console: the right Host, no foreign Origin; on HTTP and WebSocket alike.

A page of another site can have a browser send requests here, with cookies: it cannot choose their Host (unless its name leads
to this address, which is DNS rebinding), and not their Origin. So both are checked before anything else, by their names.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

#: Close code of a WebSocket that breaks a rule (RFC 6455, section 7.4.1).
_POLICY_VIOLATION = 1008
_REFUSED = b"the console has another name, or a page of another site asks; see anabranch console --allow-host\n"
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})


def allowed_hosts(address: str, port: int, more: Iterable[str]) -> frozenset[str]:
    """Names by which this console may be called: its address with the port, and those that the operator names."""
    names = {*more}
    for name in {*_LOOPBACK, f"[{address}]" if ":" in address else address}:
        names |= {f"{name}:{port}", *([name] if port in {80, 443} else [])}
    return frozenset(name.lower() for name in names)


class HostGuard:
    """Answers 403 to all other requests, and closes their WebSockets."""

    def __init__(self, app: App, hosts: Collection[str]) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] not in {"http", "websocket"} or self._is_allowed(scope):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": _POLICY_VIOLATION})
        else:
            await send({"type": "http.response.start", "status": 403, "headers": [(b"content-type", b"text/plain")]})
            await send({"type": "http.response.body", "body": _REFUSED})

    def _is_allowed(self, scope: Scope) -> bool:
        hosts = [value.decode("latin-1").lower() for name, value in scope["headers"] if name == b"host"]
        origins = [value.decode("latin-1").lower() for name, value in scope["headers"] if name == b"origin"]
        if len(hosts) != 1 or hosts[0] not in self._hosts or len(origins) > 1:
            return False
        return not origins or origins[0] in {f"http://{hosts[0]}", f"https://{hosts[0]}"}
