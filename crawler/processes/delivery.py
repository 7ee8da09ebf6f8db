"""A share's links for another share on their way: read from the store, sent, acknowledged, taken away.

One parcel is under way to each share. What is found meanwhile gathers in the store, so the busier the crawl is, the more goes
at a time, and memory holds one parcel. A share that is behind acknowledges late, and so slows down whoever sends, not itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from anabranch.frontier.aio import AsyncShare
from anabranch.frontier.division.exchange import PARCELS_AT_ONCE
from anabranch.frontier.stores.contract import Parcel

#: What comes within this time of a first link goes along with it, and within the longer one when something was sent just now:
#: each sending makes both stores commit.
GATHER_S = 0.03
BUSY_GATHER_S = 0.1

#: Send a content to the share; True when it has it durably, False if it is not there now.
Send = Callable[[bytes], Awaitable[bool]]


class Delivery:
    """Sends what there is for one share, for as long as `run` runs."""

    def __init__(self, frontier: AsyncShare, share: int, send: Send) -> None:
        self._frontier = frontier
        self._share = share
        self._send = send
        self._wakes = asyncio.Event()
        self._wakes.set()  # what an earlier run left
        self._last = 0  # number of the last parcel that was delivered
        self._is_clear = False

    @property
    def is_clear(self) -> bool:
        """All that was ever put for the share is there, durably."""
        return self._is_clear and self._frontier.exchange.last.get(self._share, 0) <= self._last

    def wake(self) -> None:
        """There is something more for the share, or it is there again."""
        self._wakes.set()

    async def run(self, when_clear: Callable[[], None]) -> None:
        """Send until cancelled. Raises: StoreUnavailable, ChannelClosed."""
        while True:
            await self._wakes.wait()
            if self._is_clear:
                await asyncio.sleep(GATHER_S)
            self._wakes.clear()
            self._is_clear = await self._send_all()
            if self.is_clear:
                when_clear()

    async def _send_all(self) -> bool:
        """Send all that waits; False if the share is not there now."""
        exchange = self._frontier.exchange
        while parcels := await asyncio.to_thread(exchange.waiting, self._share, self._last, PARCELS_AT_ONCE):
            if not await self._sent(parcels):
                return False
            if len(parcels) < PARCELS_AT_ONCE:
                if exchange.last.get(self._share, 0) <= self._last:
                    break  # so nothing more can be there, and the store need not be asked
                await asyncio.sleep(BUSY_GATHER_S)
        return True

    async def _sent(self, parcels: list[Parcel]) -> bool:
        if not await self._send(b"".join(parcel.content for parcel in parcels)):
            return False
        self._last = parcels[-1].number
        self._frontier.delivered(self._share, self._last)
        return True
