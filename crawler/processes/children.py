"""The process of a worker, as its parent sees it: its start, its task, its report."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from anabranch.crawler.job.workerfolders import is_stopped
from anabranch.crawler.processes.forkserver import ForkServer
from anabranch.crawler.processes.worker import WorkerTask
from anabranch.crawler.runtime import child_command

_PROGRAM = "from anabranch.crawler.processes.worker import main; main()"
#: Longer than what a process says at its end.
_LONGEST_BYTES = 1 << 24


class Child:
    """One process. It has a process group of its own: what is typed at the terminal is its parent's to hear."""

    def __init__(self, pid: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.pid = pid
        self._reader = reader
        self._writer = writer

    @classmethod
    async def start(cls, task: WorkerTask, loop: str, fork_server: ForkServer) -> Child:
        """A process that does this task. It ends when this one does, in any way. Raises: OSError."""
        ours, its = socket.socketpair()
        try:
            with its:
                pid = await asyncio.to_thread(_started, its, loop, fork_server)
            reader, writer = await asyncio.open_connection(sock=ours, limit=_LONGEST_BYTES)
        except BaseException:
            ours.close()
            raise
        writer.write(json.dumps(task._asdict()).encode() + b"\n")
        return cls(pid, reader, writer)

    async def ended(self) -> Mapping[str, Any] | None:
        """Its report when its crawl has ended, or why it could not go on; None: it has died."""
        try:
            line = await self._reader.readline()
            report: Mapping[str, Any] | None = json.loads(line) if line.endswith(b"\n") else None
            await self._reader.read()  # until it has gone
        except ConnectionError:
            report = None
        finally:
            self._writer.close()
        return report

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal; nothing if it has gone."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    @property
    def is_stopped(self) -> bool:
        """Somebody has stopped it."""
        return is_stopped(self.pid)


def _started(end: socket.socket, loop: str, fork_server: ForkServer) -> int:
    """The id of a new process that has this end; if the fork server was killed, one that is started anew (blocks)."""
    try:
        return fork_server.start(end, loop)
    except ConnectionError:
        command = child_command(_PROGRAM, str(end.fileno()), loop)
        # Nobody waits for it: its end is seen at its socket, as that of all others.
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=(end.fileno(),), process_group=0)  # noqa: S603
        process.returncode = 0
        return process.pid
