"""Work that a cancellation may not tear apart. Here, in the lower room, because two rooms need it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar


class Closable(Protocol):
    """What holds something until it is closed."""

    def close(self) -> None:
        """Let go of it."""


T = TypeVar("T")
C = TypeVar("C", bound=Closable)


async def outlast(work: asyncio.Future[Any]) -> asyncio.CancelledError | None:
    """Wait until the work is done, however often the caller is cancelled; answers the last cancellation, if any."""
    cancelled: asyncio.CancelledError | None = None
    while not work.done():
        try:
            await asyncio.wait({work})
        except asyncio.CancelledError as error:
            cancelled = error
    return cancelled


async def to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Await work that is always finished, however often the caller is cancelled; only then the cancellation goes on.

    What the work raises comes before the cancellation.
    """
    result, cancelled = await _finished(work)
    if cancelled is not None:
        raise cancelled
    return result


async def or_closed(opening: Coroutine[Any, Any, C]) -> C:
    """Await what opens something; a caller that is cancelled meanwhile leaves nothing open.

    What the opening raises comes before the cancellation.
    """
    opened, cancelled = await _finished(opening)
    if cancelled is not None:
        opened.close()
        raise cancelled
    return opened


async def _finished(work: Coroutine[Any, Any, T]) -> tuple[T, asyncio.CancelledError | None]:
    """What the work came to, and the last cancellation of the caller meanwhile. Raises what the work raises."""
    task = asyncio.ensure_future(work)
    cancelled = await outlast(task)
    return task.result(), cancelled
