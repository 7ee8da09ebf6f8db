"""Tasks that wait until something has changed: the store has answered, a request came in or back."""

from __future__ import annotations

import asyncio


class Waiting:
    """Whoever finds nothing to do waits for `change`, and looks again.

    Nothing is lost between the look and the wait, if no `await` stands between them and `enter` came before the look.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiters: set[asyncio.Future[None]] = set()

    def enter(self) -> None:
        """From now on it is this loop that is woken: a queue that Crawlee keeps may see several, one after the other."""
        self._loop = asyncio.get_running_loop()

    async def change(self, longest_s: float | None) -> None:
        """Return at the next change, or after so many seconds."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await asyncio.wait({waiter}, timeout=longest_s)
        finally:
            self._waiters.discard(waiter)

    def wake(self) -> None:
        """Something has changed."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def wake_from_thread(self) -> None:
        """Something has changed, says another thread."""
        loop = self._loop
        if loop is None:
            return
        try:
            loop.call_soon_threadsafe(self.wake)
        except RuntimeError:
            return  # the loop is closed: nobody waits any more
