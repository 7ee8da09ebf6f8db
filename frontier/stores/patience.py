"""How long what failed is tried again."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Condition

#: Seconds before the second try; each later wait is twice as long, up to the longest.
FIRST_WAIT_S = 0.1
LONGEST_WAIT_S = 5.0


class Patience:
    """Waits between tries, for so many seconds from the first failure on. One thread waits; any may hurry it."""

    def __init__(self, retry_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """`retry_s` 0: what failed is not tried again."""
        self.retry_s = retry_s  #: from the first failure on
        self._clock = clock
        self._changed = Condition()
        self._is_hurried = False
        self._ends_s: float | None = None  #: by the clock; None = nothing has failed
        self._wait_s = FIRST_WAIT_S

    def renew(self) -> None:
        """It went well: the next failure has all the time again."""
        self._ends_s = None
        self._wait_s = FIRST_WAIT_S

    def wait(self) -> bool:
        """Wait until it is to be tried again; False, at once, if the time is up. The last try is when the time ends."""
        now_s = self._clock()
        if self._ends_s is None:
            self._ends_s = now_s + self.retry_s
        left_s = self._ends_s - now_s
        if left_s <= 0:
            return False
        with self._changed:
            is_hurried = self._changed.wait_for(lambda: self._is_hurried, min(self._wait_s, left_s))
            self._is_hurried = False
        self._wait_s = FIRST_WAIT_S if is_hurried else min(2 * self._wait_s, LONGEST_WAIT_S)
        return True

    def hurry(self) -> None:
        """End the present wait, or the next one, and begin with short ones again: somebody waits for the end."""
        with self._changed:
            self._is_hurried = True
            self._changed.notify()
