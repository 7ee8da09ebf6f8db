"""The process of a share, as its parent sees it: started, spoken to, and what became of it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from typing import Any

from crawler.children import child_command
from crawler.processes.channel import Channel, Handle, Message
from crawler.processes.share import ENDED, FAILED, START

_PROGRAM = "from crawler.processes.share import main; main()"


class Child:
    """One process. It has a process group of its own: what is typed at the terminal is its parent's to hear."""

    def __init__(self, share: int, process: asyncio.subprocess.Process, channel: Channel) -> None:
        self.share = share
        self.channel = channel
        self.ended: Mapping[str, Any] | None = None  #: how its crawl was, if it ended in order
        self.failed: Mapping[str, Any] | None = None  #: the error and its exit code, if it could not go on
        self._process = process

    @classmethod
    async def start(cls, share: int, facts: Mapping[str, Any]) -> Child:
        """A process that crawls the share, told these `facts`. It ends when this one does, in any way. Raises: OSError."""
        ours, its = socket.socketpair()
        try:
            with its:
                process = await asyncio.create_subprocess_exec(
                    *child_command(_PROGRAM, str(its.fileno()), facts["order"]["crawl"]["loop"]),
                    stdin=asyncio.subprocess.DEVNULL,
                    pass_fds=(its.fileno(),),
                    process_group=0,
                )
        except BaseException:
            ours.close()
            raise
        child = cls(share, process, await Channel.over(ours))
        child.channel.post(START, share=share, **facts)
        return child

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    async def run(self, handle: Handle) -> None:
        """Handle what it says until it has ended; then `ended` or `failed` say how, or neither: it died."""

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
            await self._process.wait()

    @property
    def death(self) -> str:
        """How a process ended that said nothing, in words."""
        code = self._process.returncode
        return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
