"""Processes for tests that block, without an event loop: forked where possible, and used much as `subprocess.Popen` is."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from threading import Thread
from typing import IO, Any, Self

from tests.acceptance import forkserver
from tests.acceptance.command import environment
from tests.acceptance.forkserver import ROOMS

#: `subprocess.PIPE`, `subprocess.DEVNULL`, a file, or None: that of this process.
Stream = int | IO[Any] | None


class Process:
    """`python ARGUMENTS`, which are `-m MODULE …`, `-c PROGRAM …` or `FILE …`, with text streams.

    Without an environment it has that of a user who has the clone. Its pipes hold `pipesize` bytes where the system can set
    that. At the end of its `with` it is killed, if it has not ended, and its pipes are closed.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        cwd: str | Path,
        env: Mapping[str, str] | None = None,
        stdin: Stream = subprocess.PIPE,
        stdout: Stream = subprocess.PIPE,
        stderr: Stream = subprocess.PIPE,
        preload: tuple[str, ...] = ROOMS,
        pipesize: int = -1,
        pass_fds: Sequence[int] = (),
        start_new_session: bool = False,
    ) -> None:
        self.returncode: int | None = None
        env = environment() if env is None else env
        with ExitStack() as theirs:
            streams = [_stream(one, number, theirs, pipesize) for number, one in enumerate((stdin, stdout, stderr))]
            ends = (streams[0][0], streams[1][0], streams[2][0])
            self.stdin, self.stdout, self.stderr = (pipe for _, pipe in streams)
            if forkserver.FORKS:
                self.pid, status = forkserver.fork(
                    arguments,
                    cwd=cwd,
                    env=env,
                    streams=ends,
                    preload=preload,
                    pass_fds=pass_fds,
                    start_new_session=start_new_session,
                )
                self._wait: Callable[[float | None], int] = partial(_forked_code, status)
            else:
                command = [sys.executable, *map(str, arguments)]
                fresh = subprocess.Popen(
                    command,
                    cwd=cwd,
                    env=env,
                    stdin=ends[0],
                    stdout=ends[1],
                    stderr=ends[2],
                    pass_fds=pass_fds,
                    start_new_session=start_new_session,
                )
                self.pid, self._wait = fresh.pid, fresh.wait

    def poll(self) -> int | None:
        """Its exit code if it has ended."""
        with suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code; less than 0 if a signal ended it. Raises: subprocess.TimeoutExpired."""
        if self.returncode is None:
            self.returncode = self._wait(timeout)
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """End its input. Its output and its errors, at its end; what was read before is not in them."""
        if self.stdin is not None:
            with suppress(BrokenPipeError):  # what it did not read
                self.stdin.close()
        found = ["", ""]

        def read(number: int, pipe: IO[str]) -> None:
            found[number] = pipe.read()

        pipes = [(number, pipe) for number, pipe in enumerate((self.stdout, self.stderr)) if pipe is not None]
        readers = [Thread(target=read, args=one, daemon=True) for one in pipes]
        for reader in readers:
            reader.start()
        try:
            self.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        finally:
            for reader in readers:
                reader.join()
        return found[0], found[1]

    def send_signal(self, number: int) -> None:
        """Does nothing if it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):  # the fork server has waited for it a moment ago
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """It has ended when this returns."""
        self.send_signal(signal.SIGKILL)
        self.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        for pipe in (self.stdin, self.stdout, self.stderr):
            if pipe is not None:
                with suppress(BrokenPipeError):  # what it did not read
                    pipe.close()


class Children:
    """The module `subprocess`, for a module of the product that starts what `runtime.child_command` makes: forked.

    `started` has the processes, in their order.
    """

    PIPE, DEVNULL = subprocess.PIPE, subprocess.DEVNULL

    def __init__(self, preload: tuple[str, ...]) -> None:
        self._preload = preload
        self.started: list[int] = []

    def Popen(self, command: Sequence[str], *, env: Mapping[str, str] | None = None, **how: Any) -> Process:
        """Without an environment it has that of this process."""
        arguments = [*command[command.index("-c") :]]
        process = Process(arguments, cwd=Path.cwd(), env=env or os.environ, preload=self._preload, **how)
        self.started.append(process.pid)
        return process


def _forked_code(status: socket.socket, timeout: float | None) -> int:
    if not select.select([status], [], [], timeout)[0]:
        raise subprocess.TimeoutExpired("a forked process", timeout or 0)
    return forkserver.exit_code(status)


def _stream(stream: Stream, number: int, theirs: ExitStack, pipesize: int) -> tuple[int, Any]:
    """The descriptor for a process, and our end of it if it is a pipe; what is only the process's is closed with `theirs`."""
    if stream == subprocess.PIPE:
        reader, writer = os.pipe()
        if pipesize > 0 and hasattr(fcntl, "F_SETPIPE_SZ"):
            fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, pipesize)
        its, ours = (reader, writer) if number == 0 else (writer, reader)
        theirs.callback(os.close, its)
        return its, os.fdopen(ours, "w" if number == 0 else "r")
    if stream == subprocess.DEVNULL:
        its = os.open(os.devnull, os.O_RDWR)
        theirs.callback(os.close, its)
        return its, None
    if stream is None:
        return number, None
    return (stream if isinstance(stream, int) else stream.fileno()), None
