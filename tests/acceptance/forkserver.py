"""Python processes that start in milliseconds: each is forked from a server that has imported what it needs.

A command that is started anew spends a second of CPU time on imports, and the tests start hundreds. A forked one is a process
like any other: its own arguments, folder, environment, standard streams, signals and exit code. It runs as `__main__`, as
`python -m MODULE` or `python FILE` would, and ends as Python ends. Differences: its parent is the server, `/proc` shows the
server's command line, and what it imports is there already. Tests about one of these start a fresh Python.
"""

from __future__ import annotations

import asyncio
import atexit
import fcntl
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

_LENGTH = struct.Struct(">I")
_NUMBER = struct.Struct(">i")
#: Set to 0, each process is a fresh Python, as where fork is not safe (macOS).
FORKS = sys.platform == "linux" and os.environ.get("ANABRANCH_TEST_FORKS", "1") != "0"
#: What commands of Anabranch import: all modules of its rooms.
ROOMS = ("anabranch.crawler.", "anabranch.dedup.", "anabranch.frontier.")
#: What programs that mark a filter import.
DEDUP = ("anabranch.dedup.",)
_MOST_DESCRIPTORS = 8  #: of a process: three streams, those that it is passed, and the server's own
_APART = ("anabranch.frontier.hosts.",)  #: they import Scrapy or Crawlee


# What tests use


class Forked:
    """A process with three pipes, as `asyncio.subprocess.Process` is one."""

    def __init__(self, pid: int, status: socket.socket, stdin: asyncio.StreamWriter, *outputs: asyncio.StreamReader):
        self.pid = pid
        self.returncode: int | None = None
        self.stdin = stdin
        self.stdout, self.stderr = outputs
        self._status = status
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._loop.add_reader(status, self._note_end)

    def _note_end(self) -> None:
        self._loop.remove_reader(self._status)
        self.returncode = exit_code(self._status)
        self.stdin.close()
        self._ended.set()

    async def wait(self) -> int:
        """Its exit code; less than 0 if a signal ended it."""
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    async def communicate(self, given: bytes | None = None) -> tuple[bytes, bytes]:
        """Its output and its errors, at its end."""
        with suppress(ConnectionError):
            if given is not None:
                self.stdin.write(given)
                await self.stdin.drain()
            self.stdin.close()
        out, err = await asyncio.gather(self.stdout.read(), self.stderr.read())
        await self.wait()
        return out, err

    def send_signal(self, number: int) -> None:
        """Raises: ProcessLookupError if it has ended."""
        if self.returncode is not None:
            raise ProcessLookupError
        os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


async def start(
    arguments: Sequence[str], *, cwd: str | Path, env: Mapping[str, str], preload: tuple[str, ...] = ROOMS
) -> Forked | asyncio.subprocess.Process:
    """Start `python ARGUMENTS`, which are `-m MODULE …`, `-c PROGRAM …` or `FILE …`."""
    if not FORKS:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, *arguments),
            cwd=cwd,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    loop = asyncio.get_running_loop()
    ours, stdin = socket.socketpair()
    (out, stdout), (err, stderr) = os.pipe(), os.pipe()
    try:
        pid, status = _server(preload).start(arguments, cwd, env, (stdin.fileno(), stdout, stderr))
    finally:
        stdin.close()
        os.close(stdout)
        os.close(stderr)
    _, writer = await asyncio.open_connection(sock=ours)
    readers = []
    for descriptor in (out, err):
        readers.append(reader := asyncio.StreamReader())
        protocol = asyncio.StreamReaderProtocol(reader)
        await loop.connect_read_pipe(lambda protocol=protocol: protocol, os.fdopen(descriptor, "rb", 0))  # type: ignore[misc]
    return Forked(pid, status, writer, *readers)


def run(
    arguments: Sequence[str],
    *,
    cwd: str | Path,
    env: Mapping[str, str],
    stdin: bytes = b"",
    timeout: float | None = None,
    preload: tuple[str, ...] = ROOMS,
) -> subprocess.CompletedProcess[str]:
    """Run `python ARGUMENTS` to its end. Raises: subprocess.TimeoutExpired, after it was killed."""
    code, out, err = asyncio.run(_run_to_its_end(arguments, cwd, env, stdin, timeout, preload))
    return subprocess.CompletedProcess(
        [*arguments], code, *(text.decode(errors="backslashreplace") for text in (out, err))
    )


def run_bytes(
    arguments: Sequence[str], *, cwd: str | Path, env: Mapping[str, str], stdin: bytes, timeout: float
) -> tuple[int, bytes, bytes]:
    """Run a command of Anabranch that writes bytes to its end: exit code, output, errors. Raises: as `run`."""
    return asyncio.run(_run_to_its_end(arguments, cwd, env, stdin, timeout, ROOMS))


async def _run_to_its_end(
    arguments: Sequence[str],
    cwd: str | Path,
    env: Mapping[str, str],
    stdin: bytes,
    patience_s: float | None,
    preload: tuple[str, ...],
) -> tuple[int, bytes, bytes]:
    process = await start(arguments, cwd=cwd, env=env, preload=preload)
    try:
        out, err = await asyncio.wait_for(process.communicate(stdin), patience_s)
    except TimeoutError:
        for end in (os.killpg, os.kill):  # all that it started, if it leads a session, even if it has ended itself
            with suppress(ProcessLookupError):
                end(process.pid, signal.SIGKILL)
        out, err = await process.communicate()
        raise subprocess.TimeoutExpired([*arguments], patience_s or 0, out, err) from None
    assert process.returncode is not None
    return process.returncode, out, err


def fork(
    arguments: Sequence[str],
    *,
    cwd: str | Path,
    env: Mapping[str, str],
    streams: tuple[int, int, int],
    preload: tuple[str, ...] = ROOMS,
    pass_fds: Sequence[int] = (),
    start_new_session: bool = False,
) -> tuple[int, socket.socket]:
    """Start `python ARGUMENTS` with these descriptors as its streams: its process, and where its `exit_code` comes.

    It has the descriptors `pass_fds`, too, by the same numbers.
    """
    return _server(preload).start(arguments, cwd, env, streams, pass_fds, start_new_session)


def exit_code(status: socket.socket) -> int:
    """The exit code of a process that was forked; waits for its end, and closes the socket."""
    with status:
        code: int = _NUMBER.unpack(status.recv(_NUMBER.size))[0]
        return code


class _Server:
    """The client's side of a server."""

    def __init__(self, preload: Sequence[str]) -> None:
        self._channel, its = socket.socketpair()
        self._asking = threading.Lock()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - it is closed with the server
        with its:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(its.fileno()), str(self._output.fileno()), *preload],
                stdin=subprocess.PIPE,  # its commands have pipes, too, and may keep its stream objects
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=[its.fileno(), self._output.fileno()],
                env={name: value for name, value in os.environ.items() if not name.startswith("ANABRANCH_")}
                | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])},
            )

    def start(
        self,
        arguments: Sequence[str],
        cwd: str | Path,
        env: Mapping[str, str],
        streams: tuple[int, int, int],
        pass_fds: Sequence[int] = (),
        start_new_session: bool = False,
    ) -> tuple[int, socket.socket]:
        """The id of a new process, and the socket on which its exit code will come."""
        request = {
            "arguments": [*map(str, arguments)],
            "cwd": str(Path(cwd).absolute()),
            "env": dict(env),
            "pass_fds": [*pass_fds],
            "start_new_session": start_new_session,
        }
        text = json.dumps(request).encode()
        status, its = socket.socketpair()
        with its, self._asking:  # tests start commands in several threads: each request is whole
            socket.send_fds(self._channel, [_LENGTH.pack(len(text))], [*streams, *pass_fds, its.fileno()])
            self._channel.sendall(text)
        pid = status.recv(_NUMBER.size)
        if not pid:
            out, err = self._process.communicate()
            self._output.seek(0)
            raise AssertionError(f"the fork server has ended: {(out + err + self._output.read()).decode()}")
        return _NUMBER.unpack(pid)[0], status

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def close(self) -> None:
        """It ends; what it and its commands used of the machine counts as this process's."""
        self._channel.close()
        self._process.communicate()
        self._output.close()


_servers: dict[tuple[str, ...], _Server] = {}
_starting = threading.Lock()


def _server(preload: tuple[str, ...]) -> _Server:
    with _starting:
        if preload not in _servers:
            _servers[preload] = _Server(preload)
        return _servers[preload]


def servers() -> set[int]:
    """The servers that this process has started, by their processes."""
    return {server.pid for server in _servers.values()}


@atexit.register
def close_all() -> None:
    """End the servers that this process has started."""
    while _servers:
        _servers.popitem()[1].close()


# The server


class _Children:
    """Processes that run, by id, with the sockets on which their exit codes are awaited."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._statuses: dict[int, socket.socket] = {}
        self._wake, self._woken = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(self._wake, False)
        signal.set_wakeup_fd(self._woken, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _nothing)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's is meant for the tests and their commands

    def serve(self) -> dict[str, Any] | None:
        """Fork for each request. Returns in a forked process, with its request; None when the client has gone."""
        while True:
            ready, _, _ = select.select([self._channel, self._wake], [], [])
            if self._wake in ready:
                with suppress(BlockingIOError):
                    os.read(self._wake, 4096)
                self._report()
            if self._channel in ready:
                header, descriptors, _, _ = socket.recv_fds(self._channel, _LENGTH.size, _MOST_DESCRIPTORS)
                if not header:
                    return None
                text = _received(self._channel, _LENGTH.unpack(header)[0])
                status = socket.socket(fileno=descriptors.pop())
                pid = os.fork()
                if pid == 0:
                    status.close()
                    request: dict[str, Any] = json.loads(text)
                    self._leave(dict(zip((0, 1, 2, *request["pass_fds"]), descriptors, strict=True)))
                    if request["start_new_session"]:
                        os.setsid()
                    return request
                for descriptor in descriptors:
                    os.close(descriptor)
                self._statuses[pid] = status
                status.send(_NUMBER.pack(pid))

    def _report(self) -> None:
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                with self._statuses.pop(ended[0]) as status, suppress(ConnectionError):
                    status.send(_NUMBER.pack(os.waitstatus_to_exitcode(ended[1])))

    def _leave(self, descriptors: Mapping[int, int]) -> None:
        """In a forked process: have its descriptors, by the numbers they shall have, and nothing of the server's."""
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.close(self._wake)
        os.close(self._woken)
        self._channel.close()
        for status in self._statuses.values():
            status.close()
        aside = {}  # above all those numbers, so that none takes another one's place
        for number, descriptor in descriptors.items():
            aside[number] = fcntl.fcntl(descriptor, fcntl.F_DUPFD, max(descriptors) + 1)
            os.close(descriptor)
        for number, descriptor in aside.items():
            os.dup2(descriptor, number)
            os.close(descriptor)


def _nothing(_number: int, _frame: FrameType | None) -> None:
    """Only the wake-up matters."""


def _received(channel: socket.socket, count: int) -> bytes:
    text = b""
    while len(text) < count and (more := channel.recv(count - len(text))):
        text += more
    return text


def _preload(name: str) -> None:
    """Import a module; if the name ends in a dot, with all below it."""
    module = importlib.import_module(name.rstrip("."))
    for found in pkgutil.iter_modules(getattr(module, "__path__", ()), name) if name.endswith(".") else ():
        if not found.name.endswith("__main__") and not f"{found.name}.".startswith(_APART):
            with suppress(ImportError):  # an optional library is missing
                _preload(f"{found.name}." if found.ispkg else found.name)


def _build_parameters(command: Any) -> None:
    """Build what checks the parameters of a command and its subcommands: most of a small command's time."""
    for parameter in command.params:
        parameter.get_runtime_param()
    for below in getattr(command, "commands", {}).values():
        _build_parameters(below)


def _become(arguments: Sequence[str], cwd: str, env: Mapping[str, str]) -> NoReturn:
    """Run as that command and end as Python does, but without clearing all modules, which costs as much as a small command."""
    code: object = None
    try:
        _run(arguments, cwd, env)
    except SystemExit as end:
        code = end.code
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:  # noqa: BLE001 - nothing is above
        traceback.print_exc()
        code = 1
    if isinstance(code, str):
        sys.stderr.write(f"{code}\n")
    threading._shutdown()  # type: ignore[attr-defined] - as the interpreter does, which has no other name for these
    atexit._run_exitfuncs()
    status = code if isinstance(code, int) else int(code is not None)
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except OSError:
            status = 120  # as Python's own
    os._exit(status)


def _run(arguments: Sequence[str], cwd: str, env: Mapping[str, str]) -> None:
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    if arguments[0] == "-m":
        sys.argv[:] = arguments[1:]
        sys.path[0] = cwd
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    elif arguments[0] == "-c":
        sys.argv[:] = ["-c", *arguments[2:]]
        sys.path[0] = cwd
        exec(compile(arguments[1], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv[:] = arguments
        sys.path[0] = str(Path(arguments[0]).parent)
        runpy.run_path(arguments[0], run_name="__main__")


def _write_to(descriptor: int) -> None:
    """Write all output to this file. Nobody reads the pipes while the server lives, and a full one would stop it."""
    for stream in (sys.stdout, sys.stderr):
        os.dup2(descriptor, stream.fileno())
    os.close(descriptor)


if __name__ == "__main__":
    _write_to(int(sys.argv[2]))
    _children = _Children(socket.socket(fileno=int(sys.argv[1])))
    for _name in sys.argv[3:]:
        _preload(_name)
    if "anabranch.crawler.cli.app" in sys.modules:
        _build_parameters(sys.modules["anabranch.crawler.cli.app"].root_command())
    gc.collect()
    gc.freeze()
    _request = _children.serve()
    if _request is not None:
        _become(_request["arguments"], _request["cwd"], _request["env"])
