"""The server of the small web: one loopback port for all its hosts, with a ledger of what it served.

In tests: `async with SmallWeb() as web: ...`, then `web.hosts` goes into `[dns.hosts]`, and
`web.ledger` answers questions. As a program it lives in a process of its own, so that a crawler can
be killed while the server stays:

    python tests/site/server.py --port 0 [--root FOLDER] [--delay 0.1] [--ledger FILE]

prints its port on one line, serves the small web or a folder of files, and ends on SIGTERM.
"""

import argparse
import asyncio
import signal
import sys
import time
from collections.abc import Callable, Sequence
from mimetypes import MimeTypes
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import unquote

from aiohttp import web

if __package__ in (None, ""):  # started as a program: the import path holds this folder, not the repository
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from tests.site.ledger import CLIENT_GONE, NO_ANSWER, Ledger, line_writer
from tests.site.page import NOT_FOUND, WRONG_HOST, Fault, Page, Web, failure, file, redirect, sent_body
from tests.site.pages import WEB

#: (host, raw request target, how often this was asked for before) -> what to answer.
Find = Callable[[str, str, int], Page]
#: Notes the end of one request, with its status; only the first call counts.
End = Callable[[int], None]

_NO_TYPE = web.ResponseKey("no type", bool)
_CHUNK_BYTES = 1 << 16
_CLOSE_S = 60.0


def epoch_clock() -> Callable[[], float]:
    """Epoch seconds that never go back: the epoch now, plus monotonic time from now on."""
    opened_s = time.time() - time.monotonic()
    return lambda: opened_s + time.monotonic()


def table_finder(table: Web) -> Find:
    """Pages of virtual hosts. An unknown host gets 421, an unknown path 404."""

    def find(host: str, target: str, earlier: int) -> Page:
        if host not in table:
            return WRONG_HOST
        return table[host].pages.get(target, NOT_FOUND).at(earlier)

    return find


def file_finder(root: Path) -> Find:
    """Files below a folder, for every host; a folder answers with its index.html; a query is ignored."""
    types = MimeTypes(filenames=())

    def find(host: str, target: str, earlier: int) -> Page:
        path = target.partition("?")[0]
        parts = [part for part in unquote(path).split("/") if part not in ("", ".")]
        if ".." in parts or any("\0" in part for part in parts):
            return failure(400)
        wanted = root.joinpath(*parts)
        if wanted.is_dir() and not path.endswith("/"):
            return redirect(301, path + "/", path + "/")
        wanted = wanted / "index.html" if path.endswith("/") else wanted
        if not wanted.is_file():
            return NOT_FOUND
        return file(types.guess_type(wanted.name)[0] or "application/octet-stream", wanted.read_bytes())

    return find


class LoopbackServer:
    """One HTTP server on 127.0.0.1 that answers what `find` says and keeps a ledger of it.

    `delay_s` is waited before every answer, on top of the page's own delay. Closing ends requests in
    service at once; so does a client that goes away.
    """

    def __init__(self, find: Find, *, port: int = 0, delay_s: float = 0.0, ledger: Ledger | None = None) -> None:
        #: The port; 0 until the server is entered, if a free one was asked for.
        self.port = port
        self.delay_s = delay_s
        self.ledger = Ledger() if ledger is None else ledger
        self.now: Callable[[], float] = epoch_clock()
        self._find = find
        self._serving: set[asyncio.Task[object]] = set()
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_route("*", "/{rest:.*}", self._serve)
        app.on_response_prepare.append(_drop_guessed_type)
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=_CLOSE_S)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", self.port, backlog=1024)
        await site.start()
        self._runner = runner
        self.port = runner.addresses[0][1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._serving:
            task.cancel()
        if self._runner is not None:
            await self._runner.cleanup()

    def _host(self, authority: str) -> str:
        """The name under which a request's host stands in the ledger."""
        return authority

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        host = self._host(request.host.lower())
        earlier = self.ledger.count(f"http://{host}{request.raw_path}")
        ticket = self.ledger.begin(host, request.raw_path, self.now())

        def end(status: int) -> None:
            self.ledger.end(ticket, status, self.now())

        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            page = self._find(host, request.raw_path, earlier)
            await asyncio.sleep(self.delay_s + page.delay_s)
            return await _ANSWERS[page.fault](request, page, end)
        except ConnectionError:
            return web.Response()  # nobody is left to read it
        finally:
            self._serving.discard(task)
            end(CLIENT_GONE)


class SmallWeb(LoopbackServer):
    """The small web on one loopback port; tests may bring a web of their own."""

    def __init__(self, table: Web = WEB, *, port: int = 0, delay_s: float = 0.0, ledger: Ledger | None = None) -> None:
        super().__init__(table_finder(table), port=port, delay_s=delay_s, ledger=ledger)
        self._table = table

    @property
    def hosts(self) -> dict[str, str]:
        """Map host names to "127.0.0.1:PORT" for `[dns.hosts]`."""
        return dict.fromkeys(self._table, f"127.0.0.1:{self.port}")

    def _host(self, authority: str) -> str:
        """A crawl that finds the web through a name server has URLs with the port; the host is the same."""
        return authority.removesuffix(f":{self.port}")


async def _drop_guessed_type(request: web.Request, response: web.StreamResponse) -> None:
    """A page without a type is sent without one; the library would write a default."""
    if response.get(_NO_TYPE):
        response.headers.popall("Content-Type", None)


def _is_unchanged(request: web.Request, page: Page) -> bool:
    """The request asks for another version than the page's, by the tag that the page has or else by its date."""
    for field, condition in (("ETag", "If-None-Match"), ("Last-Modified", "If-Modified-Since")):
        version = dict(page.headers).get(field)
        if version is not None and condition in request.headers:
            return request.headers[condition] == version
    return False


def _response(page: Page, length: int) -> web.StreamResponse:
    response = web.StreamResponse(status=page.status, headers=page.headers)
    if page.content_type is None:
        response[_NO_TYPE] = True
    else:
        response.headers["Content-Type"] = page.content_type
    if page.gzip:
        response.headers["Content-Encoding"] = "gzip"
    if page.status != 204:
        response.content_length = length
    return response


async def _answer_whole(request: web.Request, page: Page, end: End) -> web.StreamResponse:
    """The whole answer, or 304. The request's end is noted just before its last bytes are sent."""
    if _is_unchanged(request, page):
        end(304)
        return web.Response(status=304, headers=page.headers)
    body = sent_body(page)
    response = _response(page, len(body))
    last = max(0, len(body) - _CHUNK_BYTES)
    for start in range(0, last, _CHUNK_BYTES):
        await response.prepare(request)  # only the first call does something
        await response.write(body[start : min(start + _CHUNK_BYTES, last)])
    end(page.status)
    await response.prepare(request)
    await response.write_eof(body[last:])
    return response


async def _answer_half(request: web.Request, page: Page) -> web.StreamResponse:
    body = sent_body(page)
    response = _response(page, len(body))
    await response.prepare(request)
    await response.write(body[: len(body) // 2])
    return response


async def _close(request: web.Request, page: Page, end: End) -> web.StreamResponse:
    end(NO_ANSWER)
    _transport(request).close()
    return web.Response()


async def _cut(request: web.Request, page: Page, end: End) -> web.StreamResponse:
    response = await _answer_half(request, page)
    end(NO_ANSWER)
    _transport(request).close()
    return response


async def _stall(request: web.Request, page: Page, end: End) -> web.StreamResponse:
    await _answer_half(request, page)
    return await _stay_silent(request, page, end)


async def _stay_silent(request: web.Request, page: Page, end: End) -> web.StreamResponse:
    await asyncio.Event().wait()  # until the client goes away or the server closes
    raise AssertionError("nobody sets the event")


async def _answer_garbage(request: web.Request, page: Page, end: End) -> web.StreamResponse:
    end(NO_ANSWER)
    _transport(request).write(b"this is no HTTP\r\n\r\n")
    _transport(request).close()
    return web.Response()


def _transport(request: web.Request) -> asyncio.Transport:
    transport = request.transport
    if transport is None:
        raise ConnectionResetError("the client is gone")
    return transport


_ANSWERS = {
    None: _answer_whole,
    Fault.CLOSE: _close,
    Fault.CUT: _cut,
    Fault.STALL: _stall,
    Fault.SILENCE: _stay_silent,
    Fault.GARBAGE: _answer_garbage,
}


async def _run(options: argparse.Namespace) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with _server(options) as server:
        print(server.port, flush=True)
        await stop.wait()


def _server(options: argparse.Namespace) -> LoopbackServer:
    ledger = Ledger(line_writer(options.ledger) if options.ledger else None)
    if options.root is None:
        return SmallWeb(port=options.port, delay_s=options.delay, ledger=ledger)
    return LoopbackServer(file_finder(options.root), port=options.port, delay_s=options.delay, ledger=ledger)


def main(arguments: Sequence[str]) -> int:
    """Serve until SIGTERM or SIGINT; the exit code."""
    parser = argparse.ArgumentParser(description="Serve the small web, or a folder of files, on 127.0.0.1.")
    parser.add_argument("--port", type=int, default=0, help="0 = any free port")
    parser.add_argument("--root", type=Path, help="serve this folder in place of the small web")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds before every answer")
    parser.add_argument("--ledger", type=Path, help="append one JSON line per request to this file")
    options = parser.parse_args(arguments)
    if options.root is not None and not options.root.is_dir():
        parser.error(f"--root {options.root}: no such folder")
    asyncio.run(_run(options))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
