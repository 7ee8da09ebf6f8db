"""Windows of browsers: a page answers only the session that opened it, on its socket and for its uploads.

NiceGUI finds a page by the id of its window, whoever names it. A reader who knows the id of an operator's window, or a window
that stays open when another user logs in, would act on that page with the rights of the operator.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextvars import ContextVar
from inspect import isawaitable
from typing import Any
from urllib.parse import parse_qs

import structlog
from fastapi import FastAPI
from nicegui import Client, core
from socketio.exceptions import ConnectionRefusedError as Refused  # type: ignore[import-untyped]  # it has no marker

from anabranch.crawler.console.guard import App, Receive, Scope, Send, refuse
from anabranch.crawler.console.sessions import SESSION

log = structlog.get_logger(__name__)

#: The session of the request that is answered. A socket has that of the request by which it was opened.
_SESSION: ContextVar[str | None] = ContextVar("session", default=None)
#: Messages of a window that name a page.
_MESSAGES = ("handshake", "event", "javascript_response", "ack", "log")
#: The words by which a window reloads, and so gets a page of its own session.
_RELOADS = "Implicit handshake failed"
#: Paths that belong to one window.
_OF_WINDOW = re.compile(r"/_nicegui/client/([^/]+)(/|$)")


def guard_windows(app: FastAPI) -> None:
    """Have the pages of this application answer only their own sessions."""
    app.add_middleware(_WindowGuard)
    handlers = core.sio.handlers["/"]
    core.sio.on("connect", _connected(handlers["connect"]))
    for message in _MESSAGES:
        core.sio.on(message, _of_its_session(message, handlers[message]))


class _WindowGuard:
    """Notes the session of each request, and refuses an upload to a page of another session."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return
        before = _SESSION.set(scope.get(SESSION))
        try:
            window = _OF_WINDOW.search(scope["path"])
            if window is not None and _is_foreign(window[1]):
                await refuse(scope, send, 403, "this page belongs to another session; reload it")
            else:
                await self._app(scope, receive, send)
        finally:
            _SESSION.reset(before)


def _is_foreign(window: object) -> bool:
    """A session other than the one that asks has opened the page of this window."""
    page = Client.instances.get(window) if isinstance(window, str) else None
    return page is not None and page.request.scope.get(SESSION) != _SESSION.get()


def _connected(handler: Callable[..., Any]) -> Callable[..., Any]:
    """Refuses a socket whose query is the handshake with a page of another session."""

    async def connected(socket: str, environment: dict[str, Any], *more: Any) -> Any:
        asked = parse_qs(environment.get("QUERY_STRING", ""))
        if "implicit_handshake" in asked and any(map(_is_foreign, asked.get("client_id", ()))):
            raise Refused(_RELOADS)
        return await _answered(handler, socket, environment, *more)

    return connected


def _of_its_session(message: str, handler: Callable[..., Any]) -> Callable[..., Any]:
    """Drops a message to a page of another session. A window whose handshake is refused reloads."""

    async def checked(socket: str, content: Any) -> Any:
        window = content.get("client_id") if isinstance(content, dict) else None
        if not isinstance(window, str) or _is_foreign(window):
            log.warning("a window of another session is refused", message=message)
            return False
        return await _answered(handler, socket, content)

    return checked


async def _answered(handler: Callable[..., Any], *given: Any) -> Any:
    answer = handler(*given)
    return await answer if isawaitable(answer) else answer
