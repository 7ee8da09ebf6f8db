"""The fork server: a process that forks once for each worker; it is itself forked before the parent opens anything.

It imports the modules of a worker once for all, and forked processes share its memory until they write to it; a new Python
program needs two seconds of CPU time for these imports. It is a process of its own because a parent with an event loop, threads
and open files cannot be forked safely. It ends when the parent does.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import struct
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from threading import Lock
from types import FrameType
from typing import NoReturn

from anabranch.crawler.outcomes.errors import ExitCode

_PID = struct.Struct(">i")
#: Longer than the name of any event loop.
_REQUEST_BYTES = 64

#: What a process does: its end of the parent's socket, the name of its event loop -> its exit code.
Live = Callable[[socket.socket, str], int]


class ForkServer:
    """The parent's side. Any thread may ask for a process."""

    def __init__(self, live: Live) -> None:
        """Fork; nothing may be open here but the standard streams, and no thread may run. Raises: OSError."""
        self._asking = Lock()  # an answer belongs to the question before it
        self._channel, its = socket.socketpair()
        sys.stdout.flush()
        sys.stderr.flush()
        self._pid = os.fork()
        if self._pid == 0:
            self._channel.close()
            _serve(its, live)
        its.close()

    def start(self, end: socket.socket, loop: str) -> int:
        """A new process that has this end of a socket pair; its id (blocks, for some milliseconds). Raises: OSError."""
        with self._asking:
            socket.send_fds(self._channel, [loop.encode()], [end.fileno()])
            answer = self._channel.recv(_PID.size)
        if len(answer) < _PID.size:
            raise ConnectionError("the process that starts others has gone")
        pid: int = _PID.unpack(answer)[0]
        if pid < 0:
            raise OSError(-pid, os.strerror(-pid))
        return pid

    def close(self) -> None:
        """Start no more: it ends, and what it and its children used of the machine counts as this process's."""
        self._channel.close()
        with suppress(ChildProcessError):
            os.waitpid(self._pid, 0)


def _serve(channel: socket.socket, live: Live) -> NoReturn:
    """Fork for each request, until the parent has gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's word is the parent's to hear
    signal.signal(signal.SIGCHLD, _let_go)
    gc.freeze()
    while True:
        loop, ends, _, _ = socket.recv_fds(channel, _REQUEST_BYTES, 1)
        if not loop or not ends:
            os._exit(ExitCode.DONE)
        try:
            pid = os.fork()
        except OSError as error:
            pid = -(error.errno or 1)
        if pid == 0:
            channel.close()
            _spawned(ends[0], loop.decode(), live)
        os.close(ends[0])
        channel.send(_PID.pack(pid))


def _let_go(_number: int, _frame: FrameType | None) -> None:
    """Children that have ended are no more: nobody asks how, since who talks to them sees their sockets close."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _spawned(end: int, loop: str, live: Live) -> NoReturn:
    """Live, and never come back to what was there before the fork."""
    code = 1
    try:
        os.setpgid(0, 0)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        code = live(socket.socket(fileno=end), loop)
    except BaseException:  # noqa: BLE001 - there is nobody above
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
