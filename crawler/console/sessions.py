"""Sessions of browsers: a token of this start, or a password, is exchanged for a cookie.

The API knows no cookies, and pages know no tokens of the API: neither opens the other.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from hmac import compare_digest
from typing import NamedTuple, TypedDict
from urllib.parse import quote, unquote

from starlette.datastructures import FormData, Headers
from starlette.requests import HTTPConnection, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from anabranch.crawler.console.access import ConsoleRole, Holder
from anabranch.crawler.console.audit import AuditLog
from anabranch.crawler.console.guard import (
    IS_KNOWN,
    App,
    Message,
    Receive,
    Scope,
    Send,
    Shares,
    bounded,
    refuse,
    remote_address,
)
from anabranch.crawler.console.passwords import Passwords
from anabranch.crawler.outcomes.errors import StorageError

#: Begin of the cookie's name. The port follows, because cookies of one address are common to all its ports.
COOKIE = "anabranch_session"
#: Where the guard puts who asks, in the scope of a request.
HOLDER = "anabranch.holder"
#: Where it puts a function that gives the holder of the session at any later time.
HOLDER_NOW = "anabranch.holder_now"
#: Where it puts the id of the session.
SESSION = "anabranch.session"
#: A session that is not used for this long is over.
_IDLE_S = 12 * 3600.0
_MOST_SESSIONS = 1000
#: Paths that authenticate by token, not by session.
_OF_TOKENS = re.compile("/api/v1(/.*)?|/metrics", re.DOTALL)
#: How long it is remembered which page somebody asked for who had to log in first, and a path that is surely one of ours.
_WANTED_S = 600
_OWN_PATH = re.compile(r"/(?![/\\])[!-~]{0,2000}")
#: Bytes of the body of a request: a file of seeds, which is kept on the disk, and what somebody may send who has not logged in.
_MOST_BYTES, _MOST_BYTES_OF_STRANGERS = 66 << 20, 64 << 10
#: How long a login may take, its body and the turns of others included.
_MOST_S_OF_STRANGERS = 60.0
#: Requests and sockets of a session at once, or of a stranger behind a proxy.
_MOST_UNDER_WAY = 100
#: Failed logins that are noted at once; then one a second.
_MOST_FAILURES = 30


class _Session(NamedTuple):
    holder: Holder
    ends_s: float
    digest: str | None  #: of the password by which it began


class Sessions:
    """The sessions of one start of a console."""

    def __init__(self, passwords: Passwords, now_s: Callable[[], float], *, has_link: bool = True) -> None:
        """`has_link`: who started the console can log in by a link. Links stand in histories and in logs of proxies."""
        #: Whoever started the console has it, and may do everything; empty: there is none.
        self.start_token = secrets.token_urlsafe(24) if has_link else ""
        self._passwords = passwords
        self._now_s = now_s
        self._open: dict[str, _Session] = {}

    def begin(self, holder: Holder, *, by_password: bool = False) -> str:
        """A new session; its id, for a cookie."""
        name, now_s = secrets.token_urlsafe(32), self._now_s()
        self._open = {one: session for one, session in self._open.items() if session.ends_s > now_s}
        if len(self._open) >= _MOST_SESSIONS:
            self._open.pop(next(iter(self._open)))
        digest = self._passwords.digest(holder.name) if by_password else None
        self._open[name] = _Session(holder, now_s + _IDLE_S, digest)
        return name

    def end(self, name: str) -> None:
        """Forget a session."""
        self._open.pop(name, None)

    def holder(self, name: str) -> Holder | None:
        """The holder of a session, which is extended; None if it is over, or its password was changed. Raises: StorageError."""
        session, now_s = self._open.get(name), self._now_s()
        if session is None or session.ends_s <= now_s:
            return None
        if session.digest is not None and session.digest != self._passwords.digest(session.holder.name):
            self.end(name)
            return None
        self._open[name] = session._replace(ends_s=now_s + _IDLE_S)
        return session.holder

    def by_start_token(self, text: str) -> Holder | None:
        """Return the holder of this start's token; None for any other text."""
        is_it = bool(self.start_token) and compare_digest(text.encode("utf-8", "replace"), self.start_token.encode())
        return Holder("console", ConsoleRole.OPERATOR) if is_it else None

    def by_password(self, name: str, password: str, address: str) -> Holder | None:
        """Return the holder with this name and password; None as in `Passwords.holder`. Raises: StorageError."""
        return self._passwords.holder(name, password, address, self._now_s())

    def wait_s(self, name: str, address: str) -> float:
        """Seconds until passwords of this name are accepted from this address again."""
        return self._passwords.wait_s(name, address, self._now_s())

    def known_name(self, name: str) -> str:
        """The name if somebody with a password has it; else empty: it may be a password in the wrong field."""
        return name if self._passwords.digest(name) else ""

    def login_page(self, base: str, words: str) -> str:
        """The page on which people log in, in the ways that there are. Raises: StorageError."""
        return login_page(base, words, has_link=bool(self.start_token), has_passwords=self._passwords.has_any)


class _CookieAttributes(TypedDict):
    path: str
    httponly: bool
    secure: bool


class SessionGuard:
    """Lets requests with a session pass, and has the others log in. WebSockets without one are closed."""

    def __init__(
        self,
        app: App,
        sessions: Sessions,
        cookie: str = COOKIE,
        base_path: str = "",
        *,
        is_secure: bool = False,
        proxy_hosts: Collection[str] = (),
        audit: AuditLog | None = None,
    ) -> None:
        """`base_path` is before all paths, as a reverse proxy passes them on; `is_secure`: browsers come by TLS.

        `proxy_hosts` are the names by which browsers call the proxy. `audit` gets logins, failed ones, and logouts.
        """
        self._app = app
        self._sessions = sessions
        self._cookie = cookie
        self._base = base_path.rstrip("/")
        self._is_secure = is_secure
        self._proxy_hosts = frozenset(host.lower() for host in proxy_hosts)
        self._audit = audit
        self._shares = Shares(_MOST_UNDER_WAY)
        self._failures, self._failures_s = 0.0, 0.0  #: lines of failed logins lately, and when they were counted
        self._unnoted = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer it."""
        try:
            await self._pass_on(scope, receive, send)
        except StorageError as error:
            await refuse(scope, send, 503, str(error))

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "").removeprefix(self._base) or "/"
        if scope["type"] not in {"http", "websocket"} or _OF_TOKENS.fullmatch(path):
            await self._app(scope, receive, send)
            return
        name = self._name(scope)
        holder = self._sessions.holder(name)
        if holder is not None:
            scope.setdefault("state", {})[IS_KNOWN] = True
            scope[SESSION], scope[HOLDER], scope[HOLDER_NOW] = name, holder, partial(self._sessions.holder, name)
        # Without a proxy that tells it, the address of strangers says nothing here: the server counts their connections.
        who = remote_address(scope, self._proxy_hosts) if self._proxy_hosts else ""
        with self._shares.taken(name if holder is not None else who) as has_room:
            if not has_room:
                await refuse(scope, send, 503, "too many requests at once; close some windows")
            elif scope["type"] == "http" and path in {"/login", "/logout"}:
                await bounded(self._come_or_go, scope, receive, send, _MOST_BYTES_OF_STRANGERS, _MOST_S_OF_STRANGERS)
            elif holder is None:
                await self._send_away(scope, receive, send, path)
            elif scope["type"] == "http":
                await bounded(self._app, scope, receive, send, _MOST_BYTES)
            else:
                await self._app(scope, self._while_logged_in(scope, receive), send)

    async def _send_away(self, scope: Scope, receive: Receive, send: Send, path: str) -> None:
        """Send a page's request to the login; refuse all else."""
        if scope["type"] == "websocket" or scope["method"] not in {"GET", "HEAD"} or path.startswith("/_nicegui"):
            await refuse(scope, send, 401, "log in first")
        else:
            answer = self._to("/login")
            if scope["method"] == "GET" and "text/html" in Headers(scope=scope).get("accept", ""):
                query = scope.get("query_string", b"").decode("latin-1")
                wanted = quote(quote(path) + (f"?{query}" if query else ""), safe="")
                answer.set_cookie(self._wanted, wanted, _WANTED_S, **self._attributes, samesite="lax")
            await answer(scope, receive, send)

    @property
    def _wanted(self) -> str:
        """The name of the cookie with the path that somebody asked for who had to log in first."""
        return f"{self._cookie}_page"

    @property
    def _attributes(self) -> _CookieAttributes:
        return {"path": f"{self._base}/", "httponly": True, "secure": self._is_secure}

    def _page_after_login(self, request: Request) -> str:
        """The page of the console that was asked for before the login; the first one if none was. Pure."""
        path = unquote(request.cookies.get(self._wanted, ""))
        return path if _OWN_PATH.fullmatch(path) else "/"

    def _name(self, scope: Scope) -> str:
        return HTTPConnection(scope).cookies.get(self._cookie, "")

    def _while_logged_in(self, scope: Scope, receive: Receive) -> Receive:
        """Wrap `receive`: the first message after the session's end closes the socket. A window sends two a minute."""
        name = self._name(scope)

        async def receive_while() -> Message:
            message = await receive()
            is_over = self._sessions.holder(name) is None
            return {"type": "websocket.disconnect", "code": 1008} if is_over else message

        return receive_while

    async def _come_or_go(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        if not scope["path"].endswith("/logout"):
            answer = await self._login(request)
        elif request.method == "POST":
            holder = self._sessions.holder(self._name(scope))
            self._sessions.end(self._name(scope))
            if holder is not None:
                await self._note(scope, "logout", holder.name, {})
            answer = self._to("/login")
            answer.delete_cookie(self._cookie, path=f"{self._base}/")
        else:  # a link of another site may ask for it
            answer = self._to("/")
        await answer(scope, receive, send)

    async def _note(
        self, scope: Scope, action: str, name: str, arguments: Mapping[str, object], error: str = ""
    ) -> None:
        if self._audit is not None:
            given = {"address": remote_address(scope, self._proxy_hosts), **arguments}
            await asyncio.to_thread(self._audit.note_session, name, action, given, error)

    async def _note_failed(self, scope: Scope, name: str, by: str, error: str) -> None:
        """Note a failed login, unless there were too many lately: then the next line counts it, so that no disk is filled."""
        now_s = time.monotonic()
        self._failures = max(self._failures - (now_s - self._failures_s), 0.0)
        self._failures_s, self._unnoted = now_s, self._unnoted + 1
        if self._failures < _MOST_FAILURES:
            tries, self._unnoted, self._failures = self._unnoted, 0, self._failures + 1
            await self._note(scope, "login", name, {"by": by, "tries": tries}, error)

    async def _by_link(self, request: Request, token: str) -> tuple[Holder | None, str]:
        """The holder by the token of a link, and the words for a wrong one."""
        holder = self._sessions.by_start_token(token)
        if holder is not None:
            return holder, ""
        await self._note_failed(request.scope, "", "link", "no link of this start")
        return None, "this link is from an earlier start of the console; use the newest link"

    async def _by_password(self, request: Request) -> tuple[Holder | None, str]:
        """The holder with the name and the password of the form, and the words for others. To have to wait is no try."""
        form = await request.form(max_fields=4, max_files=0)
        name, password = _field(form, "name"), _field(form, "password")
        address = remote_address(request.scope, self._proxy_hosts)
        wait_s = self._sessions.wait_s(name, address)
        holder = await asyncio.to_thread(self._sessions.by_password, name, password, address)
        if holder is not None:
            return holder, ""
        if wait_s:
            return None, f"wait {wait_s:.0f} s"
        words = "no such name and password"
        await self._note_failed(request.scope, self._sessions.known_name(name), "password", words)
        return None, words

    async def _login(self, request: Request) -> Response:
        holder, words, by_password = None, "", False
        if token := request.query_params.get("token"):
            holder, words = await self._by_link(request, token)
        elif request.method == "POST":
            by_password = True
            holder, words = await self._by_password(request)
        if holder is None:
            status = 401 if words else 200
            return HTMLResponse(self._sessions.login_page(self._base, words), status)
        await self._note(request.scope, "login", holder.name, {"by": "password" if by_password else "link"})
        self._sessions.end(self._name(request.scope))
        answer = self._to(self._page_after_login(request))
        session = self._sessions.begin(holder, by_password=by_password)
        answer.set_cookie(self._cookie, session, **self._attributes, samesite="strict")
        if self._wanted in request.cookies:
            answer.delete_cookie(self._wanted, path=f"{self._base}/")
        return answer

    def _to(self, path: str) -> RedirectResponse:
        return RedirectResponse(f"{self._base}{path}", 303)


def _field(form: FormData, name: str) -> str:
    value = form.get(name, "")
    return value if isinstance(value, str) else ""


def login_page(base: str, words: str, *, has_link: bool, has_passwords: bool) -> str:
    """The page on which people log in. Pure; `words` are ours."""
    form = f"""<form method="post" action="{base}/login">
<label>Name <input name="name" autocomplete="username" required autofocus></label>
<label>Password <input name="password" type="password" autocomplete="current-password" required></label>
<button>Log in</button></form>"""
    how = "Open the link that <code>anabranch console</code> printed when it started." if has_link else ""
    return f"""<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Anabranch: log in</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>:root{{color-scheme:light dark;font:16px/1.5 system-ui,sans-serif}}
body{{display:grid;place-items:center;min-height:90vh}}main{{width:min(22rem,90vw)}}label{{display:block;margin:.6rem 0}}
input{{display:block;width:100%;padding:.5rem;font:inherit;box-sizing:border-box}}
button{{padding:.5rem 1.2rem;font:inherit;background:#22617d;color:#fff;border:0;border-radius:4px}}
[role=alert]{{color:#b3261e}}
@media(prefers-color-scheme:dark){{[role=alert]{{color:#ff8a80}}}}</style></head>
<body><main><h1>Anabranch</h1><p role="alert">{words}</p><p>{how}</p>{form if has_passwords else ""}</main></body></html>"""
