"""The process of a share, as its parent sees it: started, spoken to, and what became of it."""

from __future__ import annotations

import asyncio
import socket
import subprocess
from collections.abc import Mapping
from typing import Any

from anabranch.crawler.processes.channel import Channel, Handle, Message
from anabranch.crawler.processes.nursery import Nursery
from anabranch.crawler.processes.share import ENDED, FAILED, START
from anabranch.crawler.runtime import child_command

_PROGRAM = "from anabranch.crawler.processes.share import main; main()"


class Child:
    """One process. It has a process group of its own: what is typed at the terminal is its parent's to hear."""

    def __init__(self, share: int, pid: int, channel: Channel) -> None:
        self.share = share
        self.pid = pid
        self.channel = channel
        self.ended: Mapping[str, Any] | None = None  #: how its crawl was, if it ended in order
        self.failed: Mapping[str, Any] | None = None  #: the error and its exit code, if it could not go on

    @classmethod
    async def start(cls, share: int, loop: str, nursery: Nursery) -> Child:
        """A process that waits to be told to `begin`. It ends when this one does, in any way. Raises: OSError."""
        ours, its = socket.socketpair()
        try:
            with its:
                pid = await asyncio.to_thread(_started, its, loop, nursery)
        except BaseException:
            ours.close()
            raise
        return cls(share, pid, await Channel.over(ours))

    def begin(self, facts: Mapping[str, Any]) -> None:
        """Have it crawl its share; whatever else is said to it comes after this."""
        self.channel.post(START, share=self.share, **facts)

    async def run(self, handle: Handle) -> None:
        """Handle what it says until it has gone; then `ended` or `failed` say how it ended, or neither: it died."""

        async def heard(message: Message) -> Mapping[str, Any] | None:
            if message.kind == ENDED:
                self.ended = message.facts
            elif message.kind == FAILED:
                self.failed = message.facts
            else:
                return await handle(message)
            return None

        try:
            await self.channel.run(heard)
        finally:
            await self.channel.close()


def _started(end: socket.socket, loop: str, nursery: Nursery) -> int:
    """The id of a new process that has this end; if the nursery was killed, one that is started anew (blocks)."""
    try:
        return nursery.start(end, loop)
    except ConnectionError:
        command = child_command(_PROGRAM, str(end.fileno()), loop)
        # Nobody waits for it: its end is seen at its socket, as that of all others.
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=(end.fileno(),), process_group=0)  # noqa: S603
        process.returncode = 0
        return process.pid
