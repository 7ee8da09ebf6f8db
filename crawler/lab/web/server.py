"""The server process of a generated web: it makes the web, listens on loopback, and answers HTTP/1.1 after each page's times.

It reads lines of JSON from standard input. The first line is the web to serve; the answer has the port, the seeds and the
hosts, or the error. Then `begin` (with a rule) begins a new ledger, and `ledger` returns it. The process ends with its
input, so it never outlives its parent (`miniweb.py`).

A connection answers one request after the other. Requests may name the host in their target (`GET http://host/path`, as for
a proxy) or in `Host`; a port in it is ignored. Only GET and HEAD are answered; a request with a body closes the
connection after the answer. A client that half-closes counts as gone, because it cannot be distinguished from one that closed.
The body of an answer is made when its first bytes are due, so a thousand waiting answers hold none.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from email.utils import formatdate
from functools import lru_cache, partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple, cast

from anabranch.crawler.fetch.connection_limits import raise_file_limit
from anabranch.crawler.lab.web.ledger import HostAccount, HostAccounts, PolitenessRule
from anabranch.crawler.lab.web.model import Web, WebHost, WebOptions, WebPage, body_of, is_redirect
from anabranch.crawler.lab.web.replay import replayed_file
from anabranch.crawler.lab.web.shape import make_web
from anabranch.crawler.outcomes.errors import CrawlerError
from anabranch.frontier.policies.hosts import authority

_BACKLOG = 4096


class Server:
    """A web on a port of loopback, with its ledger."""

    def __init__(self, web: Web) -> None:
        self._sites = {site.host: site for site in web.sites}
        self._delays = {site.host: site.crawl_delay_s for site in web.sites}
        self._clock = asyncio.get_running_loop().time
        self.begin(PolitenessRule())
        self._served = ServerState(web, self._sites, lambda: self.accounts, self._clock)
        self._listener: asyncio.Server | None = None

    async def listen(self, port: int) -> int:
        """Begin to serve; returns the port, which the system chooses for 0. Raises: OSError."""
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(lambda: Connection(self._served), "127.0.0.1", port, backlog=_BACKLOG)
        found: int = self._listener.sockets[0].getsockname()[1]
        return found

    async def close(self) -> None:
        """Stop listening; connections stay open until their clients close them."""
        if self._listener is not None:
            self._listener.close()

    def begin(self, rule: PolitenessRule) -> None:
        """Begin a new ledger; a request in service ends in the ledger in which it began."""
        self.accounts = HostAccounts(self._delays, rule, self._clock)

    def obey(self, request: dict[str, Any]) -> object:
        """Execute a line; returns its answer."""
        match request["do"]:
            case "begin":
                self.begin(PolitenessRule(**request["rule"]))
                return None
            case "ledger":
                return asdict(self.accounts.ledger())
            case other:
                raise ValueError(f"{other!r} is not a command of the server")


def main() -> None:
    """The process: serve the web of the first line until the input ends."""
    asyncio.run(_serve())


async def _serve() -> None:
    lines = await _lines()
    first = json.loads(await lines.readline())
    raise_file_limit()
    try:
        replay = first["replay"]
        web: Web = make_web(WebOptions(**first["web"])) if replay is None else replayed_file(Path(replay))
        server = Server(web)
        port = await server.listen(first["port"])
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)
        _say({"error": f"port {first['port']}: {why.lower()}; choose another, or 0 for any free one"})
        return
    except CrawlerError as error:
        _say({"error": str(error)})
        return
    gc.collect()
    gc.freeze()
    hosts = [site.host for site in web.sites]
    _say({"port": port, "seeds": web.seeds, "hosts": hosts, "urls": web.urls, "notes": getattr(web, "notes", ())})
    while line := await lines.readline():
        _say(server.obey(json.loads(line)))


async def _lines() -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


def _say(answer: object) -> None:
    """One line; the reader waits for it."""
    data = json.dumps(answer).encode() + b"\n"
    while data:
        data = data[os.write(sys.stdout.fileno(), data) :]


#: Of a request without its body.
MAX_HEAD_BYTES = 1 << 16
#: Bytes of a body that are sent when its transfer ends; the others when it begins.
_LAST_BYTES = 1024
#: A transfer that takes less is sent in one piece, when it ends.
_ONE_PIECE_S = 0.002

_BODILESS = (204, 304)


class Request(NamedTuple):
    """The parsed head of a request."""

    method: bytes
    authority: str
    target: str  #: path and query
    is_last: bool  #: the connection is to be closed after the answer


class TimedAnswer(NamedTuple):
    """An answer with its times."""

    page: WebPage
    url: str
    body: bytes | None  #: None: it is made of the page


class ServerState(NamedTuple):
    """State shared by all connections."""

    web: Web
    sites: Mapping[str, WebHost]
    accounts: Callable[[], HostAccounts]  #: the present ones
    clock: Callable[[], float]


class BadRequest(ValueError):
    """The request is invalid; `status` is the answer."""

    def __init__(self, status: int) -> None:
        super().__init__(HTTPStatus(status).phrase)
        self.status = status


class Connection(asyncio.Protocol):
    """One client's connection."""

    def __init__(self, served: ServerState) -> None:
        self._served = served
        self._buffer = bytearray()
        self._transport: asyncio.Transport
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._open: tuple[HostAccount, float] | None = None  # the request in service: its host's account, and its start
        self._is_busy = self._is_last = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Nothing is sent before a request."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is not derived from it

    def data_received(self, data: bytes) -> None:
        """Buffer the data; while a request is in service at most `MAX_HEAD_BYTES`."""
        self._buffer += data
        if not self._is_busy:
            self._serve_next()
        elif len(self._buffer) > MAX_HEAD_BYTES:
            self._transport.pause_reading()

    def connection_lost(self, _error: Exception | None) -> None:
        """The request in service, if any, ends here."""
        if self._timer is not None:
            self._timer.cancel()
        self._is_busy = True  # nothing more is served
        self._end(0, is_gone=True)

    def _serve_next(self) -> None:
        """Serve the next request, if its head is complete."""
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > MAX_HEAD_BYTES:
                self._refuse(431)
            return
        try:
            request = parsed(bytes(self._buffer[:end]))
        except BadRequest as error:
            self._refuse(error.status)
            return
        del self._buffer[: end + 4]
        self._is_busy = True
        self._is_last |= request.is_last
        self._serve(request)

    def _serve(self, request: Request) -> None:
        served = self._served
        found = authority(f"http://{request.authority}")
        site = served.sites.get(found.host) if found else None
        if site is None:
            served.accounts().strangers += 1
            self._send_all(_failure(421), request.method)
            return
        account, now_s = served.accounts().of(site.host), served.clock()
        is_robots = request.target == "/robots.txt"
        account.begin(now_s, is_robots=is_robots)
        self._open = account, now_s
        answer = _robots(site) if is_robots else _found(served.web, site, request)
        page = answer.page
        if page.transfer_s < _ONE_PIECE_S or request.method == b"HEAD":
            self._after(page.latency_s + page.transfer_s, partial(self._send_all, answer, request.method))
        else:
            self._after(page.latency_s, partial(self._send_first, answer))

    def _after(self, delay_s: float, do: Callable[[], None]) -> None:
        """Call `do` after the delay, and record the lag."""
        if delay_s <= 0:
            do()
            return
        due_s = self._loop.time() + delay_s
        self._timer = self._loop.call_at(due_s, self._act, due_s, do)

    def _act(self, due_s: float, do: Callable[[], None]) -> None:
        self._served.accounts().note_lag(self._loop.time() - due_s)
        do()

    def _send_all(self, answer: TimedAnswer, method: bytes) -> None:
        body = _body(answer)
        head = _head(answer.page, len(body), is_last=self._is_last)
        if method == b"HEAD":
            body = b""
        self._end(len(body))
        self._transport.write(head + body)
        self._finish()

    def _send_first(self, answer: TimedAnswer) -> None:
        """The head and all of the body but its end, which follows when the transfer is over."""
        body = _body(answer)
        self._transport.write(_head(answer.page, len(body), is_last=self._is_last) + body[:-_LAST_BYTES])
        self._after(answer.page.transfer_s, partial(self._send_last, answer.page.size, body[-_LAST_BYTES:]))

    def _send_last(self, size_bytes: int, rest: bytes) -> None:
        self._end(size_bytes)
        self._transport.write(rest)
        self._finish()

    def _refuse(self, status: int) -> None:
        """Answer an invalid request and close the connection."""
        self._is_last = True
        answer = _failure(status)
        self._transport.write(_head(answer.page, len(_body(answer)), is_last=True) + _body(answer))
        self._finish()

    def _end(self, size_bytes: int, *, is_gone: bool = False) -> None:
        """The request in service has ended; it is recorded in the ledger in which it began."""
        if self._open is not None:
            account, start_s = self._open
            self._open = None
            account.end(start_s, self._served.clock(), size_bytes, is_gone=is_gone)

    def _finish(self) -> None:
        """Continue with the next request, or close."""
        self._timer = None
        if self._is_last:
            self._is_busy = True
            self._transport.close()
            return
        self._is_busy = False
        self._transport.resume_reading()
        if self._buffer:
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        if not self._is_busy:
            self._serve_next()


def parsed(head: bytes) -> Request:
    """The request of a head without its last empty line. Raises: BadRequest."""
    first, _, rest = head.lstrip(b"\r\n").partition(b"\r\n")
    words = first.split(b" ")
    if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
        raise BadRequest(400)
    method, target, version = words
    if method not in (b"GET", b"HEAD"):
        raise BadRequest(405)
    fields = _fields(rest)
    name, path = _place(target, fields.get(b"host", b""))
    connection = fields.get(b"connection", b"").lower()
    is_last = b"close" in connection or (version == b"HTTP/1.0" and b"keep-alive" not in connection)
    has_body = fields.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in fields
    return Request(method, name.decode().lower(), path.decode(), is_last or has_body)


def _place(target: bytes, host: bytes) -> tuple[bytes, bytes]:
    """Authority and path of a target, which may have them both (RFC 9112, 3.2.2) and then wins. Raises: BadRequest."""
    if not target.startswith(b"/"):
        scheme, _, place = target.partition(b"://")
        if scheme.lower() != b"http":
            raise BadRequest(400)
        host, slash, path = place.partition(b"/")
        target = slash + path or b"/"
    if not host or not (host + target).isascii():
        raise BadRequest(400)
    return host, target


def _fields(lines: bytes) -> dict[bytes, bytes]:
    """Header fields by their lower-case names; of several with one name the last."""
    fields = {}
    for line in lines.split(b"\r\n"):
        name, _, value = line.partition(b":")
        fields[name.lower()] = value.strip()
    return fields


def _found(web: Web, site: WebHost, request: Request) -> TimedAnswer:
    """The page of the URL with its port, else without; else 404 after the host's latency."""
    for name in dict.fromkeys((request.authority, site.host)):
        url = f"http://{name}{request.target}"
        if (page := web.page(url)) is not None:
            return TimedAnswer(page, url, None)
    return _failure(404, site.latency_s)


def _robots(site: WebHost) -> TimedAnswer:
    delay = "" if site.crawl_delay_s is None else f"Crawl-delay: {site.crawl_delay_s:g}\n"
    body = f"User-agent: *\nDisallow:\n{delay}".encode()
    return TimedAnswer(WebPage(200, "text/plain", len(body), site.latency_s, 0.0, (), ()), "", body)


def _failure(status: int, latency_s: float = 0.0) -> TimedAnswer:
    body = f"{status} {HTTPStatus(status).phrase}\n".encode()
    return TimedAnswer(WebPage(status, "text/plain", len(body), latency_s, 0.0, (), ()), "", body)


def _body(answer: TimedAnswer) -> bytes:
    if answer.body is not None:
        return answer.body
    return b"" if answer.page.status in _BODILESS else body_of(answer.page, answer.url)


def _head(page: WebPage, length: int, *, is_last: bool) -> bytes:
    location = f"Location: {page.links[0]}\r\n" if is_redirect(page.status) and page.links else ""
    length_field = "" if page.status in _BODILESS else f"Content-Length: {length}\r\n"
    type_field = f"Content-Type: {page.media_type}\r\n" if page.media_type else ""
    return (
        f"HTTP/1.1 {page.status} {_phrase(page.status)}\r\nDate: {_date(int(time.time()))}\r\n{type_field}"
        f"{length_field}{location}{'Connection: close' if is_last else 'Connection: keep-alive'}\r\n\r\n"
    ).encode()


@lru_cache(maxsize=64)
def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Other"


@lru_cache(maxsize=2)
def _date(now_s: int) -> str:
    return formatdate(now_s, usegmt=True)
