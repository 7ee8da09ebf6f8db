"""Forked processes for tests that block, without an event loop: used as `subprocess.Popen` is."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import IO

from tests.acceptance import forkserver

#: As of `subprocess`: a file, or a pipe to the test.
Stream = int | IO[str]


class Forked:
    """A process with text streams. On leaving, its pipes are closed and it is waited for, as with `subprocess.Popen`."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        stdout: Stream = subprocess.PIPE,
        stderr: Stream = subprocess.PIPE,
    ) -> None:
        self.returncode: int | None = None
        with ExitStack() as theirs:
            stdin, writer = os.pipe()
            theirs.callback(os.close, stdin)
            self.stdin = os.fdopen(writer, "w")
            ends = []
            pipes: list[IO[str] | None] = []
            for stream in (stdout, stderr):
                if stream == subprocess.PIPE:
                    reader, end = os.pipe()
                    theirs.callback(os.close, end)
                    pipes.append(os.fdopen(reader))
                else:
                    end = stream if isinstance(stream, int) else stream.fileno()
                    pipes.append(None)
                ends.append(end)
            self.stdout, self.stderr = pipes
            self.pid, self._status = forkserver.fork(arguments, cwd=cwd, env=env, streams=(stdin, ends[0], ends[1]))

    def __enter__(self) -> Forked:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pipe in (self.stdin, self.stdout, self.stderr):
            if pipe is not None:
                pipe.close()
        self.wait()

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code; less than 0 if a signal ended it. Raises: subprocess.TimeoutExpired."""
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
            with self._status:
                self.returncode = forkserver.exit_code(self._status)
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Its output and its errors, at its end; what was read before is not in them."""
        self.stdin.close()
        said = ["", ""]

        def read(number: int, pipe: IO[str]) -> None:
            said[number] = pipe.read()

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
        return said[0], said[1]

    def send_signal(self, number: int) -> None:
        """Does nothing after its end was seen."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """At once."""
        self.send_signal(signal.SIGKILL)


def start(
    arguments: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    stdout: Stream = subprocess.PIPE,
    stderr: Stream = subprocess.PIPE,
) -> Forked | subprocess.Popen[str]:
    """Start `python ARGUMENTS`, which are `-m MODULE …` or `FILE …`, with a pipe as standard input."""
    if forkserver.FORKS:
        return Forked(arguments, cwd=cwd, env=env, stdout=stdout, stderr=stderr)
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=cwd,
        env=env,
        stdin=subprocess.PIPE,
        stdout=stdout,
        stderr=stderr,
        text=True,
    )
