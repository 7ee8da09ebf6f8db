"""Messages between the parent and a share: JSON with bytes behind it, over one socket of a pair.

Each side may post a message, or ask and wait for the reply. A message is the lengths of its two parts, then the parts:

    {"kind": "parcel", "to": 1, "ask": 17} + content        {"reply": 17, "is_taken": true}
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from itertools import count
from typing import Any, NamedTuple

from anabranch.crawler.outcomes.errors import CrawlerError

_LENGTHS = struct.Struct(">II")
#: Nothing of ours is longer; a parcel has some hundred kilobytes.
_LONGEST_BYTES = 1 << 30


class ChannelClosed(CrawlerError):
    """The process at the other end has gone."""


class Message(NamedTuple):
    """What one side says to the other."""

    kind: str
    facts: Mapping[str, Any]
    body: bytes = b""


#: What the other side's message does; the facts go back to who asked.
Handle = Callable[[Message], Awaitable[Mapping[str, Any] | None]]


class Channel:
    """One end. `run` must run while the other end is there; messages are handled as they come, each in a task of its own."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._numbers = count(1)
        self._asked: dict[int, asyncio.Future[Mapping[str, Any]]] = {}
        self._is_closed = False

    @classmethod
    async def over(cls, end: socket.socket) -> Channel:
        """A channel over one end of a socket pair, which is the channel's from now on."""
        reader, writer = await asyncio.open_unix_connection(sock=end)
        return cls(reader, writer)

    def post(self, kind: str, body: bytes = b"", **facts: Any) -> None:
        """Say it; nobody answers. Nothing happens if the other end has gone."""
        self._send({"kind": kind, **facts}, body)

    async def ask(self, kind: str, body: bytes = b"", **facts: Any) -> Mapping[str, Any]:
        """Say it and wait for the reply. Raises: ChannelClosed."""
        if self._is_closed:
            raise ChannelClosed("the other process has gone")
        number = next(self._numbers)
        reply: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        self._asked[number] = reply
        try:
            self._send({"kind": kind, "ask": number, **facts}, body)
            with suppress(ConnectionError):
                await self._writer.drain()
            return await reply
        finally:
            self._asked.pop(number, None)

    async def run(self, handle: Handle) -> None:
        """Handle what comes until the other end has gone, or this one is closed; what was asked is then answered no more.

        What is being handled then is cancelled, but nothing before it was begun: a last word is heard.
        """
        under_way: set[asyncio.Task[None]] = set()
        try:
            async with asyncio.TaskGroup() as handling:
                while (message := await self._next()) is not None:
                    head, body = message
                    if (number := head.pop("reply", None)) is not None:
                        self._replied(number, head)
                        continue
                    task = handling.create_task(self._handled(handle, head, body))
                    under_way.add(task)
                    task.add_done_callback(under_way.discard)
                self._end()
                await asyncio.sleep(0)
                for task in under_way:
                    task.cancel()
        finally:
            self._end()

    async def close(self) -> None:
        """Hang up, when what was said is sent."""
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()

    async def _handled(self, handle: Handle, head: dict[str, Any], body: bytes) -> None:
        number = head.pop("ask", None)
        facts = await handle(Message(head.pop("kind"), head, body))
        if number is not None:
            self._send({"reply": number, **(facts or {})}, b"")

    async def _next(self) -> tuple[dict[str, Any], bytes] | None:
        try:
            head_bytes, body_bytes = _LENGTHS.unpack(await self._reader.readexactly(_LENGTHS.size))
            if max(head_bytes, body_bytes) > _LONGEST_BYTES:
                return None
            head: dict[str, Any] = json.loads(await self._reader.readexactly(head_bytes))
            return head, await self._reader.readexactly(body_bytes)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None

    def _send(self, head: dict[str, Any], body: bytes) -> None:
        if self._is_closed or self._writer.is_closing():
            return
        text = json.dumps(head).encode()
        self._writer.write(_LENGTHS.pack(len(text), len(body)) + text + body)

    def _replied(self, number: int, facts: Mapping[str, Any]) -> None:
        reply = self._asked.get(number)
        if reply is not None and not reply.done():
            reply.set_result(facts)

    def _end(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._writer.close()
        for reply in self._asked.values():
            if not reply.done():
                reply.set_exception(ChannelClosed("the other process has gone"))
