"""The control socket of a running crawl: other commands ask and order through it.

A Unix socket in the job's state folder, for its owner alone (mode 0600). Each line is a JSON object, a question and its answer:

    {"verb": "block", "arguments": {"host": "example.org", "for_s": 3600}}
    {"facts": {…}}    or    {"error": "one line", "code": 2}

The crawl answers beside its work, one line after another, whoever asks: an order that came while the store answers a long
question would stop the crawl's loop until then. Whoever holds the job's lock owns the socket, so one that is found there
belongs to a dead process and is replaced.
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
from typing import Any, Self, cast

import structlog

from anabranch.crawler.operating.arguments import Arguments, Facts
from anabranch.crawler.outcomes.endings import failure_code
from anabranch.crawler.outcomes.errors import CrawlerError
from anabranch.crawler.outcomes.exits import ExitCode
from anabranch.frontier.errors import FrontierError

log = structlog.get_logger(__name__)

#: The socket's name in the state folder.
SOCKET = "control"

#: What a socket's address may have, in bytes, on every system (sun_path less its NUL: 107 on Linux, 103 on macOS).
_LONGEST_ADDRESS = 103
_OPEN_FOLDERS = Path("/proc/self/fd")
#: A longer question is none of ours.
_LONGEST_LINE = 1 << 20
#: A crawl that has not answered by then hangs, or its store does.
PATIENCE_S = 60.0
#: A question that has stood in line for longer is refused: whoever asked may be told soon that nothing came of it.
_LATEST_S = PATIENCE_S / 2
_TOO_LATE = {
    "error": "the crawl was busy with other questions; nothing was done, ask again",
    "code": ExitCode.STORE_OR_JOB_IN_USE,
}

#: Verb and arguments to facts. Raises: CrawlerError, FrontierError, which become the error's line.
Answer = Callable[[str, Arguments], Awaitable[Facts]]


class ControlRefused(CrawlerError):
    """The running crawl does not do what it was asked, and says what that means for whoever asks."""

    def __init__(self, line: str, code: ExitCode) -> None:
        super().__init__(line)
        self.exit_code = code


class ControlSilent(CrawlerError):
    """The running crawl does not answer."""


class Control:
    """Serves the socket while entered. A job whose folder cannot hold a socket is crawled all the same, with a warning."""

    def __init__(self, state: Path, answer: Answer) -> None:
        self._path = state / SOCKET
        self._answer = answer
        self._server: asyncio.Server | None = None
        self._connections: set[_Connection] = set()
        self._replies: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Lock()  # whoever asked first has it first

    async def __aenter__(self) -> Self:
        try:
            listener = _listener(self._path)
        except OSError as error:
            log.warning("no control socket: other commands must wait until the crawl ends", reason=str(error))
            return self
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(self._connected, sock=listener)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Answer what was asked, then end it with every connection."""
        if self._server is None:
            return
        self._server.close()
        for connection in self._connections:
            connection.hear_no_more()
        while self._replies:
            await asyncio.wait(self._replies)
        for connection in list(self._connections):
            connection.close()
        with suppress(OSError):
            self._path.unlink()

    def _connected(self) -> _Connection:
        return _Connection(self._asked, self._connections)

    def _asked(self, connection: _Connection, line: bytes) -> None:
        latest_s = asyncio.get_running_loop().time() + _LATEST_S
        reply = asyncio.create_task(self._reply_to(connection, line, latest_s), name="control")
        self._replies.add(reply)
        reply.add_done_callback(self._replies.discard)

    async def _reply_to(self, connection: _Connection, line: bytes, latest_s: float) -> None:
        async with self._turn:
            is_late = asyncio.get_running_loop().time() > latest_s
            connection.say(_TOO_LATE if is_late else await self._reply(line))

    async def _reply(self, line: bytes) -> dict[str, Any]:
        try:
            verb, arguments = _question(line)
        except (ValueError, RecursionError):
            return {"error": "the question is no JSON object with a verb and arguments", "code": ExitCode.USAGE}
        return await replied(self._answer, verb, arguments)


async def replied(answer: Answer, verb: str, arguments: Arguments) -> dict[str, Any]:
    """The answer as it is sent: the facts, or the line of an error and its exit code."""
    try:
        return {"facts": await answer(verb, arguments)}
    except (CrawlerError, FrontierError) as error:
        return {"error": str(error), "code": failure_code(error)}
    except Exception as error:  # a defect: whoever asked must hear of it, and the crawl does not end by it
        log.exception("a verb of the control socket failed", verb=verb)
        words = f"{verb} failed: {error!r}; see the crawl's log"
        return {"error": words, "code": ExitCode.STORE_OR_JOB_IN_USE}


def facts_of(reply: Mapping[str, Any]) -> Facts:
    """What was answered. Raises: ControlRefused."""
    if "error" in reply:
        raise ControlRefused(reply["error"], ExitCode(reply["code"]))
    facts: Facts = reply["facts"]
    return facts


class _Connection(asyncio.Protocol):
    """Whole lines in, whole lines out, in order.

    One question is answered at a time, and none while the client has not read what was answered: then nothing more is read from
    it, either. So a client that never reads holds one answer in memory, and is hung up on after `PATIENCE_S`.
    """

    def __init__(self, asked: Callable[[_Connection, bytes], None], open_ones: set[_Connection]) -> None:
        self._asked = asked
        self._open_ones = open_ones
        self._rest = b""
        self._lines: deque[bytes] = deque()  # questions that wait
        self._is_asking = False
        self._is_all = False  # no more questions come
        self._is_deaf = False  # no more are wanted
        self._stalled: asyncio.TimerHandle | None = None  # set while the client does not read

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody asks."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is not derived from it
        self._open_ones.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """They have gone."""
        del exc
        self._open_ones.discard(self)
        self._lines.clear()
        self.resume_writing()

    def data_received(self, data: bytes) -> None:
        """Have each line that is whole answered."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._lines += lines
        if len(self._rest) > _LONGEST_LINE:
            self.close()
        self._ask_next()

    def eof_received(self) -> bool:
        """They ask nothing more; True: what they asked is still answered."""
        self._is_all = True
        return self._is_asking or bool(self._lines)

    def pause_writing(self) -> None:
        """The client leaves answers unread."""
        self._stalled = asyncio.get_running_loop().call_later(PATIENCE_S, self._transport.abort)

    def resume_writing(self) -> None:
        """It has read them."""
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
            self._ask_next()

    def say(self, reply: Facts) -> None:
        """Send the answer to the question under way; nobody may be there any more."""
        self._is_asking = False
        if not self._transport.is_closing():
            self._transport.write(json.dumps(reply).encode() + b"\n")
            if self._is_all and not self._lines:
                self.close()
        self._ask_next()

    def _ask_next(self) -> None:
        if self._transport.is_closing() or self._is_deaf:
            return
        if self._lines and not self._is_asking and self._stalled is None:
            self._is_asking = True
            self._asked(self, self._lines.popleft())
        if self._is_asking or self._stalled is not None:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def hear_no_more(self) -> None:
        """Leave what comes from now on unread, and what waits unanswered."""
        self._is_deaf = True
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def close(self) -> None:
        """Send what was answered, then hang up; at once on a client that does not read."""
        if self._stalled is None:
            self._transport.close()
        else:
            self._transport.abort()


def ask(state: Path, verb: str, arguments: Arguments) -> Facts | None:
    """The facts that the running crawl answers (blocks); None if none is running here, or it has just ended.

    Raises: ControlRefused, ControlSilent.
    """
    path = state / SOCKET
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(PATIENCE_S)
        try:
            with _reachable(path) as address:
                connection.connect(address)
            connection.sendall(json.dumps({"verb": verb, "arguments": arguments}).encode() + b"\n")
            with connection.makefile("rb") as lines:
                line = lines.readline()
        except TimeoutError as error:
            raise ControlSilent(f"{path}: the crawl does not answer; look at its log, or stop it") from error
        except OSError:  # nobody listens, or the listener has gone
            return None
    if not line.endswith(b"\n"):
        return None
    return facts_of(json.loads(line))


def _question(line: bytes) -> tuple[str, Arguments]:
    """Raises: ValueError."""
    match json.loads(line):
        case {"verb": str(verb), "arguments": dict(arguments)}:
            return verb, arguments
    raise ValueError


def _listener(path: Path) -> socket.socket:
    """A bound socket, for its owner alone before anybody can connect. Raises: OSError."""
    with suppress(FileNotFoundError):
        if stat.S_ISSOCK(path.lstat().st_mode):
            path.unlink()  # its process is dead: we hold the job's lock
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _reachable(path) as address:
            listener.bind(address)
        path.chmod(0o600)  # nobody connects before `listen`
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


@contextmanager
def _reachable(path: Path) -> Iterator[str]:
    """An address of the socket that is short enough, good while inside. Raises: OSError if there is none."""
    if len(os.fsencode(path)) <= _LONGEST_ADDRESS:
        yield str(path)
        return
    if not _OPEN_FOLDERS.is_dir():
        raise OSError(f"{path}: longer than {_LONGEST_ADDRESS} bytes; choose a shorter --job")
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield str(_OPEN_FOLDERS / str(folder) / path.name)
    finally:
        os.close(folder)
