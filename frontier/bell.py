"""What wakes an event loop for the Frontier: the store's thread, and the one moment that the core names.

A page costs neither a system call nor a timer. The thread may answer a hundred times before the loop has its turn, and rings
once; the moment moves with nearly every lease, and mostly to a later one, for which the timer that is there will do.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable


class Bell:
    """Any thread rings, the loop hears. However often it is rung before it is heard, it is heard once."""

    def __init__(self, loop: AbstractEventLoop, hear: Callable[[], None]) -> None:
        self._loop = loop
        self._hear = hear
        self._is_rung = False

    def ring(self) -> None:
        """Have `hear` called by the loop; what was true before this call, it will see. Never waits, any thread."""
        if self._is_rung:
            return
        self._is_rung = True
        try:
            self._loop.call_soon_threadsafe(self._heard)
        except RuntimeError:
            return  # the loop is closed: nobody hears any more

    def _heard(self) -> None:
        self._is_rung = False  # before the look: whoever rings from now on may have come too late for it
        self._hear()


class Alarm:
    """One timer for a moment that moves. It never rings late; too early it may, so whoever hears it sets it again."""

    def __init__(self, loop: AbstractEventLoop, hear: Callable[[], None], now_s: Callable[[], float]) -> None:
        """`now_s` reads the clock that the moments are of."""
        self._loop = loop
        self._hear = hear
        self._now_s = now_s
        self._timer: TimerHandle | None = None
        self._at_s = 0.0  #: when it rings

    @property
    def is_set(self) -> bool:
        """It will ring."""
        return self._timer is not None

    def set(self, at_s: float) -> None:
        """Ring at this moment at the latest. O(1), and for a later moment than it is set to already next to nothing."""
        if self._timer is not None:
            if self._at_s <= at_s:
                return
            self._timer.cancel()
        self._at_s = at_s
        self._timer = self._loop.call_later(max(at_s - self._now_s(), 0.0), self._ring)

    def stop(self) -> None:
        """Ring no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self) -> None:
        self._timer = None
        self._hear()
