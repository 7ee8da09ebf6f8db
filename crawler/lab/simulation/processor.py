"""The crawler's own speed: one processor, before which the pages stand in line. Pure; the time is an argument."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """How long the crawler itself takes.

    Its event loop goes in turns: each looks at sockets and timers, has the store commit, and serves every page that came while
    the turn before went on. So a page is dear while there is time to spare, and cheap when there is none.
    """

    page_s: float = 0.0  #: of the processor, for a page
    turn_s: float = 0.0  #: for a turn, however many pages it serves


class Processor:
    """Serves first come, first served, in turns. Cost: O(1) a page."""

    def __init__(self, speed: Speed) -> None:
        self.busy_s = 0.0  #: that it has worked, or will have when all are served
        self._speed = speed
        self._start_s = -math.inf  #: of the last turn that is known of
        self._pages = 0  #: that it serves, as far as they have come

    def serve(self, now_s: float) -> float:
        """Stand in line from now on with a page; the answer is how long it takes until it is done."""
        page_s, turn_s = self._speed.page_s, self._speed.turn_s
        if now_s > self._start_s:  # that turn goes on, or has ended
            self._start_s = max(now_s, self._start_s + turn_s + self._pages * page_s)
            self._pages = 0
            self.busy_s += turn_s
        self._pages += 1
        self.busy_s += page_s
        return self._start_s + turn_s + self._pages * page_s - now_s
