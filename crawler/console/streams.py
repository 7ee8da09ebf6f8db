"""Server-sent events: an event has an id, a client that comes back names the last one, and a quiet stream says that it lives.

The id of a line of a log is the place behind it, so that a client that comes back gets all lines since, also those that were
written while it was away, and after a rotation of the log.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable

from fastapi import HTTPException
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from anabranch.crawler.console.access import Holder
from anabranch.crawler.operate import Facts
from anabranch.crawler.report.logtail import LogFollower

#: Streams of one token at once.
_MOST_STREAMS = 50
#: A client waits this long before it comes back, in milliseconds.
_RETRY_MS = 2000
#: A stream without an event sends a comment so often: proxies close what is quiet for a minute.
_KEEP_ALIVE_S = 15.0
#: Between two looks at a log.
_FOLLOW_S = 0.5


class EventStream(StreamingResponse):
    """Server-sent events of a token. Raises: HTTPException, 429 if the token has too many open already."""

    def __init__(self, streams: Counter[Holder], who: Holder, events: AsyncIterator[str]) -> None:
        if streams[who] >= _MOST_STREAMS:
            raise HTTPException(429, f"the token {who.name} has {_MOST_STREAMS} streams open; close some")
        super().__init__(events, media_type="text/event-stream", headers={"Cache-Control": "no-store"})
        self._open, self._who = streams, who

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events."""
        self._open[self._who] += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._open[self._who] -= 1


def event(kind: str, facts: Facts, place: str | None = None, *, is_first: bool = False) -> str:
    """The text of an event. `place` is its id; the first one tells how long a client waits before it comes back. Pure."""
    identity = "" if place is None else f"id: {place}\n"
    retry = f"retry: {_RETRY_MS}\n" if is_first else ""
    return f"event: {kind}\ndata: {json.dumps(facts)}\n{identity}{retry}\n"


async def status_events(find: Callable[[], tuple[str, Facts, bool]], every_s: float) -> AsyncIterator[str]:
    """An event at each interval, from `find`: its kind, its facts, and whether it is the last one (blocks)."""
    is_first = True
    while True:
        kind, facts, is_last = await asyncio.to_thread(find)
        yield event(kind, facts, str(time.time_ns() // 1_000_000), is_first=is_first)
        is_first = False
        if is_last:
            return
        left_s = every_s
        while left_s > _KEEP_ALIVE_S:
            await asyncio.sleep(_KEEP_ALIVE_S)
            left_s -= _KEEP_ALIVE_S
            yield ": still here\n\n"
        await asyncio.sleep(left_s)


async def line_events(follower: LogFollower, contains: str, last_id: str) -> AsyncIterator[str]:
    """An event for each line that has the text; empty texts between looks. `last_id`: of the event after which to go on."""
    if last_id:
        await asyncio.to_thread(follower.resume, last_id)
    found = await asyncio.to_thread(follower.next_lines)
    # A client that gets no line has an id all the same, and comes back to the right place.
    place = follower.place if not found else ""
    yield f"retry: {_RETRY_MS}\n" + (f"id: {place}\n\n" if place else "\n")
    said_s = time.monotonic()
    while True:
        fitting = [event("line", {"line": line}, behind) for behind, line in found if contains in line]
        if fitting:
            place = found[-1][0] if contains in found[-1][1] else place
            yield "".join(fitting)
            said_s = time.monotonic()
        elif time.monotonic() - said_s >= _KEEP_ALIVE_S:
            yield ": still here\n\n" if follower.place == place else f"id: {follower.place}\n: still here\n\n"
            place, said_s = follower.place, time.monotonic()
        yield ""
        if not found:
            await asyncio.sleep(_FOLLOW_S)
        found = await asyncio.to_thread(follower.next_lines)
