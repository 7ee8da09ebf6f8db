"""The control socket of a running crawl, through which other commands send verbs (see `verbs` and `crawl_verbs`).

A Unix socket in the job's state folder, accessible to its owner only (mode 0600). Each line is a JSON object:

    {"verb": "block", "arguments": {"host": "example.org", "for_s": 3600}, "latest_s": 73129.5}
    {"facts": {…}}    or    {"error": "one line", "code": 2}

A request that has not begun at `latest_s`, by the machine's monotonic clock, is refused: its client may have given up.
The crawl answers one request at a time, over all clients: a command during a long query would block the event loop. A ping is
answered at once, so a client tells a crawl that is busy from one that hangs. The holder of the job's lock owns the socket, so
an existing socket belongs to a dead process and is replaced.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import Any, Self, cast

import structlog

from anabranch.crawler.outcomes.endings import failure_code
from anabranch.crawler.outcomes.errors import CrawlerError, ExitCode
from anabranch.crawler.run.verbs import Arguments, Facts
from anabranch.frontier.errors import FrontierError

log = structlog.get_logger(__name__)

#: The socket's name in the state folder.
SOCKET = "control"

#: The longest address of a socket, in bytes, on every system (sun_path less its NUL: 107 on Linux, 103 on macOS).
_MAX_ADDRESS_BYTES = 103
_OPEN_FOLDERS = Path("/proc/self/fd")
#: A client that sends a longer line is disconnected.
_MAX_LINE_BYTES = 1 << 20
#: How much of an answer is read at a time.
_PIECE_BYTES = 1 << 16
#: A busy crawl has answered a request by then, unless its store hangs.
PATIENCE_S = 60.0
#: A process that does not answer a ping in this time hangs: it is stopped, or its disk or a user's function does not return.
SILENT_S = 3.0
_PING = b'{"verb": "crawl-ping", "arguments": {}}'
_REFUSED_LATE = "the crawl was busy with other questions; nothing was done, ask again"
_NO_REQUEST: Facts = {"error": "the question is no JSON object with a verb and arguments", "code": ExitCode.USAGE}

#: Verb and arguments to facts. Raises: CrawlerError, FrontierError, which become the error's line.
Answer = Callable[[str, Arguments], Awaitable[Facts]]


class ControlRefused(CrawlerError):
    """The running crawl refused the request; the exit code is the client's."""

    def __init__(self, line: str, code: ExitCode) -> None:
        super().__init__(line)
        self.exit_code = code


class ControlSilent(CrawlerError):
    """The running crawl does not answer. `is_sent`: it has the request, and may carry it out if it goes on."""

    def __init__(self, line: str, *, is_sent: bool) -> None:
        super().__init__(line)
        self.is_sent = is_sent


class Responder:
    """Answers the requests of other processes one at a time, in the order in which they come, whichever way brings them.

    A command during a long query would block the event loop. Pages are fetched, and the ways go on, meanwhile.
    """

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self._tasks: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Lock()  # first come, first served

    @property
    def is_busy(self) -> bool:
        """A request is being answered, or waits."""
        return bool(self._tasks)

    def take(self, request: object, reply: Callable[[Facts], Awaitable[None]]) -> None:
        """Answer {"verb", "arguments"} when its turn comes, but not after its "latest_s", if it has one."""
        task = asyncio.create_task(self._serve(request, reply), name="control")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def end(self) -> None:
        """Return when all that were taken are answered."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _serve(self, request: object, reply: Callable[[Facts], Awaitable[None]]) -> None:
        async with self._turn:
            match request:
                case {"latest_s": float(latest_s)} if monotonic() > latest_s:
                    await reply({"error": _REFUSED_LATE, "code": ExitCode.STORE_OR_JOB_IN_USE})
                case {"verb": str(verb), "arguments": dict(arguments)}:
                    await reply(await self.reply_to(verb, arguments))
                case _:
                    await reply(_NO_REQUEST)

    async def reply_to(self, verb: str, arguments: Arguments) -> Facts:
        """The reply, at once: the facts, or the line of an error and its exit code."""
        try:
            return {"facts": await self.answer(verb, arguments)}
        except (CrawlerError, FrontierError) as error:
            return {"error": str(error), "code": failure_code(error)}
        except Exception as error:  # a defect: the client must see it, and the crawl goes on
            log.exception("a request of another process failed", verb=verb)
            words = f"{verb} failed: {error!r}; see the crawl's log"
            return {"error": words, "code": ExitCode.STORE_OR_JOB_IN_USE}


class Control:
    """Serves the socket while entered. If the job's folder cannot hold a socket, the crawl runs without one, with a warning."""

    def __init__(self, state: Path, answer: Answer) -> None:
        self._path = state / SOCKET
        self._requests = Responder(answer)
        self._server: asyncio.Server | None = None
        self._connections: set[_Connection] = set()

    async def __aenter__(self) -> Self:
        try:
            listener = _bind(self._path)
        except OSError as error:
            log.warning("no control socket: other commands must wait until the crawl ends", reason=str(error))
            return self
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(
            lambda: _Connection(self._received, self._connections), sock=listener
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        """Answer the requests that were received, then close every connection."""
        if self._server is None:
            return
        self._server.close()
        for connection in self._connections:
            connection.stop_reading()
        await self._requests.end()
        for connection in list(self._connections):
            connection.close()
        with suppress(OSError):
            self._path.unlink()

    def _received(self, connection: _Connection, line: bytes) -> None:
        if line == _PING:
            asyncio.get_running_loop().call_soon(connection.send, {"facts": {}})
            return
        request = None
        with suppress(ValueError, RecursionError):
            request = json.loads(line)
        self._requests.take(request, connection.reply)


def facts_of(reply: Mapping[str, Any]) -> Facts:
    """The facts of a reply. Raises: ControlRefused."""
    if "error" in reply:
        raise ControlRefused(reply["error"], ExitCode(reply["code"]))
    return cast("Facts", reply["facts"])


class _Connection(asyncio.Protocol):
    """Whole lines in, whole lines out, in order, one request at a time.

    Nothing is read while the client leaves a reply unread; it is disconnected after `PATIENCE_S`.
    """

    def __init__(self, received: Callable[[_Connection, bytes], None], connections: set[_Connection]) -> None:
        self._received = received
        self._connections = connections
        self._rest = b""
        self._lines: deque[bytes] = deque()  # requests that wait
        self._is_busy = False
        self._is_at_end = False  # the client sends no more
        self._is_closing = False  # the server closes
        self._stalled: asyncio.TimerHandle | None = None  # set while the client reads no replies

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is not derived from it
        self._connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has gone."""
        del exc
        self._connections.discard(self)
        self._lines.clear()
        self.resume_writing()

    def data_received(self, data: bytes) -> None:
        """Take the complete lines."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._lines += lines
        if len(self._rest) > _MAX_LINE_BYTES:
            self.close()
        self._next()

    def eof_received(self) -> bool:
        """The client sends no more; True keeps the connection open for the replies."""
        self._is_at_end = True
        return self._is_busy or bool(self._lines)

    def pause_writing(self) -> None:
        """The client does not read its replies."""
        self._stalled = asyncio.get_running_loop().call_later(PATIENCE_S, self._transport.abort)

    def resume_writing(self) -> None:
        """The client has read its replies."""
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
            self._next()

    async def reply(self, reply: Facts) -> None:
        """Send it as `send` does."""
        self.send(reply)

    def send(self, reply: Facts) -> None:
        """Send the reply to the request in progress; the client may have gone."""
        self._is_busy = False
        if not self._transport.is_closing():
            self._transport.write(json.dumps(reply).encode() + b"\n")
            if self._is_at_end and not self._lines:
                self.close()
        self._next()

    def _next(self) -> None:
        if self._transport.is_closing() or self._is_closing:
            return
        if self._lines and not self._is_busy and self._stalled is None:
            self._is_busy = True
            self._received(self, self._lines.popleft())
        if self._is_busy or self._stalled is not None:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def stop_reading(self) -> None:
        """Read no more, and leave the requests that wait unanswered."""
        self._is_closing = True
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def close(self) -> None:
        """Disconnect, after the replies are sent; at once if the client does not read."""
        if self._stalled is None:
            self._transport.close()
        else:
            self._transport.abort()


def has_crawl(state: Path) -> bool:
    """Whether a process listens for requests to the running crawl, if it answers them or not."""
    with suppress(OSError), _connected(state / SOCKET, 0.0):
        return True
    return False


def ask(state: Path, verb: str, arguments: Arguments, patience_s: float = PATIENCE_S) -> Facts | None:
    """Send a request to the running crawl (blocks); None if none runs here. Raises: ControlRefused, ControlSilent.

    It must answer a ping in `SILENT_S` to get the request, and others while it is busy. A crawl that does not begin with the
    request in half of `patience_s` leaves it undone, also if it goes on later.
    """
    path, silent_s = state / SOCKET, min(SILENT_S, patience_s)
    is_sent = False
    try:
        with _connected(path, silent_s) as connection:
            if not _reply(connection, _PING):
                return None
            latest_s = monotonic() + patience_s
            request = {"verb": verb, "arguments": arguments, "latest_s": latest_s - patience_s / 2}
            connection.settimeout(patience_s)
            connection.sendall(json.dumps(request).encode() + b"\n")
            is_sent = True
            connection.settimeout(silent_s)
            line = bytearray()
            while not line.endswith(b"\n"):
                try:
                    piece = connection.recv(_PIECE_BYTES)
                except TimeoutError:
                    if monotonic() >= latest_s or not _pings(path, silent_s):
                        raise
                    continue
                if not piece:
                    return None
                line += piece
    except TimeoutError as error:
        words = f"{path}: the crawl does not answer; look at its log, or stop its process"
        raise ControlSilent(words, is_sent=is_sent) from error
    except OSError:  # no process listens, or it has gone
        return None
    return facts_of(json.loads(line))


def _pings(path: Path, silent_s: float) -> bool:
    """Whether the process goes on. Raises: TimeoutError if not; OSError if it has gone."""
    with _connected(path, silent_s) as connection:
        return _reply(connection, _PING)


@contextmanager
def _connected(path: Path, timeout_s: float) -> Iterator[socket.socket]:
    """A connection to the socket. Raises: OSError."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_s)
        with _reachable(path) as address:
            connection.connect(address)
        yield connection


def _reply(connection: socket.socket, line: bytes) -> bool:
    """Send a line; whether a line comes back. Nothing else must be on its way. Raises: OSError."""
    connection.sendall(line + b"\n")
    reply = b""
    while not reply.endswith(b"\n"):
        piece = connection.recv(_PIECE_BYTES)
        if not piece:
            return False
        reply += piece
    return True


def _bind(path: Path) -> socket.socket:
    """A bound socket, restricted to its owner before a client can connect. Raises: OSError."""
    with suppress(FileNotFoundError):
        if stat.S_ISSOCK(path.lstat().st_mode):
            path.unlink()  # its process is dead, since this one holds the job's lock
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _reachable(path) as address:
            listener.bind(address)
        path.chmod(0o600)  # no client can connect before `listen`
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


@contextmanager
def _reachable(path: Path) -> Iterator[str]:
    """An address of the socket that is short enough, valid while entered. Raises: OSError."""
    if len(os.fsencode(path)) <= _MAX_ADDRESS_BYTES:
        yield str(path)
        return
    if not _OPEN_FOLDERS.is_dir():
        raise OSError(f"{path}: longer than {_MAX_ADDRESS_BYTES} bytes; name a job folder with a shorter path")
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield str(_OPEN_FOLDERS / str(folder) / path.name)
    finally:
        os.close(folder)
